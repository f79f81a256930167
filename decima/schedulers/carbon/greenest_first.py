"""Greenest intervals first: a job waits for intervals of low carbon intensity as long as its latest end allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.carbon.base import CarbonAware, window_ms, without
from simulator.cluster.alone import alone_ms
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.carbon import Signal

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["GreenestFirst"]

#: Tolerance for rounding errors in the comparison of a job's latest start and the next interval, ms.
ROUNDING_MS = 1e-6


class GreenestFirst(CarbonAware):
    """Run each job in the intervals of lowest carbon intensity before its latest end, around any scheduler.

    The latest end of a job is its arrival plus its time alone plus ``patience`` intervals of the signal, or its
    deadline if this is earlier. A job waits if the intervals with lower values before the latest end are at least as
    long as its remaining time alone. It does not wait without slack.

    Args:
        patience: number of intervals, from 0 to 48, the length of the forecast.
        base: the other scheduler; by default ``priced-srpt``.

    Raises:
        ValueError: ``patience`` is out of range.
    """

    def __init__(self, patience: float = 12.0, base: DecidesStages | None = None) -> None:
        if not 0 <= patience <= 48:
            raise ValueError(f"the patience must be from 0 to 48, got {patience:g}")
        super().__init__(base)
        self.patience = patience
        self._alone = PerJob(lambda profile, config: float(alone_ms(profile, config).min()), np.array)

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
