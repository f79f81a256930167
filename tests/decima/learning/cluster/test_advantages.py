from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from decima.learning.cluster.advantages import Advantages
from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.critic import NUM_SUMS
from decima.learning.cluster.curriculum import episode_specs, plan_iteration
from decima.learning.cluster.rollout import Trajectories, roll_out, roll_out_scheduler
from decima.policy.features import Featurizer
from decima.policy.graphs import Graphs
from decima.policy.policy import Policy
from decima.schedulers import Fair
from simulator import Cluster
from tests.decima.learning.cluster.examples import small

NUM_SAMPLES = 40
SEQUENCES, PER_SEQUENCE = 5, 3


def made_up(
    config: TrainingConfig, policy: Policy, value_of_load: NDArray[np.float64], of_sequence: float
) -> Trajectories:
    """Episodes whose returns are a linear function of the load, and something that all episodes of a sequence share.

    What they share is larger where there is more load, as it is where a busy time goes on.
    """
    random = np.random.default_rng(1)
    episodes = SEQUENCES * PER_SEQUENCE
    size = episodes * NUM_SAMPLES
    shared = np.repeat(np.arange(SEQUENCES), PER_SEQUENCE * NUM_SAMPLES)
    load = random.random((size, NUM_SUMS)) + shared[:, None]
    load[:, 0] = 1.0
    left = np.tile(np.arange(NUM_SAMPLES, 0, -1.0), episodes)
    returns = load @ value_of_load + of_sequence * shared * left
    following = np.append(returns[1:], 0.0)
    following[left == 1] = 0.0
    sequence = config.conditions().sequence(0)
    graph = Featurizer(policy.config).graph(Cluster(config.cluster.build(), sequence).observe())
    numbers = np.zeros(size, np.int32)
    return Trajectories(
        graphs=Graphs.concatenate([graph] * size),
        stage=numbers,
        limit=numbers,
        log_probability=numbers.astype(np.float32),
        time_ms=np.tile(10.0 * np.arange(NUM_SAMPLES), episodes),
        reward=returns - following,
        load=load,
        arrived=np.ones(size, np.int64),
        first=np.arange(episodes + 1) * NUM_SAMPLES,
        end_ms=np.full(episodes, 10.0 * NUM_SAMPLES),
        end_load=np.zeros((episodes, NUM_SUMS)),
        num_executors=np.full(episodes, 4),
        num_decisions=np.full(episodes, NUM_SAMPLES),
        mean_jct_ms=np.ones(episodes),
        num_completed=np.ones(episodes, np.int64),
    )


@pytest.mark.parametrize("of_sequence", [0.0, 50.0])
def test_a_critic_knows_what_the_load_is_worth_whatever_its_sequences_had_to_come(
    tmp_path: Path, of_sequence: float
) -> None:
    """Nothing was decided well or badly here: all that differs between episodes of a sequence is the load they had."""
    config = small(
        tmp_path, critic={"gae_horizon": 1e9}, episodes={"sequences": SEQUENCES, "per_sequence": PER_SEQUENCE}
    )
    policy = Policy(config.policy.build())
    worth = np.array([0.0, -1.0, 0.5, -3.0, 0.25, -0.5, 2.0])
    samples = made_up(config, policy, worth, of_sequence)
    advantage = Advantages(config, config.conditions())(policy, samples, plan_iteration(config, 0))
    np.testing.assert_allclose(advantage, 0.0, atol=0.02)
    plain = Advantages(config.model_copy(update={"critic": None}), config.conditions())
    assert np.std(plain(policy, samples, plan_iteration(config, 0))) > 0.5


def test_the_average_reward_is_that_of_all_samples_so_far(tmp_path: Path) -> None:
    """With it taken off each sample, returns of constant rewards are 0."""
    config = small(
        tmp_path,
        returns={"kind": "differential"},
        baseline={"kind": "none"},
        episodes={"sequences": SEQUENCES, "per_sequence": PER_SEQUENCE},
    )
    policy = Policy(config.policy.build())
    samples = made_up(config, policy, np.zeros(NUM_SUMS), of_sequence=1.0)
    samples = replace(samples, reward=np.full(len(samples), -2.0))
    advantages = Advantages(config, config.conditions())
    np.testing.assert_allclose(advantages(policy, samples, plan_iteration(config, 0)), 0.0, atol=1e-9)
    assert len(advantages.state()["window"]) == len(samples)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("critic", [None, {"gae_horizon": 3}])
def test_a_heuristic_earns_exactly_what_is_expected_of_itself(
    tmp_path: Path, critic: dict[str, Any] | None, fixed: bool
) -> None:
    config = small(
        tmp_path,
        baseline={"kind": "heuristic", "scheduler": "fair"},
        critic=critic,
        curriculum={"start": 2, "end": 6},
        episodes={"fixed_sequences": fixed},
    )
    policy, conditions = Policy(config.policy.build()), config.conditions()
    groups = plan_iteration(config, 0)
    specs = [spec for group in groups for spec in episode_specs(conditions, group)]
    advantages = Advantages(config, conditions)
    assert np.std(advantages(policy, roll_out(policy, specs), groups)) > 0.001
    its_own = roll_out_scheduler(Fair(), policy.config, specs)
    np.testing.assert_allclose(advantages(policy, its_own, groups), 0.0, atol=1e-12)
