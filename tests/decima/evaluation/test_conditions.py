from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decima.evaluation.conditions import CompareError, Conditions
from simulator.cluster.config import ClusterConfig, ConfigError, ExecutorClass
from tests.cases import cases
from tests.decima.evaluation.examples import CLUSTER, LIBRARY, conditions
from workloads import AttributeDistribution, Drift, JobAttributes, JobProfile, JobSequence, Workload

#: Executors that no stage of the examples fits.
SMALL = ClusterConfig(executor_classes=(ExecutorClass(1, cpu=0.5),))


def test_seeds_draw_jobs_noise_and_memory() -> None:
    chosen = conditions(arrivals="poisson", interval_ms=3000.0)
    one, again, other = (chosen.sequence(seed) for seed in (5, 5, 6))
    assert (one.seed, other.seed) == (5, 6)
    assert one.arrival_ms.tolist() == again.arrival_ms.tolist() != other.arrival_ms.tolist()
    assert np.ptp(conditions().sequence(5).arrival_ms) == 0
    own, drawn = (conditions(memory_demand=each).sequence(5) for each in ("own", "uniform"))
    assert {stage.memory for profile in own.profiles for stage in profile.stages} == {0.0}
    assert len({stage.memory for profile in drawn.profiles for stage in profile.stages}) == 8
    large = JobProfile("large", (replace(LIBRARY.profiles[0].stages[0], memory=2.0),))
    with pytest.raises(ConfigError, match="large"):
        conditions(arrivals="poisson", drift=Drift(1.0, 1.0, (large,)))
    cluster = ClusterConfig(executor_classes=(*SMALL.executor_classes, *CLUSTER.executor_classes))
    assert conditions(cluster=cluster).idle_classes == list(SMALL.executor_classes)


def test_sequences_are_replayed_and_drifts_change_later_jobs() -> None:
    sequence = JobSequence(LIBRARY.profiles, np.array([0.0, 10.0, 20.0, 9000.0]), seed=99)
    chosen = conditions(workload=Workload(LIBRARY.profiles, sequence, "exact"))
    for seed in chosen.seeds:
        assert chosen.sequence(seed).profiles == LIBRARY.profiles
        assert chosen.sequence(seed).arrival_ms.tolist() == [0.0, 10.0, 20.0, 9000.0]
        assert chosen.sequence(seed).seed == seed
    drift = Drift(6000.0, 4.0, LIBRARY.profiles[:1], "one")
    plain, changed = (
        conditions(arrivals="poisson", interval_ms=1000.0, num_jobs=30, drift=each) for each in (None, drift)
    )
    before = plain.sequence(5).arrival_ms < 6000
    assert changed.sequence(5).arrival_ms[before].tolist() == plain.sequence(5).arrival_ms[before].tolist()
    assert {*changed.sequence(5).profiles[before.sum() :]} == {LIBRARY.profiles[0]}
    exact = Workload(LIBRARY.profiles, plain.sequence(5), "exact")
    for others in ({"arrivals": "batch"}, {"arrivals": "poisson", "workload": exact}):
        with pytest.raises(CompareError, match="a drift needs Poisson arrivals"):
            conditions(drift=drift, **others)
    with pytest.raises(CompareError, match="drift"):
        conditions(arrivals="poisson", drift=6)


def test_attributes_are_those_of_the_workload_unless_they_are_drawn() -> None:
    own = {LIBRARY.profiles[0].name: JobAttributes(weight=3, tenant="bi")}
    library = replace(LIBRARY, attributes=own)
    plain, drawn = (
        conditions(workload=library, num_jobs=30, attributes=each).sequence(5)
        for each in (AttributeDistribution(), AttributeDistribution(slack=(2, 4)))
    )
    assert {each.weight for each in plain.attributes} == {1, 3}
    for profile, before, after in zip(plain.profiles, plain.attributes, drawn.attributes, strict=True):
        assert before.weight == (3 if profile is LIBRARY.profiles[0] else 1)
        assert after == replace(before, slack=after.slack)
        assert 2 <= after.slack <= 4
    without = conditions(num_jobs=30).sequence(5)
    assert (without.attributes, without.profiles) == ((), drawn.profiles)
    assert conditions(attributes=AttributeDistribution(weights=(1, 4))).to_dict()["weights"] == "1,4"
    assert conditions().to_dict()["weights"] is None


