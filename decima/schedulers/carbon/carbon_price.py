"""A price of carbon determines the start and the number of executors of each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.carbon.base import CarbonAware, join_times, times_of, window_ms
from simulator.cluster.alone import PARALLELISM
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.carbon import Signal

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["CarbonPrice"]


class CarbonPrice(CarbonAware):
    """Trade off the carbon of each job against its completion time, around any scheduler.

    A gram of carbon has the value of ``seconds`` of a job's completion time. A job's parallelism limit minimises the
    sum of its time alone and its carbon at the current intensity, since with more executors tasks take longer and
    executors move more often. The job starts at the time in the forecast with the least sum of waiting time and carbon,
    and waits until then. Its carbon is the product of remaining work and mean intensity during its remaining time
    alone. So large jobs wait, and small jobs hardly ever wait. A job without other jobs waits at most ``seconds`` times
    its carbon at arrival, since each wait saves more than it costs.

    Args:
        seconds: value of a gram of carbon (or of a unit of money), s, at least 0.
        base: the other scheduler; by default ``priced-srpt``.

    Raises:
        ValueError: ``seconds`` is negative.
    """

    def __init__(self, seconds: float = 20.0, base: DecidesStages | None = None) -> None:
        if not seconds >= 0:
            raise ValueError(f"the value of a gram must not be negative, got {seconds:g}")
        super().__init__(base)
        self.seconds = seconds
        self._times = PerJob(times_of, join_times)

    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the other scheduler's decision for the jobs that do not wait."""
        if not self.seconds:
            return self.base.decide(observation)
        return self.decide_within(
            observation, self._waits(observation, signal), self._limits(observation, signal)
        )

    def _kilowatts(self, observation: Observation) -> float:
        return observation.config.executor_watts / 1000

    def _limits(self, observation: Observation, signal: Signal) -> NDArray[np.int64]:
        """Return the parallelism limit of each job, int64 [J]."""
        alone_ms, busy_ms = self._times(observation)
        grams_per_ms = self._kilowatts(observation) * signal.at(observation.time_ms) / 3_600_000
        best = (alone_ms + 1000 * self.seconds * grams_per_ms * busy_ms).argmin(axis=1)
        limits: NDArray[np.int64] = np.array(PARALLELISM)[best]
        return limits

    def _waits(self, observation: Observation, signal: Signal) -> NDArray[np.bool_]:
        work = observation.work_ms(observation.remaining_tasks)
        share = np.minimum(work / np.maximum(observation.job_first_work_ms, 1.0), 1.0)
        takes_ms = np.maximum(self._times(observation)[0].min(axis=1) * share, 1.0)[:, None]
        begins = signal.ahead(observation.time_ms, window_ms(signal))[0][None, :]
        mean = signal.integral(begins, begins + takes_ms) / takes_ms
        grams = work[:, None] * mean * self._kilowatts(observation) / 3_600_000
        cost_ms = (begins - observation.time_ms) + 1000 * self.seconds * grams
        waits: NDArray[np.bool_] = cost_ms.argmin(axis=1) > 0
        return waits
