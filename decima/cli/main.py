"""Entry point of the command line ``decima``. Commands parse options, and print or save results of the library.

Commands import slow modules when they run, so that ``decima --help`` is fast.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

import click

from decima.cli.compare import compare, explain, schedulers
from decima.cli.console import OneLineErrors
from decima.cli.deeprm import deeprm
from decima.cli.reproduce import reproduce
from decima.cli.serve import replay, replay_live, report_live, serve, spark
from decima.cli.sweep import headroom, plot, sweep, tune
from decima.cli.train import train
from decima.cli.workload import workload

#: Time before a signal that cannot be handled now is sent again, s.
RETRY_S = 0.02


@click.group(cls=OneLineErrors, invoke_without_command=True)
@click.version_option(package_name="decima", message="decima %(version)s")
@click.option(
    "--allow-parts",
    multiple=True,
    metavar="MODULE",
    help="Allow policy files to load classes of this module or package; may be given several times.",
)
@click.pass_context
def cli(context: click.Context, allow_parts: tuple[str, ...]) -> None:
    """Schedule data-processing clusters: simulate clusters, compare schedulers, learn better schedulers."""
    if allow_parts:
        from decima.policy import parts

        parts.allow_parts(*allow_parts)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    compare,
    deeprm,
    explain,
    headroom,
    plot,
    replay,
    replay_live,
    report_live,
    reproduce,
    schedulers,
    serve,
    spark,
    sweep,
    train,
    tune,
    workload,
):
    cli.add_command(_command)
cli.add_command(reproduce.commands.pop("benchmark"))  # this study reproduces no paper


def main() -> NoReturn:
    """Entry point of the command ``decima``."""
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # some encodings lack some characters
    sys.exit(cli(prog_name="decima"))


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM, the signal of cluster managers and ``timeout``, like Ctrl-C, even if Ctrl-C is ignored."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else _interrupt)(number, frame)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise ``KeyboardInterrupt``, or send the signal again later if the exception would be lost now.

    LLVM calls Python during compilation. An exception inside such a call, or in a finaliser, is printed and ignored,
    and the compiler continues without the result of the call.
    """
    inner = frame
    while inner is not None:
        if inner.f_code.co_name == "__del__" or inner.f_globals.get("__name__", "").startswith("llvmlite."):
            again = threading.Timer(RETRY_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        inner = inner.f_back
    raise KeyboardInterrupt
