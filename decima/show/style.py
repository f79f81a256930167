"""Style of all pictures: colours of schedulers, axes, bars, legends and short names, without pyplot and display."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox

from decima.show.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.text import Annotation
    from numpy.typing import ArrayLike

    from decima.evaluation.metrics import Interval

#: Okabe and Ito's colour-blind-safe palette, and two dark colours.
ORANGE, SKY, GREEN, PINK = "#E69F00", "#56B4E9", "#009E73", "#CC79A7"
BLUE, RED, GREY, BLACK = "#0072B2", "#D55E00", "#999999", "#000000"
PURPLE, BROWN = "#5B2A86", "#7A3B10"
#: Colours of schedulers that are not in ``STYLES``; no scheduler in ``STYLES`` has them.
OTHERS = ("#00525B", "#C800C8", "#7A7A00", "#3F3FBF")
#: Line style of matplotlib, or length of dashes and gaps in line widths.
Dashes = str | tuple[int, tuple[float, ...]]
LONG: Dashes = (0, (7, 2))
LONG_DOT: Dashes = (0, (6, 2, 1, 2, 1, 2))
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", ":", LONG, LONG_DOT)
#: Scheduler -> colour and dashes, the same in all pictures.
STYLES: dict[str, tuple[str, Dashes]] = {
    "decima": (BLACK, "-"),
    "fifo": (ORANGE, "-"),
    "sjf-cp": (SKY, "-"),
    "fair": (GREEN, "-"),
    "spark-fair": (GREEN, ":"),
    "fair-pools": (GREEN, "-."),
    "naive-weighted-fair": (PINK, LONG),
    "weighted-fair": (BLUE, "-"),
    "tuned-weighted-fair": (RED, "--"),
    "random": (GREY, ":"),
    "srpt": (GREY, "-"),
    "srpt-tuned": (PURPLE, "-."),
    # for uncertain estimates
    "gittins": (RED, "-"),
    "sjf-estimate": (PURPLE, "-"),
    "srpt-bounce": (SKY, ":"),
    "seh": (PINK, "-."),
    "seh:0": (PINK, LONG_DOT),
    "las": (BROWN, "-"),
    "hesrpt": (BROWN, "--"),
    "inelastic-first": (BLUE, "--"),
    # for other objectives
    "weighted-srpt": (BROWN, ":"),
    "edf": (SKY, LONG),
    "least-slack": (BLUE, ":"),
    "gamma-boost": (ORANGE, LONG_DOT),
    "atc": (PURPLE, ":"),
    "atc-misses": (ORANGE, ":"),
    "atc-weighted": (GREEN, LONG),
    # for carbon
    "cap": (SKY, LONG_DOT),
    "carbon-price": (BLUE, LONG),
    "carbon-slack": (BROWN, LONG),
    "pcaps": (PURPLE, LONG),
    "greenest-first": (ORANGE, LONG),
    # for several executor classes
    "tetris": (SKY, "--"),
    "graphene": (ORANGE, "-."),
    "graphene-star": (PURPLE, "--"),
    "drf": (BLUE, "-."),
    # on grids
    "deeprm": (BLACK, "-"),
    "cnn": (BLUE, "-"),
    "a2c": (PURPLE, "-"),
    "sjf": (SKY, "-"),
    "packer": (ORANGE, "-"),
    "tetris*": (GREEN, "-"),
    # variants of Decima, plans and orders in studies
    "no parallelism control": (ORANGE, "-"),
    "no graph embedding": (SKY, "-"),
    "unfixed sequences": (BLUE, "-"),
    "trained on batches": (PURPLE, "-"),
    "plain GNN": (GREEN, "-"),
    "attention": (PINK, "-"),
    "an output per limit": (ORANGE, "-"),
    "limits of stages": (SKY, "-"),
    "without durations": (ORANGE, "-"),
    "best order": (PURPLE, "-"),
    "critical-path": (GREEN, "-"),
}
#: Learned schedulers. Their line is the thickest, and below the others: it is visible where lines coincide.
LEARNED = ("decima", "deeprm")
THICK, WIDEST, THINNEST = 2.8, 1.8, 1.2
#: Style of a legend; of patches and markers, which need less space than dashed lines.
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 3}
SWATCHES: dict[str, Any] = {**LEGEND, "handlelength": 2}
#: Grey of intervals, which is visible on black bars and on grey bars.
INTERVAL = "0.4"
BARS: dict[str, Any] = {"width": 0.85, "capsize": 2, "ecolor": INTERVAL}
#: Patterns that distinguish bars of one colour.
HATCHES = ("", "///", "...", "xxx", "---", "ooo")
DPI = 120
#: Places of a label beside a point: whether to the right, and whether above.
CORNERS = ((True, True), (True, False), (False, True), (False, False))


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return keyword arguments of a line for each scheduler: colour, line style, line width and drawing order.

    The colour depends on the name alone. A scheduler with parameters (``weighted-fair:-1``, ``decima:tpch-batch``) has
    the colour of the scheduler, and other dashes if both are in ``names``. Names that are not in ``STYLES`` have one of
    the colours ``OTHERS``. Learned schedulers are thickest; the others become thinner, so that lines below stay
    visible.
    """
    names = list(dict.fromkeys(names))
    thin = iter(np.linspace(WIDEST, THINNEST, len(names)).tolist())
    looks: dict[str, dict[str, Any]] = {}
    taken = set()
    # Names in the table choose first, so that the variants of a scheduler do not change its dashes.
    for name in sorted(names, key=lambda name: name not in STYLES):
        colour, dashes = _look(name)
        dashes = next((pattern for pattern in (dashes, *DASHES) if (colour, pattern) not in taken), dashes)
        taken.add((colour, dashes))
        looks[name] = {"color": colour, "linestyle": dashes}
    for name in names:
        is_learned = _family(name) in LEARNED
        looks[name] |= {"linewidth": THICK if is_learned else next(thin), "zorder": 1.9 if is_learned else 2}
    return {name: looks[name] for name in names}


