"""Rules from queueing theory: for jobs whose sizes are estimates or unknown, and for jobs whose speedup differs.

Sources, sizes: Gittins index; preemptive shortest job first by the work estimated at arrival, and SRPT on estimates
with a bounce, which limits the effect of underestimates (Scully, Grosof and Mitzenmacher, ITCS 2022; arXiv 2110.00633);
size estimate hedging: SRPT on estimates until a job proves to be underestimated (Akbari-Moghaddam and Down); least
attained service, also called foreground-background (survey: Nuyens and Wierman, 2008). Sources, speedup:
high-efficiency SRPT, for jobs whose speed is a power of their number of executors (Berg et al., arXiv 1903.09346);
inelastic first, which prefers jobs that cannot use more executors (Berg et al., SPAA 2020).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.decisions import last_resort, move_cost_ms
from decima.schedulers.rule import LEAVE_MIN_DELAYS, MOVE_MIN_DELAYS, SOURCE_FACTOR
from decima.schedulers.srpt import OrderedRule
from decima.schedulers.srpt_steps import nearest_price
from simulator.cluster.alone import PARALLELISM, alone_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled
from workloads.job import JobProfile

__all__ = [
    "Gittins", "HeSrpt", "InelasticFirst", "Las", "Seh", "SjfEstimate", "SrptBounce", "fractions",
    "index_over_median", "speedup_exponent",
]  # fmt: skip

#: Table of ranks: largest standard deviation, number of entries, and number of candidate quanta for each entry.
LARGEST_SD, ENTRIES, SEARCHED = 4.0, 81, 2000


class Gittins(OrderedRule):
    """Highest Gittins index (probability of completion over expected service) first; limits as in ``srpt``.

    The posterior of a job's work is log-normal, given its estimate, the workload's distribution of job sizes and the
    job's completed tasks. The rank is the minimum of ``E[min(X, d)] / P(X <= d)`` over all quanta of service d, where X
    is the remaining work. Uncertain jobs come earlier than by their mean work, because they may be short. The order is
    optimal in the M/G/1 queue with unknown sizes (Gittins, 1979; Aalto, Ayesta and Righter, 2009). Here jobs run in
    parallel, and completed tasks give more information than the fact that the job is incomplete.
    """

    def __init__(self, jitter: float = 0.0) -> None:
        super().__init__(jitter)
        self._sd = np.linspace(0.0, LARGEST_SD, ENTRIES)
        self._rank = np.array([index_over_median(sd) for sd in self._sd.tolist()])

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the reciprocal of each job's index, ms."""
        work = observation.work_ms(observation.remaining_tasks)
        rank: NDArray[np.float64] = work * np.interp(observation.job_log_sd, self._sd, self._rank)
        return rank


@compiled
def index_over_median(sd):  # type: ignore[no-untyped-def]
    """Return the minimum of ``E[min(X, d)] / P(X <= d)`` over d; X is log-normal with median 1, ``sd`` of log X."""
    if sd == 0:
        return 1.0
    least = math.inf
    for step in range(SEARCHED):
        z = 10.0 * step / SEARCHED - 5.0  # logarithm of d, in standard deviations
        completed = _normal(z)
        served = math.exp(sd * sd / 2) * _normal(z - sd) + math.exp(sd * z) * (1 - completed)
        least = min(least, served / completed)
    return least


@compiled
def _normal(z):  # type: ignore[no-untyped-def]
    return math.erfc(-z / math.sqrt(2)) / 2


class SjfEstimate(OrderedRule):
    """Least work estimated at arrival first, without later corrections; limits as in ``srpt``.

    On one server the mean response time is within a constant factor of the optimum if estimation errors are bounded
    factors (arXiv 2110.00633). The bound does not hold for a cluster: jobs run in parallel, executors finish their task
    before they leave, and moves take time.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the work of each job as estimated at its arrival, ms."""
        return observation.job_first_work_ms


class SrptBounce(OrderedRule):
    """Lowest rank ``max(z - a, min(a, z))`` first, of estimate z and attained service a; limits as in ``srpt``.

    Up to half the estimate the rank is that of SRPT. Then it rises again, up to the estimate. So a job with more work
    than its estimate does not stay first forever, which makes naive SRPT on estimates arbitrarily bad (Scully, Grosof
    and Mitzenmacher, ITCS 2022). The proof is for one server and bounded errors. The rank does not use information that
    completed tasks give about the job's work.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the rank of each job, ms."""
        estimate, attained = observation.job_first_work_ms, observation.job_attained_ms
        rank: NDArray[np.float64] = np.maximum(estimate - attained, np.minimum(attained, estimate))
        return rank


class Seh(OrderedRule):
    """Size estimate hedging: least remaining estimate first, bounded from below; limits as in ``srpt``.

    The priority of a job rises as in SRPT and is then frozen, so that an underestimated job does not precede all other
    jobs (SEH, ACM TOMACS 33, 2023, for one server). The index of the paper also has one parameter, but another form.

    Args:
        frozen: lower bound of the remaining estimate, as a share of the estimate. 0 is naive SRPT on estimates, 1 is
            ``sjf-estimate``.

    Raises:
        ValueError: the share is out of range.
    """

    def __init__(self, frozen: float = 0.5) -> None:
        if not 0 <= frozen <= 1:
            raise ValueError(f"the frozen share must be from 0 to 1, got {frozen:g}")
        super().__init__()
        self.frozen = frozen

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the remaining part of each job's estimate at arrival, at least the frozen share, ms."""
        estimate = observation.job_first_work_ms
        left: NDArray[np.float64] = np.maximum(estimate - observation.job_attained_ms, self.frozen * estimate)
        return left


