"""Other objectives than the mean JCT: heuristics, a policy for the mean JCT, and a policy for the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation.metrics import METRICS, SHOWN, ShownMetric, compare_metrics
from decima.policy.shipped import objective_policy
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.show.style import finish_axes, label_point, new_figure, styles
from decima.show.tables import table_of
from decima.studies.compared import tidy
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study
from workloads.transform import AttributeDistribution


class Goal(NamedTuple):
    """An objective: metric (a name of ``--show``), heuristics for it, and attributes of jobs."""

    metric: str
    rules: tuple[str, ...]
    attributes: AttributeDistribution = AttributeDistribution()


#: Objectives: missed deadlines (2 to 4 times the time alone after the arrival), weighted mean JCT, tail JCT.
GOALS = (
    Goal("misses", ("edf", "least-slack", "atc"), AttributeDistribution(slack=(2, 4))),
    Goal("weighted", ("weighted-srpt", "atc"), AttributeDistribution(weights=(1, 4, 16))),
    Goal("p99", ("fifo", "las", "hesrpt", "gamma-boost", "gamma-boost:0.5", "gamma-boost:0.85")),
)
#: Columns besides the objective.
OTHERS = ("mean", "p99")
#: Objectives in the picture, one panel each.
DRAWN = ("misses", "p99")
#: Schedulers left out of the picture, as they are far from all others.
LEFT_OUT = ("fifo", "las")


def objectives(study: Study, load: Sequence[float]) -> Outcome:
    """Compare heuristics, a policy for the mean JCT, and a policy for the objective, at each load."""
    loads = load or (0.7, 0.85)
    conditions, tables, found, notes = {}, [], {}, []
    for share, goal in product(loads, GOALS):
        plain = study.conditions(num_experiments=20, num_jobs=100, interval_s=_interval_s(study, share))
        drawn = replace(plain, attributes=goal.attributes)
        conditions[_name(goal, share)] = (drawn, _schedulers(study, goal))
    runs, experiments = tidy(study.compare(conditions)), plain
    for share, goal in product(loads, GOALS):
        name, column = _name(goal, share), SHOWN[goal.metric]
        mine = runs[runs["condition"] == name]
        rules = [each for each in mine["scheduler"].unique() if not each.startswith(LEARNED)]
        best = str(mine.groupby("scheduler")[column].mean()[rules].idxmin())
        columns = list(dict.fromkeys([column, *(SHOWN[each] for each in OTHERS)]))
        shown = compare_metrics(mine, mine["scheduler"].unique(), best, columns)
        rows = (
            (each, *(row[metric].mean for metric in columns), None if each == best else row[column].change)
            for each, row in shown.items()
        )
        headings = ("Scheduler", *(METRICS[each].heading for each in columns), f"vs {best}")
        forms = (*(METRICS[each].form for each in columns), "+.1%")
        title = f"{name}, {experiments.num_experiments} experiments"
        tables.append(table_of(title, headings, rows, forms, bold=shown.keys() - set(rules)))
        names = ("mean", "mean_ci95", "change", "change_ci95")
        entries = {
            each: {
                metric: dict(zip(names, (*values.mean, *values.change), strict=True))
                for metric, values in row.items()
            }
            for each, row in shown.items()
        }
        found[name] = {"best_rule": best, "schedulers": entries}
        notes.append(f"{name}: {_verdict(goal, shown, column, best)}.")
    return Outcome(
        "objectives",
        runs,
        tables,
        [
            f"Streams of {experiments.num_jobs} {study.workload.name} jobs, {study.executors} executors. Load: "
            "work that arrives over the executors' time. Last column: relative change of the objective, paired; ± is "
            "half a 95 % confidence interval (Student's t, for p99 bootstrap).",
            *notes,
        ],
        extra={"objectives": found, "seeds": list(experiments.seeds)},
        pictures={"objectives": partial(plot_fronts, runs, loads[-1])},
    )


def _name(goal: Goal, load: float) -> str:
    return f"{METRICS[SHOWN[goal.metric]].heading} at {load:.0%} load"


def _interval_s(study: Study, load: float) -> float:
    """Return the mean time between arrivals for a load, s: arriving work over the time of all executors."""
    work_ms = float(np.mean([profile.work_ms for profile in study.workload.profiles]))
    return work_ms / (load * study.executors) / 1000


def _schedulers(study: Study, goal: Goal) -> list[str]:
    mean = f"{LEARNED}:{study.checkpoint or DEFAULT_POLICY}"
    own = objective_policy(goal.metric)
    return ["fair", RULE, *goal.rules, mean, *([f"{LEARNED}:{own}"] if own else [])]


def _verdict(goal: Goal, shown: dict[str, dict[str, ShownMetric]], column: str, best: str) -> str:
    """Describe whether the policy for the objective is better than the best heuristic beyond the interval."""
    own = objective_policy(goal.metric)
    if own is None:
        return f"no policy ships for it; the best rule is {best}"
    change = shown[f"{LEARNED}:{own}"][column].change
    holds = "is" if change.mean + change.half_width < 0 else "is not"
    return f"decima:{own} {holds} better than the best rule, {best}, beyond its interval"


def plot_fronts(runs: pd.DataFrame, load: float) -> Figure:
    """Draw objectives over the mean JCT, one panel for each of ``DRAWN``, one point per scheduler."""
    figure = new_figure(11, 4.5)
    looks = styles(runs["scheduler"].unique())
    panels = figure.subplots(1, len(DRAWN), squeeze=False)[0]
    for axes, metric in zip(panels, DRAWN, strict=True):
        goal, column = next(each for each in GOALS if each.metric == metric), SHOWN[metric]
        mine = runs[runs["condition"] == _name(goal, load)]
        share = METRICS[column].is_share
        places: dict[tuple[float, float], list[str]] = {}  # schedulers with equal decisions share a point
        for scheduler, rows in mine[~mine["scheduler"].isin(LEFT_OUT)].groupby("scheduler", sort=False):
            value = float(rows[column].mean()) * (100 if share else 1)
            places.setdefault((float(rows["mean_jct_s"].mean()), value), []).append(str(scheduler))
        for place, names in places.items():
            axes.plot(*place, marker="o", **{**looks[names[0]], "linestyle": ""})
            label_point(axes, ", ".join(names), place)
        heading = METRICS[column].heading
        ylabel = f"{heading} ({'%' if share else 's'})"
        finish_axes(axes, title=_name(goal, load), xlabel="Mean JCT (s)", ylabel=ylabel)
    return figure
