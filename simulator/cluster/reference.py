"""Reference simulator in plain SimPy: readable, and the compiled engine must agree with it event by event.

Arrivals of jobs, tasks and moves of executors are SimPy processes; time passes only in these. A *round* opens when an
executor has no task left, when a stage becomes ready, or when a job arrives: executors of one *source* (a stage, the
pool of a job, or a common pool) are offered to the scheduler, which commits all of them, decision by decision, to
stages or to idleness. Then executors carry out the oldest commitments of their source: executors without a task at
once, others when their task ends (``reference_executors.py``).

Simultaneous events happen in the order in which they were scheduled, as in SimPy: a process starts before other events,
and timeouts that end at the same time do so in the order in which they started.
"""

from __future__ import annotations

import math
import statistics
from contextlib import suppress
from copy import copy
from itertools import count
from typing import Self

import numpy as np
from numpy.typing import NDArray
from simpy.events import ProcessGenerator

from simulator.cluster.config import ClusterConfig
from simulator.cluster.draws import COPY, Purpose, executor_keys, outage_ms
from simulator.cluster.faults import MIN_LATE_MS, MOST_FAILURES
from simulator.cluster.losses import change_executors
from simulator.cluster.outcome import Outcome
from simulator.cluster.record import EpisodeRecord
from simulator.cluster.reference_executors import ReferenceExecutors
from simulator.cluster.reference_state import Executor, Job, Stage, log_of, redrawn_ms
from workloads.arrivals import JobSequence
from workloads.errors import SchedulingError

__all__ = ["ReferenceCluster"]


