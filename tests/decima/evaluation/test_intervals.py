from __future__ import annotations

import math

import numpy as np
import pytest

from decima.evaluation.intervals import mean_interval


@pytest.mark.parametrize(
    ("degrees_of_freedom", "published"),
    # Two-sided 95 % quantiles as printed in every table of Student's t.
    [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (10, 2.228), (29, 2.045), (99, 1.984)],
)
def test_the_half_width_is_students(degrees_of_freedom: int, published: float) -> None:
    values = np.arange(degrees_of_freedom + 1.0)
    error = values.std(ddof=1) / math.sqrt(values.size)
    assert mean_interval(values).half_width / error == pytest.approx(published, abs=5e-4)


def test_the_interval_of_a_mean_worked_out_by_hand() -> None:
    # Mean 3, sample variance 2.5, standard error sqrt(2.5 / 5), t(4) = 2.776445.
    mean, half_width = mean_interval([1, 2, 3, 4, 5])
    assert mean == 3
    assert half_width == pytest.approx(2.776445 * math.sqrt(0.5), rel=1e-6)


def test_one_value_has_a_mean_but_no_interval_and_none_has_neither() -> None:
    for weights in (None, [2.0]):
        mean, half_width = mean_interval([7.0], weights)
        assert mean == 7
        assert math.isnan(half_width)
    assert all(math.isnan(value) for value in mean_interval([]))


def test_equal_weights_make_no_difference_and_others_count_for_their_share() -> None:
    assert mean_interval([1, 2, 6], [5, 5, 5]) == pytest.approx(mean_interval([1, 2, 6]))
    # Groups of 2 and 1, 4/3 and 2/3 of the mean size, whose means 1.25 and 1 deviate from 7/6; t(1) = 12.706205.
    mean, half_width = mean_interval([1.25, 1.0], [2, 1])
    assert mean == pytest.approx(7 / 6)
    error = math.sqrt(((4 / 3 * 1 / 12) ** 2 + (2 / 3 * 1 / 6) ** 2) / 2)
    assert half_width == pytest.approx(12.706205 * error, rel=1e-6)
