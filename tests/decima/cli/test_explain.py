"""The command ``decima explain``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from tests.decima.cli.commands import assert_one_line_error


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def explain(*arguments: str) -> Result:
    small = ("--workload", "synthetic", "--jobs", "3", "--executors", "4")
    return CliRunner().invoke(cli, ["explain", *small, *arguments])


def test_a_decision_is_explained(policy: Path, tmp_path: Path) -> None:
    result = explain("--policy", str(policy), "--decision", "2", "--rule", "fair", "--json", "why.json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("Decision 2 at ")
    for heading in (
        "What it could run next",
        "Executors that its job may then hold",
        "What speaks for that stage",
    ):
        assert heading in result.stdout
    document = json.loads((tmp_path / "why.json").read_text())
    assert document["decision"] == 2
    assert "--rule fair" in document["command"]
    again = CliRunner().invoke(cli, [*document["command"].split()[1:], "--json", "again.json"])
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "again.json").read_text() == (tmp_path / "why.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--decision", "1", "--at", "2"), "--decision and --at exclude each other"),
        (("--decision", "1000000"), "the episode has"),
        (("--policy", "nobody"), "nobody"),
        (("--rule", "nobody"), "unknown scheduler 'nobody'"),
        (("--json", "nowhere/x.json"), "cannot write nowhere/x.json"),
    ],
)
def test_bad_input_is_told_in_one_line(policy: Path, arguments: tuple[str, ...], message: str) -> None:
    first = () if "--policy" in arguments else ("--policy", str(policy))
    assert_one_line_error(explain(*first, *arguments), message)
