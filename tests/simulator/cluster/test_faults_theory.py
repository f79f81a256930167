"""Faults compared with queueing theory: breakdowns, failures and stragglers."""

import math

import numpy as np
import pytest

from decima.schedulers import Fifo
from simulator import ClusterConfig, EpisodeRecord, Faults, run_episode
from tests.simulator.cluster.build import job, stage
from tests.simulator.cluster.test_queueing import (
    COMPILED,
    MEAN_SERVICE_MS,
    NUM_JOBS,
    NUM_QUANTILES,
    REPLICATIONS,
    WARM_UP,
    assert_mean,
)
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations


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
    available = np.array([record.capacity_ms / record.observed_ms / servers for record in records])
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
