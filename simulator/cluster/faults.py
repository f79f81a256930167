"""Configuration of a cluster's faults: lost executors, failing tasks, stragglers, speculation, changing capacity."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import IntEnum
from itertools import pairwise

from workloads.errors import (
    LONGEST_MS,
    ConfigError,
    check_instance,
    check_number,
    check_whole,
    number_in,
)

__all__ = [
    "MIN_LATE_MS", "MOST_FAILURES", "NO_FAULTS", "SPECULATION", "Faults", "Outcome", "parse_speculation",
    "parse_stragglers",
]  # fmt: skip

#: Number of failures of a task after which its job fails (Spark's ``spark.task.maxFailures``).
MOST_FAILURES = 4
#: A task that has run for less time is not copied (Spark's ``spark.speculation.minTaskRuntime``), ms.
MIN_LATE_MS = 100.0
#: Spark 3's ``spark.speculation.quantile`` and ``spark.speculation.multiplier``; Spark 4 has 0.9 and 3.
SPECULATION = (0.75, 1.5)


class Outcome(IntEnum):
    """End of a task run (an attempt or a speculative copy of a task)."""

    FINISHED = 0
    FAILED = 1
    EXECUTOR_LOST = 2
    OUTPUT_LOST = 3
    JOB_FAILED = 4
    KILLED = 5


def _speculation(given: object) -> tuple[float, float]:
    quantile: object
    multiplier: object
    try:
        quantile, multiplier = given  # type: ignore[misc]
    except (TypeError, ValueError):
        raise ConfigError(f"speculation must be a quantile and a multiplier, got {given!r:.60}") from None
    share = check_number(quantile, "the quantile of speculation", ConfigError)
    if not 0 < share <= 1:
        raise ConfigError(f"the quantile of speculation must be above 0 and at most 1, got {share:g}")
    return share, check_number(multiplier, "the multiplier of speculation", ConfigError, (1, 1000))


def _capacity(given: object) -> tuple[tuple[float, int], ...]:
    try:
        pairs = [(time_ms, number) for time_ms, number in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ConfigError(f"capacity must be pairs of a time and a number, got {given!r:.60}") from None
    schedule = tuple(
        (
            check_number(time_ms, "a time of the capacity", ConfigError),
            check_whole(number, "a number of executors", ConfigError, 0),
        )
        for time_ms, number in pairs
    )
    for time_ms, _ in schedule:
        if not 0 <= time_ms <= LONGEST_MS:
            raise ConfigError(f"times of the capacity must be from 0 to {LONGEST_MS:g} ms, got {time_ms:g}")
    for (one_ms, _), (other_ms, _) in pairwise(schedule):
        if one_ms >= other_ms:
            raise ConfigError(
                f"times of the capacity must be ascending, got {other_ms:g} ms after {one_ms:g} ms"
            )
    return schedule


@dataclass(frozen=True)
class Faults:
    """Faults of a cluster; none by default.

    Args:
        executor_lifetime_ms: mean time until an executor is lost (exponential), ms. It loses its running task, which
            is queued again, and its JVM.
        executor_return_ms: mean time until a lost executor is replaced (exponential), ms; infinite: never.
        task_failures: probability that a task run fails at its end. The task then runs again; at the fourth failure its
            job fails.
        stragglers: probability that a task run is slow, and the factor by which it takes longer.
        lost_output: a lost executor also loses the outputs of its finished tasks. Tasks of stages that have a child
            with tasks to start then run again, as in Spark without an external shuffle service.
        capacity: pairs (time in ms, number of executors), ascending in time: from the time on, only so many executors,
            the first ones, are in the cluster.
        speculation: (quantile, multiplier): when all tasks of a stage have started and this fraction has finished, a
            task that has run for multiplier times the median of the finished ones, and for ``MIN_LATE_MS``, is copied
            once to an executor that waits for its job. The first run to finish wins, the other is killed. As in Spark,
            except that the median is not updated. None: no speculative copies.

    Raises:
        ConfigError: a setting has a wrong type or is out of range.
    """

    executor_lifetime_ms: float = math.inf
    executor_return_ms: float = 60_000.0
    task_failures: float = 0.0
    stragglers: tuple[float, float] = (0.0, 1.0)
    lost_output: bool = False
    capacity: tuple[tuple[float, int], ...] = ()
    speculation: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("executor_lifetime_ms", "executor_return_ms"):
            mean_ms = check_number(getattr(self, name), name, ConfigError)
            if not mean_ms > 0:
                raise ConfigError(f"{name} must be positive, got {mean_ms:g}")
            object.__setattr__(self, name, mean_ms)
        try:
            share, factor = self.stragglers
        except (TypeError, ValueError):
            raise ConfigError(
                f"stragglers must be a probability and a factor, got {self.stragglers!r:.60}"
            ) from None
        factor = check_number(factor, "the factor of stragglers", ConfigError, (1, 1000))
        share = check_number(share, "the share of stragglers", ConfigError, (0, 1))
        object.__setattr__(self, "stragglers", (share, factor))
        failures = check_number(self.task_failures, "task_failures", ConfigError, (0, 1))
        object.__setattr__(self, "task_failures", failures)
        check_instance(self.lost_output, bool, "lost_output", ConfigError)
        object.__setattr__(self, "capacity", _capacity(self.capacity))
        if self.speculation is not None:
            object.__setattr__(self, "speculation", _speculation(self.speculation))

    @property
    def active(self) -> bool:
        """Whether any faults can happen."""
        return any(getattr(self, each.name) != each.default for each in fields(self) if each.name in _CAUSES)

    def to_dict(self) -> dict[str, object]:
        """Return the settings for JSON, with times in seconds; null for infinite times."""
        times = {"executor_lifetime": self.executor_lifetime_ms, "executor_return": self.executor_return_ms}
        return {
            **{f"{name}_s": ms / 1000 if math.isfinite(ms) else None for name, ms in times.items()},
            "task_failures": self.task_failures,
            "stragglers": list(self.stragglers),
            "lost_output": self.lost_output,
            "capacity": [[time_ms / 1000, number] for time_ms, number in self.capacity],
            "speculation": None if self.speculation is None else list(self.speculation),
        }

    def __str__(self) -> str:
        """Describe the faults in a few words; empty without faults."""
        words = []
        if math.isfinite(self.executor_lifetime_ms):
            back = f"back after {self.executor_return_ms / 1000:g} s"
            words.append(
                f"executors lost after {self.executor_lifetime_ms / 1000:g} s,"
                f" {back if math.isfinite(self.executor_return_ms) else 'never back'}"
            )
        if self.capacity:
            words.append(f"{len(self.capacity)} changes of capacity")
        if self.lost_output:
            words.append("outputs lost with executors")
        if self.task_failures:
            words.append(f"{self.task_failures:g} of runs fail")
        if self.stragglers[0] and self.stragglers[1] > 1:
            words.append("{:g} of runs take {:g} times as long".format(*self.stragglers))
        if self.speculation:
            words.append(
                "tasks copied when {:g} have finished, after {:g} times their median".format(
                    *self.speculation
                )
            )
        return ", ".join(words)


_CAUSES = ("executor_lifetime_ms", "task_failures", "stragglers", "capacity", "speculation")
#: A cluster without faults.
NO_FAULTS = Faults()


def parse_stragglers(text: str) -> tuple[float, float]:
    """Parse stragglers, a probability and a factor: ``P:FACTOR``.

    Raises:
        ConfigError: the text has another form, or a number is out of range.
    """
    return Faults(stragglers=_pair(text, "stragglers", "P:FACTOR, such as 0.05:4")).stragglers


def parse_speculation(text: str) -> tuple[float, float]:
    """Parse speculation, a quantile and a multiplier: ``QUANTILE:MULTIPLIER``.

    Raises:
        ConfigError: the text has another form, or a number is out of range.
    """
    return _speculation(_pair(text, "speculation", "QUANTILE:MULTIPLIER, such as 0.75:1.5"))


def _pair(text: str, name: str, expected: str) -> tuple[float, float]:
    numbers = [number_in(part) for part in text.split(":")]
    if len(numbers) != 2 or any(map(math.isnan, numbers)):
        raise ConfigError(f"{name} {text!r:.60}: expected {expected}")
    return numbers[0], numbers[1]
