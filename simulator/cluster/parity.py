"""Replay episodes that were recorded from the published Decima simulator, with deterministic task durations.

The same decisions must lead to the same decision points, rewards and completion times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from simulator.cluster.base import BaseCluster
from simulator.cluster.config import DECIMA_SIM, ClusterConfig
from simulator.cluster.episode import make_cluster
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence
from workloads.errors import DecimaError, SchedulingError
from workloads.job import JobProfile, StageProfile, TaskDurations

#: Tolerance of rewards, which may be summed in another order.
TOLERANCE = 1e-9


class DepartureError(DecimaError, RuntimeError):
    """A decision in a replay differs from the recorded one. The message is one line."""


#: Integers small enough for the memory of a replay.
_Count = Annotated[int, Field(gt=-(10**6), lt=10**6)]


class _RecordedStage(BaseModel):
    num_tasks: _Count
    fresh_ms: float
    first_ms: float
    rest_ms: float


class _RecordedJob(BaseModel):
    arrival_ms: float
    stages: list[_RecordedStage]
    edges: list[tuple[_Count, _Count]]


class _Features(BaseModel):
    jobs: list[int]
    exec_map: list[int]
    node_order: list[tuple[int, int]]
    node_inputs: list[list[float]]
    min_level_per_job: list[int]
    job_inputs: list[list[float]] | None = None
    valid_nodes: list[int] | None = None
    unfinished_nodes: list[int] | None = None


class RecordedDecision(BaseModel):
    """A recorded decision, with the probabilities of the published network if that decided."""

    time_ms: float
    source_job: int | None
    source_stage: int | None
    num_source_executors: int
    executors_now: list[int]
    schedulable: list[tuple[int, int]]
    job: int | None
    stage: int | None
    num_executors: int
    num_committed: int
    reward: float
    features: _Features | None = None
    node_order: list[tuple[int, int]] | None = None  # (job, stage) of all stages of the live jobs
    stage_probabilities: list[float] | None = None  # in the order of ``node_order``
    limit_probabilities: list[float] | None = None  # of the limits 1, 2, .. for the job of the chosen stage
    limit: _Count | None = None  # the chosen parallelism limit


_Event = (
    tuple[float, Literal["task"], int, int, int, int]
    | tuple[float, Literal["job"], int]
    | tuple[float, Literal["executor"], int]
)


class Recording(BaseModel):
    """A recorded episode. Fields of the file that a replay does not need are ignored."""

    format: Literal[1]
    executors: _Count
    moving_delay_ms: float
    reward_objective: Literal["mean", "makespan"]
    reward_scale: float
    jobs: list[_RecordedJob]
    decisions: list[RecordedDecision]
    completions_ms: list[float]
    makespan_ms: float
    avg_jct_ms: float
    tasks: list[tuple[int, int, int, int, float, float]] | None = None
    events: list[_Event] | None = None
    #: (receiver, sender) stages for each job and each message-passing step of the published network.
    msg_paths: list[list[list[tuple[_Count, _Count]]]] | None = None

    def config(self) -> ClusterConfig:
        """Return the configuration of the recorded cluster."""
        return ClusterConfig(
            num_executors=self.executors,
            moving_delay_ms=self.moving_delay_ms,
            semantics=DECIMA_SIM,
            reward="jct" if self.reward_objective == "mean" else "makespan",
            reward_scale_ms=self.reward_scale,
        )

    @property
    def by_agent(self) -> bool:
        """Whether a network (a trained agent) decided."""
        return any(decision.stage_probabilities is not None for decision in self.decisions)

    @cached_property
    def sequence(self) -> JobSequence:
        """The recorded jobs."""
        profiles = [
            JobProfile(
                f"job {job_number}",
                tuple(StageProfile(stage.num_tasks, _durations(stage)) for stage in job.stages),
                np.array(job.edges, dtype=np.int64).reshape(-1, 2),
            )
            for job_number, job in enumerate(self.jobs)
        ]
        return JobSequence(tuple(profiles), np.array([job.arrival_ms for job in self.jobs]))


def carry_out(cluster: BaseCluster, decision: RecordedDecision) -> tuple[float, int]:
    """Carry out a recorded decision on a cluster, the default ``decide`` of ``differences``.

    Returns:
        The reward, and the number of committed executors.

    Raises:
            SchedulingError: the decision is not possible.
    """
    offered = cluster.offered
    if decision.job is None or decision.stage is None:
        if decision.num_executors != offered:
            raise SchedulingError(f"{decision.num_executors} executors left idle, {offered} offered")
        cluster.decide(None)
        return cluster.reward(), offered
    return commit(cluster, decision.job, decision.stage, decision.num_executors)


def commit(cluster: BaseCluster, job: int, stage: int, count: int) -> tuple[float, int]:
    """Commit ``count`` executors to a stage, clipped to its unclaimed tasks, like the published simulator.

    Args:
        job: number of the job in the sequence.
        stage: number of the stage in the job.
        count: from 1 to the number of executors offered.

    Returns:
        The reward, and the number of committed executors.

    Raises:
        SchedulingError: the stage is not schedulable or the count is out of range; nothing changes.
    """
    if not 0 < count <= cluster.offered:
        raise SchedulingError(f"{count} executors requested, {cluster.offered} offered")
    observation = cluster.observe()
    jobs = np.flatnonzero(observation.job_id == job).tolist()
    if not jobs:
        raise SchedulingError(f"job {job} is not in the system")
    stages = observation.stages_of(jobs[0])
    if not 0 <= stage < stages.stop - stages.start:
        raise SchedulingError(f"there is no stage {stage} of job {job}")
    row = stages.start + stage
    if not observation.schedulable[row]:
        raise SchedulingError(f"stage {stage} of job {job} is not schedulable")
    unclaimed = int(observation.unclaimed_tasks[row])
    cluster.decide(Decision(row, observation.held(jobs[0]) + count))
    return cluster.reward(), min(count, unclaimed)


def differences(
    recording: Recording,
    decide: Callable[[BaseCluster, RecordedDecision], tuple[float, int]] = carry_out,
    engine: Literal["compiled", "simpy"] = "compiled",
    fork_at: int | None = None,
) -> Iterator[str]:
    """Replay a recording; yield one line for the first decision that differs, or one line per different result.

    Args:
        decide: function that carries out a decision, given the recorded one, and returns the same as
            ``carry_out``; raises ``DepartureError`` if its own decision differs.
        engine: engine of the cluster, see ``ClusterConfig``.
        fork_at: number of the decision before which the replay switches to a fork of the cluster.

    Raises:
        WorkloadError: the recorded jobs are invalid.
        ConfigError: the recorded cluster is invalid.
    """
    cluster = make_cluster(replace(recording.config(), engine=engine), recording.sequence)
    for index, decision in enumerate(recording.decisions):
        if cluster.done:
            yield f"decision {index}: the replay is over, the recording continues"
            return
        if index == fork_at:
            cluster = cluster.fork()
        for what, recorded, replayed in _decision_point(cluster, decision):
            if recorded != replayed:
                yield f"decision {index} at {decision.time_ms:g} ms: {what} is {replayed}, recorded {recorded}"
                return
        try:
            reward, committed = decide(cluster, decision)
        except (SchedulingError, DepartureError) as error:
            yield f"decision {index} at {decision.time_ms:g} ms: {error}"
            return
        if committed != decision.num_committed:
            yield f"decision {index}: {committed} executors committed, recorded {decision.num_committed}"
            return
        if not abs(reward - decision.reward) <= TOLERANCE:
            yield f"decision {index}: reward {reward:.12g}, recorded {decision.reward:.12g}"
            return
    if not cluster.done:
        yield f"after {len(recording.decisions)} decisions: the recording is over, the replay continues"
        return
    yield from _outcome(cluster.record(), recording)


def _decision_point(cluster: BaseCluster, decision: RecordedDecision) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, recorded value, replayed value) of each quantity that is observed at a decision."""
    observation = cluster.observe()
    names = stage_names(observation)
    source_job, source_stage = cluster.source
    yield "the time in ms", decision.time_ms, observation.time_ms
    yield "the source job", decision.source_job, source_job
    yield "the source stage", decision.source_stage, source_stage
    yield "the number of executors offered", decision.num_source_executors, observation.offered
    yield "the acting executors", decision.executors_now, list(cluster.acting)
    schedulable = [names[index] for index in np.flatnonzero(observation.schedulable)]
    yield "the list of schedulable stages", decision.schedulable, schedulable
    if decision.features is not None:
        yield from _features(observation, decision.features)


