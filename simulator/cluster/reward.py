"""Rewards of a running cluster: minus the cost, by an objective, that accrues while jobs are in the system.

Completion time and makespan are here, other objectives in ``objectives.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import JobSequence

__all__ = ["COMMON", "RewardMeter", "reward_meter"]

#: Objectives that need no attributes of jobs.
COMMON = ("jct", "makespan")


class RewardMeter:
    """Rewards from decision to decision (Decima, section 5.3). A shallow copy is independent of the original.

    The rewards of an episode add up to minus the objective's cost, divided by ``reward_scale_ms``: with ``"jct"`` the
    sum of job completion times (of incomplete jobs: times since arrival); with ``"makespan"`` the elapsed time.
    """

    #: Whether the cost depends on the idle time of executors.
    measures_emissions = False

    def __init__(self, config: ClusterConfig) -> None:
        self._scale_ms = config.reward_scale_ms
        #: Whether the cost depends on elapsed time alone, not on the jobs in the system.
        self._is_elapsed_time = config.reward == "makespan"
        self._all_jobs = config.semantics.reward_short_jobs
        self._live: frozenset[int] = frozenset()
        self._seen: frozenset[int] = frozenset()  # live at the last step
        self._step_ms = 0.0
        self._counted_ms = 0.0
        self._cost_ms = 0.0
        self._num_arrived, self._num_ended = 0, 0
        self._num_followed = 0  # arrivals and ends of jobs that `follow` has counted

    def follow(self, cluster: BaseCluster) -> None:
        """Count all changes of a cluster since the last call: arrivals and ends of jobs, and settlements."""
        for num_changes, time_ms, idle_ms, executors in cluster._settlements:
            self._follow_jobs(cluster, num_changes)
            self.settle(time_ms, idle_ms, executors)
        cluster._settlements.clear()
        self._follow_jobs(cluster, cluster._num_job_changes)

    def _follow_jobs(self, cluster: BaseCluster, end: int) -> None:
        """Count arrivals and ends of jobs, up to number ``end``."""
        if self._num_followed == end:
            return
        for job, time_ms, idle_ms in cluster._job_changes(self._num_followed, end):
            if job >= 0:
                self.add_job(time_ms, job, idle_ms)
            else:
                self.end_job(time_ms, -1 - job, cluster.sequence.arrival_ms[-1 - job], idle_ms)
        self._num_followed = end

    def settle(self, now_ms: float, idle_ms: float, executors: int) -> None:
        """Count emissions until now, as the signal or the number of executors in the cluster changes.

        Args:
            idle_ms: total idle time of executors until ``now_ms``.
            executors: executors in the cluster from now on.
        """

    def add_job(self, now_ms: float, job: int, idle_ms: float = 0.0) -> None:
        """Start counting a job that arrives; for ``idle_ms``, which only emissions need, see ``settle``."""
        self._count(now_ms, idle_ms)
        self._live |= {job}
        self._num_arrived += 1

    def end_job(self, now_ms: float, job: int, arrival_ms: float, idle_ms: float = 0.0) -> None:
        """Stop counting a job that has ended; for ``idle_ms`` see ``settle``."""
        self._count(now_ms, idle_ms)
        self._live -= {job}
        self._num_ended += 1
        if not self._all_jobs and job not in self._seen:
            self._cost_ms -= self._cost_of(max(arrival_ms, self._step_ms), now_ms, (job,))

    def step(self, now_ms: float, idle_ms: float = 0.0) -> float:
        """Return the reward since the last step; for ``idle_ms`` see ``settle``."""
        if now_ms == self._step_ms and not self._cost_ms:
            self._seen = self._live
            return -0.0
        self._count(now_ms, idle_ms)
        cost_ms = self._cost_ms
        if self._is_elapsed_time:  # rounding: the sum of the parts is not exactly the whole
            cost_ms = self._cost_of(self._step_ms, now_ms, self._live)
        self._step_ms, self._cost_ms = now_ms, 0.0
        self._seen = self._live
        return -cost_ms / self._scale_ms

    def _count(self, now_ms: float, idle_ms: float) -> None:
        """Add the cost from the last count until now."""
        if now_ms > self._counted_ms:
            self._cost_ms += self._cost_of(self._counted_ms, now_ms, self._live)
            self._counted_ms = now_ms

    def _cost_of(self, begin_ms: float, end_ms: float, jobs: Collection[int]) -> float:
        """Return the cost of an interval, ms, in which ``jobs``, numbers in the sequence, are in the system."""
        return end_ms - begin_ms if self._is_elapsed_time else len(jobs) * (end_ms - begin_ms)


def reward_meter(
    config: ClusterConfig, sequence: JobSequence, deadline_ms: NDArray[np.float64]
) -> RewardMeter:
    """Return the meter for a cluster's objective.

    Args:
        deadline_ms: deadline of each job, float64 [jobs], ms.
    """
    if config.reward in COMMON:
        return RewardMeter(config)
    from simulator.cluster.objectives import objective_meter  # most episodes have a common objective

    return objective_meter(config, sequence, deadline_ms)
