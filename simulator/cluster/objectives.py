"""Objectives: costs that a policy minimises, such as ``power-mean:3``; also custom ones, and sums of several.

``simulator.cluster.reward`` has the rewards by completion time and makespan, ``ObjectiveMeter`` those by all others.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.reward import RewardMeter
from workloads.custom import is_custom
from workloads.custom_code import custom_code
from workloads.errors import ConfigError, did_you_mean
from workloads.texts import number_in

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import JobSequence
    from workloads.carbon import Signal

__all__ = [
    "OBJECTIVES", "AllJobs", "Carbon", "Deadline", "Fairness", "LiveJobs", "Makespan", "Mean", "Misses", "Objective",
    "ObjectiveMeter", "PowerMean", "Sum", "Weighted", "objective_meter", "objective_named",
    "signal_of",
]  # fmt: skip


class AllJobs(NamedTuple):
    """Attributes of all jobs of a sequence.

    Attributes:
        arrival_ms: float64 [num_jobs].
        weight: float64 [num_jobs].
        deadline_ms: float64 [num_jobs].
        tenant: int64 [num_jobs], index of the job's tenant in ``JobSequence.tenants``.
        tenant_weight: float64 [tenants].
    """

    arrival_ms: NDArray[np.float64]
    weight: NDArray[np.float64]
    deadline_ms: NDArray[np.float64]
    tenant: NDArray[np.int64]
    tenant_weight: NDArray[np.float64]

    @classmethod
    def of(cls, sequence: JobSequence, deadline_ms: NDArray[np.float64]) -> AllJobs:
        """Collect the attributes of a sequence whose jobs have the deadlines ``deadline_ms``, float64 [num_jobs]."""
        tenant_weight = np.array([tenant.weight for tenant in sequence.tenants])
        return cls(sequence.arrival_ms, sequence.weight, deadline_ms, sequence.tenant, tenant_weight)


def _of_live(name: str) -> cached_property[NDArray[np.float64]]:
    return cached_property(lambda live: getattr(live._of_all, name)[sorted(live._jobs)])


class LiveJobs:
    """Jobs in the system during an interval. Attribute arrays are computed on first use, in order of arrival.

    Args:
        jobs: numbers of the live jobs in the sequence.
        of_all: attributes of all jobs of the sequence.

    Attributes:
        carbon: emissions of the cluster during the interval, g; 0 unless the objective uses them.
    """

    def __init__(self, jobs: Collection[int], of_all: AllJobs) -> None:
        self.carbon = 0.0
        self._jobs, self._of_all = jobs, of_all

    def __len__(self) -> int:
        return len(self._jobs)

    arrival_ms = _of_live("arrival_ms")
    """Arrival of each job, float64 [jobs], ms."""
    weight = _of_live("weight")
    """Weight of each job, float64 [jobs]."""
    deadline_ms = _of_live("deadline_ms")
    """Deadline of each job, float64 [jobs], ms; infinite for a job without one."""

    @cached_property
    def by_tenant(self) -> NDArray[np.float64]:
        """Number of live jobs of each tenant divided by the tenant's weight, float64 [tenants]."""
        weight = self._of_all.tenant_weight
        return np.bincount(self._of_all.tenant[sorted(self._jobs)], minlength=weight.size) / weight


class Objective(ABC):
    """A cost that accrues over simulated time. A policy minimises its sum; the reward is minus the cost."""

    #: Whether the cost depends on the jobs in the system; else it depends on elapsed time alone.
    depends_on_jobs = True
    #: Job attributes that the cost is computed from: ``weight``, ``deadline``, ``tenant``.
    attributes: frozenset[str] = frozenset()
    #: Whether the cost is computed from ``LiveJobs.carbon``; the cluster then needs a carbon or price signal.
    uses_carbon = False
    #: Name of the signal that the cluster must have; None: any signal.
    signal: str | None = None

    @abstractmethod
    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the cost of an interval in which no job enters or leaves the system.

        Args:
            begin_ms: beginning of the interval (exclusive), ms.
            end_ms: end of the interval (inclusive), ms.
            jobs: jobs in the system during the interval.
            scale_ms: ``ClusterConfig.reward_scale_ms``, by which rewards are divided.
        """


class Mean(Objective):
    """Sum of job completion times (Decima, section 5.3)."""

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the jobs spend in the system."""
        return len(jobs) * (end_ms - begin_ms)


class Makespan(Objective):
    """Elapsed time until the last job is complete."""

    depends_on_jobs = False

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the length of the interval."""
        return end_ms - begin_ms


class Weighted(Objective):
    """Sum of job completion times, each times the weight of the job."""

    attributes = frozenset({"weight"})

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the jobs spend in the system, each job's times its weight."""
        return float(jobs.weight.sum()) * (end_ms - begin_ms)


