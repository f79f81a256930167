"""What is measured while a policy learns, and where it is written: ``metrics.jsonl`` and TensorBoard."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from torch.utils.tensorboard import SummaryWriter

from decima.outputs import atomic_path, writing
from decima.settings import TrainingError
from workloads.reading import read_bytes

__all__ = ["COMMON", "RENAMED", "MetricsLog", "read_metrics"]

#: Metrics of version 0.1.0 and earlier -> the names that they have now.
RENAMED = {"jct_s": "mean_jct_s", "validation_jct_s": "validation_mean_jct_s"}
#: No row is of an iteration before this.
FIRST = -(2**31)

#: Name -> what it is, of those that all trainings have. Every row of ``metrics.jsonl`` is one iteration; a metric that
#: was not measured is not there.
COMMON: dict[str, str] = {
    "iteration": "completed iterations; 0 is the policy before the first; below 0, minus the epochs of behaviour "
    "cloning that are left",
    "return": "sum of rewards, averaged over the training episodes",
    "cloning_loss": "mean negative log-probability of the teacher's choices, nats; in behaviour cloning only",
    "samples": "decisions with more than one answer that were learned from",
    "steps": "gradient steps",
    "entropy": "of the policy, nats per sample",
    "gradient_norm": "length of the policy's gradient before it is clipped, averaged over the gradient steps",
    "learning_rate": "of the policy",
    "cpu_s": "CPU time since the training began, over all processes, s",
    "validation_reference": "the objective of the scheduler that the policy is compared with, on the validation set",
    "best_improvement": "the highest improvement so far: that of policy.npz",
}


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Read the rows of a ``metrics.jsonl``, without a last one that was cut off; old names become today's."""
    rows = []
    try:
        text = read_bytes(Path(path)).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: {getattr(error, 'strerror', 'no text')}, expected metrics") from None
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            break
        if not isinstance(rows[-1], dict) or not isinstance(rows[-1].get("iteration"), int):
            raise TrainingError(f"{path}: line {number}: expected metrics of an iteration")
        if not {type(each) for each in rows[-1].values()} <= {int, float}:
            raise TrainingError(f"{path}: line {number}: expected numbers by name")
    return [{RENAMED.get(name, name): value for name, value in row.items()} for row in rows]


class MetricsLog:
    """Writes rows; a context manager.

    Args:
        out: the folder of the training run.
        iteration: rows after this one, from a run that was cut off, are dropped; minus infinity for a new run.
        known: name -> what it is, of all metrics that there may be.
    """

    def __init__(self, out: Path, iteration: float, known: Mapping[str, str]) -> None:
        self._known = known
        path = out / "metrics.jsonl"
        kept = [row for row in read_metrics(path) if row["iteration"] <= iteration] if path.exists() else []
        with atomic_path(path) as partial:
            partial.write_text("".join(_line(row) for row in kept), encoding="utf-8")
        self._path = path
        with writing(path):
            self._file = path.open("a", encoding="utf-8")
        with writing(out / "tensorboard"):
            self._board = SummaryWriter(str(out / "tensorboard"), purge_step=int(max(iteration + 1, FIRST)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._path):
            self._file.close()
        with writing(self._path.with_name("tensorboard")):
            self._board.close()

    def write(self, row: Mapping[str, float]) -> None:
        """Write the metrics of one iteration; those that are no number are left out."""
        row = {name: value for name, value in row.items() if math.isfinite(value)}
        assert row.keys() <= self._known.keys()
        with writing(self._path):
            self._file.write(_line(row))
            self._file.flush()
        with writing(self._path.with_name("tensorboard")):
            for name, value in row.items():
                if name != "iteration":
                    self._board.add_scalar(name, value, int(row["iteration"]))
            self._board.flush()


def _line(row: Mapping[str, float]) -> str:
    return json.dumps(row) + "\n"
