"""Greenest hours first, until a job can wait no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.carbon.base import CarbonAware, window_ms, without
from simulator.cluster.alone import alone_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.carbon import Signal
from workloads.job import JobProfile

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["GreenestFirst"]

#: Keeps rounding errors from making a job wait no longer, ms.
ROUNDING_MS = 1e-6


class GreenestFirst(CarbonAware):
    """Run each job in the greenest hours before its latest end, around any scheduler.

    The latest end is ``patience`` intervals of the signal after the time that the job takes alone, counted from its
    arrival, or its deadline if that is earlier. Of the intervals until then, a job waits for those with the lowest
    values that last as long as the rest of the job takes alone; without time to spare it waits no longer.

    Args:
        patience: number of intervals, at least 0, and at most the forecast of 48.
        base: the other scheduler; by default ``priced-srpt``.

    Raises:
        ValueError: the patience is out of range.
    """

    def __init__(self, patience: float = 12.0, base: DecidesStages | None = None) -> None:
        if not 0 <= patience <= 48:
            raise ValueError(f"the patience must be from 0 to 48, got {patience:g}")
        super().__init__(base)
        self.patience = patience
        self._alone = PerJob(_alone, np.array)

    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the other scheduler's decision for the jobs that do not wait."""
        shown = without(observation, self._waits(observation, signal))
        return self.base.decide(shown) if shown.num_schedulable else None

    def _waits(self, observation: Observation, signal: Signal) -> NDArray[np.bool_]:
        now, value = observation.time_ms, signal.at(observation.time_ms)
        alone = self._alone(observation)
        work = observation.work_ms(observation.remaining_tasks)
        needed = alone * np.minimum(work / np.maximum(observation.job_first_work_ms, 1.0), 1.0)
        patience_ms = min(self.patience * signal.period_ms / len(signal.value), window_ms(signal))
        end = np.minimum(observation.job_arrival_ms + patience_ms + alone, observation.job_deadline_ms)
        begins, values = signal.ahead(now, window_ms(signal))
        next_change = signal.next_change_ms(now)
        waits = np.zeros(len(observation.jobs), np.bool_)
        for job in range(len(waits)):
            if end[job] - needed[job] < next_change - ROUNDING_MS:
                continue
            ends = np.minimum([*begins[1:], max(end[job], begins[-1])], end[job])
            lengths = np.maximum(ends - begins, 0.0)
            waits[job] = lengths[values < value].sum() >= needed[job] > 0
        return waits


def _alone(profile: JobProfile, config: ClusterConfig) -> float:
    return float(alone_ms(profile, config).min())
