"""The commands ``decima reproduce NAME``, one for each study of ``decima.studies.catalogue``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from decima.cli.console import INTERRUPTED, command_line, end, progress, report
from decima.cli.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    BUDGET,
    COMPARISON_SEED,
    FILE,
    FLAG,
    FOLDER,
    JSON,
    POLICIES,
    SEED,
    TEXT,
    WORKERS,
    FiniteRange,
    Numbers,
    WholeRange,
    option,
    out_option,
    with_options,
    workers_option,
    workload_named,
    workload_options,
)
from decima.cli.options import Option as Decorator
from decima.studies.catalogue import STUDIES, Entry, Option, run_study

WEIGHTS = Numbers("three numbers separated by commas, each at least 0", count=3, least=0)
#: Kind of option values -> type for click.
KINDS: dict[str, Any] = {
    "above 0": ABOVE_ZERO,
    "at least 1": AT_LEAST_ONE,
    "at least 2": WholeRange(2),
    "comparison seed": COMPARISON_SEED,
    "file": FILE,
    "flag": FLAG,
    "folder": FOLDER,
    "seed": SEED,
    "share": FiniteRange(0, 1, min_open=True, max_open=True),
    "text": TEXT,
    "weights": WEIGHTS,
}
#: Shared options of several commands. The part after the colon is the default in the help.
SHARED = {
    "budget": BUDGET,
    "policies": POLICIES,
    "workers": WORKERS,
    "workers: 1": workers_option("1"),
    "workload": workload_options(),
    "workload: none; instead of --instances": workload_options("none; instead of --instances"),
}


@click.group()
def reproduce() -> None:
    """Reproduce figures of the papers on Decima, DeepRM and its successors."""


def _option(given: Option | str) -> Decorator:
    if isinstance(given, str):
        return SHARED[given]
    kind = KINDS[given.kind] if isinstance(given.kind, str) else click.Choice(given.kind)
    return option(given.flags, kind, given.help, given.default, name=given.name, multiple=given.multiple)


def _add(name: str, entry: Entry) -> None:
    @reproduce.command(name, help=entry.help, context_settings={"show_default": True})
    @with_options(*map(_option, entry.options), JSON, out_option("reproduce"))
    @click.pass_context
    def command(context: click.Context, /, out: Path, json_file: Path | None, **values: Any) -> None:
        from decima.outputs import prepare_outputs
        from decima.studies.outcome import OptionError

        prepare_outputs(out, json_file)
        given = {each for each in values if _is_given(context, each)}
        if "policies" in values:
            values["policies"] = values["policies"] or out / f"policies-{values['budget']:g}"
        if "workload" in values:
            values["workload"] = workload_named(values["workload"], values.pop("profiles"))
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


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


for _name, _entry in STUDIES.items():
    _add(_name, _entry)
