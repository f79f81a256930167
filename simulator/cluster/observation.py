"""What a scheduler may see when it is asked, as arrays over the live jobs and their stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ClusterConfig
from workloads.arrivals import JobSequence

__all__ = ["Decision", "Observation"]


class Decision(NamedTuple):
    """Run this stage next, with its job holding at most ``limit`` executors.

    Attributes:
        stage: place in the observation's stage arrays; must be schedulable.
        limit: parallelism limit of the stage's job; must exceed what the job holds without the executors offered.
    """

    stage: int
    limit: int


@dataclass(eq=False)
class Observation:
    """The cluster at one decision. Stages of the live jobs stand job by job, jobs in order of arrival.

    A copy: it does not change when the simulation goes on. S stages and J jobs are live.

    Attributes:
        config: the cluster.
        sequence: the jobs; a scheduler that looks at those that have not arrived yet is cheating.
        time_ms: the clock, ms.
        offered: executors to be committed in this round, those that are still finishing a task included.
        executor_class: which class they are of.
        source: the live job (place in the job arrays) whose executors are offered; -1 for free executors.
        num_schedulable: stages that may be chosen; if none, the only answer is to leave the executors idle.
        jobs: int64 [6, J]; the properties name its rows.
        stages: int64 [9, S]; the properties name its rows.
        sequence_task_ms: float64, ms; mean duration of a task, for all stages of the sequence, by the numbers
            in ``stages[0]``; those of the live ones are ``mean_task_ms``.
        last_call: nothing is pending: unless executors are put to work now, the cluster stands still for ever.
    """

    config: ClusterConfig
    sequence: JobSequence
    time_ms: float
    offered: int
    executor_class: int
    source: int
    num_schedulable: int
    jobs: NDArray[np.int64]
    stages: NDArray[np.int64]
    sequence_task_ms: NDArray[np.float64]
    last_call: bool = False

    @property
    def num_executors(self) -> int:
        """Executors of the whole cluster, of any class."""
        return self.config.num_executors

    @property
    def job_id(self) -> NDArray[np.int64]:
        """[J] the job's number in the sequence."""
        return self.jobs[0]

    @property
    def job_first_stage(self) -> NDArray[np.int64]:
        """[J] where its stages begin in the stage arrays."""
        return self.jobs[1]

    @property
    def job_executors(self) -> NDArray[np.int64]:
        """[J] executors that it holds: attached, moving to it, or committed to it from outside."""
        return self.jobs[2]

    @property
    def job_unsaturated_stages(self) -> NDArray[np.int64]:
        """[J] its stages that have unclaimed tasks."""
        return self.jobs[3]

    @property
    def job_incomplete_stages(self) -> NDArray[np.int64]:
        """[J] its stages that are not complete."""
        return self.jobs[4]

    @property
    def next_stage(self) -> NDArray[np.int64]:
        """[J] the stage that the job runs next by the published simulator's rule, as a place in the stage arrays.

        Of its schedulable stages the first that became ready; if none is ready, the first; -1 if none is schedulable.
        """
        return self.jobs[5]

    @property
    def stage_job(self) -> NDArray[np.int64]:
        """[S] the job it belongs to, as a place in the job arrays."""
        return self.stages[1]

    @property
    def num_tasks(self) -> NDArray[np.int64]:
        """[S] tasks in all."""
        return self.stages[2]

    @property
    def remaining_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that have not started."""
        return self.stages[3]

    @property
    def unclaimed_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that have not started and that no executor is committed or moving to."""
        return self.stages[4]

    @property
    def running_executors(self) -> NDArray[np.int64]:
        """[S] executors at work on it."""
        return self.stages[5]

    @property
    def finished_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that are done."""
        return self.stages[6]

    @property
    def ready_rank(self) -> NDArray[np.int64]:
        """[S] ascending in the order in which stages became ready; -1: parents incomplete, or no task left."""
        return self.stages[7]

    @cached_property
    def schedulable(self) -> NDArray[np.bool_]:
        """[S] may be chosen: unclaimed tasks, all parents saturated, not chosen yet in this round, fits the class."""
        return self.stages[8].astype(bool)

    @cached_property
    def mean_task_ms(self) -> NDArray[np.float64]:
        """[S] mean duration of its tasks, ms."""
        return self.sequence_task_ms[self.stages[0]]

    @cached_property
    def job_arrival_ms(self) -> NDArray[np.float64]:
        """[J] when it arrived, ms."""
        return self.sequence.arrival_ms[self.job_id]

    def work_ms(self, tasks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Work of each live job, float64 [J], ms: so many ``tasks`` of each stage, int64 [S], times their mean."""
        work = np.bincount(self.stage_job, tasks * self.mean_task_ms, minlength=self.jobs.shape[1])
        return work.astype(np.float64, copy=False)

    def held(self, job: int) -> int:
        """Executors that a live job holds without those offered; a limit must exceed this."""
        held = int(self.job_executors[job])
        return held - self.offered if job == self.source else held

    def stages_of(self, job: int) -> slice:
        """The stages of a live job in the stage arrays."""
        first = int(self.job_first_stage[job])
        is_last = job + 1 == self.jobs.shape[1]
        return slice(first, self.stages.shape[1] if is_last else int(self.job_first_stage[job + 1]))
