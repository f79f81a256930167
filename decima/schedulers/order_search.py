"""Branch and bound over the orders of a batch's jobs: the near-optimal baseline of Decima's Figure 21.

As in the appendix "Optimality of Decima", moves take no time and each task takes the mean duration of its stage, so
the order of the jobs determines the schedule. The paper simulates all n! orders. This search prunes most of them.

Until a job outside a *prefix* of the order gets its first executor, the episode depends on the prefix alone. So one
simulated order gives, for each of its prefixes, each job's remaining executor time at the time from which orders with
that prefix may differ. From then on, the first k jobs to complete need at least the k smallest of these remainders, of
which the cluster provides at most one ms per executor and ms. A job that has not started takes at least its time alone.
These conditions give a lower bound of the mean JCT of all orders with the prefix. The search prunes a prefix if its
bound is no better than the best known order.

The search explores prefixes in order of their bounds. So it can stop at any time with a bound of the optimality gap.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.sjf_cp import first_job, on_critical_path
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import run_episode

if TYPE_CHECKING:
    from simulator.cluster.observation import Decision, Observation
    from simulator.cluster.record import EpisodeRecord
    from workloads.arrivals import JobSequence
    from workloads.job import JobProfile

__all__ = ["JobOrder", "OrderSearch", "search_orders", "simplified_cluster"]

_Order = tuple[int, ...]

#: Minimum relative reduction of the mean JCT by a better order; smaller differences are rounding errors.
_TOLERANCE = 1e-9


class JobOrder(Scheduler):
    """Serve jobs in a fixed order, each along its critical path.

    With the jobs in order of total work this is ``SjfCp``.

    Args:
        order: permutation of the jobs' numbers in the sequence, the most urgent job first.
        ahead: whether a job also gets executors for stages whose parents run their last tasks. These executors are
            idle until the stage opens, but then no long task of another job delays the stage.

    Raises:
        ValueError: the order is not a permutation.
    """

    def __init__(self, order: Sequence[int], ahead: bool = True):
        jobs = np.array(order)
        if not np.array_equal(np.sort(jobs), np.arange(jobs.size)):
            expected = f"expected a permutation of the numbers 0 to {jobs.size - 1}"
            raise ValueError(f"{expected} as the order of the jobs, got {list(order)}")
        self.ahead = ahead
        self._rank: NDArray[np.int64] = np.argsort(jobs)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the critical path's stage of the first job with a schedulable stage, for all offered executors.

        Raises:
            ValueError: a live job is not in the order.
        """
        job_ids = observation.job_id
        if job_ids[0] < 0 or job_ids[-1] >= self._rank.size:
            raise ValueError(f"an order of {self._rank.size} jobs lacks some of the jobs {job_ids.tolist()}")
        job = first_job(observation.jobs, observation.stages, self._rank[job_ids], self.ahead)
        return on_critical_path(observation, job) if job >= 0 else None


@dataclass(frozen=True)
class OrderSearch:
    """Result of a search: the best order, a lower bound, and numbers of orders.

    Attributes:
        order: numbers of the jobs, the most urgent first, for ``JobOrder``.
        ahead: as in ``JobOrder``.
        mean_jct_ms: mean JCT under ``order``, ms.
        lower_bound_ms: lower bound of the mean JCT over all orders, ms; ``mean_jct_ms`` if ``order`` is proven optimal.
        num_orders: number of all orders, n!.
        num_evaluated: number of simulated orders.
        num_pruned: number of orders in pruned subtrees, a few of which may have been simulated.
        num_open: number of orders in unexplored subtrees; 0 if ``order`` is proven optimal.
    """

    order: _Order
    ahead: bool
    mean_jct_ms: float
    lower_bound_ms: float
    num_orders: int
    num_evaluated: int
    num_pruned: int
    num_open: int

    @property
    def proven(self) -> bool:
        """Whether the search has proven that no order is better."""
        return self.num_open == 0

    @property
    def gap(self) -> float:
        """Optimality gap: (mean JCT - lower bound) / mean JCT; 0 if the order is proven optimal."""
        return 1.0 - self.lower_bound_ms / self.mean_jct_ms if self.mean_jct_ms else 0.0


