"""Arrival patterns: bursts, a change of the rate, days and nights."""

import numpy as np
import pytest

from tests.cases import cases
from tests.simulator.cluster.build import chain, stage
from workloads import JobSequence, WorkloadError, poisson_arrivals
from workloads.transform import STEADY, ArrivalPattern

PROFILES = (chain(stage(1, 10.0)),)


def stream(*times_ms: float) -> JobSequence:
    return JobSequence(PROFILES * len(times_ms), np.array(times_ms), 3)


def test_bursts_drifts_and_nights() -> None:
    changed = ArrivalPattern(burst=3).applied(stream(0, 1, 2, 5, 6, 7, 9))
    assert changed.arrival_ms.tolist() == [0, 0, 0, 5, 5, 5, 9]
    assert (len(changed), changed.seed) == (7, 3)
    assert ArrivalPattern(drift=2).applied(stream(0, 10, 20, 30, 50)).arrival_ms.tolist() == [0, 10, 20, 25, 35]
    assert ArrivalPattern(drift=0.5).applied(stream(0, 10, 20, 30)).arrival_ms.tolist() == [0, 10, 20, 40]
    whole = poisson_arrivals(PROFILES, 20_001, 1000.0, seed=1)
    mean_ms = whole.arrival_ms[-1] / 20_000
    changed = ArrivalPattern(night=0.8).applied(whole).arrival_ms
    assert changed[-1] == pytest.approx(whole.arrival_ms[-1], rel=0.01)
    by_day = (changed // (10 * mean_ms)).astype(int) % 2 == 0
    assert by_day.mean() == pytest.approx(0.9, abs=0.01)
    assert (np.diff(changed) >= 0).all()
    assert str(STEADY) == ""
    assert STEADY.applied(sequence := stream(0, 1)) is sequence
    assert (
        str(ArrivalPattern(4, 1.5, 0.25))
        == "4 jobs at once, 1.5 times the rate in the second half, 25% fewer arrivals at night"
    )


@cases(
    "values, message",
    ({"burst": 0}, "burst must be a whole number of at least 1, got 0"),
    ({"drift": 0.0}, "drift must be positive, got 0"),
    ({"night": 1.0}, "night must be at least 0 and below 1, got 1"),
)
def test_values_out_of_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        ArrivalPattern(**values)  # type: ignore[arg-type]
