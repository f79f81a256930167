"""Observation of a scheduler: rows of the live jobs, their stages and the executor classes.

This module defines the columns; compiled code reads them by the same names. A simulator fills the rows, or a service
that watches a real cluster. They have no information on jobs that have not arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from workloads.display import count_text, html_table

if TYPE_CHECKING:
    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import WorkPrior
    from workloads.job import JobProfile

__all__ = ["CLASS", "JOB", "STAGE", "Decision", "Observation", "PerJob"]

#: Profiles whose results are kept, where every job may be of another.
MOST_PROFILES = 10_000

_Whole = TypeVar("_Whole")

# Of the type np.record, so that `row.field` works whether or not the code that says so is compiled.

#: A live job.
JOB = np.dtype(
    (
        np.record,
        [
            ("id", np.int64),  # stays the job's while it lives; ascending in order of arrival
            ("first_stage", np.int64),  # where its stages begin
            ("executors", np.int64),  # that it holds
            ("unsaturated_stages", np.int64),  # its stages that have unclaimed tasks
            ("incomplete_stages", np.int64),  # its stages that are not complete
            ("next_stage", np.int64),  # which it runs next, see `Observation.next_stage`
            ("arrival_ms", np.float64),
            ("log_sd", np.float64),  # uncertainty of the job's factor, see `Observation.job_log_sd`
            ("first_work_ms", np.float64),  # as estimated when it arrived
        ],
    )
)

#: A stage of a live job.
STAGE = np.dtype(
    (
        np.record,
        [
            ("job", np.int64),  # its job's place
            ("num_tasks", np.int64),  # as far as is known now
            ("remaining_tasks", np.int64),  # that have not started
            ("unclaimed_tasks", np.int64),  # of these, those that no executor is committed or moving to
            ("running_executors", np.int64),
            ("finished_tasks", np.int64),
            ("ready_rank", np.int64),  # in which order stages became ready, -1 if it is not
            ("schedulable", np.int64),  # 1 if it may be chosen
            ("mean_task_ms", np.float64),
            ("cpu", np.float64),  # a task's demand
            ("memory", np.float64),
            ("log_sd", np.float64),  # uncertainty of `mean_task_ms`: of its logarithm; 0 if it is exact
            ("finished_ms", np.float64),  # executor time of its finished tasks
        ],
    )
)

#: A class of executors.
CLASS = np.dtype(
    (
        np.record,
        [
            ("executors", np.int64),  # of it in the cluster now
            ("free", np.int64),  # of these, those that wait: in the common pool or a job's, offered or not
            ("cpu", np.float64),  # of one of them
            ("memory", np.float64),
        ],
    )
)


class Decision(NamedTuple):
    """Run this stage next, with its job holding at most ``limit`` executors.

    Attributes:
        stage: place in the observation's stage arrays; must be schedulable.
        limit: parallelism limit of the stage's job; must exceed what the job holds without the executors offered.
    """

    stage: int
    limit: int


@dataclass(eq=False, repr=False)
class Observation:
    """The cluster at one decision. Stages of the live jobs stand job by job, jobs in order of arrival.

    S stages and J jobs are live, there are K classes of executors. A simulator's is valid until the next decision, when
    rows of jobs that change are written anew; :meth:`copy` keeps it. It needs no simulator: arrays of these records
    can be filled by hand.

    Attributes:
        config: the cluster: its delays and rules, and the executors that it began with.
        time_ms: the clock, ms.
        offered: executors to be committed in this round, those that are still finishing a task included.
        executor_class: which class they are of.
        source: the live job (place in the job arrays) whose executors are offered; -1 for free executors.
        num_schedulable: stages that may be chosen; if none, the only answer is to leave the executors idle.
        jobs: records [J] of the type ``JOB``.
        stages: records [S] of the type ``STAGE``; those of a job in the order of its profile.
        classes: records [K] of the type ``CLASS``; executors may join and leave. An executor that runs a task, is just
            done with one or moves is not free.
        profiles: of the J live jobs, or estimates of them. What ``stages`` says may be known better by now, such as
            numbers of tasks. It is the same tuple until a job arrives or completes, or an estimate changes by more than
            a step; see ``PerJob``.
        last_call: nothing is pending: unless executors are put to work now, the cluster stands still for ever.
        prior: distribution of jobs in the workload; None if it is not known.
    """

    config: ClusterConfig
    time_ms: float
    offered: int
    executor_class: int
    source: int
    num_schedulable: int
    jobs: NDArray[np.void]
    stages: NDArray[np.void]
    classes: NDArray[np.void]
    profiles: tuple[JobProfile, ...]
    last_call: bool = False
    prior: WorkPrior | None = None

    def __repr__(self) -> str:
        offered = f"{count_text(self.offered, 'executor')} offered, {self.num_schedulable:,} of "
        live = (
            f"{count_text(len(self.stages), 'stage')} schedulable, {count_text(len(self.jobs), 'live job')}"
        )
        return f"Observation(at {self.time_ms / 1000:.1f} s, {offered}{live})"

    def _repr_html_(self) -> str:
        rows = (
            (job["id"], profile.name, job["executors"], remaining)
            for job, profile, remaining in zip(
                self.jobs,
                self.profiles,
                np.bincount(self.stage_job, self.remaining_tasks, len(self.jobs)).astype(int),
                strict=True,
            )
        )
        return html_table(repr(self), ("job", "name", "executors", "tasks left"), rows, len(self.jobs))

    def copy(self) -> Observation:
        """The same, with arrays of its own: it does not change when the cluster goes on."""
        return replace(self, jobs=self.jobs.copy(), stages=self.stages.copy(), classes=self.classes.copy())

    @cached_property
    def num_executors(self) -> int:
        """Executors that are in the cluster now, of any class."""
        return sum(self.classes["executors"].tolist())

    @property
    def job_id(self) -> NDArray[np.int64]:
        """[J] a number that stays the job's while it lives, ascending; a simulator's: its number in the sequence."""
        return self.jobs["id"]

    @property
    def job_first_stage(self) -> NDArray[np.int64]:
        """[J] where its stages begin in the stage arrays."""
        return self.jobs["first_stage"]

    @property
    def job_executors(self) -> NDArray[np.int64]:
        """[J] executors that it holds: attached, moving to it, or committed to it from outside."""
        return self.jobs["executors"]

    @property
    def job_unsaturated_stages(self) -> NDArray[np.int64]:
        """[J] its stages that have unclaimed tasks."""
        return self.jobs["unsaturated_stages"]

    @property
    def job_incomplete_stages(self) -> NDArray[np.int64]:
        """[J] its stages that are not complete."""
        return self.jobs["incomplete_stages"]

    @property
    def next_stage(self) -> NDArray[np.int64]:
        """[J] the stage that the job runs next by the published simulator's rule, as a place in the stage arrays.

        Of its schedulable stages the first that became ready; if none is ready, the first; -1 if none is schedulable.
        """
        return self.jobs["next_stage"]

    @property
    def job_arrival_ms(self) -> NDArray[np.float64]:
        """[J] when it arrived, ms."""
        return self.jobs["arrival_ms"]

    @property
    def job_log_sd(self) -> NDArray[np.float64]:
        """[J] standard deviation of the logarithm of the factor between true and estimated task times; 0: exact."""
        return self.jobs["log_sd"]

    @property
    def job_first_work_ms(self) -> NDArray[np.float64]:
        """[J] its work as it was estimated when it arrived, ms."""
        return self.jobs["first_work_ms"]

    @property
    def job_attained_ms(self) -> NDArray[np.float64]:
        """[J] attained service: executor time of its finished tasks, ms."""
        attained = np.bincount(self.stage_job, self.stages["finished_ms"], minlength=len(self.jobs))
        return attained.astype(np.float64, copy=False)

    @property
    def stage_job(self) -> NDArray[np.int64]:
        """[S] the job it belongs to, as a place in the job arrays."""
        return self.stages["job"]

    @property
    def num_tasks(self) -> NDArray[np.int64]:
        """[S] tasks in all, as far as is known now; the profile may say otherwise."""
        return self.stages["num_tasks"]

    @property
    def remaining_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that have not started."""
        return self.stages["remaining_tasks"]

    @property
    def unclaimed_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that have not started and that no executor is committed or moving to."""
        return self.stages["unclaimed_tasks"]

    @property
    def running_executors(self) -> NDArray[np.int64]:
        """[S] executors at work on it."""
        return self.stages["running_executors"]

    @property
    def finished_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that are done."""
        return self.stages["finished_tasks"]

    @property
    def ready_rank(self) -> NDArray[np.int64]:
        """[S] ascending in the order in which stages became ready; -1: parents incomplete, or no task left."""
        return self.stages["ready_rank"]

    @cached_property
    def schedulable(self) -> NDArray[np.bool_]:
        """[S] may be chosen: unclaimed tasks, all parents saturated, not chosen yet in this round, fits the class."""
        return self.stages["schedulable"].astype(bool)

    @property
    def mean_task_ms(self) -> NDArray[np.float64]:
        """[S] mean duration of its tasks, ms, as it is estimated now: the median of what it may be."""
        return self.stages["mean_task_ms"]

    @property
    def log_sd(self) -> NDArray[np.float64]:
        """[S] standard deviation of the logarithm of ``mean_task_ms``; 0 if that is exact."""
        return self.stages["log_sd"]

    @property
    def finished_ms(self) -> NDArray[np.float64]:
        """[S] executor time of its finished tasks, ms."""
        return self.stages["finished_ms"]

    def work_ms(self, tasks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Work of each live job, float64 [J], ms: so many ``tasks`` of each stage, int64 [S], times their mean."""
        work = np.bincount(self.stage_job, tasks * self.mean_task_ms, minlength=len(self.jobs))
        return work.astype(np.float64, copy=False)

    def held(self, job: int) -> int:
        """Executors that a live job holds without those offered; a limit must exceed this."""
        held = int(self.job_executors[job])
        return held - self.offered if job == self.source else held

    def stages_of(self, job: int) -> slice:
        """The stages of a live job in the stage arrays."""
        first = self.job_first_stage
        return slice(int(first[job]), int(first[job + 1]) if job + 1 < len(first) else len(self.stages))


class PerJob(Generic[_Whole]):
    """Value derived from the profiles of the live jobs: computed once per profile, joined when the live jobs change.

    Call it with each observation of a cluster.

    Args:
        of_profile: what is worked out.
        join: puts together the results of the J live jobs, in order; ``np.array`` if they are numbers.
    """

    def __init__(
        self,
        of_profile: Callable[[JobProfile, ClusterConfig], Any],
        join: Callable[[list[Any]], _Whole],
    ) -> None:
        self._of_profile = of_profile
        self._join = join
        self._known: dict[JobProfile, Any] = {}
        self._config: ClusterConfig | None = None
        self._profiles: tuple[JobProfile, ...] | None = None
        self._whole: _Whole

    def __call__(self, observation: Observation) -> _Whole:
        """Of the live jobs; the same object as long as they are the same jobs."""
        if observation.profiles is not self._profiles or observation.config is not self._config:
            self._look_up(observation.profiles, observation.config)
        return self._whole

    def _look_up(self, profiles: tuple[JobProfile, ...], config: ClusterConfig) -> None:
        if config != self._config or len(self._known) > MOST_PROFILES:
            self._known = {}
        known = self._known
        for profile in profiles:
            if profile not in known:
                known[profile] = self._of_profile(profile, config)
        self._whole = self._join([known[profile] for profile in profiles])
        self._profiles, self._config = profiles, config
