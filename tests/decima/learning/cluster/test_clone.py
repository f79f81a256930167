import math
from functools import partial

import numpy as np
import pytest
import torch

from decima.learning.cluster.rollout import Episode, record_scheduler, roll_out
from decima.learning.cluster.updates import clone_epochs, split
from decima.policy.config import SHORTCUT_POLICY
from decima.policy.policy import Policy
from decima.registry import make_scheduler
from decima.settings import silent
from simulator import run_episode
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.updates import CLUSTER
from workloads import batch_arrivals


def test_behaviour_cloning_reaches_the_choices_of_a_scheduler() -> None:
    name = "sjf-cp"
    policy = Policy(SHORTCUT_POLICY, seed=2)
    sequences = [batch_arrivals(LIBRARY.profiles, 5, seed) for seed in range(40)]

    def episodes(part: slice) -> list[Episode]:
        return [Episode(policy.config, CLUSTER, each) for each in sequences[part]]

    samples = record_scheduler(make_scheduler(name), episodes(slice(30)))
    optimiser, random = torch.optim.Adam(policy.parameters(), lr=4e-3), np.random.default_rng(0)
    reports = list(
        clone_epochs(
            partial(samples.evaluate, policy),
            policy,
            optimiser,
            lambda: split(random.permutation(len(samples)), 32),
            [4e-3] * 10,
            0,
            silent,
            max_gradient_norm=1.0,
        )
    )
    assert reports[0]["steps"] == math.ceil(len(samples) / 32)
    assert reports[-1]["cloning_loss"] < reports[0]["cloning_loss"] / 2
    unseen = record_scheduler(make_scheduler(name), episodes(slice(30, 40)))
    choices = policy.act(unseen.graphs)
    agrees = (choices.stage == unseen.stage) & (choices.limit == unseen.limit)
    untrained = Policy(SHORTCUT_POLICY, seed=2).act(unseen.graphs)
    agreed = (untrained.stage == unseen.stage) & (untrained.limit == unseen.limit)
    assert agrees.mean() > 0.95
    assert 1 - agrees.mean() < (1 - agreed.mean()) / 4
    own = roll_out(policy, episodes(slice(30, 40))).mean_jct_ms.mean()
    theirs = [run_episode(CLUSTER, each, make_scheduler(name)).mean_jct_ms for each in sequences[30:]]
    assert own == pytest.approx(np.mean(theirs), rel=0.02)
