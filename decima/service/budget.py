"""Time budget of expensive questions, so that a driver with thousands of jobs does not delay the other drivers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BURST_S", "CHEAP_S", "QUIET_S", "SHARE", "TimeBudget"]

#: Expected CPU time up to which a question is always decided, s.
CHEAP_S = 0.005
#: Share of the time that all expensive questions together may take while several drivers ask.
SHARE = 0.2
#: Maximum unused time that expensive questions keep for later, s.
BURST_S = 0.2
#: A driver counts as asking for this long after its last question, s.
QUIET_S = 10.0
#: A driver whose question was not decided keeps its turn for this long, s.
TURN_S = 2.0
#: CPU time for each byte of a driver's first question, s.
FIRST_S_PER_BYTE = 2.5e-7


@dataclass(eq=False)
class _Asking:
    """A driver that asks. Times are seconds of the clock of ``TimeBudget``.

    Attributes:
        s_per_byte: CPU time of the last two decided questions, divided by the length of their lines.
        asked_s: time of the last question.
        decided_s: time of the last decided question that was expensive.
        denied_s: time of the last question that was not decided.
    """

    s_per_byte: tuple[float, float] = (FIRST_S_PER_BYTE, FIRST_S_PER_BYTE)
    asked_s: float = -math.inf
    decided_s: float = -math.inf
    denied_s: float = -math.inf


class TimeBudget:
    """Decides which expensive questions are decided.

    Questions with an expected CPU time above ``CHEAP_S`` are expensive: CPU time, so that the waits of a busy machine
    make no question expensive. While several drivers ask, all expensive questions together may occupy the service for a
    ``SHARE`` of the time, and drivers with expensive questions take turns. A single driver has no limit, and cheap
    questions have none.

    Args:
        clock: returns monotonic time, s.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._drivers: dict[int, _Asking] = {}
        self._left_s, self._updated_s = BURST_S, -math.inf

    def check(self, driver: int, num_bytes: int) -> str:
        """Return the reason, one line, why a question is not decided; empty if it is decided.

        Args:
            driver: number of the connection.
            num_bytes: length of the question's line.
        """
        now_s = self._clock()
        self._left_s = min(BURST_S, self._left_s + SHARE * (now_s - self._updated_s))
        self._updated_s = now_s
        asking = self._drivers.setdefault(driver, _Asking())
        asking.asked_s = now_s
        expected_s = min(asking.s_per_byte) * num_bytes  # one of two may have been delayed by a compilation
        if expected_s <= CHEAP_S:
            return ""
        others = [other for other in self._drivers.values() if other is not asking]
        is_waited_for = any(
            other.decided_s < asking.decided_s and now_s - other.denied_s <= TURN_S for other in others
        )
        if any(now_s - other.asked_s <= QUIET_S for other in others) and (self._left_s <= 0 or is_waited_for):
            asking.denied_s = now_s
            return (
                f"a question of about {1000 * expected_s:.0f} ms is more than the driver's share of the time"
            )
        asking.decided_s, asking.denied_s = now_s, -math.inf
        return ""

    def spend(self, driver: int, num_bytes: int, cpu_s: float, wall_s: float) -> None:
        """Record the CPU time and the duration of a decided question, s."""
        asking = self._drivers[driver]
        asking.s_per_byte = asking.s_per_byte[1], cpu_s / max(num_bytes, 1)
        if cpu_s > CHEAP_S:
            self._left_s -= wall_s

    def leave(self, driver: int) -> None:
        """Forget a driver that has disconnected."""
        self._drivers.pop(driver, None)
