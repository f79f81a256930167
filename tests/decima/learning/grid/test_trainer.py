from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decima.evaluation.grid import evaluate
from decima.learning.cluster.metrics import read_metrics
from decima.learning.cluster.rollout import NotFiniteError
from decima.learning.grid import trainer
from decima.learning.grid.checkpoint import load_checkpoint
from decima.learning.grid.config import RECIPES, DeepRMConfig
from decima.learning.grid.learner import VALIDATION_SEED
from decima.learning.grid.metrics import METRICS
from decima.learning.grid.rollout import Actor
from decima.learning.grid.trainer import DeepRMResult, DeepRMTrainer
from decima.learning.loop import CARD, CHECKPOINT, CONFIG, POLICY, IterationReport
from decima.policy.files import PolicyFileError
from decima.policy.grid.files import load_network, read_about, save_network
from decima.settings import TrainingError, read_settings
from tests.decima.learning.cluster.test_trainer import stop_after
from tests.decima.learning.grid.examples import small
from workloads import RandomStream, WorkloadError, random_stream


def train(config: DeepRMConfig, out: Path, **options: Any) -> DeepRMResult:
    return DeepRMTrainer(config, out, **options).run()


def assert_same_run(one: Path, other: Path) -> None:
    """The policies have the same bits, and what a run would go on with has."""
    left, right = (np.load(folder / POLICY) for folder in (one, other))
    assert set(left.files) == set(right.files)
    for name in set(left.files) - {"network"}:
        np.testing.assert_array_equal(left[name], right[name])
    mine, theirs = (load_checkpoint(folder / CHECKPOINT) for folder in (one, other))
    assert mine.networks.keys() == theirs.networks.keys()
    for name, weight in mine.networks.items():
        assert torch.equal(weight, theirs.networks[name]), name
    assert (mine.curve, mine.best_iteration) == (theirs.curve, theirs.best_iteration)


