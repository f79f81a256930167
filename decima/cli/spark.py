"""The commands ``decima spark``, for a real Spark."""

from __future__ import annotations

from pathlib import Path

import click

from decima.cli.options import PATH
from decima.cli.what_if import what_if

__all__ = ["spark"]


@click.group()
def spark() -> None:
    """Predict what a real Spark would gain, and put a policy in charge of it."""


spark.add_command(what_if)


@spark.command()
def jar() -> None:
    """Print the path of the plugin for Spark, for spark.jars.

    It serves Spark 3.3 to 4.x.
    """
    from decima.service.plugin import JAR

    click.echo(JAR)


@spark.command(name="build")
@click.option(
    "--spark",
    "home",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="HOME",
    help="The Spark to compile against: the folder that has jars in it.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="FILE.jar",
    default="decima-spark.jar",
    show_default=True,
    help="File to write.",
)
def build_(home: Path, out: Path) -> None:
    """Compile the plugin for a Spark that the one that comes with the project does not serve.

    Needs a JDK, 9 or later.
    """
    from decima.service.plugin import build

    build(home, out)
    click.echo(out)
