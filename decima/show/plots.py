"""Pictures of schedules, comparisons and job DAGs as matplotlib figures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from decima.evaluation.metrics import mean_interval
from decima.show.style import (
    FONTS,
    LEGEND,
    RED,
    SKY,
    SWATCHES,
    Picture,
    finish_axes,
    new_axes,
    new_figure,
    plain,
    plain_log_ticks,
    styles,
)
from decima.show.tables import shortened
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.picture import HIGHLIGHT, PALETTE, draw_schedule, job_colours
from simulator.cluster.record import EpisodeRecord
from workloads.display import count_text
from workloads.errors import ConfigError, WorkloadError, check_instance, check_whole
from workloads.job import JobProfile

if TYPE_CHECKING:
    import pandas as pd

    from decima.evaluation.comparison import Comparison

COLUMNS = 4
#: If there are more than ``MOST_DAGS`` DAGs, only the first ``FEW_DAGS`` are drawn.
MOST_DAGS, FEW_DAGS = 150, 40
#: DAGs with more stages are drawn as points and lines, without arrows and text.
MOST_STAGES = 120
DPI = 100
#: Width and height of a DAG's panel, and height of the legend, inches.
WIDTH, HEIGHT, LEGEND_HEIGHT = 4.0, 2.6, 0.4
#: Maximum length of a job's name.
LONGEST_JOB = 48


def plot_dag(profile: JobProfile) -> Figure:
    """Draw the DAG of one job, see ``plot_dags``.

    Raises:
        WorkloadError: ``profile`` is not a job profile.
    """
    check_instance(profile, JobProfile, "profile", WorkloadError)
    return plot_dags([profile])


def plot_dags(profiles: Sequence[JobProfile]) -> Figure:
    """Draw the DAG of each job in its own panel, from left to right.

    A circle is a stage, with its name below. The area grows with the work of the stage, the number is its number of
    tasks, and stages on the critical path (the path with the most work) are orange.

    Args:
        profiles: at least one job profile; of more than ``MOST_DAGS``, only the first ``FEW_DAGS`` are drawn.
    """
    drawn = profiles if len(profiles) <= MOST_DAGS else profiles[:FEW_DAGS]
    columns = min(COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    size = 2 if len(drawn) == 1 else 1
    height = size * HEIGHT * rows + LEGEND_HEIGHT
    figure = Picture(figsize=(max(size, 1.6 / columns) * WIDTH * columns, height), dpi=DPI)
    titles = shortened([profile.name for profile in drawn], LONGEST_JOB)
    for index, (profile, title) in enumerate(zip(drawn, titles, strict=True), start=1):
        _draw(figure.add_subplot(rows, columns, index), profile, title, size)
    figure.subplots_adjust(
        left=0.01, right=0.99, bottom=LEGEND_HEIGHT / height, top=1 - 0.45 / height, hspace=0.25, wspace=0.03
    )
    point: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 8}
    figure.legend(
        handles=[
            Line2D([], [], color=SKY, label="stage (number: tasks, area: work)", **point),
            Line2D([], [], color=RED, label="on the path with the most work", **point),
        ],
        title="" if len(drawn) == len(profiles) else f"the first {len(drawn)} of {len(profiles):,} DAGs",
        ncols=2,
        loc="lower left",
        **SWATCHES,
    )
    return figure


def stage_places(profile: JobProfile) -> NDArray[np.float64]:
    """Return a layout of a DAG's stages from left to right, float64 [num_stages, 2], between 0 and 1."""
    graph = profile.to_networkx()
    # Place a stage as near to its children as possible: scans of small tables beside their joins.
    for column, stages in enumerate(nx.topological_generations(graph.reverse(copy=False))):
        for stage in stages:
            graph.nodes[stage]["column"] = -column
    layout = nx.multipartite_layout(graph, subset_key="column")
    positions = np.array([layout[stage] for stage in range(profile.num_stages)])
    low, size = positions.min(axis=0), np.ptp(positions, axis=0)
    return np.where(size > 0, (positions - low) / np.where(size > 0, size, 1), 0.5)


