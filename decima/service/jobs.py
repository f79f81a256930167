"""Live jobs of one driver: their state from the driver's messages, and estimates of their task durations.

``simulator.cluster.estimates`` makes initial estimates: from history; for jobs without history from their DAGs, and
from operators and sizes of inputs that the driver reports, if the history has a predictor; else from typical task
durations. ``simulator.cluster.engine.posterior`` updates them with
observed durations. A job keeps the same profile object until its estimated work changes by more than one step, since
schedulers cache by profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.service.history import History, is_skipped, match_stages
from decima.service.protocol import Exchange, JobMessage, StateMessage
from simulator.cluster.config import ClusterConfig
from simulator.cluster.engine.posterior import posterior, records
from simulator.cluster.estimates import Estimate, from_history, has_plan, without_history
from simulator.cluster.known import known_profile
from workloads.arrivals import WorkPrior
from workloads.errors import DecimaError
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError
from workloads.spark.plans import short_names

__all__ = ["LiveJob", "Prediction", "QuestionError", "TrackedJobs", "check_question", "estimated_profile"]

#: Jobs that arrive within this time after a batch's first job belong to the batch, ms: threads submit in sequence.
TOGETHER_MS = 1000.0
#: Typical task durations are rounded to powers of this number.
STEP = 1.25
#: Mean task duration before the first task has finished, ms.
UNKNOWN_MS = 1000.0
#: Spread of jobs without history, as standard deviations of logarithms: work of a job, task time of a job, and of a
#: stage within the job. Source: the embedded TPC-H set, measured on Spark.
UNKNOWN_WORK_SD, UNKNOWN_TASK_SD, UNKNOWN_STAGE_SD = 0.95, 0.54, 0.68
#: Maximum numbers of stages over all live jobs, and of task slots, in a question.
MOST_STAGES, MOST_SLOTS = 5_000, 20_000


class QuestionError(DecimaError, ValueError):
    """A well-formed question that is inconsistent or too large. The message is one line."""


class Prediction(NamedTuple):
    """Work (executor time) of a job without history, predicted before any of its tasks has finished.

    Attributes:
        source: ``plan`` if operators or sizes of inputs of its stages are known besides its DAG.
        work_ms: median of the work, ms.
        low_ms, high_ms: ends of the interval that contains the work with a probability of 50 %, ms.
    """

    source: Literal["DAG", "plan"]
    work_ms: float
    low_ms: float
    high_ms: float


@dataclass(eq=False, slots=True)
class LiveJob:
    """An incomplete job. Lists have one entry per stage, in the profile's order.

    Attributes:
        message: the driver's last message about the job.
        number: order of arrival over all drivers.
        arrival_ms: arrival time, ms; equal for all jobs of a batch.
        profile: current estimate of the profile.
        recognised: whether history has a profile of the job.
        ids: Spark's stage ids; None for stages that Spark has not created yet.
        tasks: number of tasks, reported or estimated.
        pending: number of tasks that have not started.
        running: number of running tasks.
        done: number of finished tasks.
        finished_ms: executor time of finished tasks, ms.
        mean_ms: current estimate of the mean task duration, ms.
        log_sd: standard deviation of the logarithm of ``mean_ms``.
        ready: whether all parents are complete.
        ranks: position in the order in which stages became ready; -1 if not ready yet.
        known: profile from history; for jobs without history, a profile of the reported stages and numbers of tasks.
        inputs: inputs of ``estimate``, kept to detect changes.
        estimate: estimate before any observation.
        belief: ``BELIEF`` [1], posterior of the job.
        rows: ``ESTIMATE`` [stages], posterior of the stages.
        first_work_ms: estimated work at arrival, ms.
        prediction: prediction before any observation, if the job is estimated from its DAG and plan; else None.
    """

    message: JobMessage
    number: int
    arrival_ms: float
    profile: JobProfile
    recognised: bool
    ids: list[int | None]
    tasks: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    finished_ms: list[float] = field(default_factory=list)
    mean_ms: list[float] = field(default_factory=list)
    log_sd: list[float] = field(default_factory=list)
    ready: list[bool] = field(default_factory=list)
    complete: list[bool] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    known: JobProfile = field(init=False)
    inputs: tuple[object, ...] = ()
    estimate: Estimate = field(init=False)
    belief: NDArray[np.void] = field(init=False)
    rows: NDArray[np.void] = field(init=False)
    first_work_ms: float = math.nan
    prediction: Prediction | None = None


class TrackedJobs:
    """Keeps the live jobs of a driver up to date.

    Args:
        numbers: iterator of job numbers.
        ready_ranks: iterator of the stages' ready ranks.
    """

    def __init__(self, history: History, numbers: Iterator[int], ready_ranks: Iterator[int]) -> None:
        self._history = history
        self._numbers = numbers
        self._ready_ranks = ready_ranks
        self._jobs: dict[str, LiveJob] = {}
        self._shapes: dict[str, tuple[object, ...]] = {}
        self._prior = history.prior or _typical(UNKNOWN_MS)
        self._batch_ms = -math.inf

    @property
    def prior(self) -> WorkPrior | None:
        """Distribution of job sizes in history; None without history."""
        return self._history.prior

    def update(self, state: StateMessage, cluster: ClusterConfig | None = None) -> list[LiveJob]:
        """Update the live jobs and return them in order of arrival.

        Args:
            state: the driver's question, checked by ``check_question``.
            cluster: cluster on which recognised jobs run, for their task durations; by default the profiles' means.
        """
        self._update_prior(state)
        live = [self._update_job(job, cluster) for job in state.jobs]
        if len(live) < len(self._jobs):
            ids = {job.id for job in state.jobs}
            for gone in self._jobs.keys() - ids:
                del self._jobs[gone], self._shapes[gone]
        live.sort(key=lambda job: job.number)
        return live

    def _update_prior(self, state: StateMessage) -> None:
        """Without history, centre the prior on the rounded mean duration of finished tasks of all jobs."""
        if self._history.prior is not None:
            return
        tasks, total_ms = 0, 0.0
        for job in state.jobs:
            for stage in job.stages:
                if stage.mean_ms is not None and stage.done:
                    tasks += stage.done
                    total_ms += stage.mean_ms * stage.done
        if tasks:
            self._prior = _typical(_step(total_ms / tasks))

    def _update_job(self, message: JobMessage, cluster: ClusterConfig | None) -> LiveJob:
        shape = (
            message.plan,
            message.exchanges,
            *[
                (stage.id, stage.tasks, stage.parents, is_skipped(stage), stage.operators, stage.input_bytes)
                for stage in message.stages
            ],
        )
        job = self._jobs.get(message.id)
        if job is None:
            job = self._add(message)
        elif shape != self._shapes[message.id]:
            job.message = message
            self._set_profile(job)
        job.message = message
        self._shapes[message.id] = shape
        self._update_stages(job, cluster)
        return job

    def _add(self, message: JobMessage) -> LiveJob:
        arrival_ms = message.submitted_time_ms
        if not 0 <= arrival_ms - self._batch_ms <= TOGETHER_MS:
            self._batch_ms = arrival_ms
        job = LiveJob(message, next(self._numbers), self._batch_ms, _NO_PROFILE, False, [])
        self._set_profile(job)
        self._jobs[message.id] = job
        return job

    def _set_profile(self, job: LiveJob) -> None:
        """Set a job's ``known`` profile and ``ids`` of stages. Both change when Spark creates more stages."""
        ranks = {stage: rank for stage, rank in zip(job.ids, job.ranks, strict=True) if stage is not None}
        message = job.message
        profile = self._history.find(message)
        made = [stage for stage in message.stages if not is_skipped(stage)]
        matched = None if profile is None else match_stages(made, profile)
        if profile is not None and matched is not None:
            job.known, job.recognised = profile, True
            job.ids = [None] * profile.num_stages
            for stage, index in zip(made, matched, strict=True):
                job.ids[index] = stage.id
        else:
            future = _future_stages(message)
            predictor, name = self._history.predictor, message.name or ""
            # Jobs of the same DAG share a profile, unless the predictor knows the template of a name.
            if predictor is None or not predictor.has_template(name):
                name = "estimated"
            job.known, job.recognised = _reported_profile(message, future, name), False
            job.ids = [*(stage.id for stage in message.stages), *(None for _ in future)]
        job.ranks = [-1 if stage is None else ranks.get(stage, -1) for stage in job.ids]

    def _make_estimate(self, job: LiveJob, cluster: ClusterConfig | None) -> None:
        """Make a job's initial estimate if its inputs have changed."""
        profile = job.known
        if job.recognised and cluster is not None:
            profile = known_profile(job.known, cluster)
        inputs = profile, self._prior
        if inputs == job.inputs:
            return
        job.inputs = inputs
        if job.recognised:
            prior = self._prior.times(max(profile.work_ms, 1.0) / max(job.known.work_ms, 1.0))
            job.estimate = from_history(profile, prior, self._history.knowledge)
        else:
            job.estimate = without_history(
                profile, self._prior, self._history.typical, self._history.predictor
            )
        job.prediction = None
        if job.estimate.is_predicted:
            source: Literal["DAG", "plan"] = "plan" if has_plan(profile) else "DAG"
            job.prediction = Prediction(source, job.estimate.first_work_ms, *job.estimate.work_interval_ms())
        job.belief, job.rows = records(job.estimate)
        if math.isnan(job.first_work_ms):
            job.first_work_ms = job.estimate.first_work_ms

    def _update_stages(self, job: LiveJob, cluster: ClusterConfig | None) -> None:
        """Update a job's lists from the driver's message."""
        message, profile = job.message, job.known
        self._make_estimate(job, cluster)
        place_of = {stage: index for index, stage in enumerate(job.ids) if stage is not None}
        size = profile.num_stages
        job.tasks = [stage.num_tasks for stage in profile.stages]
        job.pending = list(job.tasks)
        job.running, job.done, job.finished_ms = [0] * size, [0] * size, [0.0] * size
        job.ready, job.complete = [False] * size, [False] * size
        observed, running_ms = [0] * size, [0.0] * size
        opened = []
        for stage in message.stages:
            index = place_of.get(stage.id, -1)
            if index < 0:
                continue
            complete = stage.state == "done"
            job.tasks[index] = stage.tasks
            job.pending[index] = 0 if complete else stage.pending
            job.running[index] = 0 if complete else stage.running
            job.done[index] = stage.done
            job.ready[index] = stage.state == "ready"
            job.complete[index] = complete
            if stage.state == "ready" and job.ranks[index] < 0:
                opened.append(index)
            if stage.mean_ms is not None:
                observed[index], job.finished_ms[index] = stage.done, stage.mean_ms * stage.done
            running_ms[index] = stage.running_ms if job.running[index] else 0.0
        # Of the stages that became ready since the last question, the longest path is first, as in the simulator.
        for index in sorted(opened, key=job.estimate.profile.path_rank.__getitem__):
            job.ranks[index] = next(self._ready_ranks)
        rows = job.rows
        rows["finished"], rows["finished_ms"] = observed, job.finished_ms
        rows["running"], rows["running_ms"] = job.running, running_ms
        posterior(job.belief, rows)
        job.mean_ms, job.log_sd = rows["mean_ms"].tolist(), rows["log_sd"].tolist()
        job.profile = job.estimate.scaled(int(job.belief["scale"][0]))