def windowed(**changes: Any) -> Conditions:
    """A sequence with a job in each of six windows of 10 ms; two windows have two jobs."""
    arrival_ms = np.array([5.0, 15.0, 16.0, 50.0, 60.0, 70.0, 80.0, 81.0])
    sequence = JobSequence(LIBRARY.profiles * 2, arrival_ms, seed=99)
    workload = Workload(LIBRARY.profiles, sequence, "trace")
    return conditions(**{"workload": workload, "window_ms": 10.0, "seed": 0, **changes})


def test_windows_are_replayed_and_no_training_meets_an_experiment() -> None:
    chosen = windowed()
    first, second, third = (chosen.sequence(seed) for seed in chosen.seeds)
    assert (first.seed, second.seed, third.seed) == (0, 1, 2)
    assert [each.arrival_ms.tolist() for each in (first, second, third)] == [[0], [0, 1], [0]]
    assert second.profiles == LIBRARY.profiles[1:3]
    # The seed is the window's number.
    assert windowed(seed=2, num_experiments=1).sequence(2).profiles == third.profiles
    chosen = conditions(num_experiments=1_000_000)
    assert len(chosen.training_seeds(2)) == 2
    assert chosen.training_seeds(2)[0] > chosen.seeds[-1]
    assert len(windowed(num_experiments=6).seeds) == 6
    with pytest.raises(CompareError, match="6 windows with jobs, expected at least 7"):
        windowed(num_experiments=7)
    with pytest.raises(CompareError, match="6 windows with jobs, expected at least 8"):
        windowed(seed=5)
    with pytest.raises(ValueError, match=r"window_ms: expected a number above 0, got 0\.0"):
        windowed(window_ms=0.0)


def test_schedulers_are_tuned_on_the_last_windows() -> None:
    chosen = windowed(seed=1, num_experiments=2)
    last, before = (chosen.sequence(seed) for seed in chosen.training_seeds(2))
    assert (last.arrival_ms.tolist(), last.profiles) == ([0, 1], LIBRARY.profiles[2:])
    assert before.profiles == LIBRARY.profiles[1:2]
    assert len(chosen.training_seeds(3)) == 3
    with pytest.raises(
        CompareError, match="trace: 6 windows with jobs, expected at least 7: up to number 2 to compare on, and 4"
    ):
        chosen.training_seeds(4)


@cases(
    "changes, error, message",
    ({"num_experiments": 0}, CompareError, "num_experiments: expected a number of at least 1, got 0"),
    ({"num_jobs": "2"}, CompareError, "num_jobs: expected a whole number, got '2'"),
    ({"num_experiments": 2.5}, CompareError, "num_experiments: expected a whole number, got 2.5"),
    ({"seed": True}, CompareError, "seed: expected a whole number, got True"),
    ({"interval_ms": "x"}, CompareError, "interval_ms: expected a number, got 'x'"),
    ({"window_ms": "x"}, CompareError, "window_ms: expected a number, got 'x'"),
    ({"workload": 3}, CompareError, "workload must be several of the type JobProfile, got 3"),
    ({"cluster": 3}, CompareError, "cluster: expected a value of the type ClusterConfig, got 3"),
    ({"memory_demand": "much"}, CompareError, "memory_demand: expected 'own' or 'uniform', got 'much'"),
    ({"num_experiments": 1_000_001}, CompareError, "num_experiments: expected a number of at most 1,000,000, "),
    ({"arrivals": "trickle"}, CompareError, "arrivals: expected 'batch' or 'poisson', got 'trickle'"),
    ({"num_jobs": 0}, ValueError, "num_jobs: expected a number of at least 1, got 0"),
    ({"seed": -1}, ValueError, "seed"),
    ({"arrivals": "poisson", "interval_ms": -1.0}, ValueError, "interval_ms: expected a number above 0, got -1.0"),
    ({"cluster": SMALL}, ConfigError, "no executor class can run stage 0 of job 0 .job-2., which needs cpu 1"),
    ({"cluster": ClusterConfig(executor_classes=(ExecutorClass(1, memory=0.9),)), "memory_demand": "uniform"},
     ConfigError, "no executor class has the memory 1 that a stage may need with uniform demands"),
    ({"window_ms": 10.0}, CompareError, "tiny: no windows, the workload has no arrival times"),
    ({"cluster": replace(CLUSTER, max_time_ms=10.0)}, CompareError, "leave max_time_ms infinite"),
)  # fmt: skip
def test_conditions_that_make_no_sense_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        conditions(**changes)
