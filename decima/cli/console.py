"""Output of commands: errors in one line, progress, results, and the command line that reproduces results."""

from __future__ import annotations

import math
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NoReturn

import click

from decima.cli.options import SecondaryOption

if TYPE_CHECKING:
    from rich.console import Console

    from decima.show.tables import Report

#: Duration up to which a usually fast command prints no progress without a terminal, s.
PATIENCE_S = 15.0
#: Time after which a command that will take longer prints its first line, s.
SOON_S = 2.0
#: Duration of a phase's first step after which the phase counts as long, s.
LONG_STEP_S = 5.0
#: Interval at which a phase without finished steps is looked at, s.
LOOK_S = 1.0
#: Progress callback, see ``progress``.
OnProgress = Callable[..., None]

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
#: Maximum time between two lines of progress without a terminal, s.
QUIET_S = 60.0
#: Time over which the recent speed of a phase is measured, s.
RECENT_S = 60.0


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
    if not isinstance(error, click.UsageError) or error.ctx is None or "No such command" not in error.message:
        return ""
    group = error.ctx.command
    if not isinstance(group, click.Group):
        return ""
    return f" Expected one of {', '.join(sorted(group.list_commands(error.ctx)))}."


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
    from decima.outputs import visible

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


@contextmanager
def progress(patience_s: float = 0.0) -> Iterator[OnProgress]:
    """Show progress with the estimated remaining time: a bar on a terminal, otherwise occasional lines on stderr.

    Args:
        patience_s: a command that is expected to take less time prints no line, s.

    Yields:
        A callback whose arguments are the name of the phase and the numbers of finished and of all steps. Options:
        ``note``: text beside the bar; ``line``: text of the line; ``now``: whether to print the line immediately;
        ``within``: whether the phase is a part of the current phase, with a second bar and no line.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, markup=False, emoji=False)
    phase, began_s, latest = _Phase("", 0), time.monotonic(), ("", 0, 0, "")
    lock, ended = threading.Lock(), threading.Event()

    def is_long(done: int, total: int) -> bool:
        elapsed_s = time.monotonic() - began_s
        return elapsed_s >= patience_s or (
            elapsed_s >= SOON_S and phase.expected_s(done, total) >= patience_s
        )

    def print_progress(what: str, done: int, total: int, line: str) -> None:
        phase.told()
        click.echo(f"{line or f'{what}: {done} of {total}'}{phase.left(done, total)}", err=True)

    def print_while_waiting() -> None:
        while not ended.wait(LOOK_S):
            with lock:
                what, done, total, _ = latest
                if done < total and is_long(done, total) and phase.is_quiet:
                    print_progress(what, done, total, "")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar, below = bars.add_task("", note=""), bars.add_task("", note="", visible=False)

        def update(
            what: str,
            done: int,
            total: int,
            *,
            note: str = "",
            line: str = "",
            now: bool = False,
            within: bool = False,
        ) -> None:
            nonlocal phase, latest
            begins = what != phase.what and not within
            if begins:
                phase = _Phase(what, done)
            if not within:
                phase.advance(done)
            if console.is_terminal:
                this = below if within else bar
                if begins or (within and done == 0):
                    bars.reset(this)
                bars.update(this, description=what, completed=done, total=total, note=note)
                bars.update(below, visible=within and done < total)
            elif not within:
                with lock:
                    latest = what, done, total, line
                    if is_long(done, total) and (begins or now or phase.is_quiet):
                        print_progress(what, done, total, line)

        if not console.is_terminal:
            threading.Thread(target=print_while_waiting, daemon=True).start()
        try:
            yield update
        finally:
            ended.set()


class _Phase:
    """Phase of a command without a terminal: time of the last line, and estimate of the remaining time."""

    def __init__(self, what: str, done: int) -> None:
        self.what, self._first = what, done
        self._began_s = self._told_s = time.monotonic()
        self._lines = 0
        #: Times and numbers of finished steps: the last ones before ``RECENT_S`` ago, and all since.
        self._recent = deque([(self._began_s, done)])

    @property
    def is_quiet(self) -> bool:
        """Whether a line is due. The first line and the first estimate come sooner than later lines."""
        if self._lines == 0:
            return True
        return time.monotonic() - self._told_s >= (PATIENCE_S if self._lines == 1 else QUIET_S)

    def told(self) -> None:
        """Record that a line was printed."""
        self._told_s = time.monotonic()
        self._lines += 1

    def advance(self, done: int) -> None:
        """Record the number of finished steps."""
        now_s = time.monotonic()
        self._recent.append((now_s, done))
        while len(self._recent) > 2 and self._recent[1][0] <= now_s - RECENT_S:
            self._recent.popleft()

    def expected_s(self, done: int, total: int) -> float:
        """Return the expected duration of the phase, s; 0 if unknown, infinite after ``LONG_STEP_S`` without a step."""
        elapsed_s = time.monotonic() - self._began_s
        if done <= self._first:
            return math.inf if elapsed_s >= LONG_STEP_S else 0.0
        return elapsed_s / (done - self._first) * (total - self._first)

    def left(self, done: int, total: int) -> str:
        """Return the estimated remaining time as text; empty before a hundredth of the steps, as the first is slow.

        It follows from the average speed of the phase or that of the last minute, whichever is higher: the first steps
        are often the slowest, because code is compiled, workers start, or large work items run first.
        """
        elapsed_s = time.monotonic() - self._began_s
        if done - self._first < max(1, total // 100) or done >= total or elapsed_s < 1:
            return ""
        since_s, before = self._recent[0]
        recent = (done - before) / (time.monotonic() - since_s)
        left_s = (total - done) / max((done - self._first) / elapsed_s, recent)
        return f"; about {left_s:.0f} s left" if left_s < 100 else f"; about {left_s / 60:.0f} min left"
