"""The reader of the published TPC-H profiles: results and rejected files."""

import builtins
import contextlib
import itertools
import os
import pickle
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.cases import cases
from workloads.job import Wave, WorkloadError
from workloads.sources.published_tpch import load_tpch, load_tpch_job
from workloads.sources.tpch import DEFAULT_SIZES, LEVELS

ALL_SIZES = (*DEFAULT_SIZES, "80g")

Find = Callable[[str], Path]
Tables = dict[str, dict[int, list[float]]]


def tables(fresh: Any = None, first: Any = None, rest: Any = None) -> dict[str, Any]:
    """Return a stage measured at level 5 only, with two tasks; any table can be replaced."""
    return {
        "fresh_durations": {5: [30]} if fresh is None else fresh,
        "first_wave": {5: [30]} if first is None else first,
        "rest_wave": {5: [10]} if rest is None else rest,
    }


def write_job(directory: Path, stages: Any, edges: Any = None) -> Path:
    """Write a profile as query 1 of size 2g; ``edges`` is an adjacency matrix, by default a chain."""
    folder = directory / "2g"
    folder.mkdir(exist_ok=True)
    if edges is None:
        edges = np.eye(len(stages), k=1)
    np.save(folder / "adj_mat_1.npy", edges, allow_pickle=True)
    boxed = np.empty((), dtype=object)
    boxed[()] = stages
    np.save(folder / "task_duration_1.npy", boxed, allow_pickle=True)
    return directory


def write_pickle(directory: Path, pickled: bytes, header: bytes | None = None) -> Path:
    """Write a one-stage profile whose durations file contains ``pickled``."""
    write_job(directory, {0: tables()})
    file = directory / "2g" / "task_duration_1.npy"
    start = file.read_bytes()
    start = start[: start.index(b"\n") + 1] if header is None else header
    file.write_bytes(start + pickled)
    return directory


def refused(directory: Path) -> str:
    """Return the one-line message with which the profile is rejected, without the directory."""
    with pytest.raises(WorkloadError) as caught:
        load_tpch_job(directory, "2g", 1)
    message = str(caught.value)
    assert message.startswith(str(directory / "2g"))
    assert "\n" not in message
    return message.removeprefix(str(directory / "2g") + "/")


@pytest.fixture(scope="module")
def jobs(shared: Find) -> dict[str, Any]:
    return {job.name: job for job in load_tpch(shared("tpch"), sizes=ALL_SIZES)}


def raw(directory: Path, size: str, query: int) -> dict[int, Tables]:
    """Return the published file as NumPy reads it. Only this test trusts the file."""
    file = directory / size / f"task_duration_{query}.npy"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pickle is of an older NumPy
        loaded: dict[int, Tables] = np.load(file, allow_pickle=True, encoding="latin1").item()
    return loaded


def naive_tables(stage: Tables) -> tuple[dict[int, list[float]], ...]:
    """Preprocess naively: remove fresh from first, then fill empty lists from the level below."""
    fresh, first, rest = (dict(stage[name]) for name in ("fresh_durations", "first_wave", "rest_wave"))
    for level in first:
        remaining = list(first[level])
        for duration in fresh[level]:
            if duration in remaining:
                remaining.remove(duration)
        first[level] = remaining
    ascending = sorted(first)
    for lower, level in itertools.pairwise(ascending):
        if not first[level]:
            first[level] = list(first[lower])
    return fresh, first, rest


def test_sizes_and_queries_in_order(shared: Find) -> None:
    started = time.process_time()
    names = [job.name for job in load_tpch(shared("tpch"))]
    assert time.process_time() - started < 5.0  # well under 1.5 s on an idle machine
    assert names == [f"tpch-q{query}-{size}" for size in DEFAULT_SIZES for query in range(1, 23)]
    names = [job.name for job in load_tpch(shared("tpch"), sizes=("80g", "2g"), queries=(9, 2))]
    assert names == ["tpch-q9-80g", "tpch-q2-80g", "tpch-q9-2g", "tpch-q2-2g"]


