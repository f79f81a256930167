from __future__ import annotations

import math

import pytest

from decima.evaluation.intervals import mean_and_half_width, student_t_quantile


@pytest.mark.parametrize(
    ("degrees_of_freedom", "confidence", "published"),
    [
        # Two-sided quantiles as printed in every table of Student's t.
        (1, 0.95, 12.706),
        (2, 0.95, 4.303),
        (3, 0.95, 3.182),
        (9, 0.95, 2.262),
        (10, 0.95, 2.228),
        (29, 0.95, 2.045),
        (99, 0.95, 1.984),
        (1, 0.99, 63.657),
        (7, 0.99, 3.499),
        (12, 0.90, 1.782),
        (100_000, 0.95, 1.960),
    ],
)
def test_quantiles_are_those_of_the_printed_tables(
    degrees_of_freedom: int, confidence: float, published: float
) -> None:
    assert student_t_quantile(degrees_of_freedom, confidence) == pytest.approx(published, abs=5e-4)


def test_quantiles_that_have_a_closed_form_are_exact() -> None:
    assert student_t_quantile(1, 0.5) == pytest.approx(1.0, rel=1e-14)
    assert student_t_quantile(2, 0.5) == pytest.approx(math.sqrt(2 / 3), rel=1e-14)


@pytest.mark.parametrize(("degrees_of_freedom", "confidence"), [(0, 0.95), (5, 0.0), (5, 1.0)])
def test_a_quantile_that_does_not_exist_is_refused(degrees_of_freedom: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        student_t_quantile(degrees_of_freedom, confidence)


def test_the_interval_of_a_mean_worked_out_by_hand() -> None:
    # Mean 3, sample variance 2.5, standard error sqrt(2.5 / 5), t(4) = 2.776445.
    mean, half_width = mean_and_half_width([1, 2, 3, 4, 5])
    assert mean == 3
    assert half_width == pytest.approx(2.776445 * math.sqrt(0.5), rel=1e-6)


def test_one_value_has_a_mean_but_no_interval_and_none_has_neither() -> None:
    mean, half_width = mean_and_half_width([7.0])
    assert mean == 7
    assert math.isnan(half_width)
    assert all(math.isnan(value) for value in mean_and_half_width([]))
