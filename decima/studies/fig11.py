"""Figure 11 of the Decima paper: jobs that need memory, on executors of four sizes; an industrial trace, and TPC-H."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from decima.evaluation.conditions import Conditions
from decima.evaluation.intervals import mean_interval, paired_change
from decima.show.style import BLACK, GREY, RED, finish_axes, new_axes
from decima.show.tables import interval_text
from decima.studies.compared import compared, jct_s, tidy
from decima.studies.multi_resource import (
    GRAPHENE_STAR,
    HEURISTICS,
    OURS,
    PURE,
    TETRIS,
    experiments,
    fragmentation_claim,
    learned,
)
from decima.studies.outcome import FULL, Claim, Outcome
from decima.studies.study import Study

__all__ = ["fig11a", "fig11b", "plot_fig11"]

#: Sequences to tune on beforehand; of a trace, its last windows.
NUM_TRAINING, TRACE_TRAINING = 6, 2
#: Rules that need no tuning, and Graphene* tuned before it is judged.
OTHERS = ("fair", "drf", f"{GRAPHENE_STAR}:once")


def fig11a(study: Study, window_s: float) -> Outcome:
    """Compare schedulers on ten windows of a trace, which no scheduler has seen.

    Args:
        study: size and surroundings; the workload says which jobs arrive when.
        window_s: length of the windows, s.

    Raises:
        WorkloadError: the workload does not say which jobs arrive when.
    """
    conditions = experiments(study, trace=True, window_s=window_s)
    title = f"Windows of {window_s:g} s of {study.workload.name}, {study.executors} executors of 4 sizes"
    return _fig11(study, conditions, "fig11a", title, paper=0.32)


def fig11b(study: Study, interval_s: float) -> Outcome:
    """Compare schedulers on ten streams of 200 TPC-H jobs, whose stages need memory from (0, 1].

    Args:
        study: size and surroundings; the workload has no arrivals.
        interval_s: mean time between arrivals, s.

    Raises:
        WorkloadError: the workload says which jobs arrive when.
    """
    conditions = experiments(study, trace=False, interval_s=interval_s)
    jobs = f"{conditions.num_jobs} {study.workload.name} jobs {interval_s:g} s apart"
    return _fig11(study, conditions, "fig11b", f"{jobs}, {study.executors} executors of 4 sizes", paper=0.43)


def _fig11(study: Study, conditions: Conditions, name: str, title: str, paper: float) -> Outcome:
    schedulers = {each: each for each in OTHERS} | PURE
    schedulers |= {each: each for each in (*HEURISTICS, OURS)} | {FULL: learned(study, conditions)}
    num_training = NUM_TRAINING if conditions.window_ms is None else TRACE_TRAINING
    comparisons = study.compare({"": (conditions, schedulers)}, num_training=num_training)
    comparison, runs = comparisons[""], tidy(comparisons)
    best = min(HEURISTICS, key=lambda each: float(jct_s(runs, each).mean()))
    load = float(runs[runs["scheduler"] == HEURISTICS[0]]["load"].mean())
    return compared(
        name,
        title,
        comparisons,
        runs=runs,
        paper={("", FULL): f"-{paper:.0%} against Graphene*"},
        columns=("fragmentation",),
        claims=(
            _lower(
                f"Decima's average JCT is {paper:.0%} below that of Graphene*.", runs, GRAPHENE_STAR, paper
            ),
            _lower("It is below that of all others too.", runs, best),
            fragmentation_claim(runs),
            _lower("Its average JCT is 52% below Tetris's.", runs, TETRIS, 0.52),
        ),
        notes=(
            "tuned-NAME: the best parameters of each experiment, known only in hindsight, as in the paper; :once has "
            f"{comparison.tuned['graphene-star']}, which was best on {len(comparison.training_seeds)} other sequences.",
            f"Load: tasks kept executors busy for {load:.0%} of the time until the last arrival under {HEURISTICS[0]}.",
            f"A simple rule, {OURS}: {_change(runs, OURS, best)}; {FULL}: {_change(runs, FULL, OURS)}.",
        ),
        extra={"measured_load": load, "best_heuristic": best},
        pictures={name: partial(plot_fig11, runs)},
    )


def _lower(paper: str, runs: pd.DataFrame, other: str, by: float = 0.0) -> Claim:
    """Claim that Decima's JCT is lower by this share: the interval excludes 0 and reaches as far."""
    change = paired_change(jct_s(runs, FULL), jct_s(runs, other))
    holds = change.mean + change.half_width < 0 and change.mean - change.half_width <= -by
    return Claim(paper, f"{FULL}: {_change(runs, FULL, other)}", holds)


def _change(runs: pd.DataFrame, one: str, other: str) -> str:
    return f"{interval_text(paired_change(jct_s(runs, one), jct_s(runs, other)), '+.1%')} against {other}"


def plot_fig11(runs: pd.DataFrame) -> Figure:
    """Draw the average JCT of each scheduler with its interval, from above to below; the axis is logarithmic."""
    names = runs["scheduler"].unique()
    means, half_widths = np.array([mean_interval(jct_s(runs, name)) for name in names]).T
    figure, axes = new_axes(7, 0.3 * len(names) + 1)
    for place, name in enumerate(names):
        colour = BLACK if name == FULL else RED if name in HEURISTICS else GREY
        axes.errorbar(means[place], place, xerr=half_widths[place], fmt="o", color=colour, capsize=2)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    finish_axes(axes, xlabel="Average job completion time (s)", xscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    return figure
