"""Training metrics with their meanings, results of trainings, and the log: ``metrics.jsonl`` and TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch.utils.tensorboard import SummaryWriter

from decima.outputs import atomic_path, writing

if TYPE_CHECKING:
    from decima.settings import RunConfig

__all__ = [
    "CLUSTER_METRICS", "GRID_METRICS", "IterationReport", "TrainingResult", "Validation",
    "WriteMetrics", "metrics_log", "objective_title", "validation_metric",
]  # fmt: skip

Config = TypeVar("Config", bound="RunConfig")

#: Names of the files in a run's folder.
METRICS_FILE, TENSORBOARD = "metrics.jsonl", "tensorboard"
#: Lower bound of the iteration numbers.
FIRST = -(2**31)

#: Name -> meaning of the metrics of all trainings. A row of ``metrics.jsonl`` has the metrics of one iteration.
COMMON: dict[str, str] = {
    "iteration": "number of completed iterations; 0 for the initial policy; below 0, minus the number of remaining "
    "epochs of behaviour cloning",
    "return": "sum of rewards, averaged over the training episodes",
    "cloning_loss": "mean negative log-probability of the teacher's choices, nats; in behaviour cloning only",
    "samples": "number of samples: decisions with more than one legal action",
    "steps": "number of gradient steps",
    "entropy": "entropy of the policy, nats per sample",
    "gradient_norm": "norm of the policy's gradient before clipping, averaged over the gradient steps",
    "learning_rate": "learning rate of the policy; its step in a direct search",
    "cpu_s": "CPU time since the training began, over all processes, s",
    "validation_reference": "objective of the reference scheduler on the validation set",
    "best_improvement": "highest improvement so far: that of policy.npz",
}


CLUSTER_METRICS: dict[str, str] = COMMON | {
    "mean_jct_s": "mean JCT of the jobs that training episodes completed, averaged over episodes, s",
    "advantage_std": "standard deviation of the advantages before they are normalised",
    "gradient_signal": "part of the policy gradient that is common to the job sequences, from 0 (noise) to 1; where "
    "it stays below 1 / episodes.sequences, more sequences help more than more iterations; with each validation",
    "loss": "loss of the policy without the entropy bonus, averaged over the gradient steps",
    "kl": "KL divergence of the updated policy from the acting policy, nats; ppo only",
    "clipped": "share of samples whose probability ratio was clipped; ppo only",
    "entropy_weight": "weight of the entropy bonus",
    "decisions": "number of decisions, including those with one legal action",
    "completed_jobs": "number of jobs that training episodes completed",
    "mean_end_s": "mean of the distribution of truncation times, s; with a curriculum only",
    "rollout_cpu_s": "CPU time of the episodes, over all processes, s",
    "update_cpu_s": "CPU time of the update, s",
    "rollout_ms_per_decision": "CPU time of the episodes per decision, ms",
    "validation_mean_jct_s": "mean JCT on the validation sequences, greedy, s; without settings only",
    "validation_makespan_s": "makespan on the validation sequences, greedy, s; without settings only",
    "validation_cost_s": "cost per job by the objective cluster.reward on the validation sequences, greedy, s; with "
    "other objectives than jct and makespan only",
    "validation_change_mean": "relative change of JCT against validation.against, averaged over cells; with settings "
    "only",
    "validation_change_worst": "loss of the worst cell beyond its interval, 0 if no cell loses; with settings only",
    "improvement": "1 - ratio of validation JCT (or the objective cluster.reward) to that of tuned weighted fair; "
    "with settings, minus the sum of validation_change_mean and validation_change_worst",
}

GRID_METRICS: dict[str, str] = COMMON | {
    "return_best": "return of the best episode of each set, averaged over the sets",
    "slowdown": "mean slowdown of the jobs that training episodes booked",
    "completion": "mean completion time of the jobs that training episodes booked, steps",
    "unfinished": "number of jobs that training episodes did not book",
    "advantage_std": "root mean square of the advantages",
    "critic_loss": "mean square error of the critic, in units of the usual return; a2c only",
    "iteration_cpu_s": "CPU time of the iteration, s",
    "validation_slowdown": "mean slowdown of the jobs of the validation sets",
    "validation_completion": "mean completion time of the jobs of the validation sets, steps",
    "validation_waiting": "mean waiting time of the jobs of the validation sets, steps",
    "validation_makespan": "mean makespan of the validation sets, steps",
    "validation_utilisation": "mean share of units in use, over the validation sets",
    "improvement": "1 - ratio of the objective on the validation sets to that of the best heuristic",
}


def validation_metric(reward: str) -> str:
    """Return the name of the metric of an objective (see ``ClusterConfig.reward``) on the validation sequences."""
    names = {"jct": "validation_mean_jct_s", "makespan": "validation_makespan_s"}
    return names.get(reward, "validation_cost_s")


def objective_title(reward: str) -> str:
    """Return the title of an objective (see ``ClusterConfig.reward``) in tables and policy cards."""
    return {"jct": "mean JCT", "makespan": "makespan"}.get(reward, f"cost per job by {reward}")


@dataclass(frozen=True, eq=False)
class IterationReport:
    """Report of one iteration, or of one epoch of behaviour cloning.

    Attributes:
        iteration: number of completed iterations; during behaviour cloning minus the number of remaining epochs.
        improvement: improvement of the best policy so far; NaN before iteration 0.
    """

    iteration: int
    iterations: int
    metrics: Mapping[str, float]
    improvement: float


@dataclass(frozen=True, eq=False)
class Validation:
    """Performance of a policy on the validation set.

    Attributes:
        objective: value to minimise.
        reference: objective of the reference scheduler.
        improvement: relative reduction of the objective against the reference scheduler, as a fraction.
        result: results in the form of the heuristics' results: numbers in a list or by name.
    """

    objective: float
    reference: float
    improvement: float
    result: Any
    metrics: Mapping[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class TrainingResult(Generic[Config]):
    """Result of a training run.

    Attributes:
        iteration: number of completed iterations; fewer than requested after Ctrl-C.
        improvement: best policy's relative reduction of the objective against the reference scheduler, as a fraction.
        results: results on the validation set by scheduler; those of the best policy are last.
        interrupted: whether Ctrl-C ended the run.
        cpu_s: CPU time over all processes, s.
    """

    config: Config
    iteration: int
    policy_file: Path
    best_iteration: int
    improvement: float
    results: Mapping[str, Any]
    interrupted: bool
    cpu_s: float

    def __repr__(self) -> str:
        against = (
            f"improvement {self.improvement:.1%} in {self.best_iteration} of {self.iteration} iterations"
        )
        return f"TrainingResult({self.policy_file}: {against}, {self.cpu_s / 60:.1f} min of CPU time)"


#: Writes the finite metrics of one iteration.
WriteMetrics = Callable[[Mapping[str, float]], None]


@contextmanager
def metrics_log(out: Path, iteration: float, meanings: Mapping[str, str]) -> Iterator[WriteMetrics]:
    """Open the log of a training run's metrics, ``metrics.jsonl`` and TensorBoard, inside the block.

    Args:
        iteration: last completed iteration; later rows of an interrupted run are dropped. Minus infinity for a new run.
        meanings: all possible metrics, name -> meaning.
    """
    path, folder = out / METRICS_FILE, out / TENSORBOARD
    kept: list[dict[str, float]] = []
    if path.exists():
        from decima.learning.metrics_file import read_metrics

        kept = [row for row in read_metrics(path) if row["iteration"] <= iteration]
    with atomic_path(path) as partial:
        partial.write_text("".join(_line(row) for row in kept), encoding="utf-8")
    with writing(path):
        file = path.open("a", encoding="utf-8")
    with writing(folder):
        board = SummaryWriter(str(folder), purge_step=int(max(iteration + 1, FIRST)))

    def write(row: Mapping[str, float]) -> None:
        row = {name: value for name, value in row.items() if math.isfinite(value)}
        assert row.keys() <= meanings.keys()
        with writing(path):
            file.write(_line(row))
            file.flush()
        with writing(folder):
            for name, value in row.items():
                if name != "iteration":
                    board.add_scalar(name, value, int(row["iteration"]))
            board.flush()

    try:
        yield write
    finally:
        with writing(path):
            file.close()
        with writing(folder):
            board.close()


def _line(row: Mapping[str, float]) -> str:
    return json.dumps(row) + "\n"
