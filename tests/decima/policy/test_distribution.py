"""A training distribution is summarised correctly, and settings out of distribution are listed."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from decima.evaluation.fit import SIMILARITY, TAIL, TOLERANCES, is_similar, out_of_distribution
from decima.policy.distribution import SHARES, TITLES, Distribution, format_quantity, summarise
from simulator.cluster.config import ClusterConfig, ExecutorClass, Knowledge
from simulator.cluster.faults import Faults
from tests.cases import cases
from tests.simulator.cluster.build import chain, jobs, stage
from workloads import batch_arrivals, synthetic_profiles

CLUSTER = ClusterConfig(num_executors=10, moving_delay_ms=2000.0)
#: Two stages, 30 tasks, 40 s of work.
JOB = chain(stage(10, 1000.0), stage(20, 1500.0))

#: Errors of estimates in a policy's training.
ERRORS = {"job_error": (0, 1, 2), "stage_error": (0, 0.5, 1), "task_count_error": (0, 0.1, 0.2), "unknown": (0, 0.3, 1)}
#: Faults in a policy's training, far beyond those that are inside any training distribution.
FAULTS = {
    "losses_per_hour": (0, 40, 80), "task_failures": (0, 0.1, 0.2), "straggling": (0, 1, 2), "absent": (0, 0.5, 0.9),
}  # fmt: skip
BATCH: dict[str, Any] = {
    "arrivals": "batch", "executors": (50, 50, 50), "classes": (1, 1, 1), "moving_delay_s": (2, 2, 2),
    "stages": (4, 8, 16), "tasks": (200, 1000, 2000), "task_s": (0.08, 0.1, 0.4), "work_s": (16, 100, 800),
    "delay_tasks": (5, 20, 25), "jobs": (20, 20, 20),
}  # fmt: skip
STREAM = {name: value for name, value in BATCH.items() if name != "jobs"} | {
    "arrivals": "stream",
    "load": (0.5, 0.6, 0.8),
}


def made(given: dict[str, Any] = BATCH, **changes: Any) -> Distribution:
    return Distribution(**{**given, **changes})


def test_a_batch_is_measured_and_streams_told_apart() -> None:
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
    # Among streams a single job is not a batch; without streams it is.
    batch, alone, stream = jobs(JOB, JOB), jobs(JOB), jobs(JOB, JOB, at=[0.0, 8000.0])
    for places, arrivals, size, load in (
        ([batch, batch], "batch", 2.0, None),
        ([alone], "batch", 1.0, None),
        ([stream], "stream", None, 0.5),
        ([stream, alone], "stream", None, 0.5),
        ([stream, batch], "both", 2.0, 0.5),
        ([stream, alone, batch], "both", 2.0, 0.5),
    ):
        found = summarise((CLUSTER, sequence) for sequence in places)
        assert found.arrivals == arrivals
        assert (found.jobs and found.jobs.middle, found.load and found.load.middle) == (size, load)


def test_loads_classes_and_quantiles_of_a_summary() -> None:
    # Two jobs of 40 s arrive in the 16 s before the last; ten executors have a capacity of 160 s in that time.
    found = summarise([(CLUSTER, jobs(JOB, JOB, JOB, at=[2000.0, 5000.0, 18_000.0]))])
    assert (found.arrivals, found.jobs, found.load) == ("stream", None, (0.5, 0.5, 0.5))
    cluster = ClusterConfig(executor_classes=(ExecutorClass(3, memory=0.5), ExecutorClass(4)))
    found = summarise([(cluster, jobs(JOB))])
    assert (found.executors.middle, found.classes.middle) == (7, 2)
    profiles = [chain(stage(tasks, 100.0)) for tasks in range(1, 100)]
    found = summarise([(CLUSTER, jobs(*profiles, chain(stage(10**6, 100.0))))])
    assert found.tasks == tuple(np.quantile([*range(1, 100), 10**6], [0.05, 0.5, 0.95]).round(2))
    assert found.tasks.high < 100
    found = summarise([(CLUSTER, jobs(chain(stage(1, 123_456.0))))])
    assert found.task_s == found.work_s == (123.5, 123.5, 123.5)
    one, other = (
        summarise((CLUSTER, batch_arrivals(synthetic_profiles(), 20, seed)) for seed in range(3)) for _ in range(2)
    )
    assert one == other


@pytest.mark.parametrize("rest_ms", [0.0, 1e13])
def test_durations_without_measure_can_be_written_to_a_file(rest_ms: float) -> None:
    profile = chain(stage(30, rest_ms))
    found = summarise([(CLUSTER, jobs(profile, profile, at=[0.0, 1.0]))])
    again = Distribution.model_validate(json.loads(json.dumps(found.model_dump(mode="json"))))
    assert again == found
    assert all(math.isfinite(value) for _, spread in found.spreads() for value in spread)


def test_all_clusters_count_and_distances_have_limits() -> None:
    other = ClusterConfig(executor_classes=(ExecutorClass(5), ExecutorClass(15)), moving_delay_ms=500.0)
    short = chain(stage(4, 0.5))
    found = summarise([(CLUSTER, jobs(JOB, JOB)), (other, jobs(short, short))])
    ends = {name: (values.low, values.high) for name, values in found.spreads()}
    assert (ends["stages"], ends["jobs"], ends["classes"]) == ((1, 2), (2, 2), (1.05, 1.95))
    assert (ends["executors"], ends["moving_delay_s"]) == ((10.5, 19.5), (0.575, 1.925))
    assert (found.tasks.low, found.task_s.low, found.work_s.low) == (4.0, 0.0005, 0.002)
    assert found.delay_tasks.high == 500.0  # as if a task took a millisecond, the clock's step
    assert found.delay_tasks.low == 1.5
    # Measured tolerances, see the module; a change alters the messages about policies.
    assert {name: (tolerance.down, tolerance.up) for name, tolerance in TOLERANCES.items()} == {
        "executors": (5, 4), "classes": (math.inf, 1), "moving_delay_s": (2, 8), "stages": (4, 4), "tasks": (4, 4),
        "task_s": (8, 1), "work_s": (4, 4), "delay_tasks": (1, 8), "jobs": (20, 10), "load": (math.inf, 10),
        **dict.fromkeys(ERRORS, (math.inf, 1.5)), **dict.fromkeys(FAULTS, (math.inf, 2)), "absent": (math.inf, 1),
    }  # fmt: skip
    assert list(TOLERANCES) == list(TITLES)
    assert set(SHARES) < set(TITLES)
    assert (TAIL, SIMILARITY) == (4.0, (2.5, 1.4, 2.5))


_SPREADS = st.lists(st.floats(0, 1e9), min_size=3, max_size=3).map(sorted)


@given(values=st.fixed_dictionaries({name: _SPREADS for name in BATCH if name != "arrivals"}))
def test_the_training_distribution_itself_fits(values: dict[str, list[float]]) -> None:
    there = made(**values)
    assert out_of_distribution(there, there) == []


@pytest.mark.parametrize("name", TOLERANCES)
def test_the_middle_may_be_some_times_farther_than_the_ends(name: str) -> None:
    trained, tolerance = made(STREAM if name == "load" else BATCH, **ERRORS, **FAULTS), TOLERANCES[name]
    low, _, high = getattr(trained, name)
    bounds = [(high * tolerance.up, 1.01)]
    if math.isfinite(tolerance.down):
        bounds.append((low / tolerance.down, 0.99))
    for bound, beyond in bounds:
        assert out_of_distribution(trained, trained.model_copy(update={name: spread(bound)})) == []
        [words] = out_of_distribution(trained, trained.model_copy(update={name: spread(bound * beyond)}))
        assert "trained on" in words


def spread(*values: float) -> Any:
    low, high = min(values), max(values)
    return made(stages=(low, low, high)).stages


def test_similar_distributions_of_batches_and_streams() -> None:
    # The median within a factor of 1.4, the outer quantiles within 2.5, upwards and downwards.
    trained = made(tasks=(100, 1000, 2000))
    for tasks in ((100, 1000, 2000), (250, 1400, 5000), (40, 715, 800)):
        assert is_similar(trained, made(tasks=tasks))
    for low in (39, 251):
        assert not is_similar(trained, made(tasks=(low, 1000, 2000)))
    for middle in (714, 1401):
        assert not is_similar(trained, made(tasks=(100, middle, 2000)))
    for high in (799, 5001):
        assert not is_similar(trained, made(tasks=(40, 750, high)))
    assert is_similar(made(moving_delay_s=(0, 0, 0)), made(moving_delay_s=(0, 0, 0)))
    assert not is_similar(made(moving_delay_s=(0, 0, 0)), made())
    both = made(arrivals="both", load=(0.5, 0.6, 0.8))
    assert is_similar(made(STREAM), made(STREAM))
    assert is_similar(both, both)
    for one, other in ((made(), made(STREAM)), (made(STREAM), made()), (made(), both)):
        assert not is_similar(one, other)
    assert is_similar(both, made(STREAM))
    assert is_similar(both, made())
    assert not is_similar(both, made(STREAM, load=(0.5, 1.0, 1.0)))


def test_errors_and_objectives_of_similar_settings() -> None:
    trained = made(job_error=(0.0, 0.5, 2.0))
    for error, similar in ((0.0, True), (0.1, True), (2.0, True), (2.1, False)):
        assert is_similar(trained, made(job_error=(error,) * 3)) == similar
    assert not is_similar(trained, made(stage_error=(0.1,) * 3))
    weighted = made().model_copy(update={"objective": "weighted"})
    assert out_of_distribution(weighted, weighted) == []
    assert out_of_distribution(weighted, made()) == ["the objective is jct, trained for weighted"]
    assert out_of_distribution(made(), weighted) == ["the objective is weighted, trained for jct"]
    assert is_similar(weighted, weighted)
    assert not is_similar(made(), weighted)


def test_what_is_inside_of_the_training() -> None:
    assert out_of_distribution(made(classes=(4, 4, 4)), made()) == []
    assert out_of_distribution(made(STREAM), made(STREAM, load=(0, 0, 0.001))) == []
    bound = 16 * 4 * TAIL
    assert out_of_distribution(made(), made(stages=(4, 8, bound))) == []
    assert out_of_distribution(made(), made(stages=(4, 8, bound + 1))) == [
        "at times jobs have 257 stages, trained on 4 to 16"
    ]
    assert out_of_distribution(made(), made(STREAM)) == []
    assert out_of_distribution(made(STREAM), made(jobs=(9999, 9999, 9999))) == []
    free = made(moving_delay_s=(0, 0, 0), delay_tasks=(0, 0, 0))
    assert out_of_distribution(free, free) == []
    assert out_of_distribution(free, made()) == ["a moving delay of 2 s, trained on 0"]
    short = {"delay_tasks": (0.1, 0.2, 0.3)}
    assert len(out_of_distribution(made(), made(**short))) == 1
    assert len(out_of_distribution(made(), made(moving_delay_s=(0, 0, 0), **short))) == 1
    assert len(out_of_distribution(made(), made(task_s=(9, 9, 9), **short))) == 1


def test_messages_and_unknown_errors() -> None:
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
    wrong = made(**ERRORS)
    assert out_of_distribution(made(), wrong) == [
        "estimates of jobs have an error of 1, trained on 0",
        "estimates of stages have an error of 0.5, trained on 0",
        "numbers of tasks have an error of 0.1, trained on 0",
        "30% of the jobs have typical task times, trained on 0%",
    ]
    assert out_of_distribution(wrong, wrong) == out_of_distribution(wrong, made()) == []
    assert not is_similar(made(), wrong)
    assert is_similar(wrong, wrong)


def test_errors_and_changing_capacities_are_measured() -> None:
    exact, wrong = CLUSTER, replace(CLUSTER, knowledge=Knowledge(2.0, 1.0, 0.5, 0.25))
    assert summarise([(exact, jobs(JOB, JOB))]).job_error == (0, 0, 0)
    found = summarise([(wrong, jobs(JOB, JOB))])
    values = (found.job_error.middle, found.stage_error.high, found.task_count_error.low, found.unknown.middle)
    assert values == (2, 1, 0.5, 0.25)
    assert summarise([(exact, jobs(JOB)), (wrong, jobs(JOB))]).job_error == (0.1, 1, 1.9)
    assert summarise([(CLUSTER, jobs(JOB))]).absent == (0, 0, 0)
    for left, found in ((2, []), (1, ["90% of the executors come and go, trained on 0%"])):
        faults = Faults(capacity=((10_000.0, left), (20_000.0, 10)))
        here = summarise([(replace(CLUSTER, faults=faults), jobs(JOB))])
        assert here.absent.middle == pytest.approx(1 - left / 10)
        assert out_of_distribution(made(), made(absent=here.absent)) == found
    assert [format_quantity("absent", value) for value in (0.256, 12.5)] == ["26%", "1,250%"]


def test_faults_are_measured_and_those_that_were_studied_are_inside() -> None:
    faults = Faults(executor_lifetime_ms=300_000.0, task_failures=0.02, stragglers=(0.05, 4.0))
    found = summarise([(replace(CLUSTER, faults=faults), jobs(JOB))])
    assert (found.losses_per_hour.middle, found.task_failures.middle) == (12, 0.02)
    assert found.straggling.middle == pytest.approx(0.15)
    assert summarise([(CLUSTER, jobs(JOB))]).losses_per_hour == (0, 0, 0)
    studied = {name: getattr(found, name) for name in ("losses_per_hour", "task_failures", "straggling")}
    assert not out_of_distribution(made(), made(**studied))
    assert not is_similar(made(), made(**studied))
    worse = {name: tuple(3 * value for value in spread) for name, spread in studied.items()}
    assert out_of_distribution(made(), made(**worse)) == [
        "executors are lost 36 times an hour, trained on 0",
        "6% of the runs fail, trained on 0%",
        "stragglers add 45% of the time, trained on 0%",
    ]
    assert not out_of_distribution(made(**worse), made(**worse))


@cases(
    "value, text",
    (0.05192, "0.052"), (2.263, "2.3"), (4.0, "4"), (9.96, "10"), (10.4, "10"), (12.99, "13"), (2158.0, "2,158"),
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert format_quantity("executors", value) == text


@cases(
    "changes",
    {"stages": (2, 1, 3)}, {"stages": (1, 3, 2)}, {"stages": (-1, 1, 2)}, {"stages": (1, 2, math.inf)},
    {"stages": (1, 2, math.nan)}, {"stages": (1, 2)}, {"stages": "many"}, {"stages": None}, {"colour": "red"},
    {"arrivals": "trickle"}, {"arrivals": "stream"}, {"jobs": None}, {"load": (1, 1, 1)}, ids=str,
)  # fmt: skip
def test_what_means_nothing_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        made(**changes)
    with pytest.raises(ValidationError):
        made(STREAM, load=None)
