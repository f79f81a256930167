"""One seed gives one trajectory; task noise is the same for all schedulers (common random numbers)."""

import hashlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from simpy.events import Event

from decima.schedulers import Fair, Fifo, RandomChoice, Scheduler, SjfCp
from simulator import DECIMA_SIM, PAPER, ClusterConfig, EpisodeRecord, SchedulingError, Semantics, run_episode
from tests.simulator.cluster.driver import Driver, assert_same
from tests.simulator.cluster.strategies import MANY, clusters, faulty_clusters, idleness, seeds
from tests.workloads.strategies import job_sequences
from workloads import JobSequence, poisson_arrivals, synthetic_profiles

#: Program for a process of its own that prints the fingerprint of an episode.
PROGRAM = """
from tests.simulator.cluster.test_determinism import Fair, episode, fingerprint
print(fingerprint(episode(Fair())))
"""


def sequence(seed: int) -> JobSequence:
    return poisson_arrivals(synthetic_profiles(10), 5, mean_interval_ms=20_000, seed=seed)


def episode(scheduler: Scheduler, seed: int = 7, semantics: Semantics = PAPER) -> EpisodeRecord:
    return run_episode(ClusterConfig(num_executors=20, semantics=semantics), sequence(seed), scheduler)


def fingerprint(record: EpisodeRecord) -> str:
    """Return a hash of the whole episode, bit for bit."""
    tables = b"".join(table.to_numpy().tobytes() for table in (record.tasks(), record.moves()))
    return hashlib.sha256(tables + record.completion_ms.tobytes()).hexdigest()


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
@pytest.mark.parametrize("scheduler", [Fair, Fifo, SjfCp, RandomChoice])
def test_one_seed_is_one_episode(scheduler: type[Scheduler], semantics: Semantics) -> None:
    same = scheduler()
    assert len({fingerprint(episode(each, semantics=semantics)) for each in (same, scheduler(), same)}) == 1


def test_one_seed_is_one_episode_and_another_another() -> None:
    root = Path(__file__).resolve().parents[3]
    other = subprocess.check_output([sys.executable, "-c", PROGRAM], cwd=root, text=True)
    assert other.strip() == fingerprint(episode(Fair()))
    assert fingerprint(episode(Fair(), seed=7)) != fingerprint(episode(Fair(), seed=8))
    same_jobs = JobSequence(sequence(7).profiles, sequence(7).arrival_ms, seed=8)
    config = ClusterConfig(num_executors=20)
    other = run_episode(config, same_jobs, Fair())
    assert np.mean(episode(Fair()).task_finish_ms == other.task_finish_ms) < 0.1


#: Times that a process waits, in turn, ms; with the delays of clusters, many of its events coincide with others.
waits = st.lists(st.sampled_from((0.0, 0.37, 1.0, 2.0, 100.0, 1000.0, 3000.0)), min_size=1, max_size=4).filter(any)


@MANY
@given(
    st.one_of(clusters(), clusters(max_time=True), faulty_clusters()), job_sequences(), seeds, idleness, waits, seeds
)
def test_a_process_that_wakes_at_odd_times_changes_nothing(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float, waits: list[float], begin: int
) -> None:
    """Without the process, compiled code runs from decision to decision; with it, to each of its events."""
    longest_ms = max(stage.durations.values.max() for job in sequence.profiles for stage in job.stages)
    assume(config.faults.executor_lifetime_ms > 2 * longest_ms)  # else hardly any task completes
    alone, beside = Driver(config, sequence, seed, idle), Driver(config, sequence, seed, idle)
    woken = []

    def wake_up() -> Iterator[Event]:
        for wait in itertools.cycle(waits):
            woken.append(beside.cluster.clock.now)
            assume(len(woken) < 1000)
            yield beside.cluster.clock.timeout(wait)

    outcomes = []
    for driver in (alone, beside):
        try:
            driver.begin()
            driver.go_on(begin % 5)
            if driver is beside:
                driver.cluster.clock.process(wake_up())
            driver.go_on()
            outcomes.append("complete")
        except SchedulingError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert alone.rewards == beside.rewards
    assert_same(alone.cluster.record(), beside.cluster.record())
    assert woken == sorted(woken)
    assert not woken or woken[-1] <= beside.cluster.clock.now