def _typical(task_ms: float) -> WorkPrior:
    """Return the prior of jobs without history, with median task duration ``task_ms``."""
    log_ms = math.log(task_ms)
    return WorkPrior(log_ms, UNKNOWN_WORK_SD, log_ms, UNKNOWN_TASK_SD, UNKNOWN_STAGE_SD)


def check_question(state: StateMessage) -> None:
    """Check ids and size of a question.

    Raises:
        QuestionError: two ids are equal, or there are more than ``MOST_STAGES`` stages or ``MOST_SLOTS`` slots.
    """
    stages = sum(len(job.stages) + len(job.exchanges) for job in state.jobs)
    if stages > MOST_STAGES:
        raise QuestionError(f"{stages} stages, at most {MOST_STAGES} are allowed")
    slots = sum(executor.slots for executor in state.executors)
    if slots > MOST_SLOTS:
        raise QuestionError(f"{slots} slots, at most {MOST_SLOTS} are allowed")
    if len({job.id for job in state.jobs}) < len(state.jobs):
        raise QuestionError("two jobs have the same id")
    if len({executor.id for executor in state.executors}) < len(state.executors):
        raise QuestionError("two executors have the same id")
    for job in state.jobs:
        if len({stage.id for stage in job.stages}) < len(job.stages):
            raise QuestionError(f"job {job.id!r}: two stages have the same id")


