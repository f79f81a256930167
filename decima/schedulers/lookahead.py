"""Rollout: simulate several rules on forks of the cluster, and follow the best rule."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from decima.schedulers.priced_srpt import PricedSrpt, ProfiledSrpt
from simulator.cluster.base import BaseCluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.job import JobProfile

__all__ = ["Lookahead"]

#: Cost exponents of executors of the candidate rules ``ProfiledSrpt``.
THRIFTS = (2.5, 4.0, 6.0)
#: Minimum relative saving of another rule that replaces ``PricedSrpt``, since the sampled futures vary.
MARGIN = 0.005


class Lookahead(Scheduler):
    """Rollout: follow the rule with the least simulated cost, until a job arrives or completes.

    The rules are ``PricedSrpt`` and ``ProfiledSrpt`` with several cost exponents. After each change of the set of live
    jobs, each rule runs on forks of the cluster (``BaseCluster.fork``) until all live jobs are complete. Forks sample
    task noise, the same for all rules, and have no further arrivals, so they contain nothing of the true future. The
    cost is the total time of the live jobs in the system. Source: rollout algorithm (Bertsekas, 2020, chapter 2).

    The simulated cluster must know the distributions of task times. On a live Spark, and with estimation errors
    (``ClusterConfig.knowledge``), decisions are those of ``PricedSrpt``. One simulation of all rules with 20 live jobs
    takes about 0.1 s.

    Args:
        futures: number of sampled futures, an integer, at least 1.

    Raises:
        ValueError: ``futures`` is out of range.
    """

    def __init__(self, futures: float = 1) -> None:
        if not (futures >= 1 and float(futures).is_integer()):
            raise ValueError(f"futures must be a whole number, at least 1, got {futures:g}")
        self.futures = int(futures)
        self.rules: tuple[Scheduler, ...] = (PricedSrpt(), *map(ProfiledSrpt, THRIFTS))
        self._rule = self.rules[0]
        self._cluster: BaseCluster | None = None
        self._profiles: tuple[JobProfile, ...] | None = None

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode. The scheduler has no cluster to fork before ``watch``."""
        self._rule, self._cluster, self._profiles = self.rules[0], None, None
        for rule in self.rules:
            rule.reset(config)

    def watch(self, cluster: BaseCluster) -> None:
        """Set the cluster to fork, if its estimates are exact: forks have the true numbers of tasks."""
        self._cluster = cluster if cluster.config.knowledge.is_exact else None

    def decide(self, observation: Observation) -> Decision | None:
        """Return the best rule's decision; find the best rule again if the set of live jobs has changed."""
        if self._cluster is not None and observation.profiles is not self._profiles:
            self._profiles = observation.profiles
            costs = [self.cost_ms(self._cluster, rule) for rule in self.rules]
            costs[0] *= 1 - MARGIN
            self._rule = self.rules[int(np.argmin(costs))]
        return self._rule.decide(observation)

    def cost_ms(self, cluster: BaseCluster, rule: Scheduler) -> float:
        """Return the total remaining time of the live jobs in the system under a rule, mean over futures, ms."""
        costs = []
        for seed in range(self.futures):
            fork = cluster.fork(futures=seed, arrivals=False, log=False)
            live = fork.observe().job_id.copy()
            start_ms = float(fork.clock.now)
            fork.keeps_executors = rule.keeps_executors
            while not fork.done:
                seen = fork.observe()
                fork.decide(rule.decide(seen) if seen.num_schedulable else None)
            end_ms = np.fmin(fork.completion_ms[live], float(fork.clock.now))
            costs.append(float((end_ms - start_ms).sum()))
        return sum(costs) / self.futures
