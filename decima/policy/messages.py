"""The order of message passing in a job's DAG."""

from __future__ import annotations

from functools import lru_cache
from graphlib import TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from workloads.job import JobProfile

__all__ = ["PUBLISHED_STEPS", "message_order", "published_message_order"]

#: Number of message passing steps in the published code.
PUBLISHED_STEPS = 8


@lru_cache(maxsize=10_000)
def message_order(profile: JobProfile) -> NDArray[np.int32]:
    """Return the messages of a job's DAG for message passing: each stage receives once, from all its children.

    Its step is its height minus 1; the height of a stage is the number of edges on its longest path to a leaf.

    Returns:
        int32 [number of edges, 3]: step, receiver (parent), sender (child).
    """
    height = np.zeros(profile.num_stages, dtype=np.int64)
    for stage in _children_first(profile):
        height[stage] = max((height[child] + 1 for child in profile.children[stage]), default=0)
    messages = [
        (height[stage] - 1, stage, child)
        for stage in range(profile.num_stages)
        for child in profile.children[stage]
    ]
    return _sorted(messages)


@lru_cache(maxsize=10_000)
def published_message_order(profile: JobProfile) -> NDArray[np.int32]:
    """Return the messages of a job's DAG in the order of the published code, which has at most 8 steps.

    In a DAG with paths of at most 8 edges, the result equals that of ``message_order``. In a deeper DAG the first
    senders are the stages that 8 moves along child edges reach, where leaves stay in place. In a step, a stage whose
    children are all senders receives if its level (1 + the highest child level) rises. The next senders are these
    stages, and old senders with a parent without level. Levels may include rises of the same step: here children go
    first; the published code orders stages by memory address, so that its order in deep DAGs is not reproducible.

    Returns:
        int32 [number of messages, 3]: step, receiver, sender.
    """
    children, parents = profile.children, profile.parents
    upwards = _children_first(profile)
    senders = set(upwards)
    for _ in range(PUBLISHED_STEPS):
        senders = {child for stage in senders for child in (children[stage] or (stage,))}
    level = dict.fromkeys(senders, 0)
    messages = []
    for step in range(PUBLISHED_STEPS):
        risen = set()
        for stage in upwards:
            if children[stage] and all(child in senders for child in children[stage]):
                new = 1 + max(level[child] for child in children[stage])
                if new > level.get(stage, 0):
                    level[stage] = new
                    risen.add(stage)
        messages += [(step, stage, child) for stage in risen for child in children[stage]]
        waiting = {sender for sender in senders if any(parent not in level for parent in parents[sender])}
        senders = risen | waiting
    return _sorted(messages)


def _children_first(profile: JobProfile) -> list[int]:
    """Return the stages in an order with children before parents."""
    return list(TopologicalSorter(dict(enumerate(profile.children))).static_order())


def _sorted(messages: list[tuple[int, int, int]]) -> NDArray[np.int32]:
    return np.array(sorted(messages), dtype=np.int32).reshape(-1, 3)
