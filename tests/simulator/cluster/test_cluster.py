"""Public interface of the cluster: decisions, observations, errors, executor classes, other processes on the clock."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from simpy.core import EmptySchedule
from simpy.events import Event

from decima.schedulers import Fifo
from simulator import (
    DECIMA_SIM,
    PAPER,
    Cluster,
    ClusterConfig,
    ConfigError,
    Decision,
    ExecutorClass,
    Observation,
    SchedulingError,
    Semantics,
    run_episode,
)
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.parity import commit
from tests.cases import cases
from tests.simulator.cluster.build import Greedy, chain, finish, give, greedy, job, jobs, runs, stage
from tests.simulator.cluster.driver import assert_same

BOTH = pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])


def cluster(executors: int, *profiles: Any, at: list[float] | None = None, **settings: Any) -> Cluster:
    """Return a cluster, by default without moving delay."""
    config = ClusterConfig(executors, **{"moving_delay_ms": 0.0, **settings})
    return Cluster(config, jobs(*profiles, at=at))


def everything(cluster: Cluster) -> list[bytes]:
    """Return the whole compiled state, and the open round."""
    state = [part.tobytes() for part in cluster._memory]
    return [*state, repr((cluster.offered, cluster.acting, cluster.source, cluster.clock.now)).encode()]


@cases(
    "decision, message",
    (Decision(-1, 5), "there is no stage -1: the observation has 3"),
    (Decision(3, 5), "there is no stage 3: the observation has 3"),
    (Decision(2, 5), "stage 2 is not schedulable"),
    (Decision(0, 0), "the limit must exceed the 0 executors that the job holds, got 0"),
    (Decision(0, -7), "the limit must exceed the 0 executors that the job holds, got -7"),
    (Decision(0, 2.5), "a decision is a stage and a limit, all of them whole numbers, got 0, 2.5"),
    (Decision(0, math.nan), "a decision is a stage and a limit, all of them whole numbers, got 0, nan"),
    (Decision(0.0, 2), "a decision is a stage and a limit, all of them whole numbers, got 0.0, 2"),
)
def test_a_decision_that_cannot_be_carried_out_is_refused_and_changes_nothing(decision: Decision, message: str) -> None:
    # Stage 2 needs stage 1, whose tasks are unclaimed.
    subject = cluster(3, job(stage(2, 10.0), stage(2, 10.0), stage(1, 10.0), edges=[(1, 2)]))
    subject.observe()
    before = everything(subject)
    with pytest.raises(SchedulingError, match=f"^{message}$"):
        subject.decide(decision)
    assert everything(subject) == before
    record, _ = finish(subject)
    assert np.isfinite(record.completion_ms).all()


@cases(
    "job_number, stage_number, count, message",
    (0, 2, 1, "there is no stage 2 of job 0"),
    (0, -1, 1, "there is no stage -1 of job 0"),
    (-1, 0, 1, "job -1 is not in the system"),
    (2, 0, 1, "job 2 is not in the system"),
    (0, 0, 0, "0 executors requested, 3 offered"),
    (0, 0, -1, "-1 executors requested, 3 offered"),
    (0, 0, 4, "4 executors requested, 3 offered"),
    (0, 1, 1, "stage 1 of job 0 is not schedulable"),
    (1, 0, 1, "job 1 is not in the system"),
)
def test_a_commitment_that_cannot_be_made_is_refused_and_changes_nothing(
    job_number: int, stage_number: int, count: int, message: str
) -> None:
    # Job 1 has not arrived.
    subject = cluster(3, chain(stage(2, 10.0), stage(1, 10.0)), job(stage(1, 10.0)), at=[0.0, 50.0])
    subject.observe()
    before = everything(subject)
    with pytest.raises(SchedulingError, match=f"^{message}$"):
        commit(subject, job_number, stage_number, count)
    assert everything(subject) == before
    finish(subject)


def test_stages_are_chosen_once_and_the_last_call_may_be_answered() -> None:
    subject = cluster(3, job(stage(5, 10.0), stage(5, 10.0)))
    subject.decide(Decision(0, np.int64(1)))
    assert subject.offered == 2
    assert subject.observe().schedulable.tolist() == [False, True]
    with pytest.raises(SchedulingError, match=r"^stage 0 is not schedulable$"):
        subject.decide(Decision(0, 5))
    subject.decide(Decision(1, 3))
    # In the next round, when the second executor of stage 1 becomes idle, the stage can be chosen again.
    assert subject.clock.now == 20.0
    assert subject.observe().schedulable.tolist() == [True, False]
    subject = cluster(2, job(stage(1, 10.0)))
    assert not subject.last_call
    subject.decide(None)
    assert subject.last_call
    subject.decide(greedy(subject.observe()))
    assert not subject.last_call
    finish(subject)
    assert subject.record().completion_ms.tolist() == [10.0]
    record, rewards = finish(cluster(2, job(stage(1, 10.0)), max_time_ms=300.0), lambda _: None)
    assert record.end_ms == 300.0
    assert sum(rewards) == pytest.approx(-0.003)
    assert np.isnan(record.completion_ms).all()


@BOTH
def test_after_the_end_or_standing_still_there_is_nothing_to_decide(semantics: Semantics) -> None:
    subject = cluster(2, job(stage(1, 10.0)), semantics=semantics)
    finish(subject)
    assert subject.done
    for ask in (subject.observe, lambda: subject.decide(None), lambda: subject.decide(Decision(0, 1))):
        with pytest.raises(SchedulingError, match=r"^the episode is over: there is nothing to decide$"):
            ask()
    with pytest.raises(SchedulingError):
        commit(subject, 0, 0, 1)
    assert subject.record().end_ms == 10.0
    subject = cluster(2, job(stage(1, 10.0)), semantics=semantics)
    if semantics == PAPER:
        subject.decide(None)
    with pytest.raises(SchedulingError, match="all executors are idle"):
        subject.decide(None)
    for decision in (None, Decision(0, 1)):
        with pytest.raises(SchedulingError):
            subject.decide(decision)
    with pytest.raises(SchedulingError):
        commit(subject, 0, 0, 1)
    with pytest.raises(SchedulingError):
        subject.observe()
    assert np.isnan(subject.record().completion_ms).all()


@BOTH
def test_a_scheduler_that_idles_for_ever_is_an_error(semantics: Semantics) -> None:
    subject = cluster(2, job(stage(1, 10.0)), job(stage(1, 10.0)), at=[0.0, 500.0], semantics=semantics)
    asked = []

    def idle_for_ever() -> None:
        while True:
            asked.append((subject.clock.now, subject.last_call))
            subject.decide(None)

    with pytest.raises(SchedulingError) as error:
        idle_for_ever()
    assert str(error.value) == "all executors are idle and nothing is pending, but 2 jobs are not complete"
    assert set(asked) == {(0.0, False), (500.0, False)} | ({(500.0, True)} if semantics == PAPER else set())
    assert asked[-1] == (500.0, semantics == PAPER)


def test_episodes_wait_in_vain_and_large_clusters_end() -> None:
    # Executor 1 departs for job 0 at 55 ms; executor 0 takes the last task before executor 1 arrives at 105 ms.
    profiles = job(stage(3, 10.0)), job(stage(1, 5.0))
    subject = cluster(2, *profiles, moving_delay_ms=50.0, reward="makespan", reward_scale_ms=1.0)
    rewards = []
    for decision in (Decision(0, 1), Decision(1, 1)):
        subject.decide(decision)
        rewards.append(subject.reward())
    record, more = finish(subject)
    assert record.completion_ms.tolist() == [80.0, 55.0]
    assert record.moves()["depart_ms"].tolist() == [0.0, 0.0, 55.0]
    assert record.end_ms == 105.0
    assert sum([*rewards, *more]) == -105.0
    # A thousand executors run 40,000 tasks of 100 ms; the last task ends as soon as possible.
    profile = chain(stage(20_000, 100.0), stage(20_000, 100.0))
    record = run_episode(ClusterConfig(num_executors=1000), jobs(profile), Fifo())
    assert record.completion_ms.tolist() == [2000.0 + 2 * 20 * 100.0]
    assert EpisodeMetrics(record).utilisation == pytest.approx(4000 / 6000)


@cases(
    "settings, message",
    *(({"num_executors": count}, f"num_executors: expected a number of at least 1, got {count}") for count in (0, -3)),
    *(({"num_executors": count}, f"num_executors: expected a whole number, got {count}") for count in (2.5, True)),
    ({"warmup_delay_ms": -0.5}, "warmup_delay_ms: expected a number of at least 0, got -0.5"),
    ({"moving_delay_ms": -1.0}, "moving_delay_ms: expected a number of at least 0, got -1.0"),
    ({"moving_delay_ms": math.nan}, "moving_delay_ms: expected a number of at least 0, got nan"),
    ({"moving_delay_ms": math.inf}, "moving_delay_ms: expected a number of at most 10,000,000,000,000, got inf"),
    ({"max_time_ms": 0.0}, "max_time_ms: expected a number above 0, got 0.0"),
    ({"max_time_ms": math.nan}, "max_time_ms: expected a number above 0, got nan"),
    ({"reward_scale_ms": 0.0}, "reward_scale_ms: expected a number above 0, got 0.0"),
    ({"reward_scale_ms": math.inf}, "reward_scale_ms: expected a finite number, got inf"),
    ({"reward": "speed"},
     "reward 'speed': unknown objective 'speed', expected jct, mean, makespan, weighted, power-mean:NUMBER, "
     "deadline:NUMBER, misses:NUMBER, fairness, carbon[:FILE], module:Class, or a sum of these"),
)  # fmt: skip
def test_a_cluster_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        ClusterConfig(**settings)
    assert str(error.value) == message


@cases(
    "settings, message",
    ({"count": 0}, "count: expected a number of at least 1, got 0"),
    ({"cpu": -1.0}, "cpu: expected a number of at least 0, got -1.0"),
    ({"memory": math.nan}, "memory: expected a number of at least 0, got nan"),
)
def test_executors_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        ExecutorClass(**{"count": 1, **settings})
    assert str(error.value) == message


def test_classes_count_and_a_stage_must_fit_one() -> None:
    config = ClusterConfig(executor_classes=(ExecutorClass(3, cpu=2, memory=1), ExecutorClass(3, cpu=1, memory=4)))
    fits = job(stage(1, 1.0, cpu=2, memory=1), stage(1, 1.0, memory=4))
    wants = job(stage(1, 1.0), stage(1, 1.0, cpu=2, memory=2), name="big")
    Cluster(config, jobs(fits))
    with pytest.raises(ConfigError) as error:
        Cluster(config, jobs(fits, wants))
    expected = "no executor class can run stage 1 of job 1 (big), which needs cpu 2 and memory 2"
    assert str(error.value) == expected
    config = ClusterConfig(num_executors=7, executor_classes=(ExecutorClass(3), ExecutorClass(2, cpu=2.0)))
    assert config.num_executors == 5
    assert ClusterConfig(num_executors=7).executor_classes == (ExecutorClass(7),)


@BOTH
def test_an_executor_that_finds_its_stage_full_takes_the_one_that_has_been_ready_longest(semantics: Semantics) -> None:
    """Stage 3 opens at 15 ms, stage 2 at 25 ms. Executor 3 departs for stage 4 at 28 ms.

    Executor 2 takes the last task of stage 4 at 30 ms. Executor 3 arrives at 33 ms, finds no task there and takes
    another stage. The other executors stay idle.
    """
    sizes_and_times = ((1, 10.0), (1, 20.0), (3, 7.0), (3, 7.0), (2, 25.0))
    first = job(*(stage(size, time_ms) for size, time_ms in sizes_and_times), edges=[(1, 2), (0, 3)])
    subject = cluster(4, first, job(stage(1, 23.0)), moving_delay_ms=5.0, semantics=semantics)
    for place in (0, 1, 4, 5):
        subject.decide(give(subject.observe(), place, 1))

    def decide(observation: Observation) -> Decision | None:
        if observation.time_ms == 28.0 and subject.acting == [3]:
            return give(observation, 4)
        return None if observation.time_ms < 33.0 else greedy(observation)

    record, _ = finish(subject, decide)
    starts = {run[:3]: (run[3], run[4]) for run in runs(record)}
    assert (starts[0, 4, 1], starts[0, 3, 0]) == ((2, 30.0), (3, 33.0))


@BOTH
def test_executors_find_work_in_other_jobs(semantics: Semantics) -> None:
    # Executor 1 departs for job 0 at 60 ms; at 110 ms no task is left there. It moves on to job 2, undecided.
    profiles = job(stage(2, 40.0)), job(stage(1, 10.0)), job(stage(2, 500.0))
    subject = cluster(2, *profiles, moving_delay_ms=50.0, semantics=semantics)
    subject.decide(Decision(0, 1))
    subject.decide(Decision(1, 1))
    subject.decide(give(subject.observe(), 0))
    record, _ = finish(subject, lambda seen: None if seen.time_ms < 160.0 and seen.source >= 0 else greedy(seen))
    assert (1, 60.0) in record.moves()[["executor", "depart_ms"]].itertuples(index=False, name=None)
    assert (2, 0, 0, 1, 160.0, 660.0) in runs(record)
    # Executor 1 departs for job 0 at 110 ms; executor 0 completes the job at 200 ms; no other job has work then.
    profiles = job(stage(2, 50.0)), job(stage(1, 10.0)), job(stage(2, 10.0))
    subject = cluster(2, *profiles, at=[0.0, 0.0, 1000.0], moving_delay_ms=100.0, semantics=semantics)
    subject.decide(Decision(0, 1))
    subject.decide(Decision(1, 1))
    record, _ = finish(subject)
    assert record.completion_ms.tolist() == [200.0, 110.0, 1110.0]
    assert record.moves()[["executor", "depart_ms"]].values.tolist()[2] == [1, 110.0]
    assert {run[3:] for run in runs(record) if run[0] == 2} == {(0, 1100.0, 1110.0), (1, 1100.0, 1110.0)}


def test_a_class_takes_the_stages_that_it_covers() -> None:
    """Stage 0 fits all executors, stage 1 only the large one, number 2; the small ones share stage 0."""
    classes = (ExecutorClass(2, cpu=1, memory=1), ExecutorClass(1, cpu=2, memory=4))
    profile = job(stage(4, 10.0), stage(3, 20.0, memory=2.0))
    record, _ = finish(
        Cluster(ClusterConfig(executor_classes=classes, moving_delay_ms=5.0), jobs(profile)),
        lambda seen: give(seen, int(np.flatnonzero(seen.schedulable)[-1])),
    )
    assert runs(record) == [
        (0, 0, 0, 0, 5.0, 15.0), (0, 0, 1, 1, 5.0, 15.0), (0, 0, 2, 0, 15.0, 25.0), (0, 0, 3, 1, 15.0, 25.0),
        (0, 1, 0, 2, 5.0, 25.0), (0, 1, 1, 2, 25.0, 45.0), (0, 1, 2, 2, 45.0, 65.0),
    ]  # fmt: skip


@BOTH
def test_a_stage_that_opens_is_offered_to_all_classes_that_wait_in_its_job(semantics: Semantics) -> None:
    """Executors 1 and 2 wait in the job for stage 1, until executor 0, of another class, opens it."""
    large, small = ExecutorClass(1, cpu=2, memory=4), ExecutorClass(2)
    config = ClusterConfig(executor_classes=(large, small), moving_delay_ms=5.0, semantics=semantics)
    subject = Cluster(config, jobs(chain(stage(1, 10.0, memory=2.0), stage(2, 20.0))))

    def decide(observation: Observation) -> Decision | None:
        """Let the large executor take only stage 0."""
        only_stage_1 = not observation.schedulable[0]
        return None if observation.executor_class == 0 and only_stage_1 else greedy(observation)

    record, _ = finish(subject, decide)
    assert runs(record) == [(0, 0, 0, 0, 5.0, 15.0), (0, 1, 0, 1, 15.0, 35.0), (0, 1, 1, 2, 15.0, 35.0)]


def test_observations_are_kept_and_schedulers_asked_where_there_is_a_choice() -> None:
    profile = job(stage(3, 10.0), stage(2, 10.0), edges=[(0, 1)])
    expected = runs(finish(cluster(4, profile, job(stage(4, 5.0)), moving_delay_ms=2.0))[0])
    subject = cluster(4, profile, job(stage(4, 5.0)), moving_delay_ms=2.0)
    while not subject.done:
        seen = subject.observe()
        assert subject.observe() is seen
        kept = seen.copy()
        assert_same(kept, seen)
        arrays = [array.tobytes() for array in (kept.jobs, kept.stages, kept.classes)]
        subject.decide(greedy(seen) if seen.schedulable.any() else None)
        assert [array.tobytes() for array in (kept.jobs, kept.stages, kept.classes)] == arrays
        kept.jobs[:], kept.stages[:] = -5, 77  # has no effect on the cluster
    assert runs(subject.record()) == expected
    asked: list[bool] = []

    class Curious(Greedy):
        def decide(self, observation: Observation) -> Decision:
            asked.append(bool(observation.schedulable.any()))
            return super().decide(observation)

    record = run_episode(ClusterConfig(num_executors=3), jobs(chain(stage(2, 10.0), stage(1, 1.0))), Curious())
    assert all(asked)
    assert len(asked) < record.num_decisions


def monitor(subject: Cluster, every_ms: float, seen: list[float]) -> Iterator[Event]:
    while True:
        seen.append(subject.clock.now)
        yield subject.clock.timeout(every_ms)


@BOTH
@pytest.mark.parametrize("every_ms", [0.37, 10.0, 2000.0])
def test_a_process_beside_the_cluster_sees_the_time_and_changes_nothing(semantics: Semantics, every_ms: float) -> None:
    config = ClusterConfig(num_executors=4, moving_delay_ms=10.0, semantics=semantics)
    sequence = jobs(chain(stage(6, 10.0), stage(3, 25.0)), job(stage(9, 5.0)), at=[0.0, 40.0])
    alone, rewards = finish(Cluster(config, sequence))
    subject, seen = Cluster(config, sequence), []
    subject.clock.process(monitor(subject, every_ms, seen))
    together, same_rewards = finish(subject)
    assert runs(together) == runs(alone)
    assert (together.completion_ms.tolist(), together.end_ms) == (alone.completion_ms.tolist(), alone.end_ms)
    assert same_rewards == pytest.approx(rewards)
    assert seen == pytest.approx([every_ms * tick for tick in range(len(seen))])
    assert seen[-1] <= alone.end_ms < seen[-1] + every_ms + 1e-6


def test_processes_on_the_clock_wait_and_begin_at_once() -> None:
    subject = cluster(1, chain(stage(3, 10.0), stage(1, 5.0)))
    seen = []

    def look(at_ms: float) -> Iterator[Event]:
        yield subject.clock.timeout(at_ms)
        seen.append((subject.clock.now, int(subject.snapshot().finished_tasks.sum())))

    for at_ms in (0.0, 9.0, 11.0, 29.0, 31.0):
        subject.clock.process(look(at_ms))
    finish(subject)
    assert seen == [(0.0, 0), (9.0, 0), (11.0, 1), (29.0, 2), (31.0, 3)]
    # A timeout comes before a task that ends at the same time, although the task's event is older.
    subject, seen = cluster(1, job(stage(2, 10.0))), []

    def look() -> Iterator[Event]:
        seen.append((subject.clock.now, int(subject.snapshot().finished_tasks.sum())))
        yield subject.clock.timeout(0.0)
        seen.append((subject.clock.now, int(subject.snapshot().finished_tasks.sum())))

    def start() -> Iterator[Event]:
        yield subject.clock.timeout(10.0)
        subject.clock.process(look())

    subject.clock.process(start())
    subject.clock.step()  # the timeout comes before the task
    finish(subject)
    assert seen == [(10.0, 0), (10.0, 1)]


def test_time_passes_by_hand_until_a_decision_is_due() -> None:
    profiles = job(stage(1, 10.0)), job(stage(1, 5.0))
    subject = cluster(2, *profiles, at=[0.0, 60.0], moving_delay_ms=7.0)
    assert subject.clock.peek() == 60.0
    subject.clock.run(until=50.0)  # before the next event of the cluster
    assert subject.clock.now == 50.0
    subject.decide(Decision(0, 1))
    subject.decide(None)
    assert (subject.clock.now, subject.acting) == (60.0, [1])
    assert subject.clock.peek() == 67.0  # executor 0 is offered, and begins its task at 57 ms
    finish(subject)
    assert subject.clock.peek() == math.inf
    with pytest.raises(EmptySchedule):
        subject.clock.step()
    subject = cluster(2, *profiles, at=[0.0, 60.0])
    with pytest.raises(SchedulingError, match=r"^2 executors are offered: decide before time passes$"):
        subject.clock.run(until=100.0)


def test_simultaneous_events_happen_in_the_order_in_which_they_were_scheduled() -> None:
    """At 10 ms a job arrives, a process wakes, an executor arrives and another process wakes, in this order."""
    subject, seen = cluster(1, job(stage(1, 50.0)), job(stage(1, 5.0)), at=[0.0, 10.0], moving_delay_ms=10.0), []

    def wake_up(*waits: float) -> Iterator[Event]:
        for wait in waits:
            yield subject.clock.timeout(wait)
        shown = subject.snapshot()
        seen.append((subject.clock.now, len(shown.jobs), int(shown.running_executors.sum())))

    subject.clock.process(wake_up(10.0))
    subject.clock.process(wake_up(0.0, 10.0))  # its second wait begins after the departure of the executor
    subject.clock.step()
    subject.clock.step()
    subject.decide(Decision(0, 1))
    finish(subject)
    assert seen == [(10.0, 2, 0), (10.0, 2, 1)]
