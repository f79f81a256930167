"""The command ``decima schedulers``."""

from __future__ import annotations

import click

from decima.cli.console import make_console

__all__ = ["schedulers"]


@click.command()
def schedulers() -> None:
    """List the schedulers that come with the project."""
    from rich.table import Table

    from decima.evaluation.tuning import scheduler_summaries

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    for name, summary in scheduler_summaries().items():
        table.add_row(name, summary)
    make_console().print(table)
