"""Fairness between tenants."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from decima.evaluation import Comparison, run_scheduler
from decima.evaluation.fairness import finish_time_fairness, jains_index, tenant_metrics
from simulator import ClusterConfig, EpisodeRecord
from simulator.cluster.faults import Faults
from tests.decima.evaluation.examples import conditions, runs_of
from workloads import AttributeDistribution, JobAttributes, JobProfile, JobSequence, StageProfile, TaskDurations, Tenant

#: Cluster without delays; tasks take 100 ms.
CLUSTER = ClusterConfig(num_executors=4, moving_delay_ms=0.0, warmup_delay_ms=0.0)
JOB = JobProfile("job", (StageProfile(8, TaskDurations.constant(100.0)),))


def shared(scheduler: str, *names: str, tenants: tuple[Tenant, ...] = ()) -> EpisodeRecord:
    """A batch of equal jobs of these tenants, 200 ms each on the whole cluster."""
    attributes = tuple(JobAttributes(tenant=name) for name in names)
    jobs = JobSequence((JOB,) * len(names), np.zeros(len(names)), 0, None, attributes, tenants)
    return run_scheduler(CLUSTER, jobs, scheduler)


def test_shares_of_tenants() -> None:
    # On half of the cluster, each job takes 400 ms. One after the other, the jobs end after 200 and 400 ms.
    first, second = finish_time_fairness(shared("fifo", "a", "b"))
    assert (first, second) == (0.5, 1)
    assert finish_time_fairness(shared("fair", "a", "b")).tolist() == [1, 1]
    found = tenant_metrics(shared("fifo", "a", "b"))
    assert (found["unfairness"], found["jain"]) == (1, pytest.approx(1.5**2 / (2 * 1.25)))
    # Dedicated clusters of one and three executors: jobs take 800 ms and 300 ms.
    tenants = (Tenant("idle", weight=100), Tenant("a"), Tenant("b", weight=3))
    idle, first, second = finish_time_fairness(shared("fair", "a", "b", tenants=tenants))
    assert math.isnan(idle)
    assert (first, second) == (pytest.approx(400 / 800), pytest.approx(400 / 300))
    for record in (shared("fair", "a", "a"), shared("fair", "default", "default")):
        assert finish_time_fairness(record).size == 0
        assert all(map(math.isnan, tenant_metrics(record).values()))
    record = shared("fifo", "a", "b")
    failed = replace(record, completion_ms=np.array([math.nan, record.completion_ms[1]]))
    first, second = finish_time_fairness(failed)
    assert math.isnan(first)
    assert second == 1
    assert tenant_metrics(failed) == {"unfairness": 1, "jain": 1}


def test_dedicated_clusters_have_the_same_task_noise_and_no_faults() -> None:
    """The dedicated cluster of the first tenant is the whole one, and its job ends before that of the other."""
    noisy = JobProfile("noisy", (StageProfile(8, TaskDurations.sampled(np.geomspace(50.0, 500.0, 40))),))
    attributes, tenants = (JobAttributes(tenant="a"), JobAttributes(tenant="b")), (Tenant("a", weight=99), Tenant("b"))
    for seed in range(3):
        jobs = JobSequence((noisy, JOB), np.array([0.0, 1e5]), seed, None, attributes, tenants)
        record = run_scheduler(CLUSTER, jobs, "fair")
        assert finish_time_fairness(record)[0] == 1
        slow = run_scheduler(replace(CLUSTER, faults=Faults(stragglers=(1.0, 3.0))), jobs, "fair")
        assert finish_time_fairness(slow)[0] == pytest.approx(3)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.floats(0.1, 10))
def test_jains_index(values: list[float], factor: float) -> None:
    """It lies between 1/n and 1, is 1 for equal values, and does not depend on the unit."""
    found = jains_index(np.array(values))
    assert 1 / len(values) - 1e-9 <= found <= 1 + 1e-9
    assert jains_index(factor * np.array(values)) == pytest.approx(found)
    assert jains_index(np.full(len(values), factor)) == pytest.approx(1)
    assert jains_index(np.array([*values, 0.0])) == pytest.approx(found * len(values) / (len(values) + 1))
    assert math.isnan(jains_index(np.zeros(0)))


def test_it_is_measured_only_if_it_is_shown() -> None:
    setting = conditions(attributes=AttributeDistribution(tenants=2), num_experiments=1, num_jobs=8)
    for show, known in (((), False), (("misses",), False), (("jain", "mean"), True)):
        compared = Comparison(setting, ["fifo", "fair"], show=show)
        compared.run(1)
        assert runs_of(compared, "fair")[["unfairness", "jain"]].notna().all(axis=None) == known