def _features(observation: Observation, features: _Features) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, recorded value, replayed value) of each input of the published agent, by the agent's names."""
    live = range(len(observation.job_id))
    limits = [observation.held(job) + 1 for job in live]
    yield "the list of live jobs", features.jobs, observation.job_id.tolist()
    yield "the executors of the jobs", features.exec_map, observation.job_executors.tolist()
    yield "the smallest limit of the jobs", features.min_level_per_job, limits
    yield "the order of stages", features.node_order, stage_names(observation)
    left = observation.remaining_tasks
    held = observation.job_executors / 20
    source = np.where(np.arange(len(held)) == observation.source, 2.0, -2.0)
    jobs = np.column_stack([held, source, np.full(len(held), observation.offered / 20)])
    stages = np.column_stack(
        [jobs[observation.stage_job], left * observation.mean_task_ms / 100_000, left / 200]
    )
    yield "the input of the stages", features.node_inputs, _snapped(stages.tolist(), features.node_inputs)
    if features.job_inputs is not None:
        yield "the input of the jobs", features.job_inputs, _snapped(jobs.tolist(), features.job_inputs)
    if features.valid_nodes is not None:
        allowed = np.array(limits, dtype=np.int64)[observation.stage_job] <= observation.num_executors
        valid = np.flatnonzero(observation.schedulable & allowed).tolist()
        yield "the mask of stages", features.valid_nodes, valid
    if features.unfinished_nodes is not None:
        unfinished = observation.finished_tasks < observation.num_tasks
        yield "the unfinished stages", features.unfinished_nodes, unfinished.astype(int).tolist()


