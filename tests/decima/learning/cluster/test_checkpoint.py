from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from decima.learning.cluster.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from decima.learning.cluster.config import TrainingError, parse_config
from decima.policy.policy import Policy
from tests.refusal import write_malicious_checkpoint

CONFIG = parse_config({"validation": {"sequences": 3}, "policy": {"overrides": {"embedding": 4}}}, "test")


def checkpoint(**changes: Any) -> Checkpoint:
    """After a step of Adam."""
    policy = Policy(CONFIG.policy.build(), seed=1)
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.01)
    sum(parameter.sum() for parameter in policy.parameters()).backward()  # type: ignore[union-attr]
    optimiser.step()
    given: dict[str, Any] = {
        "config": CONFIG,
        "iteration": 7,
        "policy": policy.state_dict(),
        "average": Policy(CONFIG.policy.build(), seed=3).state_dict(),
        "optimiser": optimiser.state_dict(),
        "reference": torch.rand(3, 42, dtype=torch.float64),
        "best_policy": Policy(CONFIG.policy.build(), seed=2).state_dict(),
        "best_iteration": 5,
        "best_outcome": torch.rand(2, 3, dtype=torch.float64),
        "best_improvement": 0.25,
        "window": torch.rand(4, 2, dtype=torch.float64),
        "critic": torch.rand(7, 8, dtype=torch.float64),
        "curve": [[0.0, 3.5, -0.5], [5.0, 3.0, 0.25]],
        "cpu_s": 12.5,
    }
    return Checkpoint(**{**given, **changes})


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    else:
        assert one == other


def saved(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, checkpoint(**changes))
    return path


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(TrainingError) as refused:
        load_checkpoint(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    written = checkpoint()
    save_checkpoint(tmp_path / "c.pt", written)
    assert_same(vars(load_checkpoint(tmp_path / "c.pt")), vars(written))
    assert [each.name for each in tmp_path.iterdir()] == ["c.pt"]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    path = saved(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert_refused(path, "not a checkpoint, or cut off")


@pytest.mark.parametrize("data", [b"", b"iteration: 3", bytes(1000), b"PK\x03\x04 but no archive"])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(data)
    assert_refused(path, "not a checkpoint")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "gone.pt", "No such file")
    assert_refused(tmp_path, "expected a checkpoint")


@pytest.mark.parametrize("write", ["torch", "pickle"])
def test_a_checkpoint_executes_nothing(tmp_path: Path, write: str) -> None:
    path, proof = tmp_path / "checkpoint.pt", tmp_path / "executed"
    write_malicious_checkpoint(path, proof, write, "decima-checkpoint")
    assert_refused(path, "not a checkpoint")
    assert not proof.exists()


def edited(path: Path, **changes: Any) -> None:
    document = torch.load(path, weights_only=True)
    torch.save({**document, **changes}, path)


def test_another_format_or_version_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    edited(path, version=2)
    assert_refused(path, "format version 1 expected, got 2")
    edited(path, format="other")
    assert_refused(path, "not a checkpoint of a training run")
    torch.save([1, 2], path)
    assert_refused(path, "not a checkpoint of a training run")


def test_missing_and_unknown_entries_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    edited(path, more=1)
    assert_refused(path, "more is missing or unknown")
    document = torch.load(saved(tmp_path), weights_only=True)
    del document["window"]
    torch.save(document, path)
    assert_refused(path, "window is missing or unknown")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": Policy(parse_config({}, "x").policy.build()).state_dict()}, "size mismatch"),
        ({"policy": {}}, "Missing key"),
        ({"best_policy": {"a": torch.zeros(1)}}, "Missing key"),
        ({"average": {}}, "Missing key"),
        ({"optimiser": {"state": {}, "param_groups": []}}, "does not fit its own settings"),
        ({"reference": torch.zeros(2, 42)}, "reference must have shape (3, 42)"),
        ({"best_outcome": torch.zeros(2, 4)}, "best_outcome must have shape (2, 3)"),
        ({"window": torch.zeros(4)}, "window must have two columns"),
        ({"critic": torch.zeros(7)}, "critic must have shape (7, 8)"),
        ({"iteration": -1}, "the iteration is negative"),
    ],
)
def test_what_does_not_fit_its_settings_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert_refused(saved(tmp_path, **changes), message)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    weights = checkpoint().policy
    next(iter(weights.values()))[0] = float("nan")
    assert_refused(saved(tmp_path, policy=weights), "weights that are not finite")


def test_settings_that_are_no_settings_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    edited(path, config='{"iterashuns": 3}')
    assert_refused(path, "config: iterashuns: unknown key")
    edited(path, config="{")
    assert_refused(path, "does not fit its own settings")


def test_an_optimiser_of_another_shape_is_refused(tmp_path: Path) -> None:
    state = checkpoint().optimiser
    state["state"][0]["exp_avg"] = torch.zeros(3)
    assert_refused(saved(tmp_path, optimiser=state), "another shape than the weights")
