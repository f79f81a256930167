from __future__ import annotations

import math

import pytest

from decima.evaluation.intervals import Interval
from decima.show.tables import interval_text


@pytest.mark.parametrize(
    ("interval", "form", "text"),
    [
        (Interval(12.34, 0.56), ".1f", "12.3 ± 0.6"),
        (Interval(-0.211, 0.04), "+.1%", "-21.1% ± 4.0%"),
        (Interval(3.0, math.nan), "+.1f", "+3.0"),
        (Interval(math.nan, math.nan), ".1f", "-"),
    ],
)
def test_a_mean_and_its_interval(interval: Interval, form: str, text: str) -> None:
    assert interval_text(interval, form) == text
