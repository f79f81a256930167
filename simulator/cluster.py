"""The Spark cluster: scheduling events, rounds of decisions, commitments, executor moves.

An executor that runs out of work, a stage that opens or a job that arrives opens a *round*: executors of one
source (a stage, the pool of a job, or the common pool) are offered to the scheduler, which commits all of them,
decision by decision, to stages or to idleness. Nothing moves until the whole round is decided. Then the
commitments of the source are *fulfilled*, oldest first, as its executors become free; one that changes jobs is
on its way for the moving delay. The rules are those of the published Decima simulator; where the paper says
otherwise, ``Semantics`` decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from simpy.core import EmptySchedule
from simpy.events import Event

from simulator import tasks
from simulator.clock import Clock
from simulator.config import ClusterConfig
from simulator.durations import task_noise
from simulator.observation import Decision, Observation
from simulator.record import EpisodeRecord
from simulator.reward import RewardMeter
from simulator.state import allocate
from workloads.arrivals import JobSequence

__all__ = ["Cluster", "SchedulingError"]

#: Target of a commitment to idleness.
IDLE = -1


class SchedulingError(RuntimeError):
    """A decision that the cluster cannot carry out. The message is one line."""


class Cluster:
    """One episode: a cluster, a sequence of jobs, and whoever decides.

    Call :meth:`observe` and :meth:`decide` in turn until :attr:`done`; ``run_episode`` does so.
    ``cluster.clock`` is a SimPy environment; processes of your own may run in it.

    Args:
        config: the cluster.
        sequence: the jobs.

    Raises:
        ConfigError: a stage that no executor class can run.
    """

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        self.config = config
        self.sequence = sequence
        self._arrays, view = allocate(config, sequence)
        self._integers = self._arrays.integers
        num_jobs, num_classes = len(sequence), len(config.executor_classes)

        # Stages and jobs: numbers that compiled code changes too.
        self._job_attached = memoryview(view.job_attached)
        self._job_executors = memoryview(view.job_executors)
        self._job_incomplete = memoryview(view.job_incomplete)
        self._started = memoryview(view.started)
        self._claimed = memoryview(view.claimed)
        self._selected = memoryview(view.selected)
        self._incomplete_parents = memoryview(view.incomplete_parents)
        self._running = [memoryview(row) for row in view.running]
        self._stage_job = view.stage_job.tolist()
        self._num_tasks = view.num_tasks.tolist()
        self._first_stage = [*view.job_first_stage.tolist(), len(self._num_tasks)]
        self._first_task = view.first_task

        # Executors. An executor is on a stage, or waits in a pool, or moves to a stage. A pool is an ordered set,
        # numbered job * classes + class; the common pools come after those of the jobs.
        self._executor_stage = memoryview(view.executor_stage)
        self._executor_memory = memoryview(view.executor_memory)
        self._executor_class = view.executor_class.tolist()
        self._executor_job: list[int | None] = [None] * config.num_executors
        self._num_classes = num_classes
        self._common = num_jobs * num_classes
        self._pools: dict[int, dict[int, None]] = {self._common + kind: {} for kind in range(num_classes)}
        for executor, kind in enumerate(self._executor_class):
            self._pools[self._common + kind][executor] = None
        self._moving: dict[int, int] = {}
        self._departing: list[int] = []
        self._moves: list[tuple[int, int, float]] = []

        # Commitments: source -> target -> executors, each in order of insertion. Sources are the pools by number
        # and then the stages, numbered stage * classes + class.
        self._commitments: dict[int, dict[int, int]] = {}

        self._live: dict[int, None] = {}
        self._live_array = np.zeros(0, dtype=np.int64)
        self._completion_ms = np.full(num_jobs, math.nan)
        self._num_completed = 0
        self._num_decisions = 0

        # The open round, and the pools whose executors are offered next.
        self._turn: Sequence[int] = ()
        self._budget = 0
        self._source_job: int | None = None
        self._chosen: list[int] = []
        self._offers: Iterator[int] = iter(())
        self._last_call = False
        self._ended = False
        self._observation: Observation | None = None
        self._mean_task_ms = np.array(
            [stage.durations.mean_ms for profile in sequence.profiles for stage in profile.stages]
        )

        self._task_options = (config.semantics.nearest_level, float(config.warmup_delay_ms))
        self.clock = Clock(memoryview(view.next_order), self._advance_tasks, self._executor_ran_dry)
        self._reward = RewardMeter(config)
        self._reset()

    # The scheduler's side.

    @property
    def done(self) -> bool:
        """Whether the episode is over: all jobs complete and all executors arrived, or ``max_time_ms`` passed."""
        return self._ended

    @property
    def has_choice(self) -> bool:
        """Whether any stage is schedulable; if not, the only answer is to leave the executors idle."""
        return self._any_schedulable(self._executor_class[self._turn[0]])

    @property
    def offered(self) -> int:
        """Executors still to be committed in the open round."""
        return self._budget

    def observe(self) -> Observation:
        """What the scheduler may see now. Between two decisions it is the same object.

        Raises:
            SchedulingError: the episode is over.
        """
        if self._ended:
            raise SchedulingError("the episode is over: there is nothing to decide")
        if self._observation is None:
            kind = self._executor_class[self._turn[0]]
            jobs, stages = tasks.observe(self._integers, self._live_array, kind)
            source = -1
            if self._source_job in self._live:
                source = int(np.searchsorted(self._live_array, self._source_job))
            self._observation = Observation(
                self.config,
                self.sequence,
                self.clock.now,
                self._budget,
                kind,
                source,
                jobs,
                stages,
                self._mean_task_ms,
            )
        return self._observation

    def decide(self, decision: Decision | None) -> float:
        """Carry out a decision on the current observation; ``None`` leaves the offered executors idle.

        Commits ``min(limit - executors that the job holds without those offered, offered, unclaimed tasks)``.

        Returns:
            The reward of the time until the next decision; 0 within a round.

        Raises:
            SchedulingError: the stage is not schedulable or the limit leaves nothing to commit; nothing changes.
        """
        if decision is None:
            return self._commit(IDLE, self._budget)
        observation = self.observe()
        place, limit = decision
        if not 0 <= place < observation.stages.shape[1]:
            raise SchedulingError(f"there is no stage {place}: the observation has {observation.stages.shape[1]}")
        held = observation.held(int(observation.stage_job[place]))
        if limit <= held:
            raise SchedulingError(f"the limit must exceed the {held} executors that the job holds, got {limit}")
        stage = int(observation.stages[0, place])
        self._check_schedulable(stage)
        return self._commit(stage, min(limit - held, self._budget))

    def commit(self, job: int, stage: int, count: int) -> float:
        """Commit ``count`` executors, clipped to the stage's unclaimed tasks, as the published simulator does.

        Args:
            job: number in the sequence.
            stage: number in the job.
            count: from 1 to the number of executors offered.

        Returns:
            As :meth:`decide`.

        Raises:
            SchedulingError: the stage is not schedulable or the count is out of range; nothing changes.
        """
        if not (0 <= job < len(self.sequence) and 0 <= stage < self.sequence.profiles[job].num_stages):
            raise SchedulingError(f"there is no stage {stage} of job {job}")
        if not 0 < count <= self._budget:
            raise SchedulingError(f"{count} executors asked for, {self._budget} offered")
        number = self._first_stage[job] + stage
        self._check_schedulable(number)
        return self._commit(number, count)

    @property
    def turn(self) -> tuple[int, ...]:
        """The executors that act when the open round closes, in order."""
        return tuple(self._turn)

    @property
    def source(self) -> tuple[int | None, int | None]:
        """(job, stage in that job) whose executors are offered; no stage for a pool, no job for the common pool."""
        stage = self._executor_stage[self._turn[0]]
        return self._source_job, None if stage < 0 else stage - self._first_stage[self._stage_job[stage]]

    def record(self) -> EpisodeRecord:
        """What happened so far."""
        start, finish = self._arrays.task_time.copy()
        finish[finish > self.clock.now] = math.nan
        executor, wave, parallelism = self._arrays.task_run.copy()
        moves = np.array(self._moves, dtype=np.float64).reshape(-1, 3)
        return EpisodeRecord(
            self.config,
            self.sequence,
            task_start_ms=start,
            task_finish_ms=finish,
            task_executor=executor,
            task_wave=wave.astype(np.int8),
            task_parallelism=parallelism,
            completion_ms=self._completion_ms.copy(),
            move_executor=moves[:, 0].astype(np.int32),
            move_job=moves[:, 1].astype(np.int64),
            move_depart_ms=moves[:, 2],
            end_ms=float(self.clock.now),
            num_decisions=self._num_decisions,
        )

    # A round.

    def _check_schedulable(self, stage: int) -> None:
        if not tasks.is_schedulable(self._integers, self._executor_class[self._turn[0]], stage) or (
            self._stage_job[stage] not in self._live
        ):
            job = self._stage_job[stage]
            raise SchedulingError(f"stage {stage - self._first_stage[job]} of job {job} is not schedulable")

    def _any_schedulable(self, kind: int) -> bool:
        return bool(tasks.first_schedulable(self._integers, self._live_array, kind) >= 0)

    def _commit(self, target: int, count: int) -> float:
        """Record a commitment; when the round is decided, carry it out and go on to the next round."""
        if self._ended:
            raise SchedulingError("the episode is over: there is nothing to decide")
        first = self._turn[0]
        if target != IDLE:
            count = min(count, self._num_tasks[target] - self._started[target] - self._claimed[target])
            tasks.claim(self._integers, target, count)
            job = self._stage_job[target]
            if job != self._executor_job[first]:
                self._job_executors[job] += count
            self._selected[target] = 1
            self._chosen.append(target)
        targets = self._commitments.setdefault(self._source_of(first), {})
        targets[target] = targets.get(target, 0) + count
        self._budget -= count
        self._observation = None
        self._num_decisions += 1
        if not self._budget:
            for stage in self._chosen:
                self._selected[stage] = 0
            self._chosen.clear()
            self._fulfil(self._turn)
            self._open_next_offer()
            self._run()
        return self._reward.step(self.clock.now, self._live)

    def _run(self) -> None:
        """Let time pass until a round opens or nothing is left to happen."""
        while not self._budget and not self._ended:
            try:
                self.clock.step()
                self._last_call = False
            except EmptySchedule:
                self._nothing_pending()

    def _nothing_pending(self) -> None:
        if self._num_completed == len(self.sequence):
            self._ended = True
            return
        if self.config.semantics.offer_idle_executors and not self._last_call:
            # Whoever idled everything is asked once more before the cluster stands still for ever.
            self._last_call = True
            self._offers = self._free_pools()
            self._open_next_offer()
            if self._budget:
                return
        waiting = len(self.sequence) - self._num_completed
        raise SchedulingError(f"all executors are idle and nothing is pending, but {waiting} jobs are not complete")

    def _free_pools(self) -> Iterator[int]:
        """Pools whose executors could be offered: the common ones, then those of the live jobs."""
        jobs = range(self._num_classes)
        return chain(
            (self._common + kind for kind in jobs),
            [job * self._num_classes + kind for job in self._live for kind in jobs],
        )

    def _open_round(self, turn: Sequence[int], budget: int, source_job: int | None) -> None:
        self._turn, self._budget, self._source_job = turn, budget, source_job

    def _open_pool(self, pool: int) -> None:
        """Open a round of all executors in a pool."""
        turn = tuple(self._pools[pool])
        self._open_round(turn, len(turn), None if pool >= self._common else pool // self._num_classes)

    def _open_next_offer(self) -> None:
        """Open a round of the next free executors that could be used, if there are any."""
        for pool in self._offers:
            executors = self._pools.get(pool)
            if executors and self._any_schedulable(pool % self._num_classes):
                self._open_pool(pool)
                return

    def _after_event(self, own_pools: Iterable[int], offer_idle: bool) -> None:
        """An event is over: open a round of the pools that it concerns, then of all others if it is for everybody."""
        free = self._free_pools() if offer_idle and self.config.semantics.offer_idle_executors else ()
        self._offers = chain(own_pools, free)
        if not self._budget:
            self._open_next_offer()

    # Commitments.

    def _source_of(self, executor: int) -> int:
        stage, kind = self._executor_stage[executor], self._executor_class[executor]
        if stage >= 0:
            return self._common + (1 + stage) * self._num_classes + kind
        job = self._executor_job[executor]
        return self._common + kind if job is None else job * self._num_classes + kind

    def _fulfil(self, turn: Sequence[int]) -> None:
        """The executors in turn carry out the commitments of their source."""
        source = self._source_of(turn[0])
        targets = self._commitments[source]
        for executor in turn:
            target = next(iter(targets))
            if targets[target] == 1:
                del targets[target]
            else:
                targets[target] -= 1
            self._carry_out(executor, target)
            if not targets:
                del self._commitments[source]
                break
        self._depart()

    def _carry_out(self, executor: int, target: int) -> None:
        job = self._executor_job[executor]
        if self._executor_stage[executor] < 0:
            # The last executor of a job that just ended is in no pool yet.
            self._pools[self._source_of(executor)].pop(executor, None)
        if target == IDLE:
            if job is not None and self._has_unstarted_tasks(job):
                self._wait(executor, job)
            else:
                self._go_to_common_pool(executor)
            return
        target_job = self._stage_job[target]
        if self._started[target] == self._num_tasks[target]:
            tasks.claim(self._integers, target, -1)
            if job != target_job:
                self._job_executors[target_job] -= 1
            self._find_work(executor)
        elif job != target_job:
            self._leave_for(executor, target)
        else:
            self._work_or_wait(executor, target)

    def _work_or_wait(self, executor: int, target: int) -> None:
        """An executor has come to its target, in its own job: start if the stage is ready."""
        if self._incomplete_parents[target] == 0:
            self._start(executor, target, claimed=1)
        else:
            tasks.claim(self._integers, target, -1)
            self._wait(executor, self._stage_job[target])

    def _find_work(self, executor: int) -> None:
        """The target of an executor turned out to be full: it helps itself."""
        job, kind = self._executor_job[executor], self._executor_class[executor]
        if job is not None:
            stage = tasks.first_ready(self._integers, job, kind)
            if stage >= 0:
                self._start(executor, stage, claimed=0)
                return
        stage = tasks.first_schedulable(self._integers, self._live_array, kind)
        if stage >= 0:
            tasks.claim(self._integers, stage, 1)
            self._job_executors[self._stage_job[stage]] += 1
            self._leave_for(executor, stage)
        elif job is not None:
            self._wait(executor, job)
        else:
            self._go_to_common_pool(executor)

    def _has_unstarted_tasks(self, job: int) -> bool:
        stages = range(self._first_stage[job], self._first_stage[job + 1])
        return any(self._started[stage] < self._num_tasks[stage] for stage in stages)

    # Where an executor is.

    def _leave_stage(self, executor: int) -> None:
        stage = self._executor_stage[executor]
        if stage >= 0:
            self._running[self._executor_class[executor]][stage] -= 1
            self._executor_stage[executor] = -1

    def _detach(self, executor: int) -> None:
        """Leave stage and job; the JVM is gone."""
        self._leave_stage(executor)
        self._executor_memory[executor] = -1
        job = self._executor_job[executor]
        if job is not None:
            self._job_attached[job] -= 1
            self._job_executors[job] -= 1
            self._executor_job[executor] = None

    def _wait(self, executor: int, job: int) -> None:
        """Enter the pool of the executor's own job."""
        self._leave_stage(executor)
        if not self.config.semantics.waiting_keeps_jvm:
            self._executor_memory[executor] = -1
        self._pools[job * self._num_classes + self._executor_class[executor]][executor] = None

    def _go_to_common_pool(self, executor: int) -> None:
        self._detach(executor)
        self._pools[self._common + self._executor_class[executor]][executor] = None

    def _leave_for(self, executor: int, target: int) -> None:
        """Begin a move; the stage's claim and the job's count go with the executor."""
        self._detach(executor)
        self._moving[executor] = target
        self._moves.append((executor, self._stage_job[target], self.clock.now))
        self._departing.append(executor)

    def _depart(self) -> None:
        """Schedule one arrival for all executors that left in a row: simultaneous events keep their order."""
        if self._departing:
            arrival = self.clock.timeout(float(self.config.moving_delay_ms), self._departing)
            arrival.callbacks.append(self._executors_arrive)
            self._departing = []

    def _start(self, executor: int, stage: int, claimed: int) -> None:
        self._depart()
        tasks.start_task(*self._arrays, executor, stage, claimed, self.clock.now, *self._task_options)

    def _advance_tasks(self, limit_ms: float, limit_order: int) -> tuple[float, int, bool]:
        result: tuple[float, int, bool] = tasks.advance(*self._arrays, limit_ms, limit_order, *self._task_options)
        return result

    # Events.

    def _reset(self) -> None:
        if math.isfinite(self.config.max_time_ms) and self.config.semantics.honour_max_time:
            self.clock.timeout(self.config.max_time_ms).callbacks.append(self._time_is_up)
        for job, arrival_ms in enumerate(self.sequence.arrival_ms.tolist()):
            if arrival_ms == 0:
                self._add_job(job)
            else:
                self.clock.timeout(arrival_ms, job).callbacks.append(self._job_arrives)
        self._open_pool(self._common)
        self._offers = iter(range(self._common + 1, self._common + self._num_classes))

    def _add_job(self, job: int) -> None:
        first = self._first_task[self._first_stage[job]]
        noise = task_noise(self.sequence.seed, job, self.sequence.profiles[job].num_tasks)
        self._arrays.noise[:, first : first + noise.shape[1]] = noise
        for kind in range(self._num_classes):
            self._pools[job * self._num_classes + kind] = {}
        self._reward.count(self.clock.now, len(self._live))
        self._live[job] = None
        self._live_array = np.fromiter(self._live, dtype=np.int64)

    def _job_arrives(self, event: Event) -> None:
        self._add_job(event.value)
        common = range(self._common, self._common + self._num_classes)
        self._after_event(common, offer_idle=True)

    def _executors_arrive(self, event: Event) -> None:
        for executor in event.value:
            target = self._moving.pop(executor, None)
            if target is None:  # its job ended while it was on the way
                self._find_work(executor)
                continue
            job = self._stage_job[target]
            self._executor_job[executor] = job
            self._job_attached[job] += 1
            if self._started[target] == self._num_tasks[target]:
                tasks.claim(self._integers, target, -1)
                self._find_work(executor)
            else:
                self._work_or_wait(executor, target)
        self._depart()

    def _executor_ran_dry(self, executor: int, opened: bool) -> None:
        """An executor finished a task of a stage that has no more to hand out."""
        stage, kind = self._executor_stage[executor], self._executor_class[executor]
        job = self._stage_job[stage]
        own_pools: Sequence[int] = ()
        committed = self._source_of(executor) in self._commitments
        if committed:
            self._fulfil((executor,))
        elif opened:
            self._wait(executor, job)
        else:
            # Everybody on the stage will run dry soon; this round settles where they go.
            self._open_round((executor,), self._running[kind][stage], job)
        if opened:
            first = job * self._num_classes
            own_pools = sorted(range(first, first + self._num_classes), key=lambda pool: pool != first + kind)
            if self._pools[own_pools[0]]:
                self._open_pool(own_pools[0])
        complete = self._job_incomplete[job] == 0
        if complete:
            self._end_job(job, executor)
        if opened or complete or not committed:
            self._after_event(own_pools[1:], offer_idle=True)

    def _end_job(self, job: int, last_executor: int) -> None:
        self._reward.end_job(self.clock.now, len(self._live), job, self.sequence.arrival_ms[job])
        if self._executor_job[last_executor] == job and self._executor_stage[last_executor] >= 0:
            self._detach(last_executor)
        for source, targets in list(self._commitments.items()):
            for target in [target for target in targets if target >= 0 and self._stage_job[target] == job]:
                del targets[target]
            if not targets:
                del self._commitments[source]
        for kind in range(self._num_classes):
            for executor in self._pools.pop(job * self._num_classes + kind):
                self._go_to_common_pool(executor)
        for executor in [moving for moving, target in self._moving.items() if self._stage_job[target] == job]:
            del self._moving[executor]
        del self._live[job]
        self._live_array = np.fromiter(self._live, dtype=np.int64)
        self._completion_ms[job] = self.clock.now
        self._num_completed += 1

    def _time_is_up(self, _: Event) -> None:
        self._ended = True
