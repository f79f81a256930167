"""The command ``decima reproduce critical-path``. It parses, shows and saves; the study is in the module beside."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from decima.cli.console import library_errors, make_console, stepping

__all__ = ["critical_path"]


@click.command(context_settings={"show_default": True})
@click.option(
    "--seeds", type=click.IntRange(min=1), default=5, help="Networks of each kind that are trained."
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Length of training; 1 is full length, 0.01 shows within seconds that all works.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file too."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("reproduce"), help="Folder for pictures."
)
def critical_path(seeds: int, budget: float, json_file: Path | None, out: Path) -> None:
    """Show which graph neural networks find critical paths.

    The graph neural network learns from examples to find the stage with the longest critical path, with and
    without a non-linearity behind the sum over a stage's children (Decima, section 5.1 and appendix E).
    """
    with library_errors():
        _critical_path(seeds, budget, json_file, out)


def _critical_path(seeds: int, budget: float, json_file: Path | None, out: Path) -> None:
    from decima.outputs import atomic_path, prepare_outputs
    from decima.studies.critical_path import ITERATIONS, measure_expressiveness
    from decima.studies.critical_path_report import (
        expressiveness_notes,
        expressiveness_table,
        plot_expressiveness,
    )

    prepare_outputs(out, json_file)
    with stepping("Training") as on_step:
        expressiveness = measure_expressiveness(
            range(seeds),
            max(1, round(budget * ITERATIONS)),
            on_step=on_step,
        )
    if json_file is not None:
        words = ["--seeds", str(seeds), "--budget", f"{budget:g}"]
        command = shlex.join(["decima", "reproduce", "critical-path", *words])
        with atomic_path(json_file) as path:
            path.write_text(expressiveness.to_json(command=command), encoding="utf-8")
    make_console().print(expressiveness_table(expressiveness))
    for note in expressiveness_notes(expressiveness):
        click.echo(note)
    with atomic_path(out / "critical-path.png") as path:
        plot_expressiveness(expressiveness).savefig(path)
    click.echo(f"picture in {out / 'critical-path.png'}")
