"""Differences between the paper and the published simulator, one switch at a time, computed by hand."""

import math
from dataclasses import fields, replace
from typing import Literal

import numpy as np
import pytest

from decima.schedulers import Fifo
from simulator import (
    DECIMA_SIM,
    PAPER,
    Cluster,
    ClusterConfig,
    Decision,
    ExecutorClass,
    Observation,
    Semantics,
    make_cluster,
    run_episode,
)
from simulator.cluster.reward import RewardMeter
from tests.simulator.cluster.build import chain, finish, give, job, jobs, runs, stage
from workloads.job import StageProfile, TaskDurations

SWITCHES = [switch.name for switch in fields(Semantics)]


def with_and_without(switch: str) -> list[tuple[Semantics, bool]]:
    """Run with the switch on and off, in the paper's semantics and in the published simulator's."""
    return [(replace(base, **{switch: on}), on) for base in (PAPER, DECIMA_SIM) for on in (True, False)]


def test_the_paper_has_all_switches_on_and_the_published_simulator_all_off() -> None:
    ours = {"ready_stages_only", "offer_after_tasks"}
    assert all(getattr(PAPER, switch) is (switch not in ours) for switch in SWITCHES)
    assert all(getattr(DECIMA_SIM, switch) is False for switch in SWITCHES)
    assert ClusterConfig().semantics == PAPER
    assert len(SWITCHES) == 10


def one_by_one(observation: Observation) -> Decision | None:
    """Give one executor to each stage that can start at once, and none to stages whose parents still run."""
    ready = np.flatnonzero(observation.schedulable & (observation.ready_rank >= 0))
    if not ready.size:
        return None
    place = int(ready[0])
    return give(observation, place, int(observation.unclaimed_tasks[place]))


@pytest.mark.parametrize(("semantics", "on"), with_and_without("offer_idle_executors"))
def test_the_common_pool_is_offered_when_stages_open_or_executors_idle(semantics: Semantics, on: bool) -> None:
    # The second executor has no work at 0; four tasks open at 11 s.
    profile = chain(stage(1, 10_000.0), stage(4, 10_000.0))
    config = ClusterConfig(num_executors=2, moving_delay_ms=1000.0, semantics=semantics)
    record, _ = finish(Cluster(config, jobs(profile)), one_by_one)
    first = (0, 0, 0, 0, 1000.0, 11_000.0)
    if on:
        assert runs(record) == [
            first, (0, 1, 0, 0, 11_000.0, 21_000.0), (0, 1, 1, 1, 12_000.0, 22_000.0),
            (0, 1, 2, 0, 21_000.0, 31_000.0), (0, 1, 3, 1, 22_000.0, 32_000.0),
        ]  # fmt: skip
    else:
        starts = [11_000.0, 21_000.0, 31_000.0, 41_000.0]
        later = [(0, 1, task, 0, start, start + 10_000.0) for task, start in enumerate(starts)]
        assert runs(record) == [first, *later]
    # Executor 2 leaves job 1 at 2 s, executor 0 becomes idle at 5 s; stage 1 of job 0 can be chosen.
    config = ClusterConfig(num_executors=3, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=semantics)
    first = chain(StageProfile(2, UNEVEN), stage(3, 100.0))
    cluster = Cluster(config, jobs(first, job(stage(1, 2000.0))))
    cluster.decide(give(cluster.observe(), 0, 2))
    cluster.decide(give(cluster.observe(), 2, 1))
    free = [(time_ms, [2], 1, (None, None)) for time_ms in (2000.0, 5000.0)]
    job_over, dry = (2000.0, [2], 1, (1, None)), (5000.0, [0], 2, (0, 0))
    assert asked_before(cluster, 9000.0) == ([job_over, free[0], dry, free[1]] if on else [job_over, dry])


#: One executor needs 5 s; two executors at once need 5 s and 9 s.
UNEVEN = TaskDurations.from_tables({1: [5000.0], 2: [9000.0]}, {}, {})

Offer = tuple[float, list[int], int, tuple[int | None, int | None]]


