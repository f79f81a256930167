"""Schedules in Chrome's trace event format, for Perfetto and ``chrome://tracing``.

Source: "Trace Event Format" of the Chromium project. A scheduler is a process, and an executor is one of its threads.
Tasks and moves are complete events, jobs are asynchronous events, and decisions are instant events on a further thread.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.job import Wave

if TYPE_CHECKING:
    from decima.evaluation.decisions import DecisionRecord
    from simulator.cluster.record import EpisodeRecord

#: Thread of decisions; executors are threads from 1.
DECISIONS = 0
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Event = dict[str, Any]


def write_trace_events(
    path: Path,
    episodes: Mapping[str, EpisodeRecord],
    decisions: Mapping[str, Sequence[DecisionRecord]],
    *,
    compress: bool = False,
) -> None:
    """Write episodes of one job sequence, by scheduler, with decisions if known.

    For decisions see ``decima.evaluation.decisions``. Both programs that show such files also read gzip.
    """
    events = chain.from_iterable(
        trace_events(index, name, record, decisions.get(name, ()))
        for index, (name, record) in enumerate(episodes.items(), start=1)
    )
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) if compress else raw as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for index, event in enumerate(events):
            line = json.dumps(event, separators=(",", ":"), allow_nan=False)
            file.write(f"{',' if index else ''}{line}\n".encode())
        file.write(b"]}\n")


def trace_events(
    process: int, scheduler: str, record: EpisodeRecord, decisions: Sequence[DecisionRecord] = ()
) -> Iterator[Event]:
    """Yield the events of an episode: names of process and threads, then all other events in order of time.

    Times are integer microseconds. Each job's name starts with distinct letters, as Perfetto derives colours from the
    characters of a name that are no digits. Process numbers begin at 1.
    """
    names = [profile.name for profile in record.sequence.profiles]
    labels = [f"{_letters(job)} {name}".strip() for job, name in enumerate(names)]
    yield _event(process, DECISIONS, "M", "process_name", 0, {"name": scheduler})
    yield _event(process, DECISIONS, "M", "process_sort_index", 0, {"sort_index": process})
    yield _event(process, DECISIONS, "M", "thread_name", 0, {"name": "decisions"})
    for executor in range(record.config.num_executors):
        thread = executor + 1
        yield _event(process, thread, "M", "thread_name", 0, {"name": f"executor {executor}"})
        yield _event(process, thread, "M", "thread_sort_index", 0, {"sort_index": thread})
    events = [
        *_tasks(process, record, labels),
        *_moves(process, record, labels),
        *_jobs(process, record, labels),
        *_decisions(process, decisions, labels),
    ]
    # The sort is stable, so a job of zero length begins before it ends.
    yield from sorted(events, key=lambda event: event["ts"])


def _event(
    process: int, thread: int, phase: str, name: str, begin: int, args: Event, **others: object
) -> Event:
    return {"name": name, "ph": phase, "ts": begin, "pid": process, "tid": thread, "args": args, **others}


def _tasks(process: int, record: EpisodeRecord, labels: Sequence[str]) -> Iterator[Event]:
    ran = np.flatnonzero(record.task_executor >= 0)
    start, finish = (
        _microseconds(times[ran], record) for times in (record.task_start_ms, record.task_finish_ms)
    )
    columns = (
        record.task_executor,
        record.task_job,
        record.task_stage,
        record.task_wave,
        record.task_parallelism,
    )
    rows = (column[ran].tolist() for column in columns)
    for begin, end, executor, job, stage, wave, parallelism in zip(start, finish, *rows, strict=True):
        args = {
            "job": job,
            "stage": stage,
            "stage name": record.sequence.profiles[job].stages[stage].name,
            "wave": Wave(wave).name.lower(),
            "parallelism": parallelism,
        }
        duration = end - begin
        yield _event(process, executor + 1, "X", labels[job], begin, args, cat="task", dur=duration)


def _moves(process: int, record: EpisodeRecord, labels: Sequence[str]) -> Iterator[Event]:
    start, finish = (_microseconds(times, record) for times in (record.move_depart_ms, record.move_arrive_ms))
    rows = (column.tolist() for column in (record.move_executor, record.move_job))
    for begin, end, executor, job in zip(start, finish, *rows, strict=True):
        args, look = {"job": job, "to": labels[job]}, {"cat": "move", "cname": "grey"}
        yield _event(process, executor + 1, "X", "move", begin, args, dur=end - begin, **look)


def _jobs(process: int, record: EpisodeRecord, labels: Sequence[str]) -> Iterator[Event]:
    """Yield begin and end of each job; unfinished jobs end with the episode."""
    arrival = _microseconds(record.sequence.arrival_ms, record)
    departure = _microseconds(np.nan_to_num(record.completion_ms, nan=record.end_ms), record)
    for job, (begin, end) in enumerate(zip(arrival, departure, strict=True)):
        args = {"job": job, "name": record.sequence.profiles[job].name}
        for phase, at in (("b", begin), ("e", max(begin, end))):
            yield _event(process, DECISIONS, phase, labels[job], at, args, cat="job", id=f"{process}.{job}")


def _decisions(process: int, decisions: Sequence[DecisionRecord], labels: Sequence[str]) -> Iterator[Event]:
    for index, decision in enumerate(decisions):
        args, name = {"number": index, "offered": decision.offered}, "idle"
        if decision.job >= 0:
            args |= {"job": decision.job, "stage": decision.stage, "limit": decision.limit}
            name = labels[decision.job]
        begin = round(decision.time_ms * 1000)
        yield _event(process, DECISIONS, "i", name, begin, args, cat="decision", s="t")


def _microseconds(times_ms: np.ndarray[Any, np.dtype[np.float64]], record: EpisodeRecord) -> list[int]:
    """Return times in integer microseconds, at most the episode's end; adjacent spans stay adjacent."""
    microseconds: list[int] = np.rint(np.minimum(times_ms, record.end_ms) * 1000).astype(np.int64).tolist()
    return microseconds


def _letters(index: int) -> str:
    """Return a number in letters: A, B, .., Z, AA, AB, .."""
    text = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, len(LETTERS))
        text = LETTERS[letter] + text
    return text
