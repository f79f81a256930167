"""Reader of the TPC-H profiles that were published with Decima.

A folder per size (``2g`` .. ``100g``) holds two files per query:

* ``adj_mat_<query>.npy``: the DAG, a square matrix; 1 at [i, j] is an edge from parent i to child j;
* ``task_duration_<query>.npy``: a pickled dict ``{stage: {table: {level: [ms, ..]}}}`` with the tables
  ``fresh_durations``, ``first_wave`` and ``rest_wave``, which have the same parallelism levels.

Pickles can run code, so they are not loaded with ``pickle.load``: see ``_Inert``.

Source: github.com/hongzimao/decima-sim, folder ``spark_env/tpch``; measured on Spark for Decima (SIGCOMM 2019),
section 7.2. The measured lists are preprocessed as in that simulator, so that results are comparable with its
published numbers.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from workloads.errors import check_all, check_instance, check_path, check_whole
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError
from workloads.reading import read_bytes, unreadable
from workloads.sources.tpch import DEFAULT_SIZES, LEVELS, QUERIES

__all__ = ["load_tpch", "load_tpch_job"]

#: Names of the tables, in the order of ``Wave``.
_TABLES = ("fresh_durations", "first_wave", "rest_wave")

_Table = dict[int, list[float]]


def load_tpch(
    directory: str | Path, sizes: Iterable[str] = DEFAULT_SIZES, queries: Iterable[int] = QUERIES
) -> tuple[JobProfile, ...]:
    """Read published profiles: all queries of the first size, then of the next.

    Args:
        directory: folder with one folder per size.
        sizes: names of the folders to read.
        queries: numbers of queries, 1 to 22.

    Raises:
        WorkloadError: as ``load_tpch_job``.
    """
    if not check_path(directory, "directory", WorkloadError).is_dir():
        raise WorkloadError(f"{directory}: no such folder, expected the published TPC-H profiles")
    sizes = check_all(sizes, str, "sizes", WorkloadError)
    queries = check_all(queries, int, "queries", WorkloadError)
    folder = Path(directory)
    if sizes and not (folder / sizes[0]).is_dir():
        others = (*(path for path in sorted(folder.iterdir()) if path.is_dir()), folder.parent)
        folders = [other for other in others if (other / sizes[0]).is_dir()]
        near = f" (did you mean {str(folders[0])!r}?)" if folders else ""
        raise WorkloadError(
            f"{directory}: contains no folder {sizes[0]}{near}, expected the published TPC-H profiles"
        )
    return tuple(load_tpch_job(directory, size, query) for size in sizes for query in queries)


def load_tpch_job(directory: str | Path, size: str, query: int) -> JobProfile:
    """Read one published profile; ``load_tpch_job(directory, "10g", 7)`` is query 7 on 10 GB, ``tpch-q7-10g``.

    Durations have the eight ``LEVELS``; a level at which a stage was not measured repeats the stage's largest level.
    The mean duration of a stage is the mean of all preprocessed measurements, at all levels.

    Args:
        directory: folder with one folder per size.
        size: name of the folder, such as ``10g``.
        query: number of the query, 1 to 22.

    Raises:
        WorkloadError: a file is missing or malformed. The message names file and place.
    """
    check_instance(size, str, "size", WorkloadError)
    check_whole(query, "query", WorkloadError)
    folder = check_path(directory, "directory", WorkloadError) / size
    durations_file = folder / f"task_duration_{query}.npy"
    edges_file = folder / f"adj_mat_{query}.npy"
    stages = _read_stages(durations_file)
    edges = _read_edges(edges_file, len(stages))
    try:
        return JobProfile(f"tpch-q{query}-{size}", stages, edges)
    except WorkloadError as error:
        raise WorkloadError(f"{edges_file}: {error}") from None


def _read_edges(path: Path, num_stages: int) -> NDArray[np.int64]:
    """Return the (parent, child) pairs of an adjacency matrix, int64 [num_edges, 2]."""
    shape, fortran_order, dtype, data = _read_npy(path)
    if dtype.kind not in "biuf":
        raise WorkloadError(f"{path}: expected a matrix of numbers, got {dtype}")
    if shape != (num_stages, num_stages):
        expected = f"a row and a column for each of the {num_stages} stages that have durations"
        raise WorkloadError(f"{path}: expected {expected}, got shape {shape}")
    if len(data) != num_stages**2 * dtype.itemsize:
        raise WorkloadError(
            f"{path}: expected {num_stages**2 * dtype.itemsize} bytes after the header, got {len(data)}"
        )
    matrix = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")
    wrong = np.argwhere((matrix != 0) & (matrix != 1))
    if wrong.size:
        row, column = wrong[0]
        raise WorkloadError(f"{path}: row {row}, column {column}: expected 0 or 1, got {matrix[row, column]}")
    return np.argwhere(matrix)


def _read_stages(path: Path) -> tuple[StageProfile, ...]:
    shape, _, dtype, data = _read_npy(path)
    if dtype.kind != "O" or shape != ():
        raise WorkloadError(f"{path}: expected one pickled dict, got {dtype} of shape {shape}")
    stored = _unpickle(path, data)
    if not stored or stored.keys() != set(range(len(stored))):
        raise WorkloadError(f"{path}: expected stages numbered from 0, without gaps")
    stages = []
    for stage in range(len(stored)):
        try:
            stages.append(_stage(stored[stage]))
        except WorkloadError as error:
            raise WorkloadError(f"{path}: stage {stage}: {error}") from None
    return tuple(stages)


def _stage(stored: object) -> StageProfile:
    if not isinstance(stored, dict) or stored.keys() != set(_TABLES):
        raise WorkloadError(f"expected the tables {', '.join(_TABLES)}")
    fresh, first, rest = (_table(name, stored[name]) for name in _TABLES)
    if not fresh.keys() == first.keys() == rest.keys():
        raise WorkloadError("expected the same parallelism levels in every table")
    if not first:
        raise WorkloadError("expected at least one parallelism level")
    # The published simulator counts tasks at the level that is stored first. In query 15 other levels would give
    # another number.
    counted = next(iter(first))
    num_tasks = len(first[counted]) + len(rest[counted])
    return StageProfile(num_tasks, _task_durations(fresh, _without_fresh(first, fresh), rest))


def _table(name: str, stored: object) -> _Table:
    """Check one table ``{level: [ms, ..]}``."""
    if not isinstance(stored, dict):
        raise WorkloadError(f"{name}: expected a table by parallelism level")
    for level, durations in stored.items():
        if type(level) is not int or level < 1:
            raise WorkloadError(f"{name}: expected parallelism levels that are whole numbers from 1")
        if not isinstance(durations, list):
            raise WorkloadError(f"{name}, level {level}: expected a list of durations")
        longest = sys.float_info.max  # also refuses NaN, infinity, and integers that no float can hold
        if not all(type(value) in (int, float) and 0 <= value <= longest for value in durations):
            raise WorkloadError(f"{name}, level {level}: expected durations in ms, finite and not negative")
    return stored


def _without_fresh(first: _Table, fresh: _Table) -> _Table:
    """Remove the fresh durations, which the raw lists contain, from the first wave.

    An empty result is replaced by that of the next lower level, which may itself be a replacement.
    """
    result: _Table = {}
    below: list[float] = []
    for level in sorted(first):
        unmatched = Counter(fresh[level])
        kept = []
        for duration in first[level]:
            if unmatched[duration]:
                unmatched[duration] -= 1
            else:
                kept.append(duration)
        below = result[level] = kept or below
    return result


def _task_durations(*tables: _Table) -> TaskDurations:
    """Map one preprocessed table per wave to ``LEVELS``. Cells with the same list share its values."""
    measured = [durations for table in tables for durations in table.values()]
    count = sum(map(len, measured))
    mean_ms = sum(map(sum, measured)) / count if count else float("nan")
    values: list[float] = []
    spans: dict[int, tuple[int, int]] = {}
    cells = np.zeros((len(tables), len(LEVELS), 2), dtype=np.int64)
    for wave, table in enumerate(tables):
        largest = max(table)
        for column, level in enumerate(LEVELS):
            durations = table.get(level, table[largest])
            if id(durations) not in spans:
                spans[id(durations)] = len(values), len(values) + len(durations)
                values.extend(durations)
            cells[wave, column] = spans[id(durations)]
    return TaskDurations(np.array(LEVELS), np.array(values, dtype=np.float64), cells, mean_ms)


def _read_npy(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], bytes]:
    """Return shape, Fortran order and dtype from the header of a .npy file, and the bytes after the header."""
    try:
        stream = io.BytesIO(read_bytes(path))
    except OSError as error:
        raise unreadable(path, error, "a .npy file of the TPC-H profiles") from None
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        shape, fortran_order, dtype = readers[npy.read_magic(stream)](stream)
    except Exception:  # the header is parsed as Python, which may raise any exception
        raise WorkloadError(f"{path}: expected a .npy file, the header is malformed") from None
    return shape, fortran_order, dtype, stream.read()


class _Inert:
    """Replaces every object that a pickle names, so that loading executes no code.

    The pickle of an object array calls ``_reconstruct(ndarray, ..)`` and ``dtype(..)``, then sets the state of the
    results. Here all of these are of this class: calls have no effect, and state is only stored.
    """

    __slots__ = ("state",)

    def __call__(self, *_: object) -> _Inert:
        return _Inert()

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Builds dicts, lists, tuples, strings and numbers; an array's globals become inert, others are refused."""

    def find_class(self, module: str, name: str) -> _Inert:
        if (module, name) not in _ARRAY_GLOBALS:
            raise WorkloadError(f"refused to load {f'{module}.{name}'!r}, expected a dict of numbers only")
        return _Inert()


_ARRAY_GLOBALS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
}


def _unpickle(path: Path, data: bytes) -> dict[object, object]:
    """Return the only dict in a pickled object array of shape ()."""
    stream = io.BytesIO(data)
    try:
        root = _Unpickler(stream, encoding="latin1").load()
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None
    except Exception:  # a malformed pickle may raise any exception
        raise WorkloadError(f"{path}: the pickled dict is malformed or cut short") from None
    match root:
        case _Inert(state=(_, (), _, _, [dict() as stored])) if not stream.read(1):
            return stored
    raise WorkloadError(f"{path}: expected one pickled dict and nothing else")