def asked_before(cluster: Cluster, end_ms: float) -> list[Offer]:
    """Leave all executors idle from now on; return (time, acting executors, number offered, source) of all offers."""
    offers = []
    while not cluster.done and cluster.clock.now < end_ms:
        offers.append((cluster.clock.now, cluster.acting, cluster.offered, cluster.source))
        cluster.decide(None)
    return [offer for offer in offers if offer[0] < end_ms]


@pytest.mark.parametrize(("semantics", "on"), with_and_without("offer_idle_executors"))
def test_more_executors_than_tasks_that_they_wait_for_are_offered_to_a_job_that_arrives(
    semantics: Semantics, on: bool
) -> None:
    """Executor 2 was sent ahead to stage 1, whose only task must wait for both tasks of stage 0.

    At 5 s executor 0 becomes idle and waits too: one of the two is free. Job 1 arrives at 6 s.
    """
    config = ClusterConfig(num_executors=3, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=semantics)
    first = chain(StageProfile(2, UNEVEN), stage(1, 100.0))
    cluster = Cluster(config, jobs(first, job(stage(1, 2000.0)), at=[0.0, 6000.0]))
    cluster.decide(give(cluster.observe(), 0, 2))
    cluster.decide(give(cluster.observe(), 1, 1))
    dry = (5000.0, [0], 2, (0, 0))
    waiting = [(time_ms, [2, 0], 2, (0, None)) for time_ms in (5000.0, 6000.0)]
    assert asked_before(cluster, 9000.0) == ([dry, *waiting] if on else [dry])


@pytest.mark.parametrize(("semantics", "on"), with_and_without("waiting_keeps_jvm"))
def test_executors_that_waited_are_warm_and_those_that_never_worked_cold(semantics: Semantics, on: bool) -> None:
    # The executor that completes stage 0 enters its job's pool for a moment before it starts stage 1.
    waves = {"first_ms": 50.0, "fresh_ms": 100.0}
    config = ClusterConfig(num_executors=1, moving_delay_ms=1000.0, semantics=semantics)
    record, _ = finish(Cluster(config, jobs(chain(stage(1, 10.0, **waves), stage(2, 10.0, **waves)))))
    begin = 1150.0 if on else 1200.0
    assert runs(record) == [
        (0, 0, 0, 0, 1000.0, 1100.0),
        (0, 1, 0, 0, 1100.0, begin),
        (0, 1, 1, 0, begin, begin + 10.0),
    ]
    # Executor 1 is sent to stage 1 ahead of time and waits there: its JVM has not run a task yet.
    waves = {"first_ms": 50.0, "fresh_ms": 100.0}
    config = ClusterConfig(num_executors=2, moving_delay_ms=0.0, semantics=semantics)
    record, _ = finish(Cluster(config, jobs(chain(stage(1, 10.0, **waves), stage(2, 10.0, **waves)))))
    ends = {executor: end - start for _, number, _, executor, start, end in runs(record) if number == 1}
    assert ends == {0: 50.0 if on else 100.0, 1: 100.0}


@pytest.mark.parametrize("on", [True, False])
def test_an_executor_too_small_for_what_is_left_of_its_job_is_free(on: bool) -> None:
    """The small executor finishes the first stage at 110 ms; the second stage only needs the large one."""
    profile = chain(stage(1, 10.0, memory=0.5), stage(1, 1000.0, memory=1.0))
    classes = (ExecutorClass(1, memory=0.5), ExecutorClass(1, memory=1.0))
    semantics = replace(PAPER, release_misfits=on)
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=100.0, semantics=semantics)
    cluster = Cluster(config, jobs(profile, job(stage(1, 10.0)), at=[0.0, 500.0]))
    while not cluster.done and cluster.clock.now < 500:
        observation = cluster.observe()
        stages = np.flatnonzero(observation.schedulable)
        cluster.decide(give(observation, int(stages[0]), 1) if stages.size else None)
    observation = cluster.observe()
    assert (observation.time_ms, observation.executor_class) == (500, 0)
    assert (observation.source, observation.job_executors.tolist()) == (-1 if on else 0, [1 if on else 2, 0])


