"""Samples, and updates of a policy by plain gradient descent."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning import PPO, Reinforce
from decima.learning.cluster.rollout import Episode, Trajectories, roll_out
from decima.policy import Feature, Graphs, Policy, PolicyConfig
from simulator import ClusterConfig
from tests.decima.evaluation.examples import LIBRARY
from workloads import batch_arrivals

CLUSTER = ClusterConfig(num_executors=4)
#: A stage's score is linear in its two features, and there are no limits to choose.
LINEAR = PolicyConfig(
    stage_features=(Feature(name="unclaimed_tasks"), Feature(name="mean_task_ms")),
    graph=False,
    head_hidden=(),
    limit="none",
)


def linear_samples(features: NDArray[np.float32], chosen: list[int]) -> Trajectories:
    """Return observations with three valid stages, features float32 [n, 3, 2]."""
    size = len(chosen)
    pointer = np.arange(size + 1)
    graphs = Graphs(
        first_stage=3 * pointer,
        first_job=pointer,
        first_message=0 * pointer,
        features=features.reshape(-1, 2),
        job_features=np.zeros((size, 0), np.float32),
        stage_job=np.zeros(3 * size, np.int32),
        unfinished=np.ones(3 * size, bool),
        stage_index=np.tile(np.arange(3, dtype=np.int32), size),
        low=np.zeros(3 * size, np.int32),
        high=np.ones(3 * size, np.int32),
        messages=np.zeros((0, 3), np.int32),
    )
    return Trajectories(
        graphs=graphs,
        stage=np.array(chosen, np.int32),
        limit=np.ones(size, np.int32),
        log_probability=np.zeros(size, np.float32),
        time_ms=np.arange(float(size)),
        reward=np.zeros(size),
        load=np.zeros((size, 7)),
        arrived=np.ones(size, np.int64),
        first=np.array([0, size]),
        end_ms=np.array([float(size)]),
        end_load=np.zeros((1, 7)),
        num_executors=np.array([4]),
        num_decisions=np.array([size]),
        mean_jct_ms=np.array([1.0]),
        num_completed=np.array([1]),
    )


def sampled(policy: Policy, seed: int = 0) -> Trajectories:
    sequence = batch_arrivals(LIBRARY.profiles, 5, seed)
    return roll_out(
        policy, [Episode(policy.config, CLUSTER, sequence, random=np.random.default_rng(each)) for each in range(3)]
    )


def advantages(samples: Trajectories) -> NDArray[np.float64]:
    return np.random.default_rng(1).standard_normal(len(samples))


def weights(policy: Policy) -> NDArray[np.float32]:
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in policy.parameters()])


def step(policy: Policy, learning_rate: float = 1.0) -> torch.optim.Optimizer:
    """Take a plain gradient descent step; with learning rate 1 the step is the gradient."""
    return torch.optim.SGD(policy.parameters(), lr=learning_rate)


def run(
    algorithm: Reinforce, policy: Policy, samples: Trajectories, learning_rate: float = 1.0, **changes: Any
) -> dict[str, float]:
    given: dict[str, Any] = {"advantage": advantages(samples), "random": np.random.default_rng(0)}
    given |= {"entropy_weight": 0.0, "max_gradient_norm": 1e9}
    return algorithm.update(policy, step(policy, learning_rate), samples, **given | changes)


def run_reinforce(policy: Policy, samples: Trajectories, **changes: Any) -> dict[str, float]:
    return run(Reinforce(), policy, samples, **changes)


def run_ppo(policy: Policy, samples: Trajectories, **changes: Any) -> dict[str, float]:
    options = {"clip": 0.2, "epochs": 1, "minibatches": 1, "max_kl": 1e9}
    own = {name: changes.pop(name) for name in options.keys() & changes.keys()}
    return run(PPO(**options | own), policy, samples, **changes)
