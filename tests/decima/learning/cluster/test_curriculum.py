from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from decima.evaluation.conditions import TRAINING_OFFSET
from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.curriculum import (
    EpisodePlan,
    cloning_seeds,
    episode_specs,
    plan_iteration,
    training_seeds,
    validation_seeds,
)
from tests.decima.learning.cluster.examples import small


def config(**changes: object) -> TrainingConfig:
    document: dict[str, object] = {"iterations": 100, "episodes": {"sequences": 3, "per_sequence": 4}}
    return TrainingConfig.model_validate({**document, **changes})


CURRICULUM = {"start": 10.0, "end": 1000.0, "growth": 0.5}


def ends(iteration: int, **changes: object) -> list[set[float]]:
    """The ends in each group."""
    groups = plan_iteration(config(curriculum=CURRICULUM, **changes), iteration)
    return [{plan.end_ms for plan in group} for group in groups]


def test_episodes_of_a_sequence_share_jobs_and_end_but_not_choices() -> None:
    for group in plan_iteration(config(curriculum=CURRICULUM), 7):
        assert len({(plan.sequence_seed, plan.end_ms) for plan in group}) == 1
        assert len({plan.episode for plan in group}) == 4
    assert len(set.union(*ends(7))) == 3


def test_unfixed_sequences_differ_within_a_group() -> None:
    unfixed = config(
        curriculum=CURRICULUM, episodes={"sequences": 3, "per_sequence": 4, "fixed_sequences": False}
    )
    for group in plan_iteration(unfixed, 7):
        assert len({plan.sequence_seed for plan in group}) == 4
        assert len({plan.end_ms for plan in group}) == 1


def test_ends_grow_and_are_memoryless() -> None:
    """An exponential distribution: its standard deviation is its mean."""
    for iteration, mean_s in ((0, 10.0), (25, 505.0), (50, 1000.0), (99, 1000.0)):
        drawn = [next(iter(group)) for seed in range(300) for group in ends(iteration, seed=seed)]
        assert abs(np.mean(drawn) / 1000 / mean_s - 1) < 0.15
        assert abs(np.std(drawn) / 1000 / mean_s - 1) < 0.2


def test_without_a_curriculum_episodes_run_to_their_end() -> None:
    assert {plan.end_ms for group in plan_iteration(config(), 3) for plan in group} == {math.inf}


def test_a_plan_follows_from_seed_and_iteration_alone() -> None:
    assert plan_iteration(config(curriculum=CURRICULUM), 7) == plan_iteration(
        config(curriculum=CURRICULUM), 7
    )
    plans = [
        plan_iteration(config(seed=seed), iteration)[0][0].sequence_seed
        for seed in range(3)
        for iteration in range(100)
    ]
    assert len(set(plans)) == 300


@pytest.mark.parametrize("fixed", [True, False])
def test_the_seeds_of_a_training_are_those_of_its_episodes(fixed: bool) -> None:
    episodes = {"sequences": 3, "per_sequence": 4, "fixed_sequences": fixed}
    settings = config(iterations=5, seed=2, episodes=episodes)
    met = [plan.sequence_seed for k in range(5) for group in plan_iteration(settings, k) for plan in group]
    assert list(training_seeds(settings)) == list(dict.fromkeys(met))


def test_no_two_purposes_share_a_sequence() -> None:
    """Experiments and their tuning have seeds up to twice the offset."""
    used: set[int] = set()
    for seed in (0, 1):
        each = config(seed=seed, behaviour_cloning={"sequences": 30})
        used |= set(cloning_seeds(each))
        for iteration in range(100):
            used |= {plan.sequence_seed for group in plan_iteration(each, iteration) for plan in group}
    assert len(used) == 2 * (100 * 3 + 30)
    validation = set(validation_seeds(config()))
    assert not used & validation
    assert min(used | validation) > 2 * TRAINING_OFFSET
    assert validation == set(validation_seeds(config(seed=5)))


def test_episodes_draw_from_streams_of_their_own(tmp_path: Path) -> None:
    conditions = small(tmp_path).conditions()
    plans = [
        EpisodePlan(9, 50.0, seed, iteration, episode)
        for seed in (0, 1)
        for iteration in (0, 1)
        for episode in (0, 1)
    ]
    specs = episode_specs(conditions, plans)
    assert len({id(spec.sequence) for spec in specs}) == 1
    assert {spec.end_ms for spec in specs} == {50.0}
    drawn = {float(spec.random.random()) for spec in specs if spec.random is not None}
    assert len(drawn) == 8
    again = episode_specs(conditions, plans)[3].random
    assert again is not None
    assert float(again.random()) in drawn
