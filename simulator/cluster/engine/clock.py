"""SimPy's clock (simulated time and event queue), merged with the queue of running tasks.

Events that concern a scheduler (arrivals, moves, stages that become ready, complete or saturated) are processed in
SimPy's order of events. After any other end of a task, the executor takes the next task of its stage; compiled code
processes these ends in bulk, up to the next SimPy event. Both queues draw insertion numbers from one counter, so that
simultaneous events of both queues are processed in the order in which they were scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple
from weakref import ref

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT

#: An insertion number that is smaller than all others.
BEFORE_ALL = -1


class ClusterEvent(NamedTuple):
    """An event of the cluster. It is immutable, so that forks can share it."""

    action: Callable[[Any, Any], None]  # function that is called with the cluster and ``value``
    value: Any  # the jobs or executors concerned, with details


class _SharedCounter:
    """Insertion numbers of SimPy's events, drawn from the counter of compiled code."""

    def __init__(self, counter: memoryview[int]):
        self._counter = counter

    def __next__(self) -> int:
        number = self._counter[0]
        self._counter[0] = number + 1
        return number


class Clock(simpy.Environment):
    """SimPy environment of a cluster, in which you can run processes of your own.

    Args:
        cluster: the cluster, first argument of its events. The clock does not keep it alive: without a reference cycle,
            the memory of an episode is freed at its end.
        counter: int64 [1], the next insertion number.
        advance: function ``advance(limit_ms, limit_order)`` that runs tasks up to a point in the order of events, or
            until an event that concerns other executors. It returns the time in ms and the event: bits, executor,
            stage, number of executors (see ``commands.run_tasks``).
        happened: function that is called with the cluster and such an event, at the event's time.
    """

    def __init__(
        self,
        cluster: Any,
        counter: memoryview[int],
        advance: Callable[[float, int], tuple[float, int, int, int, int]],
        happened: Callable[[Any, int, int, int, int], None],
    ):
        super().__init__(initial_time=0.0)
        self._cluster = ref(cluster)
        self._eid = _SharedCounter(counter)  # type: ignore[assignment]
        self._advance = advance
        self._happened = happened

    def at(
        self, time_ms: float, action: Callable[[Any, Any], None], value: Any, order: int | None = None
    ) -> None:
        """Schedule a call of ``action`` with the cluster and ``value``, by default with a new insertion number."""
        number = next(self._eid) if order is None else order
        heappush(self._queue, (time_ms, NORMAL, number, ClusterEvent(action, value)))  # type: ignore[misc]

    def follow(self, clock: Clock) -> None:
        """Copy the time and the events of another cluster's clock, which must have no events of other processes."""
        self._now, self._queue = clock._now, clock._queue.copy()

    def cancel(self, action: Callable[[Any, Any], None]) -> int:
        """Remove the events that call ``action`` from the queue; return their number."""
        before = len(self._queue)
        self._queue = [entry for entry in self._queue if getattr(entry[3], "action", None) is not action]
        heapify(self._queue)
        return before - len(self._queue)

    @property
    def has_other_events(self) -> bool:
        """Whether the queue has events of processes other than the cluster."""
        return not all(isinstance(entry[3], ClusterEvent) for entry in self._queue)

    def step(self) -> None:
        """Process the next event.

        Raises:
            simpy.core.EmptySchedule: no event is left.
        """
        limit_ms, limit_order = math.inf, 0
        if self._queue:
            limit_ms, priority, limit_order, event = self._queue[0]
            if priority == URGENT:
                limit_order = BEFORE_ALL
        time_ms, happened, executor, stage, running = self._advance(limit_ms, limit_order)
        if happened:
            self._now = time_ms
            self._happened(self._cluster(), happened, executor, stage, running)
        elif not self._queue:
            raise EmptySchedule
        elif isinstance(event, ClusterEvent):
            heappop(self._queue)
            self._now = limit_ms
            event.action(self._cluster(), event.value)
        else:
            super().step()