def _look(name: str) -> tuple[str, Dashes]:
    """Return colour and preferred dashes of a scheduler."""
    if name in STYLES:
        return STYLES[name]
    return STYLES.get(_family(name)) or (OTHERS[crc32(name.encode()) % len(OTHERS)], "-")


def _family(name: str) -> str:
    """Return a scheduler's name without parameters, and without the mark that they are tuned."""
    return re.split(r"[:,+ ]", name.removeprefix("tuned-"), maxsplit=1)[0]


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
    if len(points) == 1:
        look["marker"] = "o"
    axes.plot(*zip(*points, strict=True), **look)


def plain_log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers: powers of ten, and 2 and 5 times these if the axis is short."""
    low, high = axis.get_data_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def count_iterations(axes: Axes) -> None:
    """Put ticks of the drawn axes at whole numbers, also if there is only one point."""
    low, high = axes.dataLim.intervalx
    if high - low < 1:
        axes.set_xlim(low - 0.5, high + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=(1, 2, 5, 10), min_n_ticks=1))


def draw_band(
    axes: Axes, x: ArrayLike, middle: ArrayLike, low: ArrayLike, high: ArrayLike, **look: Any
) -> None:
    """Draw a curve, float [n], with the band between two others; ``look``: arguments of ``plot`` with a colour."""
    axes.plot(x, middle, **look)
    axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def draw_dots(axes: Axes, rows: Mapping[str, Interval], colours: Mapping[str, str] | None = None) -> None:
    """Draw means with confidence intervals as dots with bars, one row per name, from top to bottom.

    ``colours`` are those of names that are no schedulers.
    """
    looks, colours = styles(rows), colours or {}
    heights = range(len(rows))[::-1]
    for height, (name, (mean, half_width)) in zip(heights, rows.items(), strict=True):
        error = None if math.isnan(half_width) else half_width
        colour = colours.get(name, looks[name]["color"])
        axes.errorbar(mean, height, xerr=error, fmt="o", color=colour, capsize=3)
    axes.set_yticks(heights, rows)


def draw_pairs(axes: Axes, real: ArrayLike, simulated: ArrayLike) -> None:
    """Draw real and simulated values, float [n] each, as pairs of bars."""
    positions = np.arange(np.size(real))
    axes.bar(positions - 0.2, real, 0.4, label="real", color=BLUE)
    axes.bar(positions + 0.2, simulated, 0.4, label="simulated", color=ORANGE)


def label_points(axes: Axes, labels: Mapping[tuple[float, float], str]) -> None:
    """Write a small text beside each point of finished axes; of four places the one that covers least."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()  # the layout places the points
    radius = 3 * figure.dpi / 72
    occupied = [
        Bbox.from_bounds(x - radius, y - radius, 2 * radius, 2 * radius)
        for x, y in axes.transData.transform(list(labels))
    ]
    for point, text in sorted(labels.items()):  # most labels are to the right of their point
        note = axes.annotate(text, point, (0, 0), textcoords="offset points", fontsize="x-small")
        note.set_in_layout(False)
        covered = []
        for right, above in CORNERS:
            _move_note(note, right, above)
            box = note.get_window_extent()
            is_cut = box.x0 < axes.bbox.x0 or box.x1 > figure.bbox.x1
            covered.append(sum(map(box.overlaps, occupied)) + 2 * is_cut)
        _move_note(note, *CORNERS[covered.index(min(covered))])
        occupied.append(note.get_window_extent())


def _move_note(note: Annotation, right: bool, above: bool) -> None:
    """Place a note in one of the corners of its point."""
    note.xyann = (5 if right else -5, 4 if above else -4)
    note.set(ha="left" if right else "right", va="bottom" if above else "top")


def draw_bars(axes: Axes, groups: Mapping[str, Mapping[str, Interval]], ylabel: str) -> None:
    """Draw means with confidence intervals: one group of bars per setting, one colour per scheduler.

    Variants of a scheduler have its colour, and a pattern.
    """
    looks = styles(name for group in groups.values() for name in group)
    same_colour: Counter[str] = Counter()
    hatches = {}
    for name, look in looks.items():
        hatches[name] = HATCHES[same_colour[look["color"]] % len(HATCHES)]
        same_colour[look["color"]] += 1
    position, ticks, drawn = 0.0, [], set[str]()
    for condition, group in groups.items():
        ticks.append((position + (len(group) - 1) / 2, condition))
        for name, (mean, half_width) in group.items():
            error = 0.0 if math.isnan(half_width) else half_width
            look = {"facecolor": looks[name]["color"], "hatch": hatches[name], "label": name}
            if name in drawn:
                look["label"] = ""
            axes.bar(position, mean, yerr=error, edgecolor="white", linewidth=0, **look, **BARS)
            drawn.add(name)
            position += 1
        position += 1
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
