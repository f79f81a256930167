"""What happened in an episode: every task run, every job, every executor move, as arrays and pandas tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.config import ClusterConfig
from workloads.arrivals import JobSequence

__all__ = ["EpisodeRecord"]


@dataclass(frozen=True, eq=False)
class EpisodeRecord:
    """One episode. Tasks are numbered job by job, stage by stage, in the order in which a stage hands them out.

    Attributes:
        config: the cluster.
        sequence: the jobs.
        task_start_ms: float64 [num_tasks], ms; NaN where a task never started.
        task_finish_ms: float64 [num_tasks], ms; NaN where a task never started.
        task_executor: int32 [num_tasks]; -1 where a task never started.
        task_wave: int8 [num_tasks], a ``workloads.Wave``; -1 where a task never started.
        task_parallelism: int32 [num_tasks], executors attached to the job when the task started.
        completion_ms: float64 [num_jobs], ms; NaN for a job that did not complete.
        move_executor: int32 [num_moves]; moves in order of departure.
        move_job: int64 [num_moves], the job moved to.
        move_depart_ms: float64 [num_moves], ms.
        end_ms: the clock when the episode ended, ms.
        num_decisions: decisions that the scheduler was asked for.
    """

    config: ClusterConfig
    sequence: JobSequence
    task_start_ms: NDArray[np.float64]
    task_finish_ms: NDArray[np.float64]
    task_executor: NDArray[np.int32]
    task_wave: NDArray[np.int8]
    task_parallelism: NDArray[np.int32]
    completion_ms: NDArray[np.float64]
    move_executor: NDArray[np.int32]
    move_job: NDArray[np.int64]
    move_depart_ms: NDArray[np.float64]
    end_ms: float
    num_decisions: int
