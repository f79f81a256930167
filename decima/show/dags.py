"""Pictures of job DAGs as matplotlib figures, and a layout of stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from decima.show.style import FONTS, LEGEND, RED, SKY, Picture, plain, shortened
from workloads.display import count_text

if TYPE_CHECKING:
    from workloads.job import JobProfile

__all__ = ["plot_dag", "plot_dags", "stage_places"]

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
    """Draw the DAG of one job, see ``plot_dags``."""
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
    for place, (profile, title) in enumerate(zip(drawn, titles, strict=True), start=1):
        _draw(figure.add_subplot(rows, columns, place), profile, title, size)
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
        **LEGEND,
    )
    return figure


def stage_places(profile: JobProfile) -> NDArray[np.float64]:
    """Return a layout of a DAG's stages from left to right, float64 [num_stages, 2], between 0 and 1."""
    graph = profile.graph()
    # Place a stage as near to its children as possible: scans of small tables beside their joins.
    for column, stages in enumerate(nx.topological_generations(graph.reverse(copy=False))):
        for stage in stages:
            graph.nodes[stage]["column"] = -column
    layout = nx.multipartite_layout(graph, subset_key="column")
    places = np.array([layout[stage] for stage in range(profile.num_stages)])
    low, size = places.min(axis=0), np.ptp(places, axis=0)
    return np.where(size > 0, (places - low) / np.where(size > 0, size, 1), 0.5)


def _draw(axes: Axes, profile: JobProfile, title: str, size: int) -> None:
    """Draw a DAG; ``size`` 1 or 2 scales text and circles."""
    places, critical = stage_places(profile), _critical_path(profile)
    work = np.array([stage.work_ms for stage in profile.stages])
    colours = [RED if number in critical else SKY for number in range(profile.num_stages)]
    if profile.num_stages > MOST_STAGES:
        lines: dict[str, Any] = {"colors": "#777777", "linewidths": 0.4, "zorder": 1}
        axes.add_collection(LineCollection(list(places[profile.edges]), **lines))
        axes.scatter(places[:, 0], places[:, 1], s=size * 4 + 26 * work / max(work.max(), 1.0), c=colours)
    else:
        _draw_with_texts(axes, profile, places, 80 + 520 * work / max(work.max(), 1.0), colours, size)
    axes.set_axis_off()
    counts = ", ".join(
        count_text(count, noun)
        for count, noun in ((profile.num_stages, "stage"), (profile.num_tasks, "task"))
    )
    about = f"{counts}, {profile.work_ms / 1000:,.1f} s of work"
    axes.set_title(f"{plain(title)}\n{about}", fontsize="small", fontfamily=FONTS, loc="left")
    axes.margins(0.12)


def _draw_with_texts(
    axes: Axes,
    profile: JobProfile,
    places: NDArray[np.float64],
    area: NDArray[np.float64],
    colours: list[str],
    size: int,
) -> None:
    """Draw stages as circles with numbers of tasks and names, and edges as arrows; ``area`` is in square points."""
    nx.draw_networkx(
        profile.graph(),
        pos=dict(enumerate(places)),
        ax=axes,
        labels={number: str(stage.num_tasks) for number, stage in enumerate(profile.stages)},
        node_size=area,
        node_color=colours,
        font_size=5 + size,
        arrowsize=6,
        width=0.7,
        edge_color="#777777",
    )
    # Names of neighbours must not overlap; a letter is about 3 points wide.
    columns = np.unique(places[:, 0]).size
    width = int(np.clip(0.8 * size * 72 * WIDTH / columns / (2.6 + 0.4 * size), 8, 28))
    names = shortened([stage.name for stage in profile.stages], width)
    look: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 4 + size, "fontfamily": FONTS}
    for name, place, points in zip(names, places, -np.sqrt(area) / 2 - 2, strict=True):
        axes.annotate(plain(name), place, (0, points), textcoords="offset points", **look)


def _critical_path(profile: JobProfile) -> set[int]:
    """Return the stages on the path with the most work."""
    length = profile.critical_path_ms
    stage = int(np.argmax(length))
    path = {stage}
    while profile.children[stage]:
        stage = max(profile.children[stage], key=lambda child: float(length[child]))
        path.add(stage)
    return path
