"""Pictures of job DAGs, as matplotlib figures, and where stages stand in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from decima.outputs import visible

if TYPE_CHECKING:
    from workloads.job import JobProfile

__all__ = ["plot_dags", "stage_places"]

COLUMNS = 4
STAGE_COLOUR = "#56B4E9"
CRITICAL_COLOUR = "#D55E00"
DPI = 100
#: Of a stage, in letters.
LONGEST_NAME = 16


def plot_dags(profiles: Sequence[JobProfile]) -> Figure:
    """Every job's DAG in a field of its own, from left to right.

    A circle is a stage: its area grows with its work, the number in it is that of its tasks, and it is orange
    if it lies on the critical path. Its name stands below it, if it has one.

    Args:
        profiles: at least one.
    """
    columns = min(COLUMNS, len(profiles))
    rows = math.ceil(len(profiles) / columns)
    figure = Figure(figsize=(4 * columns, 2.6 * rows), dpi=DPI)
    for place, profile in enumerate(profiles, start=1):
        _draw(figure.add_subplot(rows, columns, place), profile)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02 / rows, top=1 - 0.1 / rows, hspace=0.15)
    return figure


def stage_places(profile: JobProfile) -> NDArray[np.float64]:
    """Where the stages of a DAG stand from left to right, float64 [num_stages, 2], between 0 and 1."""
    graph = profile.graph()
    # A stage stands as near to those that wait for it as it can: scans of small tables beside their joins.
    for column, stages in enumerate(nx.topological_generations(graph.reverse(copy=False))):
        for stage in stages:
            graph.nodes[stage]["column"] = -column
    layout = nx.multipartite_layout(graph, subset_key="column")
    places = np.array([layout[stage] for stage in range(profile.num_stages)])
    low, size = places.min(axis=0), np.ptp(places, axis=0)
    return np.where(size > 0, (places - low) / np.where(size > 0, size, 1), 0.5)


def _draw(axes: Axes, profile: JobProfile) -> None:
    graph = profile.graph()
    critical = _critical_path(profile)
    work = np.array([stage.work_ms for stage in profile.stages])
    area = 80 + 520 * work / max(work.max(), 1.0)  # in square points
    nx.draw_networkx(
        graph,
        pos=dict(enumerate(stage_places(profile))),
        ax=axes,
        labels={number: str(stage.num_tasks) for number, stage in enumerate(profile.stages)},
        node_size=area,
        node_color=[CRITICAL_COLOUR if number in critical else STAGE_COLOUR for number in graph],
        font_size=6,
        arrowsize=6,
        width=0.7,
        edge_color="#777777",
    )
    below = -np.sqrt(area) / 2 - 2
    for stage, place, points in zip(profile.stages, stage_places(profile), below, strict=True):
        look: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 5}
        axes.annotate(shortened(stage.name), place, (0, points), textcoords="offset points", **look)
    axes.set_axis_off()
    title = f"{profile.name}: {profile.num_tasks} tasks, {profile.work_ms / 1000:.0f} s"
    axes.set_title(title, fontsize="small", loc="left")
    axes.margins(0.12)


def shortened(name: str) -> str:
    """A name that fits below a circle, and is no mathematics to matplotlib."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return visible(short).replace("$", r"\$")


def _critical_path(profile: JobProfile) -> set[int]:
    """The stages of the path with the most work."""
    length = profile.critical_path_ms
    stage = int(np.argmax(length))
    path = {stage}
    while profile.children[stage]:
        stage = max(profile.children[stage], key=lambda child: float(length[child]))
        path.add(stage)
    return path
