"""Parse text forms of a cluster's settings, as on the command line, and describe its settings in a few words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from simulator.cluster.config import ExecutorClass
from workloads.errors import ConfigError, check_instance
from workloads.texts import number_in

if TYPE_CHECKING:
    from simulator.cluster.config import Knowledge
    from simulator.cluster.faults import Faults

__all__ = [
    "faults_text", "in_milliseconds", "knowledge_text", "parse_classes", "parse_speculation", "parse_stragglers",
]  # fmt: skip


def parse_classes(text: str) -> tuple[ExecutorClass, ...]:
    """Parse executor classes, ``COUNTxMEMORY`` or ``COUNTxCPU:MEMORY`` separated by commas; smallest first.

    Raises:
        ConfigError: the text has another form, or a number is out of range.
    """
    classes = []
    check_instance(text, str, "executor classes", ConfigError)
    for part in text.split(","):
        try:
            if not part.isascii() or "_" in part:
                raise ValueError(part)  # Python takes underscores, and digits of all scripts
            count, sizes = part.strip().split("x")
            cpu, memory = (float(size) for size in (sizes if ":" in sizes else f"1:{sizes}").split(":"))
            classes.append(ExecutorClass(int(count), cpu, memory))
        except ValueError as error:
            reason = f": {error}" if isinstance(error, ConfigError) else ""
            raise ConfigError(
                f"expected COUNTxMEMORY or COUNTxCPU:MEMORY, such as 25x0.5,25x2:1, got {text!r:.60}{reason}"
            ) from None
    return tuple(sorted(classes, key=lambda size: (size.memory, size.cpu)))


def knowledge_text(knowledge: Knowledge) -> str:
    """Describe the errors in a few words; empty if schedulers know the exact values."""
    shown = {"job_error": "jobs", "stage_error": "stages", "task_count_error": "numbers of tasks"}
    errors = [
        f"{getattr(knowledge, name):g} ({what})" for name, what in shown.items() if getattr(knowledge, name)
    ]
    parts = [f"errors of estimates {', '.join(errors)}"] if errors else []
    unknown = f"{knowledge.unknown:.0%} of jobs unknown, their task times by estimator {knowledge.estimator}"
    return ", ".join(parts + ([unknown] if knowledge.unknown else []))


def parse_stragglers(text: str) -> tuple[float, float]:
    """Parse stragglers, a probability and a factor: ``P:FACTOR``.

    Raises:
        ConfigError: the text has another form.
    """
    return _pair(text, "P:FACTOR, such as 0.05:4")


def parse_speculation(text: str) -> tuple[float, float]:
    """Parse speculation, a quantile and a multiplier: ``QUANTILE:MULTIPLIER``.

    Raises:
        ConfigError: the text has another form.
    """
    return _pair(text, "QUANTILE:MULTIPLIER, such as 0.75:1.5")


def _pair(text: str, expected: str) -> tuple[float, float]:
    numbers = [number_in(part) for part in text.split(":")]
    if len(numbers) != 2 or any(map(math.isnan, numbers)):
        raise ConfigError(f"expected {expected}, got {text!r:.60}")
    return numbers[0], numbers[1]


def in_milliseconds(schedule: Any) -> Any:
    """Return a schedule of the capacity with times in ms, given with times in seconds; other values stay."""
    try:
        return tuple((time_s * 1000, count) for time_s, count in schedule)
    except (TypeError, ValueError):
        return schedule


def faults_text(faults: Faults) -> str:
    """Describe the faults in a few words; empty without faults."""
    words = []
    if math.isfinite(faults.executor_lifetime_ms):
        back = f"back after {faults.executor_return_ms / 1000:g} s"
        words.append(
            f"executors lost after {faults.executor_lifetime_ms / 1000:g} s,"
            f" {back if math.isfinite(faults.executor_return_ms) else 'never back'}"
        )
    if faults.capacity:
        words.append(f"{len(faults.capacity)} changes of capacity")
    if faults.lost_output:
        words.append("outputs lost with executors")
    if faults.task_failures:
        words.append(f"{faults.task_failures:g} of runs fail")
    if faults.stragglers[0] and faults.stragglers[1] > 1:
        words.append("{:g} of runs take {:g} times as long".format(*faults.stragglers))
    if faults.speculation:
        words.append(
            "tasks copied when {:g} have finished, after {:g} times their median".format(*faults.speculation)
        )
    return ", ".join(words)
