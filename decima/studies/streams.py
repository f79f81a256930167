"""Streams at high load, streams that change in the middle, and arrival patterns that differ from training.

At high load, a policy trained on batches and rules with one cost exponent are worse than ``priced-srpt``. The study
``high-load`` shows which jobs and decisions make the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import Conditions
from decima.evaluation.metrics import Interval, mean_interval, paired_change
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.show.style import GREY, LEGEND, finish_axes, legend_beside, new_figure, styles
from decima.show.tables import table_of
from decima.studies.compared import GROUPS, compared, gains_table, jobs_by_work, tidy
from decima.studies.compared import change as change_of
from decima.studies.outcome import FULL, RULE, UNKNOWN, Outcome
from decima.studies.study import Study
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import Drift, JobSequence
from workloads.sources.workload_file import Workload
from workloads.transform import STEADY, ArrivalPattern

# ---- high load ---------------------------------------------------------------------------------------------

#: Groups of jobs by total work.
FIFTHS = ("smallest fifth", "second", "third", "fourth", "largest")
#: Two coarser groups: the first four fifths together, and the last fifth.
OTHERS, LARGEST = "the other four fifths", "the largest fifth"
#: Lower bounds of levels of load, in jobs in the system; and their names.
LEVELS = (1, 3, 6, 11, 21, 41)
LEVEL_NAMES = (*(f"{low} to {high - 1}" for low, high in pairwise(LEVELS)), f"{LEVELS[-1]} or more")
#: Rules with one cost exponent at any load: the best exponent for batches, and the best at 85 % load.
ONE_PRICE = ("profiled-srpt:2.5", "profiled-srpt:6")


def high_load(study: Study, load: float) -> Outcome:
    """Compare rules and a policy trained on batches with ``priced-srpt``, on streams of 1,000 jobs."""
    interval_s = study.interval_for_load(load)
    conditions = study.conditions(num_experiments=10, num_jobs=1000, interval_s=interval_s)
    learned = {name: name for name in study.specialists("batch")}
    if study.checkpoint is not None:
        learned = {LEARNED: f"{LEARNED}:{study.checkpoint}"}
    schedulers = {"fair": "fair", **{name: name for name in ONE_PRICE}, **learned, RULE: RULE}
    comparisons = study.compare({"": (conditions, schedulers)})
    looks = study.look_at(comparisons[""], _look, "looking at jobs")
    jct_ms = {name: np.array([each for each, _ in found]) for name, found in looks.items()}
    by_work = {
        name: [paired_change(each[:, group], jct_ms[RULE][:, group]) for group in range(GROUPS)]
        for name, each in jct_ms.items()
        if name != RULE
    }
    executors = {name: _mean(np.array([each for _, each in found])) for name, found in looks.items()}
    gains = {
        fifth: {name: each[group] for name, each in by_work.items()} for group, fifth in enumerate(FIFTHS)
    }
    return compared(
        "high-load",
        study.title(conditions),
        comparisons,
        reference=RULE,
        tables=(
            gains_table(f"JCT by the work of jobs, against {RULE}", "Jobs", gains, "+.0%"),
            _load_table(f"Executors of {OTHERS} of the jobs", executors, 0),
            _load_table(f"Executors of {LARGEST}", executors, 1),
        ),
        notes=(
            f"By work: fifths of each experiment's jobs, mean JCT against {RULE}'s, paired by experiment.",
            "Executors: mean number per job from its first task to its last, by the number of jobs in the "
            "system at its arrival.",
        ),
        extra={
            "interval_s": interval_s,
            "change_of_jct": by_work,
            "levels": list(LEVELS),
            "executors": {name: each.tolist() for name, each in executors.items()},
        },
        pictures={"high-load": partial(plot_high_load, by_work, executors)},
    )


def _look(record: EpisodeRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean JCTs of jobs grouped by work, float64 [GROUPS], ms; and ``executors_by_load``."""
    groups = jobs_by_work(record.sequence)
    jct_ms = np.array([record.jct_ms[group].mean() for group in groups])
    return jct_ms, executors_by_load(record, groups[-1])


