"""A virtual cluster that shares its executors fairly: when would each job complete there?

There are two kinds of fair sharing. Where executors are offered after each task, jobs have equal parts of the executors
at all times: fluid processor sharing, as in weighted fair queueing (Demers, Keshav and Shenker, SIGCOMM 1989). Else
they stay with their job until it ends, as under the rule ``fair``, and go to the first jobs below their share.

A job makes progress as if it were alone with its executors. If it is malleable (one stage, tasks of equal means at any
parallelism), that is as many executors' work as it holds; else it follows ``simulator.cluster.alone``, delays included.
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

#: Progress of a job and its executor time, ms, with each number of executors, see ``points_of``: float64 [2, P].
Speed = NDArray[np.float64]


def points_of(config: ClusterConfig) -> tuple[int, ...]:
    """Return the numbers of executors for which the speed of a job is known, ascending."""
    most = config.num_executors
    return (*(each for each in PARALLELISM if each < most), most)


def speed_of(profile: JobProfile, config: ClusterConfig) -> Speed:
    """Return the progress of a job per ms, and its executor time in ms, at each of ``points_of``."""
    points = points_of(config)
    if profile.num_stages == 1 and profile.stages[0].durations.levels.size == 1:
        work_ms = max(profile.work_ms, 1.0)
        return np.array([np.array(points) / work_ms, np.full(len(points), work_ms)])
    times, work = estimate(profile, config, points)
    return np.array([1 / np.maximum(times, 1.0), work.sum(axis=1)])


class VirtualCluster:
    """Jobs on fairly shared executors.

    Args:
        config: the cluster.

    Attributes:
        executors: number of executors, which may change.
        completion_ms: job -> virtual completion time, ms; of a job that is not complete, without further arrivals.
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
            job: its number.
            arrival_ms: its arrival, ms; if it is in the past, the job is added now.
            speed: see ``speed_of``.
            left: share of the job that is left, above 0.
        """
        self.advance(arrival_ms)
        self._jobs.append(job)
        self._speed = np.vstack([self._speed, speed[0]])
        self._left, self._held = np.append(self._left, left), np.append(self._held, 0.0)

    def left(self, job: int) -> float:
        """Return the share of a job that is left; 0 if it is complete or unknown."""
        return float(self._left[self._jobs.index(job)]) if job in self._jobs else 0.0

    def revise(self, job: int, speed: Speed) -> None:
        """Change the speed of a job that is not complete."""
        if job in self._jobs:
            self._speed[self._jobs.index(job)] = speed[0]

    def advance(self, until_ms: float) -> None:
        """Run until a time, ms; an earlier time has no effect."""
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
        """Bring ``completion_ms`` of the jobs that are not complete up to date."""
        end_ms = self._run(math.inf, self._left.copy(), self._held.copy())
        self._note(range(len(end_ms)), end_ms)

    def forget(self, live: set[int]) -> None:
        """Drop jobs that are complete here and not among the live ones."""
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
    """Share executors until a time.

    Args:
        time_ms: the clock, ms.
        until_ms: end, ms; may be infinite.
        left: float64 [J], share of each job that is left, in order of arrival; updated.
        held: float64 [J], executors of each job; updated.
        speed: float64 [J, P], progress of each job per ms.
        points: float64 [P], numbers of executors, ascending.
        executors: executors of the cluster.
        stays: whether executors stay with their job.

    Returns:
        Time when each job ends, float64 [J], ms; infinite for jobs that do not end.
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
            for job in order:  # jobs that can use least leave the rest to the others
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
    """Return the progress of a job per ms."""
    return np.interp(held, points, speed) * min(held / points[0], 1.0)


@compiled
def _hand_out(end_ms, held, most, free, share):  # type: ignore[no-untyped-def]
    """Give free executors to the first jobs below their share, then to those with the fewest executors."""
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
