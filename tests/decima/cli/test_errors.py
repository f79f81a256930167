"""What is refused ends a command in one line, whatever file it is; every error has the one base class."""

from __future__ import annotations

import ast
import importlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import decima
from decima.cli.main import cli
from tests.decima.cli.commands import assert_one_line_error
from workloads import DecimaError

ROOT = Path(decima.__file__).parents[1]
#: Seconds would do if one of them were taken for good.
FEW = "--budget 0.001"
#: Kind of file -> its name, and the commands that take one.
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "policy": (
        "broken.npz",
        (
            "compare --checkpoint broken.npz",
            "compare --schedulers fair,decima:broken.npz",
            "train --out out --set start=broken.npz",
            "deeprm compare --checkpoint broken.npz",
            "deeprm train --out out --set start=broken.npz",
            f"reproduce fig9a --checkpoint broken.npz {FEW}",
            f"reproduce grid --checkpoint broken.npz {FEW}",
            "replay --weights broken.npz episode.json",
        ),
    ),
    "checkpoint": (
        "out/checkpoint.pt",
        ("train --resume --out out --config batch", "deeprm train --resume --out out --config deeprm"),
    ),
    "workload": (
        "broken.json",
        (
            "compare --workload broken.json",
            "train --out out --workload broken.json",
            "train --out out --set workload.file=broken.json",
            f"reproduce fig9a --workload broken.json {FEW}",
            f"reproduce grid --trace broken.json {FEW}",
            "workload show broken.json",
        ),
    ),
    "workload, gzipped": ("broken.json.gz", ("compare --workload broken.json.gz",)),
    "workload in TOML": ("broken.toml", ("compare --workload broken.toml",)),
    "event log": (
        "logs/app-1",
        ("workload import spark logs/app-1 --out mine.json", "reproduce fig18 --recordings logs"),
    ),
    "job log": (
        "broken.swf",
        (
            "deeprm compare --log broken.swf",
            "deeprm train --out out --log broken.swf",
            "deeprm train --out out --set jobs.log=broken.swf",
            f"reproduce a2c-tables --log broken.swf {FEW}",
        ),
    ),
    "job log, gzipped": ("broken.swf.gz", ("deeprm compare --log broken.swf.gz",)),
    "settings": (
        "broken.yaml",
        ("train --out out --config broken.yaml", "deeprm train --out out --config broken.yaml"),
    ),
    "profiles": (
        "tpch/2g/task_duration_1.npy",
        (
            "compare --profiles tpch",
            "compare --workload ./tpch",
            "train --out out --profiles tpch",
            f"reproduce fig9a --profiles tpch {FEW}",
            f"reproduce grid --profiles tpch {FEW}",
            "workload show ./tpch",
        ),
    ),
}


def _zip() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("policy.npy", b"no array")
    return data.getvalue()


CONTENTS = {
    "empty": b"",
    "text": b"what is this?\n: [",
    "binary": bytes(range(256)) * 4,
    "archive": _zip(),
    "list": b"[1, 2]",
}


CASES = [
    (name, command, content)
    for kind, (name, commands) in COMMANDS.items()
    for command in commands
    for content in CONTENTS
    if (kind, content) != ("settings", "empty")  # which are the defaults
]


@pytest.mark.parametrize(("name", "command", "content"), CASES)
def test_a_broken_file_is_one_line(
    name: str, command: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENTS[content])
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, command.split())
    assert_one_line_error(result, name)


@pytest.mark.parametrize("content", CONTENTS)
def test_a_broken_recording_is_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json.gz"
    path.write_bytes(CONTENTS[content])
    result = CliRunner().invoke(cli, ["replay", str(path)])
    line, summary = result.output.splitlines()
    assert line.startswith(f"{path}: ")
    assert (summary, result.exit_code) == ("0 of 1 episodes match", 1)


def test_what_is_not_refused_is_a_bug_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise KeyError("forgotten")

    monkeypatch.setattr("workloads.sources.open.open_workload", bug)
    assert isinstance(CliRunner().invoke(cli, ["workload", "show"]).exception, KeyError)


def _errors() -> Iterator[tuple[str, str]]:
    """Module and name of each class of the project that is called an error."""
    for package in ("workloads", "simulator", "decima"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                    yield ".".join(path.relative_to(ROOT).with_suffix("").parts), node.name


def test_every_error_has_the_one_base_class_and_a_name_of_its_own() -> None:
    found = list(_errors())
    assert len(found) > 10
    assert len({name for _, name in found}) == len(found)
    for module, name in found:
        assert issubclass(getattr(importlib.import_module(module), name), DecimaError), name


def _commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command)


def test_every_command_and_option_says_what_it_is() -> None:
    for command in _commands(cli):
        assert command.help, command.name
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, (command.name, parameter.name)
