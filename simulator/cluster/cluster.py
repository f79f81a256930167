"""Discrete-event simulation of a Spark cluster: scheduling events, rounds of offers, commitments, executor moves.

A *round* opens when an executor has no task left, when a stage becomes ready, or when a job arrives: executors of one
source (a stage, the pool of a job, or the common pool) are offered to the scheduler, which commits all of them,
decision by decision, to stages or to idleness. No executor moves until the whole round is decided. Then executors carry
out the commitments of their source, oldest first, as they become free. An executor that changes jobs moves for the
moving delay, as a new JVM starts. The rules are those of the published Decima simulator; where the paper differs,
``Semantics`` decides. ``reference.py`` implements the same rules in plain SimPy.
"""

from __future__ import annotations

import math
from copy import copy
from functools import partial
from typing import Any
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.base import BaseCluster, SchedulingError
from simulator.cluster.config import ClusterConfig
from simulator.cluster.draws import executor_keys, job_key, outage_ms, task_noise
from simulator.cluster.engine import commands as engine
from simulator.cluster.engine import faults as fault_engine
from simulator.cluster.engine.clock import Clock
from simulator.cluster.engine.executors import FAILED, IDLE, JOB_COMPLETE, JOB_FAILED
from simulator.cluster.engine.posterior import posterior, records
from simulator.cluster.engine.state import Memory, allocate, state_of
from simulator.cluster.estimates import redrawn_factors
from simulator.cluster.observation import Observation
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence

__all__ = ["Cluster"]


