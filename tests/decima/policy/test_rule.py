"""Policies with features of a rule."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from decima.policy.config import PolicyConfig
from decima.policy.policy import Policy
from decima.policy.presets import GENERAL_POLICY, PAPER_POLICY, TOLD_PACKING_POLICY
from decima.policy.scheduler import NeuralScheduler, make_rule
from decima.schedulers.base import Scheduler
from decima.schedulers.objectives import Atc
from decima.schedulers.srpt import Srpt, TunedSrpt
from simulator import PAPER, TRACE, Cluster, ClusterConfig, ExecutorClass, Semantics, run_episode
from tests.cases import cases
from tests.decima.policy.examples import changed, random_sequence
from workloads import AttributeDistribution, JobSequence, uniform_memory


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(1, 30), delay_ms=st.sampled_from([0.0, 10.0, 300.0]))
def test_a_policy_whose_networks_say_next_to_nothing_decides_as_the_rule(
    seed: int, executors: int, delay_ms: float
) -> None:
    """With large weights of the rule, a new policy decides as the rule, for any jobs, cluster and delay."""
    config = changed(GENERAL_POLICY, rule_stage_weight=1e4, rule_limit_weight=1e4)
    cluster_config = ClusterConfig(executors, moving_delay_ms=delay_ms, warmup_delay_ms=0.0)
    cluster = Cluster(cluster_config, random_sequence(np.random.default_rng(seed), max_jobs=6))
    policy, rule = NeuralScheduler(Policy(config, seed % 100)), Srpt()
    while not cluster.done:
        observation = cluster.observe()
        decision = None
        if observation.num_schedulable:
            decision, other = rule.decide(observation), policy.decide(observation)
            assert (decision is None) == (other is None)
            if decision is not None and other is not None:
                assert decision.stage == other.stage
                given = min(observation.offered, int(observation.unclaimed_tasks[decision.stage]))
                held = observation.held(int(observation.stage_job[decision.stage]))
                assert min(decision.limit - held, given) == min(other.limit - held, given)
        cluster.decide(decision)


def test_policies_know_the_rule_before_they_learn() -> None:
    jobs = AttributeDistribution((1.5, 3.0), weights=(1, 16)).draw(
        random_sequence(np.random.default_rng(3), max_jobs=6)
    )
    changes = {"rule": "atc", "rule_constants": {"weighted": 2.0, "price_in_batch": 0.5}}
    config = changed(GENERAL_POLICY, rule_stage_weight=1e4, rule_limit_weight=1e4, **changes)
    cluster = ClusterConfig(12, moving_delay_ms=10.0)
    mine, rule, other = (
        run_episode(cluster, jobs, each)
        for each in (NeuralScheduler(Policy(config, 1)), Atc(weighted=2.0, price_in_batch=0.5), Atc())
    )
    assert mine.completion_ms.tolist() == rule.completion_ms.tolist() != other.completion_ms.tolist()
    # The heads of a new policy return 0, so that only the rule's scores count.
    config = ClusterConfig(12, moving_delay_ms=50.0, warmup_delay_ms=0.0)
    sequence = random_sequence(np.random.default_rng(3), max_jobs=9)
    assert_same_episode(config, sequence, Srpt(), GENERAL_POLICY)


@cases("constants, message", ({"patience": 1.0}, "atc does not have all constants"), ({"given_up": 0.0}, "above 0"))
def test_constants_of_the_rule_that_are_refused(constants: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_rule(changed(GENERAL_POLICY, rule="atc", rule_constants=constants))


@cases(
    "config, changes, message",
    (PAPER_POLICY, {"rule_stage_weight": 1.0}, "rule_stage_weight needs the stage feature rule"),
    (PAPER_POLICY, {"rule_limit_weight": 1.0}, "rule_limit_weight needs the job feature rule_executors"),
    (GENERAL_POLICY, {"limit": "none", "wait": False}, "and limits that are an input"),
    (GENERAL_POLICY, {"rule_stage_weight": -1.0}, "greater than or equal to 0"),
    (GENERAL_POLICY, {"rule_limit_weight": float("inf")}, "finite number"),
)
def test_weights_that_nothing_can_be_added_by_are_refused(
    config: PolicyConfig, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        PolicyConfig.model_validate({**config.model_dump(), **changes})


@pytest.mark.parametrize("semantics", [PAPER, TRACE], ids=["paper", "trace"])
@pytest.mark.parametrize("seed", range(4))
def test_a_policy_that_packs_and_has_learned_nothing_decides_as_the_rule(seed: int, semantics: Semantics) -> None:
    classes = tuple(ExecutorClass(3, memory=memory) for memory in (0.25, 0.5, 1.0))
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=50.0, semantics=semantics)
    sequence = uniform_memory(random_sequence(np.random.default_rng(seed), max_jobs=9))
    assert_same_episode(config, sequence, Srpt(), TOLD_PACKING_POLICY)
    adaptive = changed(TOLD_PACKING_POLICY, rule="srpt-tuned")
    assert_same_episode(config, sequence, TunedSrpt(), adaptive)


def assert_same_episode(config: ClusterConfig, sequence: JobSequence, rule: Scheduler, policy: PolicyConfig) -> None:
    expected, found = (
        run_episode(config, sequence, scheduler) for scheduler in (rule, NeuralScheduler(Policy(policy, 1)))
    )
    assert (found.completion_ms.tolist(), found.num_guarded) == (expected.completion_ms.tolist(), 0)