class PowerMean(Objective):
    """Sum of powers of job completion times, so that long ones count more.

    Each power is divided by ``reward_scale_ms`` to the exponent less 1, so that its unit is ms.

    Args:
        exponent: at least 1; 1 is the sum of job completion times.

    Raises:
        ValueError: the exponent is below 1 or above 10.
    """

    def __init__(self, exponent: float = 2.0) -> None:
        if not 1 <= exponent <= 10:
            raise ValueError(f"the exponent must be between 1 and 10, got {exponent:g}")
        self.exponent = exponent

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the increase, during the interval, of the powers of the jobs' ages."""
        before, after = ((time_ms - jobs.arrival_ms) / scale_ms for time_ms in (begin_ms, end_ms))
        return scale_ms * float((after**self.exponent - before**self.exponent).sum())


class Deadline(Objective):
    """Sum of tardiness, plus a penalty for each missed deadline when the deadline passes.

    Args:
        penalty_s: penalty, s, not negative.

    Raises:
        ValueError: the penalty is negative or not finite.
    """

    attributes = frozenset({"deadline"})

    def __init__(self, penalty_s: float = 0.0) -> None:
        if not 0 <= penalty_s < np.inf:
            raise ValueError(f"the penalty must be finite and not negative, got {penalty_s:g}")
        self.penalty_s = penalty_s

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that jobs spend after their deadlines, plus penalties of deadlines in the interval."""
        late_ms = float(np.maximum(end_ms - np.maximum(jobs.deadline_ms, begin_ms), 0.0).sum())
        passed = (begin_ms <= jobs.deadline_ms) & (jobs.deadline_ms < end_ms)
        return late_ms + 1000 * self.penalty_s * int(passed.sum())


class Misses(Objective):
    """Sum of tardiness, where the tardiness of a job counts up to a bound.

    Divided by the bound this is the number of missed deadlines, where a slightly late job counts in part. Unlike with
    ``Deadline``, a job that can no longer meet its deadline has no further cost.

    Args:
        bound_s: bound, s, positive.

    Raises:
        ValueError: the bound is not positive or not finite.
    """

    attributes = frozenset({"deadline"})

    def __init__(self, bound_s: float = 10.0) -> None:
        if not 0 < bound_s < np.inf:
            raise ValueError(f"the bound must be finite and above 0, got {bound_s:g}")
        self.bound_s = bound_s

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that jobs spend after their deadlines and within the bound."""
        last_ms = np.minimum(jobs.deadline_ms + 1000 * self.bound_s, end_ms)
        return float(np.maximum(last_ms - np.maximum(jobs.deadline_ms, begin_ms), 0.0).sum())


class Fairness(Objective):
    """Sum of job completion times, divided at each time by Jain's fairness index of the tenants' live jobs.

    Jain's index is computed from each tenant's number of live jobs over the tenant's weight: 1 if it is equal for all
    tenants, 1/n if all live jobs belong to one of n tenants. By Little's law, tenants with equal arrival rates and
    numbers of live jobs have equal mean job completion times. With one tenant this is the sum of job completion times.

    Source: Jain, Chiu, Hawe (1984) for the index.
    """

    attributes = frozenset({"tenant"})

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the time that the live jobs spend in the system, divided by Jain's index."""
        live = jobs.by_tenant
        total = float(live.sum())
        if not total:
            return 0.0
        return len(jobs) * live.size * float((live**2).sum()) / total**2 * (end_ms - begin_ms)


class Carbon(Objective):
    """Emissions of the executors in g, or the price of their electricity; 1 g counts like 1 s of job time.

    Executors that run a task or move use ``ClusterConfig.executor_watts``, idle ones ``ClusterConfig.idle_watts``.

    Args:
        signal: name of the signal, as for ``workloads.open_signal``; None: the signal of the cluster.
    """

    uses_carbon = True

    def __init__(self, signal: str | None = None) -> None:
        self.signal = signal

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the emissions of the interval, g, times 1000 ms."""
        return 1000 * jobs.carbon


class Sum(Objective):
    """Weighted sum of objectives.

    Args:
        terms: pairs of factor and objective, at least one.
    """

    def __init__(self, terms: tuple[tuple[float, Objective], ...]) -> None:
        self.terms = terms
        self.attributes = frozenset().union(*(objective.attributes for _, objective in terms))
        self.uses_carbon = any(objective.uses_carbon for _, objective in terms)
        self.signal = next((objective.signal for _, objective in terms if objective.signal is not None), None)

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the sum of the objectives' costs, each times its factor."""
        return sum(
            factor * objective.cost_ms(begin_ms, end_ms, jobs, scale_ms) for factor, objective in self.terms
        )


#: Names of objectives and their classes.
OBJECTIVES: dict[str, type[Objective]] = {
    "jct": Mean,
    "mean": Mean,
    "makespan": Makespan,
    "weighted": Weighted,
    "power-mean": PowerMean,
    "deadline": Deadline,
    "misses": Misses,
    "fairness": Fairness,
    "carbon": Carbon,
}
#: Objectives that take a number after their name.
WITH_NUMBER = ("power-mean", "deadline", "misses")
#: The objective that takes the name of a signal.
WITH_SIGNAL = "carbon"