@pytest.mark.parametrize(("semantics", "on"), with_and_without("ready_stages_only"))
def test_executors_are_sent_ahead_to_stages_that_are_not_ready_or_not(semantics: Semantics, on: bool) -> None:
    """The second stage may be chosen when all tasks of the first are claimed, or when it opens at 3 s."""
    config = ClusterConfig(num_executors=5, moving_delay_ms=2000.0, semantics=semantics)
    cluster = Cluster(config, jobs(chain(stage(1, 1000.0), stage(3, 1000.0))))
    cluster.decide(Decision(0, 1))
    assert cluster.observe().schedulable.tolist() == [0, 0 if on else 1]
    while cluster.clock.now < 3000.0:
        cluster.decide(None)
    assert cluster.observe().schedulable.tolist() == [0, 1]


@pytest.mark.parametrize("on", [True, False])
def test_executors_that_could_only_wait_are_not_offered(on: bool) -> None:
    """Executor 2 leaves job 1 at 500 ms, when the remaining two stages of job 0 are not ready."""
    fan = job(*(stage(1, 1000.0) for _ in range(3)), edges=[(0, 1), (0, 2)])
    semantics = replace(PAPER, ready_stages_only=on)
    config = ClusterConfig(num_executors=3, moving_delay_ms=0.0, semantics=semantics)
    cluster = Cluster(config, jobs(fan, job(stage(1, 500.0)), job(stage(1, 10.0)), at=[0.0, 0.0, 700.0]))
    cluster.decide(give(cluster.observe(), 0, 1))
    cluster.decide(give(cluster.observe(), 3, 1))
    cluster.decide(None)
    offers = [(time_ms, source) for time_ms, _, _, source in asked_before(cluster, 900.0)]
    dry, waiting, arrived = (500.0, (1, None)), (500.0, (None, None)), (700.0, (None, None))
    assert offers == [dry, *([] if on else [waiting]), arrived, arrived]


@pytest.mark.parametrize(("semantics", "on"), with_and_without("offer_after_tasks"))
def test_an_executor_is_offered_after_each_task_or_when_its_stage_has_none_left(semantics: Semantics, on: bool) -> None:
    """A shorter job arrives while the first of three tasks runs, and the scheduler prefers it."""
    config = ClusterConfig(1, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=semantics)
    sequence = jobs(job(stage(3, 10.0)), job(stage(1, 1.0)), at=[0.0, 5.0])
    record, _ = finish(Cluster(config, sequence), lambda seen: give(seen, int(np.flatnonzero(seen.schedulable)[-1]), 1))
    assert record.completion_ms.tolist() == ([31.0, 11.0] if on else [30.0, 31.0])


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
@pytest.mark.parametrize(("semantics", "on"), with_and_without("longest_path_first"))
def test_of_stages_that_become_ready_together_the_longest_path_or_the_lowest_number_is_first(
    semantics: Semantics, on: bool, engine: Literal["compiled", "simpy"]
) -> None:
    # Two roots: stage 1 is shorter, but leads to stages 2 (1 s), 3 (3 s, one task) and 4 (3 s, two tasks).
    stages = stage(1, 5000.0), stage(1, 4000.0), stage(1, 1000.0), stage(1, 3000.0), stage(2, 3000.0)
    profile = job(*stages, edges=[(1, 2), (1, 3), (1, 4)])
    config = ClusterConfig(1, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=semantics, engine=engine)
    cluster = make_cluster(config, jobs(profile))
    record, _ = finish(cluster, lambda seen: give(seen, int(seen.next_stage[0]), 1))
    order = [of_stage for _, of_stage, *_ in sorted(runs(record), key=lambda run: run[4])]
    assert order == ([1, 0, 4, 4, 3, 2] if on else [0, 1, 2, 3, 4, 4])


@pytest.mark.parametrize(("semantics", "on"), with_and_without("honour_max_time"))
def test_the_episode_ends_at_max_time(semantics: Semantics, on: bool) -> None:
    config = ClusterConfig(num_executors=1, moving_delay_ms=0.0, semantics=semantics, max_time_ms=25.0)
    record, _ = finish(Cluster(config, jobs(job(stage(2, 10.0)), job(stage(2, 10.0)))))
    assert (record.end_ms, record.completion_ms[0]) == (25.0 if on else 40.0, 20.0)
    assert math.isnan(record.completion_ms[1]) if on else record.completion_ms[1] == 40.0


