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

from simulator.cluster.base import BaseCluster, RewardMeter, SchedulingError
from simulator.cluster.chance import executor_keys, job_key, outage_ms
from simulator.cluster.config import ClusterConfig
from simulator.cluster.durations import task_noise
from simulator.cluster.engine import commands as engine
from simulator.cluster.engine import faults as fault_engine
from simulator.cluster.engine import forks
from simulator.cluster.engine.clock import Clock
from simulator.cluster.engine.state import Memory, allocate, state_of
from simulator.cluster.observation import Observation
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence
from workloads.job import JobProfile

__all__ = ["Cluster"]

#: There are no free executors to be offered after the round.
NO_OFFERS = -1


class Cluster(BaseCluster):
    """One episode on the compiled engine.

    ``cluster.clock`` is a SimPy environment; processes of your own may run in it.

    What changes during an episode is in ``_memory``, in the clock's queue, in the lists of the log, or is an attribute
    that is replaced and never changed in place: so a fork is a shallow copy with these of its own.
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
        # Executors that are in an outage, and how many the schedule of the capacity allows.
        self._faults = config.faults if config.faults.active else None
        self._outages: frozenset[int] = frozenset()
        self._capacity, self._num_capacities = config.num_executors, len(config.faults.capacity)
        self._lost_runs: list[NDArray[np.void]] = []
        self._changes: list[tuple[int, float, bool]] = []
        self._failed: list[tuple[int, float]] = []
        self._reward = RewardMeter(config)
        self._reset()

    def _use(self, memory: Memory) -> None:
        """Run on this memory, with a clock of its own."""
        self._memory, self._state = memory, state_of(memory)
        cluster = self._state.cluster
        self._num_departures, self._num_running = cluster["num_departures"].data, cluster["num_running"].data
        self._num_lost = cluster["num_lost"].data
        self.clock = Clock(
            self, cluster["next_order"].data, partial(engine.run_tasks, memory), Cluster._executor_ran_dry
        )

    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Cluster:
        """See ``BaseCluster.fork``."""
        if self.clock.has_company:
            raise SchedulingError("processes of your own wait on the cluster's clock: it cannot be forked")
        records, values = self._memory
        if log or self._faults:
            records = records.copy()
        else:
            records = np.empty_like(records)
            forks.copy_without_log(self._memory, records)
        fork = copy(self)
        fork._use((records, values))
        fork.clock.follow(self.clock)
        for log_of in ("_moves", "_lost_runs", "_changes", "_failed"):
            setattr(fork, log_of, getattr(self, log_of).copy())
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
            if self._faults:
                state.jobs["key"][job] = job_key(seed, job)
                forks.renew_noise(self._memory, job)
        forks.redraw_running(self._memory, self.clock.now)
        if self._faults and self.clock.cancel(Cluster._executor_changes):
            self._schedule_outages()

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
            self._prior,
        )

    @property
    def completion_ms(self) -> NDArray[np.float64]:
        """See ``BaseCluster.completion_ms``."""
        return self._state.jobs["completion_ms"].copy()

    def record(self) -> EpisodeRecord:
        """See ``BaseCluster.record``."""
        if not self._has_log:
            raise SchedulingError("the cluster was forked without the log of its tasks: there is no record")
        self._take_lost_runs()
        tasks = self._state.tasks
        moves = np.concatenate(
            [np.zeros((3, 0), dtype=np.int64), *(moves for moves, _ in self._moves)], axis=1
        )
        left_ms = np.concatenate([np.zeros(0), *(left_ms for _, left_ms in self._moves)])
        lost = np.concatenate([self._state.lost[:0], *self._lost_runs])
        changes = np.array(self._changes, dtype="i4, f8, ?")
        failed = np.array(self._failed, dtype="i8, f8")
        return EpisodeRecord(
            self.config,
            self.sequence,
            task_start_ms=np.concatenate([tasks["start"], lost["start"]]),
            task_finish_ms=np.concatenate([tasks["finish"], lost["finish"]]),
            task_executor=np.concatenate([tasks["executor"], lost["executor"]]),
            task_wave=np.concatenate([tasks["wave"], lost["wave"]]).astype(np.int8),
            task_parallelism=np.concatenate([tasks["parallelism"], lost["parallelism"]]),
            completion_ms=self.completion_ms,
            move_executor=moves[0].astype(np.int32),
            move_job=self._state.stages["job"][moves[1]],
            move_depart_ms=left_ms,
            end_ms=float(self.clock.now),
            num_decisions=self._num_decisions,
            lost_task=lost["task"],
            lost_outcome=lost["outcome"].astype(np.int8),
            failed_job=failed["f0"],
            failed_ms=failed["f1"],
            change_executor=changes["f0"],
            change_ms=changes["f1"],
            change_joins=changes["f2"],
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
            self._check_losses()

    def _nothing_pending(self) -> None:
        if not self._profiles:
            self._done = True
            return
        if (self.config.semantics.offer_idle_executors or self._faults) and not self._last_call:
            # All executors are idle: they are offered once more before the cluster stands still for ever.
            self._last_call = True
            self._offer_free()
            if not self._last_call:
                return
        if not self._offered:
            if not (self._has_end or self._waits_for_executors()):
                raise self._stands_still()
            self.clock.step()

    def _waits_for_executors(self) -> bool:
        """Whether executors may return, and those that are idle cannot run anything."""
        faults = self.config.faults
        may_return = self._num_capacities or (self._outages and math.isfinite(faults.executor_return_ms))
        return bool(may_return) and not engine.is_wanted(self._memory)

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

    def _offer_free(self) -> None:
        """Offer all free executors that could be used; no round is open."""
        self._own_pools, self._offer_place = (), 0
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
        if self._faults:
            self._schedule_faults()
        for job, arrival_ms in enumerate(self.sequence.arrival_ms.tolist()):
            if arrival_ms == 0:
                self._add_job(job)
            else:
                self._num_pending += 1
                self.clock.at(arrival_ms, Cluster._job_arrives, job)
        self._own_pools = tuple(self._common_pools)
        self._open_next_offer()
        self._run()

    def _add_job(self, job: int) -> None:
        profile = self.sequence.profiles[job]
        noise = task_noise(self._noise_seed, job, profile.num_tasks)
        engine.add_job(self._memory, job, *noise)
        if self._faults:
            self._state.jobs["key"][job] = job_key(self._noise_seed, job)
        self._profiles += (self._known.profiles[job],)
        self._num_stages += profile.num_stages
        self._reward.add_job(self.clock.now, job)
        self._num_losses = 0

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
                value = moves[0, start:end], order[start]
                self.clock.at(arrival_ms, Cluster._executors_arrive, value, order[start])
                start = end

    def _executors_arrive(self, arrival: tuple[NDArray[np.int64], int]) -> None:
        self._num_pending -= 1
        engine.end_moves(self._memory, *arrival, self.clock.now)
        self._schedule_arrivals()

    def _executor_ran_dry(self, happened: int, executor: int, stage: int, running: int) -> None:
        """An executor finished a task of a stage that has no more to hand out, and it concerns others."""
        self._schedule_arrivals()
        if executor < 0:
            return
        job, pools = self._stage_job[stage], ()
        if happened & engine.FAILED:
            happened, running = fault_engine.fail_task(self._memory, self.clock.now)
            self._take_lost_runs()
            self._schedule_arrivals()
            if not happened:
                self._offer_recovered()
                return
        if happened & engine.NEEDS_DECISION:
            # All who work on the stage will run dry soon; this round settles where they go.
            self._open_round(self._single[executor : executor + 1], running, job)
        if happened & engine.OPENED:
            first, kind = job * self._num_classes, self._executor_class[executor]
            pools = (first + kind, *(first + other for other in range(self._num_classes) if other != kind))
        if happened & (engine.JOB_COMPLETE | engine.JOB_FAILED):
            place = engine.end_job(self._memory, job, executor, self.clock.now)
            self._num_losses = 0
            if happened & engine.JOB_FAILED:
                self._state.jobs["completion_ms"][job] = math.nan
                self._failed.append((job, self.clock.now))
            self._reward.end_job(self.clock.now, job, self.sequence.arrival_ms[job])
            self._num_stages -= self._profiles[place].num_stages
            self._profiles = self._profiles[:place] + self._profiles[place + 1 :]
        self._stay()
        self._offer_next(pools)

    # Faults.

    def _schedule_faults(self) -> None:
        for time_ms, number in self.config.faults.capacity:
            if time_ms > 0:
                self.clock.at(time_ms, Cluster._capacity_changes, number)
            else:
                self._capacity_changes(number)
        self._schedule_outages()

    def _schedule_outages(self) -> None:
        """Schedule the next change of each executor: a loss, or the return of one that is lost."""
        if math.isinf(self.config.faults.executor_lifetime_ms):
            return
        self._keys = executor_keys(self._noise_seed, self.config.num_executors)
        for executor in range(self.config.num_executors):
            self._schedule_change(executor, int(executor in self._outages))

    def _schedule_change(self, executor: int, number: int) -> None:
        """Schedule the change ``number`` of an executor: even for a loss, odd for a return."""
        time_ms = self.clock.now + outage_ms(self.config.faults, self._keys[executor], number)
        if math.isfinite(time_ms):
            self.clock.at(time_ms, Cluster._executor_changes, (executor, number))

    def _executor_changes(self, value: tuple[int, int]) -> None:
        executor, number = value
        self._schedule_change(executor, number + 1)
        self._outages ^= {executor}
        if executor < self._capacity:
            self._lose_or_join([executor], joins=number % 2 == 1)

    def _capacity_changes(self, capacity: int) -> None:
        before, self._capacity = self._capacity, capacity
        self._num_capacities -= 1
        changed = range(min(before, capacity), max(before, capacity))
        self._lose_or_join([each for each in changed if each not in self._outages], joins=capacity > before)

    def _lose_or_join(self, executors: list[int], *, joins: bool) -> None:
        if not executors:
            return
        if joins:
            self._last_call = False
            fault_engine.join(self._memory, np.array(executors))
        else:
            self._take_lost_runs()
            fault_engine.lose(self._memory, np.array(executors), self.clock.now)
        self._changes += [(each, self.clock.now, joins) for each in executors]
        self._change_executors([self._executor_class[each] for each in executors], 1 if joins else -1)
        self._offer_free()

    def _offer_recovered(self) -> None:
        """A task has failed; where outputs were lost, others may have to run again."""
        if self.config.faults.lost_output:
            self._offer_free()

    def _take_lost_runs(self) -> None:
        if self._num_lost[0]:
            self._lost_runs.append(self._state.lost[: self._num_lost[0]].copy())
            self._num_lost[0] = 0

    def _time_is_up(self, _: None) -> None:
        self._done = True
