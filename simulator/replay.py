"""Replay recorded episodes: the same decisions must lead to the same decision points, rewards and completions.

``python -m simulator.replay FILE...`` prints ``N of M episodes match`` and, for each that does not, the first
difference. The files are recordings of the published Decima simulator with deterministic task durations (JSON,
gzipped or not), replayed with its semantics.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
from pydantic import BaseModel, ValidationError

from simulator.cluster import Cluster, SchedulingError
from simulator.config import DECIMA_SIM, ClusterConfig, ConfigError
from simulator.record import EpisodeRecord
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, StageProfile, TaskDurations, WorkloadError

__all__ = ["Recording", "RecordingError", "differences", "read_recording"]

#: Sums of rewards may be taken in another order.
TOLERANCE = 1e-9


class RecordingError(ValueError):
    """A file that is not a recorded episode. The message is one line that names the file and the place."""


class _Stage(BaseModel):
    num_tasks: int
    fresh_ms: float
    first_ms: float
    rest_ms: float


class _Job(BaseModel):
    arrival_ms: float
    stages: list[_Stage]
    edges: list[tuple[int, int]]


class _Features(BaseModel):
    jobs: list[int]
    exec_map: list[int]
    node_order: list[tuple[int, int]]
    node_inputs: list[list[float]]
    min_level_per_job: list[int]


class _Decision(BaseModel):
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


class Recording(BaseModel):
    """A recorded episode. Fields that are not needed for a replay are ignored."""

    format: Literal[1]
    executors: int
    moving_delay_ms: float
    reward_objective: Literal["mean", "makespan"]
    reward_scale: float
    jobs: list[_Job]
    decisions: list[_Decision]
    completions_ms: list[float]
    makespan_ms: float
    avg_jct_ms: float
    tasks: list[tuple[int, int, int, int, float, float]] | None = None
    events: list[list[Any]] | None = None

    def config(self) -> ClusterConfig:
        """The cluster that was recorded."""
        return ClusterConfig(
            num_executors=self.executors,
            moving_delay_ms=self.moving_delay_ms,
            semantics=DECIMA_SIM,
            reward="jct" if self.reward_objective == "mean" else "makespan",
            reward_scale_ms=self.reward_scale,
        )

    def sequence(self) -> JobSequence:
        """The jobs that were recorded."""
        profiles = [
            JobProfile(
                f"job {number}",
                tuple(
                    StageProfile(
                        stage.num_tasks,
                        TaskDurations.constant(
                            stage.rest_ms, first_ms=stage.first_ms, fresh_ms=stage.fresh_ms
                        ),
                    )
                    for stage in job.stages
                ),
                np.array(job.edges, dtype=np.int64).reshape(-1, 2),
            )
            for number, job in enumerate(self.jobs)
        ]
        return JobSequence(tuple(profiles), np.array([job.arrival_ms for job in self.jobs]))


def read_recording(path: Path) -> Recording:
    """Read a recorded episode (JSON, or gzipped JSON by the suffix ``.gz``).

    Raises:
        RecordingError: the file cannot be read or is not a recorded episode.
    """
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        return Recording.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecordingError(f"{path}: {f'{place}: ' if place else ''}{first['msg']}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from None


def differences(recording: Recording) -> Iterator[str]:
    """Replay a recording; yields a line per difference, the first decision that differs and then the outcome's.

    Raises:
        WorkloadError: its jobs are not jobs.
        ConfigError: its cluster is not a cluster.
    """
    cluster = Cluster(recording.config(), recording.sequence())
    for number, decision in enumerate(recording.decisions):
        if cluster.done:
            yield f"decision {number}: the replay is over, the recording goes on"
            return
        for what, recorded, replayed in _decision_point(cluster, decision):
            if recorded != replayed:
                yield f"decision {number} at {decision.time_ms:g} ms: {what} is {replayed}, recorded {recorded}"
                return
        try:
            reward, committed = _act(cluster, decision)
        except SchedulingError as error:
            yield f"decision {number} at {decision.time_ms:g} ms: {error}"
            return
        if committed != decision.num_committed:
            yield f"decision {number}: {committed} executors committed, recorded {decision.num_committed}"
            return
        if not abs(reward - decision.reward) <= TOLERANCE:
            yield f"decision {number}: reward {reward:.12g}, recorded {decision.reward:.12g}"
            return
    if not cluster.done:
        yield f"after decision {len(recording.decisions) - 1}: the recording is over, the replay goes on"
        return
    yield from _outcome(cluster.record(), recording)


def _decision_point(cluster: Cluster, decision: _Decision) -> Iterator[tuple[str, Any, Any]]:
    """(what, recorded, replayed) of everything that can be seen when a decision is asked for."""
    observation = cluster.observe()
    names = [(int(observation.job_id[job]), 0) for job in range(len(observation.job_id))]
    names = [
        (job, stage)
        for place, (job, _) in enumerate(names)
        for stage in range(observation.stages_of(place).stop - observation.stages_of(place).start)
    ]
    source_job, source_stage = cluster.source
    yield "the time in ms", decision.time_ms, observation.time_ms
    yield "the source job", decision.source_job, source_job
    yield "the source stage", decision.source_stage, source_stage
    yield "the number of executors offered", decision.num_source_executors, observation.offered
    yield "the executors in turn", decision.executors_now, list(cluster.turn)
    schedulable = [names[place] for place in np.flatnonzero(observation.schedulable)]
    yield "the list of schedulable stages", decision.schedulable, schedulable
    if decision.features is not None:
        yield "the list of live jobs", decision.features.jobs, observation.job_id.tolist()
        yield "the executors of the jobs", decision.features.exec_map, observation.job_executors.tolist()
        limits = [observation.held(job) + 1 for job in range(len(observation.job_id))]
        yield "the least limit of the jobs", decision.features.min_level_per_job, limits
        yield "the order of stages", decision.features.node_order, names
        left = [round(200 * inputs[4]) for inputs in decision.features.node_inputs]
        yield "the number of remaining tasks", left, observation.remaining_tasks.tolist()


def _act(cluster: Cluster, decision: _Decision) -> tuple[float, int]:
    """Carry out a recorded decision; returns its reward and the number of executors really committed."""
    offered = cluster.offered
    if decision.job is None or decision.stage is None:
        return cluster.decide(None), offered
    observation = cluster.observe()
    jobs = np.flatnonzero(observation.job_id == decision.job)
    if not jobs.size:
        raise SchedulingError(f"job {decision.job} is not in the system")
    stage = observation.stages_of(int(jobs[0])).start + decision.stage
    committed = min(decision.num_executors, int(observation.unclaimed_tasks[stage]))
    return cluster.commit(decision.job, decision.stage, decision.num_executors), committed


def _outcome(record: EpisodeRecord, recording: Recording) -> Iterator[str]:
    """Differences of completions, task runs and events."""
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
        yield f"task runs: {_first_difference(sorted(recording.tasks), runs)}"
    if recording.events is not None:
        recorded_events = sorted((tuple(event) for event in recording.events), key=str)
        events = sorted(_events(record, runs), key=str)
        if recorded_events != events:
            yield f"events: {_first_difference(recorded_events, events)}"


def _task_runs(record: EpisodeRecord) -> list[tuple[int, int, int, int, float, float]]:
    """(job, stage, task, executor, start in ms, finish in ms) of all tasks, sorted."""
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


def _first_difference(recorded: Sequence[Any], replayed: Sequence[Any]) -> str:
    for one, other in zip(recorded, replayed, strict=False):
        if one != other:
            return f"{other}, recorded {one}"
    return f"{len(replayed)} of them, recorded {len(recorded)}"


def _replay(path: Path) -> str | None:
    """The first difference, or what is wrong with the file; None if the episode matches."""
    try:
        return next(differences(read_recording(path)), None)
    except RecordingError as error:
        return str(error).removeprefix(f"{path}: ")
    except (WorkloadError, ConfigError, SchedulingError) as error:
        return str(error)


@click.command(help="Replay recorded episodes and say which of them match.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Entry point; the exit status is 0 only if all episodes match."""
    matching = 0
    for path in files:
        difference = _replay(path)
        if difference is None:
            matching += 1
        else:
            click.echo(f"{path}: {difference}")
    click.echo(f"{matching} of {len(files)} episodes match")
    sys.exit(0 if matching == len(files) else 1)


if __name__ == "__main__":
    main()
