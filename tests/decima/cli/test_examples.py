"""Examples in help texts and commands on pages are valid; an option has the same meaning in every command."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner

from decima.cli.compare import DEFAULT_SCHEDULERS, SCHEDULERS_THAT_PACK
from decima.cli.main import cli
from decima.evaluation.grid import make_grid_scheduler
from decima.evaluation.metrics import SHOWN
from decima.learning.cluster.config import RECIPES, read_config
from decima.learning.grid.config import RECIPES as GRID_RECIPES, DeepRMConfig
from decima.registry import make_scheduler
from decima.settings import read_settings
from simulator.cluster.texts import parse_classes
from tests.decima.cli.commands import every_command

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CHANGELOG.md"]


ALL = dict(every_command())
#: What "such as EXAMPLE" is an example of, in the help of an option -> what takes it.
TAKES = {
    "--classes": parse_classes,
    "--set": lambda example: (
        read_config("batch", [example]),
        read_settings(DeepRMConfig, GRID_RECIPES, "deeprm", [example]),
    ),
    "--levels": lambda example: example,
    "--weights": lambda example: [float(weight) for weight in example.split(",")],
    "--executor": lambda example: example,
    "--objective": lambda example: SHOWN[example],
}


def texts(command: click.Command) -> list[str]:
    """Return all help texts of a command."""
    return [command.help or "", *(option.help or "" for option in command.params if isinstance(option, click.Option))]


def named(words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """Split words into the command that they begin with, and the rest."""
    count = 0
    while count < len(words) and tuple(words[: count + 1]) in ALL:
        count += 1
    return tuple(words[:count]), words[count:]


def options(command: click.Command) -> set[str]:
    return {word for each in command.params for word in (*each.opts, *each.secondary_opts)} | {"--help"}


def test_values_that_stand_as_examples_are_taken() -> None:
    found = [
        (option.opts[0], example.rstrip(",.;"))
        for command in ALL.values()
        for option in command.params
        if isinstance(option, click.Option)
        for example in re.findall(r"such as (\S+)", option.help or "")
    ]
    assert len(found) >= 3
    for option, example in found:
        TAKES[option](example)


@pytest.mark.parametrize("path", [path for path in ALL if not isinstance(ALL[path], click.Group)], ids=" ".join)
def test_commands_and_options_that_a_help_text_names_are_there(path: tuple[str, ...]) -> None:
    for text in texts(ALL[path]):
        for words in re.findall(r"\bdecima((?: [a-z-]+)+)((?: --[a-z-]+)*)", text):
            command, _ = named(words[0].split())
            if command:
                assert set(words[1].split()) <= options(ALL[command]), text
        others = re.sub(r"decima(?: [a-z-]+)+(?: --[a-z-]+)+", "", text)
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", others)) <= options(ALL[path]), text


def test_names_that_help_texts_list_are_all_that_there_are() -> None:
    for path, recipes in ((("train",), RECIPES), (("deeprm", "train"), GRID_RECIPES)):
        config = next(option for option in ALL[path].params if option.name == "config")
        assert isinstance(config, click.Option)
        listed = re.search(r"a recipe \((.*)\)", config.help or "")
        assert listed is not None
        assert sorted(listed[1].split(", ")) == recipes.names()
    for name in ("sjf", "packer", "tetris:0.5", "random", "random:7"):
        make_grid_scheduler(name)
    for name in f"{DEFAULT_SCHEDULERS},{SCHEDULERS_THAT_PACK}".split(","):
        make_scheduler(name.removeprefix("tuned-"))


class Missing(Exception):
    """Raised when a command opens a file that is missing."""


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn missing files into ``Missing``."""
    fail = click.Path.fail

    def missing(self: click.Path, message: str, *where: Any) -> NoReturn:
        if "does not exist" in message:
            raise Missing(message)
        fail(self, message, *where)

    monkeypatch.setattr(click.Path, "fail", missing)


def lines() -> Iterator[tuple[Path, str]]:
    """Return the commands of the program on the pages, with continuation lines joined."""
    for page in PAGES:
        for text in re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text(), re.M | re.S):
            for line in text.replace("\\\n", " ").splitlines():
                if match := re.match(r"\s*(?:\.venv/bin/)?decima (.*)", line):
                    yield page, match[1]


@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize(("page", "line"), [pytest.param(page, line, id=line) for page, line in lines()])
def test_a_command_on_a_page_is_one(page: Path, line: str) -> None:
    """The command can be parsed, and only missing files are refused."""
    words = shlex.split(re.split(r"\s(?:#|&&|\||>|&$)", line)[0])
    while words[0] in options(cli):  # of all commands, with a value each
        words = words[2:]
    path, rest = named(words)
    assert path, line
    if isinstance(ALL[path], click.Group) or "--help" in rest:
        assert CliRunner().invoke(cli, [*path, "--help"]).exit_code == 0
        return
    with suppress(Missing):
        ALL[path].make_context(" ".join(path), rest)


def with_option(flag: str) -> dict[str, Any]:
    """Return command -> its option of this name."""
    return {" ".join(path): option for path, command in ALL.items() for option in command.params if flag in option.opts}


def test_names_of_options() -> None:
    kinds = {name: parameter.metavar for name, parameter in with_option("--out").items()}
    assert all(kind.startswith(("FOLDER", "FILE.")) for kind in kinds.values()), kinds
    assert kinds["compare"] == kinds["train"] == kinds["tune"] == "FOLDER"
    for name, parameter in with_option("--out").items():
        assert "older" in parameter.help if kinds[name] == "FOLDER" else "file" in parameter.help.lower(), name
    found = with_option("--seeds")
    assert {"compare", "tune", "benchmark"} <= found.keys()
    assert all(option.opts == ["--seeds", "--experiments"] for option in found.values())
