"""Read the metrics of a training run, ``metrics.jsonl``."""

from __future__ import annotations

from pathlib import Path

from decima.learning.metrics import FIRST
from decima.settings import TrainingError
from workloads.reading import parse_json, read_bytes

__all__ = ["RENAMED", "read_metrics"]

#: Name of a metric up to version 0.1.0 -> current name.
RENAMED = {"jct_s": "mean_jct_s", "validation_jct_s": "validation_mean_jct_s"}
#: Largest absolute value of a metric.
LARGEST = 1e100


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Read the rows of a file ``metrics.jsonl``. Old names are converted; an incomplete last row is dropped.

    Raises:
        TrainingError: the file cannot be read, or a row is anything but numbers by name.
    """
    rows: list[dict[str, float]] = []
    try:
        *lines, cut = read_bytes(Path(path)).decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: {getattr(error, 'strerror', 'no text')}, expected metrics") from None
    for line_number, line in enumerate([*lines, cut] if cut else lines, start=1):
        try:
            row = parse_json(line)
        except ValueError:
            if line_number > len(lines):
                break
            row = None
        iteration = row.get("iteration") if isinstance(row, dict) else None
        if not isinstance(row, dict) or type(iteration) is not int or abs(iteration) > -FIRST:
            raise TrainingError(f"{path}: line {line_number}: expected metrics of an iteration")
        if not all(type(value) in (int, float) and abs(value) <= LARGEST for value in row.values()):
            raise TrainingError(f"{path}: line {line_number}: expected finite numbers by name")
        rows.append(row)
    return [{RENAMED.get(name, name): value for name, value in row.items()} for row in rows]
