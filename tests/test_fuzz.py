"""Random malformed inputs end in one line; see ``tests.fuzz``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fuzz

ROOT = Path(fuzz.__file__).parents[1]


def _problems(cases: int, first: int, seed: int = 0) -> list[str]:
    found = fuzz.run(cases, seed, first=first)
    return [f"case {case.number}, {case.kind}: {case.words}: {case.wrong}" for case in found if case.wrong]


def test_some_malformed_inputs() -> None:
    assert _problems(6, first=0) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_two_thousand_malformed_inputs(first: int) -> None:
    assert _problems(250, first) == []


@pytest.mark.slow
def test_malformed_inputs_of_a_process(tmp_path: Path) -> None:
    """As in this process, including messages of the interpreter at exit."""
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = fuzz.run_case(1, number, keep=folder)
        done = subprocess.run(
            [sys.executable, "-m", "decima", *case.words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert "Traceback" not in done.stderr, (case, done.stderr)
        assert done.returncode == case.status, (case, done.stderr)
        if case.status:
            assert done.stderr.count("\n") == 1, (case, done.stderr)


def test_a_command_that_goes_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command that raises, is silent, or writes a forbidden file is reported."""
    monkeypatch.chdir(tmp_path)
    Path("new.json").write_text("kept")
    assert fuzz._wrong([], 1, "decima: error: x\n") == ""
    assert "not refused in one line" in fuzz._wrong([], 1, "")
    assert "not refused in one line" in fuzz._wrong([], 2, "decima: error: x\nmore\n")
    assert "Traceback" in fuzz._wrong([], 1, "Traceback")
    Path("new.json").write_text("{}")
    assert "was written" in fuzz._wrong([], 1, "decima: error: x\n")
    Path(f".{os.getpid()}.x").touch()
    assert "left behind" in fuzz._wrong([], 0, "")
    monkeypatch.setattr(fuzz.cli, "main", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in fuzz._invoked(["x"])[2]
