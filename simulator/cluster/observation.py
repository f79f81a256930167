"""Observation of the cluster that a scheduler decides on: arrays of live jobs, their stages and executor classes.

This module defines the columns, which compiled code reads by the same names. A simulator, or the service beside a real
cluster, fills the rows. They contain no information on jobs that have not arrived.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from workloads.display import count_text

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

    from simulator.cluster.config import ClusterConfig
    from workloads.arrivals import WorkPrior
    from workloads.attributes import Tenant
    from workloads.job import JobProfile

__all__ = [
    "CLASS", "JOB", "NO_ATTRIBUTES", "STAGE", "Decision", "Observation", "PerJob",
]  # fmt: skip

#: Profiles whose values a ``PerJob`` caches.
MOST_PROFILES = 10_000

_Whole = TypeVar("_Whole")
_Number = TypeVar("_Number", np.int64, np.float64)

# Columns have the type np.record, so that `row.field` works in compiled code and in plain Python.

#: Columns of a live job.
JOB = np.dtype(
    (
        np.record,
        [
            ("id", np.int64),  # number that the job keeps; ascending in order of arrival
            ("first_stage", np.int64),  # index of the job's first stage
            ("executors", np.int64),  # executors that the job holds
            ("unsaturated_stages", np.int64),  # stages of the job with unclaimed tasks
            ("incomplete_stages", np.int64),  # stages of the job that are not complete
            ("next_stage", np.int64),  # see `Observation.next_stage`
            ("arrival_ms", np.float64),
            ("log_sd", np.float64),  # uncertainty of the job's factor, see `Observation.job_log_sd`
            ("first_work_ms", np.float64),  # work as estimated when the job arrived
            ("weight", np.float64),  # importance of the job's completion time; 1 by default
            ("deadline_ms", np.float64),  # infinite without a deadline
            ("tenant", np.int64),  # index in `Observation.tenants`
        ],
    )
)

#: Values of weight, deadline and tenant (the last columns) for a job without attributes.
NO_ATTRIBUTES = (1.0, math.inf, 0)

#: Columns of a stage of a live job.
STAGE = np.dtype(
    (
        np.record,
        [
            ("job", np.int64),  # index of the stage's job
            ("num_tasks", np.int64),  # as estimated now
            ("remaining_tasks", np.int64),  # tasks that have not started
            ("unclaimed_tasks", np.int64),  # remaining tasks that no executor is committed or moving to
            ("running_executors", np.int64),
            ("finished_tasks", np.int64),
            ("ready_rank", np.int64),  # ascending in the order in which stages became ready; -1 if not ready
            ("schedulable", np.int64),  # 1 if a decision may choose the stage
            ("mean_task_ms", np.float64),
            ("cpu", np.float64),  # demand of a task
            ("memory", np.float64),
            ("log_sd", np.float64),  # standard deviation of the logarithm of `mean_task_ms`; 0 if exact
            ("finished_ms", np.float64),  # total executor time of finished tasks
        ],
    )
)

#: Columns of an executor class.
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
    """Decision of a scheduler: a stage to run next, and the parallelism limit of the stage's job.

    Attributes:
        stage: index in the observation's stage arrays; the stage must be schedulable.
        limit: parallelism limit of the stage's job; must exceed the job's executors without the offered ones.
    """

    stage: int
    limit: int


def _of_jobs(name: str, dtype: type[_Number]) -> NDArray[_Number]:
    """Return a property: a column of ``Observation.jobs``, whose type is ``dtype``."""
    return property(lambda observation: observation.jobs[name])  # type: ignore[return-value]


def _of_stages(name: str, dtype: type[_Number]) -> NDArray[_Number]:
    """Return a property: a column of ``Observation.stages``, whose type is ``dtype``."""
    return property(lambda observation: observation.stages[name])  # type: ignore[return-value]


@dataclass(eq=False, repr=False)
class Observation:
    """The cluster at one decision: J live jobs in order of arrival, their S stages job by job, and K executor classes.

    An observation of a simulator is valid until the next decision, which overwrites rows of changed jobs. To keep one,
    in a replay buffer for example, keep ``observation.copy()`` or ``observation.to_pyg()``. An observation needs no
    simulator: the arrays can be filled by hand.

    Attributes:
        config: the cluster: delays, semantics, and the executors at the beginning of the episode.
        time_ms: current time, ms.
        offered: number of executors to be committed in this round, including some that still run a task.
        executor_class: class of the offered executors, index in ``classes``.
        source: live job (index in the job arrays) whose executors are offered; -1 for free executors.
        num_schedulable: number of schedulable stages; with none, the executors can only be left idle.
        jobs: records [J] of the type ``JOB``.
        stages: records [S] of the type ``STAGE``; the stages of a job are in the order of its profile.
        classes: records [K] of the type ``CLASS``. Executors may join and leave. An executor that moves, runs a task or
            has just ended a task is not free.
        profiles: profiles of the J live jobs, or estimates of them; ``stages`` may be more accurate. The tuple is the
            same object until a job arrives or ends, or an estimate changes by more than a step; see ``PerJob``.
        last_call: no event is pending, so that the cluster stalls if the executors stay idle now.
        prior: distribution of jobs in the workload; None if unknown.
        tenants: users, queues or pools that submit jobs; can be empty.
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

    def copy(self) -> Observation:
        """Return a copy that later events of the cluster do not change."""
        return replace(self, jobs=self.jobs.copy(), stages=self.stages.copy(), classes=self.classes.copy())

    def to_pyg(self) -> HeteroData:
        """Return the observation as a graph of PyTorch Geometric, see ``simulator.cluster.pyg.observation_graph``."""
        from simulator.cluster.pyg import observation_graph  # PyTorch takes seconds to import

        return observation_graph(self)

    @cached_property
    def num_executors(self) -> int:
        """Number of executors in the cluster now, of all classes."""
        return sum(self.classes["executors"].tolist())

    job_id = _of_jobs("id", np.int64)
    """[J] number that the job keeps, ascending; in a simulator the job's number in the sequence."""
    job_first_stage = _of_jobs("first_stage", np.int64)
    """[J] index of the job's first stage in the stage arrays."""
    job_executors = _of_jobs("executors", np.int64)
    """[J] executors that the job holds: attached, moving to it, or committed to it from outside."""
    job_unsaturated_stages = _of_jobs("unsaturated_stages", np.int64)
    """[J] number of the job's stages with unclaimed tasks."""
    job_incomplete_stages = _of_jobs("incomplete_stages", np.int64)
    """[J] number of the job's incomplete stages."""
    next_stage = _of_jobs("next_stage", np.int64)
    """[J] the job's next stage, index in the stage arrays; -1 for none.

    This is the schedulable stage that became ready first; if no stage is ready, the first schedulable stage. Of stages
    that became ready at the same time, and of stages that are not ready, the first one has the longest path to the end
    of the job (``Semantics.longest_path_first``).
    """
    job_arrival_ms = _of_jobs("arrival_ms", np.float64)
    """[J] arrival time, ms."""
    job_log_sd = _of_jobs("log_sd", np.float64)
    """[J] standard deviation of the logarithm of the ratio of true to estimated task times; 0 if exact."""
    job_first_work_ms = _of_jobs("first_work_ms", np.float64)
    """[J] work of the job as estimated at its arrival, ms of executor time."""
    job_weight = _of_jobs("weight", np.float64)
    """[J] importance of the job's completion time, above 0; 1 by default."""
    job_deadline_ms = _of_jobs("deadline_ms", np.float64)
    """[J] deadline of the job on the clock of ``time_ms``; infinite without a deadline."""
    job_tenant = _of_jobs("tenant", np.int64)
    """[J] tenant that submitted the job, index in ``tenants``; 0 without tenants."""

    @property
    def job_attained_ms(self) -> NDArray[np.float64]:
        """[J] attained service: total executor time of the job's finished tasks, ms."""
        attained = np.bincount(self.stage_job, self.stages["finished_ms"], minlength=len(self.jobs))
        return attained.astype(np.float64, copy=False)

    stage_job = _of_stages("job", np.int64)
    """[S] job of the stage, index in the job arrays."""
    num_tasks = _of_stages("num_tasks", np.int64)
    """[S] number of tasks of the stage as estimated now, which may differ from the profile."""
    remaining_tasks = _of_stages("remaining_tasks", np.int64)
    """[S] number of tasks of the stage that have not started."""
    unclaimed_tasks = _of_stages("unclaimed_tasks", np.int64)
    """[S] number of remaining tasks of the stage that no executor is committed or moving to."""
    running_executors = _of_stages("running_executors", np.int64)
    """[S] number of executors that run tasks of the stage."""
    finished_tasks = _of_stages("finished_tasks", np.int64)
    """[S] number of tasks of the stage that have finished."""
    ready_rank = _of_stages("ready_rank", np.int64)
    """[S] ascending in the order in which stages became ready; -1: incomplete parents or no remaining task."""

    @cached_property
    def schedulable(self) -> NDArray[np.bool_]:
        """[S] has unclaimed tasks that fit the executor class, saturated parents, and is not chosen in this round."""
        return self.stages["schedulable"].astype(bool)

    mean_task_ms = _of_stages("mean_task_ms", np.float64)
    """[S] mean duration of the stage's tasks, ms; if uncertain, the median of its posterior."""
    log_sd = _of_stages("log_sd", np.float64)
    """[S] standard deviation of the logarithm of ``mean_task_ms``; 0 if exact."""
    finished_ms = _of_stages("finished_ms", np.float64)
    """[S] total executor time of the stage's finished tasks, ms."""

    def work_ms(self, tasks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the work of ``tasks`` tasks of each stage (int64 [S]), summed by live job: float64 [J], ms."""
        work = np.bincount(self.stage_job, tasks * self.mean_task_ms, minlength=len(self.jobs))
        return work.astype(np.float64, copy=False)

    def held(self, job: int) -> int:
        """Return the number of executors that job ``job`` holds without the offered ones; limits must exceed it."""
        held = int(self.job_executors[job])
        return held - self.offered if job == self.source else held

    def stages_of(self, job: int) -> slice:
        """Return the slice of the stage arrays that has the stages of live job ``job``."""
        first = self.job_first_stage
        return slice(int(first[job]), int(first[job + 1]) if job + 1 < len(first) else len(self.stages))


class PerJob(Generic[_Whole]):
    """Value derived from the profiles of the live jobs: cached per profile, joined when the live jobs change.

    Call the object with each observation of a cluster.

    Args:
        of_profile: computes the value of one profile.
        join: joins the values of the J live jobs, in order, such as ``np.array`` for numbers.
    """

    def __init__(
        self, of_profile: Callable[[JobProfile, ClusterConfig], Any], join: Callable[[list[Any]], _Whole]
    ) -> None:
        self._of_profile = of_profile
        self._join = join
        self._known: dict[JobProfile, Any] = {}
        self._config: ClusterConfig | None = None
        self._profiles: tuple[JobProfile, ...] | None = None
        self._whole: _Whole

    def __call__(self, observation: Observation) -> _Whole:
        """Return the joined value of the live jobs; the same object while ``Observation.profiles`` is the same."""
        if observation.profiles is not self._profiles or observation.config is not self._config:
            self._look_up(observation.profiles, observation.config)
        return self._whole

    def _look_up(self, profiles: tuple[JobProfile, ...], config: ClusterConfig) -> None:
        if config != self._config or len(self._known) > MOST_PROFILES:
            self._known = {}
        by_profile = self._known
        for profile in profiles:
            if profile not in by_profile:
                by_profile[profile] = self._of_profile(profile, config)
        self._whole = self._join([by_profile[profile] for profile in profiles])
        self._profiles, self._config = profiles, config
