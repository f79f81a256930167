"""Rollout: simulate each of a few rules on forks of the cluster, and follow the best one."""

from __future__ import annotations

import numpy as np

from decima.schedulers.base import Scheduler
from decima.schedulers.priced_srpt import PricedSrpt
from decima.schedulers.srpt import ProfiledSrpt
from simulator.cluster.base import BaseCluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.job import JobProfile

__all__ = ["Lookahead"]

#: Cost exponents of executors that ``ProfiledSrpt`` is tried with.
THRIFTS = (2.5, 4.0, 6.0)
#: Relative cost that another rule must save to replace ``PricedSrpt``, since the sampled futures vary.
MARGIN = 0.005


class Lookahead(Scheduler):
    """Follow the rule that costs least in simulation, until a job arrives or completes.

    The rules are ``PricedSrpt`` and ``ProfiledSrpt`` with several cost exponents. Whenever the set of live jobs has
    changed, each rule runs forks of the cluster (``BaseCluster.fork``) until all live jobs are complete. Forks have
    sampled task noise, the same for all rules, and no jobs to come: they contain nothing of the true future. The cost
    is the time that the live jobs spend in the system. Source: rollout algorithm (Bertsekas, 2020, chapter 2).

    It needs a simulator that knows the distributions of task times. Without one, in front of a live Spark or where
    estimates have errors (``ClusterConfig.knowledge``), it decides as ``PricedSrpt``. One plan for 20 live jobs takes
    some 0.1 s.

    Args:
        futures: number of sampled futures, a whole number from 1.

    Raises:
        ValueError: ``futures`` is not a whole number from 1.
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
        """Begin an episode; no cluster can be forked before :meth:`watch`."""
        self._rule, self._cluster, self._profiles = self.rules[0], None, None
        for rule in self.rules:
            rule.reset(config)

    def watch(self, cluster: BaseCluster) -> None:
        """Fork this cluster from now on, unless its estimates are wrong: forks have true numbers of tasks."""
        self._cluster = cluster if cluster.config.knowledge.is_exact else None

    def decide(self, observation: Observation) -> Decision | None:
        """Decide as the best rule does; choose that rule anew if the live jobs have changed."""
        if self._cluster is not None and observation.profiles is not self._profiles:
            self._profiles = observation.profiles
            costs = [self.cost_ms(self._cluster, rule) for rule in self.rules]
            costs[0] *= 1 - MARGIN
            self._rule = self.rules[int(np.argmin(costs))]
        return self._rule.decide(observation)

    def cost_ms(self, cluster: BaseCluster, rule: Scheduler) -> float:
        """Return the time that the live jobs spend in the system from now on under a rule, mean of the futures, ms."""
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
