"""A training run and its folder, on a cluster and on a grid."""

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decima.learning import ClusterTraining, DeepRMConfig, GridTraining, IterationReport, TrainingConfig, read_metrics
from decima.learning.checkpoint import Checkpoint, copy_weights, save_checkpoint
from decima.learning.loop import CARD, CONFIG
from decima.learning.metrics import Validation
from decima.learning.resume import load_checkpoint
from decima.outputs import OutputError
from decima.settings import TrainingError, parse_settings
from decima.workers.in_order import map_in_order
from tests.decima.learning.examples import Runs, stop_after
from workloads.errors import NotFiniteError, PolicyFileError

#: Settings that together reach every branch of the trainings.
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "cluster": {
        "ppo": {},
        "reinforce, makespan, no baseline, no average": {
            "update": {"algorithm": "reinforce", "normalise": "none", "ema_decay": 0.0},
            "cluster": {"reward": "makespan"},
            "baseline": {"kind": "none"},
        },
        "critic": {"critic": {"gae_horizon": 3}, "curriculum": {"start": 2, "end": 6}},
        "differential": {
            "returns": {"kind": "differential", "window": 50}, "curriculum": {"start": 2, "end": 6},
            "workload": {"arrivals": "poisson", "interval": 2},
        },
        "discounted, unfixed, each sequence normalised": {
            "returns": {"kind": "discounted", "horizon": 5},
            "episodes": {"fixed_sequences": False},
            "update": {"normalise": "sequence"},
        },
        "heuristic, no graph": {
            "baseline": {"kind": "heuristic", "scheduler": "fair"},
            "policy": {"overrides": {"graph": False, "limit": "none"}},
        },
        "heuristic, critic, unfixed": {
            "baseline": {"kind": "heuristic"}, "critic": {}, "episodes": {"fixed_sequences": False},
        },
        "cloning, decima-sim": {
            "behaviour_cloning": {"scheduler": "fair", "sequences": 2, "epochs": 1},
            "policy": {"preset": "decima-sim"}, "cluster": {"semantics": "decima-sim"},
        },
        "waiting, deadlines": {
            "policy": {"preset": "profiled"},
            "behaviour_cloning": {"scheduler": "srpt", "sequences": 2, "epochs": 1},
            "cluster": {"reward": "deadline:5"},
            "workload": {"deadlines": [1, 2], "weights": [1, 4], "tenants": 2},
        },
    },
    "grid": {
        "reinforce": {"validation": {"every": 1}},
        "a2c": {"update": {"algorithm": "a2c", "optimiser": "adam"}},
        "public code": {
            "update": {"baseline": "action"},
            "episodes": {"mask": "all"},
            "grid": {"semantics": "deeprm", "arrival_column": True, "picture": "coloured"},
        },
        "cloning": {"behaviour_cloning": {"sets": 10, "epochs": 1}},
        "cnn, machines, fresh": {
            "network": {"filters": 2, "reshape": True, "pooling": True},
            "grid": {"machines": 2},
            "episodes": {"fresh": True},
        },
    },
}  # fmt: skip


@pytest.mark.parametrize(("kind", "way"), [(kind, way) for kind in WAYS for way in WAYS[kind]])
def test_every_way_of_training_learns_something_and_goes_on(kind: str, way: str, tmp_path: Path) -> None:
    runs = Runs(kind, tmp_path)
    config = runs.config(**WAYS[kind][way])
    result = runs.train(config, "whole")
    assert (result.iteration, result.interrupted) == (3, False)
    trainer = runs.trainer(config)
    rows = runs.measured("whole")
    cloning = 0 if config.behaviour_cloning is None else config.behaviour_cloning.epochs
    assert [row["iteration"] for row in rows] == [*range(-cloning, 0), 0, 1, 2, 3]
    assert all(("cloning_loss" in row) == (-cloning < row["iteration"] <= 0) for row in rows)
    assert len({row["validation_reference"] for row in rows if "improvement" in row}) == 1
    rows = rows[cloning:]
    assert all(row.keys() <= trainer.METRICS.keys() for row in rows)
    assert ["improvement" in row for row in rows] == [True, config.validation.every == 1, True, True]
    for row in rows[1:]:
        assert row["steps"] >= 1
        assert row["gradient_norm"] > 0
    initial = trainer.networks.state_dict()
    learned = load_checkpoint(runs.path("whole")).learner["networks"]
    assert any(not torch.equal(initial[name], learned[name]) for name in initial)
    with pytest.raises(ZeroDivisionError):
        trainer.run(stop_after(1, ZeroDivisionError))
    runs.train(config, resume=True)
    runs.assert_same("whole", "out")


