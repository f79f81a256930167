from dataclasses import replace

import numpy as np
import pytest

from decima.evaluation.episodes import run_scheduler
from decima.evaluation.sweeps import sweep_ms
from decima.evaluation.variants import ALPHAS
from decima.learning.cluster.rollout import Shared
from decima.learning.cluster.validation import evaluate_policy, reference_results, reference_row, scheduler_ms
from decima.policy import NeuralScheduler, Policy
from decima.policy.presets import SHORTCUT_POLICY
from simulator import ClusterConfig, run_episode
from tests.decima.evaluation.examples import CLUSTER, conditions


def test_a_policy_is_judged_by_whole_episodes() -> None:
    policy, chosen = (Policy(SHORTCUT_POLICY, seed=1), conditions(cluster=replace(CLUSTER, reward="jct+makespan")))
    judged = evaluate_policy(chosen, policy, [5, 9])
    for (jct_ms, makespan_ms, cost_ms), seed in zip(judged, (5, 9), strict=True):
        record = run_episode(CLUSTER, chosen.sequence(seed), NeuralScheduler(policy))
        assert (jct_ms, makespan_ms) == (record.mean_jct_ms, record.makespan_ms)
        assert cost_ms == pytest.approx(jct_ms + makespan_ms / 4)  # of four jobs


@pytest.mark.parametrize("encoder", ["sums", "tests.example_parts.network:MeanEncoder"])
def test_a_policy_that_waits_is_judged_with_and_without_the_guard(encoder: str) -> None:
    config = SHORTCUT_POLICY.model_copy(update={"encoder": encoder, "wait": True})
    policy, chosen = Policy(config, seed=3), conditions()
    judged = [evaluate_policy(chosen, policy, [5], guard=guard)[0, 0] for guard in (True, False)]
    schedulers = [NeuralScheduler(policy, guard=guard) for guard in (True, False)]
    assert judged == [run_episode(CLUSTER, chosen.sequence(5), scheduler).mean_jct_ms for scheduler in schedulers]
    assert schedulers[0].num_guarded > 0 == schedulers[1].num_guarded
    assert judged[0] < judged[1]


def test_episodes_in_lock_step_are_those_of_the_scheduler() -> None:
    config = SHORTCUT_POLICY.model_copy(update={"encoder": "tests.example_parts.network:MeanEncoder"})
    policy, chosen, seeds = Policy(config, seed=1), conditions(), [5, 9, 11]
    judged = evaluate_policy(chosen, policy, seeds)
    records = [run_episode(CLUSTER, chosen.sequence(seed), NeuralScheduler(policy)) for seed in seeds]
    assert judged[:, 0].tolist() == [record.mean_jct_ms for record in records]
    assert len({record.num_decisions for record in records}) > 1  # they do not end together


@pytest.mark.parametrize("reward", ["jct", "makespan"])
def test_the_classic_schedulers_are_judged_by_what_is_rewarded(reward: str) -> None:
    chosen, seeds = conditions(cluster=ClusterConfig(num_executors=4, reward=reward)), [5, 6, 7]
    shared = Shared(chosen, SHORTCUT_POLICY)
    results = reference_results(np.array([reference_row(shared, seed) for seed in seeds]))
    fair = [run_scheduler(chosen.cluster, chosen.sequence(seed), "fair") for seed in seeds]
    expected = [record.makespan_ms if reward == "makespan" else record.mean_jct_ms for record in fair]
    assert results["fair"] == expected == [scheduler_ms(shared, ("fair", seed)) for seed in seeds]
    sweeps = np.array([sweep_ms(chosen.cluster, chosen.sequence(seed), reward) for seed in seeds])
    best = int(sweeps.mean(axis=0).argmin())
    assert results[f"weighted-fair:{ALPHAS[best]:g}"] == sweeps[:, best].tolist()
    assert results["tuned-weighted-fair"] == sweeps.min(axis=1).tolist()
