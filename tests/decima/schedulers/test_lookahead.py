"""Lookahead: the chosen rule, knowledge, and invalid parameters."""

from dataclasses import replace

import numpy as np
import pytest

from decima.schedulers.base import Scheduler
from decima.schedulers.lookahead import Lookahead
from decima.schedulers.priced_srpt import PricedSrpt
from simulator import Cluster, ClusterConfig, Decision, Observation, run_episode
from simulator.cluster.config import Knowledge
from tests.simulator.cluster.build import job, jobs, runs, stage
from workloads import batch_arrivals, poisson_arrivals, synthetic_profiles

CONFIG = ClusterConfig(15)


class LongestFirst(Scheduler):
    """Gives all executors to the job with the most remaining work, which is a bad rule."""

    def decide(self, observation: Observation) -> Decision | None:
        work = observation.work_ms(observation.remaining_tasks)
        work[observation.next_stage < 0] = -1.0
        job = int(work.argmax())
        return Decision(int(observation.next_stage[job]), observation.num_executors) if work[job] >= 0 else None


def test_decisions_and_costs_of_futures() -> None:
    sequence = poisson_arrivals(synthetic_profiles(6), 4, 8000, seed=2)
    scheduler = Lookahead(futures=2)
    first = runs(run_episode(CONFIG, sequence, scheduler))
    assert first == runs(run_episode(CONFIG, sequence, scheduler))
    assert first == runs(run_episode(replace(CONFIG, engine="simpy"), sequence, Lookahead(futures=2)))
    sequence = batch_arrivals(synthetic_profiles(6), 8, seed=3)
    planner = Lookahead()
    planner.rules = (LongestFirst(), PricedSrpt())
    completion_ms = run_episode(CONFIG, sequence, planner).completion_ms
    best = run_episode(CONFIG, sequence, PricedSrpt()).completion_ms
    assert completion_ms.mean() < 1.02 * best.mean()
    assert completion_ms.mean() < 0.9 * run_episode(CONFIG, sequence, LongestFirst()).completion_ms.mean()
    sequence, config = batch_arrivals(synthetic_profiles(6), 6, seed=3), ClusterConfig(15)
    config = replace(config, knowledge=Knowledge(job_error=1.0))
    assert runs(run_episode(config, sequence, Lookahead())) == runs(run_episode(config, sequence, PricedSrpt()))
    # One executor runs jobs of 7 s and 9 s, shortest first, with a move of 0.01 s before each job.
    cluster = Cluster(ClusterConfig(1, moving_delay_ms=10.0), jobs(job(stage(9, 1000.0)), job(stage(7, 1000.0))))
    planner = Lookahead()
    assert planner.cost_ms(cluster, PricedSrpt()) == 2 * 7010.0 + 9010.0
    assert planner.cost_ms(cluster, LongestFirst()) == 2 * 9010.0 + 7010.0
    assert cluster.clock.now == 0.0
    cluster.decide(Decision(1, 1))
    assert cluster.clock.now == 7010.0
    assert planner.cost_ms(cluster, PricedSrpt()) == 9010.0


def test_it_plans_when_a_job_arrives_or_completes_and_never_without_a_simulator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[float] = []
    cost_ms = Lookahead.cost_ms

    def counted(planner: Lookahead, cluster: Cluster, rule: Scheduler) -> float:
        plans.append(float(cluster.clock.now))
        return cost_ms(planner, cluster, rule)

    monkeypatch.setattr(Lookahead, "cost_ms", counted)
    sequence, planner = batch_arrivals(synthetic_profiles(6), 6, seed=3), Lookahead()
    run_episode(CONFIG, sequence, planner)
    assert len(planner.rules) < len(plans) <= len(planner.rules) * len(sequence)
    plans.clear()
    planner.reset(CONFIG)
    alone, rule = Cluster(CONFIG, sequence), PricedSrpt()
    while not alone.done:
        seen = alone.observe()
        decision = planner.decide(seen) if seen.num_schedulable else None
        assert decision == (rule.decide(seen) if seen.num_schedulable else None)
        alone.decide(decision)
    assert not plans


def test_it_does_not_know_the_noise_and_the_jobs_to_come() -> None:
    """With the same first jobs and other noise or arrivals, decisions are equal as long as observations are equal."""
    sequence = batch_arrivals(synthetic_profiles(6), 6, seed=3)
    later = batch_arrivals(synthetic_profiles(4), 2, seed=5)
    more = replace(
        sequence,
        profiles=(*sequence.profiles, *later.profiles),
        arrival_ms=np.append(sequence.arrival_ms, [3e4, 4e4]),
        seed=4,
    )
    clusters = [Cluster(CONFIG, sequence), Cluster(CONFIG, more)]
    schedulers = [Lookahead(futures=2) for _ in clusters]
    for scheduler, cluster in zip(schedulers, clusters, strict=True):
        scheduler.watch(cluster)
    alike = 0
    while True:
        seen = [cluster.observe() for cluster in clusters]
        if seen[0].time_ms != seen[1].time_ms or seen[0].stages.tobytes() != seen[1].stages.tobytes():
            break
        decisions = [
            scheduler.decide(each) if each.num_schedulable else None
            for scheduler, each in zip(schedulers, seen, strict=True)
        ]
        assert decisions[0] == decisions[1]
        alike += 1
        for cluster, decision in zip(clusters, decisions, strict=True):
            cluster.decide(decision)
    assert alike > 3
