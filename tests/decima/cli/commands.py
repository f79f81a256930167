"""Helpers for tests of commands."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from decima.cli.main import cli

#: Invokes ``decima compare`` with the given options.
Compare = Callable[..., Result]
#: Where ``results`` finds them.
SAVED = ("--json", "r.json")


def every_command(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield words and command of all commands, including those in groups."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


def results() -> dict[str, Any]:
    return json.loads(Path("r.json").read_text())  # type: ignore[no-any-return]


def succeeded(result: Result) -> Result:
    """Return the result of a command, which must not have failed."""
    assert result.exit_code == 0, result.output
    return result


def told(result: Result) -> tuple[str, dict[str, Any]]:
    """Return words and JSON of a command with the options ``SAVED``, which must not have failed."""
    return " ".join(succeeded(result).stdout.split()), results()


def assert_one_line_error(result: Result, message: str) -> None:
    """Assert that the command ended with one line on stderr that contains the message, and with an error status."""
    assert result.exit_code not in (0, 130), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith("decima: error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def assert_same_again(json_file: Path, *options: str) -> None:
    """Assert that the command in the results gives the same results, also with options that must not change them."""
    before = json_file.read_text()
    words = shlex.split(json.loads(before)["command"])
    assert words[0] == "decima"
    again = json_file.with_name("again.json")
    succeeded(CliRunner().invoke(cli, [*words[1:], "--json", str(again), *options]))
    assert again.read_text() == before
