"""The planner: what it tries out, what it may not know, and how well its model foretells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from decima.schedulers.lookahead import forward
from decima.schedulers.lookahead.planner import Lookahead
from decima.schedulers.srpt import ProfiledSrpt
from simulator import Cluster, ClusterConfig, Decision, Observation, run_episode
from tests.simulator.cluster.build import chain, job, jobs, runs, stage
from workloads import batch_arrivals, poisson_arrivals, synthetic_profiles

CONFIG = ClusterConfig(15)


def test_nothing_is_drawn() -> None:
    sequence = poisson_arrivals(synthetic_profiles(6), 8, 8000, seed=2)
    scheduler = Lookahead(jobs=2)
    first = runs(run_episode(CONFIG, sequence, scheduler))
    assert first == runs(run_episode(CONFIG, sequence, scheduler))
    assert first == runs(run_episode(CONFIG, sequence, Lookahead(jobs=2)))


@pytest.mark.parametrize("number_of_jobs", [0, 2])
def test_it_does_not_know_the_luck_to_come(number_of_jobs: int) -> None:
    """Two episodes of the same jobs with other luck: as long as they look the same, decisions are the same."""
    sequence = batch_arrivals(synthetic_profiles(6), 6, seed=3)
    clusters = [Cluster(CONFIG, replace(sequence, seed=seed)) for seed in (3, 4)]
    schedulers = [Lookahead(jobs=number_of_jobs) for _ in clusters]
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
    finished = [run_episode(CONFIG, cluster.sequence, Lookahead()).completion_ms for cluster in clusters]
    assert (finished[0] != finished[1]).any()


def waiting_for_the_first() -> Observation:
    """The only executor has ended the first stage of a job with 9 s of work left; another job has 7 s."""
    sequence = jobs(chain(stage(1, 50.0), stage(9, 1000.0)), job(stage(7, 1000.0)))
    cluster = Cluster(ClusterConfig(1, moving_delay_ms=10.0), sequence)
    cluster.decide(Decision(0, 1))
    while cluster.observe().source < 0:
        cluster.decide(None)
    return cluster.observe()


def test_it_leaves_a_job_where_the_rule_would_stay() -> None:
    """Staying costs 9 + 16 s, leaving 7 + 16 s and two moves."""
    seen = waiting_for_the_first()
    assert ProfiledSrpt().decide(seen) == Lookahead().decide(seen) == Decision(1, 1)
    assert Lookahead(jobs=1).decide(seen) == Decision(2, 1)


def test_it_foretells_what_tasks_of_one_duration_take() -> None:
    seen, planner = waiting_for_the_first(), Lookahead()
    limits = planner._begin(seen)
    stays = planner._cost_ms(seen, limits[0])
    assert stays == (2 * 9000.0 + 10.0 + 7000.0, 1, 1)
    leaves = planner._cost_ms(seen, limits[0], 2, 1)
    assert leaves[0] == 2 * (10.0 + 7000.0) + 10.0 + 9000.0


def test_a_price_counts_work_and_moves() -> None:
    """Two live jobs and one executor, so a price of 0.5 is one job's."""
    seen, planner = waiting_for_the_first(), Lookahead(price=0.5)
    limits = planner._begin(seen)
    assert planner._cost_ms(seen, limits[0])[0] == 3 * 9000.0 + 2 * (10.0 + 7000.0)


def test_its_rule_is_profiled_srpt_and_it_foretells_how_long_jobs_take() -> None:
    sequence = batch_arrivals(synthetic_profiles(8), 8, seed=1)
    rule, planner = ProfiledSrpt(), Lookahead()
    cluster, foretold = Cluster(CONFIG, sequence), []
    while not cluster.done:
        seen = cluster.observe()
        decision = rule.decide(seen) if seen.num_schedulable else None
        if seen.num_schedulable and not seen.last_call:
            cost_ms, chosen, limit = planner._cost_ms(seen, planner._begin(seen)[0])
            assert (chosen, limit) == ((decision.stage, decision.limit) if decision else (forward.BY_RULE, 0))
            foretold.append((seen.time_ms, cost_ms))
        cluster.decide(decision)
    completion_ms = cluster.record().completion_ms
    true = np.array([np.maximum(completion_ms - now, 0.0).sum() for now, _ in foretold])
    ratios = np.array([cost for _, cost in foretold]) / true
    early = ratios[: len(ratios) // 2]
    assert np.abs(early - 1).max() < 0.15


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("lookahead:2:-1", "price must not be negative, got -1"),
        ("lookahead:2:0:1.5", "jobs must be a whole number, at least 0, got 1.5"),
        ("lookahead:2:0:-1", "jobs must be a whole number, at least 0, got -1"),
        ("lookahead:x", "expected lookahead:THRIFT:PRICE:JOBS, numbers from -100 to 100"),
    ],
)
def test_bad_parameters_are_refused(spec: str, complaint: str) -> None:
    with pytest.raises(SchedulerError, match=complaint) as refusal:
        make_scheduler(spec)
    assert "\n" not in str(refusal.value)
