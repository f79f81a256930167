"""Schedules in Chrome's trace event format, checked against its documentation."""

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.evaluation.comparison import Comparison
from decima.evaluation.decisions import DecisionRecord, decisions
from decima.show.trace_events import trace_events, write_trace_events
from simulator import ClusterConfig, run_episode
from simulator.cluster.metrics import EpisodeMetrics
from tests.decima.episodes import episode
from tests.decima.evaluation.examples import run

#: Phase -> required fields of its events besides ``ph``, ``pid`` and ``tid``. Source: "Trace Event Format", Chromium.
REQUIRED = {
    "M": {"name", "args"}, "X": {"name", "cat", "ts", "dur"}, "b": {"name", "cat", "ts", "id"},
    "e": {"name", "cat", "ts", "id"}, "i": {"name", "cat", "ts", "s"},
}  # fmt: skip
METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Schedulers that keep executors with and without decisions, and a tuned one."""
    cluster = ClusterConfig(num_executors=4, moving_delay_ms=700.0)
    return run(
        "fifo", "fair", "tuned-weighted-fair", "weighted-fair", num_experiments=2, cluster=cluster, arrivals="poisson"
    )


def decided_by(comparison: Comparison, name: str) -> list[DecisionRecord]:
    seed = min(comparison.finished)
    return decisions(comparison.conditions, seed, comparison.scheduler(name, seed))


def written(comparison: Comparison, path: Path) -> Events:
    decided = {name: decided_by(comparison, name) for name in comparison.schedulers}
    write_trace_events(path, comparison.episodes, decided, compress=path.suffix == ".gz")
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    assert document["displayTimeUnit"] in ("ms", "ns")
    return document["traceEvents"]  # type: ignore[no-any-return]


def check(events: Events) -> None:
    """Check the requirements of the format and of its viewers."""
    last: dict[int, int] = {}
    busy: dict[tuple[int, int], int] = defaultdict(int)
    open_jobs = set()
    for event in events:
        assert REQUIRED[event["ph"]] | {"pid", "tid"} <= event.keys(), event
        assert isinstance(event["name"], str)
        assert event["name"]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in METADATA
            [key] = event["args"]
            assert key == ("sort_index" if event["name"].endswith("sort_index") else "name")
            continue
        assert isinstance(event["ts"], int)
        assert event["ts"] >= last.get(event["pid"], 0), "not in order of time"
        last[event["pid"]] = event["ts"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
            where = event["pid"], event["tid"]
            assert event["ts"] >= busy[where], "overlaps on its thread"
            busy[where] = event["ts"] + event["dur"]
        elif event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        else:
            key = event["cat"], event["id"]
            (open_jobs.add if event["ph"] == "b" else open_jobs.remove)(key)
    assert not open_jobs


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_is_what_the_format_asks_for(comparison: Comparison, tmp_path: Path, name: str) -> None:
    events = written(comparison, tmp_path / name)
    check(events)
    processes = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    assert list(processes) == list(comparison.schedulers)
    for scheduler, record in comparison.episodes.items():
        own = [event for event in events if event["pid"] == processes[scheduler]]
        tasks = [event for event in own if event.get("cat") == "task"]
        assert len(tasks) == (record.task_executor >= 0).sum()
        assert sum(event["dur"] for event in tasks) == pytest.approx(
            EpisodeMetrics(record).busy_ms.sum() * 1000, rel=1e-5
        )
        moves = [event for event in own if event.get("cat") == "move"]
        assert len(moves) == record.move_executor.size
        jobs = [event for event in own if event.get("cat") == "job"]
        arrived = [event["ts"] for event in jobs if event["ph"] == "b"]
        assert arrived == np.rint(record.sequence.arrival_ms * 1000).tolist()
        assert {event["tid"] for event in tasks} <= set(range(1, 5))


def test_decisions_are_those_of_the_episode(comparison: Comparison) -> None:
    """Executors move to the jobs of decisions, and the setting of a tuned scheduler reproduces its episode."""
    for scheduler, record in comparison.episodes.items():
        taken = decided_by(comparison, scheduler)
        times = [each.time_ms for each in taken]
        assert times == sorted(times)
        assert 0 < len(taken) <= record.num_decisions
        assert {each.job for each in taken} - {-1} == set(range(len(record.sequence)))
        sent = {(each.job, each.time_ms) for each in taken}
        for job in range(len(record.sequence)):
            first = record.move_depart_ms[record.move_job == job].min()
            assert (job, first) in sent
        seed = comparison.conditions.seed
        again = run_episode(
            comparison.conditions.cluster_of(seed),
            comparison.conditions.sequence(seed),
            comparison.scheduler(scheduler, seed),
        )
        assert again.task_start_ms.tolist() == record.task_start_ms.tolist()


def test_names_are_text_jobs_differ_by_letters_and_unfinished_ones_end_with_the_episode() -> None:
    record = episode()
    evil = '"],"x":[\\ \u2028 </script>'
    profiles = tuple(replace(profile, name=evil) for profile in record.sequence.profiles)
    record = replace(
        record,
        sequence=replace(record.sequence, profiles=profiles),
        completion_ms=np.array([*record.completion_ms[:3], np.nan]),
    )
    events = list(trace_events(1, evil, record, [DecisionRecord(0.0, 6, 0, 0, 6), DecisionRecord(1.5, 2)]))
    check(json.loads(json.dumps(events)))
    names = [event["name"] for event in events if event["ph"] == "b"]
    assert names == [f"{letter} {evil}" for letter in "ABCD"]
    [end] = [event["ts"] for event in events if event["ph"] == "e" and event["name"].startswith("D")]
    assert end == round(record.end_ms * 1000)
    assert [event["name"] for event in events if event["ph"] == "i"] == [f"A {evil}", "idle"]
