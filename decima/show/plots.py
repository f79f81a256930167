"""Pictures of schedules and comparisons, as matplotlib figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from decima.show.style import BLACK, DASHED, LEGEND, RED, finish_axes, new_axes, styles

if TYPE_CHECKING:
    from decima.evaluation.comparison import Comparison
    from simulator.cluster.config import ExecutorClass
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "comparison_pictures",
    "draw_schedule",
    "job_colours",
    "plot_jct_cdf",
    "plot_jobs_in_system",
    "plot_schedule",
]

MOVE_COLOUR = "#d9d9d9"
#: More completions than this are marked without a line through the schedule.
MAX_LINES = 50
#: Where medians differ by more than this factor, times are on a logarithmic axis.
WIDE = 8.0


def plot_schedule(record: EpisodeRecord, title: str = "", end_s: float | None = None) -> Figure:
    """What every executor did over time, as Decima's Figure 3.

    Bars are coloured by job, light grey bars are moves to another job, white is idle. A triangle marks each
    job's completion, with a dashed line below it unless there are too many jobs to tell lines apart. Lines lie between
    classes of executors.

    Args:
        record: the episode.
        title: names the scheduler; the average JCT is added.
        end_s: right end of the time axis, seconds, to compare pictures; the episode's end if omitted.
    """
    figure, axes = new_axes(8, 4)
    handles = draw_schedule(axes, record, end_s)
    axes.legend(handles=handles, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), **LEGEND)
    axes.set_title(f"{title}: average JCT {record.mean_jct_ms / 1000:.1f} s".removeprefix(": "), loc="left")
    return figure


def draw_schedule(axes: Axes, record: EpisodeRecord, end_s: float | None = None) -> list[Artist]:
    """Draw a schedule, as ``plot_schedule`` describes, without a title.

    Args:
        axes: empty ones.
        record: the episode.
        end_s: right end of the time axis, seconds; the episode's end if omitted.

    Returns:
        What a legend has to explain.
    """
    end_ms = record.end_ms if end_s is None else end_s * 1000
    moves = np.column_stack([record.move_depart_ms, np.minimum(record.move_arrive_ms, record.end_ms)])
    _bars(axes, record.move_executor, moves, MOVE_COLOUR)
    executor, job, span = _busy_spans(record, gap_ms=end_ms / 4000)
    _bars(axes, executor, span, job_colours(len(record.sequence))[job])
    completed = _mark_completions(axes, record)
    _mark_classes(axes, record.config.executor_classes)
    axes.set(xlim=(0, end_ms / 1000), ylim=(0, record.config.num_executors))
    axes.set(xlabel="Time (s)", ylabel="Executor")
    return [Patch(color=MOVE_COLOUR, label="executor moves"), completed]


def plot_jct_cdf(per_seed_avg_jct_s: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> Figure:
    """Distribution of the average JCT over experiments, one line per scheduler, as Decima's Figure 9(a).

    Where one scheduler takes many times as long as another the axis is logarithmic, or the fast ones would coincide.

    Args:
        per_seed_avg_jct_s: by scheduler, average JCT in each experiment, float [num_experiments], seconds.
    """
    figure, axes = new_axes(6, 4)
    for name, look in styles(per_seed_avg_jct_s, DASHED).items():
        axes.ecdf(per_seed_avg_jct_s[name], label=name, linewidth=1.6, **look)
    finish_axes(
        axes, xlabel="Average job completion time (s)", ylabel="Fraction of experiments", ylim=(0, 1.02)
    )
    medians = [float(np.median(values)) for values in per_seed_avg_jct_s.values()]
    if max(medians) > WIDE * min(medians):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(left=0)
    axes.legend(**LEGEND)
    return figure


def plot_jobs_in_system(records: Mapping[str, EpisodeRecord]) -> Figure:
    """How many jobs were in the system over time, one line per scheduler, as Decima's Figure 10(a).

    Args:
        records: by scheduler, one episode of the same job sequence.
    """
    figure, axes = new_axes(8, 4)
    for name, look in styles(records, DASHED).items():
        steps = records[name].jobs_in_system()
        times = steps.index.to_numpy() / 1000
        axes.step(times, steps.to_numpy(), where="post", label=name, linewidth=1.2, **look)
    finish_axes(axes, xlabel="Time (s)", ylabel="Jobs in the system", xlim=(0, None), ylim=(0, None))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(**LEGEND)
    return figure


def comparison_pictures(comparison: Comparison) -> dict[str, Callable[[], Figure]]:
    """What draws a comparison's pictures, by name.

    ``schedule-SCHEDULER`` of one experiment for each scheduler, on one time axis; ``jct-cdf``; ``jobs-in-system``
    where jobs arrive over time.

    Args:
        comparison: with at least one finished experiment.
    """
    episodes = comparison.episodes
    end_s = max(record.end_ms for record in episodes.values()) / 1000
    jct_s = {name: comparison.runs(name)["mean_jct_s"].to_numpy() for name in episodes}
    pictures: dict[str, Callable[[], Figure]] = {
        f"schedule-{_file_name(name)}": partial(plot_schedule, record, name, end_s)
        for name, record in episodes.items()
    }
    pictures["jct-cdf"] = partial(plot_jct_cdf, jct_s)
    if any(np.ptp(record.sequence.arrival_ms) > 0 for record in episodes.values()):
        pictures["jobs-in-system"] = partial(plot_jobs_in_system, episodes)
    return pictures


def _busy_spans(
    record: EpisodeRecord, gap_ms: float
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Tasks of one job that follow each other on an executor, with no gap that the eye could see, as one bar.

    Returns:
        executor [num_bars], job [num_bars], and start and end, ms [num_bars, 2].
    """
    ran = np.flatnonzero(record.task_executor >= 0)
    order = ran[np.lexsort((record.task_start_ms[ran], record.task_executor[ran]))]
    executor, job = record.task_executor[order], record.task_job[order]
    start, finish = record.task_start_ms[order], np.minimum(record.task_finish_ms[order], record.end_ms)
    breaks = (np.diff(executor) != 0) | (np.diff(job) != 0) | (start[1:] - finish[:-1] > gap_ms)
    first = np.flatnonzero(np.concatenate([[True], breaks])[: order.size])
    last = np.append(first[1:] - 1, order.size - 1)[: first.size]
    return executor[first], job[first], np.column_stack([start[first], finish[last]])


