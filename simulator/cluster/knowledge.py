"""How far the estimates that schedulers see are from the truth."""

from __future__ import annotations

from dataclasses import dataclass, fields

from simulator.errors import ConfigError
from workloads.errors import check_number

__all__ = ["EXACT", "Knowledge"]

#: Largest standard deviation of the logarithm of an error: a factor of 150.
LARGEST_ERROR = 5.0


@dataclass(frozen=True)
class Knowledge:
    """How far estimates are from the truth. Errors are factors; each is the standard deviation of the logarithm.

    Args:
        job_error: error of all task times of a job.
        stage_error: error of the task times of each stage.
        task_count_error: error of the number of tasks of each stage, which is known once the stage is ready.
        unknown: share of jobs without history. Their estimates are the workload's typical task time.

    Raises:
        ConfigError: an error that is negative or above 5, or a share that is not between 0 and 1.
    """

    job_error: float = 0.0
    stage_error: float = 0.0
    task_count_error: float = 0.0
    unknown: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value, most = getattr(self, each.name), 1.0 if each.name == "unknown" else LARGEST_ERROR
            value = check_number(value, each.name, ConfigError)
            object.__setattr__(self, each.name, value)
            if not 0 <= value <= most:
                raise ConfigError(f"{each.name} must be between 0 and {most:g}, got {value:g}")

    def __str__(self) -> str:
        """Name the errors in a few words; empty if schedulers know the truth."""
        shown = {"job_error": "jobs", "stage_error": "stages", "task_count_error": "numbers of tasks"}
        errors = [f"{getattr(self, name):g} ({what})" for name, what in shown.items() if getattr(self, name)]
        parts = [f"errors of estimates {', '.join(errors)}"] if errors else []
        return ", ".join(parts + ([f"{self.unknown:.0%} of jobs unknown"] if self.unknown else []))

    @property
    def is_exact(self) -> bool:
        """Whether schedulers know the truth."""
        return self == EXACT


EXACT = Knowledge()
