"""Streams that change in the middle: what schedulers gain against fair sharing before the change and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import Conditions
from decima.evaluation.intervals import Interval, mean_interval, paired_change
from decima.policy.shipped import specialists
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.show.style import GREY, LEGEND, finish_axes, new_figure, styles
from decima.show.tables import interval_text, new_table
from decima.studies.compared import compared
from decima.studies.outcome import FULL, RULE, Outcome
from decima.studies.study import Study, interval_for_load
from workloads.arrivals import Drift
from workloads.sources.workload_file import Workload

__all__ = ["changes", "drift", "plot_drift"]

#: Scheduler that all are compared with.
FAIR = "fair"
#: Bins of arrival times in pictures, up to the change.
BINS = 6
_Phases = tuple[Interval, ...]


def drift(study: Study, load: float) -> Outcome:
    """Compare rules and policies on streams whose rate doubles or halves, or whose jobs become larger or smaller.

    Args:
        study: size and surroundings.
        load: share of busy executor time of the busier half of a stream.

    Raises:
        WorkloadError: the workload says which jobs arrive when.
    """
    conditions = _conditions(study, load)
    policies = [DEFAULT_POLICY, *(name for name in ("tpch-stream", "embedded-stream") if _fits(study, name))]
    learned = {f"{LEARNED}:{name}": f"{LEARNED}:{name}" for name in policies}
    if study.checkpoint is not None:
        learned = {FULL: f"{LEARNED}:{study.checkpoint}"}
    rules = {name: name for name in (FAIR, "weighted-fair:-1", "profiled-srpt:2.5", RULE)}
    comparisons = study.compare({name: (each, rules | learned) for name, each in conditions.items()})
    found = {name: changes(each) for name, each in comparisons.items()}
    table = new_table(
        "Jobs that arrive before the change, and after it",
        *("Change", "Scheduler", "JCT before", "vs fair", "JCT after", "vs fair"),
        names=2,
    )
    for change, rows in found.items():
        for place, (name, (before, gain_before, after, gain_after)) in enumerate(rows.items()):
            gains = [
                "" if name == FAIR else interval_text(each, "+.1%") for each in (gain_before, gain_after)
            ]
            means = interval_text(before), gains[0], interval_text(after), gains[1]
            table.add_row(change * (not place), name, *means, end_section=place == len(rows) - 1)
    number = next(iter(conditions.values())).num_jobs
    return compared(
        "drift",
        f"{number} {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        reference=FAIR,
        tables=(table,),
        notes=(
            "Streams: "
            + "; ".join(
                f"{name}: {each.interval_ms / 1000:g} s apart, {each.drift}"
                for name, each in conditions.items()
            )
            + ".",
            f"The busier half of each keeps executors busy for {load:.0%} of the time; small and large jobs are halves "
            "of the profiles by work.",
            "vs fair: mean JCT against fair's, of the same jobs; paired by experiment.",
        ),
        extra={
            "before_and_after": {
                change: {
                    name: dict(
                        zip(("before_s", "change_before", "after_s", "change_after"), row, strict=True)
                    )
                    for name, row in rows.items()
                }
                for change, rows in found.items()
            }
        },
        pictures={"drift": partial(plot_drift, comparisons)},
    )


def _fits(study: Study, policy: str) -> bool:
    """Whether the jobs are those that a shipped policy was trained on."""
    return policy in specialists() and policy.startswith("tpch" if "profiles" in study.source else "embedded")


def _conditions(study: Study, load: float) -> dict[str, Conditions]:
    """Return the streams by the change in their middle."""
    by_work = sorted(study.workload.profiles, key=lambda profile: profile.work_ms)
    middle = (len(by_work) + 1) // 2
    small = replace(study.workload, profiles=tuple(by_work[:middle]), name=f"small {study.workload.name}")
    large = replace(study.workload, profiles=tuple(by_work[-middle:]), name=f"large {study.workload.name}")
    busy_s = study.interval_for_load(load)
    large_s = interval_for_load(large, study.executors, load)

    def stream(interval_s: float, rate: float, first: Workload, then: Workload | None = None) -> Conditions:
        drawn = study.conditions(num_experiments=10, num_jobs=200, interval_s=interval_s)
        at_ms = drawn.interval_ms * drawn.num_jobs / 2
        others = () if then is None else (then.profiles, then.name)
        return replace(drawn, workload=first, drift=Drift(at_ms, rate, *others))

    return {
        "twice as many jobs": stream(2 * busy_s, 2.0, study.workload),
        "half as many jobs": stream(busy_s, 0.5, study.workload),
        "larger jobs": stream(large_s, 1.0, small, large),
        "smaller jobs": stream(large_s, 1.0, large, small),
    }


def changes(comparison: Comparison) -> dict[str, _Phases]:
    """Return the mean JCT before the change and after it, s, each with its relative difference from ``fair``.

    Args:
        comparison: finished comparison, with ``fair``.

    Returns:
        Scheduler -> mean JCT of the jobs that arrive before the change, its paired difference; the same after it.
        Experiments without jobs on a side do not count there.
    """
    jobs = comparison.jobs
    late = jobs["arrival_s"] >= _at_s(comparison)
    means = [jobs[chosen].groupby(["scheduler", "seed"])["jct_s"].mean() for chosen in (~late, late)]
    found: dict[str, _Phases] = {}
    for name in comparison.schedulers:
        row: list[tuple[Interval, Interval]] = []
        for each in means:
            known = name in each.index.get_level_values(0)
            values = (each[name], each[FAIR]) if known else (np.empty(0), np.ones(1))
            row.append((mean_interval(values[0]), paired_change(*values)))
        found[name] = (*row[0], *row[1])
    return found


def _at_s(comparison: Comparison) -> float:
    change = comparison.conditions.drift
    return 0.0 if change is None else change.at_ms / 1000


def plot_drift(comparisons: Mapping[str, Comparison]) -> Figure:
    """Draw the mean JCT of jobs by the time of their arrival: a panel for each change."""
    figure = new_figure(11, 7)
    for axes, (title, comparison) in zip(figure.subplots(2, 2).flat, comparisons.items(), strict=True):
        jobs, at_s = comparison.jobs, _at_s(comparison)
        middle = (jobs["arrival_s"] // (width := at_s / BINS) + 0.5) * width / 60
        binned = jobs.groupby(["scheduler", middle])["jct_s"].agg(["mean", "size"])
        for name, look in styles(comparison.schedulers).items():
            # Few jobs say little: the last arrivals of the longest streams.
            curve = binned.loc[name].query(f"size >= {len(comparison.finished)}")["mean"]
            axes.plot(curve.index, curve, label=name, marker=".", **look)
        axes.axvline(at_s / 60, color=GREY, linewidth=0.8, linestyle=":")
        finish_axes(
            axes, title=title, xlabel="Arrival (min)", ylabel="Mean JCT (s)", xlim=(0, None), ylim=(0, None)
        )
    figure.axes[0].legend(**LEGEND)
    return figure
