"""A fork continues like its original, or has another future; the original does not change."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from simpy.events import Event

from decima.schedulers import Fair
from simulator import Cluster, ClusterConfig, EpisodeRecord, ReferenceCluster, SchedulingError
from simulator.cluster.draws import duration_ms
from simulator.cluster.parity import Recording, differences
from simulator.parity import read_recording
from tests.simulator.cluster.build import finish, give, job, jobs, stage
from tests.simulator.cluster.driver import Both, Driver, assert_same
from tests.simulator.cluster.strategies import MANY, clusters, idleness, seeds
from tests.workloads.strategies import job_sequences
from workloads import poisson_arrivals, synthetic_profiles
from workloads.arrivals import JobSequence, task_noise
from workloads.job import StageProfile, TaskDurations, Wave, WorkloadError

anywhere = st.one_of(clusters(), clusters(max_time=True))
moments = st.integers(0, 40)
BOTH = pytest.mark.parametrize("engine", [Cluster, ReferenceCluster])


def outcome(driver: Driver) -> EpisodeRecord | str:
    """Return the result of an episode: its record, or the error of a stalled cluster."""
    try:
        driver.go_on()
    except SchedulingError as error:
        return str(error)
    return driver.cluster.record()


def same(one: EpisodeRecord | str, other: EpisodeRecord | str) -> None:
    if isinstance(one, str):
        assert one == other
    else:
        assert_same(one, other)


def until(driver: Driver, decisions: int) -> Driver:
    """Start an episode, and make this number of decisions if it is long enough."""
    driver.begin()
    with suppress(SchedulingError):  # the cluster stalls
        driver.go_on(decisions)
    return driver


@MANY
@given(anywhere, job_sequences(), seeds, idleness, moments, st.booleans())
def test_a_fork_has_the_future_of_its_original(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float, moment: int, fork_first: bool
) -> None:
    """Fork and original may continue in either order; ``Both`` compares the engines after every decision."""
    driver = until(Driver(config, sequence, seed, idle, make=Both), moment)
    driver.rewards.clear()
    fork = driver.fork()
    outcomes = [outcome(each) for each in ((fork, driver) if fork_first else (driver, fork))]
    same(*outcomes)
    assert fork.rewards == driver.rewards


@MANY
@given(st.one_of(anywhere, clusters(errors=True)), job_sequences(), seeds, idleness, moments, seeds, st.booleans())
def test_both_engines_fork_to_the_same_other_future(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float, moment: int, futures: int, arrivals: bool
) -> None:
    """A fork of a fork: the past is the same, and the original keeps its future."""
    driver = until(Driver(config, sequence, seed, idle, make=Both), moment)
    now, before, original = driver.cluster.clock.now, driver.cluster.record(), driver.fork()
    fork = driver.fork(futures, arrivals=arrivals)
    forked = fork.cluster.record()
    assert_same(replace(forked, task_finish_ms=before.task_finish_ms), before)
    over = before.task_finish_ms <= now
    assert forked.task_finish_ms[over].tolist() == before.task_finish_ms[over].tolist()
    assert (forked.task_finish_ms[~over & np.isfinite(before.task_finish_ms)] > now).all()
    if config.knowledge.is_exact:
        check_noise(forked, now, futures)
    third = fork.fork(futures + 1)
    again = third.fork()
    same(outcome(third), outcome(again))
    outcome(fork)
    if config.knowledge.is_exact:
        check_noise(fork.cluster.record(), now, futures)
    if not arrivals:
        late = sequence.arrival_ms > now
        assert np.isnan(fork.cluster.completion_ms[late]).all()
    same(outcome(original), outcome(driver))


def check_noise(record: EpisodeRecord, since_ms: float, seed: int) -> None:
    """Check that every task that started later has the duration given by the tables of its stage and this seed."""
    noise = np.concatenate(
        [task_noise(seed, job, profile.num_tasks) for job, profile in enumerate(record.sequence.profiles)], axis=1
    )
    stages = [each for profile in record.sequence.profiles for each in profile.stages for _ in range(each.num_tasks)]
    for task in np.flatnonzero(record.task_start_ms > since_ms).tolist():
        run = Wave(int(record.task_wave[task])), int(record.task_parallelism[task])
        expected = duration_ms(record.config, stages[task].durations, *run, *noise[:, task].tolist())
        assert record.task_finish_ms[task] == record.task_start_ms[task] + expected


@given(clusters(), job_sequences(), seeds, seeds)
@MANY
def test_another_future_from_the_beginning_is_that_of_a_sequence_with_its_seed(
    config: ClusterConfig, sequence: JobSequence, seed: int, futures: int
) -> None:
    driver = Driver(config, sequence, seed)
    other = Driver(config, replace(sequence, seed=futures), seed)
    driver.begin()
    other.begin()
    fork = driver.fork(futures)
    outcomes = outcome(fork), outcome(other)
    assert fork.rewards == other.rewards
    if not isinstance(outcomes[0], str):
        assert_same(replace(outcomes[0], sequence=other.sequence), outcomes[1])


@given(anywhere, job_sequences(), seeds, moments, st.none() | seeds)
@MANY
def test_a_fork_without_the_log_goes_the_same_way(
    config: ClusterConfig, sequence: JobSequence, seed: int, moment: int, futures: int | None
) -> None:
    driver = until(Driver(config, sequence, seed), moment)
    driver.rewards.clear()
    bare = driver.fork(futures, log=False)
    twin, whole = bare.fork(), driver.fork(futures)
    for each in (bare, twin, whole):
        with suppress(SchedulingError):  # the cluster stalls
            each.go_on()
    assert bare.rewards == twin.rewards == whole.rewards
    completed = [each.cluster.completion_ms.tobytes() for each in (bare, twin, whole)]
    assert completed == [completed[0]] * 3
    for each in (bare, twin):
        with pytest.raises(SchedulingError, match="forked without the log of its tasks: there is no record"):
            each.cluster.record()


@BOTH
def test_a_fork_keeps_executors_with_their_job_as_its_original_does(engine: type[Cluster]) -> None:
    config, scheduler = ClusterConfig(20), Fair()
    sequence = poisson_arrivals(synthetic_profiles(6), 4, 5000, seed=2)
    scheduler.reset(config)
    cluster = engine(config, sequence)
    cluster.keeps_executors, forks = True, []
    for number in itertools.count():
        if number % 9 == 3:
            forks.append(cluster.fork())
        if cluster.done:
            break
        seen = cluster.observe()
        cluster.decide(scheduler.decide(seen) if seen.num_schedulable else None)
    assert len(forks) > 1
    for fork in forks:
        assert_same(finish(fork, scheduler.decide)[0], cluster.record())


def running(engine: type[Cluster], durations: TaskDurations, first: int = 1, **settings: Any) -> Cluster:
    """Return the cluster at 15 ms: ``first`` executors run tasks that started at 0, and another job arrives."""
    config = ClusterConfig(first + 1, moving_delay_ms=0.0, **settings)
    cluster = engine(config, jobs(job(StageProfile(first, durations)), job(stage(1, 1.0)), at=[0.0, 15.0]))
    cluster.decide(give(cluster.observe(), 0, first))
    cluster.decide(None)
    assert cluster.clock.now == 15.0
    return cluster


def finish_ms(cluster: Cluster, task: int = 0) -> float:
    """Return the finish time of a task, ms."""
    return float(finish(cluster)[0].task_finish_ms[task])


@BOTH
def test_running_tasks_keep_what_was_drawn_of_the_level_that_they_are_of(engine: type[Cluster]) -> None:
    cluster = running(engine, TaskDurations.sampled([10.0, 15.0, 16.0, 40.0, 40.0]))
    finished = Counter(finish_ms(cluster.fork(futures)) for futures in range(300))
    assert finished.keys() == {16.0, 40.0}
    assert finished[40.0] == pytest.approx(200, abs=30)
    durations = TaskDurations.from_tables({}, {1: [4.0, 6.0, 7.0]}, {1: [1.0]})
    cluster = running(engine, durations, warmup_delay_ms=10.0)
    assert {finish_ms(cluster.fork(futures)) for futures in range(40)} == {16.0, 17.0}
    cluster = running(engine, TaskDurations.sampled([10.0, 20.0, 30.0, 40.0, 50.0]))
    first = [cluster.fork(futures) for futures in range(10)]
    second = [fork.fork() for fork in first]
    finished = [finish_ms(fork) for fork in first]
    assert len(set(finished)) > 1
    assert [finish_ms(fork) for fork in second] == finished
    # The second task is of level 1 or 3 with equal probability; half of the tasks of level 1 would have ended.
    table = {1: [10.0, 50.0], 3: [30.0]}
    cluster = running(engine, TaskDurations.from_tables(table, table, table), first=2)
    assert cluster.record().task_parallelism[:2].tolist() == [1, 2]
    finished = Counter(finish_ms(cluster.fork(futures), task=1) for futures in range(300))
    assert finished.keys() == {30.0, 50.0}
    assert finished[30.0] == pytest.approx(200, abs=30)


def test_a_cluster_with_processes_of_your_own_is_not_forked() -> None:
    cluster = Cluster(ClusterConfig(1), jobs(job(stage(1, 1.0))))

    def wait() -> Iterator[Event]:
        yield cluster.clock.timeout(5.0)

    cluster.clock.process(wait())
    with pytest.raises(SchedulingError, match="cannot be forked: processes of your own wait on its clock"):
        cluster.fork()


@BOTH
@pytest.mark.parametrize("futures", [-1, 0.5, "1"])
def test_futures_are_a_seed(engine: type[Cluster], futures: Any) -> None:
    with pytest.raises(WorkloadError, match="seed"):
        engine(ClusterConfig(1), jobs(job(stage(1, 1.0)))).fork(futures)


def recorded(shared: Callable[[str], Path], every: int) -> None:
    """Check that recorded episodes match when they continue on a fork from a random decision."""
    paths = sorted(shared("parity/decima-sim").glob("*.json.gz"))
    assert len(paths) == 97
    random = np.random.default_rng(3)
    for path in paths[::every]:
        recording = read_recording(path)
        assert isinstance(recording, Recording)
        moment = int(random.integers(len(recording.decisions)))
        for engine in ("compiled", "simpy"):
            assert list(differences(recording, engine=engine, fork_at=moment)) == [], path.name


def test_some_recorded_episodes_go_on_on_a_fork(shared: Callable[[str], Path]) -> None:
    recorded(shared, 16)


@pytest.mark.slow
def test_all_recorded_episodes_go_on_on_a_fork(shared: Callable[[str], Path]) -> None:
    recorded(shared, 1)