def test_published_facts_holes_and_dags(jobs: dict[str, Any], shared: Find) -> None:
    num_stages = [job.num_stages for job in jobs.values()]
    num_tasks = [job.num_tasks for job in jobs.values()]
    assert len(jobs) == 154
    assert (min(num_stages), max(num_stages), sum(num_stages)) == (2, 18, 1414)
    assert np.mean(num_stages) == pytest.approx(9.2, abs=0.05)
    assert (min(num_tasks), max(num_tasks)) == (13, 3717)
    assert np.mean(num_tasks) == pytest.approx(1155, abs=0.5)
    stages = [stage for job in jobs.values() for stage in job.stages]
    sizes = np.array([np.diff(stage.durations.cells)[..., 0] for stage in stages])
    assert (sizes[:, Wave.FIRST].sum(axis=1) == 0).sum() == 154
    assert ((sizes[:, Wave.FRESH] > 0) | (sizes[:, Wave.FIRST] > 0)).all()
    for size in ALL_SIZES:
        stored = raw(shared("tpch"), size, 15)[6]
        counts = {
            level: len(stored["first_wave"][level]) + len(stored["rest_wave"][level]) for level in stored["rest_wave"]
        }
        assert jobs[f"tpch-q15-{size}"].stages[6].num_tasks == counts[2]
        assert len(set(counts.values())) > 1


def test_published_dags_are_numbered_in_topological_order_and_end_in_one_stage(jobs: dict[str, Any]) -> None:
    for job in jobs.values():
        assert all(parent < child for parent, child in job.edges)
        assert sum(not children for children in job.children) == 1


@cases("size, query", ("2g", 6), ("5g", 6), ("10g", 6), ("2g", 15), ("10g", 7), ("100g", 21), ("80g", 2))
def test_preprocessing_against_a_naive_computation(shared: Find, jobs: dict[str, Any], size: str, query: int) -> None:
    job = jobs[f"tpch-q{query}-{size}"]
    for number, stored in raw(shared("tpch"), size, query).items():
        stage = job.stages[number]
        counted = next(iter(stored["first_wave"]))
        assert stage.num_tasks == len(stored["first_wave"][counted]) + len(stored["rest_wave"][counted])
        expected = naive_tables(stored)
        assert stage.durations.levels.tolist() == list(LEVELS)
        for wave, table in zip(Wave, expected, strict=True):
            found = stage.durations.table(wave)
            for level in LEVELS:
                assert found[level].tolist() == table.get(level, table[max(table)]), (number, wave, level)
        every = [duration for table in expected for durations in table.values() for duration in durations]
        assert stage.durations.mean_ms == np.mean(every)
    adjacency = np.load(shared("tpch") / size / f"adj_mat_{query}.npy")
    assert job.edges.tolist() == np.argwhere(adjacency).tolist()


def test_first_waves_are_filled_and_counted_once(tmp_path: Path) -> None:
    stage = tables(fresh={5: [3, 3, 9]}, first={5: [1, 3, 3, 3, 2]}, rest={5: []})
    [read] = load_tpch_job(write_job(tmp_path, {0: stage}), "2g", 1).stages
    assert read.num_tasks == 5
    assert read.durations.table(Wave.FIRST)[5].tolist() == [1, 3, 2]
    assert read.durations.mean_ms == (3 + 3 + 9 + 1 + 3 + 2) / 6
    first = {40: [], 2: [], 10: [7], 5: [], 20: []}
    stage = tables({level: [100] for level in first}, first, {level: [] for level in first} | {40: [1]})
    [read] = load_tpch_job(write_job(tmp_path, {0: stage}), "2g", 1).stages
    found = {level: values.tolist() for level, values in read.durations.table(Wave.FIRST).items()}
    assert found == {5: [], 10: [7], 20: [7], 40: [7], 50: [7], 60: [7], 80: [7], 100: [7]}
    assert read.num_tasks == 1  # at level 40, which is stored first
    assert read.durations.mean_ms == (5 * 100 + 3 * 7 + 1) / 9
    assert read.durations.values.size == 4 + 1 + 1  # copies share their storage, level 2 is not drawn from


