"""Common parts of the carbon-aware rules: base class, forecast, and observations in which some jobs wait."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, num_committed, only_jobs
from decima.schedulers.priced_srpt import PricedSrpt
from simulator.cluster.alone import PARALLELISM, estimate
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.carbon import Signal
from workloads.job import JobProfile

if TYPE_CHECKING:
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.episode import DecidesStages

__all__ = ["CarbonAware", "join_times", "times_of", "window_ms", "without"]

#: Length of the exact forecast, in intervals of the signal: 48 hours, as in PCAPS.
INTERVALS = 48


class CarbonAware(Scheduler):
    """Base class: modify the decisions of another scheduler by a signal. Without a signal they are unchanged.

    Args:
        base: the other scheduler; by default ``priced-srpt``.
    """

    def __init__(self, base: DecidesStages | None = None) -> None:
        self.base = PricedSrpt() if base is None else base
        self.learned: bool = getattr(self.base, "learned", False)
        self._cluster: BaseCluster | None = None
        self._expected: tuple[float, int] | None = None
        self._committed = 0

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode."""
        self.base.reset(config)
        self._cluster, self._expected, self._committed = None, None, 0

    def watch(self, cluster: BaseCluster) -> None:
        """Set the simulated cluster, which reports whether a stage or a pool offers executors."""
        self._cluster = cluster
        if callable(watch := getattr(self.base, "watch", None)):
            watch(cluster)

    def decide(self, observation: Observation) -> Decision | None:
        """Return the other scheduler's decision as modified by the rule."""
        if (signal := observation.config.signal) is None:
            return self.base.decide(observation)
        now = float(observation.time_ms)
        if self._expected != (now, observation.offered):
            self._committed = 0
        decision = self.adapt(observation, signal)
        self._expected = None
        if decision is not None:
            count = num_committed(observation, decision)
            self._committed += count
            self._expected = now, observation.offered - count
        return decision

    @abstractmethod
    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the rule's decision under a signal."""

    def decide_within(
        self, observation: Observation, waits: NDArray[np.bool_], limits: NDArray[np.int64]
    ) -> Decision | None:
        """Return the other scheduler's decision for jobs that do not wait and are below their limits, [J] each."""
        held = observation.job_executors.copy()
        if observation.source >= 0:
            held[observation.source] -= observation.offered
        shown = without(observation, waits | (held >= limits))
        if not shown.num_schedulable or (decision := self.base.decide(shown)) is None:
            return None
        job = observation.stage_job[decision.stage]
        return Decision(decision.stage, min(decision.limit, int(limits[job])))

    def busy(self, observation: Observation) -> int:
        """Return the number of executors that run, move, or are committed in this round, without offered executors.

        Without a simulated cluster, offered executors that still run a task are included.
        """
        classes = observation.classes
        busy = int(classes["executors"].sum() - classes["free"].sum())
        source = None if self._cluster is None else self._cluster.source
        if (
            source is not None and source[1] is not None
        ):  # the source is a stage, whose executors are not free
            return busy - observation.offered
        return busy + self._committed


def window_ms(signal: Signal) -> float:
    """Return the length of the forecast: ``INTERVALS`` mean intervals, at most one period, ms."""
    return min(INTERVALS * signal.period_ms / len(signal.value), signal.period_ms)


def without(observation: Observation, held_back: NDArray[np.bool_]) -> Observation:
    """Return an observation in which some jobs, bool [J], need no executors."""
    if not held_back.any():
        return observation
    shown = only_jobs(observation, ~held_back)
    shown.stages["unclaimed_tasks"][held_back[shown.stages["job"]]] = 0
    shown.jobs["unsaturated_stages"][held_back] = 0
    return shown


def times_of(profile: JobProfile, config: ClusterConfig) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a job's time alone and its executor time at each limit, float64 [limits] each, ms.

    Limits are the values of ``PARALLELISM`` up to the number of executors.
    """
    limits = tuple(limit for limit in PARALLELISM if limit <= config.num_executors)
    alone_ms, stages_ms = estimate(profile, config, limits)
    return alone_ms, stages_ms.sum(axis=1) + np.array(limits) * config.moving_delay_ms


def join_times(
    times: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the results of :func:`times_of` for all jobs as two arrays, float64 [J, limits] each, ms."""
    return np.array([alone_ms for alone_ms, _ in times]), np.array([busy_ms for _, busy_ms in times])
