"""SimPy's clock, merged with the queue of running tasks.

Whatever a scheduler can influence (arrivals, executor moves, a stage running dry, opening or completing) happens
in SimPy's order of events. Task ends in between, after which an executor merely takes the next task of its stage,
concern nobody else; compiled code advances them in bulk up to the next SimPy event. Both queues draw
insertion numbers from one counter, so that simultaneous events happen in the order in which they were caused,
whichever queue they wait in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT, Event

__all__ = ["Clock"]

#: Comes before every insertion number.
BEFORE_ALL = -1


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
        counter: int64 [1], the next insertion number.
        advance: ``advance(limit_ms, limit_order)`` runs all tasks up to that point of the order, or until something
            happened, and returns ``(time_ms, what happened, ...)``; 0 for "nothing", up to that time.
        happened: called with what follows the time, at that time.
    """

    def __init__(
        self,
        counter: memoryview[int],
        advance: Callable[[float, int], tuple[float, int, int, int, int]],
        happened: Callable[[int, int, int, int], None],
    ):
        super().__init__(initial_time=0.0)
        self._eid = _SharedCounter(counter)  # type: ignore[assignment]
        self._advance = advance
        self._happened = happened

    def at(self, time_ms: float, order: int, callback: Callable[[Event], None], value: Any) -> None:
        """Call ``callback`` with an event of that value, in the order of an insertion number drawn before."""
        event = Event(self)
        event._ok, event._value = True, value
        event.callbacks = [callback]
        heappush(self._queue, (time_ms, NORMAL, order, event))

    def step(self) -> None:
        """Let the next thing happen.

        Raises:
            simpy.core.EmptySchedule: nothing is going to happen any more.
        """
        limit_ms, limit_order = math.inf, 0
        if self._queue:
            limit_ms, priority, limit_order, _ = self._queue[0]
            if priority == URGENT:
                limit_order = BEFORE_ALL
        time_ms, happened, executor, stage, running = self._advance(limit_ms, limit_order)
        if happened:
            self._now = time_ms
            self._happened(happened, executor, stage, running)
        elif self._queue:
            super().step()
        else:
            raise EmptySchedule