class Las(OrderedRule):
    """Least attained service (executor time of finished tasks) first; limits as in ``srpt``.

    Without estimates of sizes this order is optimal on one server if the hazard rate of the sizes decreases. A running
    task counts only after its end, so jobs share executors less finely than in theory.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the executor time of each job's finished tasks, ms."""
        return observation.job_attained_ms


#: Maximum exponent p of the speedup; beyond it, the smallest job would get all executors.
LARGEST_EXPONENT = 0.95


class HeSrpt(Scheduler):
    """High-efficiency SRPT: a job with less remaining work gets a larger fraction of the cluster.

    If k executors make each job k^p times as fast, these fractions minimise the mean slowdown of a batch, and nearly
    minimise the mean completion time. Here p is fitted to the times of the live jobs alone, and averaged over the jobs.
    The assumptions do not hold exactly: real jobs have different exponents, which fall as k grows; fractions are
    rounded up to whole executors; arrivals change the fractions, but executors do not move for a few tasks.
    """

    def __init__(self) -> None:
        self._exponent: PerJob[float] = PerJob(speedup_exponent, lambda exponents: float(np.mean(exponents)))

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the job with the least remaining work below its limit, else the job with the least work.

        An executor moves only to a job with enough work, or to a job without executors; otherwise it stays idle.
        """
        jobs, most = observation.job_executors.size, observation.num_executors
        work = observation.work_ms(observation.remaining_tasks)
        limit = np.minimum(self.limits(observation, work), most).astype(np.int64)
        held, order = observation.job_executors.copy(), work.copy()
        if observation.source >= 0:
            held[observation.source] -= observation.offered
            order[observation.source] *= SOURCE_FACTOR
        lasting, ready = lasting_executors(observation), observation.next_stage >= 0
        for bound in (limit, np.full(jobs, most)):
            bound = np.minimum(bound, lasting).astype(np.int64)
            chosen = np.flatnonzero(ready & (held < bound))
            if chosen.size:
                job = chosen[np.argmin(order[chosen])]
                return Decision(int(observation.next_stage[job]), int(bound[job]))
        return last_resort(observation)

    def limits(self, observation: Observation, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return fractions of the cluster for jobs with unclaimed tasks, 1 for other jobs."""
        limits = np.ones(work.size)
        wanting = np.flatnonzero(observation.job_unsaturated_stages > 0)
        ranked = wanting[np.argsort(-work[wanting], kind="stable")]
        shares = fractions(ranked.size, self._exponent(observation))
        limits[ranked] = np.ceil(observation.num_executors * shares)
        return limits


def lasting_executors(observation: Observation) -> NDArray[np.float64]:
    """Return the number of offered executors whose move to each live job is justified, at least 1, float64 [J]."""
    lasting = np.full(observation.job_executors.size, float(observation.num_executors))
    delay_ms = move_cost_ms(observation)
    if not delay_ms:
        return lasting
    from_job = observation.source >= 0
    worth_ms = (LEAVE_MIN_DELAYS if from_job else MOVE_MIN_DELAYS) * delay_ms
    offered = observation.classes[observation.executor_class]
    fits = (observation.stages["cpu"] <= offered["cpu"]) & (observation.stages["memory"] <= offered["memory"])
    executors = observation.work_ms(observation.unclaimed_tasks * fits) / worth_ms
    if from_job:
        executors[observation.source] = lasting[observation.source]  # executors that stay do not move
    return np.maximum(executors, 1.0)


def fractions(jobs: int, exponent: float) -> NDArray[np.float64]:
    """Return each job's fraction of the executors, the largest job first, float64 [jobs]; ``exponent``: p, below 1."""
    bounds = (np.arange(jobs + 1) / max(jobs, 1)) ** (1 / (1 - exponent))
    return np.diff(bounds)


def speedup_exponent(profile: JobProfile, config: ClusterConfig) -> float:
    """Fit p of the speedup k^p to a job's times alone on k executors; return p, from 0 to ``LARGEST_EXPONENT``."""
    times = alone_ms(profile, config)
    if times.size < 2:
        return 0.0
    slope = np.polyfit(np.log(PARALLELISM[: times.size]), -np.log(np.maximum(times, 1.0)), 1)[0]
    return float(np.clip(slope, 0.0, LARGEST_EXPONENT))


class InelasticFirst(OrderedRule):
    """The job with the least useful parallelism first, on a tie the earlier job; limits as in ``srpt``.

    Inelastic jobs cannot use executors that elastic jobs leave at the end, so they should run while elastic jobs run
    too (B. Berg's thesis, 2021). The theory has two classes of jobs with exponential sizes; an inelastic job uses one
    executor. It proves optimality if elastic jobs are larger on average. Here elasticity is gradual.
    """

    def order(self, observation: Observation) -> NDArray[np.float64]:
        """Return the useful parallelism of each job."""
        return self._profiles(observation)[:, nearest_price(self.constants.price_of_demand)]
