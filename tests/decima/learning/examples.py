"""Small trainings on a cluster or a grid, and comparison of two runs."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning import ClusterTraining, GridTraining, IterationReport, TrainingResult, read_metrics
from decima.learning.cluster.validation import weighted_fair_ms
from decima.learning.loop import CHECKPOINT, POLICY, TrainingLoop
from decima.learning.resume import load_checkpoint
from decima.policy.about import read_about
from decima.policy.files import load_policy
from decima.policy.grid import load_network
from decima.policy.grid_config import read_about as read_about_network
from decima.schedulers.grid import tune_tetris
from simulator.grid import Grid
from tests.decima.learning.cluster.examples import small as small_cluster
from tests.decima.learning.grid.examples import small as small_grid

#: Arguments of ``weighted_fair_ms``, pickled -> its result.
_swept: dict[bytes, NDArray[np.float64]] = {}


def sweep_once(*given: Any) -> NDArray[np.float64]:
    """Cached ``weighted_fair_ms``, which is a third of the time of a small training."""
    key = pickle.dumps(given)
    if key not in _swept:
        _swept[key] = weighted_fair_ms(*given)
    return _swept[key]


#: Configuration and jobs of a grid, pickled -> result of ``tune_tetris``.
_tuned: dict[bytes, float] = {}


def tune_once(grid: Grid) -> float:
    """Cached ``tune_tetris``, which is a third of the time of a small training."""
    key = pickle.dumps((grid.config, grid.jobs))
    if key not in _tuned:
        _tuned[key] = tune_tetris(grid)
    return _tuned[key]


def stop_after(iteration: int, error: type[BaseException]) -> Callable[[IterationReport], None]:
    """Return a callback that interrupts a run after an iteration."""

    def on_iteration(report: IterationReport) -> None:
        if report.iteration == iteration:
            raise error

    return on_iteration


def measured(out: Path) -> list[dict[str, float]]:
    """Return the metrics of a run without times."""
    rows = read_metrics(out / "metrics.jsonl")
    return [{name: row[name] for name in row if "cpu" not in name and not name.startswith("rollout_")} for row in rows]


def assert_same_run(one: Path, other: Path) -> None:
    """Assert that policies, training states and metrics of two runs are equal bit for bit."""
    left, right = (dict(np.load(out / POLICY)) for out in (one, other))
    assert left.keys() == right.keys()
    for name in left.keys() - {"policy", "network"}:
        np.testing.assert_array_equal(left[name], right[name])
    mine, theirs = (load_checkpoint(out / CHECKPOINT) for out in (one, other))
    assert mine.learner["networks"].keys() == theirs.learner["networks"].keys()
    for name, weight in mine.learner["networks"].items():
        assert torch.equal(weight, theirs.learner["networks"][name]), name
    assert (mine.curve, mine.best.iteration) == (theirs.curve, theirs.best.iteration)
    assert measured(one) == measured(other)


class Runs:
    """Small trainings of one kind in a folder."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder

    def config(self, **changes: Any) -> Any:
        return small_grid(**changes) if self.kind == "grid" else small_cluster(self.folder, **changes)

    def trainer(self, config: Any, out: str = "out", **options: Any) -> TrainingLoop[Any]:
        kind: Any = GridTraining if self.kind == "grid" else ClusterTraining
        return kind(config, self.folder / out, **options)

    def train(self, config: Any, out: str = "out", **options: Any) -> TrainingResult[Any]:
        return self.trainer(config, out, **options).run()

    def path(self, out: str = "out") -> Path:
        return self.folder / out / CHECKPOINT

    def about(self, out: str = "out") -> dict[str, Any]:
        """Return the information in the policy file."""
        read = read_about_network if self.kind == "grid" else read_about
        return read(self.folder / out / POLICY)

    def network(self, out: str = "out") -> torch.nn.Module:
        """Return the network in the policy file."""
        path = self.folder / out / POLICY
        return load_network(path)[0] if self.kind == "grid" else load_policy(path)

    def assert_same(self, one: str, other: str) -> None:
        assert_same_run(self.folder / one, self.folder / other)

    def measured(self, out: str = "out") -> list[dict[str, float]]:
        return measured(self.folder / out)
