"""Signal of electricity over time: its carbon intensity or price."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.errors import LONGEST_MS, ConfigError


@dataclass(frozen=True, repr=False)
class Signal:
    """Carbon intensity or price of electricity over time: constant in intervals, and repeated periodically.

    Args:
        name: name of the signal, or its file.
        begin_ms: beginning of each interval, ascending from 0, whole ms.
        value: value in each interval, gCO2/kWh or a price per kWh; finite and not negative.
        period_ms: end of the last interval, where the signal starts again, whole ms.
        offset_ms: position in the signal at time 0, whole ms.

    Raises:
        ConfigError: intervals or values are malformed.
    """

    name: str
    begin_ms: tuple[float, ...]
    value: tuple[float, ...]
    period_ms: float
    offset_ms: float = 0.0

    def __post_init__(self) -> None:
        if not self.value or len(self.begin_ms) != len(self.value) or self.begin_ms[0] != 0:
            raise ConfigError(f"{self.name}: expected a value for each interval, the first one from 0 on")
        if not all(np.diff([*self.begin_ms, self.period_ms]) > 0) or self.period_ms > LONGEST_MS:
            raise ConfigError(f"{self.name}: times must be ascending, and at most {LONGEST_MS / 1000:g} s")
        if any(
            not float(time_ms).is_integer() for time_ms in (*self.begin_ms, self.period_ms, self.offset_ms)
        ):
            raise ConfigError(f"{self.name}: times must be whole ms")
        if not all(0 <= value < math.inf for value in self.value):
            raise ConfigError(f"{self.name}: values must be finite and not negative")

    def __repr__(self) -> str:
        return f"Signal({self.name!r}, {len(self.value)} intervals, {self.period_ms / 1000:g} s)"

    def shifted(self, offset_ms: float) -> Signal:
        """Return the signal with another position at time 0, ms, rounded to whole ms."""
        return replace(self, offset_ms=float(round(offset_ms)))

    def at(self, time_ms: float) -> float:
        """Return the value at ``time_ms``."""
        return self.value[self._place(time_ms)[0]]

    def change_ms(self, number: int) -> float:
        """Return the time of change ``number`` after time 0, ms; changes are numbered from 0."""
        first, place_ms = self._place(0.0)
        periods, index = divmod(first + 1 + number, len(self.value))
        return periods * self.period_ms + self.begin_ms[index] - place_ms

    def next_change_ms(self, time_ms: float) -> float:
        """Return the end of the interval that contains ``time_ms``, ms."""
        index, place_ms = self._place(time_ms)
        return time_ms + (float(self._ends[index]) - place_ms)

    def ahead(self, time_ms: float, window_ms: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the intervals in a window that begins at ``time_ms``: their beginnings, ms, and values, float64 [n].

        The first interval is given the beginning ``time_ms``.
        """
        (first, place_ms), count = self._place(time_ms), len(self.value)
        most = count * (1 + math.ceil(window_ms / self.period_ms))
        periods, indices = np.divmod(np.arange(first, first + most + 1), count)
        begins = periods * self.period_ms + self._begins[indices] - place_ms
        inside = begins < window_ms
        begins[0], inside[0] = 0.0, True
        return time_ms + begins[inside], self._values[indices[inside]]

    def bounds(self, time_ms: float, window_ms: float) -> tuple[float, float]:
        """Return the smallest and the largest value in a window that begins at ``time_ms``."""
        values = self.ahead(time_ms, window_ms)[1]
        return float(values.min()), float(values.max())

    def integral(self, begin_ms: ArrayLike, end_ms: ArrayLike) -> NDArray[np.float64]:
        """Return the integral of the value from ``begin_ms`` to ``end_ms``, element by element, in value times ms."""
        total: NDArray[np.float64] = self._from_start(end_ms) - self._from_start(begin_ms)
        return total

    def _place(self, time_ms: float) -> tuple[int, float]:
        """Return the number of the interval that contains ``time_ms``, and the time since the signal's start, ms."""
        place_ms = (time_ms + self.offset_ms) % self.period_ms
        return int(np.searchsorted(self._begins, place_ms, "right")) - 1, place_ms

    def _from_start(self, time_ms: ArrayLike) -> NDArray[np.float64]:
        position = np.asarray(time_ms, dtype=np.float64) + self.offset_ms
        periods, place_ms = np.divmod(position, self.period_ms)
        index = np.searchsorted(self._begins, place_ms, "right") - 1
        within = self._totals[index] + self._values[index] * (place_ms - self._begins[index])
        return np.asarray(periods * self._totals[-1] + within)

    @cached_property
    def _begins(self) -> NDArray[np.float64]:
        return np.array(self.begin_ms)

    @cached_property
    def _ends(self) -> NDArray[np.float64]:
        return np.array([*self.begin_ms[1:], self.period_ms])

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        return np.array(self.value)

    @cached_property
    def _totals(self) -> NDArray[np.float64]:
        """Integral of the value up to the beginning of each interval, and over a period, float64 [intervals + 1]."""
        return np.concatenate([[0.0], np.cumsum(self._values * (self._ends - self._begins))])
