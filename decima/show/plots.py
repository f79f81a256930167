"""Pictures of schedules and comparisons, as matplotlib figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from decima.show.dags import shortened
from decima.show.style import DASHED, LEGEND, finish_axes, new_axes, styles
from simulator.cluster.picture import draw_schedule, job_colours

if TYPE_CHECKING:
    from decima.evaluation.comparison import Comparison
    from simulator.cluster.record import EpisodeRecord

__all__ = [
    "comparison_pictures",
    "plot_jct_cdf",
    "plot_jobs_in_system",
    "plot_schedule",
]

#: Where medians differ by more than this factor, times are on a logarithmic axis.
WIDE = 8.0
#: Of jobs in the system over time.
MOST_LINES = 4
#: Of jobs that are named beside a schedule.
MOST_NAMES = 30
#: A schedule shares its time axis with none that would leave so much of it white.
MOST_WHITE = 0.5


def plot_schedule(record: EpisodeRecord, title: str = "", end_s: float | None = None) -> Figure:
    """What every executor did over time, as Decima's Figure 3.

    Bars are coloured by job, light grey bars are moves to another job, white is idle. A triangle marks each
    job's completion, with a dashed line below it unless there are too many jobs to tell lines apart. Lines lie between
    classes of executors. On the right are the names of the jobs, in their order of arrival, unless they are too many.

    Args:
        record: the episode.
        title: names the scheduler; the average JCT is added.
        end_s: right end of the time axis, seconds, to compare pictures; the episode's end if omitted.
    """
    figure, axes = new_axes(8, 4)
    handles = draw_schedule(axes, record, end_s)
    axes.legend(handles=handles, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), **LEGEND)
    profiles = record.sequence.profiles
    if len(profiles) <= MOST_NAMES:
        colours = job_colours(len(profiles))
        jobs = [
            Patch(color=colour, label=shortened(profile.name))
            for colour, profile in zip(colours, profiles, strict=True)
        ]
        small = {**LEGEND, "fontsize": 6}
        figure.legend(handles=jobs, loc="outside right upper", title="jobs", title_fontsize=6, **small)
    axes.set_title(f"{title}: average JCT {record.mean_jct_ms / 1000:.1f} s".removeprefix(": "), loc="left")
    return figure


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
        records: by scheduler, one episode of the same job sequence. More than ``MOST_LINES`` cannot be told apart:
            those are drawn whose jobs took least.
    """
    figure, axes = new_axes(8, 4)
    best = sorted(records, key=lambda name: records[name].mean_jct_ms)[:MOST_LINES]
    for name, look in styles([name for name in records if name in best], DASHED).items():
        steps = records[name].jobs_in_system()
        times = steps.index.to_numpy() / 1000
        axes.step(times, steps.to_numpy(), where="post", label=name, linewidth=1.2, **look)
    finish_axes(axes, xlabel="Time (s)", ylabel="Jobs in the system", xlim=(0, None), ylim=(0, None))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(**LEGEND)
    return figure


def comparison_pictures(comparison: Comparison) -> dict[str, Callable[[], Figure]]:
    """What draws a comparison's pictures, by name.

    ``schedule-SCHEDULER`` of one experiment for each scheduler, on one time axis as far as ``MOST_WHITE`` allows;
    ``jct-cdf``; ``jobs-in-system`` where jobs arrive over time.

    Args:
        comparison: with at least one finished experiment.
    """
    episodes = comparison.episodes
    ends_s = [record.end_ms / 1000 for record in episodes.values()]
    jct_s = {name: comparison.runs(name)["mean_jct_s"].to_numpy() for name in episodes}
    pictures: dict[str, Callable[[], Figure]] = {
        f"schedule-{_file_name(name)}": partial(
            plot_schedule, record, f"{name}, seed {min(comparison.finished)}", _shared_end_s(record, ends_s)
        )
        for name, record in episodes.items()
    }
    pictures["jct-cdf"] = partial(plot_jct_cdf, jct_s)
    if any(np.ptp(record.sequence.arrival_ms) > 0 for record in episodes.values()):
        pictures["jobs-in-system"] = partial(plot_jobs_in_system, episodes)
    return pictures


def _shared_end_s(record: EpisodeRecord, ends_s: Sequence[float]) -> float:
    """The right end of a schedule's time axis: the last end that does not leave too much of it white."""
    own_s = record.end_ms / 1000
    return max(end for end in ends_s if (1 - MOST_WHITE) * end <= own_s)


def _file_name(scheduler: str) -> str:
    """A scheduler's name with what file systems dislike replaced."""
    return re.sub(r"[^\w.=-]+", "-", scheduler)
