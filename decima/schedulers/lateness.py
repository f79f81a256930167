"""Due dates: no job completes later than a factor times its JCT under fair sharing.

A virtual cluster with fair sharing gives the completion time of each job under fair sharing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.alone import PARALLELISM, estimate
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Observation, PerJob
from simulator.compiled import compiled
from workloads.job import JobProfile

__all__ = ["DueDates", "Speed", "VirtualCluster", "points_of", "speed_of"]

#: Progress of a job per ms and its executor time in ms, at each number of executors of ``points_of``: float64 [2, P].
Speed = NDArray[np.float64]


def points_of(config: ClusterConfig) -> tuple[int, ...]:
    """Return the numbers of executors at which the speeds of jobs are computed, ascending."""
    most = config.num_executors
    return (*(level for level in PARALLELISM if level < most), most)


def speed_of(profile: JobProfile, config: ClusterConfig) -> Speed:
    """Return a job's progress per ms and its executor time in ms, at each of ``points_of``."""
    points = points_of(config)
    if profile.num_stages == 1 and profile.stages[0].durations.levels.size == 1:
        work_ms = max(profile.work_ms, 1.0)
        return np.array([np.array(points) / work_ms, np.full(len(points), work_ms)])
    times, work = estimate(profile, config, points)
    return np.array([1 / np.maximum(times, 1.0), work.sum(axis=1)])