def _snapped(rows: list[list[float]], to: list[list[float]]) -> list[list[float]]:
    """Return ``to`` if ``rows`` equals it up to rounding, else ``rows``."""
    equal = len(rows) == len(to) and all(
        len(row) == len(other) and all(abs(a - b) <= TOLERANCE for a, b in zip(row, other, strict=True))
        for row, other in zip(rows, to, strict=True)
    )
    return to if equal else rows


def stage_names(observation: Observation) -> list[tuple[int, int]]:
    """Return (job, stage in that job) of each stage of an observation."""
    job = observation.stage_job
    within = np.arange(len(job)) - observation.job_first_stage[job]
    return list(zip(observation.job_id[job].tolist(), within.tolist(), strict=True))


def _outcome(record: EpisodeRecord, recording: Recording) -> Iterator[str]:
    """Yield a line for each difference in completion times, task runs and events."""
    arrival_ms = record.sequence.arrival_ms
    for job, (recorded, replayed) in enumerate(
        zip(recording.completions_ms, record.completion_ms.tolist(), strict=False)
    ):
        if recorded != replayed:
            yield f"completion of job {job}: {replayed:g} ms, recorded {recorded:g} ms"
            return
    if len(recording.completions_ms) != len(arrival_ms):
        yield f"{len(arrival_ms)} completions, recorded {len(recording.completions_ms)}"
    makespan = float(record.completion_ms.max())
    if makespan != recording.makespan_ms:
        yield f"makespan: {makespan:g} ms, recorded {recording.makespan_ms:g} ms"
    average = float(np.mean(record.completion_ms - arrival_ms))
    if not abs(average - recording.avg_jct_ms) <= TOLERANCE * average:
        yield f"average job completion time: {average:.12g} ms, recorded {recording.avg_jct_ms:.12g} ms"
    runs = _task_runs(record)
    if recording.tasks is not None and sorted(recording.tasks) != runs:
        yield f"task runs: {first_difference(sorted(recording.tasks), runs)}"
    if recording.events is not None:
        times = [event[0] for event in recording.events]
        recorded_events = sorted(recording.events, key=str)
        events = sorted(_events(record, runs), key=str)
        if times != sorted(times):
            yield "events: they are not in order of time"
        elif recorded_events != events:
            yield f"events: {first_difference(recorded_events, events)}"


def _task_runs(record: EpisodeRecord) -> list[tuple[int, int, int, int, float, float]]:
    """Return (job, stage, task, executor, start in ms, finish in ms) of all tasks, sorted."""
    names = [
        (job, stage, task)
        for job, profile in enumerate(record.sequence.profiles)
        for stage, tasks in enumerate(profile.stages)
        for task in range(tasks.num_tasks)
    ]
    columns = (record.task_executor.tolist(), record.task_start_ms.tolist(), record.task_finish_ms.tolist())
    return [(*name, *run) for name, *run in zip(names, *columns, strict=True)]


def _events(
    record: EpisodeRecord, runs: Sequence[tuple[int, int, int, int, float, float]]
) -> Iterator[tuple[Any, ...]]:
    for job, stage, task, executor, _, finish_ms in runs:
        yield finish_ms, "task", job, stage, task, executor
    for job, arrival_ms in enumerate(record.sequence.arrival_ms.tolist()):
        if arrival_ms > 0:
            yield arrival_ms, "job", job
    for executor, depart_ms in zip(
        record.move_executor.tolist(), record.move_depart_ms.tolist(), strict=True
    ):
        yield depart_ms + record.config.moving_delay_ms, "executor", executor


def _durations(stage: _RecordedStage) -> TaskDurations:
    """Return durations with the mean that the published agent sees: the mean over all measured durations."""
    durations = TaskDurations.constant(stage.rest_ms, first_ms=stage.first_ms, fresh_ms=stage.fresh_ms)
    return replace(durations, mean_ms=float(durations.values.mean()))


def first_difference(recorded: Any, replayed: Any) -> str:
    """Describe the first difference between two sequences."""
    for one, other in zip(recorded, replayed, strict=False):
        if one != other:
            return f"{other}, recorded {one}"
    return f"{len(replayed)} entries, recorded {len(recorded)}"
