"""Cost of guarantees ``no-later-than``: change of mean and tail JCT, and violations with and without guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation.comparison import Comparison
from decima.evaluation.guarantees import fair_rule
from decima.evaluation.metrics import Interval, bootstrap_interval, mean_interval, paired_change
from decima.registry import LEARNED
from decima.schedulers.guarantees.spec import Guarantees
from decima.show.style import LEGEND, finish_axes, new_figure, styles
from decima.show.tables import table_of
from decima.studies.compared import compared
from decima.studies.outcome import FULL, RULE, Outcome
from decima.studies.study import Study

#: Default bounds on the JCT, as factors on the JCT under fair sharing.
FACTORS = (1.5, 2.0, 3.0)
#: Heuristics; ``las`` starves large jobs.
RULES = ("fair", RULE, "las")


class Cost(NamedTuple):
    """Effect of a guarantee on a scheduler, averaged over experiments; changes are paired by experiment.

    Attributes:
        mean: change of the mean JCT, as a fraction.
        p99: change of the 99th percentile of the JCT, as a fraction.
        worst_slowdown: change of the largest slowdown of a job.
        late: share of jobs that are later than the guarantee allows, without and with the guarantee.
        latest_s: largest lateness of a job in an experiment, s, without and with the guarantee.
        changed: share of decisions that the guarantee changed.
    """

    mean: Interval
    p99: Interval
    worst_slowdown: Interval
    late: tuple[Interval, Interval]
    latest_s: tuple[Interval, Interval]
    changed: float


def guarantees(study: Study, load: float, factors: Sequence[float]) -> Outcome:
    """Compare schedulers with and without guarantees on streams of 200 jobs."""
    interval_s = study.interval_for_load(load)
    conditions = study.conditions(num_experiments=20, num_jobs=200, interval_s=interval_s)
    factors = sorted(set(factors)) or FACTORS
    policy = LEARNED if study.checkpoint is None else f"{LEARNED}:{study.checkpoint}"
    alone = {name: name for name in (*RULES, FULL, *study.specialists("batch"))} | {FULL: policy}
    schedulers = alone | {
        _kept(name, factor): f"{spec}{Guarantees(no_later_than=factor).suffix}"
        for name, spec in alone.items()
        for factor in factors
    }
    comparisons = study.compare({"": (conditions, schedulers)})
    found = {name: {factor: costs(comparisons[""], name, factor) for factor in factors} for name in alone}
    headings = ("Mean JCT", "p99 JCT", "Worst slowdown", "Late jobs", "Latest (s)", "Changed")
    rows = (
        (
            *(name, f"{factor:g}", each.mean, each.p99, each.worst_slowdown),
            " to ".join(f"{rate.mean:.1%}" for rate in each.late),
            " to ".join(f"{latest.mean:.0f}" for latest in each.latest_s),
            each.changed,
        )
        for name, by_factor in found.items()
        for factor, each in by_factor.items()
    )
    table = table_of(
        f"No later than a factor times the JCT under {fair_rule(conditions.cluster)}",
        ("Scheduler", "Factor", *headings),
        rows,
        ("+.1%", "+.1%", "+.1f", "", "", ".1%"),
        names=2,
    )
    table.columns[1].justify = "right"
    return compared(
        "guarantees",
        study.title(conditions),
        comparisons,
        reference=RULE,
        columns=("p99_jct_s", "worst_slowdown"),
        tables=(table,),
        notes=(
            "Mean JCT, p99 JCT, worst slowdown: change by the guarantee, paired by experiment; intervals of the latter "
            "two are bootstrap intervals.",
            "Late jobs: share of the jobs that are later than the factor allows, alone and with the guarantee; latest: "
            "by how much the latest job of an experiment is, on average over the experiments.",
            "Changed: share of the decisions that the guarantee changed.",
        ),
        extra={
            "interval_s": interval_s,
            "costs": {
                name: {f"{factor:g}": each._asdict() for factor, each in by_factor.items()}
                for name, by_factor in found.items()
            },
        },
        pictures={"guarantees": partial(plot_guarantees, found)},
    )


def _kept(scheduler: str, factor: float) -> str:
    """Return the displayed name of a scheduler with a guarantee."""
    return f"{scheduler} \u2264 {factor:g}"


def costs(comparison: Comparison, scheduler: str, factor: float) -> Cost:
    """Compare a scheduler with and without the guarantee of a factor on the JCT under the fair rule."""
    kept, rule = _kept(scheduler, factor), fair_rule(comparison.conditions.cluster)
    by_name = dict(iter(comparison.runs.set_index("seed").groupby("scheduler")))
    alone, guaranteed = by_name[scheduler], by_name[kept]
    late_s = [
        _late_s(comparison.jobs, name, rule, factor).groupby(level="seed") for name in (scheduler, kept)
    ]
    rates = [mean_interval(each.apply(lambda late: (late > 0).mean())) for each in late_s]
    latest = [bootstrap_interval(each.max().clip(lower=0.0)) for each in late_s]
    p99 = bootstrap_interval(guaranteed["p99_jct_s"] - alone["p99_jct_s"])
    scale = float(alone["p99_jct_s"].mean())
    return Cost(
        paired_change(guaranteed["mean_jct_s"], alone["mean_jct_s"]),
        Interval(p99.mean / scale, p99.half_width / scale),
        bootstrap_interval(guaranteed["worst_slowdown"] - alone["worst_slowdown"]),
        (rates[0], rates[1]),
        (latest[0], latest[1]),
        float(guaranteed["overruled"].sum() / guaranteed["decisions"].sum()),
    )


def _late_s(jobs: pd.DataFrame, scheduler: str, rule: str, factor: float) -> pd.Series[float]:
    """Return the lateness of each job, s, negative for jobs in time; the index is ``seed``, ``job``."""
    jct_s = jobs.set_index(["scheduler", "seed", "job"])["jct_s"]
    late_s: pd.Series[float] = jct_s[scheduler] - factor * jct_s[rule]
    return late_s


def plot_guarantees(found: Mapping[str, Mapping[float, Cost]]) -> Figure:
    """Draw the change of the mean JCT, late jobs and the largest lateness over factors; dashed: without guarantee."""
    figure = new_figure(13, 4)
    cost, late, latest = figure.subplots(1, 3)
    looks = styles(found)
    for name, by_factor in found.items():
        factors = list(by_factor)
        means = np.array([each.mean for each in by_factor.values()])
        look = looks[name] | {"linestyle": "-", "marker": "o"}
        cost.errorbar(factors, 100 * means[:, 0], 100 * means[:, 1], capsize=2, label=name, **look)
        for axes, values, scale in (
            (late, [each.late for each in by_factor.values()], 100),
            (latest, [each.latest_s for each in by_factor.values()], 1),
        ):
            alone, kept = np.array([[each.mean for each in pair] for pair in values]).T * scale
            axes.plot(factors, kept, **look)
            axes.plot(factors, alone, **(look | {"linestyle": "--", "marker": ""}))
    cost.axhline(0.0, color="0.6", linewidth=0.8)
    finish_axes(cost, xlabel="Factor", ylabel="Change of the mean JCT (%)")
    finish_axes(late, xlabel="Factor", ylabel="Late jobs (%)")
    finish_axes(latest, xlabel="Factor", ylabel="Latest job of an experiment (s)")
    cost.legend(**LEGEND)
    return figure
