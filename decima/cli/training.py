"""What the commands that train have in common: their options, how far they are, all settings."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import make_console

if TYPE_CHECKING:
    from decima.learning.loop import IterationReport
    from decima.settings import Section

__all__ = ["command_line", "explain", "progress", "quoted", "settings_source", "training_options"]

#: Without a terminal, there is a line at least this often, s.
QUIET_S = 60.0


def training_options(
    recipes: str, default: str, show: Callable[[], None]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options ``--config``, ``--set``, ``--out``, ``--resume`` and ``--explain``.

    Args:
        recipes: their names, for people.
        default: the recipe that is taken if none is named.
        show: prints all settings and metrics.
    """

    def explain_and_exit(context: click.Context, option: click.Parameter, wanted: bool) -> None:
        if wanted:
            show()
            context.exit()

    options = (
        click.option(
            "--config",
            metavar="FILE.yaml|RECIPE",
            help=f"Settings of the training: a file, or a recipe ({recipes}).  [default: {default}]",
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Another value for a setting, such as cluster.executors=10; may be given several times.",
        ),
        click.option(
            "--out",
            required=True,
            type=click.Path(path_type=Path),
            help="Folder for policy, checkpoint, metrics.",
        ),
        click.option(
            "--resume", is_flag=True, help="Go on with the run in that folder, by default with its settings."
        ),
        click.option(
            "--explain",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=explain_and_exit,
            help="Show all settings and all metrics, and end.",
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def explain(model: type[Section], metrics: Mapping[str, str]) -> None:
    """Show all settings and metrics."""
    from rich.table import Table

    from decima.settings import describe_settings

    console = make_console()
    tables = (
        (("setting", "default", "meaning"), describe_settings(model)),
        (("metric", "meaning"), list(metrics.items())),
    )
    for headings, rows in tables:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in headings:
            table.add_column(heading, no_wrap=heading != "meaning")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print()


def settings_source(config: str | None, out: Path, resume: bool, default: str) -> str | Path:
    """Where settings come from: what was named, the folder of a run to go on with, or the default recipe.

    Raises:
        TrainingError: there is no run to go on with.
    """
    from decima.learning.loop import CONFIG
    from decima.settings import TrainingError

    if resume and config is None:
        if not (out / CONFIG).exists():
            raise TrainingError(f"{out}: holds no training run to go on with")
        return out / CONFIG
    return config or default


def quoted(path: Path) -> str:
    """A path as a YAML text, whatever characters it has."""
    import json

    return json.dumps(str(path))


def command_line(
    command: Sequence[str], config: str, overrides: Sequence[str], paths: Mapping[str, Path | None]
) -> str:
    """The command that makes the same policy, as a shell reads it.

    Args:
        command: its first words.
        config: what ``--config`` says.
        overrides: what each ``--set`` says.
        paths: other options, by name.
    """
    words = [*command, "--config", config]
    for override in overrides:
        words += ["--set", override]
    for name, path in paths.items():
        if path is not None:
            words += [f"--{name}", str(path)]
    return shlex.join([*words, "--out", "DIR"])


@contextmanager
def progress(
    iterations: int, against: str, describe: Callable[[Mapping[str, float]], Sequence[str]]
) -> Iterator[tuple[Callable[[IterationReport], None], Callable[[str], None]]]:
    """Two functions that show how far it is: a bar on a terminal, a line now and then elsewhere.

    Args:
        iterations: how many there will be.
        against: whom the policy is compared with.
        describe: an iteration's metrics, in words.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(against, describe), lambda words: click.echo(words, err=True)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=iterations, told="")

        def on_iteration(report: IterationReport) -> None:
            told = f"best: {_versus(report.improvement, against)}"
            bars.update(bar, completed=report.iteration, told=told)

        yield on_iteration, lambda words: bars.update(bar, description=words)


class _Lines:
    """Tells of an iteration in a line, if it was validated or the last line was long ago."""

    def __init__(self, against: str, describe: Callable[[Mapping[str, float]], Sequence[str]]) -> None:
        self.against = against
        self.describe = describe
        self.last = -math.inf

    def __call__(self, report: IterationReport) -> None:
        metrics = report.metrics
        if "improvement" not in metrics and time.monotonic() - self.last < QUIET_S:
            return
        self.last = time.monotonic()
        parts = [f"{report.iteration}/{report.iterations}", *self.describe(metrics)]
        if "improvement" in metrics:
            parts[-1] += f", {_versus(metrics['improvement'], self.against)}"
        parts.append(f"best: {_versus(report.improvement, self.against)}")
        click.echo("; ".join(parts), err=True)
        sys.stderr.flush()


def _versus(improvement: float, against: str) -> str:
    return f"{abs(improvement):.1%} {'better' if improvement >= 0 else 'worse'} than {against}"
