"""Live jobs of one driver: the state of each from the driver's messages, and a profile from history or estimated.

A profile stays the same object until a task duration changes by more than a step, as schedulers keep caches by profile.
A job that history does not know gets estimates: the mean duration of the stage's finished tasks, else of the job's,
else of all jobs' of the driver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from decima.service.history import History, is_skipped, match_stages
from decima.service.protocol import Exchange, Job, Stage, State
from simulator.cluster.alone import known_profile
from simulator.cluster.config import ClusterConfig
from workloads.errors import DecimaError
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError

__all__ = ["LiveJob", "LiveJobs", "QuestionError", "check_question"]

#: Jobs that arrive within this time of the first of them count as one batch, ms: threads submit one after another.
TOGETHER_MS = 1000.0
#: Mean task duration before the first task has finished, ms.
UNKNOWN_MS = 1000.0
#: Weight of a mean from history, as a number of observed tasks.
PRIOR_TASKS = 5
#: A profile is estimated anew when a mean duration is off by this factor; its durations are powers of the factor.
STEP = 1.25
#: Largest number of stages over all live jobs, and of task slots, that a question may have.
MOST_STAGES, MOST_SLOTS = 5_000, 20_000


class QuestionError(DecimaError, ValueError):
    """A well-formed question that contradicts itself or is too large. The message is one line."""


@dataclass(eq=False, slots=True)
class LiveJob:
    """A job that is not complete. Each list has one entry per stage of the profile, in its order.

    Attributes:
        message: the driver's last message on the job.
        number: ascending in order of arrival over all drivers.
        arrival_ms: arrival time, ms; the same for all jobs of a batch.
        profile: profile from history, or an estimate.
        recognised: whether history knows the job.
        ids: Spark's ids of the stages; None for stages that Spark has not made yet.
        tasks: number of tasks, as far as is known now.
        pending: number of tasks that have not started.
        running: number of running tasks.
        done: number of finished tasks.
        mean_ms: mean task duration, as far as is known now, ms.
        ready: whether all parents are complete.
        complete: whether the stage is complete.
        ranks: position in the order in which stages became ready; -1 if the stage did not.
    """

    message: Job
    number: int
    arrival_ms: float
    profile: JobProfile
    recognised: bool
    ids: list[int | None]
    tasks: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    mean_ms: list[float] = field(default_factory=list)
    ready: list[bool] = field(default_factory=list)
    complete: list[bool] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)


class LiveJobs:
    """Keeps the live jobs of a driver up to date.

    Args:
        history: profiles of earlier jobs.
        numbers: the number of each new job.
        ready_ranks: the rank of each stage that becomes ready.
    """

    def __init__(self, history: History, numbers: Iterator[int], ready_ranks: Iterator[int]) -> None:
        self._history = history
        self._numbers = numbers
        self._ready_ranks = ready_ranks
        self._jobs: dict[str, LiveJob] = {}
        self._shapes: dict[str, tuple[object, ...]] = {}
        self._overall_ms = UNKNOWN_MS
        self._batch_ms = -math.inf

    def update(self, state: State, cluster: ClusterConfig | None = None) -> list[LiveJob]:
        """Bring the live jobs up to date and return them in order of arrival.

        Args:
            state: the driver's question, checked by :func:`check_question`.
            cluster: the cluster, for the expected task durations of recognised jobs there; by default the profiles'
                own means.
        """
        self._learn(state)
        live = [self._update_job(job, cluster) for job in state.jobs]
        if len(live) < len(self._jobs):
            ids = {job.id for job in state.jobs}
            for gone in self._jobs.keys() - ids:
                del self._jobs[gone], self._shapes[gone]
        live.sort(key=lambda job: job.number)
        return live

    def _learn(self, state: State) -> None:
        """Update the mean task duration over all jobs, if a task has finished."""
        tasks, total_ms = 0, 0.0
        for job in state.jobs:
            for stage in job.stages:
                if stage.mean_ms is not None and stage.done:
                    tasks += stage.done
                    total_ms += stage.mean_ms * stage.done
        if tasks:
            self._overall_ms = total_ms / tasks

    def _update_job(self, message: Job, cluster: ClusterConfig | None) -> LiveJob:
        shape = (
            message.plan,
            message.exchanges,
            *[(stage.id, stage.tasks, stage.parents, is_skipped(stage)) for stage in message.stages],
        )
        job = self._jobs.get(message.id)
        if job is None:
            job = self._add(message)
        elif shape != self._shapes[message.id]:
            job.message = message
            self._give_profile(job)
        job.message = message
        self._shapes[message.id] = shape
        self._count(job, cluster)
        return job

    def _add(self, message: Job) -> LiveJob:
        arrival_ms = message.submitted_time_ms
        if not 0 <= arrival_ms - self._batch_ms <= TOGETHER_MS:
            self._batch_ms = arrival_ms
        job = LiveJob(message, next(self._numbers), self._batch_ms, _NO_PROFILE, False, [])
        self._give_profile(job)
        self._jobs[message.id] = job
        return job

    def _give_profile(self, job: LiveJob) -> None:
        """Set a job's profile and Spark's ids of its stages; both change when Spark makes more stages."""
        ranks = {stage: rank for stage, rank in zip(job.ids, job.ranks, strict=True) if stage is not None}
        message = job.message
        known = self._history.find(message)
        made = [stage for stage in message.stages if not is_skipped(stage)]
        places = None if known is None else match_stages(made, known)
        if known is not None and places is not None:
            job.profile, job.recognised = known, True
            job.ids = [None] * known.num_stages
            for stage, place in zip(made, places, strict=True):
                job.ids[place] = stage.id
        else:
            to_come = _stages_to_come(message)
            means = self._estimates(message.stages, len(to_come))
            job.profile, job.recognised = _estimated(message, to_come, means), False
            job.ids = [*(stage.id for stage in message.stages), *(None for _ in to_come)]
        job.ranks = [-1 if stage is None else ranks.get(stage, -1) for stage in job.ids]

    def _estimates(self, stages: Sequence[Stage], to_come: int) -> list[float]:
        """Estimate the mean task duration of each stage, ms."""
        known = [(stage.mean_ms, stage.done) for stage in stages if stage.mean_ms is not None and stage.done]
        total = sum(done for _, done in known)
        others_ms = sum(mean * done for mean, done in known) / total if total else self._overall_ms
        means = [others_ms if stage.mean_ms is None or not stage.done else stage.mean_ms for stage in stages]
        return means + [others_ms] * to_come

    def _count(self, job: LiveJob, cluster: ClusterConfig | None) -> None:
        """Update a job's lists from the driver's message."""
        message = job.message
        profile = job.profile
        place_of = {stage: place for place, stage in enumerate(job.ids) if stage is not None}
        if job.recognised:
            there = profile if cluster is None else known_profile(profile, cluster)
            means = [stage.durations.mean_ms for stage in there.stages]
        else:
            means = self._estimates(message.stages, profile.num_stages - len(message.stages))
            known = zip(means, profile.stages, strict=True)
            if any(_is_off(mean, stage.durations.mean_ms) for mean, stage in known):
                self._give_profile(job)
                profile = job.profile
        size = profile.num_stages
        job.tasks = [stage.num_tasks for stage in profile.stages]
        job.pending = list(job.tasks)
        job.running, job.done = [0] * size, [0] * size
        job.ready, job.complete = [False] * size, [False] * size
        job.mean_ms = means
        for stage in message.stages:
            place = place_of.get(stage.id, -1)
            if place < 0:
                continue
            complete = stage.state == "done"
            job.tasks[place] = stage.tasks
            job.pending[place] = 0 if complete else stage.pending
            job.running[place] = 0 if complete else stage.running
            job.done[place] = stage.done
            job.ready[place] = stage.state == "ready"
            job.complete[place] = complete
            if stage.state == "ready" and job.ranks[place] < 0:
                job.ranks[place] = next(self._ready_ranks)
            if job.recognised and stage.mean_ms is not None:
                seen, prior = stage.done, PRIOR_TASKS
                job.mean_ms[place] = (stage.mean_ms * seen + means[place] * prior) / (seen + prior)


def check_question(state: State) -> None:
    """Raise ``QuestionError`` if ids are not unique, stages wait for each other, or there is too much of anything."""
    stages = sum(len(job.stages) + len(job.exchanges) for job in state.jobs)
    if stages > MOST_STAGES:
        raise QuestionError(f"{stages} stages, at most {MOST_STAGES} are served")
    slots = sum(executor.slots for executor in state.executors)
    if slots > MOST_SLOTS:
        raise QuestionError(f"{slots} slots, at most {MOST_SLOTS} are served")
    if len({job.id for job in state.jobs}) < len(state.jobs):
        raise QuestionError("two jobs have the same id")
    if len({executor.id for executor in state.executors}) < len(state.executors):
        raise QuestionError("two executors have the same id")
    for job in state.jobs:
        if len({stage.id for stage in job.stages}) < len(job.stages):
            raise QuestionError(f"job {job.id!r}: two stages have the same id")


@dataclass(frozen=True)
class _ToCome:
    """A stage that Spark has not made yet: its number of tasks, and its parents' indices in the job's profile."""

    tasks: int
    parents: tuple[int, ...]


def _stages_to_come(job: Job) -> list[_ToCome]:
    """List the stages of a query plan that adaptive execution has not made yet.

    One stage writes each exchange, and one more returns the result. Spark does not tell which exchange a stage writes;
    stages are assumed to be made in the order of the plan, parents first.
    """
    known, total = len(job.stages), len(job.exchanges) + 1
    if not known and not job.exchanges:
        return [_ToCome(1, ())]
    if not job.exchanges or known >= total:
        return []
    place = {exchange.id: number for number, exchange in enumerate(job.exchanges)}
    partitions = [_partitions(exchange) for exchange in job.exchanges]
    found = []
    for number in range(known, total):
        if number < len(job.exchanges):
            parents = {place[parent] for parent in job.exchanges[number].parents if parent in place}
        else:
            read = {parent for exchange in job.exchanges for parent in exchange.parents}
            parents = {place[exchange.id] for exchange in job.exchanges if exchange.id not in read}
        parents = {parent for parent in parents if parent < number}
        # A stage has as many tasks as there are partitions in what it reads.
        tasks = max((partitions[parent] for parent in parents), default=1)
        found.append(_ToCome(tasks, tuple(sorted(parents))))
    return found


def _partitions(exchange: Exchange) -> int:
    return 1 if "Broadcast" in exchange.kind else exchange.partitions or 1


def _step(mean_ms: float) -> float:
    """Round a duration to the nearest power of the step, so that similar jobs have the same profile."""
    return round(STEP ** round(math.log(max(mean_ms, 1.0), STEP)), 3)


def _is_off(mean_ms: float, profile_ms: float) -> bool:
    return not profile_ms / STEP <= max(mean_ms, 1.0) <= profile_ms * STEP


def _estimated(job: Job, to_come: Sequence[_ToCome], means_ms: Sequence[float]) -> JobProfile:
    """Return a profile estimated from the driver's message."""
    place = {stage.id: number for number, stage in enumerate(job.stages)}
    edges = {
        (place[parent], number)
        for number, stage in enumerate(job.stages)
        for parent in stage.parents
        if parent in place
    }
    edges |= {
        (parent, number) for number, stage in enumerate(to_come, len(job.stages)) for parent in stage.parents
    }
    tasks = [
        max(tasks, 1) for tasks in (*(each.tasks for each in job.stages), *(each.tasks for each in to_come))
    ]
    try:
        return _profile(tuple(zip(tasks, map(_step, means_ms), strict=True)), tuple(sorted(edges)))
    except WorkloadError as error:
        raise QuestionError(f"job {job.id!r}: {error}") from None


@lru_cache(maxsize=2_000)
def _profile(stages: tuple[tuple[int, float], ...], edges: tuple[tuple[int, int], ...]) -> JobProfile:
    """Return one profile object for equal stages and edges."""
    return JobProfile(
        "estimated",
        tuple(StageProfile(tasks, TaskDurations.constant(mean_ms)) for tasks, mean_ms in stages),
        np.array(edges, dtype=np.int64).reshape(-1, 2),
    )


#: Placeholder of a job that has no profile yet.
_NO_PROFILE = _profile(((1, UNKNOWN_MS),), ())
