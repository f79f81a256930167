"""The cluster in plain SimPy, to be read: it says what is right, and the compiled engine must agree event by event.

Jobs that arrive, executors that run tasks and executors that move are SimPy processes; nothing else lets time pass.
When an executor runs out of work, a stage opens or a job arrives, a *round* opens: executors of one *source* (a
stage, the pool of a job, or the common pool) are offered to the scheduler, which commits all of them, decision by
decision, to stages or to idleness. Then those in turn carry out the oldest commitments of their source; the others
follow as they become free. Hardly anything is counted: it is looked up where executors are and who is committed.

Simultaneous events happen in the order in which they were caused. SimPy sees to that: a process begins before
anything else happens, and timeouts that end at the same time do so in the order in which they began.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Self

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import ProcessGenerator

from simulator.cluster.base import BaseCluster, SchedulingError
from simulator.cluster.config import ClusterConfig, check_demands
from simulator.cluster.durations import duration_ms
from simulator.cluster.observation import JOB, STAGE, Observation
from simulator.cluster.record import EpisodeRecord
from simulator.cluster.reference_state import (
    Executor,
    Job,
    Source,
    Stage,
    estimate,
    jobs_of,
    log_of,
    redrawn_ms,
)
from simulator.cluster.reward import RewardMeter
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, Wave

__all__ = ["ReferenceCluster"]


class ReferenceCluster(BaseCluster):
    """One episode, as ``Cluster`` runs it, but about twenty times slower."""

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        super().__init__(config, sequence)
        check_demands(config, sequence)
        self.clock = simpy.Environment(initial_time=0.0)
        self._jobs = jobs_of(self._known)
        self._live: list[Job] = []
        self._profiles: tuple[JobProfile, ...] = ()  # of the live jobs
        self._num_arrived = 0
        self._next_rank = count()
        self._kinds = range(len(config.executor_classes))
        kinds = [kind for kind in self._kinds for _ in range(config.executor_classes[kind].count)]
        self._executors = [Executor(number, kind) for number, kind in enumerate(kinds)]
        self._pools: defaultdict[Source, list[Executor]] = defaultdict(list)
        self._moving: dict[Executor, Stage | None] = {}  # None: the job has ended meanwhile
        # Of one executor each, the oldest first: whose turn it will be, and what for; no stage: to be idle.
        self._commitments: list[tuple[Source, Stage | None]] = []
        self._moves: list[tuple[int, int, float]] = []
        self._arrivals = True
        self._history: list[tuple[Any, ...]] = []  # methods called by decisions and forks, with arguments
        self._given_ms: dict[tuple[int, int, int], float] = {}  # durations of tasks that were drawn anew
        self._reward = RewardMeter(config)

        # The open round, and the pools to be offered after it.
        self._turn: list[Executor] = []
        self._source_job: Job | None = None
        self._chosen: set[Stage] = set()
        self._offers: Iterator[Source] = iter([(None, kind) for kind in self._kinds])

        for executor in self._executors:
            self._go_to_common_pool(executor)
        self._has_end = config.semantics.honour_max_time and math.isfinite(config.max_time_ms)
        if self._has_end:
            self.clock.process(self._end_of_time())
        for job in self._jobs:
            if job.arrival_ms > 0:
                self.clock.process(self._arrival(job))
            else:
                self._join(job)
        self._open_next_round()

    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Self:
        """Return a cluster that has replayed all decisions, with the log, see ``BaseCluster.fork``.

        A running task that is drawn anew has its new duration from its start: either way it is still running.
        """
        fork = type(self)(self.config, self.sequence)
        fork._given_ms = self._given_ms.copy()
        if futures is not None:
            fork._given_ms |= redrawn_ms(self.config, self._jobs, futures, self.clock.now)
        with suppress(SchedulingError):  # it stands still for ever
            for method, *arguments in self._history:
                method(fork, *arguments)
        fork._change_future(futures, arrivals)
        fork.keeps_executors = self.keeps_executors
        return fork

    def _change_future(self, seed: int | None, arrivals: bool) -> None:
        """Give tasks that have not started the noise of a seed, if there is one, and perhaps let no more job arrive."""
        self._history.append((ReferenceCluster._change_future, seed, arrivals))
        self._arrivals &= arrivals
        if seed is not None:
            for job in self._jobs:
                job.draw_noise(seed)

    # Processes.

    def _end_of_time(self) -> ProcessGenerator:
        yield self.clock.timeout(self.config.max_time_ms)
        self._done = True

    def _arrival(self, job: Job) -> ProcessGenerator:
        """A job arrives: all executors of the common pools are offered."""
        yield self.clock.timeout(job.arrival_ms)
        if not self._arrivals:
            return
        self._join(job)
        self._offer((None, kind) for kind in self._kinds)

    def _work(self, executor: Executor, stage: Stage, task_ms: float) -> ProcessGenerator:
        """An executor runs a task of a stage, and then all further ones that it gets."""
        yield self.clock.timeout(task_ms)
        stage.finish_task(executor, self.clock.now)
        while stage.unstarted and not self.config.semantics.offer_after_tasks:
            yield self.clock.timeout(self._next_task_ms(executor, stage))
            stage.finish_task(executor, self.clock.now)
        self._run_dry(executor, stage)

    def _move(self, executor: Executor) -> ProcessGenerator:
        """An executor moves to another job, where a JVM starts."""
        yield self.clock.timeout(self.config.moving_delay_ms)
        target = self._moving.pop(executor)
        if target is None:
            self._find_work(executor)
        else:
            executor.job = target.job
            self._take_up(executor, target)

    # Events.

    def _join(self, job: Job) -> None:
        self._num_arrived += 1
        self._live.append(job)
        for stage in job.stages:
            if not stage.parents:
                stage.rank = next(self._next_rank)
        self._profiles = tuple(live.profile for live in self._live)
        self._reward.add_job(self.clock.now, job.number)

    def _run_dry(self, executor: Executor, stage: Stage) -> None:
        """An executor finished a task of a stage that has no more for it."""
        opened = stage.complete and self._open_children(stage)
        committed = any(source == executor.source for source, _ in self._commitments)
        if committed:
            self._carry_out_next(executor.source, executor)
        elif opened:
            self._wait(executor)
        elif self.config.semantics.offer_after_tasks:
            self._open_round([executor], 1, stage.job)
        else:  # all who work on the stage will run dry soon; this round settles where they go
            crew = sum(other.source == executor.source for other in self._executors)
            self._open_round([executor], crew, stage.job)
        ended = all(each.complete for each in stage.job.stages)
        if ended:
            self._end(stage.job)
        if opened or ended or not committed:
            kinds = sorted(self._kinds, key=lambda kind: kind != executor.kind) if opened else []
            self._offer((stage.job, kind) for kind in kinds)

    def _open_children(self, stage: Stage) -> bool:
        """A stage is complete; returns whether others became ready."""
        opened = [child for child in stage.children if all(parent.complete for parent in child.parents)]
        for child in opened:
            child.rank = next(self._next_rank)
        return bool(opened)

    def _end(self, job: Job) -> None:
        """A job is complete: its executors are free, commitments and moves to it are void."""
        job.completion_ms = self.clock.now
        self._reward.end_job(self.clock.now, job.number, job.arrival_ms)
        self._live.remove(job)
        self._profiles = tuple(live.profile for live in self._live)
        for kind in self._kinds:
            for executor in self._pools.pop((job, kind), []):
                self._go_to_common_pool(executor)
        for executor in self._executors:
            if executor.job is job:  # the one that did the last task and is offered
                executor.detach()
        self._commitments = [each for each in self._commitments if each[1] not in job.stages]
        for executor, target in self._moving.items():
            if target in job.stages:
                self._moving[executor] = None

    # What executors do.

    def _carry_out_next(self, source: Source, executor: Executor) -> None:
        """An executor carries out the oldest commitment of its source."""
        oldest = next(place for place, each in enumerate(self._commitments) if each[0] == source)
        _, target = self._commitments.pop(oldest)
        job, pool = executor.job, self._pools[executor.job, executor.kind]
        if executor in pool:
            pool.remove(executor)
        if target is None:
            if job and self._could_use(job, executor.kind):
                self._wait(executor)
            else:
                self._go_to_common_pool(executor)
        elif target.job is job:
            self._take_up(executor, target)
        elif target.unstarted:
            self._leave_for(executor, target)
        else:
            self._find_work(executor)

    def _could_use(self, job: Job, kind: int) -> bool:
        """Whether a job has tasks to start, now or later."""
        release = self.config.semantics.release_misfits
        return any(stage.unstarted and (not release or self._fits(stage, kind)) for stage in job.stages)

    def _take_up(self, executor: Executor, stage: Stage) -> None:
        """An executor is in the job of the stage that it was committed to."""
        if not stage.unstarted:
            self._find_work(executor)
        elif stage.ready:
            self._start(executor, stage)
        else:
            self._wait(executor)

    def _find_work(self, executor: Executor) -> None:
        """What an executor came for is done, or the job has ended: it helps itself."""
        stages = executor.job.stages if executor.job else []
        ready = [stage for stage in stages if stage.ready and self._fits(stage, executor.kind)]
        ready = [stage for stage in ready if self._unclaimed(stage) > 0]
        if ready:
            self._start(executor, min(ready, key=lambda stage: stage.rank))
        elif target := self._first_schedulable(executor.kind):
            self._leave_for(executor, target)
        elif executor.job:
            self._wait(executor)
        else:
            self._go_to_common_pool(executor)

    def _start(self, executor: Executor, stage: Stage) -> None:
        executor.stage = stage
        self.clock.process(self._work(executor, stage, self._next_task_ms(executor, stage)))

    def _next_task_ms(self, executor: Executor, stage: Stage) -> float:
        """Hand out the next task of a stage; returns how long it takes."""
        wave = Wave.FRESH if executor.warm is None else Wave.REST if executor.warm is stage else Wave.FIRST
        parallelism = sum(other.job is stage.job for other in self._executors)
        task = len(stage.runs)
        task_ms = self._given_ms.get((stage.job.number, stage.number, task))
        if task_ms is None:
            task_ms = duration_ms(self.config, stage.profile.durations, wave, parallelism, *stage.luck[task])
        stage.runs.append((self.clock.now, self.clock.now + task_ms, executor.number, wave, parallelism))
        executor.warm, executor.start_ms = stage, self.clock.now
        return task_ms

    def _leave_for(self, executor: Executor, target: Stage) -> None:
        executor.detach()
        self._moving[executor] = target
        self._moves.append((executor.number, target.job.number, self.clock.now))
        self.clock.process(self._move(executor))

    def _wait(self, executor: Executor) -> None:
        """Enter the pool of the executor's own job."""
        executor.stage = None
        if not self.config.semantics.waiting_keeps_jvm:
            executor.warm = None
        self._pools[executor.source].append(executor)

    def _go_to_common_pool(self, executor: Executor) -> None:
        executor.detach()
        self._pools[executor.source].append(executor)

    # Rounds.

    @property
    def turn(self) -> list[int]:
        """The executors that act when the open round closes, in order."""
        return [executor.number for executor in self._turn]

    @property
    def source(self) -> tuple[int | None, int | None]:
        """(job, stage in that job) whose executors are offered; no stage for a pool, no job for the common pool."""
        job, stage = self._source_job, self._turn[0].stage
        return job.number if job else None, stage.number if stage else None

    def _commit(self, target: tuple[int, int] | None, count: int) -> float:
        self._history.append((ReferenceCluster._decided, target, count))
        source, stage = self._turn[0].source, None
        if target is not None:
            stage = self._jobs[target[0]].stages[target[1]]
            count = min(count, self._unclaimed(stage))
            self._chosen.add(stage)
        self._commitments += [(source, stage)] * count
        self._offered -= count
        if not self._offered:
            self._chosen.clear()
            for executor in self._turn:
                self._carry_out_next(source, executor)
            self._open_next_round()
            self._run()
        return self._reward.step(self.clock.now)

    def _run(self) -> None:
        """Let time pass until a round opens or the episode is over."""
        while not self._offered and not self._done:
            to_come = self._arrivals and self._num_arrived < len(self._jobs)
            if to_come or self._moving or any(executor.stage for executor in self._executors):
                self.clock.step()
            elif not self._live:
                self._done = True
            elif self.config.semantics.offer_idle_executors and not self._last_call:
                # All executors are idle: they are offered once more before the cluster stands still for ever.
                self._last_call = True
                self._offer([])
            elif self._has_end:
                self.clock.step()
            else:
                self._done = True
                raise SchedulingError(
                    f"all executors are idle and nothing is pending, but {len(self._live)} jobs are not complete"
                )

    def _open_round(self, turn: list[Executor], offered: int, source_job: Job | None) -> None:
        self._turn, self._offered, self._source_job = turn, offered, source_job

    def _open_next_round(self) -> None:
        """Offer all executors of the next pool, if there is one."""
        for pool in self._offers:
            if turn := list(self._pools[pool]):
                self._open_round(turn, len(turn), turn[0].job)
                return

    def _offer(self, pools: Iterable[Source]) -> None:
        """After the open round, offer the pools that an event concerns and, as the paper has it, all free executors."""
        self._offers = self._with_free(list(pools))
        if not self._offered:
            self._open_next_round()

    def _with_free(self, pools: list[Source]) -> Iterator[Source]:
        """One pool after the other; whether its executors are free is asked when those before it are decided."""
        yield from pools
        if self.config.semantics.offer_idle_executors:
            places = [(job, kind) for job in (None, *self._live) for kind in self._kinds]
            yield from (place for place in places if self._is_free(*place))

    def _is_free(self, job: Job | None, kind: int) -> bool:
        """Whether a pool has executors that could be used now.

        Executors that wait for a stage of their own job, all of whose parents' tasks are running, are not free: they
        will be offered when it opens. Only where they are more than its tasks, some must be.
        """
        awaited = [stage for stage in job.stages if not stage.ready] if job else []
        tasks = sum(self._unclaimed(stage) for stage in awaited if self._is_schedulable(stage, kind))
        return len(self._pools[job, kind]) > tasks and self._first_schedulable(kind) is not None

    # What is looked up.

    def _unclaimed(self, stage: Stage) -> int:
        """Tasks that have not started and that no executor is committed or moving to; below 0: too many are."""
        committed = sum(target is stage for _, target in self._commitments)
        return stage.unstarted - committed - sum(target is stage for target in self._moving.values())

    def _held(self, job: Job) -> int:
        """Executors that a job holds: attached, moving to it, or committed to it from outside."""
        inside = (job, *job.stages)
        outside = [target for (place, _), target in self._commitments if place not in inside]
        coming = sum(target in job.stages for target in (*outside, *self._moving.values()))
        return coming + sum(executor.job is job for executor in self._executors)

    def _is_schedulable(self, stage: Stage, kind: int) -> bool:
        """Whether executors of a class may be committed to a stage of a live job."""
        return (
            stage not in self._chosen
            and self._unclaimed(stage) > 0
            and self._may_begin(stage)
            and self._fits(stage, kind)
        )

    def _may_begin(self, stage: Stage) -> bool:
        """Whether no parent has tasks to hand out, or, as a switch has it, all of them are complete."""
        if self.config.semantics.ready_stages_only:
            return stage.ready
        return all(self._unclaimed(parent) <= 0 for parent in stage.parents)

    def _first_schedulable(self, kind: int) -> Stage | None:
        stages = (stage for job in self._live for stage in job.stages)
        return next((stage for stage in stages if self._is_schedulable(stage, kind)), None)

    def _fits(self, stage: Stage, kind: int) -> bool:
        return self.config.executor_classes[kind].fits(stage.profile)

    # What others are told.

    def _look(self) -> Observation:
        kind = self._turn[0].kind
        jobs: list[tuple[float, ...]] = []
        stages: list[tuple[float, ...]] = []
        num_schedulable = 0
        classes = self._classes.copy()
        for pool, waiting in self._pools.items():
            classes["free"][pool[1]] += len(waiting)
        for place, job in enumerate(self._live):
            first = len(stages)
            schedulable = [stage for stage in job.stages if self._is_schedulable(stage, kind)]
            following = min(schedulable, key=lambda stage: stage.rank, default=None)
            unsaturated = sum(self._unclaimed(stage) > 0 for stage in job.stages)
            incomplete = sum(not stage.complete for stage in job.stages)
            next_stage = -1 if following is None else first + following.number
            counts = (job.number, first, self._held(job), unsaturated, incomplete, next_stage)
            jobs += [(*counts, job.arrival_ms, 0.0, job.profile.work_ms)]
            for stage in job.stages:
                unclaimed = max(self._unclaimed(stage), 0)
                running = sum(executor.stage is stage for executor in self._executors)
                rank = stage.rank if stage.ready and stage.unstarted else -1
                progress = (stage.unstarted, unclaimed, running, stage.finished, rank, stage in schedulable)
                profile = stage.profile
                needs = (profile.durations.mean_ms, profile.cpu, profile.memory)
                stages += [(place, profile.num_tasks, *progress, *needs, 0.0, stage.finished_ms)]
            num_schedulable += len(schedulable)
        job_rows, stage_rows = np.array(jobs, dtype=JOB), np.array(stages, dtype=STAGE)
        if self._estimates:
            self._show_estimates(job_rows, stage_rows)
        return Observation(
            self.config,
            self.clock.now,
            self._offered,
            kind,
            self._live.index(self._source_job) if self._source_job in self._live else -1,
            num_schedulable,
            job_rows,
            stage_rows,
            classes,
            self._profiles,
            self._last_call,
            self._known.work_prior,
        )

    def _show_estimates(self, jobs: NDArray[np.void], stages: NDArray[np.void]) -> None:
        """Put estimates in place of what schedulers do not know."""
        profiles = []
        for job, row in zip(self._live, jobs, strict=True):
            told = self._estimates[job.number]
            belief, estimates = estimate(job, told, self._executors, self.clock.now)
            profiles.append(told.scaled(int(belief["scale"][0])))
            row["log_sd"], row["first_work_ms"] = belief["log_sd"][0], told.first_work_ms
            for stage, known in zip(job.stages, estimates, strict=True):
                seen = stages[row["first_stage"] + stage.number]
                seen["mean_task_ms"], seen["log_sd"] = known["mean_ms"], known["log_sd"]
                if not stage.ready:
                    seen["num_tasks"] = seen["remaining_tasks"] = known["num_tasks"]
                    if seen["unclaimed_tasks"]:
                        claimed = stage.unstarted - self._unclaimed(stage)
                        seen["unclaimed_tasks"] = max(known["num_tasks"] - claimed, 1)
        if any(new is not old for new, old in zip(profiles, self._profiles, strict=True)):
            self._profiles = tuple(profiles)

    @property
    def completion_ms(self) -> NDArray[np.float64]:
        """See ``BaseCluster.completion_ms``."""
        return np.array([job.completion_ms for job in self._jobs])

    def record(self) -> EpisodeRecord:
        """See ``BaseCluster.record``."""
        log = log_of(self._jobs, self._moves)
        return EpisodeRecord(
            self.config, self.sequence, **log, end_ms=self.clock.now, num_decisions=self._num_decisions
        )
