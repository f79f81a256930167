"""Entry point of the command line ``decima``, and the commands ``decima reproduce NAME``, one for each study.

Commands parse options, and print or save results of the library. They import slow modules when they run, so that
``decima --help`` is fast. Studies are declared in ``decima.studies.catalogue``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from decima.cli import options
from decima.cli.benchmark import benchmark
from decima.cli.compare import compare, explain, schedulers
from decima.cli.console import INTERRUPTED, Commands, OneLineErrors, command_line, end, progress, report
from decima.cli.deeprm import deeprm
from decima.cli.search import plot, tune
from decima.cli.serve import replay, replay_live, report_live, serve, spark
from decima.cli.train import train
from decima.cli.workload import workload
from decima.studies.catalogue import STUDIES, Entry, Option, run_study

#: Time before a signal that cannot be handled now is sent again, s.
RETRY_S = 0.02
#: Functions whose exceptions Python prints and ignores: finalisers, and those at the end of the program.
_FINALISERS = ("__del__", "_exitfunc", "_exit_function")
WEIGHTS = options.Numbers("three numbers separated by commas, each at least 0", count=3, least=0)
#: Kind of option values -> type for click.
KINDS: dict[str, Any] = {
    "above 0": options.ABOVE_ZERO,
    "at least 1": options.AT_LEAST_ONE,
    "at least 2": options.WholeRange(2),
    "comparison seed": options.COMPARISON_SEED,
    "file": options.FILE,
    "flag": options.FLAG,
    "folder": options.FOLDER,
    "policy file": options.POLICY_FILE,
    "seed": options.SEED,
    "share": options.FiniteRange(0, 1, min_open=True, max_open=True),
    "text": options.TEXT,
    "weights": WEIGHTS,
}
#: Shared options of several commands. The part after the colon is the default in the help.
SHARED = {
    "budget": options.BUDGET,
    "policies": options.POLICIES,
    "workers": options.WORKERS,
    "workers: 1": options.workers_option("1"),
    "workload": options.workload_options(),
    "workload: none; instead of --instances": options.workload_options("none; instead of --instances"),
}


class Moved(Commands):
    """Group whose unknown commands are figures outside of the package."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, see ``click.Group``."""
        if self.get_command(ctx, args[0]) is None:
            ctx.fail(
                f"figures are outside of the package: in a clone of the repository, python -m reproduce {args[0]}"
            )
        return super().resolve_command(ctx, args)


@click.group(cls=Moved)
def reproduce() -> None:
    """Reproduce figures of the papers on Decima, DeepRM and its successors."""


def _option(given: Option | str) -> options.Option:
    if isinstance(given, str):
        return SHARED[given]
    kind = KINDS[given.kind] if isinstance(given.kind, str) else click.Choice(given.kind)
    return options.option(
        given.flags, kind, given.help, given.default, name=given.name, multiple=given.multiple
    )


def _add(name: str, entry: Entry) -> None:
    @reproduce.command(name, help=entry.help, context_settings={"show_default": True})
    @options.with_options(*map(_option, entry.options), options.JSON, options.out_option("reproduce"))
    @click.pass_context
    def command(context: click.Context, /, out: Path, json_file: Path | None, **values: Any) -> None:
        from decima.outputs import prepare_outputs
        from decima.studies.outcome import OptionError

        prepare_outputs(out, json_file)
        given = {each for each in values if options.is_given(context, each)}
        if "policies" in values:
            values["policies"] = values["policies"] or out / f"policies-{values['budget']:g}"
        if "workload" in values:
            values["workload"] = options.workload_named(values["workload"], values.pop("profiles"))
        if "weights" in values:
            values["weights"] = [WEIGHTS.parse(text) for text in values["weights"]]
        try:
            with progress() as update:
                shown = run_study(name, values, command_line(context), update, given)
        except OptionError as error:
            raise click.UsageError(str(error)) from None
        except KeyboardInterrupt:
            resume = "; the same command resumes the training" if "policies" in values else ""
            end(f"interrupted{resume}", INTERRUPTED)
        report(shown, out, json_file)


for _name, _entry in STUDIES.items():
    _add(_name, _entry)


@click.group(cls=OneLineErrors)
@click.version_option(package_name="decima", message="decima %(version)s")
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


for _command in (
    benchmark,
    compare,
    deeprm,
    explain,
    plot,
    replay,
    replay_live,
    report_live,
    reproduce,
    schedulers,
    serve,
    spark,
    train,
    tune,
    workload,
):
    cli.add_command(_command)


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
        compiling = inner.f_globals.get("__name__", "").startswith("llvmlite.")
        if compiling or inner.f_code.co_name in _FINALISERS:
            again = threading.Timer(RETRY_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        inner = inner.f_back
    raise KeyboardInterrupt
