"""A checkpoint is read as it was written, or refused in one line; ``test_loop`` tests the learner's state."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from decima.learning.checkpoint import Best, Checkpoint, save_checkpoint
from decima.learning.resume import load_checkpoint
from decima.settings import TrainingError
from tests.cases import cases
from tests.refusal import Malicious, refusal


def checkpoint(**changes: Any) -> Checkpoint:
    given: dict[str, Any] = {
        "config": {"seed": 3, "workload": {"file": None, "interval": [1.0, 2.0]}},
        "iteration": 7,
        "learner": {"networks": {"policy.0": torch.rand(3)}, "optimisers": {"policy": {"state": {0: torch.ones(2)}}}},
        "reference": {"fair": [3.0, 4.0]},
        "best": Best(5, 0.25, {"0": torch.rand(3)}, {"fair": [3.0, 4.0], "decima": [2.0, 2.5]}),
        "curve": [[0.0, 3.5, -0.5], [5.0, 3.0, 0.25]],
        "cpu_s": 12.5,
        "before": [{"command": "decima train", "seed": 0, "iterations_trained": 4, "training_cpu_s": 3.0}],
    }
    return Checkpoint(**{**given, **changes})


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, Best):
        assert_same(vars(one), vars(other))
    else:
        assert one == other


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "checkpoint.pt", checkpoint())
    return tmp_path / "checkpoint.pt"


def refused(path: Path) -> str:
    return refusal(load_checkpoint, TrainingError, path)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    written = checkpoint()
    save_checkpoint(tmp_path / "c.pt", written)
    assert_same(vars(load_checkpoint(tmp_path / "c.pt")), vars(written))
    assert [each.name for each in tmp_path.iterdir()] == ["c.pt"]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_refused(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert refused(path) == "not a checkpoint, or truncated"


def test_a_compressed_file_is_refused(path: Path) -> None:
    """PyTorch never compresses its files; a few bytes of a compressed one may be gigabytes."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    assert refused(path) == "not a checkpoint, or truncated"


@pytest.mark.parametrize("data", [b"", b"iteration: 3", bytes(1000), b"PK\x03\x04 but no archive"])
def test_other_files_are_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert refused(path).startswith("not a checkpoint")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "gone.pt") == "No such file or directory, expected a checkpoint"
    assert refused(tmp_path) == "Is a directory, expected a checkpoint"


@pytest.mark.parametrize("write", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_a_checkpoint_executes_nothing(tmp_path: Path, write: Any) -> None:
    path, proof = tmp_path / "checkpoint.pt", tmp_path / "executed"
    write({"format": "decima-checkpoint", "version": 1, "config": Malicious(proof)}, path)
    assert refused(path) == "not a checkpoint, or truncated"
    assert not proof.exists()


BEST = vars(checkpoint().best)
#: A short value that would have 2^40 entries if it were written out, and one that contains itself.
BOMB: list[Any] = [1.0]
for _ in range(40):
    BOMB = [BOMB, BOMB]
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@cases(
    "changes, message",
    ({"version": 1}, "format version 3 expected, got 1"),
    ({"format": "other"}, "not a checkpoint of a training run"),
    ({"more": 1}, "more is missing or unknown"),
    ({"best": {**BEST, "more": 1}}, "more is missing or unknown"),
    ({"best": 3}, "improvement is missing or unknown"),
    ({"config": "{}"}, "config must be entries by name"),
    ({"learner": [1.0]}, "learner must be entries by name"),
    ({"best": {**BEST, "results": None}}, "results must be entries by name"),
    ({"iteration": -1}, "the iteration must be a number from 0"),
    ({"iteration": "7"}, "the iteration must be a number from 0"),
    ({"best": {**BEST, "iteration": None}}, "the iteration must be a number from 0"),
    ({"best": {**BEST, "improvement": None}}, "must be real number, not NoneType"),
    ({"cpu_s": "12"}, "must be real number, not str"),
    ({"curve": [[0.0, 3.5]]}, "curve must have three columns"),
    ({"curve": [[0.0, 3.5, 0.1], [1.0]]}, "setting an array element with a sequence"),
    ({"curve": [["a", "b", "c"]]}, "must be real number, not "),
    ({"curve": []}, "curve must have a row of the best iteration, 5"),
    ({"curve": [[0.0, 3.5, -0.5]]}, "curve must have a row of the best iteration, 5"),
    ({"config": {"a": BOMB}}, "config: more than 1,000,000 values, or a value that contains itself"),
    ({"before": ENDLESS}, "before: more than 1,000,000 values, or a value that contains itself"),
    ({"reference": {"fair": ENDLESS}}, "reference: more than 1,000,000 values, or a value that contains itself"),
    ({"reference": {}}, "results must be those of the reference, followed by the policy's"),
    ({"reference": {"fair": {}}}, "reference must be numbers of each scheduler, in lists or by name"),
    ({"reference": {"fair": [[1.0]]}}, "reference must be numbers of each scheduler, in lists or by name"),
    ({"best": {**BEST, "results": {}}}, "results must be those of the reference, followed by the policy's"),
    (
        {"best": {**BEST, "results": {"decima": [2.0, 2.5], "fair": [3.0, 4.0]}}},
        "results must be those of the reference",
    ),
    ({"best": {**BEST, "results": {"fair": [3.0], "decima": [2.0, 2.5]}}}, "results must be the same measures"),
    ({"best": {**BEST, "results": {"fair": {}, "decima": {}}}}, "results must be numbers of each scheduler"),
    ({"before": "nothing"}, "before must be a list"),
    ({"config": {"seed": torch.ones(3)}}, "Object of type Tensor is not JSON serializable"),
    ({"before": [{"command": "\ud800"}]}, "'utf-8' codec can't encode character"),
    ({"reference": {"fair": ["3"]}}, "reference must be numbers of each scheduler"),
    ({"best": {**BEST, "results": {"fair": {"jct": 1.0}, "decima": {"x": 1.0}}}}, "results must be the same measures"),
    ({"best": {**BEST, "results": {"fair": torch.ones(2)}}}, "results must be numbers of each scheduler"),
)
def test_what_is_not_as_it_should_be_is_refused(path: Path, changes: dict[str, Any], message: str) -> None:
    torch.save({**torch.load(path, weights_only=True), **changes}, path)
    assert refused(path).startswith(message)


def test_what_is_missing_is_named(path: Path) -> None:
    document = torch.load(path, weights_only=True)
    del document["curve"]
    torch.save(document, path)
    assert refused(path) == "curve is missing or unknown"
    torch.save([1, 2], path)
    assert refused(path) == "not a checkpoint of a training run"
