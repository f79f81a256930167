"""SimPy's clock (simulated time and event queue), merged with the compiled events of a cluster.

Compiled code processes the frequent events of a cluster: ends of tasks, and arrivals of executors and jobs
(``events.py``). SimPy's queue has rare ones, and events of your own processes; compiled code runs up to the next one of
these. Both draw insertion numbers from one counter, so that simultaneous events are processed in the order in which
they were scheduled.
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

from workloads.errors import SchedulingError

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
        order = self._counter[0]
        self._counter[0] = order + 1
        return order


class Clock(simpy.Environment):
    """SimPy environment of a cluster, in which you can run processes of your own.

    Args:
        cluster: the cluster, which has the time, and is the first argument of its events. The clock does not keep it
            alive: without a reference cycle, the memory of an episode is freed at its end.
        counter: int64 [1], the next insertion number.
        advance: function that is called with the cluster, and processes its events before ``limit``. It sets the time,
            and returns whether the cluster must be asked before SimPy's next event: a round opens, or nothing is
            pending any more.
        next_event: function that is called with the cluster, and returns time, ms, and insertion number of its next
            event; infinite time if there is none.
    """

    def __init__(
        self,
        cluster: Any,
        counter: memoryview[int],
        advance: Callable[[Any], bool],
        next_event: Callable[[Any], tuple[float, int]],
    ):
        self._cluster = ref(cluster)
        super().__init__(initial_time=cluster.now_ms)
        self._eid = _SharedCounter(counter)  # type: ignore[assignment]
        self._advance = advance
        self._next_event = next_event

    @property
    def _now(self) -> float:
        """The cluster's time, ms, an attribute of SimPy's environments."""
        cluster: Any = self._cluster()
        return cluster._now_ms  # type: ignore[no-any-return]

    @_now.setter
    def _now(self, time_ms: float) -> None:
        cluster: Any = self._cluster()
        cluster._now_ms = time_ms

    @property
    def limit(self) -> tuple[float, int]:
        """Time in ms and insertion number of SimPy's next event; infinite time if there is none."""
        if not self._queue:
            return math.inf, 0
        limit_ms, priority, order, _ = self._queue[0]
        return limit_ms, BEFORE_ALL if priority == URGENT else order

    def at(self, time_ms: float, action: Callable[[Any, Any], None], value: Any) -> None:
        """Schedule a call of ``action`` with the cluster and ``value``."""
        heappush(self._queue, (time_ms, NORMAL, next(self._eid), ClusterEvent(action, value)))  # type: ignore[misc]

    def peek(self) -> float:
        """Return the time of the next event, ms; infinite if there is none."""
        return min(super().peek(), self._next_event(self._cluster())[0])

    def follow(self, clock: Clock) -> None:
        """Copy the events of another cluster's clock, which must have no events of other processes."""
        self._queue = clock._queue.copy()

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
        """Process the next event of SimPy, or events of the cluster before it.

        Raises:
            simpy.core.EmptySchedule: no event is left.
            SchedulingError: an event of the cluster is next, while executors are offered.
        """
        cluster: Any = self._cluster()
        if cluster.offered:
            if self._next_event(cluster) < self.limit:
                raise SchedulingError(f"{cluster.offered} executors are offered: decide before time passes")
        elif self._advance(cluster):
            return
        if not self._queue:
            raise EmptySchedule
        time_ms, _, _, event = self._queue[0]
        if isinstance(event, ClusterEvent):
            heappop(self._queue)
            self._now = time_ms
            event.action(cluster, event.value)
        else:
            super().step()