def _draw(axes: Axes, profile: JobProfile, title: str, size: int) -> None:
    """Draw a DAG; ``size`` 1 or 2 scales text and circles."""
    positions, critical = stage_places(profile), _critical_path(profile)
    work = np.array([stage.work_ms for stage in profile.stages])
    colours = [RED if index in critical else SKY for index in range(profile.num_stages)]
    if profile.num_stages > MOST_STAGES:
        lines: dict[str, Any] = {"colors": "#777777", "linewidths": 0.4, "zorder": 1}
        axes.add_collection(LineCollection(list(positions[profile.edges]), **lines))
        axes.scatter(
            positions[:, 0], positions[:, 1], s=size * 4 + 26 * work / max(work.max(), 1.0), c=colours
        )
    else:
        area = 80 + 520 * work / max(work.max(), 1.0)  # square points
        nx.draw_networkx(
            profile.to_networkx(),
            pos=dict(enumerate(positions)),
            ax=axes,
            labels={index: str(stage.num_tasks) for index, stage in enumerate(profile.stages)},
            node_size=area,
            node_color=colours,
            font_size=5 + size,
            arrowsize=6,
            width=0.7,
            edge_color="#777777",
        )
        # Names of neighbours must not overlap; a letter is about 3 points wide.
        columns = np.unique(positions[:, 0]).size
        width = int(np.clip(0.8 * size * 72 * WIDTH / columns / (2.6 + 0.4 * size), 8, 28))
        names = shortened([stage.name for stage in profile.stages], width)
        look: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 4 + size, "fontfamily": FONTS}
        for name, position, points in zip(names, positions, -np.sqrt(area) / 2 - 2, strict=True):
            axes.annotate(plain(name), position, (0, points), textcoords="offset points", **look)
    axes.set_axis_off()
    counts = f"{count_text(profile.num_stages, 'stage')}, {count_text(profile.num_tasks, 'task')}"
    about = f"{counts}, {profile.work_ms / 1000:,.1f} s of work"
    axes.set_title(f"{plain(title)}\n{about}", fontsize="small", fontfamily=FONTS, loc="left")
    axes.margins(0.12)


def _critical_path(profile: JobProfile) -> set[int]:
    length = profile.critical_path_ms
    stage = int(np.argmax(length))
    path = {stage}
    while profile.children[stage]:
        stage = max(profile.children[stage], key=lambda child: float(length[child]))
        path.add(stage)
    return path


#: Times have a logarithmic axis if medians differ by more than this factor.
WIDE = 8.0
#: Maximum number of jobs in the legend of a schedule: more jobs share colours.
MOST_NAMES = len(PALETTE)
#: Maximum length of a job's name in the legend, and of a line of the title.
LONGEST_NAME, TITLE_WIDTH = 20, 66
#: Height of one of several schedules, inches.
PANEL_HEIGHT = 1.9
#: Number of time windows in which jobs in the system are averaged over experiments.
WINDOWS = 100
#: Schedules share a time axis unless more than this fraction of it would be empty.
MOST_WHITE = 1 / 3


def plot_schedule(record: EpisodeRecord, title: str = "", end_s: float | None = None) -> Figure:
    """Plot a schedule as a Gantt chart of executors over time, as in Decima's Figure 3.

    Bars are coloured by job, light grey bars are moves to another job, white is idle. A triangle marks each job's
    completion, with a dashed line below it if there are few jobs. Lines separate executor classes. The legend has up
    to ``MOST_NAMES`` jobs in order of arrival; jobs of one name are numbered.

    Args:
        title: name of the scheduler; the average JCT is added.
        end_s: right end of the time axis, s, to compare pictures; by default the episode's end.

    Raises:
        ConfigError: ``record`` is not the record of an episode.
    """
    check_instance(record, EpisodeRecord, "record", ConfigError)
    figure, axes = new_axes(8, 4)
    handles = draw_schedule(axes, record, end_s)
    names = _numbered([profile.name for profile in record.sequence.profiles])
    if len(names) <= MOST_NAMES:
        shown = map(plain, shortened(names, LONGEST_NAME))
        jobs = [
            Patch(color=colour, label=name)
            for colour, name in zip(job_colours(len(names)), shown, strict=True)
        ]
        small = {**SWATCHES, "fontsize": None, "prop": {"size": 6, "family": FONTS}}
        figure.legend(handles=jobs, loc="outside right upper", title="jobs", title_fontsize=6, **small)
    else:
        handles.insert(
            0, Patch(alpha=0, label=f"{len(names)} jobs in {min(len(names), len(PALETTE))} colours")
        )
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower right", **SWATCHES)
    average = f"average JCT {record.mean_jct_ms / 1000:.1f} s"
    head = f"{title}: {average}".removeprefix(": ")
    if len(head) > TITLE_WIDTH:
        head = f"{fill(title, TITLE_WIDTH)}\n{average}"
    axes.set_title(plain(head), loc="left")
    return figure


