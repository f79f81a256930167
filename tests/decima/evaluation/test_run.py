from __future__ import annotations

import math

import numpy as np
import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.run import Run, objective_ms, run_scheduler
from tests.decima.episodes import episode
from tests.decima.evaluation.examples import CLUSTER, OWN, conditions


def test_an_episode_in_numbers() -> None:
    record = episode()
    run = Run.of(record, setting="weighted-fair:-1")
    assert run.mean_jct_ms == record.jct_ms.mean()
    assert run.p95_jct_ms == np.percentile(record.jct_ms, 95)
    assert run.makespan_ms == record.makespan_ms
    assert run.utilisation == record.utilisation
    assert run.setting == "weighted-fair:-1"
    assert (objective_ms(run, "jct"), objective_ms(run, "makespan")) == (run.mean_jct_ms, run.makespan_ms)


def test_the_load_is_the_time_in_which_executors_ran_tasks_until_the_last_arrival() -> None:
    stream = conditions(arrivals="poisson", interval_ms=3000.0).sequence(5)
    record = run_scheduler(CLUSTER, stream, "fair")
    last_ms = stream.arrival_ms[-1]
    spans = zip(record.task_start_ms.tolist(), record.task_finish_ms.tolist(), strict=True)
    busy_ms = sum(max(min(end, last_ms) - start, 0.0) for start, end in spans)
    assert Run.of(record).load == pytest.approx(busy_ms / (4 * last_ms))
    assert 0 < Run.of(record).load < 1
    assert math.isnan(Run.of(run_scheduler(CLUSTER, conditions().sequence(5), "fair")).load)


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
