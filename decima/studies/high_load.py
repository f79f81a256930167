"""Where schedulers differ on long busy streams: which jobs gain, and how many executors these get as the load grows.

There a policy that learned on batches, and a rule of one thrift, fall behind ``priced-srpt``. This looks for the jobs
and the decisions that make the difference.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import Conditions
from decima.evaluation.intervals import Interval
from decima.evaluation.run import run_scheduler
from decima.policy.shipped import specialists
from decima.registry import LEARNED
from decima.show.style import GREY, LEGEND, finish_axes, new_figure, styles
from decima.show.tables import interval_text, new_table
from decima.studies.multi_resource import GROUPS, jobs_by_work
from decima.studies.study import Study
from decima.studies.study_report import RULE, UNKNOWN, Outcome, paired_change
from decima.workers.pool import make_workers
from simulator.cluster.record import EpisodeRecord

__all__ = ["LEVELS", "executors_by_load", "high_load", "plot_high_load"]

#: Of jobs, by total work; all but the largest are looked at together too.
FIFTHS = ("smallest fifth", "second", "third", "fourth", "largest")
OTHERS, LARGEST = "the other four fifths", "the largest fifth"
#: Jobs in the system: from each number up to the next.
LEVELS = (1, 3, 6, 11, 21, 41)
#: Rules of one thrift whatever the load: what is right for batches, and what is best at 85 %.
THRIFTY = ("profiled-srpt:2.5", "profiled-srpt:6")


class _Look(NamedTuple):
    """What one scheduler did in one experiment.

    Attributes:
        jct_ms: mean JCT of each fifth of the jobs by work, float64 [GROUPS], ms.
        executors: see ``executors_by_load``.
    """

    jct_ms: NDArray[np.float64]
    executors: NDArray[np.float64]


def high_load(study: Study, load: float = 0.85) -> Outcome:
    """Streams of 1,000 jobs under rules of one thrift, a policy that learned on batches, and ``priced-srpt``.

    Args:
        study: how large, and on what.
        load: what the executors are to be busy with.

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
    comparison = study.compare({"": (conditions, schedulers)})[""]
    looks = _looks(study, comparison)
    by_work = {
        name: [paired_change(each.jct_ms[:, group], looks[RULE].jct_ms[:, group]) for group in range(GROUPS)]
        for name, each in looks.items()
        if name != RULE
    }
    executors = {name: _mean(each.executors) for name, each in looks.items()}
    return Outcome(
        "high-load",
        f"{conditions.num_jobs} {study.workload.name} jobs {interval_s:g} s apart, {study.executors} executors",
        {"": comparison},
        reference=RULE,
        tables=(
            _work_table(by_work),
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
        pictures={"high-load": plot_high_load},
    )


def _looks(study: Study, comparison: Comparison) -> dict[str, _Look]:
    """By scheduler, with a first dimension for experiments."""
    pieces = [
        (name, spec, seed) for name, spec in comparison.schedulers.items() for seed in comparison.finished
    ]
    with make_workers(comparison.conditions, study.workers, len(pieces)) as workers:
        found: dict[tuple[str, int], _Look] = {}
        for done, (name, seed, look) in enumerate(workers.map(_look, pieces), 1):
            found[name, seed] = look
            study.tell("looking at jobs", done, len(pieces))
    return {
        name: _Look(*map(np.array, zip(*(found[name, seed] for seed in comparison.finished), strict=True)))
        for name in comparison.schedulers
    }


def _look(conditions: Conditions, piece: tuple[str, str, int]) -> tuple[str, int, _Look]:
    name, spec, seed = piece
    sequence = conditions.sequence(seed)
    record = run_scheduler(conditions.cluster, sequence, spec)
    groups = jobs_by_work(sequence)
    jct_ms = np.array([record.jct_ms[group].mean() for group in groups])
    return name, seed, _Look(jct_ms, executors_by_load(record, groups[-1]))


def executors_by_load(record: EpisodeRecord, largest: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many executors jobs have, from their first task to their last, by how many jobs they found and their own.

    Args:
        record: of an episode that is over.
        largest: numbers of the jobs that are looked at apart, int64 [n].

    Returns:
        float64 [2, LEVELS]: of all other jobs, and of the largest; NaN where none came to so many.
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
    """Over the experiments that have a value, float64 [2, LEVELS]."""
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0))


def _ratio(total: NDArray[Any], count: NDArray[Any]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = np.divide(total, count, np.full(total.shape, np.nan), where=count > 0)
    return mean


def _work_table(by_work: dict[str, list[Interval]]) -> Table:
    table = new_table(f"JCT by the work of jobs, against {RULE}", "Jobs", *by_work)
    for group, name in enumerate(FIFTHS):
        table.add_row(name, *(interval_text(changes[group], "+.0%") for changes in by_work.values()))
    return table


def _load_table(title: str, executors: dict[str, NDArray[np.float64]], row: int) -> Table:
    table = new_table(title, "Jobs when it comes", *executors)
    for place, name in enumerate(_level_names()):
        values = [each[row, place] for each in executors.values()]
        table.add_row(name, *(UNKNOWN if np.isnan(value) else f"{value:.1f}" for value in values))
    return table


def _level_names() -> list[str]:
    ends = [f"{low} to {high - 1}" for low, high in pairwise(LEVELS)]
    return [*ends, f"{LEVELS[-1]} or more"]


def plot_high_load(outcome: Outcome) -> Figure:
    """JCT by the work of jobs; executors of a job by the load, of large jobs and of others."""
    figure = new_figure(13, 4)
    by_work, *by_load = figure.subplots(1, 3)
    changes: dict[str, list[Interval]] = outcome.extra["change_of_jct"]
    looks = styles(outcome.extra["executors"])
    for name, values in changes.items():
        means, half_widths = 100 * np.array(values).T
        by_work.errorbar(
            range(GROUPS), means, np.nan_to_num(half_widths), label=name, capsize=2, **looks[name]
        )
    by_work.axhline(0, color=GREY, linewidth=0.8)
    by_work.set_xticks(range(GROUPS), ["smallest", *FIFTHS[1:]])
    finish_axes(by_work, xlabel="Fifth of the jobs by work", ylabel=f"JCT against {RULE} (%)")
    by_work.legend(**LEGEND)
    for row, (axes, title) in enumerate(zip(by_load, (OTHERS, LARGEST), strict=True)):
        _draw_by_load(axes, {name: values[row] for name, values in outcome.extra["executors"].items()}, looks)
        finish_axes(
            axes,
            xlabel="Jobs in the system when it comes",
            ylabel="Executors of a job",
            title=title.capitalize(),
            ylim=(0, None),
        )
    by_load[0].legend(**LEGEND)
    return figure


def _draw_by_load(axes: Axes, lines: dict[str, list[float | None]], looks: dict[str, dict[str, Any]]) -> None:
    for name, values in lines.items():
        axes.plot(range(len(LEVELS)), np.array(values, dtype=float), label=name, marker=".", **looks[name])
    names = [text.replace(" to ", "–").replace(" or more", "+") for text in _level_names()]
    axes.set_xticks(range(len(LEVELS)), names)
