"""Rules with a price of carbon, which determines the start and the number of executors of each job.

``CarbonPrice`` trades carbon off against completion times. ``CarbonSlack`` also has a price of missed deadlines: a job
waits for a time of low intensity if its deadline allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.carbon_aware import CarbonAware, join_times, times_of, window_ms
from decima.schedulers.decisions import check_positive
from decima.schedulers.objectives import LeastSlack
from simulator.cluster.alone import PARALLELISM
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.carbon import Signal

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages

__all__ = ["CarbonPrice", "CarbonSlack", "CarbonSlackConstants"]


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
        base: the other scheduler; by default ``srpt``.

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


#: Maximum exponent in the probability of a missed deadline.
FARTHEST = 30.0
#: Constants of the default scheduler ``least-slack``, found by the same search as the constants of the rule.
ORDER = {
    "price_in_stream": 2.51,
    "least_price_in_stream": 7.25,
    "useful_multiple": 1.14,
    "leave_min_delays": 5.24,
    "move_min_delays": 2.36,
}


class CarbonSlackConstants(NamedTuple):
    """Constants of ``carbon-slack``, found by a search (CMA-ES) on streams of TPC-H jobs with deadlines.

    Attributes:
        seconds: value of a gram of carbon, s of a job's completion time.
        missed: value of a missed deadline, in times of the job alone.
        margin: factor on the remaining time of a job alone.
        spread: uncertainty of a job's end, as a share of its remaining time alone.
        crowding: time added for other jobs, as a share of the time that all executors need for the work of these jobs.
        reserve: time added to the remaining time of a job, s.
        tail: exponent of a job's remaining share of work; this power times the time alone is the remaining time.
        begun: factor on the waiting time of a job that has started.
    """

    seconds: float = 60.8
    missed: float = 14.3
    margin: float = 0.893
    spread: float = 0.105
    crowding: float = 0.164
    reserve: float = 0.852
    tail: float = 0.687
    begun: float = 0.649


class CarbonSlack(CarbonAware):
    """Trade off the carbon of each job against its completion time and its deadline, around any scheduler.

    Unlike ``carbon-price``, this rule chooses start and parallelism limit of a job together: the pair with the least
    sum of completion time, carbon, and probability of a missed deadline, each times its value. So a job waits for a
    time of low intensity, or runs on few executors, as far as its deadline allows. A job that misses its deadline
    anyway runs as without one. The probability is logistic in the slack. No job waits beyond the last deadline.

    Args:
        base: the other scheduler; by default ``least-slack`` with the constants ``ORDER``.
        constants: fields of ``CarbonSlackConstants``, positive.

    Raises:
        ValueError: a constant is not positive.
        TypeError: unknown constant.
    """

    def __init__(self, base: DecidesStages | None = None, **constants: float) -> None:
        check_positive(**constants)
        self.own = CarbonSlackConstants(**constants)
        super().__init__(LeastSlack(**ORDER) if base is None else base)
        self._times = PerJob(times_of, join_times)
        self._planned: tuple[float, object] | None = None
        self._plan = np.zeros(0, np.bool_), np.zeros(0, np.int64)

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode."""
        super().reset(config)
        self._planned = None

    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the other scheduler's decision for the jobs that do not wait."""
        now = observation.time_ms, observation.profiles
        if self._planned is None or self._planned[0] != now[0] or self._planned[1] is not now[1]:
            self._planned, self._plan = now, self._choose(observation, signal)
        return self.decide_within(observation, *self._plan)

    def _choose(
        self, observation: Observation, signal: Signal
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return whether each job waits, bool [J], and its parallelism limit if it starts now, int64 [J]."""
        constants, now = self.own, observation.time_ms
        left_ms = observation.job_deadline_ms - now
        work = observation.work_ms(observation.remaining_tasks)
        share = np.minimum(work / np.maximum(observation.job_first_work_ms, 1.0), 1.0)[:, None]
        # Axes of the arrays below: jobs, candidate starts, limits, float64 [J, B, P].
        alone_ms, busy_ms = self._times(observation)
        takes_ms = np.maximum(alone_ms * share**constants.tail, 1.0)[:, None]
        window = min(window_ms(signal), max(float(left_ms.max(initial=0.0)), 1.0))
        begins = signal.ahead(now, window)[0][None, :, None]
        mean = signal.integral(begins, begins + takes_ms) / takes_ms
        grams = (busy_ms * share)[:, None] * mean * observation.config.executor_watts / 1000 / 3_600_000
        others_ms = (work.sum() - work)[:, None, None] / max(observation.num_executors, 1)
        ends_ms = (
            begins
            - now
            + constants.margin * takes_ms
            + constants.crowding * others_ms
            + 1000 * constants.reserve
        )
        uncertain_ms = constants.spread * takes_ms.min(axis=2, keepdims=True)
        spare = np.clip((left_ms[:, None, None] - ends_ms) / uncertain_ms, -FARTHEST, FARTHEST)
        missed_ms = constants.missed * alone_ms.min(axis=1)[:, None, None] / (1 + np.exp(spare))
        waits_ms = (begins - now) * np.where(share < 1, constants.begun, 1.0)[:, None]
        cost_ms = waits_ms + takes_ms + 1000 * constants.seconds * grams + missed_ms
        limits: NDArray[np.int64] = np.array(PARALLELISM)[cost_ms[:, 0].argmin(axis=1)]
        return cost_ms.min(axis=2).argmin(axis=1) > 0, limits
