"""The commands ``decima spark``: what concerns a real Spark."""

from __future__ import annotations

import click

from decima.cli.what_if import what_if

__all__ = ["spark"]


@click.group()
def spark() -> None:
    """Work with a real Spark: what would it gain, and what it needs to be scheduled by a policy."""


spark.add_command(what_if)
