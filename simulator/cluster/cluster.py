"""The Spark cluster: scheduling events, rounds of decisions, commitments, executor moves.

An executor that runs out of work, a stage that opens or a job that arrives opens a *round*: executors of one
source (a stage, the pool of a job, or the common pool) are offered to the scheduler, which commits all of them,
decision by decision, to stages or to idleness. Nothing moves until the whole round is decided. Then the
commitments of the source are *fulfilled*, oldest first, as its executors become free; one that changes jobs is
on its way for the moving delay. The rules are those of the published Decima simulator; where the paper says
otherwise, ``Semantics`` decides. ``reference.py`` says the same in plain SimPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import copy
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.base import BaseCluster, SchedulingError
from simulator.cluster.config import ClusterConfig
from simulator.cluster.durations import task_noise
from simulator.cluster.engine import commands as engine
from simulator.cluster.engine.clock import Clock
from simulator.cluster.engine.state import Memory, allocate, state_of
from simulator.cluster.observation import Observation
from simulator.cluster.record import EpisodeRecord
from simulator.cluster.reward import RewardMeter
from workloads.arrivals import JobSequence
from workloads.job import JobProfile

__all__ = ["Cluster"]

#: There are no free executors to be offered after the round.
NO_OFFERS = -1


class Cluster(BaseCluster):
    """One episode on the compiled engine.

    ``cluster.clock`` is a SimPy environment; processes of your own may run in it.

    What changes during an episode is in ``_memory``, in the clock's queue, in the list of moves, or is an attribute
    that is replaced and never changed in place: so a fork is a shallow copy with these three of its own.
    """

    clock: Clock

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        super().__init__(config, sequence)
        self._use(allocate(config, self._known, self._estimates))
        self._executor_class = self._state.executors["kind"].tolist()
        self._num_classes = len(config.executor_classes)
        self._stage_job = self._state.stages["job"].tolist()
        self._first_stage: list[int] = self._state.jobs["first_stage"].tolist()
        self._single = np.arange(config.num_executors)
        self._common_pools = range(len(sequence) * self._num_classes, (len(sequence) + 1) * self._num_classes)

        # The open round, and the pools whose executors are offered after it.
        self._turn: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._kind = 0
        self._source_job: int | None = None
        self._own_pools: tuple[int, ...] = ()
        self._offer_place = NO_OFFERS

        # Of the live jobs, in order of arrival.
        self._profiles: tuple[JobProfile, ...] = ()
        self._num_stages = 0
        # Arrivals of jobs and executors to come. Processes beside the cluster do not keep an episode going.
        self._num_pending = 0
        self._has_end = math.isfinite(config.max_time_ms) and config.semantics.honour_max_time
        self._moves: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._has_log = True
        self._noise_seed = sequence.seed
        self._reward = RewardMeter(config)
        self._reset()

    def _use(self, memory: Memory) -> None:
        """Run on this memory, with a clock of its own."""
        self._memory, self._state = memory, state_of(memory)
        cluster = self._state.cluster
        self._num_departures, self._num_running = cluster["num_departures"].data, cluster["num_running"].data
        self.clock = Clock(
            self, cluster["next_order"].data, partial(engine.run_tasks, memory), Cluster._executor_ran_dry
        )

    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Cluster:
        """See ``BaseCluster.fork``."""
        if self.clock.has_company:
            raise SchedulingError("processes of your own wait on the cluster's clock: it cannot be forked")
        records, values = self._memory
        if log:
            records = records.copy()
        else:
            records = np.empty_like(records)
            engine.copy_without_log(self._memory, records)
        fork = copy(self)
        fork._use((records, values))
        fork.clock.follow(self.clock)
        fork._moves = self._moves.copy()
        fork._reward = copy(self._reward)
        fork._observation = None
        fork._has_log = self._has_log and log
        if not arrivals:
            fork._num_pending -= fork.clock.cancel(Cluster._job_arrives)
        if futures is not None:
            fork._redraw(futures)
        return fork

    def _redraw(self, seed: int) -> None:
        """Draw the noise of tasks that have not started, and what is left of running ones, with another seed."""
        self._noise_seed = seed
        state = self._state
        for job in state.live[: len(self._profiles)].tolist():
            first = state.stages["first_task"][self._first_stage[job]]
            profile = self.sequence.profiles[job]
            noise = state.noise[first : first + profile.num_tasks]
            noise["level"], noise["duration"] = task_noise(seed, job, profile.num_tasks)
        engine.redraw_running(self._memory, self.clock.now)

    # What the scheduler is told.

    @property
    def turn(self) -> list[int]:
        """The executors that act when the open round closes, in order."""
        executors: list[int] = self._turn.tolist()
        return executors

    @property
    def source(self) -> tuple[int | None, int | None]:
        """(job, stage in that job) whose executors are offered; no stage for a pool, no job for the common pool."""
        stage = int(self._state.executors["stage"][self._turn[0]])
        if stage < 0:
            return self._source_job, None
        return self._source_job, stage - self._first_stage[self._stage_job[stage]]

    def _look(self) -> Observation:
        source_job = -1 if self._source_job is None else self._source_job
        classes = self._classes.copy()
        if self._estimates and engine.learn(self._memory, self.clock.now):
            live = self._state.live[: len(self._profiles)]
            scales = zip(live.tolist(), self._state.beliefs["scale"][live].tolist(), strict=True)
            self._profiles = tuple(self._estimates[job].scaled(scale) for job, scale in scales)
        source, num_schedulable = engine.observe(self._memory, self._kind, source_job, classes)
        first_job, first_stage = self._kind * len(self.sequence), self._kind * len(self._stage_job)
        return Observation(
            self.config,
            self.clock.now,
            self._offered,
            self._kind,
            source,
            num_schedulable,
            self._state.seen_jobs[first_job : first_job + len(self._profiles)],
            self._state.seen_stages[first_stage : first_stage + self._num_stages],
            classes,
            self._profiles,
            self._last_call,
            self._known.work_prior,
        )

    @property
    def completion_ms(self) -> NDArray[np.float64]:
        """See ``BaseCluster.completion_ms``."""
        return self._state.jobs["completion_ms"].copy()

    def record(self) -> EpisodeRecord:
        """See ``BaseCluster.record``."""
        if not self._has_log:
            raise SchedulingError("the cluster was forked without the log of its tasks: there is no record")
        tasks = self._state.tasks
        moves = np.concatenate(
            [np.zeros((3, 0), dtype=np.int64), *(moves for moves, _ in self._moves)], axis=1
        )
        left_ms = np.concatenate([np.zeros(0), *(left_ms for _, left_ms in self._moves)])
        return EpisodeRecord(
            self.config,
            self.sequence,
            task_start_ms=tasks["start"].copy(),
            task_finish_ms=tasks["finish"].copy(),
            task_executor=tasks["executor"].copy(),
            task_wave=tasks["wave"].astype(np.int8),
            task_parallelism=tasks["parallelism"].copy(),
            completion_ms=self.completion_ms,
            move_executor=moves[0].astype(np.int32),
            move_job=self._state.stages["job"][moves[1]],
            move_depart_ms=left_ms,
            end_ms=float(self.clock.now),
            num_decisions=self._num_decisions,
        )

    # Rounds.

    def _commit(self, target: tuple[int, int] | None, count: int) -> float:
        stage = engine.IDLE if target is None else self._first_stage[target[0]] + target[1]
        self._offered = engine.commit(self._memory, self._turn, self._offered, stage, count, self.clock.now)
        if not self._offered:
            self._schedule_arrivals()
            self._open_next_offer()
            self._run()
        return self._reward.step(self.clock.now)

    def _run(self) -> None:
        """Let time pass until a round opens or nothing is left to happen."""
        while not self._offered and not self._done:
            if self._num_pending or self._num_running[0]:
                self.clock.step()
            else:
                self._nothing_pending()

    def _nothing_pending(self) -> None:
        if not self._profiles:
            self._done = True
            return
        if self.config.semantics.offer_idle_executors and not self._last_call:
            # All executors are idle: they are offered once more before the cluster stands still for ever.
            self._last_call = True
            self._offer_next()
            if not self._last_call:
                return
        if self._has_end and not self._offered:
            while not self._done:
                self.clock.step()
        elif not self._offered:
            self._done = True
            raise SchedulingError(
                f"all executors are idle and nothing is pending, but {len(self._profiles)} jobs are not complete"
            )

    def _open_round(self, turn: NDArray[np.int64], budget: int, source_job: int | None) -> None:
        self._turn, self._offered, self._source_job = turn, budget, source_job
        self._kind = self._executor_class[turn[0]]

    def _open_pool(self, pool: int) -> None:
        """Open a round of all executors in a pool, if there are any."""
        turn = engine.waiting_in(self._memory, pool)
        if turn.size:
            job = pool // self._num_classes
            self._open_round(turn, turn.size, job if job < len(self.sequence) else None)
            self._stay()

    def _stay(self) -> None:
        """Let executors of the new round stay with their job, under a scheduler that keeps them there."""
        if self._offered and self.keeps_executors:
            self._offered, decisions = engine.stay(self._memory, self._turn, self._offered, self.clock.now)
            self._count(decisions)

    def _count(self, decisions: int) -> None:
        """Count decisions that the engine took on the scheduler's behalf."""
        if decisions:
            self._num_decisions += decisions
            self._last_call = False
            self._schedule_arrivals()

    def _offer_next(self, own_pools: Iterable[int] = ()) -> None:
        """After the open round, offer the pools that an event concerns and, as the paper has it, all free executors."""
        self._own_pools = tuple(own_pools)
        self._offer_place = 0 if self.config.semantics.offer_idle_executors else NO_OFFERS
        if not self._offered:
            self._open_next_offer()

    def _open_next_offer(self) -> None:
        """Open a round of the next free executors, if there are any."""
        while self._own_pools and not self._offered:
            pool, self._own_pools = self._own_pools[0], self._own_pools[1:]
            self._open_pool(pool)
        if not self._offered and self._offer_place != NO_OFFERS:
            turn, budget, job, self._offer_place, decisions = engine.next_free_executors(
                self._memory, self._offer_place, self.keeps_executors, self.clock.now
            )
            self._count(decisions)
            if budget:
                self._open_round(turn, budget, job if job >= 0 else None)
            else:
                self._offer_place = NO_OFFERS

    # Events.

    def _reset(self) -> None:
        engine.fill_common_pools(self._memory)
        if self._has_end:
            self.clock.at(self.config.max_time_ms, Cluster._time_is_up, None)
        for job, arrival_ms in enumerate(self.sequence.arrival_ms.tolist()):
            if arrival_ms == 0:
                self._add_job(job)
            else:
                self._num_pending += 1
                self.clock.at(arrival_ms, Cluster._job_arrives, job)
        self._own_pools = tuple(self._common_pools)
        self._open_next_offer()

    def _add_job(self, job: int) -> None:
        profile = self.sequence.profiles[job]
        noise = task_noise(self._noise_seed, job, profile.num_tasks)
        engine.add_job(self._memory, job, *noise)
        self._profiles += (self._known.profiles[job],)
        self._num_stages += profile.num_stages
        self._reward.add_job(self.clock.now, job)

    def _job_arrives(self, job: int) -> None:
        self._num_pending -= 1
        self._add_job(job)
        self._offer_next(self._common_pools)

    def _schedule_arrivals(self) -> None:
        """Executors have departed; those that left in a row arrive together."""
        if not self._num_departures[0]:
            return
        moves, left_ms = engine.take_departures(self._memory)
        self._moves.append((moves, left_ms))
        order, times = moves[2].tolist(), left_ms.tolist()
        start = 0
        # One event for all of them: an event for each takes 1 to 8 % more CPU time, the more the more they move.
        for end in range(1, len(order) + 1):
            if end == len(order) or order[end] != order[start]:
                self._num_pending += 1
                arrival_ms = times[start] + self.config.moving_delay_ms
                self.clock.at(arrival_ms, Cluster._executors_arrive, moves[0, start:end], order[start])
                start = end

    def _executors_arrive(self, executors: NDArray[np.int64]) -> None:
        self._num_pending -= 1
        engine.end_moves(self._memory, executors, self.clock.now)
        self._schedule_arrivals()

    def _executor_ran_dry(self, happened: int, executor: int, stage: int, running: int) -> None:
        """An executor finished a task of a stage that has no more to hand out, and it concerns others."""
        self._schedule_arrivals()
        if executor < 0:
            return
        job, pools = self._stage_job[stage], ()
        if happened & engine.NEEDS_DECISION:
            # All who work on the stage will run dry soon; this round settles where they go.
            self._open_round(self._single[executor : executor + 1], running, job)
        if happened & engine.OPENED:
            first, kind = job * self._num_classes, self._executor_class[executor]
            pools = (first + kind, *(first + other for other in range(self._num_classes) if other != kind))
        if happened & engine.JOB_COMPLETE:
            place = engine.end_job(self._memory, job, executor, self.clock.now)
            self._reward.end_job(self.clock.now, job, self.sequence.arrival_ms[job])
            self._num_stages -= self._profiles[place].num_stages
            self._profiles = self._profiles[:place] + self._profiles[place + 1 :]
        self._stay()
        self._offer_next(pools)

    def _time_is_up(self, _: None) -> None:
        self._done = True