def simplified_cluster(num_executors: int = 50) -> ClusterConfig:
    """Return the cluster of the simplified setting, in which executors move without delay.

    The warm-up delay keeps its default. Tasks of simplified profiles have no warm-up, but the delay is the unit of the
    guard's thresholds, and policies are trained with it.
    """
    return ClusterConfig(num_executors=num_executors, moving_delay_ms=0.0)


def search_orders(
    sequence: JobSequence, num_executors: int = 50, *, ahead: bool = True, max_evaluations: int = 2000
) -> OrderSearch:
    """Find the order of a batch's jobs with the lowest mean JCT.

    A local search comes first. It starts with the better one of two orders, by total work (``SjfCp``) and by time
    alone, and moves or exchanges jobs as long as the mean JCT falls. Then branch and bound follows, see the module.

    Args:
        sequence: jobs of ``simplified`` profiles that all arrive at time 0.
        num_executors: number of executors, at least 1.
        ahead: as in ``JobOrder``.
        max_evaluations: maximum number of simulated orders. The search finishes a prefix, so it may exceed this number
            by the number of jobs.

    Raises:
        ValueError: a job arrives later, or tasks of a stage have different durations.
    """
    if sequence.arrival_ms.any():
        raise ValueError("the search needs a batch: expected that all jobs arrive at time 0")
    for profile in sequence.profiles:
        spreads = (stage.durations.spread for stage in profile.stages)
        if any(shortest < longest for shortest, longest in spreads):
            raise ValueError(f"{profile.name}: expected a simplified profile, with equal tasks in each stage")
    search = _OrderSearch(sequence, simplified_cluster(num_executors), ahead, max_evaluations)
    search.descend()
    return search.branch_and_bound()


class _OrderSearch:
    """State of a search: simulated orders, and the best order so far."""

    def __init__(self, sequence: JobSequence, cluster: ClusterConfig, ahead: bool, max_evaluations: int):
        self._sequence = sequence
        self._cluster = cluster
        self._ahead = ahead
        self._max_evaluations = max_evaluations
        profiles = sequence.profiles
        self._alone_ms = np.array([_alone_ms(profile, cluster.num_executors) for profile in profiles])
        #: Simulated order -> bounds of its prefixes.
        self._known: dict[_Order, NDArray[np.float64]] = {}
        self._best: _Order = ()
        self._best_ms = math.inf

    def run(self, order: _Order) -> NDArray[np.float64]:
        """Simulate an order once, and return the bounds of its prefixes, see ``_prefix_bounds_ms``."""
        if order not in self._known:
            scheduler = _WatchedOrder(order, self._ahead)
            record = run_episode(self._cluster, self._sequence, scheduler)
            # A job has no grant if it only got executors whose target stage had become saturated.
            granted_ms = np.array([scheduler.first_grant_ms.get(job, record.end_ms) for job in order])
            self._known[order] = _prefix_bounds_ms(record, granted_ms, self._alone_ms)
            if self._is_better(record.mean_jct_ms):
                self._best, self._best_ms = order, record.mean_jct_ms
        return self._known[order]

    def descend(self) -> None:
        """Local search: move or exchange jobs of the best order as long as the mean JCT falls."""
        if not self._best:
            for key in ([profile.work_ms for profile in self._sequence.profiles], self._alone_ms):
                self.run(tuple(np.argsort(key, kind="stable").tolist()))
        before = math.inf
        while self._best_ms < before:
            before = self._best_ms
            for job, position in itertools.permutations(range(len(self._sequence)), 2):
                for change in (_moved, _exchanged):
                    if self._exhausted:
                        return
                    self.run(change(self._best, self._best.index(job), position))

    def branch_and_bound(self) -> OrderSearch:
        """Search all orders, or as many as the maximum number of evaluations allows."""
        num_jobs, num_pruned = len(self._sequence), 0
        # (bound in ms, length of the prefix, an order with this prefix)
        nodes = [(float(self.run(self._best)[0]), 0, self._best)]
        while nodes and self._is_better(nodes[0][0]) and not self._exhausted:
            bound, length, order = heapq.heappop(nodes)
            before = self._best_ms
            for position in range(length, num_jobs):
                child = _moved(order, position, length)
                bounds = self.run(child)
                if num_jobs - length <= 2:  # the order of one remaining job is fixed
                    continue
                child_bound = max(bound, float(bounds[length + 1]))
                if self._is_better(child_bound):
                    heapq.heappush(nodes, (child_bound, length + 1, child))
                else:
                    num_pruned += math.factorial(num_jobs - length - 1)
            if self._best_ms < before:
                self.descend()
        hopeful = [node for node in nodes if self._is_better(node[0])]
        num_left, num_open = (
            sum(math.factorial(num_jobs - length) for _, length, _ in some) for some in (nodes, hopeful)
        )
        return OrderSearch(
            order=self._best,
            ahead=self._ahead,
            mean_jct_ms=self._best_ms,
            lower_bound_ms=min(hopeful)[0] if hopeful else self._best_ms,
            num_orders=math.factorial(num_jobs),
            num_evaluated=len(self._known),
            num_pruned=num_pruned + num_left - num_open,
            num_open=num_open,
        )

    @property
    def _exhausted(self) -> bool:
        return len(self._known) >= self._max_evaluations

    def _is_better(self, mean_jct_ms: float) -> bool:
        """Return whether a mean JCT is better than the best one by more than rounding errors."""
        return mean_jct_ms < self._best_ms * (1.0 - _TOLERANCE)


