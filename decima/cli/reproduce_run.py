"""What the commands of all studies share: options, how far it is, what is saved and shown in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import INTERRUPTED, command_line, end, library_errors, make_console

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from decima.studies.trainings import Tell

__all__ = [
    "BUDGET",
    "JSON",
    "OUT",
    "POLICIES",
    "SEED",
    "Shown",
    "policies_folder",
    "run_study",
    "study_command",
]

#: Options that change what is shown, how fast, or where policies are kept, never the results.
PRESENTATION = ("processes", "policies", "json_file", "out")
#: Without a terminal, there is a line at least this often, s.
QUIET_S = 60.0

BUDGET = click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Size of training and comparison; 1 is full size, 0.01 shows within minutes that all works.",
)
SEED = click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the first experiment.")
POLICIES = click.option(
    "--policies",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of trained policies; what is there is not trained again, what was cut off goes on.  "
    "[default: policies-BUDGET in the folder for pictures]",
)
JSON = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file too."
)
OUT = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("reproduce"), help="Folder for pictures."
)


@dataclass(frozen=True, eq=False)
class Shown:
    """What a study found, for people and for programs.

    Attributes:
        tables: as rich tables.
        notes: one sentence each.
        json: everything, as a text.
        pictures: name of the file -> what draws it.
    """

    tables: Sequence[Table]
    notes: Sequence[str]
    json: str
    pictures: Mapping[str, Callable[[], Figure]]


def study_command(*options: Callable[[Any], Any]) -> Callable[[Callable[..., None]], click.Command]:
    """A command with these options, whose function is given its context too."""

    def decorate(function: Callable[..., None]) -> click.Command:
        wrapped = click.pass_context(function)
        for option in reversed(options):
            wrapped = option(wrapped)
        return click.command(context_settings={"show_default": True})(wrapped)

    return decorate


def policies_folder(options: Mapping[str, Any]) -> Path:
    """Where policies are kept."""
    folder: Path = options["policies"] or options["out"] / f"policies-{options['budget']:g}"
    return folder


def run_study(
    context: click.Context, options: Mapping[str, Any], study: Callable[[str, Tell], Shown]
) -> None:
    """Run a study, then save and show what it found.

    Args:
        context: of the command.
        options: those of this module, and others.
        study: is given the command line, and whom to tell how far it is.
    """
    from decima.outputs import atomic_path, prepare_outputs

    out: Path = options["out"]
    try:
        with library_errors(), _telling() as tell:
            prepare_outputs(out, options["json_file"])
            shown = study(command_line(context, PRESENTATION), tell)
    except KeyboardInterrupt:
        end("interrupted; the same command goes on with the training", INTERRUPTED)
    with library_errors():
        if options["json_file"] is not None:
            with atomic_path(options["json_file"]) as path:
                path.write_text(shown.json, encoding="utf-8")
        console = make_console()
        for table in shown.tables:
            console.print(table)
        for note in shown.notes:
            click.echo(note)
        for name, plot in shown.pictures.items():
            with atomic_path(out / f"{name}.png") as path:
                plot().savefig(path)
    files = ", ".join(str(out / f"{name}.png") for name in shown.pictures)
    click.echo(f"{'picture' if len(shown.pictures) == 1 else 'pictures'}: {files}")


@contextmanager
def _telling() -> Iterator[Tell]:
    """A function that shows how far it is: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("")
        now = ""

        def tell(what: str, done: int, total: int) -> None:
            nonlocal now
            if what != now:
                now = what
                progress.reset(bar)
            progress.update(bar, description=what, completed=done, total=total)

        yield tell


class _Lines:
    """Tells what begins, and how far it is if the last line was long ago."""

    def __init__(self) -> None:
        self.what, self.last = "", 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self.what or time.monotonic() - self.last >= QUIET_S:
            self.what, self.last = what, time.monotonic()
            click.echo(f"{what}: {done} of {total}", err=True)
