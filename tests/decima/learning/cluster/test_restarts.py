"""Random restarts: trainings with different seeds run the first iterations, and the best one continues."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from decima.learning import IterationReport
from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.restarts import iterations_of, seeds_of
from decima.learning.cluster.sections import RestartsSection
from decima.learning.cluster.train import ClusterTraining
from decima.learning.resume import load_checkpoint
from decima.settings import SEEDS, DivergedError
from tests.decima.learning.examples import Runs
from workloads.errors import NotFiniteError

#: Few iterations, each with a validation.
SHORT: dict[str, Any] = {"iterations": 3, "validation": {"every": 1}, "checkpoint_every": 1}


def restarted(runs: Runs, **restarts: Any) -> TrainingConfig:
    return runs.config(**SHORT, restarts={"seeds": 3, **restarts})


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs("cluster", tmp_path)


def test_the_best_restart_continues(runs: Runs) -> None:
    config = restarted(runs).model_copy(update={"seed": 2})
    reported: list[IterationReport] = []
    result = runs.trainer(config).run(reported.append)
    folders = [f"out/restarts/{index}" for index in range(3)]
    checkpoints = [load_checkpoint(runs.path(folder)) for folder in folders]
    assert [checkpoint.iteration for checkpoint in checkpoints] == [1, 1, 1]
    seeds = [checkpoint.config["seed"] for checkpoint in checkpoints]
    assert seeds == seeds_of(RestartsSection(seeds=3), 2)
    best = max(checkpoints, key=lambda checkpoint: checkpoint.best.improvement)  # type: ignore[union-attr]
    assert len({checkpoint.best.improvement for checkpoint in checkpoints}) == 3  # type: ignore[union-attr]
    whole = load_checkpoint(runs.path("out"))
    assert whole.curve[:2] == best.curve
    assert [row["iteration"] for row in runs.measured("out")] == [0, 1, 2, 3]
    assert [report.iteration for report in reported] == [0, 1, 2, 3]
    assert result.iteration == 3
    assert result.cpu_s > sum(checkpoint.cpu_s for checkpoint in checkpoints)


def test_a_training_whose_own_seed_is_the_best_is_the_same_without_restarts(runs: Runs) -> None:
    runs.train(restarted(runs), "out")
    first, best = (load_checkpoint(runs.path(folder)).curve[:2] for folder in ("out/restarts/0", "out"))
    assert first == best
    runs.train(runs.config(**SHORT), "alone")
    runs.assert_same("alone", "out")


@pytest.mark.parametrize(("number", "iteration"), [(1, 0), (3, 2)])
def test_an_interrupted_restart_resumes(number: int, iteration: int, runs: Runs) -> None:
    config = restarted(runs, share=0.6)
    runs.train(config, "whole")

    def interrupt(phase: str, done: int, total: int) -> None:
        if (phase, done) == (f"training {number} of 3", iteration):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.trainer(config).run(on_progress=interrupt)
    assert not runs.path().exists()
    runs.train(config, resume=True)
    runs.assert_same("whole", "out")


def diverging(seeds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainings with these seeds diverge in their first iteration."""
    learn = ClusterTraining.learn

    def learn_or_diverge(training: ClusterTraining, iteration: int) -> dict[str, float]:
        if training.config.seed in seeds:
            raise NotFiniteError("the loss is nan")
        return learn(training, iteration)

    monkeypatch.setattr(ClusterTraining, "learn", learn_or_diverge)


def test_a_restart_that_diverges_is_out(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    config = restarted(runs)
    seeds = seeds_of(RestartsSection(seeds=3), config.seed)
    diverging(seeds[1:], monkeypatch)
    runs.train(config, "out")
    assert load_checkpoint(runs.path("out")).curve[:2] == load_checkpoint(runs.path("out/restarts/0")).curve
    diverging(seeds, monkeypatch)
    with pytest.raises(DivergedError, match="iteration 1: the loss is nan"):
        runs.train(config, "none")


def test_the_heuristics_run_once(runs: Runs) -> None:
    phases = []
    runs.trainer(restarted(runs)).run(on_progress=lambda phase, done, total: phases.append((phase, done)))
    assert phases.count(("heuristics on the validation sequences", 1)) == 1


@pytest.mark.parametrize(("share", "iterations", "each"), [(0.25, 400, 100), (0.25, 3, 1), (0.9, 10, 9)])
def test_the_iterations_of_each_restart(share: float, iterations: int, each: int) -> None:
    assert iterations_of(RestartsSection(share=share), iterations) == each


@given(st.integers(0, SEEDS - 1), st.integers(2, 100))
def test_seeds_differ(seed: int, count: int) -> None:
    seeds = seeds_of(RestartsSection(seeds=count), seed)
    assert seeds[0] == seed
    assert len(set(seeds)) == count
    assert all(0 <= each < SEEDS for each in seeds)
