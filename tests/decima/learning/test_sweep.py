"""Sweeps: trials, results, and independence of interruptions."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from decima.learning.checkpoint import load_checkpoint
from decima.policy.grid import load_network, read_about
from decima.settings import DivergedError, TrainingError
from tests.decima.learning.cluster.examples import small as small_cluster
from tests.decima.learning.examples import assert_same_run
from tests.decima.learning.grid.examples import SMALL
from tests.refusal import one_line

pytest.importorskip("optuna", reason="needs the extra 'sweep'")

from decima.learning import sweep as sweeping
from decima.learning.sweep import SweepResult, run_sweep, seed_folder
from decima.learning.sweep_config import SweepConfig, read_sweep
from tests.cases import cases


def dotted(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in document.items():
        found |= dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


#: Trainings of a fraction of a second.
FIXED = {
    name: value for name, value in dotted(SMALL).items() if name not in ("update.learning_rate", "network.hidden")
} | {"iterations": 2, "validation.every": 1}
GRID = {"train": "deeprm", "fixed": FIXED, "vary": {"update.learning_rate": [0.01, 0.1]}, "seeds": 2}
SAMPLED = GRID | {
    "vary": {
        "update.learning_rate": {"log_uniform": ["1e-4", "1e-1"]},
        "network.hidden": [[3], [4, 4]],
        "episodes.per_set": {"uniform": [2, 5]},
    },
    "fixed": {name: value for name, value in FIXED.items() if name != "episodes.per_set"},
    "trials": 2,
}


def written(folder: Path, document: Any) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def config_of(folder: Path, document: Any) -> SweepConfig:
    return read_sweep(written(folder, document))


def timeless(result: SweepResult) -> list[Any]:
    """Return the results of a sweep without times."""
    return [replace(each, results=tuple(replace(r, cpu_s=0.0) for r in each.results)) for each in result.trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The folder and the results of an uninterrupted sampled sweep."""
    folder = tmp_path_factory.mktemp("whole")
    return folder / "out", timeless(run_sweep(config_of(folder, SAMPLED), folder / "out"))


def kept(journal: Path) -> int:
    """Return the trials in a journal, one JSON line each."""
    return sum("distributions" in json.loads(line) for line in journal.read_text().splitlines())


def test_a_grid_tries_all_combinations_with_all_seeds(tmp_path: Path) -> None:
    document = GRID | {"vary": {**GRID["vary"], "network.hidden": [[3], [4]]}, "seeds": [3, 5]}
    config = config_of(tmp_path, document)
    assert config.num_trials == 4
    result = run_sweep(config, tmp_path / "out")
    assert [(trial.settings["update.learning_rate"], trial.settings["network.hidden"]) for trial in result.trials] == [
        (0.01, [3]), (0.01, [4]), (0.1, [3]), (0.1, [4]),
    ]  # fmt: skip
    for trial in result.trials:
        assert [each.seed for each in trial.results] == [3, 5]
        for each in trial.results:
            checkpoint = load_checkpoint(tmp_path / "out" / seed_folder(trial.number, each.seed) / "checkpoint.pt")
            assert checkpoint.config["seed"] == each.seed
            assert checkpoint.config["update"]["learning_rate"] == trial.settings["update.learning_rate"]
            assert checkpoint.config["network"]["hidden"] == trial.settings["network.hidden"]
            assert checkpoint.config["iterations"] == 2
            best = max(checkpoint.curve, key=lambda row: row[2])
            assert (each.iteration, each.objective, each.improvement) == (best[0], best[1], best[2])
        assert trial.objective.mean == pytest.approx(sum(each.objective for each in trial.results) / 2)
        assert trial.cpu_s == sum(each.cpu_s for each in trial.results) > 0
        said = [[each.seed, each.objective, each.improvement] for each in trial.results]
        for each in trial.results:
            folder = tmp_path / "out" / seed_folder(trial.number, each.seed)
            assert read_about(folder / "policy.npz")["seeds"] == said
            load_network(folder / "policy.npz")
            assert "## With 2 seeds" in (folder / "policy.md").read_text()
    means = [trial.objective.mean for trial in result.ranked]
    assert means == sorted(means)


