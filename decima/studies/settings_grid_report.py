"""Where a policy can be trusted, for people and for programs: a table, what follows from it, JSON, a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.tuning import HINDSIGHT
from decima.outputs import json_text
from decima.show.shown import Shown
from decima.show.style import BLACK, BLUE, GREY, RED, new_axes
from decima.show.tables import interval_text, new_table
from decima.studies.settings_grid import REFERENCES, SCHEDULERS, MeasuredCell, SettingsGrid
from decima.studies.study_report import FULL, UNKNOWN, machine

__all__ = ["grid_json", "grid_notes", "grid_table", "plot_grid", "shown"]

COLUMNS = (*SCHEDULERS, FULL)
#: Blue is shorter and orange is longer, which eyes that see no red or no green tell apart, too; white is no change.
COLOURS = LinearSegmentedColormap.from_list("change", (BLUE, "white", RED))
#: Changes above this have the same colour.
STRONGEST = 0.3


def shown(grid: SettingsGrid, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=[grid_table(grid)],
        notes=grid_notes(grid),
        json=grid_json(grid, command=command),
        pictures={"grid": partial(plot_grid, grid)},
    )


def grid_table(grid: SettingsGrid) -> Table:
    """Average JCT of each scheduler, s, and how the policy does against the best reference: a row for each cell."""
    count = grid.cells[0].comparison.conditions.num_experiments
    title = f"Average JCT, {count} sequences in each cell"
    table = new_table(title, "Cell", *COLUMNS, "vs best", "Not worse")
    for row, each in enumerate(grid.cells):
        if row and grid.cells[row - 1].cell.source != each.cell.source:
            table.add_section()
        jct_s = [f"{each.jct_s(name).mean():.1f}" for name in _taking_part(each)]
        if each.policy is None:
            table.add_row(each.cell.name, *jct_s, UNKNOWN, UNKNOWN, "no policy")
        else:
            change = interval_text(each.change(), "+.1%")
            table.add_row(each.cell.name, *jct_s, change, _yes(each.not_worse))
    return table


def grid_notes(grid: SettingsGrid) -> list[str]:
    """What follows, and what the table does not say by itself; one sentence per line."""
    policies: dict[str, list[str]] = {}
    for each in grid.cells:
        policies.setdefault(each.policy or "", []).append(each.cell.name)
    none = policies.pop("", [])
    return [
        *_verdicts(grid),
        "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
        f"vs best: decima's average JCT against that of {', '.join(REFERENCES)}, whichever is lowest in the cell; "
        "paired by sequence.",
        "Not worse: by more than the interval, which few sequences make wide (--seeds).",
        f"{HINDSIGHT} knows the best alpha of each sequence.",
        *(f"decima follows {policy} in {_listed(names, grid)}." for policy, names in policies.items()),
        *([f"No policy for {_listed(none, grid)}: --checkpoint FILE gives one."] if none else []),
        *grid.left_out,
    ]


def _listed(names: Sequence[str], grid: SettingsGrid) -> str:
    return "all cells" if len(names) == len(grid.cells) else ", ".join(names)


def _verdicts(grid: SettingsGrid) -> list[str]:
    """The answers to the two questions, as sentences."""
    worst = grid.worst
    if worst is None:
        return ["There is no policy for any cell, so nothing can be said of decima."]
    every = "In every cell" if grid.judged == grid.cells else "In every cell with a policy"
    change, average = interval_text(worst.change(), "+.1%"), interval_text(grid.average, "+.1%")
    return [
        f"{every} decima is not worse than the best of the rules and tuned weighted fair by more than its interval: "
        f"{_yes(worst.not_worse)} (worst cell: {worst.cell.name}, {change}).",
        f"On average over the cells it is better: {_yes(_better(grid))} ({average}).",
    ]


def _better(grid: SettingsGrid) -> bool:
    """Whether the policy is better on average over the cells, and not by chance."""
    return grid.average.mean + grid.average.half_width < 0


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _taking_part(each: MeasuredCell) -> tuple[str, ...]:
    return SCHEDULERS if each.policy is None else COLUMNS


def grid_json(grid: SettingsGrid, **provenance: Any) -> str:
    """Everything as JSON text, seconds; null where there is no policy.

    Args:
        grid: all cells.
        provenance: further entries, such as the command.
    """
    worst, average = grid.worst, grid.average
    content = {
        "study": "grid",
        **provenance,
        "machine": machine(),
        "seeds": list(grid.cells[0].comparison.conditions.seeds),
        "references": list(REFERENCES),
        "cells": [_entry(each) for each in grid.cells],
        "in_every_cell_not_worse": None
        if worst is None
        else {
            "holds": worst.not_worse,
            "worst_cell": worst.cell.name,
            "change": worst.change().mean,
            "change_ci95": worst.change().half_width,
        },
        "on_average_better": None
        if worst is None
        else {"holds": _better(grid), "change": average.mean, "change_ci95": average.half_width},
        "left_out": list(grid.left_out),
    }
    return json_text(content)


def _entry(each: MeasuredCell) -> dict[str, Any]:
    cell, names = each.cell, _taking_part(each)
    jct_s = {name: each.jct_s(name).tolist() for name in names}
    changes = {name: each.change(name) for name in names}
    missing = {} if FULL in names else {FULL: None}
    return {
        "name": cell.name,
        "settings": {
            "workload": each.comparison.conditions.workload.name,
            "source": cell.source,
            "jobs": cell.num_jobs,
            "arrivals": each.comparison.conditions.arrivals,
            "interval_s": cell.interval_s,
            "executors": cell.num_executors,
            "moving_delay_s": cell.moving_delay_s,
        },
        "policy": each.policy,
        "mean_jct_s": {name: float(np.mean(values)) for name, values in jct_s.items()} | missing,
        "best_reference": each.best,
        "change": {name: change.mean for name, change in changes.items()} | missing,
        "change_ci95": {name: change.half_width for name, change in changes.items()} | missing,
        "not_worse": each.not_worse if FULL in names else None,
        "per_seed_mean_jct_s": jct_s,
        "per_seed_setting": {HINDSIGHT: each.comparison.runs(HINDSIGHT)["setting"].tolist()},
    }


def plot_grid(grid: SettingsGrid) -> Figure:
    """A heat map, cells from above to below and a column for each scheduler: the change against the best reference.

    The numbers are percent, 0 for the reference itself; those of a policy that is worse by more than its interval are
    bold. Changes of more than ``STRONGEST`` have the same colour. Grey: no policy.
    """
    changes = np.full((len(grid.cells), len(COLUMNS)), math.nan)
    for row, each in enumerate(grid.cells):
        for column, name in enumerate(_taking_part(each)):
            changes[row, column] = each.change(name).mean
    figure, axes = new_axes(8, 0.27 * len(grid.cells) + 1.4)
    axes.set_facecolor(GREY)
    image = axes.imshow(
        100 * changes, cmap=COLOURS, vmin=-100 * STRONGEST, vmax=100 * STRONGEST, aspect="auto"
    )
    for (row, column), change in np.ndenumerate(changes):
        worse = (
            COLUMNS[column] == FULL and grid.cells[row].policy is not None and not grid.cells[row].not_worse
        )
        axes.text(
            column,
            row,
            UNKNOWN if math.isnan(change) else f"{100 * change:+.1f}" if change else "0",
            ha="center",
            va="center",
            fontsize="small",
            fontweight="bold" if worse else "normal",
            color="white" if change < -0.8 * STRONGEST else BLACK,
        )
    for row, (above, below) in enumerate(pairwise(grid.cells)):
        if above.cell.source != below.cell.source:
            axes.axhline(row + 0.5, color=BLACK, linewidth=0.8)
    axes.set_xticks(range(len(COLUMNS)), COLUMNS, fontsize="small")
    axes.set_yticks(range(len(grid.cells)), [each.cell.name for each in grid.cells])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(
        image,
        ax=axes,
        orientation="horizontal",
        extend="both",
        shrink=0.7,
        aspect=40,
        label=f"Average JCT (%) against\n{' or '.join(REFERENCES)}, whichever is lower",
    )
    return figure
