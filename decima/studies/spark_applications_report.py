"""Several applications on a real Spark, for people: a table, a line for each batch, and a picture."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure
from rich.table import Table

from decima.show.shown import Shown
from decima.show.style import LEGEND, finish_axes, new_axes, styles
from decima.show.tables import interval_text, new_table
from decima.studies.spark_applications import FIFO, SHARES, WAYS, ApplicationsComparison

__all__ = ["plot_applications", "shown"]

#: Shown name -> the scheduler whose colour it has, where that is another.
LOOKS = {FIFO: "fifo", SHARES: "fair"}


def shown(found: ApplicationsComparison, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=[_schedulers(found), _batches(found)],
        notes=[
            "Times are seconds from submission to the end of the application, starts of its executors included.",
            "± is half a 95 % confidence interval (Student's t); changes are paired by batches.",
            f"{SHARES}: spark.cores.max is {max(1, found.setting.executors // found.setting.jobs)} for each.",
        ],
        json=found.to_json(command=command),
        pictures={"spark-applications": partial(plot_applications, found)},
    )


def _schedulers(found: ApplicationsComparison) -> Table:
    setting = found.setting
    title = f"{setting.batches} batches of {setting.jobs} applications on Spark, {setting.executors} slots"
    table = new_table(title, "Scheduler", "Mean completion time", *(f"vs {name}" for name in (FIFO, SHARES)))
    for name in WAYS:
        seconds = (value / 1000 for value in found.mean_jct_ms(name))
        changes = (
            "" if name == other else interval_text(found.change(name, other), "+.1%")
            for other in (FIFO, SHARES)
        )
        table.add_row(name, interval_text(type(found.mean_jct_ms(name))(*seconds)), *changes)
    return table


def _batches(found: ApplicationsComparison) -> Table:
    table = new_table("Mean completion time of each", "Batch", *WAYS)
    for batch in range(found.setting.batches):
        table.add_row(str(batch), *(f"{found.column(name)[batch] / 1000:.1f}" for name in WAYS))
    return table


def plot_applications(found: ApplicationsComparison) -> Figure:
    """Mean completion time of each batch."""
    figure, axes = new_axes(6, 4)
    colours = [LOOKS.get(name, name) for name in WAYS]
    for name, colour in zip(WAYS, colours, strict=True):
        axes.plot(found.column(name) / 1000, marker="o", label=name, **styles(colours)[colour])
    axes.set_xticks(range(found.setting.batches))
    axes.legend(**LEGEND)
    finish_axes(
        axes,
        xlabel="Batch",
        ylabel="Average completion time (s)",
        title=f"{found.setting.jobs} applications on {found.setting.executors} slots of a real Spark",
    )
    axes.set_ylim(bottom=0)
    return figure
