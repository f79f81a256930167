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

import simpy
from simpy.core import EmptySchedule
from simpy.events import URGENT

__all__ = ["Clock"]

#: Order that no event has: everything at that time comes first.
LAST = 2**62


class _SharedCounter:
    """Insertion numbers for SimPy's events, from the counter that compiled code counts on."""

    def __init__(self, counter: memoryview[int]):
        self._counter = counter

    def __next__(self) -> int:
        number = self._counter[0]
        self._counter[0] = number + 1
        return number


class Clock(simpy.Environment):
    """A SimPy environment in which processes of your own run beside the cluster.

    Args:
        counter: int64 [1], the next insertion number.
        advance: ``advance(limit_ms, limit_order)`` runs all tasks up to that point of the order and returns
            ``(time_ms, executor, opened)`` of the first executor that found its stage dry, or a negative executor.
        ran_dry: called with ``(executor, opened)`` at that time.
    """

    def __init__(
        self,
        counter: memoryview[int],
        advance: Callable[[float, int], tuple[float, int, bool]],
        ran_dry: Callable[[int, bool], None],
    ):
        super().__init__(initial_time=0.0)  # type: ignore[arg-type]
        self._eid = _SharedCounter(counter)  # type: ignore[assignment]
        self._advance = advance
        self._ran_dry = ran_dry

    def step(self) -> None:
        """Let the next thing happen.

        Raises:
            simpy.core.EmptySchedule: nothing is going to happen any more.
        """
        if self._queue:
            limit_ms, priority, order, _ = self._queue[0]
            time_ms, executor, opened = self._advance(limit_ms, -1 if priority == URGENT else order)
        else:
            time_ms, executor, opened = self._advance(math.inf, LAST)
            if executor < 0:
                raise EmptySchedule
        if executor < 0:
            super().step()
        else:
            self._now = time_ms
            self._ran_dry(executor, opened)
