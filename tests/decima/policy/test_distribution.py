"""What a policy was trained on is measured as it is, and what is unlike it is told."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from decima.policy.distribution import (
    QUANTITIES,
    TAIL,
    Distribution,
    format_quantity,
    out_of_distribution,
    summarise,
)
from simulator.cluster.config import ClusterConfig, ExecutorClass
from tests.simulator.cluster.build import chain, jobs, stage
from workloads.arrivals import batch_arrivals
from workloads.sources.synthetic import synthetic_profiles

CLUSTER = ClusterConfig(num_executors=10, moving_delay_ms=2000.0)
#: Two stages, 30 tasks, 40 s of work.
JOB = chain(stage(10, 1000.0), stage(20, 1500.0))

BATCH: dict[str, Any] = {
    "arrivals": "batch",
    "executors": (50, 50, 50),
    "classes": (1, 1, 1),
    "moving_delay_s": (2, 2, 2),
    "stages": (4, 8, 16),
    "tasks": (200, 1000, 2000),
    "task_s": (0.08, 0.1, 0.4),
    "work_s": (16, 100, 800),
    "delay_tasks": (5, 20, 25),
    "jobs": (20, 20, 20),
}
STREAM = {name: value for name, value in BATCH.items() if name != "jobs"} | {
    "arrivals": "stream",
    "load": (0.5, 0.6, 0.8),
}


def made(given: dict[str, Any] = BATCH, **changes: Any) -> Distribution:
    return Distribution(**{**given, **changes})


def test_a_batch_is_measured() -> None:
    found = summarise([(CLUSTER, jobs(JOB, JOB)), (CLUSTER, jobs(JOB, JOB))])
    assert found == Distribution(
        arrivals="batch",
        executors=(10, 10, 10),
        classes=(1, 1, 1),
        moving_delay_s=(2, 2, 2),
        stages=(2, 2, 2),
        tasks=(30, 30, 30),
        task_s=(1.333,) * 3,
        work_s=(40, 40, 40),
        delay_tasks=(1.5, 1.5, 1.5),
        jobs=(2, 2, 2),
        load=None,
    )


def test_the_load_of_a_stream_is_the_work_that_arrives_over_what_the_executors_can_do() -> None:
    """Two jobs of 40 s come in the 16 s before the last; ten executors do 160 s of work in that time."""
    found = summarise([(CLUSTER, jobs(JOB, JOB, JOB, at=[2000.0, 5000.0, 18_000.0]))])
    assert (found.arrivals, found.jobs, found.load) == ("stream", None, (0.5, 0.5, 0.5))


def test_executors_of_all_classes_count() -> None:
    cluster = ClusterConfig(executor_classes=(ExecutorClass(3, memory=0.5), ExecutorClass(4)))
    found = summarise([(cluster, jobs(JOB))])
    assert (found.executors.middle, found.classes.middle) == (7, 2)


def test_quantiles_are_told_so_that_one_odd_job_says_nothing() -> None:
    profiles = [chain(stage(tasks, 100.0)) for tasks in range(1, 100)]
    found = summarise([(CLUSTER, jobs(*profiles, chain(stage(10**6, 100.0))))])
    assert found.tasks == tuple(np.quantile([*range(1, 100), 10**6], [0.05, 0.5, 0.95]).round(2))
    assert found.tasks.high < 100


@pytest.mark.parametrize("rest_ms", [0.0, 1e13])
def test_durations_without_measure_can_be_written_to_a_file(rest_ms: float) -> None:
    profile = chain(stage(30, rest_ms))
    found = summarise([(CLUSTER, jobs(profile, profile, at=[0.0, 1.0]))])
    again = Distribution.model_validate(json.loads(json.dumps(found.model_dump(mode="json"))))
    assert again == found
    assert all(math.isfinite(value) for _, spread in found.spreads() for value in spread)


def test_the_same_jobs_give_the_same_numbers() -> None:
    one, other = (
        summarise((CLUSTER, batch_arrivals(synthetic_profiles(), 20, seed)) for seed in range(3))
        for _ in range(2)
    )
    assert one == other


# ---- what lies outside ---------------------------------------------------------------------------------------

_SPREADS = st.lists(st.floats(0, 1e9), min_size=3, max_size=3).map(sorted)


@given(values=st.fixed_dictionaries({name: _SPREADS for name in BATCH if name != "arrivals"}))
def test_whoever_was_trained_there_fits(values: dict[str, list[float]]) -> None:
    there = made(**values)
    assert out_of_distribution(there, there) == []


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda quantity: quantity.name)
def test_the_middle_may_be_some_times_farther_than_the_ends(quantity: Any) -> None:
    trained = made(STREAM if quantity.name == "load" else BATCH)
    low, _, high = getattr(trained, quantity.name)
    bounds = [(high * quantity.up, 1.01)]
    if math.isfinite(quantity.down):
        bounds.append((low / quantity.down, 0.99))
    for bound, beyond in bounds:
        assert out_of_distribution(trained, trained.model_copy(update={quantity.name: spread(bound)})) == []
        [words] = out_of_distribution(
            trained, trained.model_copy(update={quantity.name: spread(bound * beyond)})
        )
        assert "trained on" in words


def spread(*values: float) -> Any:
    low, high = min(values), max(values)
    return made(stages=(low, low, high)).stages


def test_no_fewer_classes_and_no_lighter_load_is_outside() -> None:
    assert out_of_distribution(made(classes=(4, 4, 4)), made()) == []
    assert out_of_distribution(made(STREAM), made(STREAM, load=(0, 0, 0.001))) == []


def test_some_jobs_may_be_larger_still() -> None:
    bound = 16 * 4 * TAIL
    assert out_of_distribution(made(), made(stages=(4, 8, bound))) == []
    assert out_of_distribution(made(), made(stages=(4, 8, bound + 1))) == [
        "at times jobs have 257 stages, trained on 4 to 16"
    ]


def test_it_is_said_in_words() -> None:
    here = made(executors=(500, 500, 500), moving_delay_s=(0, 0, 0), classes=(2, 2, 2), task_s=(1, 1.25, 9))
    assert out_of_distribution(made(), here) == [
        "500 executors, trained on 50",
        "2 classes of executors, trained on 1",
        "a moving delay of 0 s, trained on 2",
        "tasks take 1.2 s, trained on 0.08 to 0.4",
    ]
    assert out_of_distribution(made(STREAM), made(STREAM, load=(9, 20, 99))) == [
        "a load of 2,000%, trained on 50% to 80%"
    ]


def test_a_short_delay_is_told_once() -> None:
    short = {"delay_tasks": (0.1, 0.2, 0.3)}
    assert len(out_of_distribution(made(), made(**short))) == 1
    assert len(out_of_distribution(made(), made(moving_delay_s=(0, 0, 0), **short))) == 1
    assert len(out_of_distribution(made(), made(task_s=(9, 9, 9), **short))) == 1


def test_a_policy_of_batches_may_meet_streams() -> None:
    assert out_of_distribution(made(), made(STREAM)) == []
    assert out_of_distribution(made(STREAM), made(jobs=(9999, 9999, 9999))) == []


def test_who_was_trained_without_delay_knows_no_delay() -> None:
    free = made(moving_delay_s=(0, 0, 0), delay_tasks=(0, 0, 0))
    assert out_of_distribution(free, free) == []
    assert out_of_distribution(free, made()) == ["a moving delay of 2 s, trained on 0"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.05192, "0.052"), (2.263, "2.3"), (4.0, "4"), (12.99, "13"), (2158.0, "2,158")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert format_quantity(QUANTITIES[0], value) == text


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": (2, 1, 3)},
        {"stages": (1, 3, 2)},
        {"stages": (-1, 1, 2)},
        {"stages": (1, 2, math.inf)},
        {"stages": (1, 2, math.nan)},
        {"stages": (1, 2)},
        {"stages": "many"},
        {"stages": None},
        {"colour": "red"},
        {"arrivals": "trickle"},
        {"arrivals": "stream"},
        {"jobs": None},
        {"load": (1, 1, 1)},
    ],
    ids=str,
)
def test_what_means_nothing_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        made(**changes)
    with pytest.raises(ValidationError):
        made(STREAM, load=None)
