"""Gantt chart of an episode's executors, and colours of its jobs. Matplotlib is imported for the first picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ExecutorClass
from simulator.cluster.record import EpisodeRecord

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

BLACK, RED, MOVE_COLOUR, ABSENT_COLOUR = "#000000", "#D55E00", "#d9d9d9", "#404040"
#: Colour of a highlighted job (RGBA: black), and intensity of the other jobs' colours beside it.
HIGHLIGHT, PALE = (0.0, 0.0, 0.0, 1.0), 0.35
#: Completions are marked with lines through the schedule up to this number.
MAX_LINES = 50
#: Size of a frame in inches, and dots per inch.
SIZE, DPI = (8.0, 4.0), 80

#: Colours of jobs: Okabe and Ito's, then colours far from these, also for red-green colour-blind readers;
#: dark and light colours alternate.
PALETTE = (
    "#0072B2", "#E69F00", "#5B2A86", "#96C396", "#871E00", "#56B4E9", "#5A002D", "#F0E442",
    "#874B69", "#D2E196", "#781E4B", "#009E73", "#4B005A", "#CC79A7", "#B43C2D", "#6987F0",
    "#4B4BA5", "#C8BEFF", "#966987", "#A5D25A",
)  # fmt: skip


def frame(record: EpisodeRecord) -> NDArray[np.uint8]:
    """Draw the schedule so far as an image, uint8 [320, 640, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI)
    canvas, axes = FigureCanvasAgg(figure), figure.add_axes((0.08, 0.13, 0.89, 0.77))
    draw_schedule(axes, record, max(record.end_ms, 1.0) / 1000)
    live = (record.sequence.arrival_ms <= record.end_ms) & np.isnan(record.completion_ms)
    axes.set_title(f"{record.end_ms / 1000:.1f} s, {live.sum()} jobs in the system", loc="left")
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def draw_schedule(
    axes: Axes, record: EpisodeRecord, end_s: float | None = None, highlight: int | None = None
) -> list[Artist]:
    """Draw the tasks and moves of each executor over time (Gantt chart), like Decima's Figure 3, without a title.

    Tasks have the colour of their job (``job_colours``); moves are light grey, idle time is white, time outside the
    cluster is dark grey. Triangles mark completions, with dashed lines below unless there are too many, and arrivals,
    unless all jobs arrive together. Lines separate executor classes.

    Args:
        end_s: right end of the time axis, s; by default the end of the episode.
        highlight: index of a job that stands out: other jobs are pale, and only its completion has a line.

    Returns:
        Artists for the legend.
    """
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    end_ms = record.end_ms if end_s is None else end_s * 1000
    moves = np.column_stack([record.move_depart_ms, np.minimum(record.move_arrive_ms, record.end_ms)])
    _bars(axes, record.move_executor, moves, MOVE_COLOUR)
    executor, job, span = busy_spans(record, gap_ms=end_ms / 4000)
    colours = job_colours(len(record.sequence))
    if highlight is not None:
        colours[:, :3] = 1 - PALE * (1 - colours[:, :3])
        colours[highlight] = HIGHLIGHT
    _bars(axes, executor, span, colours[job])
    completed = _mark_completions(axes, record, highlight)
    idle = Patch(facecolor="white", edgecolor="0.6", linewidth=0.6, label="executor is idle")
    marks: list[Artist] = [Patch(color=MOVE_COLOUR, label="executor moves"), idle, completed]
    if record.change_executor.size:
        _bars(axes, *_absences(record), ABSENT_COLOUR)
        marks.insert(2, Patch(color=ABSENT_COLOUR, label="executor is not in the cluster"))
    if np.ptp(record.sequence.arrival_ms) > 0:
        arrival_ms = record.sequence.arrival_ms[record.sequence.arrival_ms <= record.end_ms]
        marks.append(_mark(axes, arrival_ms, 0, BLACK, "^", "job arrives"))
    _mark_classes(axes, record.config.executor_classes)
    axes.set(xlim=(0, end_ms / 1000), ylim=(0, record.config.num_executors))
    axes.set(xlabel="Time (s)", ylabel="Executor")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return marks


