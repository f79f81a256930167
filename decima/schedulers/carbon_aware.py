"""Rules that shift work to times of low carbon intensity, around any scheduler: greenest first, CAP and PCAPS.

``CarbonAware`` is the base class of all carbon-aware rules; ``carbon_price`` has those with a price of carbon. Sources:
CAP and PCAPS (arXiv 2502.09717).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Kind, Scheduler
from decima.schedulers.decisions import num_committed, only_jobs
from decima.schedulers.srpt import Srpt
from simulator.cluster.alone import PARALLELISM, alone_ms, estimate
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.carbon import Signal
from workloads.job import JobProfile

if TYPE_CHECKING:
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.episode import DecidesStages

__all__ = [
    "Cap", "CarbonAware", "GreenestFirst", "Pcaps", "join_times", "quota", "threshold", "thresholds",
    "times_of", "window_ms", "without",
]  # fmt: skip

#: Length of the exact forecast, in intervals of the signal: 48 hours, as in PCAPS.
INTERVALS = 48


class CarbonAware(Scheduler):
    """Base class: modify the decisions of another scheduler by a signal. Without a signal they are unchanged.

    Args:
        base: the other scheduler; by default ``srpt``.
    """

    base: DecidesStages

    def __init__(self, base: DecidesStages | None = None) -> None:
        self.base = Srpt() if base is None else base
        self.kind: Kind = getattr(self.base, "kind", Kind.RULE)
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
    """Return the results of ``times_of`` for all jobs as two arrays, float64 [J, limits] each, ms."""
    return np.array([alone_ms for alone_ms, _ in times]), np.array([busy_ms for _, busy_ms in times])


#: Minimum ratio of the bounds. With a lower bound of 0, the quota would be the minimum unless the intensity is 0.
LEAST_RATIO = 1e-3


class Cap(CarbonAware):
    """CAP: limit the number of busy executors by the carbon intensity, around any scheduler (arXiv 2502.09717).

    ``quota`` computes the limit from the bounds of the forecast. There is no preemption: executors get further work
    only while fewer executors than the quota are busy. Parallelism limits of the other scheduler are multiplied by the
    quota's share of the executors.

    Args:
        minimum: minimum quota, as a share of the executors; 1 has no effect. The paper has 20 of 100 executors.
        base: the other scheduler; by default ``srpt``.

    Raises:
        ValueError: the minimum is out of range.
    """

    def __init__(self, minimum: float = 0.2, base: DecidesStages | None = None) -> None:
        if not 0 < minimum <= 1:
            raise ValueError(f"the minimum must be above 0 and at most 1, got {minimum:g}")
        super().__init__(base)
        self.minimum = minimum

    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the other scheduler's decision within the quota."""
        executors = max(observation.num_executors, 1)
        low, high = signal.bounds(observation.time_ms, window_ms(signal))
        least = max(1, math.ceil(self.minimum * executors))
        most = quota(signal.at(observation.time_ms), low, high, executors, least)
        room = most - self.busy(observation)
        if room <= 0:
            return None
        if (decision := self.base.decide(observation)) is None:
            return None
        held = observation.held(int(observation.stage_job[decision.stage]))
        limit = max(math.ceil(decision.limit * most / executors), held + 1)
        return Decision(decision.stage, min(limit, held + room))


def quota(intensity: float, low: float, high: float, executors: int, least: int) -> int:
    """Return the maximum number of busy executors: ``least`` plus the number of thresholds not below the intensity.

    Args:
        intensity: current carbon intensity.
        low, high: bounds of the forecast.
        executors: number of executors of the cluster, the quota at the lower bound.
        least: minimum quota, at the upper bound.
    """
    if intensity <= low or least >= executors:
        return executors
    intensities = thresholds(max(low, LEAST_RATIO * high), high, executors - least)
    return least + sum(threshold >= intensity for threshold in intensities)


