"""Branch and bound over the orders of a batch's jobs: the near-optimal baseline of Decima's Figure 21.

As in the appendix "Optimality of Decima", moves are free and every task takes the mean duration of its stage, so that
the order of the jobs determines the schedule. The paper simulates all n! orders; this search prunes most of them.

Until a job outside a *prefix* of the order gets its first executor, the episode depends on the prefix alone. So one
simulated order gives, for each of its prefixes, the remaining executor time of every job at the moment from which
orders with that prefix may differ. From then on, the first k jobs to complete need at least the k smallest of these
remainders, of which the cluster provides at most one ms per executor and ms; and a job that has not started takes at
least as long as alone. That bounds the average JCT of all orders with the prefix from below; a prefix whose
bound is no better than the best known order is pruned.

Prefixes are explored in the order of their bounds, so that the search can stop at any time with a bound on the gap to
the best order.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.schedulers.job_order import JobOrder
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import run_episode

if TYPE_CHECKING:
    from simulator.cluster.observation import Decision, Observation
    from simulator.cluster.record import EpisodeRecord
    from workloads.arrivals import JobSequence
    from workloads.job import JobProfile

__all__ = ["OrderSearch", "search_orders", "simplified_cluster"]

_Order = tuple[int, ...]

#: What a later order must save to count as better, relative to the average JCT: more than rounding.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class OrderSearch:
    """The result of a search, and the share of all orders that it settled.

    Attributes:
        order: numbers of the jobs, the most urgent first, for ``JobOrder``.
        ahead: as in ``JobOrder``.
        mean_jct_ms: average JCT under ``order``, ms.
        lower_bound_ms: no order has a lower average JCT (but for rounding), ms; ``mean_jct_ms`` itself if that is
            proven best.
        num_orders: all orders, n!.
        num_evaluated: different orders that the simulator ran.
        num_pruned: orders in the subtrees that their bound ruled out; a few of them may have been run as well.
        num_open: orders in the subtrees that were not searched; 0 if the result is proven best.
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
        """Whether no order is better."""
        return self.num_open == 0

    @property
    def gap(self) -> float:
        """Optimality gap: (average JCT - lower bound) / average JCT; 0 if the order is proven optimal."""
        return 1.0 - self.lower_bound_ms / self.mean_jct_ms if self.mean_jct_ms else 0.0


def simplified_cluster(num_executors: int = 50) -> ClusterConfig:
    """Return the cluster of the simplified setting: executors move in no time.

    The usual warm-up stays. Simplified tasks do not have it, but it is the unit of the guard's thresholds, and
    policies are trained with it.
    """
    return ClusterConfig(num_executors=num_executors, moving_delay_ms=0.0)


def search_orders(
    sequence: JobSequence, num_executors: int = 50, *, ahead: bool = True, max_evaluations: int = 2000
) -> OrderSearch:
    """Find the order of a batch's jobs with the lowest average JCT.

    A descent comes first: from the jobs by total work (``SjfCp``) or from those by the time that they need alone,
    whichever is better, single jobs are moved and pairs exchanged until that helps no more. Then branch and bound,
    as the module describes.

    Args:
        sequence: jobs that are all there at 0, of ``simplified`` profiles.
        num_executors: at least 1.
        ahead: as in ``JobOrder``.
        max_evaluations: when to give up proving, in orders run; a prefix is finished first, so that it may be
            exceeded by the number of jobs.

    Raises:
        ValueError: a job that arrives later, or a stage whose tasks may take different times.
    """
    if sequence.arrival_ms.any():
        raise ValueError("orders are searched for batches: expected all jobs at 0")
    for profile in sequence.profiles:
        spreads = (stage.durations.spread for stage in profile.stages)
        if any(shortest < longest for shortest, longest in spreads):
            raise ValueError(f"{profile.name}: expected a simplified profile, in which tasks do not vary")
    search = _Search(sequence, simplified_cluster(num_executors), ahead, max_evaluations)
    search.descend()
    return search.branch_and_bound()


