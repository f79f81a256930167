"""Carbon intensity or price of electricity: read files, and generate synthetic signals of three kinds of grids."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from workloads.arrivals import RandomStream, random_stream
from workloads.carbon import Signal
from workloads.display import count_text
from workloads.errors import LONGEST_MS
from workloads.job import WorkloadError
from workloads.reading import opened
from workloads.texts import number_in

#: Names of the synthetic signals; mean, daily amplitude, and amplitude of other changes of the intensity, gCO2/kWh.
SYNTHETIC = {
    "synthetic-solar": (270.0, 110.0, 25.0),
    "synthetic-wind": (440.0, 40.0, 120.0),
    "synthetic-coal": (710.0, 20.0, 25.0),
}
DAYS, HOUR_MS = 30, 3_600_000.0
#: Columns of an export of Electricity Maps, in lower case: time, and endings of the two intensities, best first.
_TIME, _DIRECT, _LIFE_CYCLE = "datetime (utc)", "(direct)", ("(life cycle)", "(lca)")
#: Texts of numbers that are not finite, which are no names of columns.
_NO_NAMES = ("nan", "inf", "infinity")
#: Maximum number of intervals of a signal in a file, nine years of five minutes.
MOST_INTERVALS = 1_000_000
_EXPECTED = (
    "expected lines of a time in seconds and a value, such as 3600,412, or an export of Electricity Maps"
)


def open_signal(text: str) -> Signal:
    """Open a carbon or price signal by ``NAME[:SCALE]``.

    Args:
        text: a name in ``SYNTHETIC``, or a file for ``read_signal``. Times are divided by the scale: with 60, an hour
            of the signal becomes a minute, as in PCAPS (arXiv 2502.09717).

    Raises:
        WorkloadError: there is no such file, or it is malformed.
    """
    name, scale = text, 1.0
    if ":" in text and not Path(text).is_file():
        name, _, number = text.rpartition(":")
        if not 0 < (scale := number_in(number)) < math.inf:
            raise WorkloadError(f"{text}: expected FILE or FILE:SCALE with a number above 0, such as FILE:60")
    return synthetic_signal(name, scale) if name in SYNTHETIC else read_signal(name, scale)


def synthetic_signal(name: str, scale: float = 1.0) -> Signal:
    """Generate a synthetic signal of 30 days with hourly values: an imaginary grid, not measured anywhere.

    ``synthetic-solar`` is low at noon, ``synthetic-wind`` changes over days, ``synthetic-coal`` hardly changes. Sun and
    evening are curves over the hours of the day; the rest is an autoregressive process.

    Args:
        name: a name in ``SYNTHETIC``.
        scale: divisor of times.
    """
    mean, daily, noise = SYNTHETIC[name]
    random = random_stream(list(SYNTHETIC).index(name), RandomStream.SIGNAL)
    hours = np.arange(24 * DAYS)
    sun = np.clip(np.sin((hours % 24 - 6) * np.pi / 12), 0, None)
    evening = np.exp(-(((hours % 24 - 19) / 3.0) ** 2))
    curve = 0.5 * evening - 1.6 * sun
    weather, steps = np.zeros(hours.size), random.standard_normal(hours.size)
    for hour in range(1, hours.size):
        weather[hour] = 0.95 * weather[hour - 1] + math.sqrt(1 - 0.95**2) * steps[hour]
    values = np.maximum(mean + daily * (curve - curve.mean()) + noise * weather, 0.05 * mean)
    return _build_signal(name, (hours * HOUR_MS).tolist(), values.round().tolist(), HOUR_MS, scale)


def read_signal(path: str | Path, scale: float = 1.0) -> Signal:
    """Read a signal from a CSV file: lines of a time in seconds and a value, or an export of Electricity Maps.

    The export has the columns ``Datetime (UTC)`` and ``Carbon intensity gCO2eq/kWh (direct)``, or the life cycle
    intensity if there is no direct one; its times must be equally spaced. The last interval is as long as the one
    before it. Empty lines and lines that begin with ``#`` are skipped, and so are two names of columns in the first
    line.

    Args:
        scale: divisor of times.

    Raises:
        WorkloadError: the file cannot be read or is malformed. The message names file, line and reason.
    """
    path = Path(path)
    times_ms: list[float] = []
    values: list[float] = []
    columns, is_export, is_first = (0, 1), False, True
    for line, row in _rows(path):
        where = f"{path}, line {line}"
        if is_first:
            is_first, is_export = False, row[0].lower() == _TIME
            if is_export:
                columns = _columns(where, row)
            if is_export or _are_headings(row):
                continue
        time_ms, value = _parse_line(where, row, columns, is_export)
        if times_ms and time_ms <= times_ms[-1]:
            raise WorkloadError(f"{where}: the time is not after the previous one, got {row[0]!r:.60}")
        if is_export and len(times_ms) > 1 and time_ms - times_ms[-1] != times_ms[1] - times_ms[0]:
            step_s = (times_ms[1] - times_ms[0]) / 1000
            raise WorkloadError(f"{where}: a gap before {row[0]:.60}, expected a line every {step_s:g} s")
        if len(values) == MOST_INTERVALS:
            raise WorkloadError(f"{where}: expected at most {MOST_INTERVALS:,} lines of values")
        times_ms.append(time_ms)
        values.append(value)
    if len(values) < 2:
        raise WorkloadError(
            f"{path}: {count_text(len(values), 'line')} of values, at least 2 expected; {_EXPECTED}"
        )
    begins = [time_ms - times_ms[0] for time_ms in times_ms]
    return _build_signal(str(path), begins, values, begins[-1] - begins[-2], scale)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each line that is neither empty nor a comment."""
    with opened(path, "a CSV file of times and values") as file:
        # A line ends with LF, CR LF or CR.
        lines = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=None))
        try:
            for row in lines:
                cells = [cell.strip() for cell in row]
                if any(cells) and not cells[0].startswith("#"):
                    yield lines.line_num, cells
        except UnicodeDecodeError:
            raise WorkloadError(f"{path}: not a text file, {_EXPECTED}") from None
        except csv.Error as error:
            raise WorkloadError(f"{path}, line {lines.line_num}: {error}, {_EXPECTED}") from None