def _absences(record: EpisodeRecord) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return intervals of executors out of the cluster: executor, int32 [n]; start and end, ms, float64 [n, 2]."""
    spans = []
    for executor in np.unique(record.change_executor).tolist():
        times = record.change_ms[record.change_executor == executor].tolist()
        spans += [(executor, *times[index : index + 2]) for index in range(0, len(times), 2)]
    ended = np.array([(*span, record.end_ms)[:3] for span in spans]).reshape(-1, 3)
    return ended[:, 0].astype(np.int32), ended[:, 1:]


def _bars(
    axes: Axes, executor: NDArray[np.int32], span_ms: NDArray[np.float64], colour: str | NDArray[np.float64]
) -> None:
    """Draw one bar per row from start to end in the lane of its executor, all in one collection."""
    from matplotlib.collections import PolyCollection

    start, end = span_ms.T / 1000
    low, high = executor.astype(float), executor + 1.0
    corners = np.stack([start, low, start, high, end, high, end, low], axis=-1).reshape(-1, 4, 2)
    look: dict[str, Any] = {"facecolors": colour, "linewidths": 0, "antialiaseds": False}
    axes.add_collection(PolyCollection(corners, **look))  # type: ignore[arg-type]  # the stubs know no arrays


def _mark_completions(axes: Axes, record: EpisodeRecord, highlight: int | None) -> Line2D:
    """Draw triangles and lines at completions; return the triangles for the legend."""
    completion_ms = record.completion_ms[~np.isnan(record.completion_ms)]
    with_line_ms = completion_ms if highlight is None else record.completion_ms[[highlight]]
    if with_line_ms.size <= MAX_LINES:
        lines: dict[str, Any] = {"colors": RED, "linestyles": "dashed", "linewidth": 0.7}
        axes.vlines(with_line_ms / 1000, 0, record.config.num_executors, **lines)
    return _mark(axes, completion_ms, record.config.num_executors, RED, "v", "job completes")


def _mark(
    axes: Axes, time_ms: NDArray[np.float64], height: int, colour: str, marker: str, label: str
) -> Line2D:
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "linestyle": "none"}
    return axes.plot(time_ms / 1000, np.full(time_ms.size, height), label=label, clip_on=False, **look)[0]


def _mark_classes(axes: Axes, classes: Sequence[ExecutorClass]) -> None:
    """Draw lines between executor classes, if there are several, and write executor sizes on the right."""
    if len(classes) == 1:
        return
    low = 0
    for one in classes:
        if low:
            axes.axhline(low, color=BLACK, linewidth=0.8)
        size = (
            f"{one.memory:g}"
            if all(executor_class.cpu == 1 for executor_class in classes)
            else f"{one.cpu:g}, {one.memory:g}"
        )
        across = axes.get_yaxis_transform()
        axes.text(1.01, low + one.count / 2, size, transform=across, va="center", fontsize="small")
        low += one.count
    what = "memory" if all(executor_class.cpu == 1 for executor_class in classes) else "cpu, memory"
    axes.text(1.01, 1.01, what, transform=axes.transAxes, va="bottom", fontsize="small")


def job_colours(num_jobs: int) -> NDArray[np.float64]:
    """Return a colour for each job, by order of arrival: RGBA, float64 [num_jobs, 4]."""
    return _rgba()[np.arange(num_jobs) % len(PALETTE)]


def busy_spans(
    record: EpisodeRecord, gap_ms: float
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Join tasks of one job that follow one another on an executor with gaps of at most ``gap_ms``.

    Returns:
        Executor [num_spans]; job [num_spans]; start and end, ms [num_spans, 2]. Sorted by executor, then by start.
    """
    ran = np.flatnonzero(record.task_executor >= 0)
    order = ran[np.lexsort((record.task_start_ms[ran], record.task_executor[ran]))]
    executor, job = record.task_executor[order], record.task_job[order]
    start, finish = record.task_start_ms[order], np.minimum(record.task_finish_ms[order], record.end_ms)
    breaks = (np.diff(executor) != 0) | (np.diff(job) != 0) | (start[1:] - finish[:-1] > gap_ms)
    first = np.flatnonzero(np.concatenate([[True], breaks])[: order.size])
    last = np.append(first[1:] - 1, order.size - 1)[: first.size]
    return executor[first], job[first], np.column_stack([start[first], finish[last]])


def _rgba() -> NDArray[np.float64]:
    digits = [[int(text[index : index + 2], 16) / 255 for index in (1, 3, 5)] for text in PALETTE]
    return np.column_stack([np.array(digits), np.ones(len(PALETTE))])
