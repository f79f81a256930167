"""Decima in charge of a real Spark, for people: a table, a line for each batch, and a picture."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.spark.schedulers import LOOKS, SPARKS_OWN
from decima.show.shown import Shown
from decima.show.style import LEGEND, finish_axes, new_figure, styles
from decima.show.tables import interval_text, new_table
from decima.studies.fig9_spark import LiveComparison

__all__ = ["plot_live", "shown"]


def shown(found: LiveComparison, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=[_schedulers(found), _batches(found)],
        notes=_notes(found),
        json=found.to_json(command=command),
        pictures={"fig9-spark": partial(plot_live, found)},
    )


def _what(found: LiveComparison) -> str:
    return "Batch" if found.setting.arrivals == "batch" else "Stream"


def _schedulers(found: LiveComparison) -> Table:
    setting = found.setting
    kind = "batches" if setting.arrivals == "batch" else "streams"
    title = f"{setting.batches} {kind} of {setting.jobs} jobs on Spark, {setting.executors} executors"
    own = [name for name in SPARKS_OWN if name in found.schedulers]
    table = new_table(title, "Scheduler", "Mean JCT", "Predicted", "Error", *(f"vs {name}" for name in own))
    for name in found.schedulers:
        real = found.mean_jct_ms(name)
        changes = ("" if name == other else interval_text(found.change(name, other), "+.1%") for other in own)
        table.add_row(
            name,
            interval_text(type(real)(*(value / 1000 for value in real))),
            f"{found.mean_jct_ms(name, 'predicted_ms').mean / 1000:.1f}",
            f"{found.error(name):+.1%}",
            *changes,
        )
    return table


def _batches(found: LiveComparison) -> Table:
    table = new_table("Mean JCT of each, real and predicted", _what(found), *found.schedulers)
    for batch, rows in found.runs.groupby("batch"):
        by_name = rows.set_index("scheduler")
        cells = (by_name.loc[name, ["real_ms", "predicted_ms"]] / 1000 for name in found.schedulers)
        table.add_row(str(batch), *(f"{real:.1f}  {predicted:.1f}" for real, predicted in cells))
    return table


def _notes(found: LiveComparison) -> list[str]:
    task_ms, stage_ms = found.runs["task_ms"], found.runs["stage_ms"]
    notes = [
        "Times are seconds; ± is half a 95 % confidence interval (Student's t); changes are paired.",
        f"Tasks sleep; beside that a task took {_range(task_ms)}, and a stage {_range(stage_ms)} to begin, measured "
        "before each run with another job and predicted with it.",
    ]
    if found.tuned:
        notes.append(f"weighted fair: {found.tuned}, tuned in the simulator on other jobs.")
    return notes


def _range(values_ms: pd.Series) -> str:
    return f"{values_ms.mean():.0f} ms ({values_ms.min():.0f} to {values_ms.max():.0f})"


def plot_live(found: LiveComparison) -> Figure:
    """Mean JCT under each scheduler, real and predicted; and each batch."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    colours = [LOOKS.get(name, name) for name in found.schedulers]
    looks = {name: styles(colours)[colour] for name, colour in zip(found.schedulers, colours, strict=True)}
    for place, name in enumerate(found.schedulers):
        colour, real = looks[name]["color"], found.mean_jct_ms(name)
        predicted = found.mean_jct_ms(name, "predicted_ms").mean
        left.bar(
            place - 0.2,
            real.mean / 1000,
            0.38,
            yerr=real.half_width / 1000 if found.setting.batches > 1 else None,
            color=colour,
            label="real" if not place else None,
        )
        left.bar(
            place + 0.2,
            predicted / 1000,
            0.38,
            color=colour,
            alpha=0.4,
            label="simulated" if not place else None,
        )
        right.plot(found.column(name, "real_ms") / 1000, marker="o", label=name, **looks[name])
    left.set_xticks(range(len(found.schedulers)), [name.replace(" ", "\n") for name in found.schedulers])
    left.legend(**LEGEND)
    finish_axes(left, ylabel="Average JCT (s)", title="Real and simulated, 95 % interval")
    left.grid(visible=False, axis="x")
    right.set_xticks(range(found.setting.batches))
    right.legend(**LEGEND)
    finish_axes(right, xlabel=_what(found), ylabel="Average JCT (s)", title="Each, real")
    right.set_ylim(bottom=0)
    return figure
