import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from decima.evaluation.episodes import run_scheduler
from decima.evaluation.guarantee_metrics import GUARANTEE_METRICS
from decima.evaluation.metrics import (
    METRICS,
    SHOWN,
    bootstrap_interval,
    ci95,
    compare_metrics,
    mean_interval,
    measure,
    paired_change,
)
from decima.evaluation.sweeps import objective_ms
from simulator.cluster.faults import Faults
from simulator.cluster.metrics import EpisodeMetrics
from tests.cases import cases
from tests.decima.episodes import episode
from tests.decima.evaluation.examples import CLUSTER, conditions
from workloads import AttributeDistribution
from workloads.sources.carbon import open_signal


def test_an_episode_in_numbers() -> None:
    record = episode()
    metrics = EpisodeMetrics(record)
    assert measure(record) == {
        "mean_jct_s": record.jct_ms.mean() / 1000,
        "p95_jct_s": np.percentile(record.jct_ms, 95) / 1000,
        "makespan_s": record.makespan_ms / 1000,
        "utilisation": metrics.utilisation,
        "load": pytest.approx(metrics.load, nan_ok=True),
        "fragmentation": metrics.fragmentation["memory"],
        "decisions": record.num_decisions,
        "guarded": record.num_guarded,
        "slowdown": np.nanmean(metrics.slowdown),
        "failed_jobs": 0,
        "p50_jct_s": np.percentile(record.jct_ms, 50) / 1000,
        "p99_jct_s": np.percentile(record.jct_ms, 99) / 1000,
        "worst_slowdown": np.nanmax(metrics.slowdown),
        "weighted_jct_s": pytest.approx(record.jct_ms.mean() / 1000),
        "deadline_misses": pytest.approx(math.nan, nan_ok=True),
        "tardiness_s": pytest.approx(math.nan, nan_ok=True),
        "executor_hours": (metrics.busy_ms.sum() + metrics.moving_ms.sum()) / 3_600_000,
        "energy_kwh": pytest.approx(0.1 * metrics.executor_hours),
        "carbon": pytest.approx(math.nan, nan_ok=True),
        "unfairness": pytest.approx(math.nan, nan_ok=True),
        "jain": pytest.approx(math.nan, nan_ok=True),
        "overruled": 0,
        **dict.fromkeys(GUARANTEE_METRICS, pytest.approx(math.nan, nan_ok=True)),
    }
    assert objective_ms(record, "jct") == record.mean_jct_ms
    assert objective_ms(record, "makespan") == record.makespan_ms
    assert objective_ms(record, "1*jct") == pytest.approx(record.mean_jct_ms)
    cost_ms = (record.jct_ms**2).mean() / record.config.reward_scale_ms
    assert objective_ms(record, "power-mean:2") == pytest.approx(cost_ms)


def test_an_episode_with_attributes_faults_and_a_signal_in_numbers() -> None:
    jobs = AttributeDistribution(slack=(1, 2), weights=(1, 16)).draw(conditions(num_jobs=12).sequence(5))
    cluster = replace(CLUSTER, signal=open_signal("synthetic-solar:600"), faults=Faults(task_failures=0.4))
    record = replace(run_scheduler(cluster, jobs, "sjf-cp,no-later-than=1"), num_guarded=7)
    metrics = EpisodeMetrics(record)
    completed, late_ms = ~np.isnan(record.jct_ms), record.completion_ms - metrics.deadline_ms
    assert 0 < record.failed_job.size < 12
    assert record.kept.overruled
    expected = {
        "mean_jct_s": record.jct_ms[completed].mean() / 1000,
        "weighted_jct_s": np.average(record.jct_ms[completed], weights=jobs.weight[completed]) / 1000,
        "deadline_misses": 1 - np.mean(late_ms <= 0),  # failed jobs have missed theirs
        "tardiness_s": np.nanmean(np.maximum(late_ms, 0)) / 1000,
        "failed_jobs": record.failed_job.size,
        "executor_hours": metrics.executor_hours,
        "energy_kwh": metrics.energy_kwh,
        "carbon": metrics.carbon,
        "guarded": 7,
        "overruled": len(record.kept.overruled),
    }
    found = measure(record)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert len(set(expected.values())) == len(expected), "no two metrics can be taken for each other"


