"""Queueing theory: M/M/c, other queues, and servers that break down."""

import math
from collections.abc import Callable
from functools import cache
from heapq import heapify, heapreplace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from decima.schedulers import Fair, Fifo, RandomChoice, Scheduler, SjfCp
from simulator import ClusterConfig, EpisodeRecord, ExecutorClass, Faults, run_episode
from simulator.cluster.metrics import EpisodeMetrics
from tests.simulator.cluster.build import Greedy, chain, job, jobs, runs, stage
from tests.workloads.strategies import job_sequences
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations

Times = NDArray[np.float64]

COMPILED = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="means over many jobs take too long as plain Python")

#: Number of first jobs of each replication that are left out, as the queue is still short.
NUM_JOBS, WARM_UP, REPLICATIONS = 2000, 400, 12
MEAN_SERVICE_MS = 1000.0

#: Two-sided 99 % quantile of Student's t with 11 degrees of freedom.
STUDENT_T = 3.106

#: Number of equally likely durations that represent the exponential distribution.
NUM_QUANTILES = 2000


@cache
def customer(service_ms: float) -> JobProfile:
    """Return a job of one task."""
    return job(stage(1, service_ms))


def queue(arrival_ms: Times, service_ms: Times, servers: int, scheduler: Scheduler) -> EpisodeRecord:
    """Return one job of one task per customer; executors have no moving delay."""
    sequence = JobSequence(tuple(customer(duration) for duration in service_ms.tolist()), arrival_ms)
    return run_episode(ClusterConfig(num_executors=servers, moving_delay_ms=0.0), sequence, scheduler)


def first_come_first_served(arrival_ms: Times, service_ms: Times, servers: int) -> Times:
    """Return waiting times of a queue, by Kiefer and Wolfowitz: each customer takes the server that is free first."""
    free_ms = [0.0] * servers
    heapify(free_ms)
    waiting = []
    for arrival, service in zip(arrival_ms.tolist(), service_ms.tolist(), strict=True):
        begin = max(arrival, free_ms[0])
        heapreplace(free_ms, begin + service)
        waiting.append(begin - arrival)
    return np.array(waiting)


def erlang_c_wait_ms(load: float, servers: int) -> float:
    """Mean waiting time of M/M/c: C(c, a) / (c mu - lambda)."""
    offered = load * servers
    busy = offered**servers / math.factorial(servers) / (1 - load)
    idle = sum(offered**number / math.factorial(number) for number in range(servers))
    return busy / (busy + idle) * MEAN_SERVICE_MS / (servers * (1 - load))


def exponential(random: np.random.Generator) -> Times:
    rank = random.integers(NUM_QUANTILES, size=NUM_JOBS)
    return -MEAN_SERVICE_MS * np.log1p(-(rank + 0.5) / NUM_QUANTILES)


def constant(random: np.random.Generator) -> Times:
    return np.full(NUM_JOBS, MEAN_SERVICE_MS)


def mean_waits_ms(
    load: float, servers: int, service: Callable[[np.random.Generator], Times], scheduler: Scheduler
) -> Times:
    """Return the mean waiting time of independent replications."""
    means = []
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([replication, servers, round(100 * load)])
        arrival_ms = np.cumsum(random.exponential(MEAN_SERVICE_MS / servers / load, NUM_JOBS))
        record = queue(arrival_ms, service(random), servers, scheduler)
        means.append((record.task_start_ms - arrival_ms)[WARM_UP:].mean())
    return np.array(means)


def assert_mean(values: Times, expected: float) -> None:
    """Assert that the mean lies in the confidence interval, which must be narrow."""
    half_width = STUDENT_T * values.std(ddof=1) / math.sqrt(values.size)
    assert values.mean() == pytest.approx(expected, abs=half_width)
    assert half_width < 0.4 * expected


@COMPILED
@pytest.mark.parametrize(("load", "servers"), [(0.8, 1), (0.7, 4)])
def test_single_task_jobs_under_fifo_wait_as_long_as_erlang_says(load: float, servers: int) -> None:
    assert_mean(mean_waits_ms(load, servers, exponential, Fifo()), erlang_c_wait_ms(load, servers))


def test_erlang_c_agrees_with_the_single_server() -> None:
    """M/M/1: rho / (1 - rho) mean service times; and M/M/2 by its own closed form."""
    assert erlang_c_wait_ms(0.8, 1) == pytest.approx(4 * MEAN_SERVICE_MS)
    assert erlang_c_wait_ms(0.6, 2) == pytest.approx(0.36 / 0.64 * MEAN_SERVICE_MS)


