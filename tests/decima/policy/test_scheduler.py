"""Policies as schedulers: every episode comes to its end, whatever the cluster and the jobs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decima.policy.config import DECIMA_SIM_POLICY, PAPER_POLICY, SHORTCUT_POLICY, PolicyConfig
from decima.policy.scheduler import NeuralScheduler
from simulator import DECIMA_SIM, PAPER, Cluster, ClusterConfig, Semantics, run_episode
from tests.decima.policy.examples import VARIANTS, policy_of, random_sequence
from tests.simulator.cluster.build import chain, jobs, runs, stage
from tests.simulator.cluster.strategies import clusters
from tests.workloads.strategies import job_sequences
from workloads import JobSequence, batch_arrivals, poisson_arrivals, synthetic_profiles


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_policy_brings_all_jobs_to_an_end(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    scheduler = NeuralScheduler(policy_of(VARIANTS[name], seed % 100))
    config = ClusterConfig(int(random.integers(1, 12)), moving_delay_ms=150)
    record = run_episode(config, random_sequence(random), scheduler)
    assert np.isfinite(record.completion_ms).all()


@pytest.mark.parametrize("config", [PAPER_POLICY, SHORTCUT_POLICY])
@settings(max_examples=15, deadline=None)
@given(cluster=clusters(), sequence=job_sequences())
def test_any_cluster_and_any_jobs_will_do(
    config: PolicyConfig, cluster: ClusterConfig, sequence: JobSequence
) -> None:
    """Several kinds of executors, zero durations, jobs in several parts, any mixture of the semantics."""
    record = run_episode(cluster, sequence, NeuralScheduler(policy_of(config)))
    assert np.isfinite(record.completion_ms).all()


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
@pytest.mark.parametrize("config", [PAPER_POLICY, SHORTCUT_POLICY, DECIMA_SIM_POLICY])
def test_its_decisions_are_allowed(config: PolicyConfig, semantics: Semantics) -> None:
    sequence = poisson_arrivals(synthetic_profiles(6), 6, 8000, seed=2)
    cluster = Cluster(ClusterConfig(15, semantics=semantics), sequence)
    scheduler = NeuralScheduler(policy_of(config))
    scheduler.reset(cluster.config)
    while not cluster.done:
        observation = cluster.observe()
        decision = scheduler.decide(observation) if observation.num_schedulable else None
        if decision is not None:
            held = observation.held(int(observation.stage_job[decision.stage]))
            assert observation.schedulable[decision.stage]
            assert held < decision.limit <= observation.num_executors
        cluster.decide(decision)
    assert np.isfinite(cluster.record().completion_ms).all()


@pytest.mark.parametrize("executors", [1, 3, 300])
@pytest.mark.parametrize("name", VARIANTS)
def test_one_job_of_one_stage_on_any_number_of_executors(name: str, executors: int) -> None:
    """Policies know nothing of the size of the cluster that they were trained on."""
    record = run_episode(
        ClusterConfig(executors), jobs(chain(stage(5, 1000))), NeuralScheduler(policy_of(VARIANTS[name]))
    )
    assert np.isfinite(record.completion_ms).all()


def test_one_seed_gives_one_trajectory() -> None:
    config, sequence = ClusterConfig(10), batch_arrivals(synthetic_profiles(5), 4, seed=1)
    policy = policy_of(SHORTCUT_POLICY)

    def trajectory(sample_seed: int | None) -> list[tuple[int, int, int, int, float, float]]:
        return runs(run_episode(config, sequence, NeuralScheduler(policy, sample_seed)))

    assert trajectory(None) == trajectory(None)
    assert trajectory(1) == trajectory(1)
    assert trajectory(1) != trajectory(2)
    assert trajectory(1) != trajectory(None)


def test_episodes_leave_no_traces_in_each_other() -> None:
    config = ClusterConfig(10)
    first, second = (batch_arrivals(synthetic_profiles(5), 4, seed) for seed in (1, 2))
    for sample_seed in (None, 3):
        scheduler = NeuralScheduler(policy_of(PAPER_POLICY), sample_seed)
        before = runs(run_episode(config, first, scheduler))
        run_episode(config, second, scheduler)
        assert runs(run_episode(config, first, scheduler)) == before


def test_it_can_be_asked_without_an_episode() -> None:
    """Someone may show it a single observation."""
    sequence = batch_arrivals(synthetic_profiles(5), 4, seed=1)
    observation = Cluster(ClusterConfig(10), sequence).observe()
    scheduler = NeuralScheduler(policy_of(PAPER_POLICY))
    decision = scheduler.decide(observation)
    assert decision is not None
    assert observation.schedulable[decision.stage]


def test_where_there_is_nothing_to_schedule_it_chooses_nothing() -> None:
    """Before the first job arrives, there is not even a job."""
    sequence = jobs(chain(stage(1, 10)), at=[5])
    cluster = Cluster(ClusterConfig(2, semantics=DECIMA_SIM), sequence)
    observation = cluster.observe()
    assert observation.stages.size == 0
    assert NeuralScheduler(policy_of(PAPER_POLICY)).decide(observation) is None