def test_loads_bootstrap_intervals_and_names() -> None:
    stream = conditions(arrivals="poisson", interval_ms=3000.0).sequence(5)
    record = run_scheduler(CLUSTER, stream, "fair")
    last_ms = stream.arrival_ms[-1]
    spans = zip(record.task_start_ms.tolist(), record.task_finish_ms.tolist(), strict=True)
    busy_ms = sum(max(min(end, last_ms) - start, 0.0) for start, end in spans)
    assert measure(record)["load"] == pytest.approx(busy_ms / (4 * last_ms))
    assert 0 < measure(record)["load"] < 1
    assert math.isnan(measure(run_scheduler(CLUSTER, conditions().sequence(5), "fair"))["load"])
    # On many values it is close to Student's, on few it depends on them alone.
    values = np.random.default_rng(0).exponential(size=200)
    found = bootstrap_interval(values)
    assert found.mean == values.mean()
    assert found.half_width == pytest.approx(mean_interval(values).half_width, rel=0.1)
    assert bootstrap_interval(values[:5]) == bootstrap_interval(values[:5])
    assert bootstrap_interval([3.0, 3.0, 3.0]) == (3.0, 0.0)
    for unknown in ([1.0], [1.0, math.nan]):
        assert math.isnan(bootstrap_interval(unknown).half_width)
    assert math.isnan(bootstrap_interval([]).mean)
    names = [metric.name for metric in METRICS.values() if metric.name]
    assert len(SHOWN) == len(names)
    assert SHOWN["p99"] == "p99_jct_s"
    assert {column for column, metric in METRICS.items() if metric.more_is_better} == {"utilisation", "jain"}


def test_intervals_of_means() -> None:
    assert (ci95("mean_jct_s"), ci95("utilisation")) == ("mean_jct_ci95_s", "utilisation_ci95")
    # Mean 3, sample variance 2.5, standard error sqrt(2.5 / 5), t(4) = 2.776445.
    mean, half_width = mean_interval([1, 2, 3, 4, 5])
    assert mean == 3
    assert half_width == pytest.approx(2.776445 * math.sqrt(0.5), rel=1e-6)
    for weights in (None, [2.0]):
        mean, half_width = mean_interval([7.0], weights)
        assert mean == 7
        assert math.isnan(half_width)
    assert all(math.isnan(value) for value in mean_interval([]))
    assert mean_interval([1, 2, 6], [5, 5, 5]) == pytest.approx(mean_interval([1, 2, 6]))
    # Groups of 2 and 1, 4/3 and 2/3 of the mean size, whose means 1.25 and 1 deviate from 7/6; t(1) = 12.706205.
    mean, half_width = mean_interval([1.25, 1.0], [2, 1])
    assert mean == pytest.approx(7 / 6)
    error = math.sqrt(((4 / 3 * 1 / 12) ** 2 + (2 / 3 * 1 / 6) ** 2) / 2)
    assert half_width == pytest.approx(12.706205 * error, rel=1e-6)


@cases(
    "degrees_of_freedom, published",
    (1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (10, 2.228), (29, 2.045), (99, 1.984),
)  # fmt: skip
def test_the_half_width_is_students(degrees_of_freedom: int, published: float) -> None:
    values = np.arange(degrees_of_freedom + 1.0)
    error = values.std(ddof=1) / math.sqrt(values.size)
    assert mean_interval(values).half_width / error == pytest.approx(published, abs=5e-4)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=8))
@settings(max_examples=20, deadline=None)
def test_a_bootstrap_interval_lies_within_the_values(values: list[float]) -> None:
    half_width = bootstrap_interval(values).half_width
    assert 0 <= half_width <= np.ptp(values) / 2 * (1 + 1e-9)


def runs(**metrics: dict[str, list[float]]) -> pd.DataFrame:
    """A table of runs: metric -> scheduler -> values of the experiments."""
    tables = [
        pd.DataFrame({"scheduler": name, "seed": range(len(values)), "metric": metric, "value": values})
        for metric, schedulers in metrics.items()
        for name, values in schedulers.items()
    ]
    wide = pd.concat(tables).pivot_table(index=["scheduler", "seed"], columns="metric", values="value")
    return wide.reset_index()


def test_metrics_are_compared_by_experiment() -> None:
    ours, others = [0.2, 0.1, 0.4], [0.3, 0.3, 0.4]
    tails, their_tails = [5.0, 9.0, 7.0], [4.0, 6.0, 8.0]
    table = runs(deadline_misses={"a": ours, "b": others}, p99_jct_s={"a": tails, "b": their_tails})
    columns = ("deadline_misses", "p99_jct_s")
    found = compare_metrics(table, ["a", "b"], "b", columns)
    assert list(found) == ["a", "b"]
    misses, tail = found["a"].values()
    assert misses.mean == pytest.approx(mean_interval(ours))
    assert misses.difference == pytest.approx(mean_interval(np.subtract(ours, others)))
    assert misses.change == pytest.approx(paired_change(ours, others))
    assert tail.mean == bootstrap_interval(tails)
    assert tail.difference == bootstrap_interval(np.subtract(tails, their_tails))
    assert tail.change.mean == pytest.approx(1 / 6)
    assert found["b"]["p99_jct_s"].difference == (0, 0)
    alone = compare_metrics(table, ["a"], None, columns)["a"]["p99_jct_s"]
    assert alone.mean == tail.mean
    assert math.isnan(alone.difference.mean)
    zeros = compare_metrics(runs(tardiness_s={"a": [1.0, 2.0], "b": [0.0, 0.0]}), ["a"], "b", ["tardiness_s"])
    assert zeros["a"]["tardiness_s"].difference.mean == 1.5
    assert math.isnan(zeros["a"]["tardiness_s"].change.mean)
