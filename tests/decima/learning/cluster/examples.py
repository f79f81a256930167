"""Small trainings: four profiles on four executors."""

from pathlib import Path
from typing import Any

from decima.learning.cluster.config import TrainingConfig
from decima.settings import parse_settings
from tests.decima.evaluation.examples import LIBRARY
from workloads import Workload, write_workload

#: A training of a second or two.
SMALL: dict[str, Any] = {
    "iterations": 3, "cluster": {"executors": 4}, "workload": {"jobs": 4},
    "episodes": {"sequences": 2, "per_sequence": 3}, "update": {"minibatches": 2},
    "validation": {"every": 2, "sequences": 2}, "checkpoint_every": 2,
}  # fmt: skip


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return one nested dictionary updated by another."""
    result = dict(one)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if both else value
    return result


def small(folder: Path, *, library: Workload = LIBRARY, **changes: Any) -> TrainingConfig:
    """Return the settings of a small training; its workload file is written to the folder."""
    path = folder / "tiny.json"
    if not path.exists():
        write_workload(path, library)
    document = merged(SMALL, {"workload": {"file": str(path)}})
    return parse_settings(TrainingConfig, merged(document, changes), "small")
