"""Command line of the figures: ``python -m reproduce NAME [options]``, and ``python -m reproduce render``.

A figure is a file with a function ``run``. Its keyword arguments are the options; annotations, defaults and the section
``Args`` of its docstring give their types, defaults and help.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
import types
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from decima.cli.console import OneLineErrors

FOLDER = Path(__file__).parent
#: Files that are no figures.
HELPERS = ("__init__", "__main__", "common", "render")


def figures() -> dict[str, str]:
    """Return the name of each figure and the first line of its file's docstring."""
    files = sorted(file for file in FOLDER.glob("*.py") if file.stem not in HELPERS)
    texts = {file: ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "" for file in files}
    return {file.stem.replace("_", "-"): text.partition("\n")[0] for file, text in texts.items()}


def options(run: Any) -> list[click.Option]:
    """Return the command-line options for the keyword arguments of a function."""
    _, _, section = (inspect.getdoc(run) or "").partition("Args:\n")
    texts = {
        name: " ".join(text.split())
        for name, text in re.findall(r"^    (\w+): ((?:.+\n?)(?:     +.+\n?)*)", section, re.M)
    }
    hints = typing.get_type_hints(run)
    return [
        _option(name, hints[name], parameter.default, texts[name])
        for name, parameter in inspect.signature(run).parameters.items()
    ]


def _option(name: str, hint: Any, default: Any, text: str) -> click.Option:
    if isinstance(hint, types.UnionType):  # X | None
        hint = next(member for member in typing.get_args(hint) if member is not type(None))
    repeated = typing.get_origin(hint) is tuple  # tuple[X, ...]
    kind = typing.get_args(hint)[0] if repeated else hint
    if typing.get_origin(kind) is typing.Literal:
        kind = click.Choice(typing.get_args(kind))
    elif kind is Path:
        kind = click.Path(path_type=Path)
    return click.Option(
        [f"--{name.replace('_', '-')}", name],
        type=None if kind is bool else kind,
        is_flag=kind is bool,
        default=default,
        multiple=repeated,
        show_default=default is not None and default != () and kind is not bool,
        help=f"{text} May be given several times." if repeated else text,
    )


class Figures(OneLineErrors):
    """The commands: one for each figure, which is imported when it runs, and ``render``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, see ``click.Group``."""
        return [*figures(), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a figure, see ``click.Group``."""
        if cmd_name not in figures():
            return super().get_command(ctx, cmd_name)
        module = import_module(f"reproduce.{cmd_name.replace('-', '_')}")
        out = click.Option(["--out"], type=click.Path(path_type=Path), default=Path("reproduced"), show_default=True,
            help="Folder of the results (JSON) and pictures.")  # fmt: skip
        publish = click.Option(["--publish"], is_flag=True,
            help="Write reproduce/results and docs instead, and render the pages.")  # fmt: skip

        names = inspect.signature(module.run).parameters

        def command(out: Path, publish: bool, **values: Any) -> None:
            run_figure(cmd_name, module.run, {name: values[name] for name in names}, None if publish else out)

        text = f"{module.__doc__}\n\n".replace("\n\n", "\n\n\b\n", 1)
        return click.Command(
            cmd_name, callback=command, params=[*options(module.run), out, publish], help=text
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of figures without importing them, see ``click.Group``."""
        with formatter.section("Figures"):
            formatter.write_dl([*figures().items(), ("render", "Render the results into README and docs.")])


def run_figure(name: str, run: Any, options: dict[str, Any], out: Path | None) -> None:
    """Run a figure, print its tables and values, and save them in a folder; None publishes them."""
    from reproduce.common import markdown
    from reproduce.render import render_pages

    result = run(**options)
    words = [word for word in sys.argv[1:] if word != "--publish"]
    content = result.content(shlex.join(["python", "-m", "reproduce", *words]), options)
    for title, rows in content["tables"].items():
        click.echo(f"{title}\n\n{markdown(rows, result.formats)}\n")
    for key, value in result.values.items():
        click.echo(f"{key}: {value}")
    if out is None:
        result.save(name, content)
        render_pages()
    else:
        result.save(name, content, out, out)
        click.echo(f"results and pictures: {out}")


@click.group(cls=Figures)
def cli() -> None:
    """Reproduce figures and tables of the papers on Decima, DeepRM and its successors."""


@cli.command()
def render() -> None:
    """Render the results into README and docs."""
    from reproduce.render import render_pages

    for page in render_pages():
        click.echo(f"rendered: {page}")


if __name__ == "__main__":
    cli(prog_name="python -m reproduce")
