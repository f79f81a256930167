"""Rewards by an objective that depends on the emissions of a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.objectives import LiveJobs, ObjectiveMeter

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import JobSequence

__all__ = ["EmissionMeter"]


class EmissionMeter(ObjectiveMeter):
    """Rewards whose objective uses the emissions between two counts; the cluster has a signal."""

    measures_emissions = True

    def __init__(
        self, config: ClusterConfig, sequence: JobSequence, deadline_ms: NDArray[np.float64]
    ) -> None:
        super().__init__(config, sequence, deadline_ms)
        assert config.signal is not None
        self._signal = config.signal
        self._busy, self._idle = (
            watts / 1000 / 3_600_000 for watts in (config.executor_watts, config.idle_watts)
        )
        self._idle_ms = self._carbon = 0.0
        self._executors = config.num_executors

    def settle(self, now_ms: float, idle_ms: float, executors: int) -> None:
        """See ``RewardMeter.settle``."""
        self._count(now_ms, idle_ms)
        self._executors = executors

    def _count(self, now_ms: float, idle_ms: float) -> None:
        if now_ms > self._counted_ms:
            self._carbon = self._emitted(now_ms, idle_ms)
        super()._count(now_ms, idle_ms)

    def _live_jobs(self, jobs: Collection[int]) -> LiveJobs:
        live = super()._live_jobs(jobs)
        live.carbon = self._carbon if jobs is self._live else 0.0
        return live

    def _emitted(self, now_ms: float, idle_ms: float) -> float:
        """Return the emissions since the last count, g; at the episode's end, all add up to ``EpisodeMetrics.carbon``.

        Idle executors count from the first arrival to the end of the last job.
        """
        waited_ms, self._idle_ms = idle_ms - self._idle_ms, idle_ms
        busy_ms = max(self._executors * (now_ms - self._counted_ms) - waited_ms, 0.0)
        observed = self._num_arrived > 0 and self._num_ended < len(self._all.arrival_ms)
        used = self._busy * busy_ms + (self._idle * waited_ms if observed else 0.0)
        return self._signal.at(self._counted_ms) * used
