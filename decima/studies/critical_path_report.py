"""What was measured of the search for critical paths, for people: a table, notes, and the curves of the appendix."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure
from rich.table import Table

from decima.show.shown import Shown
from decima.show.style import BLUE, GREY, LEGEND, RED, new_axes
from decima.show.tables import new_table
from decima.studies.critical_path import LEARN_STAGES, TEST_STAGES, Expressiveness

__all__ = ["expressiveness_notes", "expressiveness_table", "plot_expressiveness", "shown"]

_COLOURS = {"two-level": BLUE, "single-level": RED}
_LABELS = {"two-level": "two-level: g of the sum", "single-level": "single-level: the sum"}


def shown(expressiveness: Expressiveness, command: str) -> Shown:
    """All of it for people and programs; ``command`` is the one that gives it again."""
    return Shown(
        tables=[expressiveness_table(expressiveness)],
        notes=expressiveness_notes(expressiveness),
        json=expressiveness.to_json(command=command),
        pictures={"critical-path": partial(plot_expressiveness, expressiveness)},
    )


def expressiveness_table(expressiveness: Expressiveness) -> Table:
    """Accuracies in percent after the last iteration."""
    final = expressiveness.final()
    title = f"Critical paths in DAGs of {_range(TEST_STAGES)} stages, {len(final.columns)} seeds"
    table = new_table(title, "Aggregation", "Mean", "Lowest", "Highest")
    for network, accuracies in final.iterrows():
        figures = (accuracies.mean(), accuracies.min(), accuracies.max())
        table.add_row(_LABELS[str(network)], *(f"{figure:.1%}" for figure in figures))
    table.add_row("chance", f"{expressiveness.chance:.1%}", "", "")
    return table


def expressiveness_notes(expressiveness: Expressiveness) -> list[str]:
    """What the table does not say by itself, one sentence per line."""
    iterations = expressiveness.curves["iteration"].max()
    return [
        "Accuracy: in how many DAGs, of the stages whose parents are complete, the one is chosen that has the "
        "longest critical path.",
        f"Learned in {iterations} iterations from smaller DAGs ({_range(LEARN_STAGES)} stages); none of those "
        "tested on was seen.",
        "The paper's network with two levels is nearly perfect, with one it is not (appendix E).",
    ]


def plot_expressiveness(expressiveness: Expressiveness) -> Figure:
    """Accuracy on unseen DAGs over the iterations: the mean over the seeds, and between the lowest and the highest."""
    figure, axes = new_axes(6, 3.5)
    for network, curves in expressiveness.curves.groupby("network", sort=False):
        points = 100 * curves.groupby("iteration")["accuracy"].agg(["mean", "min", "max"])
        name = str(network)
        axes.plot(points.index, points["mean"], label=_LABELS[name], color=_COLOURS[name])
        axes.fill_between(
            points.index, points["min"], points["max"], color=_COLOURS[name], alpha=0.2, linewidth=0
        )
    axes.axhline(100 * expressiveness.chance, color=GREY, linestyle="dotted", label="chance")
    axes.set(xlabel="Iteration", ylabel="Accuracy on larger, unseen DAGs (%)", ylim=(0, 100))
    axes.margins(x=0)
    axes.legend(loc="lower right", **LEGEND)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _range(stages: tuple[int, int]) -> str:
    return f"{stages[0]} to {stages[1]}"
