"""Episodes as a page carries them: whole numbers of 32 bits, compressed, in base64."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simulator.cluster.record import EpisodeRecord

__all__ = ["TICKS", "packed_schedule"]

#: Times are multiples of so small a part of an episode: 4 microseconds of a quarter of an hour.
TICKS = 2**28


def packed_schedule(record: EpisodeRecord) -> str:
    """What every executor did, executor by executor in order of time, as base64 of gzip of uint32 (little endian).

    One column after the other: for each executor how many spans it has; then for each span the time since the one
    before on the same executor (or since 0), how long it lasts (both in ``TICKS`` of the episode), what it is (2 +
    the stage, counted over all jobs, of a task; 0 for a move), the job, the parallelism and the wave (0 for a move).
    """
    ran, end_ms = np.flatnonzero(record.task_executor >= 0), record.end_ms
    sizes = [profile.num_stages for profile in record.sequence.profiles]
    first_stage = np.concatenate([[0], np.cumsum(sizes)])
    job, none = record.task_job[ran], np.zeros(record.move_executor.size, dtype=np.int64)
    columns: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
        "executor": (record.task_executor[ran], record.move_executor),
        "start": (record.task_start_ms[ran], record.move_depart_ms),
        "finish": (record.task_finish_ms[ran], record.move_arrive_ms),
        "stage": (2 + first_stage[job] + record.task_stage[ran], none),
        "job": (job, record.move_job),
        "parallelism": (record.task_parallelism[ran], none),
        "wave": (record.task_wave[ran], none),
    }
    span: dict[str, NDArray[Any]] = {name: np.concatenate(parts) for name, parts in columns.items()}
    for name in ("start", "finish"):
        span[name] = np.rint(np.clip(span[name] / end_ms if end_ms else span[name], 0, 1) * TICKS)
    order = np.lexsort((span["finish"], span["start"], span["executor"]))
    span = {name: column[order].astype(np.int64) for name, column in span.items()}
    start, finish = span["start"], span["finish"]
    before = np.concatenate([[0], finish[:-1]])
    before[np.flatnonzero(np.diff(span["executor"], prepend=-1))] = 0
    # Rounding must not make spans overlap; nor may durations that are no longer than it.
    start = np.maximum(start, before)
    counts = np.bincount(span["executor"], minlength=record.config.num_executors)
    rest = [span[name] for name in ("stage", "job", "parallelism", "wave")]
    return _base64([counts, start - before, np.maximum(finish - start, 0), *rest])


def _base64(columns: list[NDArray[np.int64]]) -> str:
    content = np.concatenate(columns).astype("<u4").tobytes()
    return base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode("ascii")
