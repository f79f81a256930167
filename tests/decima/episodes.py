"""A small episode constructed by hand, for tests of reports."""

import numpy as np

from simulator import ClusterConfig, EpisodeRecord
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations

EXECUTORS, TASKS = 6, 12


def episode(stretch: float = 1.0) -> EpisodeRecord:
    """Four jobs of twelve tasks arrive 10 s apart; each runs two tasks on each of six executors.

    Job 0 has the executors from 1 s on; later jobs wait for the previous one and for 1 s of moving. Task k runs on
    executor k % 6 and takes 4 to 5 s; ``stretch`` multiplies all durations.
    """
    profile = JobProfile("job", (StageProfile(TASKS, TaskDurations.constant(4500.0 * stretch)),))
    duration = np.tile(4000.0 + 200.0 * np.arange(EXECUTORS), (4, 2, 1)) * stretch
    arrival = 10_000.0 * np.arange(4)
    begin = np.zeros((4, EXECUTORS))
    for job in range(4):
        free = begin[job - 1] + duration[job - 1].sum(axis=0) if job else np.zeros(EXECUTORS)
        begin[job] = np.maximum(free, arrival[job]) + 1000.0
    start = np.stack([begin, begin + duration[:, 0]], axis=1)
    finish = start + duration
    return EpisodeRecord(
        config=ClusterConfig(num_executors=EXECUTORS, moving_delay_ms=1000.0),
        sequence=JobSequence((profile,) * 4, arrival),
        task_start_ms=start.ravel(),
        task_finish_ms=finish.ravel(),
        task_executor=np.tile(np.arange(EXECUTORS, dtype=np.int32), 8),
        task_wave=np.tile(np.repeat(np.array([0, 2], np.int8), EXECUTORS), 4),
        task_parallelism=np.full(4 * TASKS, EXECUTORS, np.int32),
        completion_ms=finish.max(axis=(1, 2)),
        move_executor=np.tile(np.arange(EXECUTORS, dtype=np.int32), 4),
        move_job=np.repeat(np.arange(4), EXECUTORS),
        move_depart_ms=begin.ravel() - 1000.0,
        end_ms=float(finish.max()),
        num_decisions=4,
    )