@lru_cache(maxsize=64)
def objective_named(text: str) -> Objective:
    """Return the objective with a name, such as ``jct``; results are cached.

    Args:
        text: a name in ``OBJECTIVES``, some with an argument after a colon, such as ``weighted``, ``power-mean:3``,
            ``deadline:60`` or ``carbon:FILE:60``; ``module:Class`` for a custom subclass of ``Objective`` (also from
            the current folder), which is built without arguments; or a sum with factors: ``jct+0.5*deadline:60``.

    Raises:
        ConfigError: the name is unknown, the class cannot be used, or a number is malformed or out of range.
    """
    terms = []
    for term in text.split("+"):
        factor, star, name = term.rpartition("*")
        terms.append((_number(text, factor) if star else 1.0, _objective(text, name.strip())))
    return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Sum(tuple(terms))


def _objective(text: str, term: str) -> Objective:
    name, colon, argument = term.partition(":")
    if is_custom(term) and name not in OBJECTIVES:
        return _custom(text, name, argument)
    if name == WITH_SIGNAL and (argument or not colon):
        return Carbon(argument or None)
    if name not in OBJECTIVES or (colon and name not in WITH_NUMBER):
        arguments = dict.fromkeys(WITH_NUMBER, ":NUMBER") | {WITH_SIGNAL: "[:FILE]"}
        expected = ", ".join(objective + arguments.get(objective, "") for objective in OBJECTIVES)
        near = did_you_mean(name, OBJECTIVES) if name not in OBJECTIVES else ""
        raise ConfigError(
            f"reward {text!r}: unknown objective {term!r}{near}, expected {expected}, module:Class, or a sum of these"
        )
    try:
        return OBJECTIVES[name](_number(text, argument)) if colon else OBJECTIVES[name]()  # type: ignore[call-arg]
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"reward {text!r}: {term}: {error}") from None


def _custom(text: str, module: str, name: str) -> Objective:
    with custom_code(f"reward {text!r}: {module}:{name} cannot be used", ConfigError):
        custom = getattr(importlib.import_module(module), name)
        if not (isinstance(custom, type) and issubclass(custom, Objective)):
            raise TypeError(f"expected a subclass of {Objective.__module__}.Objective")
        return custom()


def _number(text: str, number: str) -> float:
    if not 0 <= (value := number_in(number)) < math.inf:
        raise ConfigError(f"reward {text!r}: expected a number of at least 0, got {number!r}")
    return value


class ObjectiveMeter(RewardMeter):
    """Rewards by any objective; for the arguments see ``reward.reward_meter``."""

    def __init__(
        self, config: ClusterConfig, sequence: JobSequence, deadline_ms: NDArray[np.float64]
    ) -> None:
        super().__init__(config)
        self._objective = objective_named(config.reward)
        self._is_elapsed_time = not self._objective.depends_on_jobs
        self._all = AllJobs.of(sequence, deadline_ms)
        self._known: tuple[Collection[int], LiveJobs] = (), LiveJobs((), self._all)

    def _live_jobs(self, jobs: Collection[int]) -> LiveJobs:
        """Return jobs with their attributes, which are kept as long as the same jobs are in the system."""
        if self._known[0] is not jobs:
            self._known = jobs, LiveJobs(jobs, self._all)
        return self._known[1]

    def _cost_of(self, begin_ms: float, end_ms: float, jobs: Collection[int]) -> float:
        return self._objective.cost_ms(begin_ms, end_ms, self._live_jobs(jobs), self._scale_ms)


def objective_meter(
    config: ClusterConfig, sequence: JobSequence, deadline_ms: NDArray[np.float64]
) -> ObjectiveMeter:
    """Return the meter for a cluster's objective, see ``reward.reward_meter``."""
    if objective_named(config.reward).uses_carbon:
        from simulator.cluster.emissions import EmissionMeter

        return EmissionMeter(config, sequence, deadline_ms)
    return ObjectiveMeter(config, sequence, deadline_ms)


def signal_of(reward: str, signal: Signal | None) -> Signal | None:
    """Return the signal of a cluster with an objective: the cluster's own, or the one that the objective names.

    Raises:
        ConfigError: there is no such objective, or it needs a signal and the cluster has none or another one.
    """
    objective = objective_named(reward)
    if not objective.uses_carbon:
        return signal
    if signal is None and objective.signal is not None:
        from workloads.sources.carbon import open_signal

        signal = open_signal(objective.signal)
    if signal is None:
        raise ConfigError(f"reward {reward!r}: the cluster has no signal")
    if objective.signal not in (None, signal.name, f"{signal.name}:1"):
        raise ConfigError(f"reward {reward!r}: the cluster has another signal, {signal.name}")
    return signal
