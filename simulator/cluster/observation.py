"""Observation of a scheduler: rows of the live jobs, their stages and the executor classes.

This module defines the columns, which compiled code reads by the same names. A simulator or a service beside a real
cluster fills the rows. They have no information on jobs that have not arrived.
"""

from __future__ import annotations

import math
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
    from workloads.attributes import Tenant
    from workloads.job import JobProfile

__all__ = ["CLASS", "JOB", "NO_ATTRIBUTES", "STAGE", "Decision", "Observation", "PerJob"]

#: Profiles whose values a ``PerJob`` caches.
MOST_PROFILES = 10_000

_Whole = TypeVar("_Whole")

# Of the type np.record, so that `row.field` works in compiled code and in plain Python.

#: A live job.
JOB = np.dtype(
    (
        np.record,
        [
            ("id", np.int64),  # number that the job keeps; ascending in order of arrival
            ("first_stage", np.int64),  # place of its first stage
            ("executors", np.int64),  # executors that it holds
            ("unsaturated_stages", np.int64),  # its stages that have unclaimed tasks
            ("incomplete_stages", np.int64),  # its stages that are not complete
            ("next_stage", np.int64),  # see `Observation.next_stage`
            ("arrival_ms", np.float64),
            ("log_sd", np.float64),  # uncertainty of the job's factor, see `Observation.job_log_sd`
            ("first_work_ms", np.float64),  # work as estimated at its arrival
            ("weight", np.float64),  # importance of its completion time; 1 if it has none
            ("deadline_ms", np.float64),  # infinite if it has none
            ("tenant", np.int64),  # place in `Observation.tenants`
        ],
    )
)

#: Last columns of a job without attributes: weight, deadline, tenant.
NO_ATTRIBUTES = (1.0, math.inf, 0)

#: A stage of a live job.
STAGE = np.dtype(
    (
        np.record,
        [
            ("job", np.int64),  # place of its job
            ("num_tasks", np.int64),  # as estimated now
            ("remaining_tasks", np.int64),  # tasks that have not started
            ("unclaimed_tasks", np.int64),  # remaining tasks that no executor is committed or moving to
            ("running_executors", np.int64),
            ("finished_tasks", np.int64),
            ("ready_rank", np.int64),  # ascending in the order in which stages became ready; -1 if it is not
            ("schedulable", np.int64),  # 1 if it may be chosen
            ("mean_task_ms", np.float64),
            ("cpu", np.float64),  # demand of a task
            ("memory", np.float64),
            ("log_sd", np.float64),  # standard deviation of the logarithm of `mean_task_ms`; 0 if it is exact
            ("finished_ms", np.float64),  # executor time of its finished tasks
        ],
    )
)

#: A class of executors.
CLASS = np.dtype(
    (
        np.record,
        [
            ("executors", np.int64),  # in the cluster now
            ("free", np.int64),  # in a pool, offered or not
            ("cpu", np.float64),  # size of one executor
            ("memory", np.float64),
        ],
    )
)


class Decision(NamedTuple):
    """A stage to run next, and the parallelism limit of its job.

    Attributes:
        stage: place in the observation's stage arrays; must be schedulable.
        limit: parallelism limit of the stage's job; must exceed what the job holds without the executors offered.
    """

    stage: int
    limit: int


