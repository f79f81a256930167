"""Attributes of jobs: valid values, order along with the jobs, and random draws."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cases import cases
from tests.workloads.strategies import job_attributes, job_sequences
from workloads import (
    AttributeDistribution,
    JobAttributes,
    JobProfile,
    JobSequence,
    StageProfile,
    TaskDurations,
    Tenant,
    WorkloadError,
    batch_arrivals,
    poisson_arrivals,
    synthetic_profiles,
    trace_arrivals,
)
from workloads.windows import windows

JOB = JobProfile("job", (StageProfile(2, TaskDurations.constant(100)),))


def sequence(*attributes: JobAttributes, at: tuple[float, ...] = (), tenants: tuple[Tenant, ...] = ()) -> JobSequence:
    return JobSequence((JOB,) * len(attributes), np.array(at or [0.0] * len(attributes)), 0, None, attributes, tenants)


@cases(
    "values, message",
    ({"weight": 0}, "weight must be between 1e-09 and 1e+09, got 0"),
    ({"weight": -4}, "weight must be between 1e-09 and 1e+09, got -4"),
    ({"weight": math.nan}, "weight must be between 1e-09 and 1e+09, got nan"),
    ({"weight": True}, "weight must be a number, got True"),
    ({"slack": 0}, "slack must be above 0, got 0"),
    ({"slack": math.nan}, "slack must be above 0, got nan"),
    ({"deadline_ms": -1}, "deadline_ms must be between 0 and 1e+13, or infinite, got -1"),
    ({"deadline_ms": -math.inf}, "deadline_ms must be between 0 and 1e+13, or infinite, got -inf"),
    ({"deadline_ms": 1, "slack": 1}, "a job has either deadline_ms or slack, got both"),
    ({"tenant": ""}, "tenant must not be empty"),
    ({"tenant": 3}, "tenant must be of the type str, got 3"),
)
def test_what_a_job_cannot_ask_for(values: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        JobAttributes(**values)
    assert str(caught.value) == message


@cases(
    "values, message",
    ({"name": ""}, "a tenant's name must not be empty"),
    ({"weight": 0}, "weight must be between 1e-09 and 1e+09, got 0"),
    ({"min_share": -1}, "min_share must be a whole number of at least 0, got -1"),
)
def test_what_a_tenant_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        Tenant(**values)
    assert str(caught.value) == message


def test_a_sequence_names_the_job_that_is_wrong() -> None:
    for wrong, message in (
        (
            lambda: sequence(JobAttributes(), JobAttributes(deadline_ms=4), at=(0, 5)),
            "job 1: the deadline at 4 ms is before its arrival at 5 ms",
        ),
        (
            lambda: sequence(JobAttributes(tenant="a"), JobAttributes(tenant="b"), tenants=(Tenant("a"),)),
            "job 1: unknown tenant 'b', expected one of a",
        ),
        (lambda: sequence(JobAttributes(), tenants=(Tenant("a"),) * 2), "the tenant 'a' is declared twice"),
        (
            lambda: JobSequence((JOB, JOB), np.zeros(2), attributes=(JobAttributes(),)),
            "2 jobs need as many attributes, got 1",
        ),
    ):
        with pytest.raises(WorkloadError) as caught:
            wrong()
        assert str(caught.value) == message


def test_tenants_and_attributes_follow_their_jobs() -> None:
    named = sequence(JobAttributes(tenant="b"), JobAttributes(), JobAttributes(tenant="a"))
    assert [each.name for each in named.tenants] == ["a", "b", "default"]
    assert named.tenant.tolist() == [1, 2, 0]
    declared = (Tenant("b", weight=3), Tenant("a", min_share=2), Tenant("c"))
    told = sequence(JobAttributes(tenant="b"), JobAttributes(tenant="a"), tenants=declared)
    assert (told.tenants, told.tenant.tolist()) == (declared, [0, 1])
    assert [each.name for each in sequence(JobAttributes(), tenants=declared).tenants] == ["b", "a", "c", "default"]
    # Attributes follow the order of arrival, and windows, whose clocks start at 0.
    attributes = [JobAttributes(weight=2, deadline_ms=9_000), JobAttributes(weight=3, tenant="a")]
    jobs = trace_arrivals((JOB, JOB), [5_000, 100], 0, attributes)
    assert jobs.weight.tolist() == [3, 2]
    first, second = windows(jobs, 1_000)
    assert first.attributes == (attributes[1],)
    assert (second.attributes, second.tenants) == ((JobAttributes(weight=2, deadline_ms=4_000),), jobs.tenants)


def test_draws_do_not_depend_on_each_other() -> None:
    plain = sequence(JobAttributes(), JobAttributes())
    assert plain.attributes == () == plain.tenants
    assert (plain.weight.tolist(), plain.tenant.tolist()) == ([1, 1], [0, 0])
    jobs = poisson_arrivals(synthetic_profiles(5), 4, 1000.0, seed=3)
    assert [profile.name for profile in jobs.profiles] == ["synthetic-3", "synthetic-2", "synthetic-0", "synthetic-1"]
    assert jobs.arrival_ms.tolist() == [0.0, 247.62107704609107, 707.4941180024524, 1692.2963393554978]
    jobs = batch_arrivals(synthetic_profiles(3), 30, seed=4)
    alone = AttributeDistribution(slack=(2, 4)).draw(jobs)
    both = AttributeDistribution(slack=(2, 4), tenants=3, weights=(1, 4, 16)).draw(jobs)
    assert [each.slack for each in alone.attributes] == [each.slack for each in both.attributes]
    assert len({each.slack for each in both.attributes}) == 30
    assert {each.weight for each in both.attributes} == {1, 4, 16}
    together = [(each.tenant, each.weight) for each in both.attributes]
    assert len(set(together)) > 3  # tenants and weights are independent
    assert {each.tenant for each in both.attributes} == {"tenant-1", "tenant-2", "tenant-3"}
    other = AttributeDistribution(slack=(2, 4)).draw(batch_arrivals(synthetic_profiles(3), 30, seed=5))
    assert [each.slack for each in alone.attributes] != [each.slack for each in other.attributes]
    assert str(AttributeDistribution()) == ""
    assert not AttributeDistribution()
    every = AttributeDistribution(slack=(2, 4), tenants=1, weights=(1, 16))
    assert str(every) == "deadlines at slack 2 to 4, 1 tenant, weights 1, 16"
    assert str(AttributeDistribution(slack=(3, 3))) == "deadlines at slack 3"


@given(job_sequences(), st.integers(0, 5), st.lists(st.floats(0.1, 10), max_size=3), st.booleans())
def test_draws_change_nothing_else(jobs: JobSequence, tenants: int, weights: list[float], deadlines: bool) -> None:
    drawn = AttributeDistribution((2, 4) if deadlines else None, tenants, tuple(weights)).draw(jobs)
    assert (drawn.profiles, drawn.arrival_ms.tolist()) == (jobs.profiles, jobs.arrival_ms.tolist())
    assert (drawn.seed, drawn.prior) == (jobs.seed, jobs.prior)
    for job, each in enumerate(drawn.attributes):
        old = jobs.attributes[job] if jobs.attributes else JobAttributes()
        assert each.weight in weights if weights else each.weight == old.weight
        assert 2 <= each.slack <= 4 if deadlines else each.slack == old.slack
        assert (each.tenant in {f"tenant-{n + 1}" for n in range(tenants)}) if tenants else each.tenant == old.tenant


@cases(
    "values, message",
    ({"slack": (0, 1)}, "slack[0]: expected a number above 0, got 0"),
    ({"slack": (3, 2)}, "deadlines: expected ascending slacks, got 3,2"),
    ({"tenants": -1}, "tenants: expected a number of at least 0, got -1"),
    ({"tenants": 1001}, "tenants: expected a number of at most 1,000, got 1001"),
    ({"weights": (1, 0)}, "weights[1]: expected a number of at least 1e-09, got 0"),
)
def test_what_cannot_be_drawn(values: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        AttributeDistribution(**values)
    assert str(caught.value) == message


@given(st.lists(job_attributes(), min_size=1, max_size=4))
def test_arrays_are_those_of_the_attributes(attributes: list[JobAttributes]) -> None:
    jobs = sequence(*attributes)
    assert jobs.weight.tolist() == [each.weight for each in attributes]
    named = [jobs.tenants[place].name for place in jobs.tenant] if jobs.tenants else ["default"] * len(jobs)
    assert named == [each.tenant for each in attributes]
