"""A virtual cluster with fair sharing, which gives the completion time of each job under fair sharing.

There are two kinds of fair sharing. If executors are offered after each task, jobs always have equal parts of the
executors: fluid processor sharing, as in weighted fair queueing (Demers, Keshav and Shenker, SIGCOMM 1989). Otherwise
executors stay with their job until it ends, as under the rule ``fair``, and go to the first jobs below their share.

A job makes progress as if it were alone with its executors. The progress of a malleable job (one stage, equal mean task
durations at each parallelism level) is proportional to its number of executors. The progress of other jobs is estimated
by ``simulator.cluster.alone``, including delays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.alone import PARALLELISM, estimate
from simulator.cluster.config import ClusterConfig
from simulator.compiled import compiled
from workloads.job import JobProfile

__all__ = ["Speed", "VirtualCluster", "points_of", "speed_of"]

#: Progress of a job per ms and its executor time in ms, at each number of executors of ``points_of``: float64 [2, P].
Speed = NDArray[np.float64]


def points_of(config: ClusterConfig) -> tuple[int, ...]:
    """Return the numbers of executors at which the speeds of jobs are computed, ascending."""
    most = config.num_executors
    return (*(each for each in PARALLELISM if each < most), most)


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
            self._jobs = [self._jobs[place] for place in rest.tolist()]
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

    def _note(self, places: Sequence[int], end_ms: NDArray[np.float64]) -> None:
        for place in places:
            self.completion_ms[self._jobs[place]] = float(end_ms[place])

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
