"""What must hold on any cluster, for any jobs, under any decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simulator import Cluster, ClusterConfig, EpisodeRecord, SchedulingError
from tests.simulator.cluster.naive import (
    Books,
    check_books,
    check_durations,
    check_observation,
    check_record,
    check_waves,
    numbered,
)
from tests.simulator.cluster.strategies import clusters
from tests.workloads.strategies import job_sequences
from workloads.arrivals import JobSequence

MANY = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass
class Driver:
    """Drives an episode with random decisions and looks over its shoulder.

    Args:
        config: the cluster.
        sequence: the jobs.
        seed: of the decisions.
        idle: how likely it leaves executors idle although there is work.
        check: whether to recompute the books at every decision.
    """

    config: ClusterConfig
    sequence: JobSequence
    seed: int = 0
    idle: float = 0.0
    check: bool = True
    rewards: list[float] = field(default_factory=list)
    chosen: set[int] = field(default_factory=set)

    def run(self) -> EpisodeRecord:
        """The whole episode."""
        self.random = np.random.default_rng(self.seed)
        self.cluster = Cluster(self.config, self.sequence)
        before_ms = 0.0
        while not self.cluster.done:
            books = check_books(self.cluster, self.chosen) if self.check else None
            self._decide(books)
            assert self.cluster.clock.now >= before_ms
            before_ms = self.cluster.clock.now
        return self.cluster.record()

    def _decide(self, books: Books | None) -> None:
        cluster, observation = self.cluster, self.cluster.observe()
        if books:
            check_observation(books, observation)
        choice = np.flatnonzero(observation.schedulable)
        if not choice.size or (self.random.random() < self.idle and not cluster.last_call):
            self.chosen.clear()
            self.rewards.append(cluster.decide(None))
            return
        place = int(self.random.choice(choice))
        job, offered, now = int(observation.stage_job[place]), observation.offered, cluster.clock.now
        held = observation.held(job)
        count = int(self.random.integers(1, offered + 3))
        committed = min(count, offered, int(observation.unclaimed_tasks[place]))
        stage = place - observation.stages_of(job).start
        self.chosen.add(numbered(cluster, place))
        if count <= offered and self.random.random() < 0.3:
            self.rewards.append(cluster.commit(int(observation.job_id[job]), stage, count))
        else:
            self.rewards.append(cluster.decide((place, held + count)))
        if committed < offered:
            assert cluster.offered == offered - committed
            assert cluster.clock.now == now
            assert self.rewards[-1] == 0.0
            after = cluster.observe()
            assert after.job_id.tolist() == observation.job_id.tolist()
            outside = 0 if job == observation.source else committed
            assert after.job_executors[job] == observation.job_executors[job] + outside
            assert after.unclaimed_tasks[place] == observation.unclaimed_tasks[place] - committed
        else:
            self.chosen.clear()


def may_stand_still(driver: Driver) -> bool:
    """Whether executors that idle may be forgotten: by choice, or because another class cannot take over."""
    return not driver.config.semantics.offer_idle_executors and (
        driver.idle > 0 or len(driver.config.executor_classes) > 1
    )


def run(driver: Driver) -> EpisodeRecord | None:
    """An episode; ``None`` if the cluster stands still, where it may."""
    if not may_stand_still(driver):
        return driver.run()
    try:
        return driver.run()
    except SchedulingError:
        return None


seeds = st.integers(0, 2**32)
idleness = st.sampled_from((0.0, 0.1, 0.5))


@MANY
@given(clusters(), job_sequences(), seeds, idleness)
def test_every_task_runs_once_and_the_books_are_right_at_every_decision(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    driver = Driver(config, sequence, seed, idle)
    record = run(driver)
    check_record(driver.cluster.record())
    if record is not None:
        assert np.isfinite(record.task_finish_ms).all()
        assert np.isfinite(record.completion_ms).all()
        check_durations(record)
        check_waves(record)


@MANY
@given(clusters(max_time=True), job_sequences(), seeds, idleness)
def test_rewards_add_up_to_the_time_that_jobs_spend_in_the_system(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    driver = Driver(config, sequence, seed, idle, check=False)
    record = run(driver)
    if record is None:
        return
    left_ms = np.where(np.isnan(record.completion_ms), record.end_ms, record.completion_ms)
    jct_ms = np.maximum(left_ms - sequence.arrival_ms, 0)
    expected = jct_ms.sum() if config.reward == "jct" else record.end_ms
    total = -sum(driver.rewards) * config.reward_scale_ms
    if config.semantics.reward_short_jobs or config.reward == "makespan":
        assert total == pytest.approx(expected, rel=1e-9, abs=1e-6)
    else:  # jobs that come and go between two decisions are left out
        assert -1e-6 <= total <= expected * (1 + 1e-9) + 1e-6
    assert all(reward <= 1e-9 for reward in driver.rewards)


@MANY
@given(clusters(max_time=True), job_sequences(), seeds, idleness)
def test_an_episode_that_ends_early_is_the_beginning_of_the_whole(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    driver = Driver(config, sequence, seed, idle, check=False)
    record = run(driver)
    whole = run(Driver(replace(config, max_time_ms=math.inf), sequence, seed, idle, check=False))
    if record is None or whole is None:
        return
    check_record(record)
    limit_ms = config.max_time_ms if config.semantics.honour_max_time else math.inf
    assert record.end_ms == min(whole.end_ms, limit_ms)
    # At the very end some of what happens at that time may be missing.
    begun = whole.task_start_ms < record.end_ms
    for name in ("task_start_ms", "task_executor", "task_wave", "task_parallelism"):
        assert (getattr(record, name)[begun] == getattr(whole, name)[begun]).all()
    done = whole.completion_ms < record.end_ms
    assert (record.completion_ms[done] == whole.completion_ms[done]).all()
    assert np.isnan(record.completion_ms[whole.completion_ms > record.end_ms]).all()


@MANY
@given(clusters(), job_sequences(), seeds)
def test_whoever_answers_the_last_call_never_stands_still(
    config: ClusterConfig, sequence: JobSequence, seed: int
) -> None:
    """With the paper's semantics a scheduler may idle whenever it likes, unless nothing is pending."""
    config = replace(config, semantics=replace(config.semantics, offer_idle_executors=True))
    record = Driver(config, sequence, seed, idle=1.0, check=False).run()
    assert np.isfinite(record.completion_ms).all()