class VirtualCluster:
    """Jobs on a cluster with fair sharing.

    Args:
        config: the cluster.

    Attributes:
        executors: number of executors, which may change.
        completion_ms: job -> virtual completion time, ms; for incomplete jobs, the time without further arrivals.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.executors = config.num_executors
        self.completion_ms: dict[int, float] = {}
        self._points = np.array(points_of(config), dtype=np.float64)
        self._stays = not config.semantics.offer_after_tasks
        self._time_ms = -math.inf
        # Incomplete jobs in order of arrival, a row each.
        self._jobs: list[int] = []
        self._speed = np.zeros((0, len(self._points)))
        self._left, self._held = np.zeros(0), np.zeros(0)

    def arrive(self, job: int, arrival_ms: float, speed: Speed, left: float = 1.0) -> None:
        """Add a job.

        Args:
            job: number of the job.
            arrival_ms: arrival time, ms; a time in the past counts as now.
            speed: speed of the job, see ``speed_of``.
            left: remaining share of the job, above 0.
        """
        self.advance(arrival_ms)
        self._jobs.append(job)
        self._speed = np.vstack([self._speed, speed[0]])
        self._left, self._held = np.append(self._left, left), np.append(self._held, 0.0)

    def left(self, job: int) -> float:
        """Return the remaining share of a job; 0 if the job is complete or unknown."""
        return float(self._left[self._jobs.index(job)]) if job in self._jobs else 0.0

    def revise(self, job: int, speed: Speed) -> None:
        """Change the speed of an incomplete job."""
        if job in self._jobs:
            self._speed[self._jobs.index(job)] = speed[0]

    def advance(self, until_ms: float) -> None:
        """Run until a time, ms; a time in the past has no effect."""
        if until_ms <= self._time_ms:
            return
        end_ms = self._run(until_ms, self._left, self._held)
        if (ended := np.isfinite(end_ms)).any():
            self._note(np.flatnonzero(ended).tolist(), end_ms)
            rest = np.flatnonzero(~ended)
            self._jobs = [self._jobs[index] for index in rest.tolist()]
            self._speed, self._left, self._held = self._speed[rest], self._left[rest], self._held[rest]
        self._time_ms = until_ms

    def project(self) -> None:
        """Update ``completion_ms`` of incomplete jobs."""
        end_ms = self._run(math.inf, self._left.copy(), self._held.copy())
        self._note(range(len(end_ms)), end_ms)

    def forget(self, live: set[int]) -> None:
        """Delete jobs that are complete in the virtual cluster and not among the live jobs."""
        keep = live | set(self._jobs)
        self.completion_ms = {job: end_ms for job, end_ms in self.completion_ms.items() if job in keep}

    def _note(self, indices: Sequence[int], end_ms: NDArray[np.float64]) -> None:
        for index in indices:
            self.completion_ms[self._jobs[index]] = float(end_ms[index])

    def _run(
        self, until_ms: float, left: NDArray[np.float64], held: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        executors = float(max(self.executors, 1))
        return run(self._time_ms, until_ms, left, held, self._speed, self._points, executors, self._stays)  # type: ignore[no-any-return]


@compiled
def run(time_ms, until_ms, left, held, speed, points, executors, stays):  # type: ignore[no-untyped-def]
    """Simulate fair sharing until a time.

    Args:
        time_ms: current time, ms.
        until_ms: end of the simulation, ms; may be infinite.
        left: remaining share of each job in order of arrival, float64 [J]; updated in place.
        held: number of executors of each job, float64 [J]; updated in place.
        speed: progress of each job per ms, float64 [J, P].
        points: numbers of executors, ascending, float64 [P].
        executors: number of executors of the cluster.
        stays: whether executors stay with their job.

    Returns:
        End of each job, float64 [J], ms; infinite for jobs that do not end.
    """
    num_jobs = len(left)
    end_ms, most = np.full(num_jobs, np.inf), np.zeros(num_jobs)
    for job in range(num_jobs):
        most[job] = points[np.argmax(speed[job])]
    order = np.argsort(most)
    while time_ms < until_ms:
        live, free = 0, executors
        for job in range(num_jobs):
            if end_ms[job] == np.inf:
                live += 1
                free -= held[job] if stays else 0.0
        if live == 0:
            break
        if stays:
            _hand_out(end_ms, held, most, free, np.ceil(executors / live - 1e-9))
        else:
            for job in order:  # jobs that can use few executors leave the rest to other jobs
                if end_ms[job] == np.inf:
                    held[job] = min(most[job], free / live)
                    free -= held[job]
                    live -= 1
        step_ms = until_ms - time_ms
        for job in range(num_jobs):
            if end_ms[job] == np.inf and held[job] > 0:
                step_ms = min(step_ms, left[job] / _progress(held[job], points, speed[job]))
        time_ms += step_ms
        for job in range(num_jobs):
            if end_ms[job] == np.inf and held[job] > 0:
                done = _progress(held[job], points, speed[job]) * step_ms
                left[job] -= done
                if left[job] <= 1e-9 * done:
                    left[job], held[job], end_ms[job] = 0.0, 0.0, time_ms
    return end_ms


@compiled
def _progress(held, points, speed):  # type: ignore[no-untyped-def]
    """Return the progress of a job per ms with ``held`` executors."""
    return np.interp(held, points, speed) * min(held / points[0], 1.0)


@compiled
def _hand_out(end_ms, held, most, free, share):  # type: ignore[no-untyped-def]
    """Give free executors to the first jobs below their share, then to jobs with the fewest executors."""
    for job in range(len(held)):
        if end_ms[job] == np.inf and free > 0:
            more = min(free, max(min(share, most[job]) - held[job], 0.0))
            held[job] += more
            free -= more
    while free > 1e-9:
        least = -1
        for job in range(len(held)):
            if end_ms[job] == np.inf and held[job] < most[job] and (least < 0 or held[job] < held[least]):
                least = job
        if least < 0:
            break
        more = min(free, most[least] - held[least])
        held[least] += more
        free -= more


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
        for index, (job, profile) in enumerate(zip(jobs, observation.profiles, strict=True)):
            known_profile = self._known.get(job)
            if known_profile is None:
                left, since_ms = 1.0, float(arrival_ms[index])
                if self._earlier and job in self._earlier.completion_ms:
                    left, since_ms = self._earlier.left(job), observation.time_ms
                elif left_ms[index] < total_ms[index]:  # a running job without state, after a restart
                    left = max(float(left_ms[index] / total_ms[index]), LEAST_LEFT)
                    since_ms = observation.time_ms
                if left:
                    virtual.arrive(job, since_ms, speeds[index], left)
                elif self._earlier:
                    virtual.completion_ms[job] = self._earlier.completion_ms[job]
            elif known_profile is not profile:
                virtual.revise(job, speeds[index])
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
