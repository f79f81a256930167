"""How commands speak: every error in one line with a status that is not 0, tables that are not cut."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import Console

    from workloads import Workload

__all__ = [
    "INTERRUPTED",
    "OneLineErrors",
    "chosen_workload",
    "command_line",
    "end",
    "library_errors",
    "make_console",
    "stepping",
]

#: Exit status of a command that was interrupted: 128 + SIGINT, as shells have it.
INTERRUPTED = 130


class OneLineErrors(click.Group):
    """A group that tells every error in one line on stderr and ends with a status that is not 0."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As ``click.Group.main``, but errors end the command in one line."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        try:
            status: Any = run()
        except click.ClickException as error:
            end(f"error: {error.format_message()}", error.exit_code)
        except click.Abort:
            end("interrupted", INTERRUPTED)
        sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def library_errors() -> Iterator[None]:
    """What the library refuses becomes the command's error; anything else is a bug, with its traceback."""
    from workloads.errors import DecimaError

    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads has read enough, as in "decima compare | head"
    except (DecimaError, OSError) as error:
        raise click.ClickException(str(error)) from error


def chosen_workload(profiles: Path | None, file: Path | None) -> Workload:
    """What the options ``--profiles`` and ``--workload`` name, or the embedded workload."""
    from workloads import open_workload

    if profiles is not None and file is not None:
        raise click.UsageError("--profiles and --workload exclude each other")
    return open_workload(profiles, file)


def command_line(context: click.Context, presentation: Collection[str]) -> str:
    """The command with every option that its results depend on, defaults too.

    Args:
        context: of the command.
        presentation: parameters that results do not depend on.
    """
    words = ["decima", *context.command_path.split()[1:]]
    for parameter in context.command.params:
        name = str(parameter.name)
        value = context.params[name]
        if name not in presentation and value is not None:
            for each in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], str(each)]
    return shlex.join(words)


@contextmanager
def stepping(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, if somebody looks; call what it gives with steps done and steps in all."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(what)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def make_console() -> Console:
    """Stdout, never narrower than a table: a terminal may wrap its lines, a file has no width to keep to."""
    from rich.console import Console

    console = Console()
    console.width = max(console.width, 80 if console.is_terminal else 120)
    return console


def end(message: str, status: int) -> NoReturn:
    """End the program with a line on stderr."""
    click.echo(f"decima: {' '.join(message.split())}", err=True)
    sys.exit(status)
