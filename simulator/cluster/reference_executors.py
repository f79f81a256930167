"""Reference simulator: executors, their commitments, and rounds of offers, without simulated time.

Few counts are stored: most quantities are computed from the executors' places and commitments.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import ProcessGenerator

from simulator.cluster.base import BaseCluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.demands import check_demands
from simulator.cluster.draws import COPY, duration_ms
from simulator.cluster.estimates import redrawn_factors
from simulator.cluster.objectives import objective_named
from simulator.cluster.observation import JOB, STAGE, Observation
from simulator.cluster.reference_state import (
    Executor,
    Job,
    LostRun,
    Source,
    Stage,
    TaskRun,
    delay_factor,
    estimate,
    jobs_of,
)
from workloads.arrivals import JobSequence
from workloads.carbon import Signal
from workloads.job import Wave


class ReferenceExecutors(BaseCluster):
    """State of a cluster: jobs, executors, commitments. The subclass ``ReferenceCluster`` adds processes and time."""

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        super().__init__(config, sequence)
        check_demands(config, sequence)
        self.clock = simpy.Environment(initial_time=0.0)
        self._jobs = jobs_of(self._known)
        for job in self._jobs:
            seen = self._estimates[job.number].profile if self._estimates else job.profile
            by_path = config.semantics.longest_path_first
            for stage in job.stages:
                stage.path_rank = int(seen.path_rank[stage.number]) if by_path else stage.number
        self._live: list[Job] = []
        self._num_arrived = 0
        self._next_rank = 0  # least rank of the stages that become ready next
        self._class_ids = range(len(config.executor_classes))
        class_ids = [
            class_id for class_id in self._class_ids for _ in range(config.executor_classes[class_id].count)
        ]
        self._executors = [Executor(index, class_id) for index, class_id in enumerate(class_ids)]
        self._pools: defaultdict[Source, list[Executor]] = defaultdict(list)
        self._moving: dict[Executor, Stage | None] = {}  # targets of moves; None if the job has ended since
        # Commitments of one executor each, the oldest first: source and stage; None means to stay idle.
        self._commitments: list[tuple[Source, Stage | None]] = []
        self._moves: list[tuple[int, int, float]] = []
        self._arrivals = True
        self._history: list[tuple[Any, ...]] = []  # methods that decisions and forks called, with arguments
        self._given_ms: dict[tuple[int, int, int, int, bool], float] = {}  # redrawn durations of tasks
        self._num_on_the_way = 0  # moves that have not ended, including moves of lost executors
        self._idle_total_ms = 0.0
        self._log_of_jobs: list[tuple[int, float, float]] = []
        self._outage_keys: list[int] = []
        self._lost_runs: list[LostRun] = []

        # The open round, and the pools that are offered after it.
        self._num_offered = 0
        self._acting: list[Executor] = []
        self._source_job: Job | None = None
        self._chosen: set[Stage] = set()
        self._offers: Iterator[Source] = iter(())

    @abstractmethod
    def _work(self, executor: Executor, stage: Stage, task_ms: float) -> ProcessGenerator:
        """Run a task of a stage on an executor, then further tasks of the stage until it has none left."""

    @abstractmethod
    def _move(self, executor: Executor) -> ProcessGenerator:
        """Move an executor to another job, where a JVM starts."""

    # Work and moves of executors.

    def _carry_out_next(self, source: Source, executor: Executor) -> None:
        """Carry out the oldest commitment of a source with one of its executors."""
        oldest = next(index for index, commitment in enumerate(self._commitments) if commitment[0] == source)
        _, target = self._commitments.pop(oldest)
        job, pool = executor.job, self._pools[executor.job, executor.class_id]
        if executor in pool:
            pool.remove(executor)
        if target is None:
            if job and self._could_use(job, executor.class_id):
                self._wait(executor)
            else:
                self._go_to_common_pool(executor)
        elif target.job is job:
            self._take_up(executor, target)
        elif target.unstarted:
            self._leave_for(executor, target)
        else:
            self._find_work(executor)

    def _could_use(self, job: Job, class_id: int) -> bool:
        """Return whether a job has unstarted tasks; with the paper's semantics, tasks that the class can run."""
        release = self.config.semantics.release_misfits
        return any(stage.unstarted and (not release or self._fits(stage, class_id)) for stage in job.stages)

    def _take_up(self, executor: Executor, stage: Stage) -> None:
        """Place an executor that is in its target's job: start the target stage if ready, else wait."""
        if not stage.unstarted:
            self._find_work(executor)
        elif stage.ready:
            self._start(executor, stage)
        else:
            self._wait(executor)

    def _find_work(self, executor: Executor) -> None:
        """Find other work for an executor whose target stage is saturated, or whose job has ended."""
        stages = executor.job.stages if executor.job else []
        ready = [stage for stage in stages if stage.ready and self._fits(stage, executor.class_id)]
        ready = [stage for stage in ready if self._unclaimed(stage) > 0]
        if ready:
            self._start(executor, min(ready, key=lambda stage: stage.rank))
        elif target := self._first_schedulable(executor.class_id):
            self._leave_for(executor, target)
        elif executor.job:
            self._wait(executor)
        else:
            self._go_to_common_pool(executor)

    def _start(self, executor: Executor, stage: Stage) -> None:
        executor.stage = stage
        executor.occupation += 1
        self.clock.process(self._work(executor, stage, self._next_task_ms(executor, stage)))

    def _next_task_ms(self, executor: Executor, stage: Stage) -> float:
        """Start the next task of a stage on an executor; return the task's duration, ms."""
        executor.task, executor.is_copy = stage.next_task_number(), False
        return self._begin_run(executor, stage, stage.runs)

    def _redrawn_factors(self, job: Job, seed: int) -> list[float]:
        """Redraw the factors of the task times of a job's stages, given its estimates; 1 if these are exact."""
        if not self._estimates:
            return [1.0] * len(job.stages)
        belief = estimate(job, self._estimates[job.number], self._executors, self.clock.now)
        mean_ms = np.array([stage.profile.durations.mean_ms for stage in job.stages])
        factors: list[float] = redrawn_factors(seed, job.number, *belief, mean_ms).tolist()
        return factors

    def _redraw_task_times(self, job: Job, seed: int) -> None:
        for stage, factor in zip(job.stages, self._redrawn_factors(job, seed), strict=True):
            stage.factor = factor

    def _copy(self, executor: Executor, stage: Stage, task: int) -> None:
        """Start a speculative copy of a running task on an executor from the pool of the task's job."""
        executor.stage, executor.task, executor.is_copy = stage, task, True
        executor.occupation += 1
        stage.copied.add(task)
        self.clock.process(self._work(executor, stage, self._begin_run(executor, stage, stage.copies)))

    def _begin_run(self, executor: Executor, stage: Stage, runs: dict[int, TaskRun]) -> float:
        """Log the start of an executor's task in ``runs``; return the task's duration, ms."""
        wave = Wave.FRESH if executor.warm is None else Wave.REST if executor.warm is stage else Wave.FIRST
        parallelism = sum(other.job is stage.job for other in self._executors)
        task, is_copy, key = executor.task, executor.is_copy, stage.job.key
        task_ms = self._given_ms.get((stage.job.number, stage.number, task, stage.attempts[task], is_copy))
        if task_ms is None:
            noise = stage.later_noise(task, key, COPY) if is_copy else stage.noise[task]
            task_ms = duration_ms(self.config, stage.profile.durations, wave, parallelism, *noise)
            task_ms *= stage.factor
            task_ms *= delay_factor(self.config, stage, task, key, is_copy)
        runs[task] = (self.clock.now, self.clock.now + task_ms, executor.number, wave, parallelism)
        executor.warm, executor.start_ms = stage, self.clock.now
        return task_ms

    def _other_run(self, executor: Executor) -> Executor | None:
        """Return the other executor that runs the same task; None if there is none."""
        if self.config.faults.speculation is None:
            return None
        same_stage = (
            each for each in self._executors if each.stage is executor.stage and each is not executor
        )
        return next((each for each in same_stage if each.task == executor.task and each.start_ms >= 0), None)

    def _waiting(self, stage: Stage) -> list[Executor]:
        """Return the first pool of a stage's job whose executors cover the stage's demand; empty if there is none."""
        pools = (
            self._pools[stage.job, class_id] for class_id in self._class_ids if self._fits(stage, class_id)
        )
        return next((pool for pool in pools if pool), [])

    def _leave_for(self, executor: Executor, target: Stage) -> None:
        executor.detach()
        self._num_on_the_way += 1
        self._moving[executor] = target
        self._moves.append((executor.number, target.job.number, self.clock.now))
        self.clock.process(self._move(executor))

    def _wait(self, executor: Executor) -> None:
        """Put an executor into the pool of its own job."""
        executor.stage = None
        if not self.config.semantics.waiting_keeps_jvm:
            executor.warm = None
        self._pools[executor.source].append(executor)

    def _go_to_common_pool(self, executor: Executor) -> None:
        executor.detach()
        self._pools[executor.source].append(executor)

    # Rounds.

    @property
    def offered(self) -> int:
        """See ``BaseCluster.offered``."""
        return self._num_offered

    @property
    def acting(self) -> list[int]:
        """See ``BaseCluster.acting``."""
        return [executor.number for executor in self._acting]

    @property
    def source(self) -> tuple[int | None, int | None]:
        """See ``BaseCluster.source``."""
        job, stage = self._source_job, self._acting[0].stage
        return job.number if job else None, stage.number if stage else None

    def _open_round(self, acting: list[Executor], offered: int, source_job: Job | None) -> None:
        self._acting, self._num_offered, self._source_job = acting, offered, source_job

    def _open_next_round(self) -> None:
        """Offer all executors of the next pool that is not empty."""
        for pool in self._offers:
            if acting := list(self._pools[pool]):
                self._open_round(acting, len(acting), acting[0].job)
                return

    def _offer(self, pools: Iterable[Source]) -> None:
        """Queue pools to be offered after the open round, and then free executors if the semantics offer these."""
        # Free executors are determined once the earlier pools are decided.
        free = self._free_places() if self.config.semantics.offer_idle_executors else ()
        self._offers = chain(list(pools), free)
        if not self._num_offered:
            self._open_next_round()

    def _free_places(self) -> Iterator[Source]:
        """Yield pools with executors that some stage could use now."""
        pools = [(job, class_id) for job in (None, *self._live) for class_id in self._class_ids]
        yield from (pool for pool in pools if self._is_free(*pool))

    def _offer_free(self) -> None:
        self._offers = self._free_places()
        self._open_next_round()

    def _pass_until(self, time_ms: float) -> None:
        """Add the idle time of executors from now until ``time_ms``, before the event at that time."""
        if objective_named(self.config.reward).uses_carbon and math.isfinite(time_ms):
            idle = sum(
                not (executor.stage or executor.away or executor in self._moving)
                for executor in self._executors
            )
            self._idle_total_ms += idle * (time_ms - self.clock.now)

    def _idle_ms(self) -> float:
        return self._idle_total_ms

    def _log_change(self, job: int) -> None:
        """Log that a job arrives, or that a job has ended (-1 - job)."""
        self._log_of_jobs.append((job, self.clock.now, self._idle_total_ms))

    @property
    def _num_job_changes(self) -> int:
        return len(self._log_of_jobs)

    def _job_changes(self, first: int, end: int) -> list[tuple[int, float, float]]:
        return self._log_of_jobs[first:end]

    def _signal_changes(self, signal: Signal) -> ProcessGenerator:
        """Offer all free executors whenever the signal changes."""
        change = self.clock.timeout(signal.change_ms(0))
        for number in count(1):
            yield change
            self._settle()
            change = self.clock.timeout(signal.change_ms(number) - self.clock.now)
            self._last_call = False
            self._offer_free()

    def _is_free(self, job: Job | None, class_id: int) -> bool:
        """Return whether a pool has free executors, and some stage could use them now.

        Executors that wait for stages of their own job with running parents are free only if these stages have fewer
        tasks: they are offered when a stage becomes ready.
        """
        awaited = [stage for stage in job.stages if not stage.ready] if job else []
        tasks = sum(self._unclaimed(stage) for stage in awaited if self._is_schedulable(stage, class_id))
        return len(self._pools[job, class_id]) > tasks and self._first_schedulable(class_id) is not None

    # Derived quantities.

    def _unclaimed(self, stage: Stage) -> int:
        """Return the unstarted tasks minus the executors committed or moving to the stage; may be negative."""
        committed = sum(target is stage for _, target in self._commitments)
        return stage.unstarted - committed - sum(target is stage for target in self._moving.values())

    def _held(self, job: Job) -> int:
        """Return the number of executors that a job holds: attached, moving to it, or committed from outside."""
        inside = (job, *job.stages)
        outside = [target for (pool, _), target in self._commitments if pool not in inside]
        coming = sum(target in job.stages for target in (*outside, *self._moving.values()))
        return coming + sum(executor.job is job for executor in self._executors)

    def _is_schedulable(self, stage: Stage, class_id: int) -> bool:
        """Return whether a decision may choose a stage of a live job for executors of a class."""
        return (
            stage not in self._chosen
            and self._unclaimed(stage) > 0
            and self._may_begin(stage)
            and self._fits(stage, class_id)
        )

    def _may_begin(self, stage: Stage) -> bool:
        """Return whether all parents are saturated; with ``ready_stages_only``, whether they are complete."""
        if self.config.semantics.ready_stages_only:
            return stage.ready
        return all(self._unclaimed(parent) <= 0 for parent in stage.parents)

    def _first_schedulable(self, class_id: int) -> Stage | None:
        stages = (
            stage for job in self._live for stage in sorted(job.stages, key=lambda stage: stage.path_rank)
        )
        return next((stage for stage in stages if self._is_schedulable(stage, class_id)), None)

    def _fits(self, stage: Stage, class_id: int) -> bool:
        return self.config.executor_classes[class_id].fits(stage.profile)

    def _build_observation(self) -> Observation:
        class_id = self._acting[0].class_id if self._acting else 0
        jobs: list[tuple[float, ...]] = []
        stages: list[tuple[float, ...]] = []
        num_schedulable = 0
        classes = self._classes.copy()
        weight, tenant = self.sequence.weight, self.sequence.tenant
        for pool, waiting in self._pools.items():
            classes["free"][pool[1]] += len(waiting)
        for index, job in enumerate(self._live):
            first = len(stages)
            schedulable = [stage for stage in job.stages if self._is_schedulable(stage, class_id)]
            following = min(schedulable, key=lambda stage: (stage.rank, stage.path_rank), default=None)
            unsaturated = sum(self._unclaimed(stage) > 0 for stage in job.stages)
            incomplete = sum(not stage.complete for stage in job.stages)
            next_stage = -1 if following is None else first + following.number
            counts = (job.number, first, self._held(job), unsaturated, incomplete, next_stage)
            attributes = (weight[job.number], self._deadline_ms[job.number], tenant[job.number])
            jobs += [(*counts, job.arrival_ms, 0.0, job.profile.work_ms, *attributes)]
            for stage in job.stages:
                unclaimed = max(self._unclaimed(stage), 0)
                running = sum(executor.stage is stage for executor in self._executors)
                rank = stage.rank if stage.ready and stage.unstarted else -1
                progress = (stage.unstarted, unclaimed, running, stage.finished, rank, stage in schedulable)
                profile = stage.profile
                needs = (profile.durations.mean_ms, profile.cpu, profile.memory)
                stages += [(index, profile.num_tasks, *progress, *needs, 0.0, stage.finished_ms)]
            num_schedulable += len(schedulable)
        job_rows, stage_rows = np.array(jobs, dtype=JOB), np.array(stages, dtype=STAGE)
        if self._estimates:
            self._show_estimates(job_rows, stage_rows)
        return Observation(
            self.config,
            self.clock.now,
            self._num_offered,
            class_id,
            self._live.index(self._source_job) if self._source_job in self._live else -1,
            num_schedulable,
            job_rows,
            stage_rows,
            classes,
            self._profiles,
            self._last_call,
            self._prior,
            self.sequence.tenants,
        )

    def _show_estimates(self, jobs: NDArray[np.void], stages: NDArray[np.void]) -> None:
        """Replace unknown quantities by their estimates."""
        profiles = []
        for job, row in zip(self._live, jobs, strict=True):
            told = self._estimates[job.number]
            belief, estimates = estimate(job, told, self._executors, self.clock.now)
            profiles.append(told.scaled(int(belief["scale"][0])))
            row["log_sd"], row["first_work_ms"] = belief["log_sd"][0], told.first_work_ms
            for stage, known in zip(job.stages, estimates, strict=True):
                seen = stages[row["first_stage"] + stage.number]
                seen["mean_task_ms"], seen["log_sd"] = known["mean_ms"], known["log_sd"]
                if not stage.ready and stage.unstarted == seen["num_tasks"]:
                    seen["num_tasks"] = seen["remaining_tasks"] = known["num_tasks"]
                    if seen["unclaimed_tasks"]:
                        claimed = stage.unstarted - self._unclaimed(stage)
                        seen["unclaimed_tasks"] = max(known["num_tasks"] - claimed, 1)
        if any(new is not old for new, old in zip(profiles, self._profiles, strict=True)):
            self._profiles = tuple(profiles)
