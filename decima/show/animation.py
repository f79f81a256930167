"""Schedules that grow as their episodes go on, as a GIF."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from decima.outputs import visible
from simulator.cluster.picture import contrasting_colours, draw_schedule
from simulator.cluster.record import EpisodeRecord

__all__ = ["write_animation"]

#: Of an animation, and how many of them a second has.
FRAMES, FRAMES_PER_SECOND = 80, 10
#: Inches and dots per inch.
WIDTH, HEIGHT, DPI = 8.0, 2.8, 80


def write_animation(path: Path, episodes: Mapping[str, EpisodeRecord]) -> None:
    """Write a GIF.

    Args:
        path: the file.
        episodes: by scheduler, of the same jobs; one below the other, on one time axis.
    """
    end_s = max(record.end_ms for record in episodes.values()) / 1000
    figure = Figure(figsize=(WIDTH, HEIGHT * len(episodes)), dpi=DPI, layout="constrained")
    panels, colours = [], contrasting_colours(list(episodes.values()))
    for place, (name, record) in enumerate(episodes.items(), start=1):
        axes = figure.add_subplot(len(episodes), 1, place)
        draw_schedule(axes, record, end_s, colours)
        for line in axes.lines:
            line.set_clip_on(True)  # nothing shows beside the curtain
        curtain = Rectangle((0, 0), end_s, record.config.num_executors, color="white", zorder=5)
        axes.add_patch(curtain)
        title = axes.set_title("-", loc="left")
        panels.append((name, record, curtain, title))

    def draw(second: float) -> Iterable[Artist]:
        for name, record, curtain, title in panels:
            curtain.set_x(second)
            arrived = record.sequence.arrival_ms <= second * 1000
            live = int((arrived & ~(record.completion_ms <= second * 1000)).sum())
            words = f"average JCT {record.mean_jct_ms / 1000:.1f} s" if live == 0 and arrived.all() else ""
            title.set_text(
                visible(f"{name} at {second:.0f} s: {live} jobs in the system; {words}".removesuffix("; "))
            )
        return [artist for _, _, *artists in panels for artist in artists]

    # The last picture stays for two seconds.
    seconds = np.append(np.linspace(0, end_s, FRAMES), [end_s] * 2 * FRAMES_PER_SECOND)
    animation = FuncAnimation(figure, draw, seconds.tolist())
    animation.save(path, PillowWriter(fps=FRAMES_PER_SECOND))
