"""What was compiled is kept, but never longer than any of the sources that it came from stays the same."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numba
import pytest

from simulator import compiled as module

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

CALLER = """
from callee import number
from simulator.compiled import compiled

@compiled
def twice():
    return 2 * number()
"""
CALLEE = """
from simulator.compiled import compiled

@compiled
def number():
    return {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of two modules, one of which calls the other."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch) -> tuple[int, bool]:
    """What a new process would get, and whether it had been kept."""
    module._digest.cache_clear()
    with monkeypatch.context() as patch:
        for name in ("caller", "callee"):
            patch.delitem(sys.modules, name, raising=False)
        twice = importlib.import_module("caller").twice
        return twice(), bool(twice.stats.cache_hits)


def test_compiled_code_is_kept_until_a_source_in_its_folder_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch) == (2, False)
    assert call(monkeypatch) == (2, True)
    files = set(folder.rglob("*"))
    (folder / "callee.py").write_text(CALLEE.format(21))
    assert call(monkeypatch) == (42, False)
    assert call(monkeypatch) == (42, True)
    assert set(folder.rglob("*")) == files


def compiled_code(module: ModuleType) -> dict[str, Path]:
    """The compiled functions that a module knows, and the folder of each."""
    known = list(vars(module).values())
    known += [value for each in known if isinstance(each, ModuleType) for value in vars(each).values()]
    return {
        each.__name__: Path(each.__code__.co_filename).parent for each in known if hasattr(each, "py_func")
    }


@pytest.mark.parametrize(
    "name",
    [
        "simulator.cluster.engine.commands",
        "simulator.cluster.engine.durations",
        "simulator.cluster.engine.executors",
        "simulator.cluster.engine.state",
        "simulator.cluster.engine.tasks",
        "simulator.grid.rules",
    ],
)
def test_compiled_code_calls_its_own_folder_only(name: str) -> None:
    each = importlib.import_module(name)
    assert set(compiled_code(each).values()) == {Path(str(each.__file__)).parent}


@module.inner
def plus_one(number):  # type: ignore[no-untyped-def]
    return number + 1


@module.compiled
def plus_two(number):  # type: ignore[no-untyped-def]
    return plus_one(number) + 1


def test_python_cannot_call_what_only_compiled_code_can() -> None:
    """Not before compiled code has called it, and not then."""
    for _ in range(2):
        with pytest.raises(TypeError, match="only compiled code can call plus_one"):
            plus_one(1)
        assert plus_two(1) == 3
