"""Results of schedulers on grids: tables, notes, and matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from rich.table import Table
from rich.text import Text

from decima.evaluation.grid import LEARNED, TUNED, Evaluation, GridComparison, GridSettings, best_of
from decima.evaluation.metrics import Interval
from decima.learning.grid.config import DeepRMConfig
from decima.policy.grid import read_about
from decima.settings import parse_settings
from decima.show.style import draw_band, draw_bars, finish_axes, legend_beside, new_axes, new_figure, styles
from decima.show.tables import interval_text, table_of

#: Measure -> name in tables and pictures.
HEADINGS = {
    "slowdown": "Slowdown",
    "completion": "Completion time (steps)",
    "waiting": "Waiting time (steps)",
    "makespan": "Makespan (steps)",
    "utilisation": "Utilisation",
}
_JOBS = {
    "code": "DeepRM's jobs as its code draws them",
    "paper": "DeepRM's jobs as its paper says",
    "coarse": "DeepRM's jobs on 10 units, nearly as its paper says",
}


def table_by_row(
    title: str, corner: str, rows: Mapping[str, Mapping[str, Evaluation]], measure: str
) -> Table:
    """Return a table of one measure; rows are settings, columns are schedulers, the best of a row is bold."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    best = {condition: best_of(row, measure) for condition, row in rows.items()}
    cells = (
        (
            condition,
            *(
                measure_text(row[name].interval(measure), bold=name == best[condition]) if name in row else ""
                for name in names
            ),
        )
        for condition, row in rows.items()
    )
    return table_of(title, (corner, *names), cells)


def measure_text(interval: Interval, bold: bool = False) -> Text:
    """Format a mean with half of its confidence interval: two decimals, or one if the mean is at least 100."""
    text = interval_text(interval, ".1f" if abs(interval.mean) >= 100 else ".2f")
    return Text(text, style="bold" if bold else "")


def load_name(load: float) -> str:
    """Format a load in percent."""
    return f"{100 * load:.4g} %"


def comparison_table(comparison: GridComparison, measure: str) -> Table:
    """Return the table of a comparison, one row per load."""
    settings = comparison.settings
    highest = {load: " (highest)" * _is_highest(settings, load) for load in comparison.results}
    rows = {f"{load_name(load)}{highest[load]}": results for load, results in comparison.results.items()}
    return table_by_row(f"{HEADINGS[measure]}: {_title(settings)}", "Load", rows, measure)


def comparison_notes(comparison: GridComparison, measure: str) -> Sequence[str]:
    """Return notes on the table, one sentence each."""
    settings = comparison.settings
    over = "sets" if measure in ("makespan", "utilisation") else "jobs of all sets"
    notes = [f"Means over the {over}; ± is half a 95 % confidence interval, from the sets (Student's t)."]
    if settings.log is not None:
        notes.insert(0, settings.log.summary())
    elif any(_is_highest(settings, load) for load in settings.loads):
        notes.append("highest: a job in every step; these jobs can give no more.")
    if comparison.knobs:
        knobs = comparison.knobs.values()
        notes.append(
            f"{TUNED}: knob {min(knobs):g} to {max(knobs):g}, of each load the one of least slowdown on "
            f"{settings.sets} training sets."
        )
    if settings.network is not None:
        notes.append(f"{LEARNED}: the network {settings.network_name}, trained on {_trained_on(settings)}.")
    cut = {
        name
        for results in comparison.results.values()
        for name, evaluation in results.items()
        if evaluation.record.unfinished.any()
    }
    if cut:
        notes.append(
            f"Not all jobs were finished by {', '.join(sorted(cut))}; they count as if they ended then."
        )
    return notes


def _title(settings: GridSettings) -> str:
    jobs = f"jobs of {settings.log.name}" if settings.log is not None else _JOBS[settings.distribution]
    machines = "" if settings.machines == 1 else f", {settings.machines} machines"
    return f"{jobs}{machines}, {settings.sets} unseen sets of {settings.steps} steps"


def _is_highest(settings: GridSettings, load: float) -> bool:
    return settings.log is None and settings.rate(load) == 1


def _trained_on(settings: GridSettings) -> str:
    assert settings.network is not None
    about = read_about(settings.network)
    jobs = parse_settings(DeepRMConfig, about.get("config", {}), f"{settings.network}: about: config").jobs
    source = _JOBS[jobs.distribution] if jobs.log is None else f"jobs of {jobs.log.name}"
    loads = jobs.loads(settings.trained.grid.build())
    low, high = load_name(min(loads)), load_name(max(loads))
    return f"{source}, load {low}" + ("" if low == high else f" to {high}")


#: Ticks of slowdowns, on a logarithmic axis: on a linear axis, one bad heuristic would compress others.
_TICKS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)


def plot_by_load(results: Mapping[float, Mapping[str, Evaluation]], measure: str) -> Figure:
    """Plot a measure against the load, a fraction, one line per scheduler, as in DeepRM's Figure 4."""
    figure, axes = new_axes(7, 4)
    for name, look in styles(dict.fromkeys(name for row in results.values() for name in row)).items():
        loads = sorted(load for load, row in results.items() if name in row)
        points = np.array([results[load][name].interval(measure) for load in loads])
        mean, half = points.T
        look |= {"label": name, "marker": "o", "markersize": 4}
        draw_band(axes, 100 * np.array(loads), mean, mean - half, mean + half, **look)
    finish_axes(axes, xlabel="Load (%)", ylabel=HEADINGS[measure], xlim=(0, None))
    if measure == "slowdown":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator(_TICKS))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_ylim(bottom=1 if measure == "slowdown" else 0)
    legend_beside(axes)
    return figure


def plot_bars(results: Mapping[str, Mapping[str, Evaluation]], measures: Sequence[str]) -> Figure:
    """Plot means with confidence intervals: one panel per measure, one group of bars per setting."""
    bars = sum(len(row) + 1 for row in results.values())
    figure = new_figure(len(measures) * min(max(2.2, 0.25 * bars + 0.8), 5.0) + 2, 3.6)
    panels = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        groups = {
            condition: {name: evaluation.interval(measure) for name, evaluation in row.items()}
            for condition, row in results.items()
        }
        draw_bars(axes, groups, HEADINGS[measure])
    legend_beside(panels[-1])
    return figure
