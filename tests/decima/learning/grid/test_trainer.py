"""What is different where a grid is trained on; ``test_loop`` has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from decima.evaluation.grid import evaluate
from decima.learning.grid.learner import VALIDATION_SEED
from decima.learning.grid.trainer import DeepRMTrainer
from decima.policy.errors import PolicyFileError
from decima.policy.grid.files import load_network, save_network
from decima.policy.grid.scheduler import VALIDATED, Actor
from decima.settings import TrainingError
from tests.decima.learning.grid.examples import small
from workloads import RandomStream, random_stream


def test_the_results_are_those_of_the_policy_that_is_kept(tmp_path: Path) -> None:
    config = small()
    result = DeepRMTrainer(config, tmp_path / "out").run()
    network, policy = load_network(result.policy_file)
    assert policy == config.policy
    grid = config.grid.build()
    sets = config.jobs.draw(grid, config.validation.sets, VALIDATION_SEED + config.seed)
    actor = Actor(network, random_stream(config.seed, RandomStream.POLICY, VALIDATED))
    slowdown = evaluate(grid, sets, {"again": actor})["again"].mean("slowdown")
    assert slowdown == result.results["deeprm"]["slowdown"]
    heuristics = [measures["slowdown"] for name, measures in result.results.items() if name != "deeprm"]
    assert result.improvement == pytest.approx(1 - slowdown / min(heuristics))


@pytest.mark.parametrize(("objective", "sign"), [("completion", 1), ("utilisation", -1)])
def test_what_is_rewarded_is_what_is_compared(tmp_path: Path, objective: str, sign: int) -> None:
    config = small(iterations=1, grid={"objective": objective})
    result = DeepRMTrainer(config, tmp_path / "out").run()
    values = {name: sign * measures[objective] for name, measures in result.results.items()}
    reference = min(value for name, value in values.items() if name != "deeprm")
    assert result.improvement == pytest.approx((reference - values["deeprm"]) / abs(reference))


def test_a_network_of_other_sizes_is_no_beginning(tmp_path: Path) -> None:
    config = small()
    save_network(tmp_path / "other.npz", config.policy.build(), config.policy, {})
    with pytest.raises(PolicyFileError, match=r"other\.npz: a network for pictures of 20 x 61 and 3 actions"):
        DeepRMTrainer(small(start=str(tmp_path / "other.npz"), network={"hidden": [5]}), tmp_path / "run")


def test_there_must_be_jobs_to_learn_from_and_to_be_judged_by(tmp_path: Path) -> None:
    rare = {"load": 0.01, "steps": 1}
    with pytest.raises(TrainingError, match="the training sets have no jobs"):
        DeepRMTrainer(small(jobs=rare), tmp_path / "out")
    with pytest.raises(TrainingError, match="the validation sets have no jobs"):
        DeepRMTrainer(small(jobs=rare, episodes={"sets": 2000}, validation={"sets": 1}), tmp_path / "out")