def test_a_full_disk_leaves_the_checkpoint_and_the_run_goes_on(
    grid_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = grid_runs.config(validation={"every": 1}, checkpoint_every=1)
    grid_runs.train(config, "whole")

    def fill(report: IterationReport) -> None:
        if report.iteration == 1:
            monkeypatch.setattr(Path, "write_bytes", full)

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = grid_runs.path("out")
    with pytest.raises(OutputError) as caught:
        grid_runs.trainer(config).run(fill)
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert load_checkpoint(path).iteration == 1
    assert not [each for each in path.parent.iterdir() if each.name.startswith(".")]
    monkeypatch.undo()
    grid_runs.train(config, resume=True)
    grid_runs.assert_same("whole", "out")


def test_the_policy_file_has_the_weights_of_the_best_validation(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = runs.trainer(runs.config(validation={"every": 1}))
    validate, kept = trainer._validate, []

    def judged() -> Validation:
        kept.append(copy_weights(trainer.kept))
        return replace(validate(), improvement=(0.1, 0.3, 0.3, 0.2)[len(kept) - 1])

    monkeypatch.setattr(trainer, "_validate", judged)
    result = trainer.run()
    assert (result.iteration, result.best_iteration, result.improvement) == (3, 1, 0.3)
    saved = runs.network().state_dict()
    assert saved.keys() == kept[1].keys()
    assert all(torch.equal(saved[name], weight) for name, weight in kept[1].items())
    assert any(not torch.equal(saved[name], weight) for name, weight in kept[3].items())
    about = runs.about()
    assert (about["iteration"], about["iterations_trained"]) == (1, 3)
    assert [(row[0], row[2]) for row in about["curve"]["rows"]] == [(0, 0.1), (1, 0.3), (2, 0.3), (3, 0.2)]


def test_checkpoints_are_written_when_they_are_due(grid_runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are due for a policy that is the best so far, in every third iteration, and at the end."""
    written: list[float] = []

    def noted(path: Path, checkpoint: Checkpoint) -> None:
        written.append(checkpoint.iteration)
        save_checkpoint(path, checkpoint)

    monkeypatch.setattr("decima.learning.loop.save_checkpoint", noted)
    grid_runs.train(grid_runs.config(iterations=5, checkpoint_every=3, validation={"every": 5}))
    assert list(dict.fromkeys(written)) == [0, 3, 5]


def test_a_run_that_was_killed_ends_with_the_same_bits(grid_runs: Runs) -> None:
    """A copy of the folder after each iteration is the state that a kill would have left."""
    config = grid_runs.config(validation={"every": 1})

    def keep(report: IterationReport) -> None:
        shutil.copytree(grid_runs.folder / "whole", grid_runs.folder / str(report.iteration))

    grid_runs.trainer(config, "whole").run(keep)
    for iteration in range(3):
        grid_runs.train(config, str(iteration), resume=True)
        grid_runs.assert_same("whole", str(iteration))


def test_other_seeds_give_other_policies(runs: Runs) -> None:
    for seed in (1, 2):
        runs.train(runs.config(iterations=1, seed=seed), str(seed))
    one, other = (load_checkpoint(runs.path(str(seed))).learner["networks"] for seed in (1, 2))
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_the_policy_file_is_the_best_validated_and_says_how_it_was_made(runs: Runs) -> None:
    """The learning rate is far too high, so that the last policy is not the best."""
    rates = {"learning_rate": 0.1, "final_learning_rate": 0.1}
    config = runs.config(iterations=5, validation={"every": 1}, update=rates)
    result = runs.train(config, command="decima train")
    about = runs.about()
    assert (about["command"], about["iterations_trained"]) == ("decima train", 5)
    assert parse_settings(type(config), about["config"], "") == config
    curve = about["curve"]["rows"]
    assert [row[0] for row in curve] == [0, 1, 2, 3, 4, 5]
    assert [row[2] for row in curve] == [row["improvement"] for row in runs.measured()]
    best = max(curve, key=lambda row: row[2])
    assert about["iteration"] == result.best_iteration == best[0] < 5
    assert result.improvement == best[2] == runs.measured()[-1]["best_improvement"]
    assert about["validation"]["improvement"] == result.improvement
    assert about["validation"]["results"][runs.trainer(config, "name").NAME][
        about["validation"]["objective"]
    ] == pytest.approx(best[1])
    card = (runs.folder / "out" / CARD).read_text()
    assert card.startswith("# out\n")
    better = "better" if result.improvement >= 0 else "worse"
    assert f"{abs(result.improvement):.1%} {better} than {about['validation']['against']}" in card
    assert "# decima train\n" + config.to_yaml() == (runs.folder / "out" / CONFIG).read_text()


def test_ctrl_c_ends_early_and_keeps_what_was_learned(grid_runs: Runs) -> None:
    config = grid_runs.config(checkpoint_every=100, validation={"every": 100})
    result = grid_runs.trainer(config).run(stop_after(1, KeyboardInterrupt))
    assert (result.interrupted, result.iteration) == (True, 1)
    assert load_checkpoint(grid_runs.path()).iteration == 1
    assert grid_runs.train(config, resume=True).iteration == 3
    grid_runs.train(config, "whole")
    grid_runs.assert_same("whole", "out")


def test_ctrl_c_before_there_is_anything_to_keep_is_passed_on(grid_runs: Runs) -> None:
    def interrupt(phase: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    config = grid_runs.config(iterations=1)
    with pytest.raises(KeyboardInterrupt):
        grid_runs.trainer(config).run(on_progress=interrupt)
    assert not grid_runs.path().exists()
    assert grid_runs.train(config, resume=True).iteration == 1


#: A few epochs of behaviour cloning.
CLONING: dict[str, dict[str, Any]] = {
    "cluster": {"scheduler": "fair", "sequences": 2, "epochs": 3, "minibatch": 16},
    "grid": {"sets": 10, "epochs": 3, "minibatch": 16},
}


def test_a_run_that_was_cut_off_in_behaviour_cloning_ends_with_the_same_bits(runs: Runs) -> None:
    config = runs.config(iterations=1, behaviour_cloning=CLONING[runs.kind])
    runs.train(config, "whole")
    assert "cloning" not in load_checkpoint(runs.path("whole")).learner["optimisers"]
    for place, epochs_left in (("episodes", 3), ("first epoch", 3), ("second epoch", 2)):

        def interrupt(phase: str, done: int, total: int, place: str = place) -> None:
            in_cloning = phase.startswith("behaviour cloning")
            if (
                (place == "episodes" and "to clone" in phase)
                or (place == "first epoch" and in_cloning and done == 1)
                or (place == "second epoch" and in_cloning and done == total // 3 + 1)
            ):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            runs.trainer(config, place).run(on_progress=interrupt)
        left = load_checkpoint(runs.path(place))
        assert (left.iteration, left.best) == (-epochs_left, None)
        assert ("cloning" in left.learner["optimisers"]) == (epochs_left < 3)
        assert not (runs.folder / place / "policy.npz").exists()
        runs.train(config, place, resume=True)
        runs.assert_same("whole", place)


def test_progress_is_told_in_every_phase(runs: Runs) -> None:
    told: dict[str, list[tuple[int, int]]] = {}
    runs.trainer(runs.config(behaviour_cloning=CLONING[runs.kind])).run(
        on_progress=lambda phase, done, total: told.setdefault(phase, []).append((done, total))
    )
    phases = [phase.split()[0] for phase in told if phase != "validation"]
    teacher = "episodes" if runs.kind == "cluster" else "sets"
    assert phases == ["heuristics", teacher, "behaviour", "training"]
    assert ("validation" in told) == (runs.kind == "cluster")
    for phase, numbers in told.items():
        assert all(0 <= done <= total for done, total in numbers), phase
        assert numbers[-1][0] == numbers[-1][1], phase


def test_a_checkpoint_of_more_cloning_than_its_settings_have_is_refused(grid_runs: Runs) -> None:
    config = grid_runs.config(iterations=1)
    grid_runs.train(config)
    for changes, message in (
        ({"best": None}, "the iteration must be"),
        ({"best": None, "iteration": -2, "curve": []}, "does not fit its own settings: 2 epochs"),
    ):
        document = torch.load(grid_runs.path(), weights_only=True)
        torch.save({**document, **changes}, grid_runs.path())
        with pytest.raises(TrainingError, match=message):
            grid_runs.trainer(config, resume=True)
        torch.save(document, grid_runs.path())


def test_a_training_begins_with_the_policy_of_another(runs: Runs) -> None:
    start = runs.train(runs.config(iterations=1, seed=4), "first", command="decima train --out DIR").policy_file
    best = load_checkpoint(runs.path("first")).best.weights
    config = runs.config(iterations=2, start=str(start), behaviour_cloning=None, seed=5)
    trainer = runs.trainer(config)
    begun = trainer.kept.state_dict()
    assert all(torch.equal(begun[name], weight) for name, weight in best.items())
    result = trainer.run()
    first = runs.about("first")
    told = {name: first[name] for name in ("command", "seed", "iterations_trained", "training_cpu_s")}
    assert runs.about()["before"] == [told]
    start.unlink()  # a resumed run needs only its checkpoint
    assert runs.train(config, resume=True).results == result.results
    assert runs.about()["before"] == [told]
    further = runs.config(iterations=1, start=str(result.policy_file), behaviour_cloning=None)
    runs.train(further, "third")
    assert [each["seed"] for each in runs.about("third")["before"]] == [4, 5]
    card = (runs.folder / "third" / CARD).read_text()
    assert "Its initial policy was trained with `decima train --out DIR`, seed 4: " in card
    with pytest.raises(PolicyFileError, match=r"policy\.npz.* No such file|policy\.npz' is neither a file"):
        runs.trainer(config, "gone")


def test_a_folder_that_holds_a_run_is_left_alone(grid_runs: Runs) -> None:
    config, out = grid_runs.config(iterations=1), grid_runs.folder / "out"
    grid_runs.train(config)
    before = {path: path.read_bytes() for path in out.iterdir() if path.is_file()}
    with pytest.raises(TrainingError, match=r"out: contains a training run already; --resume continues it"):
        grid_runs.trainer(config)
    assert before == {path: path.read_bytes() for path in out.iterdir() if path.is_file()}


#: Settings of another run, and the setting that the error message names.
OTHERS: dict[str, tuple[tuple[dict[str, Any], str], ...]] = {
    "cluster": (({"cluster": {"executors": 5}}, "cluster.executors"), ({"curriculum": {}}, "curriculum")),
    "grid": (({"grid": {"units": 12}}, "grid.units"), ({"update": {"algorithm": "a2c"}}, "update.algorithm")),
}


def test_only_the_same_training_can_be_gone_on_with(runs: Runs) -> None:
    runs.train(runs.config(iterations=2))
    for changes, place in (({"seed": 1}, "seed"), ({"behaviour_cloning": {}}, "behaviour_cloning"), *OTHERS[runs.kind]):
        with pytest.raises(TrainingError, match=f"belongs to a run with another {place};"):
            runs.trainer(runs.config(**{"iterations": 2, **changes}), resume=True)
    with pytest.raises(TrainingError, match="2 iterations are complete, more than the 1 requested"):
        runs.trainer(runs.config(iterations=1), resume=True)
    longer = runs.config(iterations=4, checkpoint_every=1)
    assert runs.train(longer, resume=True).iteration == 4
    assert load_checkpoint(runs.path()).config == longer.model_dump(mode="json")


def test_what_was_measured_after_the_checkpoint_is_measured_again(grid_runs: Runs) -> None:
    config = grid_runs.config(iterations=5, checkpoint_every=2, validation={"every": 5})
    grid_runs.train(config, "whole")
    with pytest.raises(ZeroDivisionError):
        grid_runs.trainer(config).run(stop_after(2, ZeroDivisionError))
    # A killed run leaves rows after its checkpoint, and an incomplete last line.
    with (grid_runs.folder / "out" / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"iteration": 3, "return": -1.0}) + "\n" + '{"iteration": 4, "ret')
    grid_runs.train(config, resume=True)
    grid_runs.assert_same("whole", "out")


def test_metrics_are_in_tensorboard_too(grid_runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = grid_runs.config()
    with pytest.raises(ZeroDivisionError):
        grid_runs.trainer(config).run(stop_after(1, ZeroDivisionError))
    # TensorBoard orders files by their time in whole seconds.
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 2)
    grid_runs.train(config, resume=True)
    board = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    board.Reload()
    rows = grid_runs.measured()
    for name in ("return", "improvement"):
        events = [(event.step, event.value) for event in board.Scalars(name)]
        expected = [(row["iteration"], row[name]) for row in rows if name in row]
        assert [step for step, _ in events] == [step for step, _ in expected]
        np.testing.assert_allclose(*([value for _, value in each] for each in (events, expected)), rtol=1e-6)


def test_a_gradient_that_is_no_number_stops_the_training(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = GridTraining if runs.kind == "grid" else ClusterTraining
    real = kind.learn

    def fails_later(training: Any, iteration: int) -> dict[str, float]:
        if iteration == 2:
            for parameter in training.networks.parameters():
                parameter.data.fill_(torch.nan)  # in the middle of an update
            raise NotFiniteError("the loss is nan, the norm of its gradient nan")
        return dict(real(training, iteration))

    monkeypatch.setattr(kind, "learn", fails_later)
    config = runs.config(checkpoint_every=100, validation={"every": 100})
    with pytest.raises(TrainingError) as stopped:
        runs.train(config)
    assert str(stopped.value) == (
        f"iteration 3: the loss is nan, the norm of its gradient nan; {runs.path()} keeps iteration 2"
    )
    assert load_checkpoint(runs.path()).iteration == 2
    monkeypatch.undo()
    assert runs.train(config, resume=True).iteration == 3


def test_steps_that_are_far_too_long_are_noticed(runs: Runs) -> None:
    config = runs.config(update={"learning_rate": 1e37, "final_learning_rate": 1e37})
    with pytest.raises(TrainingError, match=r"^iteration [12]: .* keeps iteration [01]$"):
        runs.train(config)


def edit(runs: Runs, *place: str | int, value: object = None) -> None:
    """Replace an entry of the checkpoint; remove it without a value."""
    document = torch.load(runs.path(), weights_only=True)
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    torch.save(document, runs.path())


def test_a_checkpoint_that_does_not_fit_its_settings_is_refused(runs: Runs) -> None:
    config = runs.config(iterations=1)
    runs.train(config)
    whole = runs.path().read_bytes()
    state = torch.load(runs.path(), weights_only=True)["learner"]
    best = next(iter(torch.load(runs.path())["best"]["weights"]))
    weight, network = next(iter(state["networks"])), next(iter(state["optimisers"]))
    no_numbers = state["networks"][weight] * torch.nan
    of_three = {name: torch.zeros(3) for name in state["optimisers"][network]["state"][0]}
    own: list[tuple[tuple[str | int, ...], object, str]] = [
        (("best", "weights"), {"a": torch.zeros(1)}, "Missing key"),
        (("best", "weights", best), torch.zeros(9), "size mismatch"),
        (("learner", "networks"), {}, "Missing key"),
        (("learner", "networks", weight), torch.zeros(3), "size mismatch"),
        (("learner", "networks", weight), 1.0, ""),
        (("learner", "networks", weight), no_numbers, "weights that are not finite"),
        (("learner", "optimisers"), None, ""),
        (("learner", "optimisers", network), {"state": {}, "param_groups": []}, ""),
        (("learner", "optimisers", network, "state", 0), of_three, "another shape than the weights"),
    ]
    if runs.kind == "cluster":
        own += [
            (("learner", "advantages"), None, ""),
            (("learner", "advantages", "window"), torch.zeros(4), "window must have shape (4, 2)"),
            (("learner", "advantages", "critic"), torch.zeros(7), "critic must have shape (7, 8)"),
        ]
    for place, value, message in own:
        runs.path().write_bytes(whole)
        edit(runs, *place, value=value)
        with pytest.raises(TrainingError) as refused:
            runs.trainer(config, resume=True)
        assert str(refused.value).startswith(f"{runs.path()}: does not fit its own settings: "), place
        assert message in str(refused.value)


def test_cpu_time_counts_that_of_other_processes_and_of_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, calls = Runs("cluster", tmp_path), []

    def elsewhere(*given: Any) -> tuple[list[Any], float]:
        calls.append(given)
        return map_in_order(*given)[0], 1000.0

    monkeypatch.setattr("decima.learning.loop.map_in_order", elsewhere)
    for iterations in (1, 3):
        result = runs.train(runs.config(iterations=iterations), resume=True)
        assert 0 < result.cpu_s - 1000 * len(calls) < 900
    assert len(calls) > 3
    cpu_s = [row["cpu_s"] for row in read_metrics(tmp_path / "out" / "metrics.jsonl")]
    assert cpu_s == sorted(cpu_s)
    assert cpu_s[-1] == result.cpu_s


def test_the_number_of_threads_is_given_back(grid_runs: Runs) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        grid_runs.train(grid_runs.config(iterations=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_settings_of_both_have_what_all_runs_have() -> None:
    for config in (TrainingConfig(), DeepRMConfig()):
        assert (config.seed, config.checkpoint_every, config.validation.every) == (0, 10, 10)