def test_seeds_alone_can_be_tried(tmp_path: Path) -> None:
    config = config_of(tmp_path, {name: value for name, value in GRID.items() if name != "vary"})
    [trial] = run_sweep(config, tmp_path / "out").trials
    assert [each.seed for each in trial.results] == [0, 1]
    assert trial.settings == {}


def test_samples_lie_in_their_ranges_and_follow_from_the_seed(tmp_path: Path, whole: tuple[Path, list[Any]]) -> None:
    trials = whole[1]
    for trial in trials:
        assert 1e-4 <= trial.settings["update.learning_rate"] <= 1e-1
        assert trial.settings["network.hidden"] in ([3], [4, 4])
        assert trial.settings["episodes.per_set"] in range(2, 6)
        assert isinstance(trial.settings["episodes.per_set"], int)
    assert len({trial.settings["update.learning_rate"] for trial in trials}) == 2
    config = config_of(tmp_path, SAMPLED)
    other = run_sweep(config.model_copy(update={"seed": 1, "trials": 1}), tmp_path / "other")
    assert other.trials[0].settings != trials[0].settings


@pytest.mark.parametrize("cuts", [(1, 2), (10, 4)])
def test_a_sweep_that_was_cut_off_goes_on_and_ends_the_same(
    tmp_path: Path, whole: tuple[Path, list[Any]], cuts: tuple[int, ...]
) -> None:
    """The sweep is interrupted after a number of progress reports, within a training or between two trainings."""
    config = config_of(tmp_path, SAMPLED)
    for cut in cuts:
        told = 0

        def tell(what: str, done: int, total: int, cut: int = cut) -> None:
            nonlocal told
            told += 1
            if told == cut:
                raise KeyboardInterrupt

        part = run_sweep(config, tmp_path / "out", progress=tell)
        assert part.interrupted
        assert len(part.trials) < 2
        assert timeless(part) == whole[1][: len(part.trials)]
    done = run_sweep(config, tmp_path / "out")
    assert not done.interrupted
    assert timeless(done) == whole[1]
    for number in range(2):
        for seed in range(2):
            assert_same_run(*(out / seed_folder(number, seed) for out in (whole[0], tmp_path / "out")))


def test_what_is_finished_is_not_trained_again_and_trials_can_be_added(
    tmp_path: Path, whole: tuple[Path, list[Any]]
) -> None:
    config = config_of(tmp_path, SAMPLED)
    run_sweep(config.model_copy(update={"trials": 1}), tmp_path / "out")
    told: list[str] = []
    result = run_sweep(config, tmp_path / "out", progress=lambda what, done, total: told.append(what))
    assert {what.split("/")[0] for what in told} == {"training trial-001"}
    assert timeless(result) == whole[1]


def test_a_journal_that_was_cut_off_in_a_line_is_gone_on_with(tmp_path: Path, whole: tuple[Path, list[Any]]) -> None:
    config = config_of(tmp_path, SAMPLED)
    shutil.copytree(whole[0], tmp_path / "out")
    journal = tmp_path / "out" / "study.log"
    before = journal.read_bytes()
    assert kept(journal) == 2
    for cut in (1, 100):
        journal.write_bytes(before[:-cut])
        assert timeless(run_sweep(config, tmp_path / "out")) == whole[1]
        assert kept(journal) == 2


def test_a_training_that_diverges_does_not_end_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_all = sweeping.train_all

    def diverges(configs: dict[str, Any], *rest: Any) -> Any:
        if any(config.update.learning_rate == 0.01 and config.seed == 1 for config in configs.values()):
            raise DivergedError("iteration 1: a loss is not finite")
        return train_all(configs, *rest)

    monkeypatch.setattr(sweeping, "train_all", diverges)
    config = config_of(tmp_path, GRID)
    result = run_sweep(config, tmp_path / "out")
    assert [trial.diverged for trial in result.trials] == [True, False]
    assert [trial.number for trial in result.ranked] == [1, 0]
    assert result.trials[0].objective.mean != result.trials[0].objective.mean
    assert timeless(run_sweep(config, tmp_path / "out"))[1] == timeless(result)[1]


