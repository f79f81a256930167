"""Results of schedulers on grids: tables, notes, and matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from rich.table import Table
from rich.text import Text

from decima.evaluation.grid import (
    LEARNED,
    TUNED,
    GridComparison,
    load_name,
    network_name,
)
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.evaluation.metrics import Interval, ShownMetric
from decima.policy.grid_config import GridJobs, read_trained_on
from decima.show.style import draw_band, draw_bars, finish_axes, legend_beside, new_axes, new_figure, styles
from decima.show.tables import interval_text, table_of

#: Scheduler -> metric -> its mean.
Compared = Mapping[str, Mapping[str, ShownMetric]]
_JOBS = {
    "code": "DeepRM's jobs as its code draws them",
    "paper": "DeepRM's jobs as its paper says",
    "coarse": "DeepRM's jobs on 10 units, nearly as its paper says",
}


def best_scheduler(row: Compared, metric: str) -> str | None:
    """Return the scheduler with the best mean of a metric; the first one on a tie."""
    return GRID_METRICS[metric].best({name: metrics[metric].mean.mean for name, metrics in row.items()})


def mean_text(interval: Interval, bold: bool = False) -> Text:
    """Format a mean with half of its confidence interval: two decimals, or one if the mean is at least 100."""
    text = interval_text(interval, ".1f" if abs(interval.mean) >= 100 else ".2f")
    return Text(text, style="bold" if bold else "")


def comparison_table(comparison: GridComparison, metric: str) -> Table:
    """Return a metric at several loads: rows are loads, columns are schedulers, the best of a row is bold."""
    jobs = next(iter(comparison.conditions.values()))
    title = f"{GRID_METRICS[metric].heading}: {_source(jobs)}"
    title += "" if comparison.grid.machines == 1 else f", {comparison.grid.machines} machines"
    title += f", {comparison.sets} unseen sets of {jobs.steps} steps"
    rows = []
    for condition, row in comparison.compared.items():
        best = best_scheduler(row, metric)
        means = (mean_text(row[name][metric].mean, bold=name == best) for name in comparison.schedulers)
        rows.append((condition + " (highest)" * _is_highest(comparison, condition), *means))
    return table_of(title, ("Load", *comparison.schedulers), rows)


def comparison_notes(comparison: GridComparison, metric: str) -> Sequence[str]:
    """Return notes on the table, one sentence each."""
    over = "jobs of all sets" if GRID_METRICS[metric].per_job else "sets"
    notes = [f"Means over the {over}; ± is half a 95 % confidence interval, from the sets (Student's t)."]
    jobs = next(iter(comparison.conditions.values()))
    if jobs.log is not None:
        notes.insert(0, jobs.swf_log.summary())
    elif any(_is_highest(comparison, condition) for condition in comparison.conditions):
        notes.append("highest: a job in every step; these jobs can give no more.")
    if comparison.knobs:
        knobs = comparison.knobs.values()
        notes.append(
            f"{TUNED}: knob {min(knobs):g} to {max(knobs):g}, of each load the one of least slowdown on "
            f"{comparison.sets} training sets."
        )
    if (file := comparison.networks.get(LEARNED)) is not None:
        notes.append(f"{LEARNED}: the network {network_name(file)}, trained on {_trained_on(file)}.")
    runs = comparison.runs
    if cut := set(runs["scheduler"][runs["unfinished"] > 0]):
        notes.append(
            f"Not all jobs were finished by {', '.join(sorted(cut))}; they count as if they ended then."
        )
    return notes


def _source(jobs: GridJobs) -> str:
    return _JOBS[jobs.distribution] if jobs.log is None else f"jobs of {jobs.log.name}"


def _is_highest(comparison: GridComparison, condition: str) -> bool:
    jobs = comparison.conditions[condition]
    if jobs.log is not None:
        return False
    [load] = jobs.loads(comparison.grid)
    return jobs.distribution_on(comparison.grid).rate(load) == 1


def _trained_on(file: Path) -> str:
    jobs, grid = read_trained_on(file)
    loads = jobs.loads(grid)
    low, high = load_name(min(loads)), load_name(max(loads))
    return f"{_source(jobs)}, load {low}" + ("" if low == high else f" to {high}")


#: Ticks of slowdowns, on a logarithmic axis: on a linear axis, one bad heuristic would compress others.
_TICKS = (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)


def plot_by_load(results: Mapping[float, Compared], metric: str) -> Figure:
    """Plot a metric against the load, a fraction, one line per scheduler, as in DeepRM's Figure 4."""
    figure, axes = new_axes(7, 4)
    for name, look in styles(dict.fromkeys(name for row in results.values() for name in row)).items():
        loads = sorted(load for load, row in results.items() if name in row)
        points = np.array([results[load][name][metric].mean for load in loads])
        mean, half = points.T
        look |= {"label": name, "marker": "o", "markersize": 4}
        draw_band(axes, 100 * np.array(loads), mean, mean - half, mean + half, **look)
    finish_axes(axes, xlabel="Load (%)", ylabel=GRID_METRICS[metric].heading, xlim=(0, None))
    if metric == "slowdown":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator(_TICKS))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_ylim(bottom=1 if metric == "slowdown" else 0)
    legend_beside(axes)
    return figure


def plot_bars(results: Mapping[str, Compared], metrics: Sequence[str]) -> Figure:
    """Plot means with confidence intervals: one panel per metric, one group of bars per condition."""
    bars = sum(len(row) + 1 for row in results.values())
    figure = new_figure(len(metrics) * min(max(2.2, 0.25 * bars + 0.8), 5.0) + 2, 3.6)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        groups = {
            condition: {name: metrics[metric].mean for name, metrics in row.items()}
            for condition, row in results.items()
        }
        draw_bars(axes, groups, GRID_METRICS[metric].heading)
    legend_beside(panels[-1])
    return figure