@COMPILED
def test_tasks_of_one_length_wait_half_as_long_on_one_executor() -> None:
    """M/D/1: rho / (2 (1 - rho)) service times (Pollaczek and Khinchine)."""
    load = 0.6
    expected = load / (2 * (1 - load)) * MEAN_SERVICE_MS
    assert_mean(mean_waits_ms(load, 1, constant, Fifo()), expected)


@pytest.mark.parametrize("servers", [1, 2, 7])
@pytest.mark.parametrize("service", [exponential, constant])
def test_every_single_customer_of_a_fifo_queue_waits_exactly_as_long_as_it_must(
    service: Callable[[np.random.Generator], Times], servers: int
) -> None:
    random = np.random.default_rng(servers)
    # Whole ms: sums are exact, and some jobs arrive together.
    service_ms = np.ceil(service(random))[:1000]
    arrival_ms = np.floor(np.cumsum(random.exponential(1100.0 / servers, 1000)) / 100) * 100
    record = queue(arrival_ms, service_ms, servers, Fifo())
    expected = first_come_first_served(arrival_ms, service_ms, servers)
    assert (record.task_start_ms - arrival_ms).tolist() == expected.tolist()
    assert record.jct_ms.tolist() == (expected + service_ms).tolist()


@settings(deadline=None, max_examples=40, derandomize=True)
@given(job_sequences())
def test_littles_law_holds_in_every_episode(sequence: JobSequence) -> None:
    """The area below the number of jobs in the system is the sum of their times in the system."""
    classes = (ExecutorClass(3, cpu=4.0, memory=4.0),)
    for scheduler in (Fifo(), Fair(), SjfCp(), RandomChoice()):
        record = run_episode(ClusterConfig(executor_classes=classes, moving_delay_ms=10.0), sequence, scheduler)
        steps = record.jobs_in_system()
        area = float((np.diff(steps.index.to_numpy()) * steps.to_numpy()[:-1]).sum())
        assert steps.iloc[-1] == 0
        assert area == pytest.approx(record.jct_ms.sum(), rel=1e-9, abs=1e-6)
        observed = EpisodeMetrics(record).observed_ms
        if observed > 0:
            rate = len(sequence) / observed
            assert EpisodeMetrics(record).mean_jobs_in_system == pytest.approx(rate * record.mean_jct_ms, rel=1e-9)


WAVES = {"first_ms": 20.0, "fresh_ms": 300.0}


def schedule(profile: JobProfile, executors: int = 1, moving_delay_ms: float = 50.0) -> list[tuple[int, ...]]:
    """Return (stage, executor, start, finish) of all tasks of a job, in order of start."""
    config = ClusterConfig(num_executors=executors, moving_delay_ms=moving_delay_ms)
    record = run_episode(config, jobs(profile), Greedy())
    rows = [(number, executor, int(a), int(b)) for _, number, _, executor, a, b in runs(record)]
    return sorted(rows, key=lambda row: (row[2], row[3]))


def test_schedules_of_a_chain_and_a_diamond() -> None:
    profile = chain(stage(3, 10.0, **WAVES), stage(2, 7.0, first_ms=9.0, fresh_ms=30.0))
    assert schedule(profile) == [
        (0, 0, 50, 350), (0, 0, 350, 360), (0, 0, 360, 370), (1, 0, 370, 379), (1, 0, 379, 386),
    ]  # fmt: skip
    # The second executor, sent ahead to stage 1, finds it closed and waits; both sides start at once.
    diamond = job(
        stage(1, 100.0), stage(1, 30.0), stage(1, 80.0), stage(2, 5.0), edges=[(0, 1), (0, 2), (1, 3), (2, 3)]
    )
    assert schedule(diamond, executors=2) == [
        (0, 0, 50, 150), (1, 1, 150, 180), (2, 0, 150, 230), (3, 1, 230, 235), (3, 0, 230, 235),
    ]  # fmt: skip


def test_an_executor_pays_the_moving_delay_for_each_job_that_it_goes_to() -> None:
    config = ClusterConfig(num_executors=1, moving_delay_ms=2000.0)
    sequence = jobs(job(stage(2, 100.0)), job(stage(1, 30.0)), job(stage(1, 5.0)), at=[0.0, 10.0, 9000.0])
    record = run_episode(config, sequence, Fifo())
    assert runs(record) == [
        (0, 0, 0, 0, 2000.0, 2100.0),
        (0, 0, 1, 0, 2100.0, 2200.0),
        (1, 0, 0, 0, 4200.0, 4230.0),
        (2, 0, 0, 0, 11_000.0, 11_005.0),
    ]
    assert record.jct_ms.tolist() == [2200.0, 4220.0, 2005.0]
    assert record.moves()["depart_ms"].tolist() == [0.0, 2200.0, 9000.0]


