"""Job profiles from a live log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from decima.service.log import LogError
from decima.service.replay import Replayed
from simulator.cluster.record import EpisodeRecord
from workloads.job import JobProfile, StageProfile, TaskDurations
from workloads.sources.workload_file import Workload

__all__ = ["live_workload"]


def live_workload(found: Iterable[Replayed], name: str) -> tuple[Workload, int]:
    """Return the complete jobs of a live log as a workload, and the number of omitted jobs.

    All tasks of a stage have the stage's mean duration as reported by the driver, or else as estimated by the replay.
    Incomplete jobs and stages that Spark skipped are omitted.

    Args:
        found: replays of the drivers.
        name: display name of the workload.

    Raises:
        LogError: no job is complete.
    """
    profiles: list[JobProfile] = []
    names: Counter[str] = Counter()
    left_out = 0
    for each in found:
        for profile, complete in _measured(each.record):
            if not complete or profile is None:
                left_out += 1
                continue
            names[profile.name] += 1
            number = names[profile.name]
            # Equal names get a number, as in imports of event logs; the service ignores the number in look-ups.
            unique = profile.name if number == 1 else f"{profile.name} ({number})"
            profiles.append(JobProfile(unique, profile.stages, profile.edges))
    if not profiles:
        raise LogError("no job of the log is complete")
    return Workload(tuple(profiles), name=name, about={"source": "live log", "jobs": len(profiles)}), left_out


def _measured(record: EpisodeRecord) -> Iterator[tuple[JobProfile | None, bool]]:
    """Yield each job's profile with measured durations (None without any), and whether the job is complete."""
    lasted_ms = record.task_finish_ms - record.task_start_ms
    task = 0
    for job, profile in enumerate(record.sequence.profiles):
        stages: dict[int, StageProfile] = {}
        for number, stage in enumerate(profile.stages):
            tasks = lasted_ms[task : task + stage.num_tasks]
            task += stage.num_tasks
            if stage.durations.values.any():
                stages[number] = stage
            elif not np.isnan(tasks).all():
                mean_ms = max(float(np.nanmean(tasks)), 1.0)
                stages[number] = StageProfile(stage.num_tasks, TaskDurations.constant(mean_ms), stage.name)
        place = {number: index for index, number in enumerate(stages)}
        kept = [pair for pair in profile.edges.tolist() if place.keys() >= set(pair)]
        edges = np.array([(place[parent], place[child]) for parent, child in kept], dtype=np.int64).reshape(
            -1, 2
        )
        measured = JobProfile(profile.name, tuple(stages.values()), edges) if stages else None
        yield measured, not np.isnan(record.completion_ms[job])
