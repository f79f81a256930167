"""Pictures and tables of training: learning curves with confidence intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import Interval
from decima.show.style import (
    BLACK,
    BLUE,
    BROWN,
    GREEN,
    GREY,
    LEGEND,
    ORANGE,
    PINK,
    SKY,
    STYLES,
    count_iterations,
    draw_band,
    finish_axes,
    new_axes,
)
from decima.show.tables import interval_text, table_of
from decima.show.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from decima.learning.curves import LearningCurve

#: Colours of several curves.
_COLOURS = (ORANGE, SKY, GREEN, PINK, BLUE, BROWN)
#: Style of curves that exceed the palette; they are not in the legend.
_OTHERS: dict[str, Any] = {"color": "0.8", "linewidth": 0.8, "zorder": 1}
#: Style of text above the axes.
_ABOVE: dict[str, Any] = {
    "xycoords": ("data", "axes fraction"),
    "textcoords": "offset points",
    "ha": "center",
    "fontsize": "small",
    "color": "0.4",
}
#: Metric -> label of an axis.
LABELS: dict[str, str] = {
    "return": "Mean return of training episodes",
    "samples": "Decisions learned from in an iteration",
    "steps": "Gradient steps of an iteration",
    "entropy": "Entropy of the policy, nats per decision",
    "cloning_loss": "Loss of behaviour cloning, nats per decision",
    "gradient_norm": "Length of the gradient",
    "learning_rate": "Learning rate",
    "cpu_s": "CPU time since the beginning, s",
    "improvement": "Improvement over the reference, as a fraction",
    "best_improvement": "Improvement of the best policy so far, as a fraction",
    "validation_reference": "Validation: objective of the reference",
    # on clusters
    "mean_jct_s": "Mean job completion time of training episodes, s",
    "advantage_std": "Standard deviation of the advantages",
    "gradient_signal": "Part of the gradient that is common to job sequences",
    "loss": "Loss of the policy",
    "kl": "Divergence of the policy in an update, nats",
    "clipped": "Share of decisions whose ratio was clipped",
    "entropy_weight": "Weight of the entropy bonus",
    "decisions": "Decisions of an iteration's episodes",
    "completed_jobs": "Jobs completed in an iteration's episodes",
    "mean_end_s": "Mean end of training episodes, s",
    "rollout_cpu_s": "CPU time of an iteration's episodes, s",
    "update_cpu_s": "CPU time of an update, s",
    "rollout_ms_per_decision": "CPU time per decision of the episodes, ms",
    "validation_mean_jct_s": "Mean job completion time on validation, s",
    "validation_makespan_s": "Mean makespan on validation, s",
    "validation_cost_s": "Mean cost per job on validation, s",
    "validation_change_mean": "Change of the mean JCT on validation, as a fraction",
    "validation_change_worst": "Certain loss in the worst setting, as a fraction",
    # on grids
    "return_best": "Mean return of each set's best episode",
    "slowdown": "Mean slowdown in training episodes",
    "completion": "Mean completion time in training episodes, steps",
    "unfinished": "Jobs that training episodes did not book",
    "critic_loss": "Mean squared error of the critic",
    "iteration_cpu_s": "CPU time of an iteration, s",
    "validation_slowdown": "Mean slowdown on validation",
    "validation_completion": "Mean completion time on validation, steps",
    "validation_waiting": "Mean waiting time on validation, steps",
    "validation_makespan": "Mean makespan on validation, steps",
    "validation_utilisation": "Mean utilisation on validation, as a fraction",
}
#: Maximum length of a name beside a picture, and of a line of an axis label.
_LONGEST, _LABEL_WIDTH = 60, 45


def plot_curves(
    curves: Mapping[str, LearningCurve], metric: str, reference: tuple[str, float] | None = None
) -> Figure:
    """Plot a metric against iterations: one line per group of runs, with its confidence interval over seeds.

    A single curve is black, as learned schedulers in all pictures. Of several, only the first have colours.
    A horizontal line is the reference scheduler, see ``curves.reference_of``.
    """
    figure, axes = new_axes(7, 4.2)
    colours = _COLOURS if len(curves) > 1 else (BLACK,)
    for (name, curve), colour in zip_longest(curves.items(), colours[: len(curves)]):
        if colour is None:
            axes.plot(curve.iterations, curve.mean, **_OTHERS)
            continue
        marker, half = "o" if len(curve.iterations) < 30 else None, np.nan_to_num(curve.half_width)
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "label": _short(name)}
        look["linewidth"] = 2.5
        draw_band(axes, curve.iterations, curve.mean, curve.mean - half, curve.mean + half, **look)
    if reference is not None:
        scheduler = reference[0].partition(",")[0].replace(" ", "-")
        colour, _ = STYLES.get(scheduler, (GREY, "--"))
        axes.axhline(reference[1], color=colour, linestyle="--", linewidth=1.5, label=_short(reference[0]))
    first = min(int(curve.iterations[0]) for curve in curves.values())
    last = max(int(curve.iterations[-1]) for curve in curves.values())
    xlabel = "Iterations of reinforcement learning"
    if first < 0:
        xlabel = f"Epochs of behaviour cloning ({-first}), then iterations of reinforcement learning"
        axes.axvspan(first, 0, color="0.94", linewidth=0, zorder=0)
        axes.annotate("behaviour cloning", (first / 2, 1), (0, 2), **_ABOVE)
        if last > 0:
            axes.annotate("reinforcement learning", (last / 2, 1), (0, 2), **_ABOVE)
        _cut_untrained(axes, curves, reference)
    count_iterations(axes)
    axes.xaxis.set_major_formatter(lambda x, _: f"{round(x - first if x < 0 else x)}")
    finish_axes(axes, xlabel=xlabel, ylabel=fill(LABELS.get(metric, metric), _LABEL_WIDTH))
    names = [*curves, *(() if reference is None else reference[:1])]
    figure.legend(loc="outside lower center", ncols=1 if 2 * max(map(len, names)) > _LONGEST else 2, **LEGEND)
    return figure


def _cut_untrained(
    axes: Axes, curves: Mapping[str, LearningCurve], reference: tuple[str, float] | None
) -> None:
    """Cut the axis and annotate the untrained policy's value if it would compress the other values."""
    values = np.concatenate([curve.mean[curve.iterations > curve.iterations[0]] for curve in curves.values()])
    values = np.append(values, [] if reference is None else reference[1])
    first = next(iter(curves.values()))
    if not values.size:
        return
    low, high, untrained = float(values.min()), float(values.max()), float(first.mean[0])
    room = 0.15 * (high - low)
    if low - 5 * room <= untrained <= high + 5 * room:
        return
    axes.set_ylim(low - room, high + 2 * room)
    above = untrained > high
    # The line enters the axes just before the second point; beside the last point is no place.
    at = first.iterations[1 if len(first.iterations) > 2 else 0]
    point = (float(at), 1.0 if above else 0.0)
    axes.annotate(f"untrained: {untrained:.3g}", point, (6, -14 if above else 8), **{**_ABOVE, "ha": "left"})


def _short(name: str) -> str:
    """Shorten a name for a legend, without mathematics or control characters."""
    return visible(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…").replace("$", r"\$")


def curves_table(curves: Mapping[str, LearningCurve], metric: str) -> Table:
    """Return the table of learning curves; rows are groups of runs, columns are last, lowest and highest value."""
    rows = []
    for name, curve in curves.items():
        form, extremes = _form(curve.mean), (int(np.argmin(curve.mean)), int(np.argmax(curve.mean)))
        last = interval_text(Interval(float(curve.mean[-1]), float(curve.half_width[-1])), form)
        points = (f"{curve.mean[at]:{form}} at {curve.iterations[at]}" for at in extremes)
        rows.append((name, str(curve.runs), last, *points))
    headings = ("Runs", "Number", "Last", "Lowest", "Highest")
    return table_of(f"{metric}: mean over runs that differ only by seed", headings, rows)


def _form(values: Sequence[float] | np.ndarray[Any, Any]) -> str:
    """Return a number format with three or four significant digits for values of this size."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if not 1e-3 <= largest < 1e6:
        return ".3g"
    return f".{min(6, max(1, 3 - math.floor(math.log10(largest))))}f"
