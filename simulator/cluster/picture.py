"""Gantt chart of an episode's executors, and colours of its jobs. Matplotlib is imported for the first picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.cluster.config import ExecutorClass
from simulator.cluster.record import EpisodeRecord

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

BLACK, RED, MOVE_COLOUR, ABSENT_COLOUR = "#000000", "#D55E00", "#d9d9d9", "#404040"
#: Completions are marked with lines through the schedule up to this number.
MAX_LINES = 50
#: Size of a frame in inches, and dots per inch.
SIZE, DPI = (8.0, 4.0), 80

#: Okabe and Ito's colours, then the colours farthest from these by `_distances`; dark and light colours alternate.
PALETTE = (
    "#0072B2", "#E69F00", "#5B2A86", "#96C396", "#871E00", "#56B4E9", "#5A002D", "#F0E442",
    "#874B69", "#D2E196", "#781E4B", "#009E73", "#4B005A", "#CC79A7", "#B43C2D", "#6987F0",
    "#4B4BA5", "#C8BEFF", "#966987", "#A5D25A",
)  # fmt: skip
#: Matrices from linear RGB to cone responses, and from their cube roots to OKLab (Björn Ottosson, 2020).
TO_CONES = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
TO_OKLAB = ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))
#: Fraction of the red-green axis of OKLab that red-green colour-blind readers perceive.
RED_GREEN = 0.35
#: Colours nearer than this distance are easily confused.
NEAR = 0.15
#: Largest number of samples (executors times instants) at which neighbouring executors are compared.
MOST_CELLS = 200_000
#: Height over width of a picture.
ASPECT = 0.45
#: Jobs of longer sequences are drawn too small for their neighbours to matter.
MOST_JOBS = 2000


def frame(record: EpisodeRecord) -> NDArray[np.uint8]:
    """Draw the schedule so far as an image, uint8 [320, 640, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI)
    canvas, axes = FigureCanvasAgg(figure), figure.add_axes((0.08, 0.13, 0.89, 0.77))
    # Colours by order of arrival: a job keeps its colour from frame to frame.
    colours = job_colours(len(record.sequence))
    draw_schedule(axes, record, max(record.end_ms, 1.0) / 1000, colours)
    live = (record.sequence.arrival_ms <= record.end_ms) & np.isnan(record.completion_ms)
    axes.set_title(f"{record.end_ms / 1000:.1f} s, {live.sum()} jobs in the system", loc="left")
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def draw_schedule(
    axes: Axes, record: EpisodeRecord, end_s: float | None = None, colours: NDArray[np.float64] | None = None
) -> list[Artist]:
    """Draw the tasks and moves of each executor over time (Gantt chart), like Decima's Figure 3, without a title.

    Tasks are coloured by job, moves are light grey, idle time is white, time outside the cluster is dark grey.
    Triangles mark completions, with dashed lines below unless there are too many, and arrivals, unless all jobs arrive
    together. Lines separate executor classes.

    Args:
        end_s: right end of the time axis, s; by default the end of the episode.
        colours: RGBA per job, float64 [num_jobs, 4]; by default ``contrasting_colours``.

    Returns:
        Artists for the legend.
    """
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    end_ms = record.end_ms if end_s is None else end_s * 1000
    moves = np.column_stack([record.move_depart_ms, np.minimum(record.move_arrive_ms, record.end_ms)])
    _bars(axes, record.move_executor, moves, MOVE_COLOUR)
    executor, job, span = busy_spans(record, gap_ms=end_ms / 4000)
    _bars(axes, executor, span, (contrasting_colours([record]) if colours is None else colours)[job])
    completed = _mark_completions(axes, record)
    idle = Patch(facecolor="white", edgecolor="0.6", linewidth=0.6, label="executor is idle")
    marks: list[Artist] = [Patch(color=MOVE_COLOUR, label="executor moves"), idle, completed]
    if record.change_executor.size:
        _bars(axes, *record.absences, ABSENT_COLOUR)
        marks.insert(2, Patch(color=ABSENT_COLOUR, label="executor is not in the cluster"))
    if np.ptp(record.sequence.arrival_ms) > 0:
        arrival_ms = record.sequence.arrival_ms[record.sequence.arrival_ms <= record.end_ms]
        marks.append(_mark(axes, arrival_ms, 0, BLACK, "^", "job arrives"))
    _mark_classes(axes, record.config.executor_classes)
    axes.set(xlim=(0, end_ms / 1000), ylim=(0, record.config.num_executors))
    axes.set(xlabel="Time (s)", ylabel="Executor")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return marks


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


