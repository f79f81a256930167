"""Random decisions on one engine, or on both engines at once, whose visible states must agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from hypothesis import assume
from numpy.typing import NDArray

from simulator import (
    BaseCluster,
    Cluster,
    ClusterConfig,
    Decision,
    EpisodeRecord,
    Observation,
    ReferenceCluster,
    SchedulingError,
)
from simulator.cluster.parity import commit
from workloads.arrivals import JobSequence


def assert_same(one: Any, other: Any) -> None:
    """Assert that two observations or records are equal bit for bit."""
    for each in fields(one):
        ours, theirs = getattr(one, each.name), getattr(other, each.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype, each.name
            assert ours.tobytes() == theirs.tobytes(), f"{each.name}: {ours} is not {theirs}"
        else:
            assert ours == theirs, each.name


class Both(BaseCluster):
    """Both engines, compiled and reference, which get the same calls; all visible states are compared.

    Args:
        config: the cluster.
        sequence: the jobs.
    """

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        self.engine = Cluster(config, sequence)
        self.reference = ReferenceCluster(config, sequence)
        super().__init__(config, sequence)
        self.clock = self.engine.clock
        self._compare()

    offered = property(lambda self: self.engine.offered)
    acting = property(lambda self: self.engine.acting)
    source = property(lambda self: self.engine.source)

    @property
    def completion_ms(self) -> NDArray[np.float64]:
        completion_ms = self.engine.completion_ms
        assert completion_ms.tobytes() == self.reference.completion_ms.tobytes()
        return completion_ms

    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Both:
        fork = copy(self)
        fork.engine = self.engine.fork(futures, arrivals=arrivals, log=log)
        fork.reference = self.reference.fork(futures, arrivals=arrivals)
        fork.clock, fork._observation = fork.engine.clock, None
        fork._compare()
        return fork

    def record(self) -> EpisodeRecord:
        record = self.engine.record()
        assert_same(record, self.reference.record())
        return record

    #: The engines themselves advance time.
    _step = _offer_free = _is_wanted = _num_job_changes = lambda self: None

    def _job_changes(self, first: int, end: int) -> list[tuple[int, float, float]]:
        raise NotImplementedError

    def reward(self) -> float:
        mine, theirs = self.engine.reward(), self.reference.reward()
        assert mine == theirs
        return mine

    def _idle_ms(self) -> float:
        return self.engine._idle_ms()

    def _build_observation(self) -> Observation:
        return self.engine.snapshot()

    def _commit(self, target: tuple[int, int] | None, count: int) -> None:
        errors: list[SchedulingError] = []
        for cluster in (self.engine, self.reference):
            try:
                if target is None:
                    cluster.decide(None)
                else:
                    observation = cluster.observe()
                    job = int(np.flatnonzero(observation.job_id == target[0])[0])
                    row = observation.stages_of(job).start + target[1]
                    cluster.decide(Decision(row, observation.held(job) + count))
            except SchedulingError as error:
                errors.append(error)
        if errors:
            assert [str(error) for error in errors] == [str(errors[0])] * 2
        self._compare()
        if errors:
            raise errors[0]

    def _compare(self) -> None:
        names = ["done", "offered", "last_call", *(("acting", "source") if self.engine.offered else ())]
        for name in names:
            assert getattr(self.engine, name) == getattr(self.reference, name), name
        self._done, self._last_call = self.engine.done, self.engine.last_call
        assert self.engine.clock.now == self.reference.clock.now
        assert_same(self.engine.snapshot(), self.reference.snapshot())


#: Number of decisions after which an episode does not count: its executors are lost all the time.
MOST_DECISIONS = 20_000


@dataclass
class Driver:
    """Runs an episode with random decisions.

    Args:
        config: the cluster.
        sequence: the jobs.
        seed: seed of the decisions.
        idle: probability of leaving executors idle although some stage is schedulable.
        make: the engine, or ``Both``.
    """

    config: ClusterConfig
    sequence: JobSequence
    seed: int = 0
    idle: float = 0.0
    make: Callable[[ClusterConfig, JobSequence], BaseCluster] = Cluster
    rewards: list[float] = field(default_factory=list)

    def run(self) -> EpisodeRecord:
        """Run the whole episode."""
        self.begin()
        self.go_on()
        return self.cluster.record()

    def begin(self) -> None:
        """Run to the first decision."""
        self.random = np.random.default_rng(self.seed)
        self.cluster = self.make(self.config, self.sequence)

    def go_on(self, decisions: float = math.inf) -> None:
        """Make this number of decisions, or decide until the end of the episode."""
        before_ms, made = self.cluster.clock.now, 0
        while not self.cluster.done and made < decisions:
            made += 1
            assume(made < MOST_DECISIONS)
            self._decide()
            assert self.cluster.clock.now >= before_ms
            before_ms = self.cluster.clock.now

    def fork(self, futures: int | None = None, **how: bool) -> Driver:
        """Return a driver that makes the same decisions on a fork of the cluster."""
        fork = copy(self)
        fork.cluster, fork.random = self.cluster.fork(futures, **how), deepcopy(self.random)
        fork.rewards = []
        return fork

    def _decide(self) -> None:
        cluster, observation = self.cluster, self.cluster.observe().copy()
        choice = np.flatnonzero(observation.schedulable)
        if not choice.size or (self.random.random() < self.idle and not cluster.last_call):
            cluster.decide(None)
            self.rewards.append(cluster.reward())
            return
        place = int(self.random.choice(choice))
        job, offered, now = int(observation.stage_job[place]), observation.offered, cluster.clock.now
        held = observation.held(job)
        count = int(self.random.integers(1, offered + 3))
        committed = min(count, offered, int(observation.unclaimed_tasks[place]))
        stage = place - observation.stages_of(job).start
        if count <= offered and self.random.random() < 0.3:
            self.rewards.append(commit(cluster, int(observation.job_id[job]), stage, count)[0])
        else:
            cluster.decide((place, held + count))
            self.rewards.append(cluster.reward())
        if committed < offered and not self.config.knowledge.task_count_error:
            assert (cluster.offered, cluster.clock.now) == (offered - committed, now)
            assert self.rewards[-1] == 0.0
            after = cluster.observe()
            assert after.job_id.tolist() == observation.job_id.tolist()
            outside = 0 if job == observation.source else committed
            assert after.job_executors[job] == observation.job_executors[job] + outside
            assert after.unclaimed_tasks[place] == observation.unclaimed_tasks[place] - committed


def may_stand_still(driver: Driver) -> bool:
    """Return whether the cluster may stall: idle executors are not offered again, or no other class can help."""
    return not driver.config.semantics.offer_idle_executors and (
        driver.idle > 0 or len(driver.config.executor_classes) > 1
    )


def run(driver: Driver) -> EpisodeRecord | None:
    """Run an episode; return ``None`` if the cluster stalls where it may."""
    if not may_stand_still(driver):
        return driver.run()
    try:
        return driver.run()
    except SchedulingError:
        return None
