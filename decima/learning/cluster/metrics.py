"""What is measured while a policy learns, and where it is written: ``metrics.jsonl`` and TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from decima.outputs import atomic_path

__all__ = ["METRICS", "MetricsLog", "read_metrics"]

#: Name -> what it is. Every row of ``metrics.jsonl`` is one iteration; a metric that was not measured is not there.
METRICS: dict[str, str] = {
    "iteration": "iterations that are over; 0 is the policy before the first",
    "jct_s": "mean JCT of the jobs that training episodes completed, averaged over episodes, s",
    "return": "sum of rewards, averaged over the training episodes",
    "advantage_std": "standard deviation of the advantages before they are normalised",
    "loss": "of the policy, without the entropy's part, averaged over the gradient steps",
    "entropy": "of stage and limit together, nats per sample",
    "kl": "divergence of the policy after the update from the one that acted, nats; ppo only",
    "clipped": "share of samples whose ratio of probabilities was clipped; ppo only",
    "gradient_norm": "length of the gradient before it is cut, averaged over the gradient steps",
    "steps": "gradient steps",
    "learning_rate": "of Adam",
    "entropy_weight": "of the entropy in the objective",
    "samples": "decisions with more than one answer: what is learned from",
    "decisions": "all decisions",
    "completed_jobs": "jobs that the training episodes completed",
    "mean_end_s": "mean of the distribution that the episodes' ends are drawn from, s; with a curriculum only",
    "rollout_cpu_s": "CPU time of the episodes, over all processes, s",
    "update_cpu_s": "CPU time of the update, s",
    "rollout_ms_per_decision": "CPU time of the episodes per decision, ms",
    "cpu_s": "CPU time since the training began, over all processes, s",
    "validation_jct_s": "mean JCT on the validation sequences, nothing left to chance, s",
    "validation_makespan_s": "the same for the makespan, s",
    "improvement": "1 - ratio of validation JCT (or makespan, if that is rewarded) to that of the tuned weighted fair",
    "best_improvement": "the highest improvement so far: that of policy.npz",
}


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of a ``metrics.jsonl``, without a last one that was cut off."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


class MetricsLog:
    """Writes rows; a context manager.

    Args:
        out: the folder of the training run.
        iteration: rows after this one, from a run that was cut off, are dropped; -1 for a new run.
        known: name -> what it is, of all metrics that there may be.
    """

    def __init__(self, out: Path, iteration: int, known: Mapping[str, str] = METRICS) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._known = known
        path = out / "metrics.jsonl"
        kept = [row for row in read_metrics(path) if row["iteration"] <= iteration] if path.exists() else []
        with atomic_path(path) as partial:
            partial.write_text("".join(_line(row) for row in kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(out / "tensorboard"), purge_step=iteration + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._board.close()

    def write(self, row: Mapping[str, float]) -> None:
        """Write the metrics of one iteration; those that are no number are left out."""
        row = {name: value for name, value in row.items() if math.isfinite(value)}
        assert row.keys() <= self._known.keys()
        self._file.write(_line(row))
        self._file.flush()
        for name, value in row.items():
            if name != "iteration":
                self._board.add_scalar(name, value, int(row["iteration"]))
        self._board.flush()


def _line(row: Mapping[str, float]) -> str:
    return json.dumps(row) + "\n"