def test_files_that_are_missing_or_hold_something_else(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no such folder, expected the published TPC-H profiles"):
        load_tpch(tmp_path / "nowhere")
    write_job(tmp_path, {0: tables()})
    with pytest.raises(WorkloadError, match=r"2g/task_duration_2.npy: No such file"):
        load_tpch(tmp_path, sizes=["2g"], queries=[1, 2])
    (tmp_path / "2g" / "adj_mat_1.npy").unlink()
    assert refused(tmp_path).startswith("adj_mat_1.npy: No such file")
    # Strings of Python 2 have no encoding; one that is not ASCII is an unknown table, not a crash.
    pickled = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01)cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"
        b"\x89]}K\x00}U\x02\xff\xfe]ssatb."
    )
    assert "stage 0: expected the tables" in refused(write_pickle(tmp_path, pickled))


@pytest.mark.parametrize("payload", ["os.system", "builtins.eval", "builtins.getattr", "numpy.load"])
def test_code_in_a_pickle_is_not_run(tmp_path: Path, payload: str) -> None:
    trace = tmp_path / "executed"

    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return {
                "os.system": (os.system, (f"touch {trace}",)),
                "builtins.eval": (builtins.eval, (f"open({str(trace)!r}, 'w')",)),
                "builtins.getattr": (getattr, (dict, "fromkeys")),
                "numpy.load": (np.load, (str(trace), None, True)),
            }[payload]

    name = {"os.system": f"{os.system.__module__}.system"}.get(payload, payload)
    message = refused(write_pickle(tmp_path, pickle.dumps(Attack())))
    assert message == f"task_duration_1.npy: refused to load '{name}', expected a dict of numbers only"
    assert not trace.exists()
    write_job(tmp_path, {0: Attack()})
    assert "refused to load" in refused(tmp_path)
    assert not trace.exists()


@cases(
    "name",
    "numpy.ndarray.__class__", "numpy.core.multiarray._reconstruct.__globals__", "numpy.core.multiarray.scalar",
    "numpy.core.multiarray.fromfile", "numpy.lib.format.read_array", "numpy.testing._private.utils.runstring",
    "builtins.dict.update", "workloads.sources.published_tpch._Inert",
)  # fmt: skip
def test_names_beside_the_three_of_an_array_are_refused(tmp_path: Path, name: str) -> None:
    module, _, attribute = name.rpartition("._reconstruct.") if "__globals__" in name else name.rpartition(".")
    attribute = f"_reconstruct.{attribute}" if "__globals__" in name else attribute
    pickled = pickle.PROTO + b"\x04"
    for part in (module, attribute):
        pickled += pickle.SHORT_BINUNICODE + bytes([len(part)]) + part.encode()
    assert f"refused to load '{name}'" in refused(write_pickle(tmp_path, pickled + pickle.STACK_GLOBAL + pickle.STOP))


@cases(
    "pickled",
    pytest.param(b"\x80\x02cnumpy\ndtype\n(U\x02f8tR.", id="call"),
    pytest.param(b"\x80\x02cnumpy\nndarray\n\x8a\x06\0\0\0\0\0\x01\x85\x81.", id="huge new object"),
    pytest.param(b"\x80\x02cnumpy\nndarray\nN}U\x07__doc__K\x01s\x86b.", id="slot attribute"),
    pytest.param(b"\x80\x02cnumpy\nndarray\n}U\x04loadK\x01sb.", id="attribute"),
    pytest.param(b"\x80\x02cnumpy\nndarray\n(K\x01e.", id="append method"),
    pytest.param(b"\x80\x02K\x01Q.", id="persistent reference"),
)
def test_tricks_with_what_is_let_in_do_nothing(tmp_path: Path, pickled: bytes) -> None:
    before = dict(vars(np.ndarray))
    assert refused(write_pickle(tmp_path, pickled)).startswith("task_duration_1.npy: ")
    assert dict(vars(np.ndarray)) == before


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_old_and_new_names_of_the_array_are_let_in(tmp_path: Path, module: bytes) -> None:
    array = np.empty((), dtype=object)
    array[()] = {0: tables()}
    pickled = pickle.dumps(array, protocol=3)
    current = np.empty(0).__reduce__()[0].__module__.encode()
    write_pickle(tmp_path, pickled.replace(current, module))
    assert load_tpch_job(tmp_path, "2g", 1).num_tasks == 2


