"""Picture of the executors of an episode; matplotlib is imported when the first picture is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.colours import busy_spans, contrasting_colours, job_colours
from simulator.cluster.config import ExecutorClass
from simulator.cluster.record import EpisodeRecord

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["draw_schedule", "frame"]

BLACK, RED, MOVE_COLOUR, ABSENT_COLOUR = "#000000", "#D55E00", "#d9d9d9", "#404040"
#: More completions than this are marked without a line through the schedule.
MAX_LINES = 50
#: Inches and dots per inch of a frame.
SIZE, DPI = (8.0, 4.0), 80


def frame(record: EpisodeRecord) -> NDArray[np.uint8]:
    """The schedule so far as a picture, uint8 [320, 640, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI)
    canvas, axes = FigureCanvasAgg(figure), figure.add_axes((0.08, 0.13, 0.89, 0.77))
    # A job keeps its colour from frame to frame.
    colours = job_colours(len(record.sequence))
    draw_schedule(axes, record, max(record.end_ms, 1.0) / 1000, colours)
    live = (record.sequence.arrival_ms <= record.end_ms) & np.isnan(record.completion_ms)
    axes.set_title(f"{record.end_ms / 1000:.1f} s, {live.sum()} jobs in the system", loc="left")
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def draw_schedule(
    axes: Axes,
    record: EpisodeRecord,
    end_s: float | None = None,
    colours: NDArray[np.float64] | None = None,
) -> list[Artist]:
    """Draw what every executor did over time, as Decima's Figure 3, without a title.

    Bars are coloured by job, light grey bars are moves to another job, white is idle; dark grey: not in the cluster. A
    triangle marks each
    job's completion, with a dashed line below it unless there are too many jobs to tell lines apart, and another its
    arrival, unless all come at once. Lines lie between classes of executors.

    Args:
        axes: empty ones.
        record: the episode.
        end_s: right end of the time axis, seconds; the episode's end if omitted.
        colours: RGBA per job, float64 [num_jobs, 4]; such that neighbours differ if omitted.

    Returns:
        What a legend has to explain.
    """
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    end_ms = record.end_ms if end_s is None else end_s * 1000
    moves = np.column_stack([record.move_depart_ms, np.minimum(record.move_arrive_ms, record.end_ms)])
    _bars(axes, record.move_executor, moves, MOVE_COLOUR)
    executor, job, span = busy_spans(record, gap_ms=end_ms / 4000)
    _bars(axes, executor, span, (contrasting_colours([record]) if colours is None else colours)[job])
    completed = _mark_completions(axes, record)
    marks: list[Artist] = [Patch(color=MOVE_COLOUR, label="executor moves"), completed]
    if record.change_executor.size:
        _bars(axes, *record.absences, ABSENT_COLOUR)
        marks.insert(1, Patch(color=ABSENT_COLOUR, label="executor is not in the cluster"))
    if np.ptp(record.sequence.arrival_ms) > 0:
        marks.append(_mark_arrivals(axes, record))
    _mark_classes(axes, record.config.executor_classes)
    axes.set(xlim=(0, end_ms / 1000), ylim=(0, record.config.num_executors))
    axes.set(xlabel="Time (s)", ylabel="Executor")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return marks


def _bars(
    axes: Axes, executor: NDArray[np.int32], span_ms: NDArray[np.float64], colour: str | NDArray[np.float64]
) -> None:
    """One bar per row: the executor's lane, from start to end. One collection, however many there are."""
    from matplotlib.collections import PolyCollection

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


def _mark_arrivals(axes: Axes, record: EpisodeRecord) -> Line2D:
    """Draw them, where jobs do not all come at once; returns the triangle for the legend."""
    arrival_s = record.sequence.arrival_ms[record.sequence.arrival_ms <= record.end_ms] / 1000
    look: dict[str, Any] = {"color": BLACK, "marker": "^", "markersize": 4, "linestyle": "none"}
    return axes.plot(arrival_s, np.zeros(arrival_s.size), label="job arrives", clip_on=False, **look)[0]


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
