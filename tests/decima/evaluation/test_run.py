from __future__ import annotations

import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.run import run_scheduler
from tests.decima.evaluation.examples import CLUSTER, OWN, conditions


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("Faulty", r"Faulty on seed 5: ZeroDivisionError: .* \(own_schedulers\.py, line \d+\)$"),
        ("Idle", r"Idle on seed 5: "),
        ("Leaving", r"Leaving on seed 5: SystemExit: 3 \(own_schedulers\.py, line \d+\)$"),
    ],
)
def test_a_scheduler_that_fails_is_named_in_one_line(own: str, message: str) -> None:
    with pytest.raises(CompareError, match=message) as raised:
        run_scheduler(CLUSTER, conditions().sequence(5), OWN + own)
    assert "\n" not in str(raised.value)
