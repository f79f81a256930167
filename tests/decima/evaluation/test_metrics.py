from __future__ import annotations

import math

import numpy as np
import pytest

from decima.evaluation.metrics import METRICS, ci95, mean_interval, measure
from decima.evaluation.run import objective_ms, run_scheduler
from tests.decima.episodes import episode
from tests.decima.evaluation.examples import CLUSTER, conditions


def test_an_episode_in_numbers() -> None:
    record = episode()
    assert measure(record) == {
        "mean_jct_s": record.jct_ms.mean() / 1000,
        "p95_jct_s": np.percentile(record.jct_ms, 95) / 1000,
        "makespan_s": record.makespan_ms / 1000,
        "utilisation": record.utilisation,
        "load": pytest.approx(METRICS["load"].of(record), nan_ok=True),
        "fragmentation": record.fragmentation["memory"],
        "decisions": record.num_decisions,
        "guarded": record.num_guarded,
        "slowdown": np.nanmean(record.slowdown),
        "failed_jobs": 0,
    }
    assert objective_ms(record, "jct") == record.mean_jct_ms
    assert objective_ms(record, "makespan") == record.makespan_ms


def test_the_load_is_the_time_in_which_executors_ran_tasks_until_the_last_arrival() -> None:
    stream = conditions(arrivals="poisson", interval_ms=3000.0).sequence(5)
    record = run_scheduler(CLUSTER, stream, "fair")
    last_ms = stream.arrival_ms[-1]
    spans = zip(record.task_start_ms.tolist(), record.task_finish_ms.tolist(), strict=True)
    busy_ms = sum(max(min(end, last_ms) - start, 0.0) for start, end in spans)
    assert measure(record)["load"] == pytest.approx(busy_ms / (4 * last_ms))
    assert 0 < measure(record)["load"] < 1
    assert math.isnan(measure(run_scheduler(CLUSTER, conditions().sequence(5), "fair"))["load"])


def test_names_of_confidence_intervals() -> None:
    assert (ci95("mean_jct_s"), ci95("utilisation")) == ("mean_jct_ci95_s", "utilisation_ci95")


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
