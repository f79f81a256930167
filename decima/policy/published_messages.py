"""The order of message passing in the published code of Decima."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from decima.policy.messages import children_first, sorted_messages
from workloads.job import JobProfile

__all__ = ["PUBLISHED_STEPS", "published_message_order"]

#: Number of message passing steps in the published code.
PUBLISHED_STEPS = 8


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
    upwards = children_first(profile)
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
    return sorted_messages(messages)
