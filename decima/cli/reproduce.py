"""The commands ``decima reproduce NAME``. They parse, show and save; the studies are in the modules beside."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from decima.cli.console import library_errors, make_console, stepping
from decima.cli.reproduce_critical_path import critical_path
from decima.cli.reproduce_grid import GRID_COMMANDS
from decima.cli.reproduce_studies import STUDY_COMMANDS

__all__ = ["reproduce"]


@click.group()
def reproduce() -> None:
    """Make figures of the papers again: Decima's, DeepRM's and those of its successors."""


for _name, _study in (*STUDY_COMMANDS.items(), *GRID_COMMANDS.items()):
    reproduce.add_command(_study, _name)
reproduce.add_command(critical_path, "critical-path")


@reproduce.command(context_settings={"show_default": True})
@click.option(
    "--recordings",
    "folders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Folder that python -m workloads.spark.recorder wrote, or of event logs of single runs; may be "
    "given several times.",
)
@click.option("--executors", type=click.IntRange(min=1), default=2, help="Executors of a query alone.")
@click.option("--seeds", type=click.IntRange(min=1), default=10, help="Draws of the durations.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file too."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("reproduce"), help="Folder for pictures."
)
def fig18(folders: tuple[Path, ...], executors: int, seeds: int, json_file: Path | None, out: Path) -> None:
    """Compare real with simulated runs of queries.

    Runs of TPC-H queries on a real Spark cluster are predicted by the simulator from the durations in other
    runs, and mixtures of applications from runs of each alone. Shows the errors per query and per mixture, and
    what they are without the effects that the simulator models.
    """
    if not folders:
        raise click.UsageError(
            "fig18 needs runs on real Spark: --recordings DIR; python -m workloads.spark.recorder makes them"
        )

    with library_errors():
        _fig18(folders, executors, seeds, json_file, out)


def _fig18(folders: tuple[Path, ...], executors: int, seeds: int, json_file: Path | None, out: Path) -> None:
    from decima.outputs import atomic_path, prepare_outputs
    from decima.studies.fig18 import measure_fidelity
    from decima.studies.fig18_report import fidelity_notes, fidelity_tables, plot_fidelity
    from decima.studies.recordings import load_recordings

    prepare_outputs(out, json_file)
    with stepping("Predicting") as on_step:
        fidelity = measure_fidelity(
            load_recordings(folders),
            executors,
            seeds,
            on_step=on_step,
        )
    if json_file is not None:
        words = [word for folder in folders for word in ("--recordings", str(folder))]
        words += ["--executors", str(executors), "--seeds", str(seeds)]
        command = shlex.join(["decima", "reproduce", "fig18", *words])
        with atomic_path(json_file) as path:
            path.write_text(fidelity.to_json(command=command), encoding="utf-8")
    console = make_console()
    for table in fidelity_tables(fidelity):
        console.print(table)
    for note in fidelity_notes(fidelity):
        click.echo(note)
    with atomic_path(out / "fig18.png") as path:
        plot_fidelity(fidelity).savefig(path)
    click.echo(f"picture in {out / 'fig18.png'}")
