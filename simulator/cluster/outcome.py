"""Ends of task runs on a cluster with faults."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Outcome"]


class Outcome(IntEnum):
    """End of a task run (an attempt or a speculative copy of a task)."""

    FINISHED = 0
    FAILED = 1
    EXECUTOR_LOST = 2
    OUTPUT_LOST = 3
    JOB_FAILED = 4
    KILLED = 5
