"""Output of commands: errors in one line, results, and the command line that reproduces results."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NoReturn

import click

from decima.cli.options import SecondaryOption
from decima.show.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from decima.show.tables import Report

#: Exit status of an interrupted command, as in shells: 128 + SIGINT.
INTERRUPTED = 130
#: Exit status after invalid input, an unusable path included, as in click; other failures have the status 1.
INVALID = 2
_NO_FILE = FileNotFoundError | IsADirectoryError | NotADirectoryError
_FAILURE = RuntimeError | ArithmeticError
#: Maximum length of an error message, and the text that replaces the middle of a longer one.
LONGEST, CUT = 300, " [..] "
#: Maximum length of a word that is left out as a whole; a longer one, such as a path, is cut.
LONGEST_WORD = 60


class Commands(click.Group):
    """Group of commands. Without a command, or with ``--help``, it lists each command with its whole first sentence."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Run like ``click.Group.parse_args``; print the help if there is no argument, with the exit status 0."""
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, see ``click.Group``, which cuts long sentences."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(LONGEST))
                    for name, command in named
                    if command is not None
                ]
            )


class OneLineErrors(Commands):
    """Command group that prints each error as one line on stderr, with the exit status ``INVALID`` or 1."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run like ``click.Group.main``; an expected error ends the command with one line, a bug with a traceback."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        try:
            status: Any = run()
        except click.ClickException as error:
            end(f"error: {error.format_message()}{_commands(error)}", error.exit_code)
        except click.Abort:
            end("interrupted", INTERRUPTED)
        except SystemExit as error:
            if error.code:
                raise
            frame = extract_tb(error.__traceback__)[-1]  # a custom scheduler
            end(f"error: {frame.filename}, line {frame.lineno}: raises SystemExit", 1)
        except BrokenPipeError:  # the reader of the output has closed the pipe
            sys.stdout = None  # so that Python does not flush the pipe
            sys.exit(1)
        except MemoryError:
            end("error: not enough memory", 1)
        except Exception as error:
            from workloads.errors import DecimaError  # already loaded if such an error was raised

            if not isinstance(error, DecimaError | OSError):
                raise
            invalid = isinstance(error, DecimaError | _NO_FILE) and not isinstance(error, _FAILURE)
            end(f"error: {_what(error)}", INVALID if invalid else 1)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run like ``click.Group.invoke``; print an empty line after Ctrl-C on a terminal, which shows ``^C``."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(err=True)
            raise click.Abort from None


def _commands(error: click.ClickException) -> str:
    """Return the list of valid commands for the error of an unknown command; empty for other errors."""
    group = error.ctx.command if isinstance(error, click.UsageError) and error.ctx is not None else None
    if not isinstance(group, click.Group) or "No such command" not in error.message:
        return ""
    return f" Expected one of {', '.join(sorted(group.commands))}."


def _what(error: Exception) -> str:
    """Return an error's message, without the number of an error of the operating system."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror


def end(message: str, status: int) -> NoReturn:
    """End the program with a line on stderr; a line longer than ``LONGEST`` loses its middle, in whole words."""
    line = f"decima: {' '.join(message.split())}"
    if len(line) > LONGEST:
        size = LONGEST * 2 // 3  # names of files and lines are at the beginning
        head, tail = line[:size], line[size + len(CUT) - LONGEST :]
        if line[size] != " " and 0 < len(head) - head.rfind(" ") <= LONGEST_WORD:
            head = head[: head.rfind(" ")]
        if line[-len(tail) - 1] != " " and 0 <= tail.find(" ") <= LONGEST_WORD:
            tail = tail[tail.find(" ") + 1 :]
        line = f"{head}{CUT}{tail}"
    print_line(line, err=True)
    sys.exit(status)


def print_line(text: str, err: bool = False, fg: str | None = None) -> None:
    """Print a line to stdout or stderr, with visible control characters; ``fg``: its colour on a terminal."""
    click.secho(visible(text), err=err, fg=fg)


def command_words(context: click.Context) -> list[str]:
    """Return the words of a command line without the command's own options: the program, its options, the command."""
    words = ["decima"]
    for module in context.find_root().params.get("allow_parts", ()):
        words += ["--allow-parts", module]
    return words + context.command_path.split()[1:]


def command_line(context: click.Context, **instead: object) -> str:
    """Return the command line that reproduces results: all options that affect them, including defaults.

    ``instead`` has other values by name of the parameter; None omits the parameter.
    """
    words = command_words(context)
    for parameter in context.command.params:
        name = str(parameter.name)
        usual = None if isinstance(parameter, SecondaryOption) else context.params.get(name)
        if (value := instead.get(name, usual)) is None:
            continue
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words += parameter.opts[:1] if value else parameter.secondary_opts[:1]
            continue
        for part in value if isinstance(value, tuple) else (value,):
            words += [*(parameter.opts[:1] if isinstance(parameter, click.Option) else ()), str(part)]
    return shlex.join(words)


def make_console() -> Console:
    """Return a console for stdout without markup and emoji codes, at least 80 columns wide, 120 without a terminal."""
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    console.width = max(console.width, 80 if console.is_terminal else 120)
    return console


def report(shown: Report, out: Path | None, json_file: Path | None) -> None:
    """Save and print results; without ``out`` there are no pictures.

    The JSON is saved first, so that no error in a picture can lose it.
    """
    from decima.outputs import atomic_path

    if json_file is not None:
        with atomic_path(json_file) as path:
            path.write_text(shown.json, encoding="utf-8")
    console = make_console()
    for line in shown.lead:
        print_line(line)
    for line in shown.warnings:
        print_line(line, fg="red")
    for table in shown.tables:
        console.print(table)
    for note in shown.notes:
        print_line(note)
    if out is None:
        return
    from decima.show.style import save_figure  # the import of matplotlib is slow

    files = []
    for name, plot in shown.pictures.items():
        files.append(out / f"{name}.png")
        with atomic_path(files[-1]) as path:
            save_figure(plot(), path)
    if len(files) > 2:
        print_line(f"{len(files)} pictures in {out}")
    elif files:
        click.echo(f"{'picture' if len(files) == 1 else 'pictures'}: {', '.join(map(str, files))}")