def executors_by_load(record: EpisodeRecord, largest: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean number of executors of a job by load: the number of jobs in the system at its arrival.

    The number of executors of a job is its work over the time from its first task to its last.

    Returns:
        Means over all other jobs (first row) and over the jobs ``largest``, float64 [2, LEVELS]; NaN for levels without
        jobs.
    """
    job, num_jobs = record.task_job, len(record.sequence)
    begin_ms, end_ms = np.full(num_jobs, np.inf), np.zeros(num_jobs)
    np.minimum.at(begin_ms, job, record.task_start_ms)
    np.maximum.at(end_ms, job, record.task_finish_ms)
    executors = record.busy_ms / np.maximum(end_ms - begin_ms, 1.0)  # the clock has steps of 1 ms
    level = np.digitize(record.jobs_found, LEVELS) - 1
    cell = np.isin(np.arange(num_jobs), largest) * len(LEVELS) + level
    total, count = (np.bincount(cell, each, 2 * len(LEVELS)) for each in (executors, np.ones(num_jobs)))
    return _ratio(total, count).reshape(2, -1)


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average over experiments, ignoring NaN, float64 [2, LEVELS]."""
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0))


def _ratio(total: NDArray[Any], count: NDArray[Any]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = np.divide(total, count, np.full(total.shape, np.nan), where=count > 0)
    return mean


def _load_table(title: str, executors: Mapping[str, NDArray[np.float64]], row: int) -> Table:
    rows = zip(LEVEL_NAMES, *(each[row] for each in executors.values()), strict=True)
    return table_of(title, ("Jobs when it comes", *executors), rows, ".1f", unknown=UNKNOWN)


def plot_high_load(
    by_work: Mapping[str, Sequence[Interval]], executors: Mapping[str, NDArray[np.float64]]
) -> Figure:
    """Draw the change of the JCT by work of jobs, and executors of a job by load, for large and other jobs."""
    figure = new_figure(13, 4)
    changes, *by_load = figure.subplots(1, 3)
    looks = styles(executors)
    for name, values in by_work.items():
        means, half_widths = 100 * np.array(values).T
        error = np.nan_to_num(half_widths)
        changes.errorbar(range(GROUPS), means, error, label=name, capsize=2, elinewidth=1, **looks[name])
    changes.axhline(0, color=GREY, linewidth=0.8)
    changes.set_xticks(range(GROUPS), ["smallest", *FIFTHS[1:]])
    finish_axes(changes, xlabel="Fifth of the jobs by work", ylabel=f"JCT against {RULE} (%)")
    changes.legend(**LEGEND)
    names = [text.replace(" to ", "–").replace(" or more", "+") for text in LEVEL_NAMES]
    labels: dict[str, Any] = {"xlabel": "Jobs in the system when it comes", "ylabel": "Executors of a job"}
    for row, (axes, title) in enumerate(zip(by_load, (OTHERS, LARGEST), strict=True)):
        for name, each in executors.items():
            axes.plot(range(len(LEVELS)), each[row], label=name, marker=".", **looks[name])
        axes.set_xticks(range(len(LEVELS)), names)
        finish_axes(axes, **labels, title=title.capitalize(), ylim=(0, None))
    by_load[0].legend(**LEGEND)
    return figure


# ---- drift -------------------------------------------------------------------------------------------------

FAIR = "fair"
#: Number of bins of arrival times before the change, in the picture.
BINS = 6
#: Mean JCT, s, and relative change against ``fair``, of jobs before the change; then of jobs after it.
_Phases = tuple[Interval, ...]


def drift(study: Study, load: float) -> Outcome:
    """Compare rules and policies on streams whose rate doubles or halves, or whose jobs become larger or smaller."""
    conditions = _conditions(study, load)
    learned = {name: name for name in (f"{LEARNED}:{DEFAULT_POLICY}", *study.specialists("stream"))}
    if study.checkpoint is not None:
        learned = {FULL: f"{LEARNED}:{study.checkpoint}"}
    rules = {name: name for name in (FAIR, "weighted-fair:-1", "profiled-srpt:2.5", RULE)}
    comparisons = study.compare({name: (each, rules | learned) for name, each in conditions.items()})
    found = {name: changes(each) for name, each in comparisons.items()}
    table = table_of(
        "Jobs that arrive before the change, and after it",
        ("Change", "Scheduler", "JCT before", "vs fair", "JCT after", "vs fair"),
        (
            (name, each, *(phases if each != FAIR else (phases[0], None, phases[2], None)))
            for name, row in found.items()
            for each, phases in row.items()
        ),
        (".1f", "+.1%") * 2,
        names=2,
    )
    number = next(iter(conditions.values())).num_jobs
    streams = (
        f"{name}: {each.interval_ms / 1000:g} s apart, {each.drift}" for name, each in conditions.items()
    )
    keys = ("before_s", "change_before", "after_s", "change_after")
    return compared(
        "drift",
        f"{number} {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        reference=FAIR,
        tables=(table,),
        notes=(
            f"Streams: {'; '.join(streams)}.",
            f"The busier half of each keeps executors busy for {load:.0%} of the time; small and large jobs are halves "
            "of the profiles by work.",
            "vs fair: mean JCT against fair's, of the same jobs; paired by experiment.",
        ),
        extra={
            "before_and_after": {
                change: {name: dict(zip(keys, row, strict=True)) for name, row in rows.items()}
                for change, rows in found.items()
            }
        },
        pictures={"drift": partial(plot_drift, comparisons)},
    )


def _conditions(study: Study, load: float) -> dict[str, Conditions]:
    """Return evaluation settings by displayed name of the change in the middle of the stream."""
    by_work = sorted(study.workload.profiles, key=lambda profile: profile.work_ms)
    middle = (len(by_work) + 1) // 2
    small = replace(study.workload, profiles=tuple(by_work[:middle]), name=f"small {study.workload.name}")
    large = replace(study.workload, profiles=tuple(by_work[-middle:]), name=f"large {study.workload.name}")
    busy_s = study.interval_for_load(load)
    large_s = study.interval_for_load(load, large)

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
    """Compare jobs that arrive before and after the change with the same jobs under ``fair``, paired by experiment.

    Returns, by scheduler, the mean JCT before the change, s; its relative change against ``fair``; and the same two
    after the change. Experiments without jobs in a phase are ignored in that phase.
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
    """Draw the mean JCT over the arrival time of jobs, one panel per change."""
    figure = new_figure(11, 7)
    for axes, (title, comparison) in zip(figure.subplots(2, 2).flat, comparisons.items(), strict=True):
        jobs, at_s = comparison.jobs, _at_s(comparison)
        middle = (jobs["arrival_s"] // (width := at_s / BINS) + 0.5) * width / 60
        binned = jobs.groupby(["scheduler", middle])["jct_s"].agg(["mean", "size"])
        for name, look in styles(comparison.schedulers).items():
            # Bins with few jobs are only noise: the last arrivals of the longest streams.
            curve = binned.loc[name].query(f"size >= {len(comparison.finished)}")["mean"]
            axes.plot(curve.index, curve, label=name, marker=".", **look)
        axes.axvline(at_s / 60, color=GREY, linewidth=0.8, linestyle=":")
        finish_axes(
            axes, title=title, xlabel="Arrival (min)", ylabel="Mean JCT (s)", xlim=(0, None), ylim=(0, None)
        )
    legend_beside(figure.axes[1])
    return figure


# ---- arrival patterns --------------------------------------------------------------------------------------

#: Displayed name -> factor on the mean time between arrivals, and arrival pattern.
PATTERNS: Mapping[str, tuple[float, ArrivalPattern]] = {
    "as trained": (1.0, STEADY),
    "more arrivals": (0.56, STEADY),
    "bursts": (1.0, ArrivalPattern(burst=8)),
    "day and night": (1.0, ArrivalPattern(night=0.8)),
    "half, then double": (1.5, ArrivalPattern(drift=3.0)),
    "bursts by day": (0.8, ArrivalPattern(burst=5, night=0.8)),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Patterned(Conditions):
    pattern: ArrivalPattern

    def sequence(self, seed: int) -> JobSequence:
        """Return the job sequence of a seed, with the arrival pattern."""
        return self.pattern.applied(super().sequence(seed))


def patterns(study: Study, interval_s: float) -> Outcome:
    """Compare shipped policies with ``priced-srpt`` on streams of each arrival pattern."""
    policies = [f"{LEARNED}:{study.checkpoint or DEFAULT_POLICY}"]
    if study.checkpoint is None:
        policies += study.specialists("stream", "batch")
    schedulers = ("fair", RULE, *policies)
    conditions = {}
    for name, (factor, pattern) in PATTERNS.items():
        plain = study.conditions(num_experiments=20, num_jobs=100, interval_s=round(factor * interval_s, 3))
        values = {each.name: getattr(plain, each.name) for each in fields(plain)}
        conditions[name] = _Patterned(**values, pattern=pattern), schedulers
    comparisons = study.compare(conditions)
    runs, others = tidy(comparisons), [name for name in schedulers if name != RULE]
    gains = {name: {each: change_of(runs, each, RULE, name) for each in others} for name in PATTERNS}
    return compared(
        "patterns",
        f"{next(iter(conditions.values()))[0].num_jobs} {study.workload.name} jobs, {study.executors} executors",
        comparisons,
        reference=RULE,
        tables=[gains_table(f"Mean JCT against {RULE}", "Arrivals", gains)],
        notes=[
            f"{name}: {each.interval_ms / 1000:g} s apart{', ' * bool(str(each.pattern))}{each.pattern}."
            for name, (each, _) in conditions.items()
        ],
    )