def changed(**replaced: Any) -> dict[int, Any]:
    return {0: tables(**replaced)}


@cases(
    "stages, place, expected",
    ([], "", "expected one pickled dict and nothing else"),
    ({}, "", "expected stages numbered from 0, without gaps"),
    ({1: tables()}, "", "expected stages numbered from 0, without gaps"),
    ({"0": tables()}, "", "expected stages numbered from 0, without gaps"),
    ({0: {"first_wave": {}}}, "stage 0: ", "expected the tables fresh_durations, first_wave, rest_wave"),
    ({0: tables() | {"more": {}}}, "stage 0: ", "expected the tables fresh_durations, first_wave, rest_wave"),
    (changed(rest=[1]), "stage 0: rest_wave: ", "expected a table by parallelism level"),
    (changed(fresh={}, first={}, rest={}), "stage 0: ", "expected at least one parallelism level"),
    (changed(rest={5: [1], 10: [2]}), "stage 0: ", "expected the same parallelism levels in every table"),
    (changed(fresh={0: [1]}), "stage 0: fresh_durations: ", "levels that are whole numbers from 1"),
    (changed(fresh={"5": [1]}), "stage 0: fresh_durations: ", "levels that are whole numbers from 1"),
    (changed(fresh={True: [1]}), "stage 0: fresh_durations: ", "levels that are whole numbers from 1"),
    (changed(fresh={5: 1}), "stage 0: fresh_durations, level 5: ", "expected a list of durations"),
    (changed(first={5: [3, -1]}), "stage 0: first_wave, level 5: ", "finite and not negative"),
    (changed(first={5: [float("nan")]}), "stage 0: first_wave, level 5: ", "finite and not negative"),
    (changed(first={5: [10**5000]}), "stage 0: first_wave, level 5: ", "finite and not negative"),
    (changed(first={5: ["3"]}), "stage 0: first_wave, level 5: ", "finite and not negative"),
    (changed(first={5: [True]}), "stage 0: first_wave, level 5: ", "finite and not negative"),
    (changed(first={5: []}, rest={5: []}), "stage 0: ",
     "the number of tasks must be a whole number of 1 to 200,000,000, got 0"),
    (changed(fresh={5: [], 10: []}, first={5: [], 10: []}, rest={5: [1], 10: []}), "stage 0: ",
     "no durations in any wave at parallelism level 10"),
    ({0: tables(), 1: tables(rest={5: ["x"]})}, "stage 1: rest_wave, level 5: ", "finite and not negative"),
)  # fmt: skip
def test_malformed_durations(tmp_path: Path, stages: Any, place: str, expected: str) -> None:
    message = refused(write_job(tmp_path, stages, np.zeros((1, 1))))
    assert message.startswith(f"task_duration_1.npy: {place}")
    assert message.endswith(expected)