@lru_cache(maxsize=1024)
def thresholds(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return the thresholds of k-search for k = ``count`` items, descending from below ``high`` to about ``low``.

    Threshold i from 1 to k is ``high - (high - high / alpha) (1 + 1 / (k alpha))^(i - 1)``, where alpha solves
    ``(1 + 1 / (k alpha))^k = (high - low) / (high (1 - 1 / alpha))`` (arXiv 2502.09717, section 4.2).
    """
    least, most = 1.0, high / low
    for _ in range(100):  # bisection: the left side minus the right side grows with alpha
        alpha = (least + most) / 2
        left = count * math.log1p(1 / (count * alpha))
        right = math.log((high - low) / (high * (1 - 1 / alpha))) if alpha > 1 else math.inf
        least, most = (alpha, most) if left < right else (least, alpha)
    growth = 1 + 1 / (count * most)
    return tuple(high - (high - high / most) * growth**index for index in range(count))


class Pcaps(CarbonAware):
    """PCAPS: defer stages of low relative importance while the carbon intensity is high (arXiv 2502.09717).

    A decision is deferred if the intensity is above the ``threshold`` for its stage's importance relative to the most
    important stage with tasks to start, unless no executor is busy. The importance in the paper is the probability of
    the stage in a stochastic policy. Rules have no probabilities, so here the importance is the share of the job's
    critical path that starts at the stage, over the job's remaining work. Limits of the other scheduler are multiplied
    by a factor that falls linearly from 1 at the lower bound of the forecast to ``1 - gamma`` at the upper bound. The
    factor of the paper, ``exp(gamma (low - intensity))``, depends on the unit of the intensity.

    Args:
        gamma: carbon awareness, from 0 (none) to 1.
        base: the other scheduler; by default ``srpt``.

    Raises:
        ValueError: gamma is out of range.
    """

    def __init__(self, gamma: float = 0.5, base: DecidesStages | None = None) -> None:
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must be from 0 to 1, got {gamma:g}")
        super().__init__(base)
        self.gamma = gamma
        self._path = PerJob(_path, np.concatenate)

    def adapt(self, observation: Observation, signal: Signal) -> Decision | None:
        """Return the other scheduler's decision with a lower limit, or None to defer the decision."""
        if (decision := self.base.decide(observation)) is None or not self.gamma:
            return decision
        low, high = signal.bounds(observation.time_ms, window_ms(signal))
        intensity = signal.at(observation.time_ms)
        importance = self._importance(observation)
        available = observation.schedulable | (observation.ready_rank >= 0)
        relative = float(importance[decision.stage] / importance[available].max())
        if intensity > threshold(relative, self.gamma, low, high) and self.busy(observation) > 0:
            return None
        held = observation.held(int(observation.stage_job[decision.stage]))
        height = (intensity - low) / (high - low) if high > low else 0.0
        return Decision(decision.stage, max(math.ceil(decision.limit * (1 - self.gamma * height)), held + 1))

    def _importance(self, observation: Observation) -> NDArray[np.float64]:
        """Return the importance of each stage, float64 [S]."""
        work = np.maximum(observation.work_ms(observation.remaining_tasks), 1.0)
        importance: NDArray[np.float64] = self._path(observation) / work[observation.stage_job]
        return importance


def threshold(relative: float, gamma: float, low: float, high: float) -> float:
    """Return the intensity above which a stage is deferred, from its relative importance (0 to 1; ``high`` for 1)."""
    least = gamma * low + (1 - gamma) * high
    if relative >= 1 or not gamma:
        return high
    return least + (high - least) * math.expm1(gamma * relative) / math.expm1(gamma)


def _path(profile: JobProfile, _: ClusterConfig) -> NDArray[np.float64]:
    """Return the ratio of the critical paths from each stage on and of the job, float64 [stages]."""
    path = np.asarray(profile.critical_path_ms, dtype=np.float64)
    return np.maximum(path / max(float(path.max()), 1e-9), 1e-3)


#: Tolerance for rounding errors in the comparison of a job's latest start and the next interval, ms.
ROUNDING_MS = 1e-6


class GreenestFirst(CarbonAware):
    """Run each job in the intervals of lowest carbon intensity before its latest end, around any scheduler.

    The latest end of a job is its arrival plus its time alone plus ``patience`` intervals of the signal, or its
    deadline if this is earlier. A job waits if the intervals with lower values before the latest end are at least as
    long as its remaining time alone. It does not wait without slack.

    Args:
        patience: number of intervals, from 0 to 48, the length of the forecast.
        base: the other scheduler; by default ``srpt``.

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
