"""Objectives beside the mean JCT: rules, a policy for the mean, and the policy that was trained for the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation.metrics import METRICS, SHOWN, ShownMetric, compare_metrics
from decima.policy.shipped import objective_policy
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.show.style import finish_axes, new_figure, styles
from decima.show.tables import interval_text, new_table
from decima.studies.compared import tidy
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study
from workloads.attribute_distribution import AttributeDistribution

__all__ = ["objectives", "plot_fronts"]


class Goal(NamedTuple):
    """An objective of the study.

    Attributes:
        metric: name of ``decima compare --show``.
        rules: rules for it, beside ``fair`` and ``priced-srpt``.
        attributes: attributes of jobs that are drawn.
    """

    metric: str
    rules: tuple[str, ...]
    attributes: AttributeDistribution = AttributeDistribution()


#: Objectives: deadlines at 2 to 4 times the time alone; weights; and the tail.
GOALS = (
    Goal("misses", ("edf", "least-slack", "atc"), AttributeDistribution(slack=(2, 4))),
    Goal("weighted", ("weighted-srpt", "atc"), AttributeDistribution(weights=(1, 4, 16))),
    Goal("p99", ("fifo", "las", "hesrpt", "gamma-boost", "gamma-boost:0.5", "gamma-boost:0.85")),
)
#: Columns beside the objective.
OTHERS = ("mean", "p99")
#: Objectives over the mean JCT in the picture.
DRAWN = ("misses", "p99")
#: Schedulers that are not in the picture: far from all others.
LEFT_OUT = ("fifo", "las")


def objectives(study: Study, load: Sequence[float]) -> Outcome:
    """Compare rules, a policy for the mean JCT, and a policy for the objective, under each objective and load."""
    conditions, loads = {}, load or (0.7, 0.85)
    for share in loads:
        interval_s = _interval_s(study, share)
        for goal in GOALS:
            plain = study.conditions(num_experiments=20, num_jobs=100, interval_s=interval_s)
            drawn = replace(plain, attributes=goal.attributes)
            conditions[_name(goal, share)] = (drawn, {name: name for name in _schedulers(study, goal)})
    runs = tidy(study.compare(conditions))
    tables, found, notes = [], {}, []
    for share in loads:
        for goal in GOALS:
            name, column = _name(goal, share), SHOWN[goal.metric]
            mine = runs[runs["condition"] == name]
            rules = [each for each in mine["scheduler"].unique() if not each.startswith(LEARNED)]
            means = mine.groupby("scheduler")[column].mean()
            best = str(means[rules].idxmin())
            columns = list(dict.fromkeys([column, *(SHOWN[each] for each in OTHERS)]))
            shown = compare_metrics(mine, mine["scheduler"].unique(), best, columns)
            table = new_table(
                f"{name}, {conditions[name][0].num_experiments} experiments",
                *("Scheduler", *(METRICS[each].heading for each in columns), f"vs {best}"),
            )
            for scheduler, row in shown.items():
                cells = (interval_text(row[each].mean, METRICS[each].form) for each in columns)
                change = "" if scheduler == best else interval_text(row[column].change, "+.1%")
                style = "bold" if scheduler.startswith(LEARNED) else None
                table.add_row(scheduler, *cells, change, style=style)
            tables.append(table)
            found[name] = {
                "best_rule": best,
                "schedulers": {each: _entry(row) for each, row in shown.items()},
            }
            notes.append(f"{name}: {_verdict(goal, shown, column, best)}.")
    experiments = next(iter(conditions.values()))[0]
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
    """Return the mean time between arrivals at which work arrives as fast as this share of the executors does it."""
    work_ms = float(np.mean([profile.work_ms for profile in study.workload.profiles]))
    return work_ms / (load * study.executors) / 1000


def _schedulers(study: Study, goal: Goal) -> list[str]:
    mean = f"{LEARNED}:{study.checkpoint or DEFAULT_POLICY}"
    own = objective_policy(goal.metric)
    return ["fair", RULE, *goal.rules, mean, *([f"{LEARNED}:{own}"] if own else [])]


def _entry(row: dict[str, ShownMetric]) -> dict[str, dict[str, float]]:
    return {
        column: {
            "mean": values.mean.mean,
            "mean_ci95": values.mean.half_width,
            "change": values.change.mean,
            "change_ci95": values.change.half_width,
        }
        for column, values in row.items()
    }


def _verdict(goal: Goal, shown: dict[str, dict[str, ShownMetric]], column: str, best: str) -> str:
    """Say in words whether the policy for the objective is better than the best rule, beyond the interval."""
    own = objective_policy(goal.metric)
    if own is None:
        return f"no policy ships for it; the best rule is {best}"
    change = shown[f"{LEARNED}:{own}"][column].change
    if change.mean + change.half_width < 0:
        return f"decima:{own} is better than the best rule, {best}, beyond its interval"
    return f"decima:{own} is not better than the best rule, {best}, beyond its interval"


def plot_fronts(runs: pd.DataFrame, load: float) -> Figure:
    """Draw each scheduler's objectives over its mean JCT: a panel for each of ``DRAWN``."""
    figure = new_figure(11, 4.5)
    looks = styles(runs["scheduler"].unique())
    panels = figure.subplots(1, len(DRAWN), squeeze=False)[0]
    for axes, metric in zip(panels, DRAWN, strict=True):
        goal, column = next(each for each in GOALS if each.metric == metric), SHOWN[metric]
        mine = runs[runs["condition"] == _name(goal, load)]
        share = METRICS[column].is_share
        places: dict[tuple[float, float], list[str]] = {}  # schedulers that decide alike share a point
        for scheduler, rows in mine[~mine["scheduler"].isin(LEFT_OUT)].groupby("scheduler", sort=False):
            value = float(rows[column].mean()) * (100 if share else 1)
            places.setdefault((float(rows["mean_jct_s"].mean()), value), []).append(str(scheduler))
        for place, names in places.items():
            axes.plot(*place, marker="o", **{**looks[names[0]], "linestyle": ""})
            axes.annotate(", ".join(names), place, (4, 4), textcoords="offset points", fontsize="x-small")
        heading = METRICS[column].heading
        finish_axes(
            axes,
            title=_name(goal, load),
            xlabel="Mean JCT (s)",
            ylabel=f"{heading} ({'%' if share else 's'})",
        )
    return figure
