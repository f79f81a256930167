"""Other objectives than the mean JCT (deadlines, weights, tails), and the cost of guarantees ``no-later-than``.

Objectives are compared under heuristics, a policy for the mean JCT, and a policy for the objective. For guarantees, the
changes of mean and tail JCT, and violations with and without guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation.comparison import Comparison
from decima.evaluation.metrics import (
    METRICS,
    SHOWN,
    Interval,
    ShownMetric,
    bootstrap_interval,
    compare_metrics,
    mean_interval,
    paired_change,
)
from decima.evaluation.variants import fair_rule
from decima.policy.shipped import objective_policy
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.schedulers.guarantees import Guarantees
from decima.show.style import LEGEND, finish_axes, label_points, new_figure, styles
from decima.show.tables import table_of
from decima.studies.compared import compared, tidy
from decima.studies.outcome import FULL, RULE, Outcome
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
    panels, labels = figure.subplots(1, len(DRAWN), squeeze=False)[0], []
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
        heading = METRICS[column].heading
        ylabel = f"{heading} ({'%' if share else 's'})"
        finish_axes(axes, title=_name(goal, load), xlabel="Mean JCT (s)", ylabel=ylabel)
        axes.margins(0.1)
        labels.append((axes, {place: ", ".join(names) for place, names in places.items()}))
    for axes, texts in labels:
        label_points(axes, texts)
    return figure


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
    """Draw the change of the mean JCT, late jobs and the largest lateness over factors; pale: without it."""
    figure = new_figure(13, 4)
    cost, late, latest = figure.subplots(1, 3)
    looks = styles(found)
    for name, by_factor in found.items():
        factors = list(by_factor)
        means = np.array([each.mean for each in by_factor.values()])
        look = looks[name] | {"marker": "o", "markersize": 5}
        cost.errorbar(
            factors, 100 * means[:, 0], 100 * means[:, 1], capsize=2, elinewidth=1, label=name, **look
        )
        for axes, values, scale in (
            (late, [each.late for each in by_factor.values()], 100),
            (latest, [each.latest_s for each in by_factor.values()], 1),
        ):
            alone, kept = np.array([[each.mean for each in pair] for pair in values]).T * scale
            axes.plot(factors, kept, **look)
            axes.plot(factors, alone, **look, alpha=0.5, markerfacecolor="white")
    cost.axhline(0.0, color="0.6", linewidth=0.8)
    factor = "Guaranteed JCT, as a factor on that of fair"
    finish_axes(cost, title="Cost", xlabel=factor, ylabel="Change of the mean JCT (%)")
    finish_axes(late, title="Late jobs (pale: without guarantee)", xlabel=factor, ylabel="Late jobs (%)")
    title = "Latest job (pale: without guarantee)"
    finish_axes(latest, title=title, xlabel=factor, ylabel="Largest lateness in an experiment (s)")
    wide = {**LEGEND, "handlelength": 4}  # dashes beside the points
    figure.legend(*cost.get_legend_handles_labels(), ncols=len(found), loc="outside lower center", **wide)
    return figure
