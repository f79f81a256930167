from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from decima.evaluation.grid import MEASURES
from decima.learning.grid.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from decima.learning.grid.learner import Learner
from decima.settings import TrainingError
from tests.decima.learning.cluster.test_checkpoint import assert_same, edited
from tests.decima.learning.grid.examples import small
from tests.refusal import write_malicious_checkpoint

CONFIG = small(update={"algorithm": "a2c"})


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """After an iteration."""
    learner = Learner(CONFIG)
    learner.learn(0)
    return Checkpoint(
        config=CONFIG,
        iteration=7,
        networks=learner.networks.state_dict(),
        optimisers={name: each.state_dict() for name, each in learner.optimisers.items()},
        best_actor=Learner(small(seed=5)).networks["actor"].state_dict(),
        best_iteration=5,
        best_measures=dict.fromkeys(MEASURES, 1.5),
        best_improvement=0.25,
        curve=[[0.0, 3.5, -0.5], [5.0, 3.0, 0.25]],
        cpu_s=12.5,
    )


@pytest.fixture
def path(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "checkpoint.pt", checkpoint)
    return tmp_path / "checkpoint.pt"


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(TrainingError) as refused:
        load_checkpoint(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_everything_is_read_as_it_was_written(checkpoint: Checkpoint, path: Path) -> None:
    assert_same(dict(vars(load_checkpoint(path))), dict(vars(checkpoint)))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_refused(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert_refused(path, "not a checkpoint, or cut off")


def test_missing_and_other_files_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "gone.pt", "No such file")
    assert_refused(tmp_path, "expected a checkpoint")
    (tmp_path / "text.pt").write_text("iteration: 3")
    assert_refused(tmp_path / "text.pt", "not a checkpoint")


@pytest.mark.parametrize("write", ["torch", "pickle"])
def test_a_checkpoint_executes_nothing(tmp_path: Path, write: str) -> None:
    path, proof = tmp_path / "checkpoint.pt", tmp_path / "executed"
    write_malicious_checkpoint(path, proof, write, "deeprm-checkpoint")
    assert_refused(path, "not a checkpoint")
    assert not proof.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "format version 1 expected, got 2"),
        ({"format": "decima-checkpoint"}, "not a checkpoint of a training run"),
        ({"more": 1}, "more is missing or unknown"),
        ({"config": '{"iterashuns": 3}'}, "config: iterashuns: unknown key"),
        ({"config": "{"}, "does not fit its own settings"),
        ({"config": 7}, "does not fit its own settings"),
        ({"networks": [1.0]}, "does not fit its own settings"),
        ({"networks": {"actor.0.bias": 1.0}}, "does not fit its own settings"),
        ({"best_actor": {"0.bias": torch.tensor([torch.nan])}}, "weights that are not finite"),
        ({"iteration": -1}, "the iteration is negative"),
        ({"iteration": "7"}, "does not fit its own settings"),
        ({"best_measures": {"slowdown": 1.5}}, "best_measures must be slowdown, completion, "),
        ({"best_measures": dict.fromkeys(MEASURES, "low")}, "does not fit its own settings"),
        ({"best_improvement": None}, "does not fit its own settings"),
        ({"curve": [[0.0, 3.5]]}, "curve must have three columns"),
        ({"curve": [[0.0, 3.5, 0.1], [1.0]]}, "does not fit its own settings"),
    ],
)
def test_what_is_not_as_it_should_be_is_refused(path: Path, changes: dict[str, Any], message: str) -> None:
    edited(path, **changes)
    assert_refused(path, message)


def test_what_is_missing_is_named(path: Path) -> None:
    document = torch.load(path, weights_only=True)
    del document["curve"]
    torch.save(document, path)
    assert_refused(path, "curve is missing or unknown")
