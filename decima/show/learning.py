"""Trainings side by side: learning curves with intervals over seeds, and the results of a sweep."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.intervals import Interval
from decima.outputs import json_text, versions, visible
from decima.show.style import COLOURED, LEGEND, finish_axes, new_axes
from decima.show.tables import interval_text, new_table

if TYPE_CHECKING:
    from decima.learning.curves import Curve
    from decima.learning.sweep import SweepResult

__all__ = ["curves_table", "plot_curves", "setting_text", "sweep_csv", "sweep_json", "sweep_table"]

#: Curves beyond the palette are grey, thin and without a name.
_OTHERS: dict[str, Any] = {"color": "0.8", "linewidth": 0.8, "zorder": 1}
#: More of a name than fits beside a picture.
_LONGEST = 60


def plot_curves(curves: Mapping[str, Curve], metric: str) -> Figure:
    """A metric against iterations: a line for each group of runs, with its interval over seeds.

    Args:
        curves: by name; those first that are to be seen best.
        metric: what is drawn.
    """
    figure, axes = new_axes(7, 4.2)
    for (name, curve), colour in zip(
        curves.items(), [*(each for each, _ in COLOURED), *[None] * len(curves)], strict=False
    ):
        if colour is None:
            axes.plot(curve.iterations, curve.mean, **_OTHERS)
            continue
        marker = "o" if len(curve.iterations) < 30 else None
        label = visible(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…").replace("$", r"\$")
        axes.plot(curve.iterations, curve.mean, color=colour, marker=marker, markersize=3, label=label)
        half = np.nan_to_num(curve.half_width)
        axes.fill_between(
            curve.iterations, curve.mean - half, curve.mean + half, color=colour, alpha=0.15, linewidth=0
        )
    finish_axes(axes, xlabel="Iteration", ylabel=metric)
    figure.legend(
        loc="outside lower center", ncols=1 if 2 * max(map(len, curves)) > _LONGEST else 2, **LEGEND
    )
    return figure


def curves_table(curves: Mapping[str, Curve], metric: str) -> Table:
    """A row for each group of runs: where its curve ends, its lowest and its highest point."""
    table = new_table(
        f"{metric}: mean over runs that differ only by seed", "Runs", "Number", "Last", "Lowest", "Highest"
    )
    for name, curve in curves.items():
        form = _form(curve.mean)
        last = Interval(float(curve.mean[-1]), float(curve.half_width[-1]))
        low, high = int(np.argmin(curve.mean)), int(np.argmax(curve.mean))
        points = (f"{curve.mean[at]:{form}} at {curve.iterations[at]}" for at in (low, high))
        table.add_row(name, str(curve.runs), interval_text(last, form), *points)
    return table


def _form(values: Sequence[float] | np.ndarray[Any, Any]) -> str:
    """Digits that tell numbers of this size apart."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if not 1e-3 <= largest < 1e6:
        return ".3g"
    return f".{min(6, max(1, 3 - math.floor(math.log10(largest))))}f"


def setting_text(value: Any) -> str:
    """The value of a setting, as short as it can be told apart."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value).strip('"')


def sweep_table(result: SweepResult) -> Table:
    """A row for each trial, the best first."""
    keys = list(result.config.vary)
    seeds = len(result.config.all_seeds)
    table = new_table(
        f"{len(result.trials)} of {result.config.num_trials} trials, {seeds} seeds each",
        "Trial",
        *keys,
        "Objective",
        "Better by",
        "CPU, min",
        names=1 + len(keys),
    )
    form = _form([trial.objective.mean for trial in result.trials if not trial.diverged])
    for place, trial in enumerate(result.ranked):
        table.add_row(
            str(trial.number),
            *(setting_text(trial.settings[key]) for key in keys),
            "diverged" if trial.diverged else interval_text(trial.objective, form),
            interval_text(trial.improvement, "+.1%"),
            f"{trial.cpu_s / 60:.1f}",
            style="bold" if place == 0 and not trial.diverged else None,
        )
    return table


def sweep_json(result: SweepResult, command: str) -> str:
    """Everything, as JSON."""
    trials = [
        {
            "number": trial.number,
            "settings": dict(trial.settings),
            "diverged": trial.diverged,
            "objective": trial.objective._asdict(),
            "improvement": trial.improvement._asdict(),
            "cpu_s": trial.cpu_s,
            "seeds": [asdict(each) for each in trial.results],
        }
        for trial in result.trials
    ]
    document = {
        "command": command,
        "versions": versions(),
        "sweep": result.config.model_dump(mode="json"),
        "trials": trials,
    }
    return json_text(document)


def sweep_csv(result: SweepResult) -> str:
    """A row for each training: trial, settings, and what came of it."""
    keys = list(result.config.vary)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", *keys, "seed", "objective", "improvement", "iteration", "cpu_s"])
    for trial in result.trials:
        values = [
            value if isinstance(value, float) else setting_text(value) for value in trial.settings.values()
        ]
        for each in trial.results:
            writer.writerow([trial.number, *values, *asdict(each).values()])
    return text.getvalue()