def test_the_training_of_clusters_is_swept(tmp_path: Path) -> None:
    small_cluster(tmp_path)
    few = {"iterations": 1, "behaviour_cloning": None, "cluster.executors": 4, "workload.jobs": 3}
    fixed = few | {"workload.file": str(tmp_path / "tiny.json"), "validation.sequences": 1}
    vary = {"update.learning_rate": [0.0001, 0.1]}
    result = run_sweep(config_of(tmp_path, {"fixed": fixed, "vary": vary, "seeds": 1}), tmp_path / "out")
    assert [len(trial.results) for trial in result.trials] == [1, 1]
    assert all(trial.objective.mean > 0 for trial in result.trials)


@cases("changes, message",
        ({"vary": {"update.lerning_rate": [1, 2]}}, "update.lerning_rate: unknown key"),
        ({"vary": {"update.learning_rate": {"uniform": [0.1, "one"]}}}, "uniform: expected two numbers"),
        ({"vary": {"update.learning_rate": []}}, "update.learning_rate: expected at least one value"),
        ({"vary": {"update.learning_rate": {"uniform": [0.1, 0.01]}}, "trials": 2}, "expected two ascending numbers"),
        ({"vary": {"update.learning_rate": {"log_uniform": [0, 1]}}, "trials": 2}, "expected positive numbers"),
        ({"vary": {"update.learning_rate": {"normal": [0, 1]}}}, "expected a list of values, or exactly one of"),
        ({"vary": {"update.learning_rate": 0.1}}, "expected a list of values, or exactly one of"),
        ({"vary": {"update.learning_rate": [0.1, 0.1]}}, "a value is given more than once"),
        ({"vary": {"update.learning_rate": {"uniform": [-1, 1]}}, "trials": 2}, "greater than 0"),
        ({"vary": {"update.learning_rate": {"uniform": [0.1, 1]}}}, "trials: expected the number"),
        ({"trials": 3}, "trials: expected none without a range"),
        ({"seeds": []}, "seeds: expected at least one"),
        ({"seeds": [1, 1]}, "without repetition, got [1, 1]"),
        ({"seeds": 0}, "seeds"),
        ({"vary": {"seed": [1, 2]}}, "expected the setting seeds"),
        ({"vary": {"iterations": [1, 2]}}, "iterations: is fixed and varied"),
        ({"config": "bach"}, "unknown recipe 'bach'"),
        ({"settings": {}}, "settings: unknown key"),
        ({"train": "spark"}, "train: "),
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    said = one_line(TrainingError, config_of, tmp_path, GRID | changes)
    assert message in said
    assert said.startswith(f"{tmp_path / 'sweep.yaml'}: ")


def test_another_sweep_in_the_folder_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, GRID | {"seeds": 1})
    run_sweep(config, tmp_path / "out")
    with pytest.raises(TrainingError, match=r"out/sweep\.yaml: belongs to a sweep with other seeds"):
        run_sweep(config_of(tmp_path, GRID), tmp_path / "out")
    training = tmp_path / "out" / seed_folder(0, 0)
    shutil.rmtree(training)
    shutil.copytree(tmp_path / "out" / seed_folder(1, 0), training)
    with pytest.raises(TrainingError, match=r"belongs to a run with another update\.learning_rate; .* another folder"):
        run_sweep(config, tmp_path / "out")


def test_a_journal_that_is_none_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, GRID)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.log").write_text("no journal\nat all\n")
    with pytest.raises(TrainingError, match=r"study\.log: not the journal of a sweep"):
        run_sweep(config, tmp_path / "out")
