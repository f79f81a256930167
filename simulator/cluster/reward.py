"""Rewards of a running cluster, from decision to decision, and its carbon emissions."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakMethod

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.objectives import AllJobs, LiveJobs, objective_named
from workloads.arrivals import JobSequence
from workloads.carbon import Signal


class RewardMeter:
    """Rewards from decision to decision (Decima, section 5.3). A shallow copy is independent of the original.

    The rewards of an episode add up to minus the objective's cost, divided by ``reward_scale_ms``: with ``"jct"`` the
    sum of job completion times (of incomplete jobs: times since arrival); with ``"makespan"`` the elapsed time.

    Args:
        deadline_ms: deadline of each job, float64 [jobs], ms.
    """

    def __init__(
        self, config: ClusterConfig, sequence: JobSequence, deadline_ms: NDArray[np.float64]
    ) -> None:
        self._scale_ms = config.reward_scale_ms
        self._objective = objective_named(config.reward)
        self._all_jobs = config.semantics.reward_short_jobs
        self._known = AllJobs.of(sequence, deadline_ms)
        self._live: frozenset[int] = frozenset()
        self._live_jobs = LiveJobs((), self._known)
        self._seen: frozenset[int] = frozenset()  # live at the last step
        self._step_ms = 0.0
        self._counted_ms = 0.0
        self._cost_ms = 0.0
        self._num_arrived, self._num_ended = 0, 0
        #: Signal of the emissions; None if the objective does not use them.
        self._signal = config.signal if self._objective.uses_carbon else None
        self._busy, self._idle = (
            watts / 1000 / 3_600_000 for watts in (config.executor_watts, config.idle_watts)
        )
        self._idle_ms = 0.0
        self._idleness: WeakMethod[Callable[[], tuple[float, int]]] | None = None

    def follow(self, idleness: Callable[[], tuple[float, int]]) -> None:
        """Measure the emissions of a cluster from now on, if the objective uses them.

        Args:
            idleness: method of the cluster, referenced weakly. Returns the total idle time of executors since the
                beginning, ms, and their present number.
        """
        self._idleness = WeakMethod(idleness)

    def settle(self, now_ms: float) -> None:
        """Count emissions until now, before the signal or the number of executors in the cluster changes."""
        if self._signal is not None:
            self._count(now_ms)

    def add_job(self, now_ms: float, job: int, idle_ms: float | None = None) -> None:
        """Start counting a job that arrives.

        Args:
            idle_ms: total idle time of executors until ``now_ms``; by default the cluster's, for the present time.
        """
        self._count(now_ms, idle_ms)
        self._live |= {job}
        self._num_arrived += 1
        self._live_jobs = LiveJobs(self._live, self._known)

    def end_job(self, now_ms: float, job: int, arrival_ms: float, idle_ms: float | None = None) -> None:
        """Stop counting a job that has ended; for ``idle_ms`` see ``add_job``."""
        self._count(now_ms, idle_ms)
        self._live -= {job}
        self._num_ended += 1
        self._live_jobs = LiveJobs(self._live, self._known)
        if not self._all_jobs and job not in self._seen:
            begin_ms = max(arrival_ms, self._step_ms)
            ended = LiveJobs((job,), self._known)
            self._cost_ms -= self._objective.cost_ms(begin_ms, now_ms, ended, self._scale_ms)

    def step(self, now_ms: float) -> float:
        """Return the reward since the last step."""
        if now_ms == self._step_ms and not self._cost_ms:
            self._seen = self._live
            return -0.0
        self._count(now_ms)
        cost_ms = self._cost_ms
        if not self._objective.depends_on_jobs:  # rounding: the sum of the parts is not exactly the whole
            cost_ms = self._objective.cost_ms(self._step_ms, now_ms, self._live_jobs, self._scale_ms)
        self._step_ms, self._cost_ms = now_ms, 0.0
        self._seen = self._live
        return -cost_ms / self._scale_ms

    def _count(self, now_ms: float, idle_ms: float | None = None) -> None:
        """Add the cost from the last count until now."""
        if now_ms > self._counted_ms:
            if self._signal is not None:
                self._live_jobs.carbon = self._emitted(now_ms, self._signal, idle_ms)
            self._cost_ms += self._objective.cost_ms(
                self._counted_ms, now_ms, self._live_jobs, self._scale_ms
            )
            self._counted_ms = now_ms

    def _emitted(self, now_ms: float, signal: Signal, given_ms: float | None) -> float:
        """Return the emissions since the last count, g; at the episode's end, all add up to ``EpisodeRecord.carbon``.

        Idle executors count from the first arrival to the end of the last job.
        """
        idleness = self._idleness and self._idleness()
        idle_ms, present = idleness() if idleness else (0.0, 0)
        idle_ms = idle_ms if given_ms is None else given_ms
        waited_ms, self._idle_ms = idle_ms - self._idle_ms, idle_ms
        busy_ms = max(present * (now_ms - self._counted_ms) - waited_ms, 0.0)
        observed = self._num_arrived > 0 and self._num_ended < len(self._known.arrival_ms)
        used = self._busy * busy_ms + (self._idle * waited_ms if observed else 0.0)
        return signal.at(self._counted_ms) * used
