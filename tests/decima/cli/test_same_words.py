"""One option means one thing in every command, or says what else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from decima.cli.main import cli


def commands(group: click.Command = cli, name: str = "decima") -> Iterator[tuple[str, click.Command]]:
    if isinstance(group, click.Group):
        for each, command in group.commands.items():
            yield from commands(command, f"{name} {each}")
    else:
        yield name, group


def options(flag: str) -> dict[str, Any]:
    """Command -> its option."""
    return {
        name: each
        for name, command in commands()
        for each in command.params
        if flag in [*each.opts, each.name]
    }


def test_out_says_whether_it_is_a_folder_or_a_file() -> None:
    kinds = {name: option.metavar for name, option in options("--out").items()}
    assert all(kind.startswith(("FOLDER", "FILE.")) for kind in kinds.values()), kinds
    assert kinds["decima compare"] == kinds["decima train"] == kinds["decima sweep"] == "FOLDER"
    for name, option in options("--out").items():
        assert "older" in option.help if kinds[name] == "FOLDER" else "file" in option.help.lower(), name


def test_the_number_of_experiments_has_two_names() -> None:
    found = options("--seeds")
    assert {"decima compare", "decima reproduce fig9a", "decima reproduce grid"} <= found.keys()
    assert all(option.opts == ["--seeds", "--experiments"] for option in found.values())
