"""Style of all pictures: colours of schedulers, axes, bars, legends and short names, without pyplot and display."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from decima.outputs import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from decima.evaluation.metrics import Interval

#: Okabe and Ito's colour-blind-safe palette.
ORANGE, SKY, GREEN, PINK = "#E69F00", "#56B4E9", "#009E73", "#CC79A7"
BLUE, RED, GREY, BLACK = "#0072B2", "#D55E00", "#999999", "#000000"
#: Scheduler -> colour and dashes, the same in all pictures.
STYLES: dict[str, tuple[str, str]] = {
    "fifo": (ORANGE, "-"),
    "sjf-cp": (SKY, "-"),
    "fair": (GREEN, "-"),
    "spark-fair": (GREEN, ":"),
    "naive-weighted-fair": (PINK, "-"),
    "weighted-fair": (BLUE, "-"),
    "tuned-weighted-fair": (RED, "--"),
    "random": (GREY, ":"),
    "priced-srpt": (GREY, "-"),
    "profiled-srpt": (ORANGE, "--"),
    "capped-srpt": (ORANGE, ":"),
    "lookahead": (SKY, "-."),
    # for uncertain estimates
    "gittins": (RED, "-"),
    "sjf-estimate": (SKY, "-"),
    "srpt-bounce": (SKY, ":"),
    "seh": (PINK, "-."),
    "seh:0": (PINK, ":"),
    "las": (ORANGE, "-"),
    "hesrpt": (PINK, "--"),
    "inelastic-first": (RED, "--"),
    # for carbon
    "cap": (SKY, "-"),
    "carbon-price": (BLUE, "-"),
    "carbon-slack": (BLACK, "--"),
    "pcaps": (PINK, "-"),
    "greenest-first": (ORANGE, "-"),
    # for several executor classes
    "tetris": (SKY, "--"),
    "graphene-star": (PINK, "--"),
    "graphene": (ORANGE, "-."),
    "drf": (BLUE, "--"),
    "packed-srpt": (GREY, "--"),
    "decima": (BLACK, "-"),
    # on grids
    "sjf": (SKY, "-"),
    "packer": (ORANGE, "-"),
    "tetris*": (GREEN, "-"),
    "deeprm": (BLACK, "-"),
}
#: Styles of other schedulers, in order: coloured, or black with dashes.
COLOURED = tuple((colour, "-") for colour in (ORANGE, SKY, GREEN, PINK, BLUE, GREY))
DASHED = tuple((BLACK, dashes) for dashes in ("--", "-.", ":"))
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": "small"}
#: Style of bars with an interval that is visible on black bars too.
BARS: dict[str, Any] = {"width": 0.85, "capsize": 2, "ecolor": "0.55"}
DPI = 120


def styles(names: Iterable[str], others: Sequence[tuple[str, str]] = COLOURED) -> dict[str, dict[str, Any]]:
    """Return keyword arguments ``color`` and ``linestyle`` for each name.

    Names not in ``STYLES`` take ``others``, then dotted lines.
    """
    names = list(names)
    taken = {STYLES[name][0] for name in names if name in STYLES} - {BLACK}
    left = [look for look in others if look[0] not in taken] or others
    free = itertools.cycle(dict.fromkeys([*left, *((colour, ":") for colour, _ in left)]))
    looks = {name: STYLES[name] if name in STYLES else next(free) for name in names}
    return {name: {"color": colour, "linestyle": dashes} for name, (colour, dashes) in looks.items()}


class Picture(Figure):
    """Figure that notebooks show without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; sizes in inches."""
    return Picture(figsize=(width, height), dpi=DPI, layout="constrained")


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure and its only axes; sizes in inches."""
    figure = new_figure(width, height)
    return figure, figure.add_subplot()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file. Characters without a font are drawn as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        figure.savefig(path, format="png")


def finish_axes(axes: Axes, **labels: Any) -> None:
    """Set labels and a grid, and remove the frame."""
    axes.set(**labels)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_beside(axes: Axes) -> None:
    """Add a legend to the right of the axes."""
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **LEGEND)


def draw_curve(axes: Axes, rows: Iterable[Mapping[str, float]], metric: str, **look: Any) -> None:
    """Draw a metric over iterations, from those rows of ``metrics.jsonl`` that contain it."""
    points = [(row["iteration"], row[metric]) for row in rows if metric in row]
    axes.plot(*zip(*points, strict=True), **look)


