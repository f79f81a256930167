"""The order of message passing in a job's DAG."""

from __future__ import annotations

from functools import lru_cache
from graphlib import TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from workloads.job import JobProfile

__all__ = ["children_first", "message_order", "sorted_messages"]


@lru_cache(maxsize=10_000)
def message_order(profile: JobProfile) -> NDArray[np.int32]:
    """Return the messages of a job's DAG for message passing: each stage receives once, from all its children.

    Its step is its height minus 1; the height of a stage is the number of edges on its longest path to a leaf.

    Returns:
        int32 [number of edges, 3]: step, receiver (parent), sender (child).
    """
    height = np.zeros(profile.num_stages, dtype=np.int64)
    for stage in children_first(profile):
        height[stage] = max((height[child] + 1 for child in profile.children[stage]), default=0)
    messages = [
        (height[stage] - 1, stage, child)
        for stage in range(profile.num_stages)
        for child in profile.children[stage]
    ]
    return sorted_messages(messages)


def children_first(profile: JobProfile) -> list[int]:
    """Return the stages in an order with children before parents."""
    return list(TopologicalSorter(dict(enumerate(profile.children))).static_order())


def sorted_messages(messages: list[tuple[int, int, int]]) -> NDArray[np.int32]:
    """Return messages (step, receiver, sender) in ascending order, int32 [number of messages, 3]."""
    return np.array(sorted(messages), dtype=np.int32).reshape(-1, 3)