class ReferenceCluster(ReferenceExecutors):
    """One episode on the reference simulator: the same results as ``Cluster``, in about twenty times the time."""

    def __init__(self, config: ClusterConfig, sequence: JobSequence):
        super().__init__(config, sequence)
        for executor in self._executors:
            self._go_to_common_pool(executor)
        if self._has_end:
            self.clock.process(self._end_of_time())
        for time_ms, capacity in config.faults.capacity:
            if time_ms > 0:
                self.clock.process(self._capacity_change(time_ms, capacity))
            else:
                self._change_capacity(capacity)
        self._begin_outages(sequence.seed)
        for job in self._jobs:
            if job.arrival_ms > 0:
                self.clock.process(self._arrival(job))
            else:
                self._join(job)
        if config.signal:
            self.clock.process(self._signal_changes(config.signal))
        self._offers = iter([(None, class_id) for class_id in self._class_ids])
        self._open_next_round()
        self._run()

    def fork(self, futures: int | None = None, *, arrivals: bool = True, log: bool = True) -> Self:
        """Return a new cluster that has replayed all decisions, with the log; see ``BaseCluster.fork``.

        In the replay a running task has its redrawn duration from its start, which does not change the past.
        """
        fork = type(self)(self.config, self.sequence)
        fork._given_ms = self._given_ms.copy()
        if futures is not None:
            factors = {job: self._redrawn_factors(job, futures) for job in self._live}
            fork._given_ms |= redrawn_ms(self.config, self._executors, futures, self.clock.now, factors)
        with suppress(SchedulingError):  # the cluster stalls
            for method, *arguments in self._history:
                method(fork, *arguments)
        fork._change_future(futures, arrivals)
        fork._meter = copy(self._counted())
        fork._settlements.clear()
        fork.keeps_executors = self.keeps_executors
        return fork

    def _change_future(self, seed: int | None, arrivals: bool) -> None:
        """Redraw tasks that have not started, if a seed is given; stop arrivals unless ``arrivals`` is true."""
        self._history.append((ReferenceCluster._change_future, seed, arrivals))
        self._arrivals &= arrivals
        if seed is not None:
            for job in self._jobs:
                job.draw_noise(seed)
                self._redraw_task_times(job, seed)
            self._begin_outages(seed)

    # Processes.

    def _end_of_time(self) -> ProcessGenerator:
        yield self.clock.timeout(self.config.max_time_ms)
        self._done = True

    def _arrival(self, job: Job) -> ProcessGenerator:
        """Let a job arrive, and offer all executors of the common pools."""
        yield self.clock.timeout(job.arrival_ms)
        if not self._arrivals:
            return
        self._join(job)
        self._offer((None, class_id) for class_id in self._class_ids)

    def _work(self, executor: Executor, stage: Stage, task_ms: float) -> ProcessGenerator:
        """Run a task of a stage on an executor, then further tasks of the stage until it has none left."""
        while True:
            occupation = executor.occupation
            yield self.clock.timeout(task_ms)
            if executor.occupation != occupation:  # the executor was lost
                return
            other = self._other_run(executor)
            failed = self._end_run(executor, stage)
            if stage.job.failed:
                return
            freed = not failed and other is not None and self._free_killed(other, stage)
            if not self._goes_on(stage):
                break
            if other and not failed:  # the other executor has already begun its next task
                self._start(executor, stage)
                return
            task_ms = self._next_task_ms(executor, stage)
            if failed:
                self._offer_recovered()
        if self._become_idle(executor, stage, freed) and failed:
            self._offer_recovered()

    def _move(self, executor: Executor) -> ProcessGenerator:
        """Move an executor to another job, where a JVM starts."""
        occupation = executor.occupation
        yield self.clock.timeout(self.config.moving_delay_ms)
        self._num_on_the_way -= 1
        if executor.occupation != occupation:  # the executor was lost
            return
        target = self._moving.pop(executor)
        if target is None:
            self._find_work(executor)
        else:
            executor.job = target.job
            self._take_up(executor, target)

    def _capacity_change(self, time_ms: float, number: int) -> ProcessGenerator:
        yield self.clock.timeout(time_ms)
        self._change_capacity(number)

    def _outages_of(self, executor: Executor, number: int, keys: list[int]) -> ProcessGenerator:
        """Remove an executor from the cluster and bring it back alternately, until the keys are replaced."""
        for change in count(number):
            time_ms = outage_ms(self.config.faults, keys[executor.number], change)
            if math.isinf(time_ms):
                return
            yield self.clock.timeout(time_ms)
            if keys is not self._outage_keys:
                return
            self._outages ^= {executor}
            if executor.number < self._capacity:
                self._lose_or_join([executor])

    # Events.

    def _join(self, job: Job) -> None:
        self._num_arrived += 1
        self._live.append(job)
        for stage in job.stages:
            if not stage.parents:
                stage.rank = self._next_rank + stage.path_rank
        self._next_rank += len(job.stages)
        self._profiles = tuple(live.profile for live in self._live)
        self._log_change(job.number)
        self._num_losses = 0

    def _goes_on(self, stage: Stage) -> bool:
        """Return whether an executor whose task has ended takes the stage's next task."""
        return stage.unstarted > 0 and stage.ready and not self.config.semantics.offer_after_tasks

    def _become_idle(self, executor: Executor, stage: Stage, freed: bool) -> bool:
        """Place an executor that gets no further task of its stage; return whether no other executor is concerned.

        ``freed``: another executor that ran the same task now waits in the pool of the job.
        """
        opened = stage.complete and self._open_children(stage)
        committed = any(source == executor.source for source, _ in self._commitments)
        if committed:
            self._carry_out_next(executor.source, executor)
        elif opened:
            self._wait(executor)
        elif self.config.semantics.offer_after_tasks:
            self._open_round([executor], 1, stage.job)
        else:  # the stage's other executors will become idle soon: this round commits them, too
            on_stage = sum(other.source == executor.source for other in self._executors)
            self._open_round([executor], on_stage, stage.job)
        ended = all(each.complete for each in stage.job.stages)
        if ended:
            self._end(stage.job)
        if opened or ended or freed or not committed:
            class_ids = sorted(self._class_ids, key=lambda class_id: class_id != executor.class_id)
            self._offer((stage.job, class_id) for class_id in class_ids if opened or freed)
            return False
        return True

    def _open_children(self, stage: Stage) -> bool:
        """Make children of a complete stage ready; return whether any became ready."""
        waiting = [child for child in stage.children if not child.ready]
        opened = [child for child in waiting if all(parent.complete for parent in child.parents)]
        for child in opened:
            child.rank = self._next_rank + child.path_rank
        if opened:
            self._next_rank += len(stage.job.stages)
        return bool(opened)

    def _end(self, job: Job) -> None:
        """End a job that is complete or has failed: free its executors, cancel commitments and moves to it."""
        self._num_losses = 0
        if not job.failed:
            job.completion_ms = self.clock.now
        self._log_change(-1 - job.number)
        self._live.remove(job)
        self._profiles = tuple(live.profile for live in self._live)
        for class_id in self._class_ids:
            for executor in self._pools.pop((job, class_id), []):
                self._go_to_common_pool(executor)
        for executor in self._executors:
            if executor.job is job:  # the executor of the last task, which is offered
                executor.detach()
        self._commitments = [
            commitment for commitment in self._commitments if commitment[1] not in job.stages
        ]
        for executor, target in self._moving.items():
            if target in job.stages:
                self._moving[executor] = None

    # Faults.

    def _end_run(self, executor: Executor, stage: Stage) -> bool:
        """End a task run; return whether it has failed."""
        task, share = executor.task, self.config.faults.task_failures
        purpose = Purpose.FAILS + COPY * executor.is_copy
        if not (share > 0 and stage.chance(task, purpose, stage.job.key) < share):
            if other := self._other_run(executor):
                self._stop(other, Outcome.KILLED)
            stage.finish_task(executor, self.clock.now)
            return False
        executor.start_ms = math.nan
        stage.failures[task] += 1
        self._stop(executor, Outcome.FAILED)
        if stage.failures[task] == MOST_FAILURES:
            self._fail(executor, stage.job)
        else:
            self._recover(stage.job)
        return True

    def _lose_run(self, stage: Stage, task: int, outcome: Outcome) -> None:
        start_ms, finish_ms, executor, wave, parallelism = stage.requeue(task)
        run = start_ms, min(finish_ms, self.clock.now), executor, wave, parallelism
        self._lost_runs.append((stage, task, run, outcome))

    def _stop(self, executor: Executor, outcome: Outcome) -> None:
        """Log the lost run of an executor; the task must run again unless another executor runs it."""
        stage, task = executor.stage, executor.task
        assert stage
        if not self._other_run(executor):
            self._lose_run(stage, task, outcome)
            return
        if stage.runs[task][2] == executor.number:
            stage.runs[task], stage.copies[task] = stage.copies[task], stage.runs[task]
        start_ms, _, number, wave, parallelism = stage.copies.pop(task)
        run = start_ms, self.clock.now, number, wave, parallelism
        self._lost_runs.append((stage, task, run, outcome))

    def _fail(self, executor: Executor, job: Job) -> None:
        """Fail a job of which a task has failed too often, and stop all its executors."""
        job.failed = True
        self._go_to_common_pool(executor)
        for other in self._executors:
            if other.job is job and other.stage:
                self._stop(other, Outcome.JOB_FAILED)
                self._go_to_common_pool(other)
        self._commitments = [
            commitment for commitment in self._commitments if commitment[0][0] not in job.stages
        ]
        self._end(job)
        self._offer([])

    def _begin_outages(self, seed: int) -> None:
        """Start the outages of all executors, with random numbers of a seed. Executors that are lost return first."""
        if math.isinf(self.config.faults.executor_lifetime_ms):
            return
        self._outage_keys = executor_keys(seed, len(self._executors))
        for executor in self._executors:
            lost = int(executor in self._outages)
            self.clock.process(self._outages_of(executor, lost, self._outage_keys))

    def _change_capacity(self, number: int) -> None:
        low, high = sorted((number, self._capacity))
        self._capacity = number
        self._num_capacities -= 1
        self._lose_or_join(
            [executor for executor in self._executors[low:high] if executor not in self._outages]
        )

    def _offer_recovered(self) -> None:
        """Offer free executors after a failure, as tasks with lost outputs may have to run again."""
        if self.config.faults.lost_output:
            self._offer_free()

    def _lose_or_join(self, executors: list[Executor]) -> None:
        """Remove executors from the cluster, or add them again if they are away."""
        if not executors:
            return
        joins = executors[0].away
        for executor in executors:
            executor.away = not joins
            if joins:
                self._last_call = False
                self._go_to_common_pool(executor)
            else:
                self._lose(executor)
        numbers = [executor.number for executor in executors]
        classes = [executor.class_id for executor in executors]
        change_executors(self, numbers, classes, joins=joins)
        self._offer_free()

    def _lose(self, executor: Executor) -> None:
        source, stage, pool = executor.source, executor.stage, self._pools[executor.job, executor.class_id]
        self._moving.pop(executor, None)
        if executor in pool:
            pool.remove(executor)
        if stage:
            self._stop(executor, Outcome.EXECUTOR_LOST)
        executor.detach()
        if stage:
            left = sum(other.source == source for other in self._executors)
            committed = [
                index for index, commitment in enumerate(self._commitments) if commitment[0] == source
            ]
            if len(committed) > left:
                self._commitments.pop(committed[-1])
        if self.config.faults.lost_output:
            for job in self._live:
                for each in job.stages:
                    ran_here = (task for task in each.done if each.runs[task][2] == executor.number)
                    each.without_output |= set(ran_here) if each.children else set()
                self._recover(job)

    def _recover(self, job: Job) -> None:
        """Rerun finished tasks whose output is lost and is needed by a child with unstarted tasks."""
        while sum(self._rerun(stage) for stage in reversed(job.stages)):
            pass

    def _rerun(self, stage: Stage) -> bool:
        lost = sorted(stage.without_output) if any(child.unstarted for child in stage.children) else []
        for task in lost:
            self._lose_run(stage, task, Outcome.OUTPUT_LOST)
            stage.without_output.remove(task)
            for child in stage.children:
                if child.unstarted:
                    child.rank = math.inf
        return bool(lost)

    # Speculation: copies of tasks that run long.

    def _free_killed(self, executor: Executor, stage: Stage) -> bool:
        """Place an executor whose task another one has finished; return whether it waits in the pool of its job."""
        executor.occupation += 1
        executor.start_ms = math.nan
        if self._goes_on(stage):
            self._start(executor, stage)
        elif any(source == executor.source for source, _ in self._commitments):
            self._carry_out_next(executor.source, executor)
        else:
            self._wait(executor)
            return True
        return False

    def _step(self) -> None:
        """Process the next event. A speculative copy comes after all other events of its time."""
        if self.config.faults.speculation and self.clock.now < self.clock.peek():
            late = [
                executor
                for executor in self._executors
                if executor.stage and self._may_copy(executor, executor.stage)
            ]
            due = [(self._late_ms(executor), executor.number) for executor in late]
            time_ms, number = min(due, default=(math.inf, -1))
            if time_ms < self.clock.peek():
                self._pass_until(time_ms)
                self.clock._now = time_ms
                executor = self._executors[number]
                assert executor.stage
                self._copy(self._waiting(executor.stage).pop(0), executor.stage, executor.task)
                return
        self._pass_until(self.clock.peek())
        self.clock.step()

    def _may_copy(self, executor: Executor, stage: Stage) -> bool:
        """Return whether the task of an executor is copied when it has run long; store the limit in the stage."""
        assert self.config.faults.speculation
        quantile, multiplier = self.config.faults.speculation
        enough = max(math.floor(quantile * stage.profile.num_tasks), 1)
        if stage.unstarted or stage.finished < enough or not executor.start_ms >= 0:
            return False
        if not stage.late_ms:
            median_ms = statistics.median(stage.runs[task][1] - stage.runs[task][0] for task in stage.done)
            stage.late_ms = max(multiplier * median_ms, MIN_LATE_MS)
        return executor.task not in stage.copied and bool(self._waiting(stage))

    def _late_ms(self, executor: Executor) -> float:
        """Return the time at which the running task of an executor has run long, ms; not before now."""
        assert executor.stage
        return max(executor.start_ms + executor.stage.late_ms, self.clock.now)

    # Decisions.

    def _commit(self, target: tuple[int, int] | None, count: int) -> None:
        self._history.append((ReferenceCluster._decided, target, count))
        source, stage = self._acting[0].source, None
        if target is not None:
            stage = self._jobs[target[0]].stages[target[1]]
            count = min(count, self._unclaimed(stage))
            self._chosen.add(stage)
        self._commitments += [(source, stage)] * count
        self._num_offered -= count
        if not self._num_offered:
            self._chosen.clear()
            for executor in self._acting:
                self._carry_out_next(source, executor)
            self._open_next_round()
            self._run()

    def _run(self) -> None:
        """Advance simulated time until a round opens or the episode ends."""
        while not self._num_offered and not self._done:
            to_come = self._arrivals and self._num_arrived < len(self._jobs)
            if to_come or self._num_on_the_way or any(executor.stage for executor in self._executors):
                self._step()
            else:
                self._nothing_pending()
            self._check_losses()

    def _is_wanted(self) -> bool:
        return any(self._free_places())

    @property
    def completion_ms(self) -> NDArray[np.float64]:
        """See ``BaseCluster.completion_ms``."""
        return np.array([job.completion_ms for job in self._jobs])

    def record(self) -> EpisodeRecord:
        """See ``BaseCluster.record``."""
        log = log_of(self._jobs, self._moves, self._lost_runs)
        return EpisodeRecord(self.config, self.sequence, **log, **self._end_of_log())