def _are_headings(row: list[str]) -> bool:
    """Return whether a first line has the names of two columns; a line with a damaged number is no headings."""
    return len(row) == 2 and all(cell[:1].isalpha() and cell.lower() not in _NO_NAMES for cell in row)


def _columns(where: str, headings: list[str]) -> tuple[int, int]:
    """Return the indices of the columns of time and intensity in an export of Electricity Maps."""
    for endings in ((_DIRECT,), _LIFE_CYCLE):
        for index, heading in enumerate(headings):
            if heading.lower().startswith("carbon intensity") and heading.lower().endswith(endings):
                return 0, index
    raise WorkloadError(f"{where}: no column 'Carbon intensity gCO2eq/kWh (direct)' beside 'Datetime (UTC)'")


def _parse_line(where: str, row: list[str], columns: tuple[int, int], is_export: bool) -> tuple[float, float]:
    """Parse a line: time, ms, and value."""
    time, value = (row[column] if column < len(row) else "" for column in columns)
    if is_export:
        try:
            time_ms = 1000 * datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp()
        except ValueError:
            expected = "expected a time such as 2024-01-01 00:00"
            raise WorkloadError(f"{where}: {expected}, got {time!r:.60}") from None
    else:
        time_ms = 1000 * number_in(time)
        if not abs(time_ms) <= LONGEST_MS or len(row) != 2:
            raise WorkloadError(f"{where}: {_EXPECTED}, got {','.join(row)[:60]!r}")
    if not 0 <= (number := number_in(value)) < math.inf:
        expected = "the value must be a finite number and not negative"
        raise WorkloadError(f"{where}: {expected}, got {value!r:.60}")
    return time_ms, number


def _build_signal(
    name: str, begins_ms: Sequence[float], values: Sequence[float], last_ms: float, scale: float
) -> Signal:
    """Return a signal whose times are divided by the scale, and rounded to whole ms."""
    if not (begins_ms[-1] + last_ms) / scale <= LONGEST_MS:
        raise WorkloadError(f"{name}: with the scale {scale:g} the signal lasts for more than 300 years")
    begins = tuple(float(round(time_ms / scale)) for time_ms in begins_ms)
    period_ms = float(round((begins_ms[-1] + last_ms) / scale))
    if any(one >= other for one, other in zip(begins, (*begins[1:], period_ms), strict=True)):
        raise WorkloadError(f"{name}: with the scale {scale:g} intervals are shorter than 1 ms")
    return Signal(name if scale == 1 else f"{name}:{scale:g}", begins, tuple(map(float, values)), period_ms)
