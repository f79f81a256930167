"""No job later than a factor times its JCT under fair sharing: due dates from a virtual cluster, and their order.

Each job has a due date: its virtual completion time V plus a slack. A decision is tight if, for some job, the remaining
work of all jobs that are due no later exceeds what the cluster can do until then. As long as no decision is tight, the
scheduler decides; else the job that is due first goes first.

**Theorem**, for moves that take no time, executors that are offered after each task, jobs of one stage with many tasks
of exactly known and equal times: with a slack c that is the same for all jobs and constant, every job completes by
``V + c + 2 p``, where p is the longest task. If c changes, c is its largest value so far. With c = 0 the order is
that of the Fair Sojourn Protocol (Friedman and Henderson, SIGMETRICS 2003), which is no later than processor sharing
for any job. Proof: let S_j be the remaining work of jobs with V_i <= V_j and n the number of executors. In fluid terms
``S_j <= n (V_j + c - t)`` holds at all times: the guard stops the scheduler where it would fail, and a job that arrives
moves V_j by just the work that it has done before V_j. After the last task that starts out of order, executors are busy
with tasks of S_j but for foreign tasks, p at most, and for the last tasks of the job, another p.

The slack here is the least of ``(factor - 1) (V_j - arrival_j)`` over the live jobs. So the factor itself holds but for
2 p, and for the slack used before a job arrived that is shorter than all others. No rule can do better: if a job is
unfinished at V, a stream of tiny jobs, which must all be served at once, delays it as long as they like.

**Measured**, everywhere else: jobs with several stages, moves, executors that stay on their stage until it has no tasks
left, and wrong estimates. There each job has its own slack, ``(factor - 1) (V_j - arrival_j)``, which costs less. Jobs
that are late by less than the time that executors stay on a stage cannot be helped, because no executor is free sooner.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.guarantees.virtual import Speed, VirtualCluster, points_of, speed_of
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["DueDates"]

#: Largest number of virtual completion times of complete jobs that are kept.
MOST_KEPT = 10_000
#: Share of a job that is left at least while it is live.
LEAST_LEFT = 1e-6
#: Keeps rounding errors from hiding a tight job, ms.
ROUNDING_MS = 1e-3


class DueDates:
    """Due dates of the live jobs of one episode, see above.

    Args:
        config: the cluster.
        factor: largest JCT over that under fair sharing, at least 1.
        earlier: due dates of the same jobs on a cluster of another size, until now. Jobs that have ended do not count.

    Attributes:
        virtual: the virtual cluster.
        is_fluid: whether moves take no time and executors are offered after each task, as in the theorem.
        is_simulated: whether the jobs are those of a simulated cluster, whose work is known at their arrival.
        order: int64 [J], live jobs by their due dates.
        ranks: float64 [J], rank of each live job in this order, from 1.
        largest_slack_ms: largest slack that all jobs had in common, ms; 0 if each has its own.
    """

    def __init__(self, config: ClusterConfig, factor: float, earlier: DueDates | None = None) -> None:
        self.virtual = VirtualCluster(config)
        self.largest_slack_ms = 0.0
        self._factor, self._earlier = factor, earlier.virtual if earlier else None
        self.is_fluid = config.semantics.offer_after_tasks and config.moving_delay_ms == 0
        self._speeds: PerJob[list[Speed]] = PerJob(speed_of, list)
        self._points = np.array(points_of(config), dtype=np.float64)
        self.is_simulated = False
        self._can_wait = config.knowledge.is_exact and not config.faults.active
        self._loose_until_ms = -np.inf
        self._known: dict[int, JobProfile] = {}
        self._profiles: tuple[JobProfile, ...] | None = None
        self.order, self.ranks = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._due_ms = self._inflation = np.zeros(0)

    def is_tight(self, observation: Observation) -> bool:
        """Whether jobs that are due first must go first."""
        if observation.profiles is not self._profiles:
            self._update(observation)
        elif observation.time_ms < self._loose_until_ms:
            return False
        order = self.order
        work_ms = observation.work_ms(observation.remaining_tasks + observation.running_executors)
        before_ms = np.cumsum((work_ms * self._inflation)[order])
        executors = max(observation.num_executors, 1)
        room_ms = executors * (self._due_ms[order] - observation.time_ms)
        if self.is_simulated and self._can_wait:  # work grows by arrivals only
            spare_ms = float((room_ms - before_ms).min(initial=np.inf)) / executors
            self._loose_until_ms = observation.time_ms + spare_ms - ROUNDING_MS
        can_help = np.logical_or.accumulate((observation.next_stage >= 0)[order])
        return bool(((before_ms > room_ms) & can_help).any())

    def _update(self, observation: Observation) -> None:
        """Let jobs arrive in the virtual cluster, and set due dates."""
        virtual, speeds = self.virtual, self._speeds(observation)
        jobs, arrival_ms = observation.job_id.tolist(), observation.job_arrival_ms
        total_ms = observation.work_ms(observation.num_tasks)
        left_ms = observation.work_ms(observation.num_tasks - observation.finished_tasks)
        virtual.executors = observation.num_executors
        if self._earlier:
            self._earlier.advance(observation.time_ms)
        for place, (job, profile) in enumerate(zip(jobs, observation.profiles, strict=True)):
            known = self._known.get(job)
            if known is None:
                left, since_ms = 1.0, float(arrival_ms[place])
                if self._earlier and job in self._earlier.completion_ms:
                    left, since_ms = self._earlier.left(job), observation.time_ms
                elif left_ms[place] < total_ms[place]:  # under way: all state was lost
                    left = max(float(left_ms[place] / total_ms[place]), LEAST_LEFT)
                    since_ms = observation.time_ms
                if left:
                    virtual.arrive(job, since_ms, speeds[place], left)
                elif self._earlier:
                    virtual.completion_ms[job] = self._earlier.completion_ms[job]
            elif known is not profile:
                virtual.revise(job, speeds[place])
        self._known = dict(zip(jobs, observation.profiles, strict=True))
        self._earlier = None
        virtual.advance(observation.time_ms)
        virtual.project()
        if len(virtual.completion_ms) > MOST_KEPT:
            virtual.forget(set(jobs))
        virtual_ms = np.array([virtual.completion_ms[job] for job in jobs])
        slack_ms = (self._factor - 1) * np.maximum(virtual_ms - arrival_ms, 0.0)
        if self.is_fluid and len(jobs):
            slack_ms = np.full(len(jobs), slack_ms.min())
            self.largest_slack_ms = max(self.largest_slack_ms, float(slack_ms[0]))
        self._due_ms = virtual_ms + slack_ms
        self.order = np.argsort(self._due_ms, kind="stable")
        self.ranks = _ranks(self.order)
        # Work depends on the number of executors: that with an equal share counts.
        share = observation.num_executors / max(len(jobs), 1)
        expected_ms = np.array([np.interp(share, self._points, speed[1]) for speed in speeds])
        self._inflation = expected_ms / np.maximum(
            np.array([profile.work_ms for profile in observation.profiles]), 1.0
        )
        self._profiles = observation.profiles


def _ranks(order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the rank of each job from 1, float64 [J], given the jobs in order."""
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1.0, len(order) + 1)
    return ranks
