"""Configuration of a cluster's faults: lost executors, failing tasks, stragglers, speculation, changing capacity."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from workloads.declaration import Flag, Number, Text, Whole, declared, described
from workloads.display import colon_separated
from workloads.errors import LONGEST_MS, ConfigError

__all__ = [
    "MIN_LATE_MS", "MOST_FAILURES", "NO_FAULTS", "SPECULATION", "Faults",
]  # fmt: skip

#: Number of failures of a task after which its job fails (Spark's ``spark.task.maxFailures``).
MOST_FAILURES = 4
#: A task that has run for less time is not copied (Spark's ``spark.speculation.minTaskRuntime``), ms.
MIN_LATE_MS = 100.0
#: Spark 3's ``spark.speculation.quantile`` and ``spark.speculation.multiplier``; Spark 4 has 0.9 and 3.
SPECULATION = (0.75, 1.5)


#: Module of the texts of settings.
_TEXTS = "simulator.cluster.texts"


_Share = Annotated[Number, Field(ge=0, le=1)]
_Factor = Annotated[Number, Field(ge=1, le=1000)]
_Time = Annotated[Number, Field(ge=0, le=LONGEST_MS)]


@declared()
class Faults:
    """Faults of a cluster; none by default.

    Raises:
        ConfigError: a setting has a wrong type or is out of range.
    """

    executor_lifetime_ms: Number = described(
        math.inf,
        "Mean time until an executor and its running task are lost; exponential.",
        gt=0,
        measured=True,
    )
    executor_return_ms: Number = described(
        60_000.0,
        "Mean time until a lost executor is replaced; exponential. never: no replacement.",
        gt=0,
        metavar="SECONDS|never",
    )
    task_failures: _Share = described(
        0.0,
        f"Probability that a run of a task fails. The task runs again; after {MOST_FAILURES} failures its job fails.",
        metavar="P",
        measured=True,
    )
    stragglers: Annotated[
        tuple[_Share, _Factor], Text("P:FACTOR", f"{_TEXTS}:parse_stragglers", colon_separated)
    ] = described((0.0, 1.0), "Probability that a run of a task takes FACTOR times as long.")
    lost_output: Flag = described(
        False,
        "Outputs of finished tasks are lost with their executor, and the tasks run again if a stage needs "
        "their outputs, as in Spark without an external shuffle service.",
    )
    capacity: Annotated[
        tuple[tuple[_Time, Annotated[Whole, Field(ge=0)]], ...],
        Text(
            "FILE",
            "simulator.cluster.capacity:read_capacity",
            lambda schedule: [[time_ms / 1000, count] for time_ms, count in schedule],
            f"{_TEXTS}:in_milliseconds",
        ),
    ] = described(
        (),
        "Number of executors over time: a file, each line of which has a time in seconds and a number; in Python also "
        "pairs of a time and a number, ascending. From a time on, only so many executors, the first ones, are in the "
        "cluster.",
    )
    speculation: Annotated[
        tuple[Annotated[Number, Field(gt=0, le=1)], _Factor] | None,
        Text("[QUANTILE:MULTIPLIER]", f"{_TEXTS}:parse_speculation", colon_separated),
    ] = described(
        None,
        "Copy slow tasks once to idle executors of their job, as in Spark: after QUANTILE of a stage's tasks have "
        f"finished, tasks that have run for MULTIPLIER times the median duration, and at least {MIN_LATE_MS:g} ms. "
        "The first run to finish wins. Without a value 0.75:1.5, as in Spark 3; Spark 4 has 0.9:3.",
        without_value="{:g}:{:g}".format(*SPECULATION),
    )

    def __post_init__(self) -> None:
        for (one_ms, _), (other_ms, _) in pairwise(self.capacity):
            if one_ms >= other_ms:
                raise ConfigError(
                    f"capacity: expected ascending times, got {other_ms:g} ms after {one_ms:g} ms"
                )

    @property
    def active(self) -> bool:
        """Whether any faults can happen."""
        return any(getattr(self, name) != getattr(NO_FAULTS, name) for name in _CAUSES)

    def __str__(self) -> str:
        """Describe the faults in a few words; empty without faults."""
        from simulator.cluster.texts import faults_text

        return faults_text(self)


_CAUSES = ("executor_lifetime_ms", "task_failures", "stragglers", "capacity", "speculation")
#: A cluster without faults.
NO_FAULTS = Faults()
