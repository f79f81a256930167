"""SimPy's clock, merged with the queue of running tasks.

Arrivals, executor moves and stages that open, complete or have no unclaimed task left are what a scheduler can
influence. They happen in SimPy's order of events. After any other end of a task the executor takes the next task of its
stage; compiled code advances these in bulk up to the next SimPy event. Both queues draw insertion numbers from one
counter, so that simultaneous events happen in the order in which they were caused, whichever queue they wait in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT

__all__ = ["Clock", "ClusterEvent"]

#: Comes before every insertion number.
BEFORE_ALL = -1


class ClusterEvent(NamedTuple):
    """An event of the cluster itself. It does not change when it happens, so that forks share it.

    Attributes:
        action: called with the cluster and ``value``.
        value: what happens to which job or executors.
    """

    action: Callable[[Any, Any], None]
    value: Any


class _SharedCounter:
    """Insertion numbers for SimPy's events, from the counter that compiled code counts on."""

    def __init__(self, counter: memoryview[int]):
        self._counter = counter

    def __next__(self) -> int:
        number = self._counter[0]
        self._counter[0] = number + 1
        return number


class Clock(simpy.Environment):
    """A SimPy environment in which processes of your own may run beside the cluster.

    Args:
        cluster: what the events of the cluster happen to.
        counter: int64 [1], the next insertion number.
        advance: ``advance(limit_ms, limit_order)`` runs all tasks up to that point of the order, or until something
            happened, and returns ``(time_ms, what happened, ...)``; 0 for "nothing", up to that time.
        happened: called with the cluster and what follows the time, at that time.
    """

    def __init__(
        self,
        cluster: Any,
        counter: memoryview[int],
        advance: Callable[[float, int], tuple[float, int, int, int, int]],
        happened: Callable[[Any, int, int, int, int], None],
    ):
        super().__init__(initial_time=0.0)
        self._cluster = cluster
        self._eid = _SharedCounter(counter)  # type: ignore[assignment]
        self._advance = advance
        self._happened = happened

    def at(
        self, time_ms: float, action: Callable[[Any, Any], None], value: Any, order: int | None = None
    ) -> None:
        """Call ``action`` with the cluster and a value, in the order of an insertion number: a new one by default."""
        number = next(self._eid) if order is None else order
        heappush(self._queue, (time_ms, NORMAL, number, ClusterEvent(action, value)))  # type: ignore[misc]

    def follow(self, clock: Clock) -> None:
        """Take over time and events of another cluster's clock, on which only the cluster's own events wait."""
        self._now, self._queue = clock._now, clock._queue.copy()

    def cancel(self, action: Callable[[Any, Any], None]) -> int:
        """Take the events that call ``action`` out of the queue; returns their number."""
        before = len(self._queue)
        self._queue = [entry for entry in self._queue if getattr(entry[3], "action", None) is not action]
        heapify(self._queue)
        return before - len(self._queue)

    @property
    def has_company(self) -> bool:
        """Whether events wait that are not the cluster's own, such as those of a process of the user's."""
        return not all(isinstance(entry[3], ClusterEvent) for entry in self._queue)

    def step(self) -> None:
        """Let the next thing happen.

        Raises:
            simpy.core.EmptySchedule: nothing is going to happen any more.
        """
        limit_ms, limit_order = math.inf, 0
        if self._queue:
            limit_ms, priority, limit_order, event = self._queue[0]
            if priority == URGENT:
                limit_order = BEFORE_ALL
        time_ms, happened, executor, stage, running = self._advance(limit_ms, limit_order)
        if happened:
            self._now = time_ms
            self._happened(self._cluster, happened, executor, stage, running)
        elif not self._queue:
            raise EmptySchedule
        elif isinstance(event, ClusterEvent):
            heappop(self._queue)
            self._now = limit_ms
            event.action(self._cluster, event.value)
        else:
            super().step()
