from __future__ import annotations

import math

import numpy as np
import pytest

from decima.evaluation.metrics import METRICS, ci95, measure
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