@dataclass(frozen=True)
class _FutureStage:
    """A stage that Spark has not created yet: number of tasks, and indices of its parents in the job's profile."""

    tasks: int
    parents: tuple[int, ...]


def _future_stages(job: JobMessage) -> list[_FutureStage]:
    """List the stages of a query plan that adaptive execution has not created yet.

    One stage writes each exchange, and one more stage returns the result. Spark does not report the exchange that a
    stage writes, so the function assumes that Spark creates stages in topological order of the plan.
    """
    num_created, total = len(job.stages), len(job.exchanges) + 1
    if not num_created and not job.exchanges:
        return [_FutureStage(1, ())]
    if not job.exchanges or num_created >= total:
        return []
    index_of = {exchange.id: index for index, exchange in enumerate(job.exchanges)}
    partitions = [_partitions(exchange) for exchange in job.exchanges]
    future = []
    for index in range(num_created, total):
        if index < len(job.exchanges):
            parents = {index_of[parent] for parent in job.exchanges[index].parents if parent in index_of}
        else:
            read = {parent for exchange in job.exchanges for parent in exchange.parents}
            parents = {index_of[exchange.id] for exchange in job.exchanges if exchange.id not in read}
        parents = {parent for parent in parents if parent < index}
        # A stage has one task for each partition of its input.
        tasks = max((partitions[parent] for parent in parents), default=1)
        future.append(_FutureStage(tasks, tuple(sorted(parents))))
    return future