def _mark_completions(axes: Axes, record: EpisodeRecord) -> Line2D:
    """Draw triangles and lines at completions; return the triangles for the legend."""
    completion_ms = record.completion_ms[~np.isnan(record.completion_ms)]
    if completion_ms.size <= MAX_LINES:
        lines: dict[str, Any] = {"colors": RED, "linestyles": "dashed", "linewidth": 0.7}
        axes.vlines(completion_ms / 1000, 0, record.config.num_executors, **lines)
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
        size = f"{one.memory:g}" if all(each.cpu == 1 for each in classes) else f"{one.cpu:g}, {one.memory:g}"
        across = axes.get_yaxis_transform()
        axes.text(1.01, low + one.count / 2, size, transform=across, va="center", fontsize="small")
        low += one.count
    what = "memory" if all(each.cpu == 1 for each in classes) else "cpu, memory"
    axes.text(1.01, 1.01, what, transform=axes.transAxes, va="bottom", fontsize="small")


def job_colours(num_jobs: int) -> NDArray[np.float64]:
    """Return a colour for each job, by order of arrival: RGBA, float64 [num_jobs, 4]."""
    return _rgba()[np.arange(num_jobs) % len(PALETTE)]


def contrasting_colours(records: Sequence[EpisodeRecord]) -> NDArray[np.float64]:
    """Choose job colours so that neighbouring bars differ as much as possible, also for colour-blind readers.

    Each job gets the colour that differs most from the colours of its neighbours, weighted by the length of common
    borders. All jobs have different colours if there are enough.

    Args:
        records: episodes of one job sequence, at least one.

    Returns:
        RGBA per job, float64 [num_jobs, 4].
    """
    num_jobs = len(records[0].sequence)
    if num_jobs > MOST_JOBS:
        return job_colours(num_jobs)
    borders = sum((_borders(record) for record in records), np.zeros((num_jobs, num_jobs)))
    length = borders.sum(axis=1)
    confusion = np.exp(-((_distances() / NEAR) ** 2))
    colour = np.arange(num_jobs) % len(PALETTE)
    is_coloured = np.zeros(num_jobs, dtype=bool)
    used = np.zeros(len(PALETTE))
    reuse = length.max() if num_jobs <= len(PALETTE) else length.mean() / len(PALETTE)
    for _ in range(4):
        for job in np.argsort(-length, kind="stable"):
            if is_coloured[job]:
                used[colour[job]] -= 1
            nearby = np.bincount(colour, borders[job] * is_coloured, minlength=len(PALETTE))
            colour[job] = np.argmin(confusion @ nearby + reuse * used)
            used[colour[job]] += 1
            is_coloured[job] = True
    return _rgba()[colour]


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


def _borders(record: EpisodeRecord) -> NDArray[np.float64]:
    """Return the length of the borders between each two jobs in a picture of width 1, float64 [num_jobs, num_jobs]."""
    num_jobs, end_ms = len(record.sequence), max(record.end_ms, 1.0)
    executor, job, span = busy_spans(record, gap_ms=np.inf)
    borders = np.zeros(num_jobs * num_jobs)
    if job.size:
        follows = np.flatnonzero(executor[1:] == executor[:-1])
        pairs = np.bincount(job[follows] * num_jobs + job[follows + 1], minlength=borders.size)
        borders += pairs * ASPECT / record.config.num_executors
        lanes = np.unique(executor)
        count = int(np.clip(MOST_CELLS // lanes.size, 10, 500))
        instants = (np.arange(count) + 0.5) / count
        cells = lanes[:, None] + instants
        # Sorted keys: by executor, then by time.
        last = np.searchsorted(executor + np.minimum(span[:, 0] / end_ms, 1 - 1e-9), cells, "right") - 1
        runs = (last >= 0) & (executor[last] == lanes[:, None]) & (span[last, 1] > instants * end_ms)
        beside = runs[1:] & runs[:-1] & (np.diff(lanes) == 1)[:, None]
        pairs = np.bincount((job[last[:-1]] * num_jobs + job[last[1:]])[beside], minlength=borders.size)
        borders += pairs / count
    matrix = borders.reshape(num_jobs, num_jobs)
    np.fill_diagonal(matrix, 0.0)
    return matrix + matrix.T


def _rgba() -> NDArray[np.float64]:
    digits = [[int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)] for text in PALETTE]
    return np.column_stack([np.array(digits), np.ones(len(PALETTE))])


def perceived_colours(rgb: ArrayLike) -> NDArray[np.float64]:
    """Return places in OKLab, with the red-green axis as short as red-green colour-blind readers perceive it.

    Args:
        rgb: red, green and blue, float [colours, 3] between 0 and 1.

    Returns:
        float64 [colours, 3]; Euclidean distances are perceived differences.
    """
    rgb = np.asarray(rgb)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab: NDArray[np.float64] = np.cbrt(linear @ np.transpose(TO_CONES)) @ np.transpose(TO_OKLAB)
    return lab * [1, RED_GREEN, 1]


def _distances() -> NDArray[np.float64]:
    """Return the perceived differences between colours of the palette, float64 [colours, colours]."""
    seen = perceived_colours(_rgba()[:, :3])
    return np.asarray(np.linalg.norm(seen[:, None] - seen[None], axis=-1))