#: Settings that take another way through the code.
WAYS: dict[str, dict[str, Any]] = {
    "reinforce": {"validation": {"every": 1}},
    "a2c": {"update": {"algorithm": "a2c", "optimiser": "adam"}},
    "public code": {
        "update": {"baseline": "action"},
        "episodes": {"mask": "all"},
        "grid": {"semantics": "deeprm", "arrival_column": True, "picture": "coloured"},
    },
    "imitation": {"imitation": {"sets": 10, "epochs": 1}},
    "cnn, machines, fresh": {
        "network": {"filters": 2, "reshape": True, "pooling": True},
        "grid": {"machines": 2},
        "episodes": {"fresh": True},
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_was_killed_ends_with_the_same_bits(way: str, tmp_path: Path) -> None:
    """A copy of the folder after each iteration is what a kill would have left then."""
    config = small(**WAYS[way])
    out = tmp_path / "whole"

    def keep(report: IterationReport) -> None:
        assert (out / CHECKPOINT).exists()
        shutil.copytree(out, tmp_path / str(report.iteration))

    result = DeepRMTrainer(config, out).run(keep)
    assert (result.iteration, result.interrupted) == (3, False)
    rows = read_metrics(out / "metrics.jsonl")
    assert [row["iteration"] for row in rows] == [0, 1, 2, 3]
    assert all(row.keys() <= METRICS.keys() for row in rows)
    assert ["improvement" in row for row in rows] == [True, config.validation.every == 1, True, True]
    assert all(row["gradient_norm"] > 0 for row in rows[1:])
    for iteration in range(3):
        train(config, tmp_path / str(iteration), resume=True)
        assert_same_run(out, tmp_path / str(iteration))
        again = read_metrics(tmp_path / str(iteration) / "metrics.jsonl")
        for row, expected in zip(again, rows, strict=True):
            assert {name: row[name] for name in row if "cpu" not in name} == {
                name: expected[name] for name in expected if "cpu" not in name
            }


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    def interrupt(words: str) -> None:
        raise KeyboardInterrupt

    config = small()
    with pytest.raises(KeyboardInterrupt):
        DeepRMTrainer(config, tmp_path / "out").run(on_phase=interrupt)
    assert not (tmp_path / "out" / CHECKPOINT).exists()
    train(config, tmp_path / "out", resume=True)
    train(config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "out")


def test_ctrl_c_ends_early_and_keeps_what_was_learned(tmp_path: Path) -> None:
    config = small(checkpoint_every=100)
    result = DeepRMTrainer(config, tmp_path / "out").run(stop_after(1, KeyboardInterrupt))
    assert (result.interrupted, result.iteration) == (True, 1)
    assert load_checkpoint(tmp_path / "out" / CHECKPOINT).iteration == 1
    assert train(config, tmp_path / "out", resume=True).iteration == 3
    train(config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "out")


def test_the_policy_file_is_the_best_validated_and_says_how_it_was_made(tmp_path: Path) -> None:
    """The rate is far too high, so that the last one is not the best."""
    config = small(
        iterations=5, validation={"every": 1}, update={"learning_rate": 0.3, "final_learning_rate": 0.3}
    )
    out = tmp_path / "run"
    result = DeepRMTrainer(config, out, command="decima deeprm train").run()
    about, rows = read_about(result.policy_file), read_metrics(out / "metrics.jsonl")
    assert about["command"] == "decima deeprm train"
    curve = about["curve"]["rows"]
    assert curve == [[row["iteration"], row["validation_slowdown"], row["improvement"]] for row in rows]
    best = max(curve, key=lambda row: row[2])
    assert best[0] < 5
    assert about["iteration"] == result.best_iteration == best[0]
    assert result.improvement == best[2] == rows[-1]["best_improvement"]

    network, settings = load_network(result.policy_file)
    assert settings == config == read_settings(DeepRMConfig, RECIPES, out / CONFIG)
    grid = config.grid.build()
    sets = config.jobs.draw(grid, config.validation.sets, VALIDATION_SEED + config.seed)
    actor = Actor(network, random_stream(config.seed, RandomStream.POLICY, 2**30))
    slowdown = evaluate(grid, sets, {"again": actor})["again"].mean("slowdown")
    assert slowdown == best[1] == result.results["deeprm"]["slowdown"]
    heuristics = [measures["slowdown"] for name, measures in result.results.items() if name != "deeprm"]
    assert result.improvement == pytest.approx(1 - slowdown / min(heuristics))
    card = (out / CARD).read_text()
    assert card.startswith("# run\n")
    assert f"| deeprm | {slowdown:.2f} |" in card


@pytest.mark.parametrize(("objective", "sign"), [("completion", 1), ("utilisation", -1)])
def test_what_is_rewarded_is_what_is_compared(tmp_path: Path, objective: str, sign: int) -> None:
    result = train(small(iterations=1, grid={"objective": objective}), tmp_path / "out")
    values = {name: sign * measures[objective] for name, measures in result.results.items()}
    reference = min(value for name, value in values.items() if name != "deeprm")
    assert result.improvement == pytest.approx((reference - values["deeprm"]) / abs(reference))


def test_a_training_begins_with_the_network_of_another(tmp_path: Path) -> None:
    DeepRMTrainer(small(iterations=1), tmp_path / "first").run()
    start = tmp_path / "first" / "policy.npz"
    config = small(start=str(start), grid={"objective": "completion"}, seed=5)
    trainer = DeepRMTrainer(config, tmp_path / "second")
    begun = trainer._learner.networks["actor"].state_dict()
    for name, weights in load_network(start)[0].state_dict().items():
        assert torch.equal(begun[name], weights)
    result = trainer.run()
    start.unlink()  # a checkpoint holds all that is needed
    assert DeepRMTrainer(config, tmp_path / "second", resume=True).run().results == result.results


def test_a_network_of_other_sizes_is_no_beginning(tmp_path: Path) -> None:
    config = small()
    grid = config.grid.build()
    save_network(tmp_path / "other.npz", config.network.build(grid, grid.num_actions), config, {})
    with pytest.raises(PolicyFileError, match=r"other\.npz: a network for pictures of 20 x 61 and 3 actions"):
        DeepRMTrainer(small(start=str(tmp_path / "other.npz"), network={"hidden": [5]}), tmp_path / "run")
    with pytest.raises(PolicyFileError, match=r"none\.npz: No such file"):
        DeepRMTrainer(small(start=str(tmp_path / "none.npz")), tmp_path / "run")


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path) -> None:
    config = small(iterations=1)
    train(config, tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    with pytest.raises(TrainingError, match=r"out: holds a training run already; --resume goes on with it"):
        DeepRMTrainer(config, tmp_path / "out")
    assert before.keys() == {path for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert all(path.read_bytes() == content for path, content in before.items())


def test_only_the_same_training_can_be_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "out"
    train(small(iterations=2), out)
    for changes, place in (
        ({"seed": 1}, "seed"),
        ({"grid": {"units": 12}}, "grid.units"),
        ({"update": {"algorithm": "a2c"}}, "update.algorithm"),
        ({"imitation": {}}, "imitation"),
    ):
        with pytest.raises(TrainingError, match=f"is of a run with another {place};"):
            DeepRMTrainer(small(**{"iterations": 2, **changes}), out, resume=True)
    with pytest.raises(TrainingError, match="2 iterations are over, more than the 1 asked for"):
        DeepRMTrainer(small(iterations=1), out, resume=True)
    longer = small(iterations=4, checkpoint_every=1)
    assert train(longer, out, resume=True).iteration == 4
    assert load_checkpoint(out / CHECKPOINT).config == longer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("networks", "size mismatch"),
        ("best_actor", "size mismatch"),
        ("optimisers", "another shape than the weights"),
    ],
)
def test_a_checkpoint_of_other_sizes_is_refused(tmp_path: Path, change: str, message: str) -> None:
    """Its settings say the same; a folder of which it is not even read is no help."""
    for name, hidden in (("out", 4), ("other", 6)):
        train(small(iterations=1, network={"hidden": [hidden]}), tmp_path / name)
    path = tmp_path / "out" / CHECKPOINT
    document, other = (
        torch.load(tmp_path / name / CHECKPOINT, weights_only=True) for name in ("out", "other")
    )
    torch.save({**document, change: other[change]}, path)
    with pytest.raises(TrainingError, match=f"^{path}: does not fit its own settings: .*{message}"):
        DeepRMTrainer(small(iterations=1), tmp_path / "out", resume=True)


def test_a_gradient_that_is_no_number_stops_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trainer.Learner.learn

    def fails_later(learner: trainer.Learner, iteration: int) -> dict[str, float]:
        if iteration == 2:
            for parameter in learner.networks.parameters():
                parameter.data.fill_(torch.nan)  # in the middle of an update
            raise NotFiniteError("the gradient is not finite")
        return real(learner, iteration)

    monkeypatch.setattr(trainer.Learner, "learn", fails_later)
    config = small(checkpoint_every=100, validation={"every": 100})
    path = tmp_path / "out" / CHECKPOINT
    with pytest.raises(TrainingError) as stopped:
        train(config, tmp_path / "out")
    assert str(stopped.value) == f"iteration 3: the gradient is not finite; {path} keeps iteration 2"
    assert load_checkpoint(path).iteration == 2
    monkeypatch.undo()
    assert train(config, tmp_path / "out", resume=True).iteration == 3


def test_steps_that_are_far_too_long_are_noticed(tmp_path: Path) -> None:
    config = small(update={"learning_rate": 1e38, "final_learning_rate": 1e38})
    with pytest.raises(TrainingError, match=r"^iteration [12]: .* keeps iteration [01]$"):
        train(config, tmp_path / "out")


def test_jobs_that_the_grid_has_no_room_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"lasts 1[0-9] steps, longer than the horizon"):
        DeepRMTrainer(small(grid={"horizon": 9}), tmp_path / "out")
    with pytest.raises(WorkloadError, match="its picture has slot_width = 5 columns"):
        DeepRMTrainer(small(grid={"slot_width": 5}), tmp_path / "out")


def test_there_must_be_jobs_to_learn_from_and_to_be_judged_by(tmp_path: Path) -> None:
    rare = {"load": 0.01, "steps": 1}
    with pytest.raises(TrainingError, match="the training sets have no jobs"):
        DeepRMTrainer(small(jobs=rare), tmp_path / "out")
    with pytest.raises(TrainingError, match="the validation sets have no jobs"):
        DeepRMTrainer(small(jobs=rare, episodes={"sets": 2000}, validation={"sets": 1}), tmp_path / "out")