def plot_schedules(records: Mapping[str, EpisodeRecord], highlight: int | None = None) -> Figure:
    """Plot schedules of the same jobs one above the other, on one time axis, see ``plot_schedule``.

    Args:
        records: name of a scheduler -> its episode, at least one.
        highlight: index of a job that stands out in black in all schedules.

    Raises:
        ConfigError: ``records`` is empty, or not of episodes; or there is no job ``highlight``.
    """
    for name, record in records.items():
        check_instance(record, EpisodeRecord, f"record of {name}", ConfigError)
    if not records:
        raise ConfigError("records: expected at least one schedule")
    num_jobs = min(len(record.sequence) for record in records.values())
    if highlight is not None and not 0 <= highlight < num_jobs:
        raise ConfigError(f"highlight must be the index of one of {num_jobs} jobs, got {highlight!r:.60}")
    figure = new_figure(8, PANEL_HEIGHT * len(records) + 0.4)
    panels = figure.subplots(len(records), sharex=True, squeeze=False)[:, 0]
    end_s = max(record.end_ms for record in records.values()) / 1000
    for axes, (name, record) in zip(panels, records.items(), strict=True):
        handles = draw_schedule(axes, record, end_s, highlight)
        title = f"{plain(name)}: jobs complete after {record.mean_jct_ms / 1000:.1f} s on average"
        if highlight is not None:
            title += f", the black job after {record.jct_ms[highlight] / 1000:.1f} s"
        axes.set_title(title, loc="left", pad=8)
        axes.label_outer()
    if highlight is not None:
        job_name = plain(shortened([record.sequence.profiles[highlight].name], LONGEST_NAME)[0])
        handles.insert(0, Patch(color=HIGHLIGHT, label=f"job {job_name}"))
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower right", **SWATCHES)
    return figure


def plot_film(records: Mapping[str, EpisodeRecord], frames: int = 4) -> Figure:
    """Plot a film strip for slides: a row for each scheduler, with its schedule up to several times.

    Each frame ends at twice the time of the frame before, the last one at the end of the longest episode. Its title has
    the number of jobs that are complete.

    Args:
        records: name of a scheduler -> its episode, at least one.
        frames: number of frames in a row, at least 2.

    Raises:
        ConfigError: ``records`` is empty, or not of episodes; or there are fewer than two frames.
    """
    for name, record in records.items():
        check_instance(record, EpisodeRecord, f"record of {name}", ConfigError)
    if not records:
        raise ConfigError("records: expected at least one schedule")
    if check_whole(frames, "frames", ConfigError) < 2:
        raise ConfigError(f"expected at least two frames, got {frames}")
    figure = new_figure(2.7 * frames, 1.7 * len(records) + 0.4)
    panels = figure.subplots(len(records), frames, sharex=True, sharey=True, squeeze=False)
    end_s = max(record.end_ms for record in records.values()) / 1000
    for row, (name, record) in zip(panels, records.items(), strict=True):
        for axes, share in zip(row, 0.5 ** np.arange(frames)[::-1], strict=True):
            draw_schedule(axes, record, end_s)
            shown = Rectangle((0, 0), share, 1.1, transform=axes.transAxes)  # with marks above the axes
            for artist in (*axes.collections, *axes.lines):
                artist.set_clip_path(shown)
                artist.set_clip_on(True)
            time_s = share * end_s
            completed = np.count_nonzero(record.completion_ms <= 1000 * time_s)
            axes.set_title(f"{time_s:.0f} s: {completed} of {len(record.sequence)} jobs", loc="left")
            axes.label_outer()
        row[0].set_ylabel(f"{plain(name)}\nExecutor")
    return figure


def _numbered(names: Sequence[str]) -> list[str]:
    """Number names that occur more than once."""
    total, so_far = Counter(names), Counter[str]()
    numbered = []
    for name in names:
        so_far[name] += 1
        numbered.append(f"{name} #{so_far[name]}" if total[name] > 1 else name)
    return numbered


def plot_jct_cdf(per_seed_avg_jct_s: Mapping[str, Sequence[float] | NDArray[np.float64]]) -> Figure:
    """Plot the distribution of the average JCT over experiments, one line per scheduler, as in Decima's Figure 9(a).

    The axis is logarithmic if medians differ by more than a factor of ``WIDE``.

    Args:
        per_seed_avg_jct_s: scheduler -> average JCT of each experiment, float [num_experiments], s.
    """
    figure, axes = new_axes(7.5, 4)
    for name, look in styles(per_seed_avg_jct_s).items():
        axes.ecdf(per_seed_avg_jct_s[name], label=_line_name(name), **look)
    finish_axes(
        axes, xlabel="Average job completion time (s)", ylabel="Fraction of experiments", ylim=(0, 1.02)
    )
    medians = [float(np.median(values)) for values in per_seed_avg_jct_s.values()]
    if max(medians) > WIDE * min(medians):
        axes.set_xscale("log")
        plain_log_ticks(axes.xaxis)
    else:
        axes.set_xlim(left=0)
    figure.legend(loc="outside right upper", **LEGEND)
    return figure


