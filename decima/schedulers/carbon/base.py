"""Common part of the carbon-aware rules: another scheduler, a forecast, busy executors, jobs that are held back."""

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

#: Forecast in intervals of the signal, as in PCAPS: 48 hours. It is exact.
INTERVALS = 48


class CarbonAware(Scheduler):
    """Another scheduler whose decisions depend on a signal; without a signal, as that scheduler.

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
        """Begin an episode."""
        self.base.reset(config)
        self._cluster, self._expected, self._committed = None, None, 0

    def watch(self, cluster: BaseCluster) -> None:
        """Ask this cluster whether a stage or a pool offers its executors."""
        self._cluster = cluster
        if callable(watch := getattr(self.base, "watch", None)):
            watch(cluster)

    def decide(self, observation: Observation) -> Decision | None:
        """Return the decision of the other scheduler, changed by the rule."""
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
        """Return the decision under a signal."""

    def busy(self, observation: Observation) -> int:
        """Return the executors that run, move, or are committed in this round, without those offered.

        Without a cluster to ask, those offered that still run a task count as well.
        """
        classes = observation.classes
        busy = int(classes["executors"].sum() - classes["free"].sum())
        source = None if self._cluster is None else self._cluster.source
        if source is not None and source[1] is not None:  # a stage: its executors are not free
            return busy - observation.offered
        return busy + self._committed


def window_ms(signal: Signal) -> float:
    """Return the length of the forecast: ``INTERVALS`` mean intervals, at most one period, ms."""
    return min(INTERVALS * signal.period_ms / len(signal.value), signal.period_ms)


def without(observation: Observation, held_back: NDArray[np.bool_]) -> Observation:
    """Return an observation where some jobs, bool [J], want no executors."""
    if not held_back.any():
        return observation
    shown = only_jobs(observation, ~held_back)
    shown.stages["unclaimed_tasks"][held_back[shown.stages["job"]]] = 0
    shown.jobs["unsaturated_stages"][held_back] = 0
    return shown


def times_of(profile: JobProfile, config: ClusterConfig) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return time alone and executor time with each limit of ``PARALLELISM`` that the cluster has, ms."""
    limits = tuple(limit for limit in PARALLELISM if limit <= config.num_executors)
    alone_ms, stages_ms = estimate(profile, config, limits)
    return alone_ms, stages_ms.sum(axis=1) + np.array(limits) * config.moving_delay_ms


def join_times(
    times: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the times of all jobs, float64 [J, limits] each."""
    return np.array([alone_ms for alone_ms, _ in times]), np.array([busy_ms for _, busy_ms in times])
