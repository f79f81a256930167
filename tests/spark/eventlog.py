"""Spark's event log of the named jobs of a test."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Task:
    """One task attempt; times in ms.

    It ends when the executor reports it, which frees the core; Spark notes its end later, when it has read the
    result.
    """

    job: str
    stage: int
    executor: str
    launched: int
    ended: int
    finished: int
    succeeded: bool
    attempt: int


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of the one application whose log is in the folder, running or ended."""
    [path] = [path for path in folder.iterdir() if path.name.startswith(("app-", "local-", "spark-"))]
    yield from events_of(path)


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of an application."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # the last may be half written
            yield json.loads(line)


def read_tasks(folder: Path) -> list[Task]:
    """Return the tasks of jobs that have a description, in order of launch."""
    names: dict[int, str] = {}
    tasks = []
    for event in events(folder):
        match event["Event"]:
            case "SparkListenerStageSubmitted":
                name = (event.get("Properties") or {}).get("spark.job.description")
                names[event["Stage Info"]["Stage ID"]] = name
            case "SparkListenerTaskEnd":
                info, metrics = event["Task Info"], event.get("Task Metrics") or {}
                busy = sum(metrics.get(f"Executor {part} Time", 0) for part in ("Deserialize", "Run"))
                task = Task(
                    names.get(event["Stage ID"]) or "",
                    event["Stage ID"],
                    info["Executor ID"],
                    info["Launch Time"],
                    min(info["Launch Time"] + busy, info["Finish Time"]),
                    info["Finish Time"],
                    event["Task End Reason"]["Reason"] == "Success",
                    info["Attempt"],
                )
                tasks.append(task)
    return sorted((task for task in tasks if task.job), key=lambda task: task.launched)


def launches(tasks: Iterable[Task]) -> str:
    """Return the names of the jobs by launch, such as ``AABB``."""
    return "".join(task.job for task in tasks)


def most_at_once(tasks: Iterable[Task]) -> int:
    """Return the maximum number of tasks at once. At equal times ends come before starts."""
    changes = sorted(change for task in tasks for change in ((task.launched, 1), (task.ended, -1)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def gaps(tasks: Iterable[Task]) -> list[int]:
    """Return the idle times of executors with one slot between two tasks, sorted, ms."""
    last: dict[str, Task] = {}
    found = []
    for task in tasks:
        if task.executor in last:
            found.append(max(0, task.launched - last[task.executor].finished))
        last[task.executor] = task
    return sorted(found)