@cases(
    "matrix, expected",
    (np.zeros((2, 3)), "a row and a column for each of the 2 stages that have durations, got shape (2, 3)"),
    (np.zeros((3, 3)), "a row and a column for each of the 2 stages that have durations, got shape (3, 3)"),
    (np.zeros(4), "a row and a column for each of the 2 stages that have durations, got shape (4,)"),
    (np.array([[0, 2], [0, 0]]), "row 0, column 1: expected 0 or 1, got 2"),
    (np.array([[0, 0], [-1, 0]]), "row 1, column 0: expected 0 or 1, got -1"),
    (np.array([[0, 0.5], [0, 0]]), "row 0, column 1: expected 0 or 1, got 0.5"),
    (np.array([[0, np.nan], [0, 0]]), "row 0, column 1: expected 0 or 1, got nan"),
    (np.array([[0, 1], [1, 0]]), "the stages form a cycle: 0 -> 1"),
    (np.array([[0, 0], [0, 1]]), "the stages form a cycle: 1"),
    (np.array([["0", "1"], ["0", "0"]]), "expected a matrix of numbers, got <U1"),
    (np.array([[0, 1j], [0, 0]]), "expected a matrix of numbers, got complex128"),
    (np.zeros((2, 2), dtype=[("edge", "f8")]), "expected a matrix of numbers, got [('edge', '<f8')]"),
    (np.zeros((2, 2), dtype=object), "expected a matrix of numbers, got object"),
)
def test_malformed_adjacency(tmp_path: Path, matrix: Any, expected: str) -> None:
    message = refused(write_job(tmp_path, {0: tables(), 1: tables()}, matrix))
    assert message.startswith("adj_mat_1.npy: ")
    assert message.endswith(expected)


@cases(
    "matrix",
    np.array([[False, True, True], [False, False, False], [False, False, False]]),
    np.asfortranarray(np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=np.int8)),
    np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=">f4"),
)
def test_any_kind_of_number_and_layout(tmp_path: Path, matrix: Any) -> None:
    job = load_tpch_job(write_job(tmp_path, dict.fromkeys(range(3), tables()), matrix), "2g", 1)
    assert job.edges.tolist() == [[0, 1], [0, 2]]


def test_files_that_hold_something_else(tmp_path: Path) -> None:
    write_job(tmp_path, {0: tables()})
    np.save(tmp_path / "2g" / "task_duration_1.npy", np.zeros(3))
    assert refused(tmp_path).endswith("expected one pickled dict, got float64 of shape (3,)")
    file = write_job(tmp_path, {0: tables()}) / "2g" / "task_duration_1.npy"
    file.write_bytes(file.read_bytes() + b"more")
    assert refused(tmp_path).endswith("expected one pickled dict and nothing else")
    file = write_job(tmp_path, {0: tables()}) / "2g" / "adj_mat_1.npy"
    file.write_bytes(file.read_bytes().replace(b"(1, 1), }", b"(9**9,), "))
    assert refused(tmp_path).endswith("the header is malformed")


@cases(
    "header",
    b"", b"PK\x03\x04", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x01\x00\x10\x00{'descr': '|O', \n",
    b"\x93NUMPY\x01\x00\x0f\x00__import__('os')\n", b"\x93NUMPY\x01\x00\xff\xff{}",
    b"\x93NUMPY\x01\x00" + b"\x05\x00" + b"((((\n", b"\x93NUMPY\x01\x00" + b"\x06\x00" + b"'\x00'\\x\n",
)  # fmt: skip
def test_malformed_headers(tmp_path: Path, header: bytes) -> None:
    message = refused(write_pickle(tmp_path, b"", header))
    assert message == "task_duration_1.npy: expected a .npy file, the header is malformed"


@pytest.mark.parametrize("name", ["task_duration_1.npy", "adj_mat_1.npy"])
def test_files_cut_short_anywhere(tmp_path: Path, name: str) -> None:
    file = write_job(tmp_path, {0: tables(), 1: tables()}) / "2g" / name
    complete = file.read_bytes()
    for length in range(len(complete)):
        file.write_bytes(complete[:length])
        assert refused(tmp_path).startswith(name)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 6) | st.floats() | st.sampled_from(sorted(tables())),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.integers(0, 6) | st.sampled_from(sorted(tables())), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=50)
@given(stages=json_like | st.dictionaries(st.just(0), st.fixed_dictionaries(dict.fromkeys(tables(), json_like))))
def test_whatever_the_dict_holds_is_read_or_refused_in_one_line(tmp_path: Path, stages: Any) -> None:
    write_job(tmp_path, stages, np.zeros((1, 1)))
    with contextlib.suppress(WorkloadError):
        load_tpch_job(tmp_path, "2g", 1)
        return
    refused(tmp_path)
