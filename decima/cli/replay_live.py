"""The command ``decima replay-live``."""

from __future__ import annotations

from pathlib import Path

import click

from decima.cli.options import FILE, JSON, out_option

__all__ = ["replay_live"]


@click.command("replay-live")
@click.argument("log", type=FILE)
@out_option("live")
@JSON
def replay_live(log: Path, out: Path, json_file: Path | None) -> None:
    """Show what the drivers of decima serve did.

    LOG is what decima serve --log wrote. Each driver that had jobs is shown as an episode: a line of the table, its
    schedule, and how many of its jobs were live.
    """
    from decima.cli.console import report
    from decima.outputs import prepare_outputs
    from decima.service.log import read_log
    from decima.service.replay import replayed
    from decima.service.report import live_report

    found = replayed(read_log(log))
    if not found:
        raise click.ClickException(f"{log}: no driver had a job")
    prepare_outputs(out, json_file)
    report(live_report(found), out, json_file)