class _Search:
    """Evaluated orders, and the best order so far."""

    def __init__(self, sequence: JobSequence, cluster: ClusterConfig, ahead: bool, max_evaluations: int):
        self._sequence = sequence
        self._cluster = cluster
        self._ahead = ahead
        self._max_evaluations = max_evaluations
        profiles = sequence.profiles
        self._alone_ms = np.array([_alone_ms(profile, cluster.num_executors) for profile in profiles])
        #: Of every order that was run, the bounds of its prefixes.
        self._known: dict[_Order, NDArray[np.float64]] = {}
        self._best: _Order = ()
        self._best_ms = math.inf

    def run(self, order: _Order) -> NDArray[np.float64]:
        """Run an order, unless it ran before, and return its bounds, see ``_prefix_bounds_ms``."""
        if order not in self._known:
            scheduler = _WatchedOrder(order, self._ahead)
            record = run_episode(self._cluster, self._sequence, scheduler)
            # A job that the cluster itself served, with executors whose target had filled up, was given none.
            granted_ms = np.array([scheduler.first_grant_ms.get(job, record.end_ms) for job in order])
            self._known[order] = _prefix_bounds_ms(record, granted_ms, self._alone_ms)
            if self._is_better(record.mean_jct_ms):
                self._best, self._best_ms = order, record.mean_jct_ms
        return self._known[order]

    def descend(self) -> None:
        """Change the best order, one job or two at a time, as long as the average JCT falls."""
        if not self._best:
            for key in ([profile.work_ms for profile in self._sequence.profiles], self._alone_ms):
                self.run(tuple(np.argsort(key, kind="stable").tolist()))
        before = math.inf
        while self._best_ms < before:
            before = self._best_ms
            for job, place in itertools.permutations(range(len(self._sequence)), 2):
                for change in (_moved, _exchanged):
                    if self._exhausted:
                        return
                    self.run(change(self._best, self._best.index(job), place))

    def branch_and_bound(self) -> OrderSearch:
        """Settle all orders, or as many as there are evaluations for."""
        num_jobs, num_pruned = len(self._sequence), 0
        # (bound in ms, length of the prefix, an order that has it)
        nodes = [(float(self.run(self._best)[0]), 0, self._best)]
        while nodes and self._is_better(nodes[0][0]) and not self._exhausted:
            bound, length, order = heapq.heappop(nodes)
            before = self._best_ms
            for place in range(length, num_jobs):
                child = _moved(order, place, length)
                bounds = self.run(child)
                if num_jobs - length <= 2:  # one job is left, which has no choice
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
        """Whether an order with this average JCT would be an improvement, by more than rounding."""
        return mean_jct_ms < self._best_ms * (1.0 - _TOLERANCE)


def _moved(order: _Order, origin: int, place: int) -> _Order:
    """The order with one job taken out and put in at another place."""
    jobs = list(order)
    jobs.insert(place, jobs.pop(origin))
    return tuple(jobs)


def _exchanged(order: _Order, one: int, other: int) -> _Order:
    """The order with two jobs in each other's place."""
    jobs = list(order)
    jobs[one], jobs[other] = jobs[other], jobs[one]
    return tuple(jobs)


class _WatchedOrder(JobOrder):
    """A job order that records when each job was given executors for the first time, ms."""

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
    """Return a lower bound of the job's time on all executors: the longest path, each stage in full waves."""
    finish = np.zeros(profile.num_stages)
    for number in nx.topological_sort(profile.graph()):
        stage = profile.stages[number]
        waves = math.ceil(stage.num_tasks / num_executors)
        start = max((finish[parent] for parent in profile.parents[number]), default=0.0)
        finish[number] = start + waves * stage.durations.spread[0]
    return float(finish.max())


def _prefix_bounds_ms(
    record: EpisodeRecord, granted_ms: NDArray[np.float64], alone_ms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return lower bounds of the average JCT over all orders with the same first jobs.

    Args:
        record: the order's episode, of a batch.
        granted_ms: when the first, second, .. job of the order was given its first executor, float64 [num_jobs], ms.
        alone_ms: what each job of the sequence needs at least, float64 [num_jobs], ms.

    Returns:
        float64 [num_jobs], ms; entry k holds for all orders that agree in the first k jobs.
    """
    # Until a job outside the prefix is given an executor, episodes do not differ. Below, there is a column for each
    # prefix and a row for each task or job.
    until = np.minimum.accumulate(granted_ms[::-1])[::-1]
    start, finish = record.task_start_ms[:, None], record.task_finish_ms[:, None]
    first_task = np.searchsorted(record.task_job, np.arange(granted_ms.size))
    need = np.add.reduceat(np.maximum(finish, until) - np.maximum(start, until), first_task)
    by_capacity = until + np.cumsum(np.sort(need, axis=0), axis=0) / record.config.num_executors
    untouched = np.minimum.reduceat(start, first_task) >= until
    by_path = until + np.where(untouched, alone_ms[:, None], 0.0)
    completion = np.maximum(by_capacity, np.sort(by_path, axis=0)).sum(axis=0)
    # Jobs that were complete by then need nothing and stand first, at that time; but they had completed earlier.
    completion -= np.maximum(until - record.completion_ms[:, None], 0.0).sum(axis=0)
    bounds: NDArray[np.float64] = completion / granted_ms.size
    return bounds
