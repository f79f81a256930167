"""What was measured of planners, for people: a table, notes, and how many plans come how close."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.intervals import Interval
from decima.show.shown import Shown
from decima.show.style import finish_axes, legend_beside, new_axes, styles
from decima.show.tables import interval_text, new_table
from decima.studies.packing import BEST, RIVALS, Packing

__all__ = ["packing_notes", "packing_table", "plot_packing", "shown"]


def shown(packing: Packing, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=[packing_table(packing)],
        notes=packing_notes(packing),
        json=packing.to_json(command=command),
        pictures={"packing": partial(plot_packing, packing)},
    )


def packing_table(packing: Packing) -> Table:
    """Deviations in percent, how often there is none, and CPU seconds: a row for each planner."""
    title = f"Percent above the {packing.reference}, {packing.num_instances} DAGs"
    table = new_table(title, "Planner", "Mean", "Median", "Worst", "Met", "CPU (s)")
    summary = packing.summary()
    for planner, row in summary.iterrows():
        table.add_row(
            str(planner),
            interval_text(Interval(row["mean_deviation"], row["ci95"]), ".2f"),
            f"{row['median_deviation']:.2f}",
            f"{row['worst_deviation']:.1f}",
            f"{row['optimal']:.0f}",
            f"{row['cpu_s']:.2f}",
            style="bold" if row["mean_deviation"] == summary["mean_deviation"].min() else None,
        )
    return table


def packing_notes(packing: Packing) -> list[str]:
    """What the table does not say by itself, one sentence per line."""
    met = (
        f"Met: how many plans are as short as the {packing.reference}."
        if packing.reference == BEST
        else "Met: how many plans are as short as the lower bound (critical path, work over capacity), thus optimal."
    )
    saved = ", ".join(f"{interval_text(packing.saved(rival), '.1f')} % than {rival}'s" for rival in RIVALS)
    return [
        "Means with half a 95 % confidence interval (Student's t).",
        met,
        f"Plans of graphene are shorter by {saved} (its paper, on jobs: 25 %; half of them within 4 % of the bound).",
        "random, tetris, critical-path: whatever fits starts, in this order.",
        "graphene: plans ahead (OSDI 2016, section 4); the order of each plan is also carried out greedily.",
        "+justification: plans are also pushed to their end and back, as long as that makes them shorter.",
    ]


def plot_packing(packing: Packing) -> Figure:
    """The share of projects or jobs over what their plans deviate at most, a line for each planner."""
    figure, axes = new_axes(7, 3.5)
    planners = packing.plans.groupby("planner", sort=False)
    worst = packing.plans["deviation"].max()
    looks = styles([str(planner) for planner, _ in planners])
    for planner, plans in planners:
        deviations = np.sort(plans["deviation"])
        share = 100 * np.arange(1, deviations.size + 1) / deviations.size
        places = np.concatenate((deviations[:1], deviations, [worst]))
        axes.step(places, [0, *share, 100], where="post", label=str(planner), **looks[str(planner)])
    xlabel = f"At most so far above the {packing.reference} (%)"
    finish_axes(axes, xlabel=xlabel, ylabel="DAGs (%)", ylim=(0, 102))
    legend_beside(axes)
    return figure