def plot_jobs_in_system(records: Mapping[str, EpisodeRecord], title: str = "") -> Figure:
    """Plot the number of jobs in the system over time, one line per scheduler, as in Decima's Figure 10(a).

    Args:
        records: scheduler -> episode of the same job sequence. The legend has time averages.
        title: text above the picture.
    """
    figure, axes = new_axes(9.5, 4)
    for name, look in styles(records).items():
        steps = records[name].jobs_in_system()
        times = steps.index.to_numpy() / 1000
        label = f"{_line_name(name)}: {EpisodeMetrics(records[name]).mean_jobs_in_system:.2g}"
        axes.step(times, steps.to_numpy(), where="post", label=label, **look)
    return _finish_jobs_in_system(figure, title, "on average")


def plot_mean_jobs_in_system(jobs: pd.DataFrame) -> Figure:
    """Plot the mean number of jobs in the system over time, averaged over experiments, one line per scheduler.

    The legend has averages with 95 % confidence intervals, from the first arrival of an experiment to the last
    completion under any scheduler. Jobs that failed do not count.

    Args:
        jobs: one row per scheduler, experiment and job, with the columns ``scheduler``, ``seed``, ``arrival_s`` and
            ``jct_s``; two experiments or more.
    """
    done = jobs.dropna(subset="jct_s")
    done = done.assign(end_s=done["arrival_s"] + done["jct_s"])
    observed = done.groupby("seed").agg({"arrival_s": "min", "end_s": "max"})
    length_s = observed["end_s"] - observed["arrival_s"]
    edges = np.linspace(0, done["end_s"].max(), WINDOWS + 1)
    figure, axes = new_axes(9.5, 4)
    for name, look in styles(map(str, done["scheduler"].unique())).items():
        mine = done[done["scheduler"] == name]
        arrival_s, jct_s = (mine[column].to_numpy()[:, None] for column in ("arrival_s", "jct_s"))
        time_in_system_s = np.clip(edges - arrival_s, 0, jct_s).sum(axis=0)
        present = np.diff(time_in_system_s) / np.diff(edges) / len(length_s)
        average = mean_interval(mine.groupby("seed")["jct_s"].sum() / length_s)
        label = f"{_line_name(name)}: {average.mean:.2g} ± {average.half_width:.2g}"
        axes.plot((edges[1:] + edges[:-1]) / 2, present, label=label, **look)
    title = f"Mean of {len(length_s)} experiments"
    return _finish_jobs_in_system(figure, title, "on average, 95 % interval")


def _finish_jobs_in_system(figure: Figure, title: str, legend: str) -> Figure:
    [axes] = figure.axes
    finish_axes(axes, xlabel="Time (s)", ylabel="Jobs in the system", xlim=(0, None))
    axes.set_ylim(bottom=0)
    axes.set_title(plain(title), loc="left")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right upper", title=legend, title_fontsize="small", **LEGEND)
    return figure


def _line_name(scheduler: str) -> str:
    [name] = shortened([scheduler], 28)
    return plain(name)


def comparison_pictures(comparison: Comparison) -> dict[str, Callable[[], Figure]]:
    """Return name -> function that draws a picture of a comparison; at least one experiment must be finished.

    Names are ``schedule-SCHEDULER`` (the first experiment, on a shared time axis if ``MOST_WHITE`` permits),
    ``jct-cdf``, and ``jobs-in-system`` (mean over the experiments) if jobs arrive over time.
    """
    episodes, seeds = comparison.episodes, comparison.finished
    ends_s = [record.end_ms / 1000 for record in episodes.values()]
    jct_s = {
        str(name): mine.to_numpy()
        for name, mine in comparison.measured.groupby("scheduler", sort=False)["mean_jct_s"]
        if name in episodes
    }
    pictures: dict[str, Callable[[], Figure]] = {
        "schedule-" + re.sub(r"[^\w.=-]+", "-", name): partial(
            plot_schedule,
            record,
            f"{name}, seed {min(seeds)}",
            _shared_end_s(record, ends_s),
        )
        for name, record in episodes.items()
    }
    pictures["jct-cdf"] = partial(plot_jct_cdf, jct_s)
    if any(np.ptp(record.sequence.arrival_ms) > 0 for record in episodes.values()):
        pictures["jobs-in-system"] = lambda: (
            plot_mean_jobs_in_system(comparison.measured_jobs)
            if len(seeds) > 1
            else plot_jobs_in_system(episodes, f"Seed {min(seeds)}")
        )
    return pictures


def _shared_end_s(record: EpisodeRecord, ends_s: Sequence[float]) -> float:
    """Return the right end of a schedule's time axis, s: the latest end that leaves at most ``MOST_WHITE`` empty."""
    own_s = record.end_ms / 1000
    return max(end for end in ends_s if (1 - MOST_WHITE) * end <= own_s)
