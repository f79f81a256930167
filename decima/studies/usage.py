"""Section 7.3 of the Decima paper, with Figures 12, 19 and 20: differences between Decima and Graphene*.

Figures 12 and 20 show JCT and executors of each class by total work of jobs; Figure 19 shows one experiment over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from decima.evaluation.comparison import Comparison
from decima.evaluation.metrics import Interval, paired_change
from decima.show.style import BLACK, GREY, INTERVAL, LEGEND, finish_axes, new_figure, styles
from decima.show.tables import interval_text
from decima.studies.compared import GROUPS, compared, gains_table, jobs_by_work, over_time, tidy
from decima.studies.multi_resource import (
    GRAPHENE_STAR,
    MEMORY,
    PURE,
    experiments,
    fragmentation_claim,
    learned,
)
from decima.studies.outcome import FULL, Claim, Outcome
from decima.studies.single_resource import busy_speedup
from decima.studies.study import Study
from simulator.cluster.record import EpisodeRecord

#: Groups of jobs by total work.
FIFTHS = ("smallest", "second", "third", "fourth", "largest")
#: Executor classes, by memory.
SIZES = [f"{memory:g}" for memory in MEMORY]


def used(record: EpisodeRecord) -> NDArray[np.int64]:
    """Return the number of executors of each class that ran tasks of each job, int64 [num_jobs, classes]."""
    ran = record.task_executor >= 0
    pairs = np.unique(np.stack([record.task_job[ran], record.task_executor[ran]]), axis=1)
    counts = np.zeros((len(record.sequence), len(record.config.executor_classes)), dtype=np.int64)
    np.add.at(counts, (pairs[0], record.executor_class[pairs[1]]), 1)
    return counts


class Usage(NamedTuple):
    """Results of one scheduler by total work of jobs; groups are in ascending order of work.

    Attributes:
        jct_ms: mean JCT, float64 [experiments, GROUPS], ms.
        executors: mean number of executors of each class that ran tasks of a job, float64 [experiments, GROUPS,
            classes].
    """

    jct_ms: NDArray[np.float64]
    executors: NDArray[np.float64]


def usage(study: Study, comparison: Comparison) -> dict[str, Usage]:
    """Re-run a complete comparison, and return the usage under each scheduler."""
    found = study.look_at(comparison, _usage, "looking at jobs by their work")
    return {name: Usage(*map(np.array, zip(*each, strict=True))) for name, each in found.items()}


def _usage(record: EpisodeRecord) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    groups, executors = jobs_by_work(record.sequence), used(record)
    jct_ms = np.array([record.jct_ms[group].mean() for group in groups])
    return jct_ms, np.array([executors[group].mean(axis=0) for group in groups])


# ---- Figures 12 and 20: jobs by their work -----------------------------------------------------------------


def fig12(study: Study, interval_s: float = 4.0, window_s: float = 6480.0) -> Outcome:
    """Compare Decima with Graphene* by total work of jobs, on a trace or on TPC-H jobs."""
    trace = study.workload.sequence is not None
    conditions = experiments(study, trace=trace, interval_s=interval_s, window_s=window_s)
    schedulers = {**PURE, GRAPHENE_STAR: GRAPHENE_STAR, FULL: learned(study, conditions)}
    comparisons = study.compare({"": (conditions, schedulers)})
    found = usage(study, comparisons[""])
    ours, theirs = found[FULL], found[GRAPHENE_STAR]
    jct = [paired_change(ours.jct_ms[:, group], theirs.jct_ms[:, group]) for group in range(GROUPS)]
    executors = [  # rows are groups, columns are executor classes
        [
            paired_change(*pair)
            for pair in zip(ours.executors[:, group].T, theirs.executors[:, group].T, strict=True)
        ]
        for group in range(GROUPS)
    ]
    headings = ("JCT", *(f"Memory {size}" for size in SIZES))
    gains = {
        name: dict(zip(headings, (change, *classes), strict=True))
        for name, change, classes in zip(FIFTHS, jct, executors, strict=True)
    }
    return compared(
        "fig12",
        f"{study.workload.name} jobs by their work, {study.executors} executors of {len(MEMORY)} sizes",
        comparisons,
        columns=("fragmentation",),
        reference=GRAPHENE_STAR,
        claims=(*_claims(jct, executors[0][-1]), fragmentation_claim(tidy(comparisons))),
        tables=(gains_table(f"By work, {FULL} against {GRAPHENE_STAR}", "Jobs", gains, "+.0%"),),
        notes=(
            f"By work: fifths of each experiment's jobs, {FULL} against {GRAPHENE_STAR}, paired by experiment; of "
            "executors, how many ran a task of a job.",
        ),
        extra={
            "by_work": {
                name: {"jct_s": (each.jct_ms / 1000).tolist(), "executors": each.executors.tolist()}
                for name, each in found.items()
            },
            "change_of_jct": jct,
            "change_of_executors": executors,
        },
        pictures={"fig12": partial(plot_fig12, jct, executors), "fig20": partial(plot_fig20, executors)},
    )


def _claims(jct: Sequence[Interval], largest: Interval) -> list[Claim]:
    others = min(each.mean for each in jct[1:])
    return [
        Claim(
            "Decima completes jobs of all sizes faster than Graphene*.",
            "; ".join(
                f"{name} {interval_text(each, '+.1%')}" for name, each in zip(FIFTHS, jct, strict=True)
            ),
            all(each.mean < 0 for each in jct),
        ),
        Claim(
            "Its gain is largest for small jobs.",
            f"JCT of the {FIFTHS[0]} fifth {jct[0].mean:+.1%}, of all others at best {others:+.1%}",
            jct[0].mean <= others,
        ),
        Claim(
            f"On the {FIFTHS[0]} fifth of the jobs it uses 39% more executors of the largest class.",
            interval_text(largest, "+.1%"),
            largest.mean - largest.half_width > 0,
        ),
    ]


def plot_fig12(jct: Sequence[Interval], executors: Sequence[Sequence[Interval]]) -> Figure:
    """Draw the JCT by total work, and executors of each class for the smallest jobs, relative to Graphene*."""
    figure = new_figure(9, 3.6)
    by_work, classes = figure.subplots(1, 2)
    _draw(by_work, jct, FIFTHS, "JCT, relative to Graphene*")
    _draw(classes, executors[0], SIZES, "Executors, relative to Graphene*")
    by_work.set_xlabel("Fifth of the jobs by total work")
    classes.set_xlabel(f"Memory of the executors, {FIFTHS[0]} fifth of the jobs")
    return figure


def plot_fig20(executors: Sequence[Sequence[Interval]]) -> Figure:
    """Draw the executors of each class relative to Graphene*, one panel per group of jobs."""
    figure = new_figure(12, 3.6)
    fields = figure.subplots(1, GROUPS, sharey=True)
    for axes, name, changes in zip(fields, FIFTHS, executors, strict=True):
        _draw(axes, changes, SIZES, "Executors, relative to Graphene*" if axes is fields[0] else "")
        axes.set(xlabel="Memory of the executors", title=f"{name} fifth")
    highest = max(1 + mean + half for each in executors for mean, half in each)
    fields[0].set_ylim(0, 1.05 * max(highest, 1.0))
    return figure


def _draw(axes: Axes, changes: Sequence[Interval], names: Sequence[str], ylabel: str) -> None:
    """Draw ratios as bars with confidence intervals, and a line at 1."""
    means, half_widths = np.array(changes).T
    error = np.nan_to_num(half_widths)
    axes.bar(names, 1 + means, yerr=error, color=BLACK, width=0.7, capsize=2, ecolor=INTERVAL)
    axes.axhline(1, color=GREY, linewidth=0.8)
    finish_axes(axes, ylabel=ylabel, ylim=(0, None))
    axes.grid(visible=False, axis="x")


# ---- Figure 19: one experiment over time -------------------------------------------------------------------

#: Number of time windows of a curve.
WINDOWS = 60


def fig19(study: Study, interval_s: float = 4.0, window_s: float = 6480.0) -> Outcome:
    """Show one experiment over time, on a trace or on TPC-H jobs."""
    trace = study.workload.sequence is not None
    conditions = experiments(study, trace=trace, interval_s=interval_s, window_s=window_s, num_experiments=1)
    schedulers = {GRAPHENE_STAR: GRAPHENE_STAR, FULL: learned(study, conditions)}
    comparisons = study.compare({"": (conditions, schedulers)}, keep=True)
    episodes = comparisons[""].episodes
    jobs = {name: each.mean_jobs_in_system for name, each in episodes.items()}
    # Mean over time and jobs of the executors that are busy with a job in the system.
    per_job = {name: float(each.busy_ms.sum() / each.jct_ms.sum()) for name, each in episodes.items()}
    speedup = busy_speedup(episodes[GRAPHENE_STAR], episodes[FULL])
    return compared(
        "fig19",
        f"{study.workload.name} over time, {study.executors} executors of {len(MEMORY)} sizes",
        comparisons,
        columns=("fragmentation",),
        reference=GRAPHENE_STAR,
        claims=(
            Claim(
                "Decima has fewer jobs in the system.",
                f"{jobs[FULL]:.1f} on average; {GRAPHENE_STAR} {jobs[GRAPHENE_STAR]:.1f}",
                jobs[FULL] < jobs[GRAPHENE_STAR],
            ),
            Claim(
                "It gives each job more executors.",
                f"{per_job[FULL]:.1f} busy ones for a job, on average; {GRAPHENE_STAR} {per_job[GRAPHENE_STAR]:.1f}",
                per_job[FULL] > per_job[GRAPHENE_STAR],
            ),
            Claim(
                "In busy periods its jobs are done sooner.",
                f"{speedup:.2f} times as fast: the tenth of the jobs with the most jobs in the system under "
                f"{GRAPHENE_STAR}",
                speedup > 1,
            ),
        ),
        notes=("Claims are about the first experiment.",),
        extra={"jobs_in_system": jobs, "executors_per_job": per_job, "busy_period_speedup": speedup},
        pictures={"fig19": partial(plot_fig19, episodes)},
    )


def plot_fig19(episodes: Mapping[str, EpisodeRecord]) -> Figure:
    """Draw jobs in the system, executors of a job, unused memory, and busy executors of each class over time."""
    episodes = {name: episodes[name] for name in (GRAPHENE_STAR, FULL)}
    looks = styles(list(episodes))
    edges = np.linspace(0, max(record.end_ms for record in episodes.values()), WINDOWS + 1)
    figure = new_figure(12, 6)
    grid = figure.add_gridspec(2, 12)
    jobs, per_job, unused = (figure.add_subplot(grid[0, 4 * place : 4 * place + 4]) for place in range(3))
    classes = [figure.add_subplot(grid[1, 3 * place : 3 * place + 3]) for place in range(len(MEMORY))]
    for name, record in episodes.items():
        steps, seconds, look = record.resources(), edges[1:] / 1000, {"label": name, **looks[name]}
        mean = {column: over_time(steps[column], edges) for column in steps}
        present = over_time(record.jobs_in_system(), edges)
        busy = sum(mean[f"class_{kind}"] for kind in range(len(MEMORY)))
        held = mean["memory_held"]
        jobs.plot(seconds, present, **look)
        per_job.plot(seconds, np.divide(busy, present, out=np.zeros(WINDOWS), where=present > 0), **look)
        share = np.divide(held - mean["memory_demanded"], held, out=np.full(WINDOWS, np.nan), where=held > 0)
        unused.plot(seconds, 100 * share, **look)
        for kind, axes in enumerate(classes):
            axes.plot(seconds, mean[f"class_{kind}"], **look)
    figure.legend(*jobs.get_legend_handles_labels(), ncols=2, loc="outside upper left", **LEGEND)
    finish_axes(jobs, title="Jobs in the system", xlabel="Time (s)", ylabel="Jobs", ylim=(0, None))
    finish_axes(
        per_job, title="Executors of a job", xlabel="Time (s)", ylabel="Busy executors", ylim=(0, None)
    )
    label = "Share of memory in use (%)"
    finish_axes(unused, title="Memory not needed", xlabel="Time (s)", ylabel=label, ylim=(0, 100))
    for axes, memory in zip(classes, MEMORY, strict=True):
        title = f"Executors of memory {memory:g}"
        finish_axes(axes, title=title, xlabel="Time (s)", ylabel="Busy executors", ylim=(0, None))
    return figure