def mean_times_ms(profile: JobProfile, executors: int, faults: Faults, interval_ms: float) -> list[EpisodeRecord]:
    """Return results of independent replications of a queue of such jobs."""
    records = []
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([replication, executors])
        arrival_ms = np.cumsum(random.exponential(interval_ms, NUM_JOBS))
        config = ClusterConfig(executors, moving_delay_ms=0.0, faults=faults)
        records.append(run_episode(config, JobSequence((profile,) * NUM_JOBS, arrival_ms, replication), Fifo()))
    return records


def mean_jobs_with_breakdowns(arrivals: float, servers: int, loss: float, repair: float, most: int) -> float:
    """Return the mean number of jobs in M/M/k whose servers break down and are repaired; the service rate is 1."""
    up = np.arange(servers + 1)
    jobs = np.arange(most + 1)[:, None]
    rates = np.zeros((most + 1, servers + 1, most + 1, servers + 1))
    number, server = np.indices((most + 1, servers + 1))
    rates[number[:-1], server[:-1], number[1:], server[1:]] = arrivals
    rates[number[1:], server[1:], number[:-1], server[:-1]] = np.minimum(jobs, up)[1:]
    rates[number[:, 1:], server[:, 1:], number[:, :-1], server[:, :-1]] = loss * up[1:]
    rates[number[:, :-1], server[:, :-1], number[:, 1:], server[:, 1:]] = repair * (servers - up)[:-1]
    balance = rates.reshape(number.size, number.size).T.copy()
    balance -= np.diag(balance.sum(axis=0))
    balance[0] = 1.0
    shares = np.linalg.solve(balance, np.eye(number.size)[0])
    return float(shares @ number.ravel())


def test_one_server_has_a_closed_form() -> None:
    """The formula is by White and Christie (1958)."""
    arrivals, loss, repair = 0.4, 0.2, 0.5
    both = loss + repair
    expected = arrivals * (both**2 + loss) / (both * (repair - arrivals * both))
    found = mean_jobs_with_breakdowns(arrivals, 1, loss, repair, most=150)
    assert found == pytest.approx(expected, rel=1e-6)


@COMPILED
def test_executors_that_are_lost_serve_as_long_as_theory_says() -> None:
    """By Little's law; a task that restarts takes another exponential time."""
    servers, loss, repair = 3, 0.2, 0.5
    arrivals = 0.55 * servers * repair / (loss + repair)
    quantiles = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
    exponential = TaskDurations.sampled(-MEAN_SERVICE_MS * np.log1p(-quantiles))
    faults = Faults(executor_lifetime_ms=MEAN_SERVICE_MS / loss, executor_return_ms=MEAN_SERVICE_MS / repair)
    records = mean_times_ms(job(StageProfile(1, exponential)), servers, faults, MEAN_SERVICE_MS / arrivals)
    mean_jobs = mean_jobs_with_breakdowns(arrivals, servers, loss, repair, most=150)
    assert_mean(
        np.array([record.jct_ms[WARM_UP:].mean() for record in records]), mean_jobs / arrivals * MEAN_SERVICE_MS
    )
    measured = [EpisodeMetrics(record) for record in records]
    available = np.array([metrics.capacity_ms / metrics.observed_ms / servers for metrics in measured])
    assert available.mean() == pytest.approx(repair / (loss + repair), rel=0.03)


@COMPILED
def test_failures_and_stragglers_lengthen_service_as_theory_says() -> None:
    """M/G/1 by Pollaczek and Khinchine: the service of a job is the sum of its attempts, at most four."""
    fails, (slow, factor) = 0.3, (0.2, 3.0)
    first = MEAN_SERVICE_MS * (1 - slow + slow * factor)
    second = MEAN_SERVICE_MS**2 * (1 - slow + slow * factor**2)
    chances = [fails**runs * (1 - fails) for runs in range(3)] + [fails**3]
    mean_ms = sum(chance * runs * first for runs, chance in enumerate(chances, 1))
    square = sum(chance * (runs * second + runs * (runs - 1) * first**2) for runs, chance in enumerate(chances, 1))
    interval_ms = mean_ms / 0.6
    expected = square / interval_ms / (2 * (1 - 0.6)) + mean_ms
    faults = Faults(task_failures=fails, stragglers=(slow, factor))
    records = mean_times_ms(job(stage(1, MEAN_SERVICE_MS)), 1, faults, interval_ms)
    means = []
    for record in records:
        end_ms = record.completion_ms.copy()
        end_ms[record.failed_job] = record.failed_ms
        means.append((end_ms - record.sequence.arrival_ms)[WARM_UP:].mean())
    assert_mean(np.array(means), expected)
    failed, jobs = sum(record.failed_job.size for record in records), NUM_JOBS * REPLICATIONS
    assert failed == pytest.approx(jobs * fails**4, abs=4 * math.sqrt(jobs * fails**4))