def _moved(order: _Order, origin: int, position: int) -> _Order:
    """Return the order with the job at ``origin`` moved to ``position``."""
    jobs = list(order)
    jobs.insert(position, jobs.pop(origin))
    return tuple(jobs)


def _exchanged(order: _Order, one: int, other: int) -> _Order:
    """Return the order with two jobs exchanged."""
    jobs = list(order)
    jobs[one], jobs[other] = jobs[other], jobs[one]
    return tuple(jobs)


class _WatchedOrder(JobOrder):
    """A job order that records the time at which each job first gets executors, ms."""

    def __init__(self, order: _Order, ahead: bool):
        super().__init__(order, ahead)
        self.first_grant_ms: dict[int, float] = {}

    def decide(self, observation: Observation) -> Decision | None:
        decision = super().decide(observation)
        if decision is not None:
            job = int(observation.job_id[observation.stage_job[decision.stage]])
            self.first_grant_ms.setdefault(job, observation.time_ms)
        return decision


def _alone_ms(profile: JobProfile, num_executors: int) -> float:
    """Return a lower bound of a job's time on all executors, ms: the longest path of stages in full waves."""
    finish = np.zeros(profile.num_stages)
    for index in nx.topological_sort(profile.to_networkx()):
        stage = profile.stages[index]
        waves = math.ceil(stage.num_tasks / num_executors)
        start = max((finish[parent] for parent in profile.parents[index]), default=0.0)
        finish[index] = start + waves * stage.durations.spread[0]
    return float(finish.max())


def _prefix_bounds_ms(
    record: EpisodeRecord, granted_ms: NDArray[np.float64], alone_ms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return lower bounds of the mean JCT over all orders with a common prefix, for each prefix of an order.

    Args:
        record: episode of a batch under the order.
        granted_ms: time of the first executor of each job, in the jobs' order, float64 [num_jobs], ms.
        alone_ms: lower bound of each job's time alone, in the sequence's order, float64 [num_jobs], ms.

    Returns:
        float64 [num_jobs], ms; entry k is the bound for all orders with the same first k jobs.
    """
    # Episodes are equal until a job outside the prefix gets an executor. Below, columns are prefixes, and rows are
    # tasks or jobs.
    until = np.minimum.accumulate(granted_ms[::-1])[::-1]
    start, finish = record.task_start_ms[:, None], record.task_finish_ms[:, None]
    first_task = np.searchsorted(record.task_job, np.arange(granted_ms.size))
    need = np.add.reduceat(np.maximum(finish, until) - np.maximum(start, until), first_task)
    by_capacity = until + np.cumsum(np.sort(need, axis=0), axis=0) / record.config.num_executors
    untouched = np.minimum.reduceat(start, first_task) >= until
    by_path = until + np.where(untouched, alone_ms[:, None], 0.0)
    completion = np.maximum(by_capacity, np.sort(by_path, axis=0)).sum(axis=0)
    # Completed jobs need no work and count as completed at this time. Correct this to their true completion times.
    completion -= np.maximum(until - record.completion_ms[:, None], 0.0).sum(axis=0)
    bounds: NDArray[np.float64] = completion / granted_ms.size
    return bounds
