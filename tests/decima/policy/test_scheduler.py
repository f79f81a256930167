"""Policies as schedulers: every episode ends, on any cluster with any jobs."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.policy.config import PolicyConfig
from decima.policy.presets import PAPER_POLICY, SHORTCUT_POLICY
from decima.policy.scheduler import Actor, NeuralScheduler
from simulator import DECIMA_SIM, Cluster, ClusterConfig, run_episode
from tests.decima.policy.examples import VARIANTS, policy_of, random_sequence, two_networks
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
def test_any_cluster_and_any_jobs_will_do(config: PolicyConfig, cluster: ClusterConfig, sequence: JobSequence) -> None:
    """Episodes have several executor classes, zero durations, disconnected DAGs and any mixture of semantics."""
    record = run_episode(cluster, sequence, NeuralScheduler(policy_of(config)))
    assert np.isfinite(record.completion_ms).all()


def test_one_seed_gives_one_trajectory() -> None:
    config, sequence = ClusterConfig(10), batch_arrivals(synthetic_profiles(5), 4, seed=1)
    policy = policy_of(SHORTCUT_POLICY)

    def trajectory(scheduler: NeuralScheduler) -> list[tuple[int, int, int, int, float, float]]:
        return runs(run_episode(config, sequence, scheduler))

    found = []
    for sample_seed in (None, 1, 2):
        scheduler = NeuralScheduler(policy, sample_seed)
        found.append(trajectory(scheduler))
        assert trajectory(NeuralScheduler(policy, sample_seed)) == found[-1]
        run_episode(config, batch_arrivals(synthetic_profiles(5), 4, seed=2), scheduler)  # leaves no traces
        assert trajectory(scheduler) == found[-1]
    assert found[0] != found[1] != found[2]


def test_a_second_network_decides_with_few_jobs() -> None:
    policy = two_networks()
    assert policy.few_jobs is not None
    many, few = (NeuralScheduler(Actor(each.config, each.arrays)) for each in (policy, policy.few_jobs.policy))
    both = NeuralScheduler(policy)
    cluster = Cluster(ClusterConfig(10), poisson_arrivals(synthetic_profiles(5), 6, 3000.0, seed=1))
    answers = set()
    while not cluster.done:
        observation = cluster.observe()
        deciding = few if len(observation.jobs) <= 2 else many
        expected = deciding.decide(observation)
        assert both.decide(observation) == expected
        np.testing.assert_array_equal(both.graph(observation).low, deciding.graph(observation).low)
        answers.add((len(observation.jobs) <= 2, few.decide(observation) == many.decide(observation)))
        cluster.decide(expected)
    assert len(answers) == 4
    network = both.network
    assert network.few_jobs is policy.few_jobs
    assert both.decide(observation) == expected


def test_single_observations_and_those_before_the_first_job() -> None:
    # A policy decides in a single observation without ``reset``.
    sequence = batch_arrivals(synthetic_profiles(5), 4, seed=1)
    observation = Cluster(ClusterConfig(10), sequence).observe()
    scheduler = NeuralScheduler(policy_of(PAPER_POLICY))
    decision = scheduler.decide(observation)
    assert decision is not None
    assert observation.schedulable[decision.stage]
    # A policy decides nothing before the first job arrives.
    sequence = jobs(chain(stage(1, 10)), at=[5])
    cluster = Cluster(ClusterConfig(2, semantics=DECIMA_SIM), sequence)
    observation = cluster.observe()
    assert observation.stages.size == 0
    assert NeuralScheduler(policy_of(PAPER_POLICY)).decide(observation) is None
