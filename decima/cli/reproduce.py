"""The commands ``decima reproduce NAME``: a study each. Which there are, tables beside this file say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import INTERRUPTED, command_line, end, progress, report
from decima.cli.options import JSON, Option, out_option, with_options
from decima.cli.reproduce_cluster import ON_CLASSES, ON_CLUSTERS, cluster_options, on_cluster
from decima.cli.reproduce_grid import GRID, ON_GRIDS, on_grid
from decima.cli.reproduce_parts import PARTS
from decima.cli.reproduce_settings import SETTINGS, SETTINGS_TEXT, on_settings

if TYPE_CHECKING:
    from decima.show.shown import Shown

__all__ = ["reproduce"]


@click.group()
def reproduce() -> None:
    """Make figures of the papers again: Decima's, DeepRM's and those of its successors."""


def _add(name: str, text: str, options: Option, find: Callable[..., Shown]) -> None:
    """Add a command.

    Args:
        name: its name.
        text: its help.
        options: besides ``--json`` and ``--out``.
        find: gives its results; called with the name, the command line, whom to tell how far it is, and all values.
    """

    @reproduce.command(name, help=text, context_settings={"show_default": True})
    @with_options(options, JSON, out_option("reproduce"))
    @click.pass_context
    def command(context: click.Context, /, out: Path, json_file: Path | None, **values: Any) -> None:
        from decima.outputs import prepare_outputs

        prepare_outputs(out, json_file)
        if "policies" in values:
            values["policies"] = values["policies"] or out / f"policies-{values['budget']:g}"
        try:
            with progress() as tell:
                shown = find(name, command_line(context), tell, **values)
        except KeyboardInterrupt:
            goes_on = "; the same command goes on with the training" if "policies" in values else ""
            end(f"interrupted{goes_on}", INTERRUPTED)
        report(shown, out, json_file)


for _name, (_text, _own) in ON_CLUSTERS.items():
    _add(_name, _text, with_options(_own, cluster_options(50)), on_cluster)
for _name, (_text, _own) in ON_CLASSES.items():
    _add(_name, _text, with_options(_own, cluster_options(200)), on_cluster)
for _name, (_text, _own) in ON_GRIDS.items():
    _add(_name, _text, with_options(_own, GRID), on_grid)
for _name, (_text, _own, _find) in PARTS.items():
    _add(_name, _text, _own, _find)
_add("grid", SETTINGS_TEXT, SETTINGS, on_settings)
