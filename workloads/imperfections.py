"""Measured variation and failures of a workload: variation between runs of a job, failed tasks, lost executors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from workloads.errors import LARGEST_ERROR, check_number
from workloads.job import WorkloadError

__all__ = ["UNKNOWN", "Imperfections"]


@dataclass(frozen=True)
class Imperfections:
    """Variation between runs of a job, and failures. A value is None if unknown.

    An error is the standard deviation of the logarithm of a (log-normal) factor.

    Args:
        job_error: error of the factor of a run on all task times of the job.
        stage_error: error of the factor of a stage within a run.
        task_error: error of the factor of a task within its stage.
        task_count_error: error of the factor on the number of tasks of a stage.
        task_failures: fraction of task attempts that fail, from 0 to below 1.
        executor_lifetime_s: mean time until an executor is lost, s.

    Raises:
        WorkloadError: a value is out of range.
    """

    job_error: float | None = None
    stage_error: float | None = None
    task_error: float | None = None
    task_count_error: float | None = None
    task_failures: float | None = None
    executor_lifetime_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if (value := getattr(self, field.name)) is None:
                continue
            bounds = (0, LARGEST_ERROR) if field.name.endswith("_error") else None
            value = check_number(value, field.name, WorkloadError, bounds)
            object.__setattr__(self, field.name, value)
            if field.name == "executor_lifetime_s":
                if not 0 < value < float("inf"):
                    raise WorkloadError(f"{field.name} must be above 0 and finite, got {value:g}")
            elif field.name == "task_failures" and not 0 <= value < 1:
                raise WorkloadError(f"{field.name} must be at least 0 and below 1, got {value:g}")

    def settings(self) -> dict[str, float]:
        """Return the known values by the field names of ``Knowledge`` and ``Faults`` in ``simulator.cluster``."""
        measured = {name: value for name, value in self.to_json().items() if value is not None}
        if (lifetime_s := measured.pop("executor_lifetime_s", None)) is not None:
            measured["executor_lifetime_ms"] = 1000 * lifetime_s
        return measured

    def to_json(self) -> dict[str, float | None]:
        """Return all values by name, for a workload file."""
        return asdict(self)


#: Imperfections of which no value is known.
UNKNOWN = Imperfections()
