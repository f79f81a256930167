"""The command ``decima plot``: trainings side by side."""

from __future__ import annotations

from pathlib import Path

import click

from decima.cli.console import report
from decima.cli.options import FOLDER, out_option

__all__ = ["plot"]


@click.command(context_settings={"show_default": True})
@click.argument("runs", metavar="RUN..", nargs=-1, required=True, type=FOLDER)
@click.option(
    "--metric",
    metavar="NAME",
    help="What is drawn, of what decima train --explain lists.  [default: what the first run was to make small on its "
    "validation set]",
)
@out_option("plot")
def plot(runs: tuple[Path, ...], metric: str | None, out: Path) -> None:
    """Compare trainings by their learning curves.

    Each RUN is the folder of a training, or one that holds such folders, as that of decima sweep does. Runs that
    differ only by their seed are one curve, with a 95 % confidence interval.
    """
    from decima.learning.curves import (
        curve_of,
        find_runs,
        objective_metric,
        read_run,
        reference_of,
        same_but_seed,
    )
    from decima.learning.metrics import RENAMED
    from decima.outputs import make_folder
    from decima.show.learning import curves_table, plot_curves
    from decima.show.shown import Shown

    found = [read_run(folder) for place in runs for folder in find_runs(place)]
    wanted = objective_metric(found[0]) if metric is None else RENAMED.get(metric, metric)
    curves = {name: curve_of(group, wanted) for name, group in same_but_seed(found).items()}
    make_folder(out)
    shown = Shown(
        tables=[curves_table(curves, wanted)],
        notes=["± is half a 95 % confidence interval over seeds (Student's t)."],
        json="",
        pictures={wanted: lambda: plot_curves(curves, wanted, reference_of(found, wanted))},
    )
    report(shown, out, None)