def _partitions(exchange: Exchange) -> int:
    return 1 if "Broadcast" in exchange.kind else exchange.partitions or 1


def _step(mean_ms: float) -> float:
    """Round a duration to the nearest power of ``STEP``."""
    return round(STEP ** round(math.log(max(mean_ms, 1.0), STEP)), 3)


def _reported_profile(job: JobMessage, future: Sequence[_FutureStage], name: str) -> JobProfile:
    """Return a profile of this name with the reported and future stages: what the driver knows of them.

    The sizes of inputs are unknown if nothing is read, neither from files nor from other stages, as in a profile from
    event logs.
    """
    index_of = {stage.id: index for index, stage in enumerate(job.stages)}
    edges = {
        (index_of[parent], index)
        for index, stage in enumerate(job.stages)
        for parent in stage.parents
        if parent in index_of
    }
    edges |= {
        (parent, index) for index, stage in enumerate(future, len(job.stages)) for parent in stage.parents
    }
    tasks = (*(max(stage.tasks, 1) for stage in job.stages), *(max(stage.tasks, 1) for stage in future))
    reads = bool(edges) or any(stage.input_bytes for stage in job.stages)
    input_bytes = (*(stage.input_bytes if reads else None for stage in job.stages), *(None for _ in future))
    operators = (*(short_names(stage.operators) for stage in job.stages), *(() for _ in future))
    try:
        return estimated_profile(tasks, tuple(sorted(edges)), name, input_bytes, operators)
    except WorkloadError as error:
        raise QuestionError(f"job {job.id!r}: {error}") from None


@lru_cache(maxsize=2_000)
def estimated_profile(
    tasks: tuple[int, ...],
    edges: tuple[tuple[int, int], ...],
    name: str = "estimated",
    input_bytes: tuple[int | None, ...] = (),
    operators: tuple[tuple[str, ...], ...] = (),
) -> JobProfile:
    """Return the same profile object for equal stages, edges and names.

    Args:
        tasks: number of tasks of each stage.
        edges: parent and child of each edge.
        name: name of the profile.
        input_bytes: bytes that each stage reads from files, None if unknown; empty: all are unknown.
        operators: operators of each stage; empty: all are unknown.
    """
    stages = zip_longest(tasks, input_bytes, operators)
    return JobProfile(
        name,
        tuple(
            StageProfile(num_tasks, TaskDurations.constant(1.0), input_bytes=read, operators=names or ())
            for num_tasks, read, names in stages
        ),
        np.array(edges, dtype=np.int64).reshape(-1, 2),
    )


#: Placeholder of a job that has no profile yet.
_NO_PROFILE = estimated_profile((1,), ())
