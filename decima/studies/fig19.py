"""Figure 19 of the Decima paper: jobs, executors of each class and memory over time, with Decima and Graphene*."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from decima.show.style import LEGEND, finish_axes, new_figure, styles
from decima.studies.compared import compared
from decima.studies.fig9 import busy_speedup
from decima.studies.multi_resource import GRAPHENE_STAR, MEMORY, experiments, learned
from decima.studies.outcome import FULL, Claim, Outcome
from decima.studies.study import Study
from simulator.cluster.record import EpisodeRecord

__all__ = ["fig19", "over_time", "plot_fig19"]

#: Number of time windows that means are drawn over.
PIECES = 60


def fig19(study: Study, interval_s: float = 4.0, window_s: float = 6480.0) -> Outcome:
    """Show one experiment of either workload of Figure 11 over time.

    Args:
        study: size and surroundings; a workload that says which jobs arrive when is the trace.
        interval_s: mean time between TPC-H jobs, s.
        window_s: length of the trace's windows, s.
    """
    trace = study.workload.sequence is not None
    conditions = experiments(study, trace=trace, interval_s=interval_s, window_s=window_s, num_experiments=1)
    schedulers = {GRAPHENE_STAR: GRAPHENE_STAR, FULL: learned(study, conditions)}
    comparisons = study.compare({"": (conditions, schedulers)}, keep=True)
    episodes = comparisons[""].episodes
    jobs = {name: each.mean_jobs_in_system for name, each in episodes.items()}
    # busy with a job while it is in the system, on average over time and jobs
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
                f"{speedup:.2f} times as fast: the tenth of the jobs that found most others with {GRAPHENE_STAR}",
                speedup > 1,
            ),
        ),
        notes=("Claims are about the first experiment.",),
        extra={"jobs_in_system": jobs, "executors_per_job": per_job, "busy_period_speedup": speedup},
        pictures={"fig19": partial(plot_fig19, episodes)},
    )


def over_time(steps: pd.Series[Any], edges_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average a step function over time windows; it is 0 before its first step.

    Args:
        steps: values that hold from their index, ms, to the next, the last one from there on.
        edges_ms: float64, ascending, ms.

    Returns:
        Mean of each window, float64 [len(edges_ms) - 1].
    """
    index = steps.index.to_numpy()
    times = np.unique(np.concatenate([index, edges_ms]))
    values = np.concatenate([[0.0], steps.to_numpy()])[np.searchsorted(index, times, "right")]
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    found: NDArray[np.float64] = np.diff(area[np.searchsorted(times, edges_ms)]) / np.diff(edges_ms)
    return found


def plot_fig19(episodes: Mapping[str, EpisodeRecord]) -> Figure:
    """Draw jobs in the system, executors for each, memory that is not needed; below, busy executors of each class."""
    episodes = {name: episodes[name] for name in (GRAPHENE_STAR, FULL)}
    looks = styles(list(episodes))
    edges = np.linspace(0, max(record.end_ms for record in episodes.values()), PIECES + 1)
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
        per_job.plot(seconds, np.divide(busy, present, out=np.zeros(PIECES), where=present > 0), **look)
        share = np.divide(held - mean["memory_demanded"], held, out=np.full(PIECES, np.nan), where=held > 0)
        unused.plot(seconds, 100 * share, **look)
        for kind, axes in enumerate(classes):
            axes.plot(seconds, mean[f"class_{kind}"], **look)
    figure.legend(*jobs.get_legend_handles_labels(), ncols=2, loc="outside upper left", **LEGEND)
    finish_axes(jobs, xlabel="Time (s)", ylabel="Jobs in the system", ylim=(0, None))
    finish_axes(per_job, xlabel="Time (s)", ylabel="Executors for each job", ylim=(0, None))
    finish_axes(unused, xlabel="Time (s)", ylabel="Memory in use and not needed (%)", ylim=(0, 100))
    for axes, memory in zip(classes, MEMORY, strict=True):
        finish_axes(axes, xlabel="Time (s)", ylabel=f"Busy executors of memory {memory:g}", ylim=(0, None))
    return figure
