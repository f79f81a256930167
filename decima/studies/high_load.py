"""Where schedulers differ on long busy streams: which jobs gain, and how many executors these get as the load grows.

There a policy that learned on batches, and a rule of one cost exponent, fall behind ``priced-srpt``. The study looks
for the jobs and the decisions that make the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from decima.evaluation.intervals import Interval, paired_change
from decima.policy.shipped import specialists
from decima.registry import LEARNED
from decima.show.style import GREY, LEGEND, finish_axes, new_figure, styles
from decima.show.tables import interval_text, new_table
from decima.studies.compared import compared
from decima.studies.multi_resource import GROUPS, jobs_by_work, look_at
from decima.studies.outcome import RULE, UNKNOWN, Outcome
from decima.studies.study import Study
from simulator.cluster.record import EpisodeRecord

__all__ = ["LEVELS", "executors_by_load", "high_load", "plot_high_load"]

#: Groups of jobs by total work; all but the largest are looked at together too.
FIFTHS = ("smallest fifth", "second", "third", "fourth", "largest")
OTHERS, LARGEST = "the other four fifths", "the largest fifth"
#: Jobs in the system: from each number up to the next.
LEVELS = (1, 3, 6, 11, 21, 41)
LEVEL_NAMES = (*(f"{low} to {high - 1}" for low, high in pairwise(LEVELS)), f"{LEVELS[-1]} or more")
#: Rules of one cost exponent whatever the load: the right one for batches, and the best one at 85 %.
THRIFTY = ("profiled-srpt:2.5", "profiled-srpt:6")


def high_load(study: Study, load: float) -> Outcome:
    """Compare rules, a policy that learned on batches, and ``priced-srpt`` on streams of 1,000 jobs.

    Args:
        study: size and surroundings.
        load: share of busy executor time.

    Raises:
        CompareError: an experiment with fewer than 5 jobs.
    """
    interval_s = study.interval_for_load(load)
    conditions = study.conditions(num_experiments=10, num_jobs=1000, interval_s=interval_s)
    policy = "tpch-batch" if "profiles" in study.source else "embedded-batch"
    learned = {f"{LEARNED}:{policy}": f"{LEARNED}:{policy}"} if policy in specialists() else {}
    if study.checkpoint is not None:
        learned = {LEARNED: f"{LEARNED}:{study.checkpoint}"}
    schedulers = {"fair": "fair", **{name: name for name in THRIFTY}, **learned, RULE: RULE}
    comparisons = study.compare({"": (conditions, schedulers)})
    looks = look_at(study, comparisons[""], _look, "looking at jobs")
    jct_ms = {name: np.array([each for each, _ in found]) for name, found in looks.items()}
    by_work = {
        name: [paired_change(each[:, group], jct_ms[RULE][:, group]) for group in range(GROUPS)]
        for name, each in jct_ms.items()
        if name != RULE
    }
    executors = {name: _mean(np.array([each for _, each in found])) for name, found in looks.items()}
    changes = new_table(f"JCT by the work of jobs, against {RULE}", "Jobs", *by_work)
    for group, fifth in enumerate(FIFTHS):
        changes.add_row(fifth, *(interval_text(each[group], "+.0%") for each in by_work.values()))
    return compared(
        "high-load",
        f"{conditions.num_jobs} {study.workload.name} jobs {interval_s:g} s apart, {study.executors} executors",
        comparisons,
        reference=RULE,
        tables=(
            changes,
            _load_table(f"Executors of {OTHERS} of the jobs", executors, 0),
            _load_table(f"Executors of {LARGEST}", executors, 1),
        ),
        notes=(
            f"By work: fifths of each experiment's jobs, mean JCT against {RULE}'s, paired by experiment.",
            "Executors: how many a job has on average from its first task to its last, by the jobs in the "
            "system when it comes.",
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
    """Return the mean JCT of each fifth of the jobs by work, float64 [GROUPS], ms, and ``executors_by_load``."""
    groups = jobs_by_work(record.sequence)
    jct_ms = np.array([record.jct_ms[group].mean() for group in groups])
    return jct_ms, executors_by_load(record, groups[-1])


def executors_by_load(record: EpisodeRecord, largest: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average the executors of jobs, from their first task to their last, by the jobs in the system at their arrival.

    Args:
        record: a complete episode.
        largest: numbers of the jobs that are averaged apart, int64 [n].

    Returns:
        float64 [2, LEVELS]: of all other jobs, and of the largest; NaN without a job.
    """
    job, num_jobs = record.task_job, len(record.sequence)
    begin_ms, end_ms = np.full(num_jobs, np.inf), np.zeros(num_jobs)
    np.minimum.at(begin_ms, job, record.task_start_ms)
    np.maximum.at(end_ms, job, record.task_finish_ms)
    executors = record.busy_ms / np.maximum(end_ms - begin_ms, 1.0)  # no clock is finer than 1 ms
    level = np.digitize(record.jobs_found, LEVELS) - 1
    cell = np.isin(np.arange(num_jobs), largest) * len(LEVELS) + level
    total, count = (np.bincount(cell, each, 2 * len(LEVELS)) for each in (executors, np.ones(num_jobs)))
    return _ratio(total, count).reshape(2, -1)


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average over the experiments that have a value, float64 [2, LEVELS]."""
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0))


def _ratio(total: NDArray[Any], count: NDArray[Any]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = np.divide(total, count, np.full(total.shape, np.nan), where=count > 0)
    return mean


def _load_table(title: str, executors: Mapping[str, NDArray[np.float64]], row: int) -> Table:
    table = new_table(title, "Jobs when it comes", *executors)
    for place, name in enumerate(LEVEL_NAMES):
        values = [each[row, place] for each in executors.values()]
        table.add_row(name, *(UNKNOWN if np.isnan(value) else f"{value:.1f}" for value in values))
    return table


def plot_high_load(
    by_work: Mapping[str, Sequence[Interval]], executors: Mapping[str, NDArray[np.float64]]
) -> Figure:
    """Draw the JCT by the work of jobs; executors of a job by the load, of large jobs and of others."""
    figure = new_figure(13, 4)
    changes, *by_load = figure.subplots(1, 3)
    looks = styles(executors)
    for name, values in by_work.items():
        means, half_widths = 100 * np.array(values).T
        error = np.nan_to_num(half_widths)
        changes.errorbar(range(GROUPS), means, error, label=name, capsize=2, **looks[name])
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
