"""Due dates: no job completes later than a factor times its JCT under fair sharing.

The due date of a job is its completion time V in a virtual cluster with fair sharing, plus a slack. A decision is tight
if, for some job, the remaining work of all jobs with no later due dates exceeds the capacity of the cluster until the
job's due date. In a tight decision the job that is due first goes first; otherwise the scheduler decides.

**Theorem.** Assume that moves take no time, executors are offered after each task, and each job is one stage of many
tasks of known, equal durations. With a constant slack c, equal for all jobs, each job completes by ``V + c + 2 p``,
where p is the duration of the longest task. If c changes, c is its largest value so far. With c = 0 the order is the
Fair Sojourn Protocol (Friedman and Henderson, SIGMETRICS 2003), under which no job is later than under processor
sharing. Proof: let S_j be the remaining work of jobs with V_i <= V_j, n the number of executors, and t the time. In the
fluid limit ``S_j <= n (V_j + c - t)`` always holds: the guard overrules decisions that would violate it, and an
arriving job increases V_j by exactly the work that it gets before V_j. After the last task that starts out of order,
executors run tasks of S_j, except for at most p for other jobs' tasks, and at most p for the job's last tasks.

The slack here is the minimum of ``(factor - 1) (V_j - arrival_j)`` over the live jobs. So the factor holds, except for
2 p and for the slack used before the arrival of a job that is shorter than all others. No rule can guarantee more: if a
job is incomplete at V, a stream of tiny jobs, which must all be served immediately, delays the job without bound.

**Without a theorem**, the lateness is only measured: with several stages, moves, executors that stay on their stage
until it has no tasks left, or wrong estimates. In these cases each job has its own slack ``(factor - 1) (V_j -
arrival_j)``, which costs less. A job may be late by the time that executors stay on a stage, as no executor is free
before.
"""

from __future__ import annotations

import numpy as np

from decima.schedulers.guarantees.virtual import Speed, VirtualCluster, points_of, speed_of
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from workloads.job import JobProfile

__all__ = ["DueDates"]

#: Maximum number of stored virtual completion times.
MOST_KEPT = 10_000
#: Minimum remaining share of a live job.
LEAST_LEFT = 1e-6
#: Tolerance for rounding errors in the time until the next tight decision, ms.
ROUNDING_MS = 1e-3


class DueDates:
    """Due dates of the live jobs of one episode, see the module.

    Args:
        config: the cluster.
        factor: maximum ratio of a job's JCT and its JCT under fair sharing, at least 1.
        earlier: due dates of the same jobs on a cluster of another size, until now.

    Attributes:
        virtual: the virtual cluster.
        is_fluid: whether moves take no time and executors are offered after each task, as in the theorem.
        is_simulated: whether the cluster is simulated, so that the work of jobs is known at their arrival.
        order: live jobs in order of their due dates, int64 [J].
        ranks: rank of each live job in this order, from 1, float64 [J].
        largest_slack_ms: largest slack common to all jobs, ms; 0 if each job has its own slack.
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
        """Return whether the decision is tight, so that the job that is due first must go first."""
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
        """Add arrived jobs to the virtual cluster, and update due dates."""
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
                elif left_ms[place] < total_ms[place]:  # a running job without state, after a restart
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
        self.ranks = np.empty(len(jobs))
        self.ranks[self.order] = np.arange(1.0, len(jobs) + 1)
        # Work depends on the number of executors. Use the work with an equal share.
        share = observation.num_executors / max(len(jobs), 1)
        expected_ms = np.array([np.interp(share, self._points, speed[1]) for speed in speeds])
        work_ms = np.array([profile.work_ms for profile in observation.profiles])
        self._inflation = expected_ms / np.maximum(work_ms, 1.0)
        self._profiles = observation.profiles