@pytest.mark.parametrize(("semantics", "on"), with_and_without("reward_short_jobs"))
def test_rewards_of_jobs_that_end_before_the_next_decision(semantics: Semantics, on: bool) -> None:
    # If the second stage opens at 11 s, the job is observed then, and its first 11 s count in any case.
    config = ClusterConfig(1, moving_delay_ms=1000.0, semantics=semantics, reward_scale_ms=1000.0)
    record, rewards = finish(Cluster(config, jobs(job(stage(1, 10_000.0)))))
    assert record.jct_ms.tolist() == [11_000.0]
    assert rewards == [-11.0 if on else 0.0, 0.0]
    _, rewards = finish(Cluster(config, jobs(chain(stage(1, 10_000.0), stage(1, 5000.0)))))
    assert rewards == [-11.0, -5.0, 0.0]
    # The job is in the system for 20 ms of the step from 100 to 200 ms; another job for the whole step.
    meter = RewardMeter(ClusterConfig(semantics=semantics, reward_scale_ms=1.0))
    meter.add_job(40.0, 0)
    assert meter.step(100.0) == -60.0
    meter.add_job(150.0, 1)
    meter.end_job(170.0, 1, arrival_ms=150.0)
    assert meter.step(200.0) == -100.0 - (20.0 if on else 0.0)
    meter.end_job(230.0, 0, arrival_ms=40.0)
    assert meter.step(250.0) == -30.0


@pytest.mark.parametrize(("semantics", "on"), with_and_without("fifo_reuses_grants"))
def test_the_head_job_goes_before_the_job_whose_executors_are_offered(semantics: Semantics, on: bool) -> None:
    """Executor 1 waits in job 0 for its second stage. At 5 s executor 2 opens the second stage of job 1.

    By the observation, the head job could use executor 2, and gets it. Then executor 1 is superfluous: it takes
    executor 2's place if free executors are offered, else executor 2 returns at 10 s. The published simulator's FIFO
    keeps executors in their job.
    """
    config = ClusterConfig(num_executors=3, moving_delay_ms=0.0, semantics=semantics)
    sequence = jobs(chain(stage(1, 10_000.0), stage(1, 1000.0)), chain(stage(1, 5000.0), stage(1, 5000.0)))
    record = run_episode(config, sequence, Fifo())
    swap = on and semantics.offer_idle_executors
    begin = 10_000.0 if on and not swap else 5000.0
    assert runs(record) == [
        (0, 0, 0, 0, 0.0, 10_000.0),
        (0, 1, 0, 2 if swap else 1, 10_000.0, 11_000.0),
        (1, 0, 0, 2, 0.0, 5000.0),
        (1, 1, 0, 1 if swap else 2, begin, begin + 5000.0),
    ]


@pytest.mark.parametrize("on", [True, False])
def test_a_job_that_was_granted_all_executors_once_gets_no_more(on: bool) -> None:
    """Job 0 is granted executors 0 for stage 0 and 1 for stage 1, where it waits; at 300 ms 2 for stage 1.

    Then executor 1 is superfluous and goes to job 1 until 1400 ms. With a counter of grants job 0 gets no further
    executor, although it seems to need one, and executor 2 starts stage 1 as soon as it opens, at 1500 ms. Without
    the counter, executor 1 is sent there and arrives at 1600 ms.
    """
    config = ClusterConfig(num_executors=3, moving_delay_ms=200.0, semantics=replace(PAPER, fifo_reuses_grants=on))
    sequence = jobs(chain(stage(1, 1300.0), stage(1, 2100.0)), job(stage(3, 300.0)), at=[0.0, 300.0])
    record = run_episode(config, sequence, Fifo())
    last = (0, 1, 0, 1, 1600.0, 3700.0) if on else (0, 1, 0, 2, 1500.0, 3600.0)
    assert runs(record) == [
        (0, 0, 0, 0, 200.0, 1500.0), last, (1, 0, 0, 1, 500.0, 800.0), (1, 0, 1, 1, 800.0, 1100.0),
        (1, 0, 2, 1, 1100.0, 1400.0),
    ]  # fmt: skip