def draw_band(
    axes: Axes, places: ArrayLike, middle: ArrayLike, low: ArrayLike, high: ArrayLike, **look: Any
) -> None:
    """Draw a curve, float [n], with the band between two others; ``look``: arguments of ``plot`` with a colour."""
    axes.plot(places, middle, **look)
    axes.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)


def draw_dots(axes: Axes, rows: Mapping[str, Interval], colour: Callable[[str], str]) -> None:
    """Draw means with confidence intervals as dots with bars, one row per name, from top to bottom."""
    places = range(len(rows))[::-1]
    for place, (name, (mean, half_width)) in zip(places, rows.items(), strict=True):
        error = None if math.isnan(half_width) else half_width
        axes.errorbar(mean, place, xerr=error, fmt="o", color=colour(name), capsize=3)
    axes.set_yticks(places, rows)


def draw_pairs(axes: Axes, real: ArrayLike, simulated: ArrayLike) -> None:
    """Draw real and simulated values, float [n] each, as pairs of bars."""
    places = np.arange(np.size(real))
    axes.bar(places - 0.2, real, 0.4, label="real", color=BLUE)
    axes.bar(places + 0.2, simulated, 0.4, label="simulated", color=ORANGE)


def label_point(axes: Axes, text: str, place: tuple[float, float]) -> None:
    """Write a small text beside a point."""
    axes.annotate(text, place, (4, 4), textcoords="offset points", fontsize="x-small")


def draw_bars(axes: Axes, groups: Mapping[str, Mapping[str, Interval]], ylabel: str) -> None:
    """Draw means with confidence intervals: one group of bars per setting, one colour per scheduler."""
    looks = styles(dict.fromkeys(name for group in groups.values() for name in group))
    place, ticks, drawn = 0.0, [], set[str]()
    for condition, group in groups.items():
        ticks.append((place + (len(group) - 1) / 2, condition))
        for name, (mean, half_width) in group.items():
            error = 0.0 if math.isnan(half_width) else half_width
            label = "" if name in drawn else name
            drawn.add(name)
            axes.bar(place, mean, yerr=error, label=label, color=looks[name]["color"], **BARS)
            place += 1
        place += 1
    axes.set_xticks([tick for tick, _ in ticks], [text for _, text in ticks])
    axes.tick_params(axis="x", length=0)
    finish_axes(axes, ylabel=ylabel, ylim=(0, None))
    axes.grid(visible=False, axis="x")


#: Fonts for names: matplotlib's own, and installed fonts with more scripts.
FONTS = [
    "DejaVu Sans",
    *(
        name
        for name in (
            "Noto Sans CJK SC",
            "Noto Sans CJK JP",
            "WenQuanYi Zen Hei",
            "Arial Unicode MS",
            "Noto Sans",
        )
        if name in {font.name for font in fontManager.ttflist}
    ),
]


def plain(text: str) -> str:
    """Escape text for matplotlib: no mathematics, and visible control characters."""
    return visible(text).replace("$", r"\$")


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Cut names to at most ``width`` (at least 8) characters, such that different names stay different.

    A cut name keeps its beginning and its end. Names with equal beginning and end keep the part that differs. Names
    that are still equal are numbered.
    """
    cut = {name: _middle_cut(name, width) for name in names}
    for alike in _alike(cut):
        letters = enumerate(zip(*alike, strict=False))
        differ = next((place for place, each in letters if len(set(each)) > 1), min(map(len, alike)))
        for name in alike:
            cut[name] = _cut_from(name, differ, width)
    for alike in _alike(cut):
        for number, name in enumerate(alike[1:], start=2):
            cut[name] = f"{cut[name][: width - len(f'…{number}')]}…{number}"
    return [cut[name] for name in names]


def _alike(cut: dict[str, str]) -> list[list[str]]:
    """Return groups of different names that were cut to the same text."""
    groups: dict[str, list[str]] = {}
    for name, short in cut.items():
        groups.setdefault(short, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _middle_cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}…{name[head + 1 - width :]}"


def _cut_from(name: str, place: int, width: int) -> str:
    """Return the beginning of a name and its part from a position on."""
    head = (width - 2) // 3
    start = max(head, min(place - 2, len(name) - (width - head - 1)))
    rest = name[start : start + width - head - 1]
    return f"{name[:head]}…{rest}" if start + len(rest) == len(name) else f"{name[:head]}…{rest[:-1]}…"
