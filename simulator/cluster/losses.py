"""Executors that join or are lost, failed jobs, and errors of episodes that cannot go on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.errors import SchedulingError

if TYPE_CHECKING:
    from simulator.cluster.base import BaseCluster

__all__ = ["change_executors", "log_of_losses", "standstill", "too_many_losses"]


def change_executors(cluster: BaseCluster, executors: list[int], classes: list[int], *, joins: bool) -> None:
    """Record that executors of the given classes join the cluster, or are lost."""
    cluster._changes += [(executor, cluster.now_ms, joins) for executor in executors]
    cluster._classes = cluster._classes.copy()
    np.add.at(cluster._classes["executors"], classes, 1 if joins else -1)
    if cluster.config.signal is not None:
        cluster._settle()
    cluster._num_losses += 0 if joins else len(executors)


def log_of_losses(cluster: BaseCluster) -> dict[str, Any]:
    """Return the attributes of the record about failed jobs, and about executors that were lost or joined."""
    completion_ms = cluster.completion_ms
    changes = cluster._job_changes(0, cluster._num_job_changes)
    ended = ((-1 - job, time_ms) for job, time_ms, _ in changes if job < 0)
    failed = [(job, time_ms) for job, time_ms in ended if math.isnan(completion_ms[job])]
    failures, executors = np.array(failed, dtype="i8, f8"), np.array(cluster._changes, dtype="i4, f8, ?")
    return {
        "failed_job": failures["f0"],
        "failed_ms": failures["f1"],
        "change_executor": executors["f0"],
        "change_ms": executors["f1"],
        "change_joins": executors["f2"],
    }


def too_many_losses(cluster: BaseCluster) -> SchedulingError:
    """Return the error of an episode in which executors are lost too often for live jobs to end."""
    return SchedulingError(
        f"{_first_job(cluster)} cannot complete: executors were lost {cluster._num_losses:,} times since a job"
        " arrived or ended"
    )


def standstill(cluster: BaseCluster) -> SchedulingError:
    """Return the error of an episode in which jobs are left and no event is pending."""
    lost = cluster.config.num_executors - int(cluster._classes["executors"].sum())
    if not lost:
        return SchedulingError(
            "all executors are idle and nothing is pending, but"
            f" {len(cluster._build_observation().jobs)} jobs are not complete"
        )
    return SchedulingError(
        f"{_first_job(cluster)} cannot complete: {lost} executors are lost, and the others are idle"
    )


def _first_job(cluster: BaseCluster) -> str:
    """Return number and name of the first live job."""
    job = int(cluster._build_observation().job_id[0])
    return f"job {job} ({cluster.sequence.profiles[job].name})"
