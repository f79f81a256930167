"""Entry point of the command line ``decima``.

Commands parse options, and print or save results of the library. The module of a command is imported when the command
is used, and imports slow modules when the command runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import FrameType
from typing import NoReturn

import click

from decima import __version__
from decima.cli.console import OneLineErrors

#: Command -> its module in ``decima.cli``, and function.
COMMANDS = {
    "benchmark": "benchmark:benchmark",
    "compare": "compare:compare",
    "deeprm": "deeprm:deeprm",
    "explain": "compare:explain",
    "plot": "search:plot",
    "replay": "replay:replay",
    "replay-live": "replay:replay_live",
    "report": "replay:report_live",
    "reproduce": "main:reproduce",
    "schedulers": "compare:schedulers",
    "serve": "serve:serve",
    "spark": "spark:spark",
    "train": "train:train",
    "train-estimator": "workload:train_estimator",
    "tune": "search:tune",
    "workload": "workload:workload",
}
#: Time before a signal that cannot be handled now is sent again, s.
RETRY_S = 0.02
#: Functions whose exceptions Python prints and ignores: finalisers, and those at the end of the program.
_FINALISERS = ("__del__", "_exitfunc", "_exit_function")


class _Commands(Mapping[str, click.Command]):
    """The commands by their names, imported when they are looked up."""

    def __getitem__(self, name: str) -> click.Command:
        module, _, function = COMMANDS[name].partition(":")
        command: click.Command = getattr(import_module(f"decima.cli.{module}"), function)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@click.group(cls=OneLineErrors, commands=_Commands())
@click.version_option(__version__, message="decima %(version)s")
@click.option(
    "--allow-parts",
    multiple=True,
    metavar="MODULE",
    help="Allow policy files to load classes of this module or package; may be given several times.",
)
def cli(allow_parts: tuple[str, ...]) -> None:
    """Schedule data-processing clusters: simulate clusters, compare schedulers, learn better schedulers."""
    if allow_parts:
        from decima.policy import parts

        parts.allow_parts(*allow_parts)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1)
def reproduce(words: tuple[str, ...]) -> None:
    """Tell where the figures of the papers are."""
    command = " ".join(("python -m reproduce", *words))
    raise click.UsageError(f"figures are outside of the package: in a clone of the repository, {command}")


def main() -> NoReturn:
    """Entry point of the command ``decima``."""
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # some encodings lack some characters
    sys.exit(cli(prog_name="decima"))


def _as_ctrl_c(signum: int, frame: FrameType | None) -> None:
    """Handle SIGTERM, the signal of cluster managers and ``timeout``, like Ctrl-C, even if Ctrl-C is ignored."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else _interrupt)(signum, frame)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Raise ``KeyboardInterrupt``, or send the signal again later if the exception would be lost now.

    LLVM calls Python during compilation. An exception inside such a call, or in a finaliser, is printed and ignored,
    and the compiler continues without the result of the call.
    """
    inner = frame
    while inner is not None:
        compiling = inner.f_globals.get("__name__", "").startswith("llvmlite.")
        if compiling or inner.f_code.co_name in _FINALISERS:
            again = threading.Timer(RETRY_S, os.kill, (os.getpid(), signum))
            again.daemon = True
            again.start()
            return
        inner = inner.f_back
    raise KeyboardInterrupt
