"""Every refusal of any file ends a command with one line; all errors have one base class."""

import ast
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import decima
from decima.cli.console import INTERRUPTED
from decima.cli.main import _interrupt, cli
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error, every_command
from workloads import DecimaError

ROOT = Path(decima.__file__).parents[1]


def test_what_is_not_refused_is_a_bug_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise KeyError("forgotten")

    monkeypatch.setattr("workloads.sources.open.open_workload", bug)
    assert isinstance(CliRunner().invoke(cli, ["workload", "show"]).exception, KeyError)


def _errors() -> Iterator[tuple[str, str]]:
    """Return module and name of each exception class of the project."""
    for package in ("workloads", "simulator", "decima"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                    yield ".".join(path.relative_to(ROOT).with_suffix("").parts), node.name


def test_errors_have_one_base_class_and_commands_and_options_a_help() -> None:
    found = list(_errors())
    assert len(found) > 10
    assert len({name for _, name in found}) == len(found)
    for module, name in found:
        assert issubclass(getattr(importlib.import_module(module), name), DecimaError), name
    for _, command in every_command():
        assert command.help, command.name
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, (command.name, parameter.name)


@pytest.mark.parametrize("inside", ["__del__", "_exitfunc", "called back by the compiler"])
def test_a_signal_comes_again_where_an_exception_would_be_lost(inside: str) -> None:
    """LLVM's callbacks and finalisers print exceptions and continue."""
    module = "__main__" if inside.startswith("_") else "llvmlite.binding.executionengine"
    name = inside if inside.startswith("_") else "notify"
    names: dict[str, Any] = {"__name__": module, "strike": lambda: signal.raise_signal(signal.SIGUSR1)}
    exec(f"def {name}():\n    strike()\n    return True", names)
    before = signal.signal(signal.SIGUSR1, _interrupt)
    try:
        assert names[name]()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("cpu_s", [2, 6, 10])
def test_a_signal_while_something_is_compiled_is_one_line(number: signal.Signals, cpu_s: int, tmp_path: Path) -> None:
    """With an empty cache the first seconds are spent on compilation."""
    words = [sys.executable, "-m", "decima", *["compare", "--jobs", "2", "--seeds", "1", "--executors", "5"]]
    process = subprocess.Popen(
        [*words, "--schedulers", "fair", "--out", str(tmp_path / "out")],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        stderr=subprocess.PIPE,
        text=True,
    )
    ticks = os.sysconf("SC_CLK_TCK")
    while sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().split()[13:15])) < cpu_s * ticks:
        time.sleep(0.05)
    process.send_signal(number)
    said = process.communicate()[1]
    assert re.fullmatch(r"decima: interrupted(, 0 of 1 experiments finished)?\n", said), said
    assert process.returncode == INTERRUPTED


OWN = """
import sys
from decima.schedulers import Scheduler
class Ends(Scheduler):
    def decide(self, observation):
        sys.exit(0)
"""


@cases(
    "content, command, said",
    ("import sys; sys.exit(0)", "compare --schedulers MODULE:Own,fair", "cannot be loaded: SystemExit: 0"),
    ("def f(): f()\nf()", "compare --schedulers MODULE:Own,fair", "cannot be loaded: RecursionError"),
    ("raise BaseException('x')", "explain --rule MODULE:Own", "cannot be loaded: BaseException: x"),
    ("x = 1 +", "compare --schedulers MODULE:Own", "cannot be loaded: SyntaxError"),
    (OWN, "explain --jobs 2 --executors 5 --rule MODULE:Ends", "line 6: raises SystemExit"),
    ids=["exits", "recurses", "raises", "syntax", "exits later"],
)
def test_code_of_a_user_cannot_end_a_command_without_a_word(content: str, command: str, said: str) -> None:
    module = f"own_{abs(hash(content))}"
    Path(f"{module}.py").write_text(content)
    result = CliRunner().invoke(cli, command.replace("MODULE", module).split())
    assert_one_line_error(result, module)
    assert said in result.stderr