def _bars(
    axes: Axes, executor: NDArray[np.int32], span_ms: NDArray[np.float64], colour: str | NDArray[np.float64]
) -> None:
    """One bar per row: the executor's lane, from start to end. One collection, however many there are."""
    start, end = span_ms.T / 1000
    low, high = executor.astype(float), executor + 1.0
    corners = np.stack([start, low, start, high, end, high, end, low], axis=-1).reshape(-1, 4, 2)
    look: dict[str, Any] = {"facecolors": colour, "linewidths": 0, "antialiaseds": False}
    axes.add_collection(PolyCollection(corners, **look))  # type: ignore[arg-type]  # the stubs know no arrays


def _mark_completions(axes: Axes, record: EpisodeRecord) -> Line2D:
    """Draw them; returns the triangle for the legend."""
    executors = record.config.num_executors
    completion_s = record.completion_ms[~np.isnan(record.completion_ms)] / 1000
    if completion_s.size <= MAX_LINES:
        axes.vlines(completion_s, 0, executors, colors=RED, linestyles="dashed", linewidth=0.7)
    height = np.full(completion_s.size, executors)
    look: dict[str, Any] = {"color": RED, "marker": "v", "markersize": 4, "linestyle": "none"}
    return axes.plot(completion_s, height, label="job completes", clip_on=False, **look)[0]


def _mark_classes(axes: Axes, classes: Sequence[ExecutorClass]) -> None:
    """Draw lines between classes of executors, if there are several, and say their sizes on the right."""
    if len(classes) == 1:
        return
    low = 0
    for kind in classes:
        if low:
            axes.axhline(low, color=BLACK, linewidth=0.8)
        size = (
            f"{kind.memory:g}" if all(each.cpu == 1 for each in classes) else f"{kind.cpu:g}, {kind.memory:g}"
        )
        across = axes.get_yaxis_transform()
        axes.text(1.01, low + kind.count / 2, size, transform=across, va="center", fontsize="small")
        low += kind.count
    what = "memory" if all(kind.cpu == 1 for kind in classes) else "cpu, memory"
    axes.text(1.01, 1.01, what, transform=axes.transAxes, va="bottom", fontsize="small")


def job_colours(num_jobs: int) -> NDArray[np.float64]:
    """RGBA per job, float64 [num_jobs, 4]: viridis in golden-ratio steps, so that neighbours differ."""
    return np.asarray(colormaps["viridis"]((np.arange(num_jobs) * 0.618034) % 1.0))


def _file_name(scheduler: str) -> str:
    """A scheduler's name with what file systems dislike replaced."""
    return re.sub(r"[^\w.=-]+", "-", scheduler)
