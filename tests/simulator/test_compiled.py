"""Compiled code is cached, and the cache is invalidated by a change of any of its sources."""

import errno
import importlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from filelock import FileLock
from numba.core.errors import NumbaError

from simulator import compile_marks, compiled as module
from tests.cases import cases
from tests.simulator import cold

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
    """A folder with two modules, one of which calls the other."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    return tmp_path


def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the module as a new process does."""
    module.digest.cache_clear()
    with monkeypatch.context() as patch:
        for name in ("caller", "callee"):
            patch.delitem(sys.modules, name, raising=False)
        return importlib.import_module("caller").twice


def call(monkeypatch: pytest.MonkeyPatch) -> tuple[int, bool]:
    """Return the result in a new process, and whether it came from the cache."""
    twice = imported(monkeypatch)
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


def test_two_processes_that_begin_at_once_compile_nothing_twice_and_keep_everything(tmp_path: Path) -> None:
    """The result is right even if one process was killed while it compiled."""
    (tmp_path / "__pycache__").mkdir()
    program = [sys.executable, "-m", "tests.simulator.cold", str(tmp_path), "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(program, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:-1] == [f"{2 * cold.FUNCTIONS} 0 True"] * 2


def test_what_is_kept_waits_for_no_process_that_compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process does not wait for ever for one that was suspended."""
    assert call(monkeypatch) == (2, False)
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    monkeypatch.setattr(module, "_occupied", set())
    kept = Path(imported(monkeypatch)._cache.cache_path)
    callee, caller = (str(kept / f"{name}.lock") for name in ("callee", "caller"))
    with FileLock(callee), FileLock(caller):
        (folder / "callee.py").write_text(CALLEE.format(21))
        assert call(monkeypatch) == (42, False)
        assert module._occupied == {callee, caller}  # it has waited, and will not wait again
        monkeypatch.setattr(module, "_alone_with", None)
        assert call(monkeypatch) == (42, True)


def test_what_was_kept_half_is_compiled_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba writes the index first: a process may be killed before it has written the indexed file."""
    assert call(monkeypatch) == (2, False)
    kept = imported(monkeypatch)._cache._cache_file
    overloads = kept._load_index()
    (folder / "callee.py").write_text(CALLEE.format(21))
    new = imported(monkeypatch)._cache._cache_file
    kept._source_stamp, kept._version = new._source_stamp, new._version
    kept._save_index(overloads)
    assert call(monkeypatch) == (42, False)
    assert call(monkeypatch) == (42, True)


def test_an_index_of_other_sources_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of other sources may name a class that no longer exists and cannot be read."""
    assert call(monkeypatch) == (2, False)
    index = Path(imported(monkeypatch)._cache._cache_file._index_path)
    index.write_bytes(index.read_bytes()[:-1])
    (folder / "callee.py").write_text(CALLEE.format(21))
    assert call(monkeypatch) == (42, False)
    assert call(monkeypatch) == (42, True)


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "no"), OSError(errno.ENOSPC, "full")])
def test_a_folder_that_cannot_be_written_keeps_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module.FileLock, "acquire", fail)
    monkeypatch.setattr(module, "_occupied", set())
    monkeypatch.setattr(module._CacheFile, "save", fail)
    assert call(monkeypatch) == (2, False)
    assert call(monkeypatch) == (2, False)


def test_where_there_is_no_folder_to_keep_anything_in_everything_is_compiled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    assert call(monkeypatch) == (2, False)
    assert call(monkeypatch) == (2, False)


def test_a_part_is_compiled_until_a_source_changes(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_marks._nothing._cache, "_cache_path", str(tmp_path_factory.mktemp("kept")))
    assert not compile_marks.is_compiled("part", [folder])
    compile_marks.mark_compiled("part", [folder])
    assert compile_marks.is_compiled("part", [folder])
    assert not compile_marks.is_compiled("other", [folder])
    (folder / "callee.py").write_text(CALLEE.format(21))
    module.digest.cache_clear()
    assert not compile_marks.is_compiled("part", [folder])


def compiled_code(module: ModuleType) -> dict[str, Path]:
    """Return the compiled functions that a module uses, and the folder of each."""
    known = list(vars(module).values())
    known += [value for each in known if isinstance(each, ModuleType) for value in vars(each).values()]
    return {each.__name__: Path(each.__code__.co_filename).parent for each in known if hasattr(each, "py_func")}


@cases(
    "name",
    "simulator.cluster.engine.commands", "simulator.cluster.engine.draws", "simulator.cluster.engine.executors",
    "simulator.cluster.engine.state", "simulator.cluster.engine.tasks", "simulator.grid.rules",
)  # fmt: skip
def test_compiled_code_calls_its_own_folder_only(name: str) -> None:
    each = importlib.import_module(name)
    assert set(compiled_code(each).values()) == {Path(str(each.__file__)).parent}


@module.inner
def plus_one(number):  # type: ignore[no-untyped-def]
    return number + 1


@module.compiled
def plus_two(number):  # type: ignore[no-untyped-def]
    return plus_one(number) + 1


def test_compiled_code_is_called_from_compiled_code_alone() -> None:
    # Python can call it neither before nor after compiled code has called it.
    for _ in range(2):
        with pytest.raises(TypeError, match="only compiled code can call plus_one"):
            plus_one(1)
        assert plus_two(1) == 3
    # Without a reference count the caller would release a returned array, which would then be freed twice.
    with pytest.raises((TypeError, NumbaError), match="with_one returns an array"):
        sum_and_one(np.ones(3))
    assert one_and_two() == 5
    assert len(plus_one.nopython_signatures) <= 1  # 0 if the caller comes from the cache
    plus_two(1)
    for function, is_assembled in ((plus_one, False), (plus_two, True)):
        for overload in function.overloads.values():
            library = overload.library
            assert getattr(library, "_is_assembled", is_assembled) == is_assembled


@module.inner
def with_one(array):  # type: ignore[no-untyped-def]
    return array, 1


@module.compiled
def sum_and_one(array):  # type: ignore[no-untyped-def]
    array, one = with_one(array)
    return array.sum() + one


@module.compiled
def one_and_two():  # type: ignore[no-untyped-def]
    return plus_one(1) + plus_one(2)


WITH_CALLS = """
import numpy as np
{}

@inner(arrays=True)
def number_of(numbers, place):
    if place < 0:
        raise ValueError("negative", place)
    print("place", place)
    return numbers[place]

@inner(arrays=True)
def sorted_half(numbers, share):
    return np.sort(numbers)[: int(len(numbers) * share)]

@compiled
def number(numbers, places):
    half = sorted_half(numbers, 0.5)
    total = np.zeros(2)
    for place in places:
        total += number_of(half, place) ** np.arange(1, 3)
    return total, half, str(len(half)) + " of " + str(len(numbers))
"""
PLAIN = """
from numba import njit as compiled

def inner(function=None, **_):
    return compiled(function) if function else compiled
"""


@pytest.mark.parametrize("is_kept", [False, True])
def test_compiled_code_does_what_numba_makes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], is_kept: bool
) -> None:
    """This includes text, arrays, errors with values and printing, which need more than machine code."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "plain.py").write_text(WITH_CALLS.format(PLAIN))
    (tmp_path / "lazy.py").write_text(WITH_CALLS.format("from simulator.compiled import compiled, inner"))
    numbers, seen = np.array([3.0, 0.5, 7.0, 2.0]), []
    for name in ("plain", "lazy", *["lazy"] * is_kept):
        module.digest.cache_clear()
        monkeypatch.delitem(sys.modules, name, raising=False)
        function = importlib.import_module(name).number
        total, half, text = function(numbers, np.array([0, 1, 1]))
        with pytest.raises(ValueError, match="negative") as raised:
            function(numbers, np.array([1, -1]))
        seen.append((total.tolist(), half.tolist(), text, raised.value.args, capfd.readouterr().out))
        assert bool(function.stats.cache_hits) == (len(seen) == 3)
    assert all(each == seen[0] for each in seen)
    assert seen[0][2:] == ("2 of 4", ("negative", -1), "place 0\nplace 1\nplace 1\nplace 1\n")


#: Program that runs an episode of a few jobs under each of two schedulers, and prints the completion times.
EPISODES = """
from decima.registry import make_scheduler
from simulator import ClusterConfig, run_episode
from workloads import batch_arrivals, embedded_tpch

sequence = batch_arrivals(embedded_tpch()[:3], 3, seed=1)
for name in ("fair", "srpt"):
    print(repr(run_episode(ClusterConfig(5), sequence, make_scheduler(name)).completion_ms.tolist()))
"""


@pytest.mark.slow
def test_fifty_times_two_processes_begin_with_nothing_compiled(tmp_path: Path) -> None:
    """All processes get the same results; about 25 s of CPU time each."""
    root = Path(__file__).parents[2]
    results = set()
    for number in range(50):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / str(number))}
        program = [sys.executable, "-c", EPISODES]
        start = partial(subprocess.Popen, program, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
        both = [start(), start()]
        results |= {process.communicate()[0] for process in both}
        results.add(start().communicate()[0])
        assert len(results) == 1
        assert results != {""}