@dataclass(eq=False, repr=False)
class Observation:
    """The cluster at one decision: J live jobs in order of arrival, their S stages job by job, and K executor classes.

    An observation of a simulator is valid until the next decision, which overwrites rows of jobs that change;
    :meth:`copy` keeps it. It needs no simulator: arrays of these records can be filled by hand.

    Attributes:
        config: the cluster: its delays, its semantics and its executors at the beginning.
        time_ms: the clock, ms.
        offered: executors to be committed in this round, including those that still run a task.
        executor_class: their class.
        source: the live job (place in the job arrays) whose executors are offered; -1 for free executors.
        num_schedulable: number of schedulable stages; with none, the executors can only be left idle.
        jobs: records [J] of the type ``JOB``.
        stages: records [S] of the type ``STAGE``; those of a job in the order of its profile.
        classes: records [K] of the type ``CLASS``. Executors may join and leave. An executor that moves, runs a task or
            has just ended one is not free.
        profiles: profiles of the J live jobs, or estimates of them; ``stages`` may be more accurate. The tuple is the
            same object until a job arrives or ends, or an estimate changes by more than a step; see ``PerJob``.
        last_call: no event is pending: if the executors stay idle now, the cluster stands still for ever.
        prior: distribution of jobs in the workload; None if it is unknown.
        tenants: users, queues or pools that submit jobs; empty if there are none.
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
    tenants: tuple[Tenant, ...] = ()

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
        """Return a copy that does not change when the cluster goes on."""
        return replace(self, jobs=self.jobs.copy(), stages=self.stages.copy(), classes=self.classes.copy())

    @cached_property
    def num_executors(self) -> int:
        """Executors in the cluster now, of all classes."""
        return sum(self.classes["executors"].tolist())

    @property
    def job_id(self) -> NDArray[np.int64]:
        """[J] number that the job keeps, ascending; in a simulator its number in the sequence."""
        return self.jobs["id"]

    @property
    def job_first_stage(self) -> NDArray[np.int64]:
        """[J] place of its first stage in the stage arrays."""
        return self.jobs["first_stage"]

    @property
    def job_executors(self) -> NDArray[np.int64]:
        """[J] executors that the job holds: attached, moving to it, or committed to it from outside."""
        return self.jobs["executors"]

    @property
    def job_unsaturated_stages(self) -> NDArray[np.int64]:
        """[J] number of its stages with unclaimed tasks."""
        return self.jobs["unsaturated_stages"]

    @property
    def job_incomplete_stages(self) -> NDArray[np.int64]:
        """[J] number of its incomplete stages."""
        return self.jobs["incomplete_stages"]

    @property
    def next_stage(self) -> NDArray[np.int64]:
        """[J] next stage by the rule of the published simulator, place in the stage arrays; -1 for none.

        It is the schedulable stage that became ready first; if none is ready, the first schedulable stage.
        """
        return self.jobs["next_stage"]

    @property
    def job_arrival_ms(self) -> NDArray[np.float64]:
        """[J] arrival time, ms."""
        return self.jobs["arrival_ms"]

    @property
    def job_log_sd(self) -> NDArray[np.float64]:
        """[J] standard deviation of the logarithm of the factor between true and estimated task times; 0: exact."""
        return self.jobs["log_sd"]

    @property
    def job_first_work_ms(self) -> NDArray[np.float64]:
        """[J] work as estimated at its arrival, ms."""
        return self.jobs["first_work_ms"]

    @property
    def job_weight(self) -> NDArray[np.float64]:
        """[J] importance of its completion time, above 0; 1 if the job has none."""
        return self.jobs["weight"]

    @property
    def job_deadline_ms(self) -> NDArray[np.float64]:
        """[J] deadline on the clock of ``time_ms``; infinite if the job has none."""
        return self.jobs["deadline_ms"]

    @property
    def job_tenant(self) -> NDArray[np.int64]:
        """[J] tenant that submitted it, place in ``tenants``; 0 without tenants."""
        return self.jobs["tenant"]

    @property
    def job_attained_ms(self) -> NDArray[np.float64]:
        """[J] attained service: executor time of its finished tasks, ms."""
        attained = np.bincount(self.stage_job, self.stages["finished_ms"], minlength=len(self.jobs))
        return attained.astype(np.float64, copy=False)

    @property
    def stage_job(self) -> NDArray[np.int64]:
        """[S] its job, place in the job arrays."""
        return self.stages["job"]

    @property
    def num_tasks(self) -> NDArray[np.int64]:
        """[S] number of its tasks as estimated now; that of the profile may differ."""
        return self.stages["num_tasks"]

    @property
    def remaining_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that have not started."""
        return self.stages["remaining_tasks"]

    @property
    def unclaimed_tasks(self) -> NDArray[np.int64]:
        """[S] remaining tasks that no executor is committed or moving to."""
        return self.stages["unclaimed_tasks"]

    @property
    def running_executors(self) -> NDArray[np.int64]:
        """[S] executors that run its tasks."""
        return self.stages["running_executors"]

    @property
    def finished_tasks(self) -> NDArray[np.int64]:
        """[S] tasks that have finished."""
        return self.stages["finished_tasks"]

    @property
    def ready_rank(self) -> NDArray[np.int64]:
        """[S] ascending in the order in which stages became ready; -1: incomplete parents or no remaining task."""
        return self.stages["ready_rank"]

    @cached_property
    def schedulable(self) -> NDArray[np.bool_]:
        """[S] has unclaimed tasks that fit the class, all parents saturated, and was not chosen in this round."""
        return self.stages["schedulable"].astype(bool)

    @property
    def mean_task_ms(self) -> NDArray[np.float64]:
        """[S] mean duration of its tasks, ms; if uncertain, the median of its posterior."""
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
        """Return the work of each live job, float64 [J], ms, with ``tasks`` of each stage, int64 [S]."""
        work = np.bincount(self.stage_job, tasks * self.mean_task_ms, minlength=len(self.jobs))
        return work.astype(np.float64, copy=False)

    def held(self, job: int) -> int:
        """Return the number of executors that a live job holds without those offered; limits must exceed it."""
        held = int(self.job_executors[job])
        return held - self.offered if job == self.source else held

    def stages_of(self, job: int) -> slice:
        """Return the places of a live job's stages in the stage arrays."""
        first = self.job_first_stage
        return slice(int(first[job]), int(first[job + 1]) if job + 1 < len(first) else len(self.stages))


class PerJob(Generic[_Whole]):
    """Value derived from the profiles of the live jobs: computed once per profile, joined when the live jobs change.

    Call it with each observation of a cluster.

    Args:
        of_profile: the value of one profile.
        join: joins the values of the J live jobs, in order; ``np.array`` for numbers.
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
        """Return the joined value of the live jobs; the same object as long as ``profiles`` is."""
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