class Cluster(BaseCluster):
    """One episode on the compiled engine.

    ``cluster.clock`` is a SimPy environment, in which you can run processes of your own.

    The mutable state is ``_memory``, the clock's queue and the lists of the log; other attributes are replaced, never
    changed in place. So a fork is a shallow copy with a memory, a queue and lists of its own.
    """

    clock: Clock

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        super().__init__(config, sequence)
        self._attach(allocate(config, self._known, self._estimates, self._deadline_ms))
        self._first_stage: list[int] = self._state.jobs["first_stage"].tolist()
        #: Pending arrivals of jobs and executors. Events of other processes do not keep an episode going.
        self._num_pending = 0
        self._moves: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        self._has_log = True
        self._noise_seed = sequence.seed
        self._redraws_task_times = False
        self._faults = config.faults if config.faults.active else None
        self._lost_runs: list[NDArray[np.void]] = []
        self._late_ms = np.zeros(len(self._state.stages) if config.faults.speculation else 0)
        self._reset()

    def _attach(self, memory: Memory) -> None:
        """Attach engine memory, and create a clock that runs on it."""
        self._memory, self._state = memory, state_of(memory)
        names = ("num_departures", "num_running", "num_lost", "num_rows", "offered", "offered_class")
        cluster = self._state.cluster
        #: Views of single numbers, which are faster to read than fields of an array.
        self._num_departures, self._num_running, self._num_lost, self._num_rows, self._budget, self._class = (
            cluster[name].data for name in names
        )
        advance = partial(engine.run_tasks, memory)
        if self.config.faults.speculation:
            advance = partial(Cluster._run_and_copy_tasks, proxy(self))
        self.clock = Clock(self, cluster["next_order"].data, advance, Cluster._task_ended)

    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Cluster:
        """See ``BaseCluster.fork``."""
        if self.clock.has_other_events:
            raise SchedulingError("the cluster cannot be forked: processes of your own wait on its clock")
        records, values = self._memory
        if log or self._faults:
            records = records.copy()
        else:
            records = np.empty_like(records)
            engine.copy_without_log(self._memory, records)
        fork = copy(self)
        fork._late_ms = self._late_ms.copy()
        fork._attach((records, values))
        fork.clock.follow(self.clock)
        for log_of in ("_moves", "_lost_runs", "_changes", "_failed"):
            setattr(fork, log_of, getattr(self, log_of).copy())
        fork._reward = copy(self._reward)
        fork._reward.follow(fork._idleness)
        fork._observation = None
        fork._has_log = self._has_log and log
        if not arrivals:
            fork._num_pending -= fork.clock.cancel(Cluster._job_arrives)
        if futures is not None:
            fork._redraw(futures)
        return fork

    def _redraw(self, seed: int) -> None:
        """Redraw, with another seed, tasks that have not started and the rest of running tasks."""
        self._noise_seed = seed
        self._redraws_task_times = bool(self._estimates)
        if self._redraws_task_times:
            self.snapshot()  # updates the estimates
        state = self._state
        for job in state.live[: len(self._profiles)].tolist():
            first = state.stages["first_task"][self._first_stage[job]]
            profile = self.sequence.profiles[job]
            noise = state.noise[first : first + profile.num_tasks]
            noise["level"], noise["duration"] = task_noise(seed, job, profile.num_tasks)
            if self._faults:
                state.jobs["key"][job] = job_key(seed, job)
                engine.renew_noise(self._memory, job)
            if self._redraws_task_times:
                estimates = state.estimates[self._first_stage[job] :][: profile.num_stages]
                self._redraw_task_times(job, state.beliefs[job : job + 1], estimates)
        engine.redraw_running(self._memory, self.clock.now)
        if self._faults and self.clock.cancel(Cluster._executor_changes):
            self._schedule_outages()

    def _redraw_task_times(self, job: int, belief: NDArray[np.void], estimates: NDArray[np.void]) -> None:
        """Redraw the true mean task times of a job's stages from the posterior, given the job's estimates."""
        first = self._first_stage[job]
        stages = self._state.stages[first : first + len(estimates)]
        stages["factor"] = redrawn_factors(self._noise_seed, job, belief, estimates, stages["mean_task_ms"])

    # Observation and state.

    @property
    def offered(self) -> int:
        """See ``BaseCluster.offered``."""
        return self._budget[0]

    @property
    def acting(self) -> list[int]:
        """See ``BaseCluster.acting``."""
        executors: list[int] = self._state.acting[: self._state.cluster["num_acting"][0]].tolist()
        return executors

    @property
    def source(self) -> tuple[int | None, int | None]:
        """See ``BaseCluster.source``."""
        job = int(self._state.cluster["source_job"][0])
        stage = int(self._state.executors["stage"][self.acting[0]])
        if stage >= 0:
            return job, stage - self._first_stage[job]
        return (job if job >= 0 else None), None

    def _build_observation(self) -> Observation:
        classes = self._classes.copy()
        source, num_schedulable, is_rescaled = engine.observe(self._memory, classes, self.clock.now)
        if is_rescaled:
            live = self._state.live[: len(self._profiles)]
            scales = zip(live.tolist(), self._state.beliefs["scale"][live].tolist(), strict=True)
            self._profiles = tuple(self._estimates[job].scaled(scale) for job, scale in scales)
        offered_class = self._class[0]
        first_job = offered_class * len(self._state.jobs)
        first_stage = offered_class * len(self._state.stages)
        return Observation(
            self.config,
            self.clock.now,
            self._budget[0],
            offered_class,
            source,
            num_schedulable,
            self._state.seen_jobs[first_job : first_job + len(self._profiles)],
            self._state.seen_stages[first_stage : first_stage + self._num_rows[0]],
            classes,
            self._profiles,
            self._last_call,
            self._prior,
            self.sequence.tenants,
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
        moves = np.concatenate(
            [np.zeros((3, 0), dtype=np.int64), *(moves for moves, _ in self._moves)], axis=1
        )
        lost = np.concatenate([self._state.lost[:0], *self._lost_runs])

        def of_runs(name: str) -> NDArray[Any]:
            tasks = self._state.tasks[name]
            return np.concatenate([tasks, lost[name]], dtype=tasks.dtype)

        return EpisodeRecord(
            self.config,
            self.sequence,
            task_start_ms=of_runs("start"),
            task_finish_ms=of_runs("finish"),
            task_executor=of_runs("executor"),
            task_wave=of_runs("wave"),
            task_parallelism=of_runs("parallelism"),
            completion_ms=self.completion_ms,
            move_executor=moves[0].astype(np.int32),
            move_job=self._state.stages["job"][moves[1]],
            move_depart_ms=np.concatenate([np.zeros(0), *(left_ms for _, left_ms in self._moves)]),
            lost_task=lost["task"],
            lost_outcome=lost["outcome"].astype(np.int8),
            **self._end_of_log(),
        )

    def _idle_ms(self) -> float:
        left_ms = float(self._state.cluster["idle_ms"][0])
        return left_ms + int(self._state.classes["free"].sum()) * self.clock.now

    # Rounds.

    def _commit(self, target: tuple[int, int] | None, count: int) -> float:
        stage = IDLE if target is None else self._first_stage[target[0]] + target[1]
        self._after_decisions(engine.commit(self._memory, stage, count, self.keeps_executors, self.clock.now))
        if not self._budget[0]:
            self._run()
        return self._reward.step(self.clock.now)

    def _after_decisions(self, decisions: int) -> None:
        """Count decisions taken on the scheduler's behalf, and schedule arrivals of executors."""
        if decisions:
            self._num_decisions += decisions
            self._last_call = False
        self._schedule_arrivals()

    def _run(self) -> None:
        """Advance simulated time until a round opens or the episode ends."""
        while not self._budget[0] and not self._done:
            if self._num_pending or self._num_running[0]:
                self.clock.step()
            else:
                self._nothing_pending()
            if self._faults:
                self._check_losses()

    def _step(self) -> None:
        self.clock.step()

    def _is_wanted(self) -> bool:
        return bool(engine.is_wanted(self._memory))

    def _offer_free(self) -> None:
        self._after_decisions(engine.offer_free(self._memory, self.keeps_executors, self.clock.now))

    # Events.

    def _reset(self) -> None:
        fault_engine.join(self._memory, np.arange(self.config.num_executors), 0.0)
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
        if self.config.signal:
            self.clock.at(self.config.signal.change_ms(0), Cluster._signal_changes, 0)
        self._state.cluster["next_pool"] = 0  # capacity changes at time 0 have advanced it
        engine.open_next(self._memory, False, 0.0)
        self._run()

    def _add_job(self, job: int) -> None:
        noise = task_noise(self._noise_seed, job, self.sequence.profiles[job].num_tasks)
        engine.add_job(self._memory, job, *noise)
        if self._faults:
            self._state.jobs["key"][job] = job_key(self._noise_seed, job)
        if self._redraws_task_times:
            belief, estimates = records(self._estimates[job])
            posterior(belief, estimates)
            self._redraw_task_times(job, belief, estimates)
        self._profiles += (self._known.profiles[job],)
        self._reward.add_job(self.clock.now, job)
        self._num_losses = 0

    def _job_arrives(self, job: int) -> None:
        self._num_pending -= 1
        self._add_job(job)
        self._after_decisions(engine.offer_pools(self._memory, -1, self.keeps_executors, self.clock.now))

    def _signal_changes(self, number: int) -> None:
        assert self.config.signal
        self.clock.at(self.config.signal.change_ms(number + 1), Cluster._signal_changes, number + 1)
        self._reward.settle(self.clock.now)
        self._last_call = False
        self._offer_free()

    def _schedule_arrivals(self) -> None:
        """Schedule the arrivals of executors that have departed. Consecutive departures share one arrival event."""
        if not self._num_departures[0]:
            return
        moves, left_ms = engine.take_departures(self._memory)
        self._moves.append((moves, left_ms))
        order, times = moves[2].tolist(), left_ms.tolist()
        start = 0
        # An event for each executor would take 1 to 8 % more CPU time, depending on the number of moves.
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

    def _task_ended(self, happened: int, executor: int, stage: int, offered: int) -> None:
        """Handle the end of a task that concerns other executors; for the arguments see ``run_tasks``."""
        if executor < 0:
            self._schedule_arrivals()
            return
        if happened & FAILED:
            self._schedule_arrivals()
            happened, offered, failed = fault_engine.end_run(self._memory, self.clock.now)
            self._take_lost_runs()
            self._schedule_arrivals()
            if not happened:
                if failed:
                    self._offer_recovered()
                return
        now, job = self.clock.now, -1
        if happened & (JOB_COMPLETE | JOB_FAILED):
            job = int(self._state.stages["job"][stage])
        decisions, place = engine.after_task(
            self._memory, happened, executor, stage, offered, self.keeps_executors, now
        )
        if job >= 0:
            self._num_losses = 0
            if happened & JOB_FAILED:
                self._state.jobs["completion_ms"][job] = math.nan
                self._failed.append((job, now))
            self._reward.end_job(now, job, self.sequence.arrival_ms[job])
            self._profiles = self._profiles[:place] + self._profiles[place + 1 :]
        self._after_decisions(decisions)

    # Faults.

    def _schedule_faults(self) -> None:
        for time_ms, number in self.config.faults.capacity:
            if time_ms > 0:
                self.clock.at(time_ms, Cluster._capacity_changes, number)
            else:
                self._capacity_changes(number)
        self._schedule_outages()

    def _schedule_outages(self) -> None:
        """Schedule the next change of each executor: a loss, or the return of a lost executor."""
        if math.isinf(self.config.faults.executor_lifetime_ms):
            return
        self._keys = executor_keys(self._noise_seed, self.config.num_executors)
        for executor in range(self.config.num_executors):
            self._schedule_change(executor, int(executor in self._outages))

    def _schedule_change(self, executor: int, number: int) -> None:
        """Schedule change ``number`` of an executor: even numbers are losses, odd ones are returns."""
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
            fault_engine.join(self._memory, np.array(executors), self.clock.now)
        else:
            self._take_lost_runs()
            fault_engine.lose(self._memory, np.array(executors), self.clock.now)
        classes = self._state.executors["class_id"][executors]
        self._change_executors(executors, classes.tolist(), joins)
        self._offer_free()

    def _run_and_copy_tasks(self, limit_ms: float, limit_order: int) -> tuple[float, int, int, int, int]:
        result: tuple[float, int, int, int, int] = fault_engine.run_tasks(
            self._memory, self._late_ms, self.clock.now, limit_ms, limit_order
        )
        return result

    def _take_lost_runs(self) -> None:
        if self._num_lost[0]:
            self._lost_runs.append(self._state.lost[: self._num_lost[0]].copy())
            self._num_lost[0] = 0

    def _time_is_up(self, _: None) -> None:
        self._done = True
