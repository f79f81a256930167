"""Replay a live log: one simulator episode record per driver, and a report with pictures.

The log has each stage's numbers of running and finished tasks at each question, but not the start of each task. The
replay assumes that free slots follow an answer immediately unless the next question contradicts this, and stay with
their stage until a question shows otherwise. The tasks of a stage divide these spans evenly, so task times are more
precise with more frequent questions. Numbers of tasks, arrivals and ends of jobs, and decisions are exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from decima.service.log import Answered, Line, LogError, Question, Started, Welcomed
from decima.service.protocol import Answer, ExecutorMessage, JobMessage, StageMessage
from decima.service.service import one_line
from decima.show.plots import plot_jobs_in_system, plot_schedule
from decima.show.tables import Report, table_of
from simulator.cluster.config import ClusterConfig
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence, trace_arrivals
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave
from workloads.spark.plans import short_names

__all__ = ["Replayed", "live_report", "replayed"]

#: Maximum number of drivers with pictures.
MOST_PICTURES = 20
#: Maximum number of tasks over all jobs of a driver.
MOST_TASKS = 5_000_000

#: Job id and Spark's stage id.
_Key = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Replayed:
    """Replay of one driver.

    Attributes:
        application: Spark's application id.
        policy: name of the policy, for display.
        scheduler: name of the policy, for ``make_scheduler``.
        is_shadow: whether Spark kept its own order.
        record: episode record; its clock starts with the first job.
        planning_ms: time from each job's submission to the first question with a stage of it, float64 [jobs], ms.
        adaptive: for each job, whether adaptive execution submits each of its stages as a Spark job.
    """

    name: str
    application: str
    policy: str
    scheduler: str
    is_shadow: bool
    questions: int
    record: EpisodeRecord
    planning_ms: NDArray[np.float64]
    adaptive: tuple[bool, ...]

    def measured_profiles(self) -> Iterator[tuple[JobProfile | None, bool]]:
        """Yield each job's profile with measured durations (None without any), and whether the job is complete.

        All tasks of a stage have the mean duration that the driver reported, or else that of the replay. Stages without
        any are left out.
        """
        record = self.record
        lasted_ms = record.task_finish_ms - record.task_start_ms
        task = 0
        for job, profile in enumerate(record.sequence.profiles):
            stages: dict[int, StageProfile] = {}
            for number, stage in enumerate(profile.stages):
                tasks = lasted_ms[task : task + stage.num_tasks]
                task += stage.num_tasks
                if stage.durations.values.any():
                    stages[number] = stage
                elif not np.isnan(tasks).all():
                    mean_ms = max(float(np.nanmean(tasks)), 1.0)
                    stages[number] = StageProfile(
                        stage.num_tasks, TaskDurations.constant(mean_ms), stage.name
                    )
            row_of = {stage: index for index, stage in enumerate(stages)}
            kept = [pair for pair in profile.edges.tolist() if row_of.keys() >= set(pair)]
            edges = np.array(
                [(row_of[parent], row_of[child]) for parent, child in kept], dtype=np.int64
            ).reshape(-1, 2)
            measured = JobProfile(profile.name, tuple(stages.values()), edges) if stages else None
            yield measured, not np.isnan(record.completion_ms[job])


@dataclass(eq=False)
class _Span:
    """Period in which a slot ran tasks of one stage, ms; ``held``: number of the job's slots at its start."""

    slot: int
    start_ms: float
    held: int
    end_ms: float = float("nan")


@dataclass(eq=False)
class _Slot:
    """State of a slot: stage, whether the stage is assumed from an answer, and the time at which it became idle."""

    key: _Key | None = None
    assumed: bool = False
    span: _Span | None = None
    idle_ms: float = 0.0


@dataclass(eq=False)
class _JobState:
    """Last reported state of a job; NaN ``gone_ms``: the job is still live; ``began_ms``: when it first had a stage."""

    message: JobMessage
    began_ms: float = float("nan")
    seen_ms: float = 0.0
    stages: dict[int, StageMessage] = field(default_factory=dict)
    gone_ms: float = float("nan")


class _DriverReplay:
    """Reconstructs the slots of one driver from its questions and answers."""

    def __init__(self, welcomed: Welcomed, scheduler: str, is_shadow: bool) -> None:
        self.welcomed, self.scheduler, self._is_shadow = welcomed, scheduler, is_shadow
        self.questions = self.decisions = 0
        self._time_ms = 0.0
        self._before_ms = 0.0
        self._executors: tuple[ExecutorMessage, ...] = ()
        self._slots: dict[tuple[str, int], int] = {}
        self._all: list[_Slot] = []
        self._free: list[int] = []
        self._jobs: dict[str, _JobState] = {}
        self._live: dict[str, JobMessage] = {}
        self._spans: dict[_Key, list[_Span]] = {}
        self._started: dict[_Key, int] = {}

    def ask(self, line: Question) -> None:
        self.questions += 1
        self._before_ms, self._time_ms = self._time_ms or line.time_ms, line.time_ms
        for job in line.jobs:
            job_state = self._jobs.setdefault(job.id, _JobState(job))
            job_state.message, job_state.seen_ms = job, line.time_ms
            job_state.stages.update((stage.id, stage) for stage in job.stages)
            if job.stages and np.isnan(job_state.began_ms):
                job_state.began_ms = line.time_ms
            self._live[job.id] = job
        if line.executors is not None:
            self._executors = line.executors
            self._change_slots()
        ended = [self._live.pop(gone) for gone in line.gone if gone in self._live]
        for job in ended:
            self._jobs[job.id].gone_ms = line.time_ms
            self._finish(job)
        self._correct()
        self._assign_running()
        for job in (*ended, *line.jobs):
            self._add_unseen(self._jobs[job.id])

    def answer(self, line: Answered) -> None:
        self.decisions += len(line.choices)
        if not self._is_shadow:
            self._start_by(line.answer)

    def _finish(self, job: JobMessage) -> None:
        """Mark all started stages of an ended job as complete."""
        stages = self._jobs[job.id].stages
        for stage in job.stages:
            if stage.state == "ready":
                stages[stage.id] = stage.model_copy(update={"done": stage.tasks, "running": 0, "pending": 0})

    def _start_by(self, answer: Answer) -> None:
        """Start tasks on free slots by the order of an answer. The next question may undo the starts."""
        last = {
            (executor.id, index): executor.job
            for executor in self._executors
            for index in range(executor.slots)
        }
        idle = [name for name, slot in self._slots.items() if self._all[slot].key is None]
        keys = {stage.id: (job.id, stage) for job in self._live.values() for stage in job.stages}
        for order in answer.stages:
            job, stage = keys.get(order.id, (None, None))
            if job is None or stage is None or stage.state != "ready":
                continue
            more = stage.pending if order.slots is None else min(stage.pending, order.slots - stage.running)
            mine = sorted(idle, key=lambda name: last[name] != job)
            self._started[job, stage.id] = stage.done + stage.running
            for each in mine[: max(more, 0)]:
                idle.remove(each)
                slot = self._all[self._slots[each]]
                self._begin(self._slots[each], (job, stage.id), self._time_ms)
                slot.assumed = True

    def _correct(self) -> None:
        """Undo assumed starts that the question contradicts."""
        for slot in self._all:
            if not slot.assumed or slot.key is None or slot.span is None:
                continue
            slot.assumed = False
            stage = self._jobs[slot.key[0]].stages[slot.key[1]]
            if self._started[slot.key] < stage.done + stage.running:
                self._started[slot.key] += 1
            else:
                self._spans[slot.key].remove(slot.span)
                slot.key, slot.span = None, None
        self._started.clear()

    def _add_unseen(self, job_state: _JobState) -> None:
        """Add stages that began and ended between two questions."""
        for stage in job_state.stages.values():
            key = (job_state.message.id, stage.id)
            if not stage.done or self._spans.get(key) or (stage.state == "done" and stage.mean_ms is None):
                continue
            idle = [index for index, slot in enumerate(self._all) if slot.key is None]
            idle.sort(key=lambda index: self._all[index].idle_ms)
            spans = self._spans.setdefault(key, [])
            for index in idle[: stage.done]:
                slot = self._all[index]
                spans.append(_Span(index, max(self._before_ms, slot.idle_ms), 1, self._time_ms))
                slot.idle_ms = self._time_ms

    def _change_slots(self) -> None:
        """Update the slots. A slot of a new executor reuses the index of a slot whose executor has left."""
        now = {(executor.id, index) for executor in self._executors for index in range(executor.slots)}
        for gone in sorted(self._slots.keys() - now):
            index = self._slots.pop(gone)
            self._end(self._all[index])
            self._free.append(index)
        self._free.sort(reverse=True)
        for new in sorted(now - self._slots.keys()):
            if not self._free:
                self._free.append(len(self._all))
                self._all.append(_Slot())
            index = self._slots[new] = self._free.pop()
            self._all[index].idle_ms = self._time_ms

    def _assign_running(self) -> None:
        stages = ((job.id, stage) for job in self._live.values() for stage in job.stages)
        wanted = {(job, stage.id): stage.running for job, stage in stages if stage.running}
        busy = {executor.id: executor.running for executor in self._executors}
        last = {executor.id: executor.job for executor in self._executors}
        idle: list[tuple[str, int]] = []
        for (executor, index), place in self._slots.items():
            slot = self._all[place]
            key = slot.key
            if key is not None and wanted.get(key, 0) > 0 and busy[executor] > 0:
                wanted[key] -= 1
                busy[executor] -= 1
            else:
                idle.append((executor, index))
        for key, missing in wanted.items():
            # Slots of executors that last ran this job come first.
            for executor, index in sorted(idle, key=lambda name: last[name[0]] != key[0]):
                if not missing:
                    break
                if busy[executor] <= 0:
                    continue
                busy[executor] -= 1
                missing -= 1
                idle.remove((executor, index))
                slot = self._all[self._slots[executor, index]]
                start_ms = max(self._before_ms, slot.idle_ms)
                if slot.key is not None:
                    # The slot changed stages at an unknown time since the last question.
                    start_ms = (self._before_ms + self._time_ms) / 2
                    self._end(slot, start_ms)
                self._begin(self._slots[executor, index], key, start_ms)
        for name in idle:
            self._end(self._all[self._slots[name]])

    def _begin(self, place: int, key: _Key, start_ms: float) -> None:
        slot = self._all[place]
        running = sum(stage.running for stage in self._live[key[0]].stages)
        slot.key, slot.span = key, _Span(place, start_ms, running)
        self._spans.setdefault(key, []).append(slot.span)

    def _end(self, slot: _Slot, end_ms: float | None = None) -> None:
        if slot.span is not None:
            slot.span.end_ms = self._time_ms if end_ms is None else end_ms
        if slot.key is not None:
            slot.key, slot.span, slot.idle_ms = None, None, self._time_ms

    def replayed(self) -> Replayed | None:
        """Return the replay of the driver; None without slots or without jobs with stages."""
        for slot in self._all:
            self._end(slot)
        jobs = sorted(
            (job_state for job_state in self._jobs.values() if job_state.stages),
            key=lambda job_state: job_state.message.submitted_time_ms,
        )
        if not jobs or not self._all:
            return None
        tasks = sum(stage.tasks for job_state in jobs for stage in job_state.stages.values())
        if tasks > MOST_TASKS:
            raise LogError(f"driver {self.welcomed.driver}: {tasks} tasks, at most {MOST_TASKS} are allowed")
        first_ms = min(jobs[0].message.submitted_time_ms, self._time_ms)
        sequence = _sequence(jobs, first_ms)
        config = ClusterConfig(len(self._all), moving_delay_ms=0.0, warmup_delay_ms=0.0)
        record = EpisodeRecord(
            config,
            sequence,
            **self._tasks(jobs, first_ms),
            completion_ms=np.array([_completion_ms(job_state) - first_ms for job_state in jobs]),
            move_executor=np.zeros(0, dtype=np.int32),
            move_job=np.zeros(0, dtype=np.int64),
            move_depart_ms=np.zeros(0),
            end_ms=float(np.nanmax([self._time_ms, *map(_completion_ms, jobs)])) - first_ms,
            num_decisions=self.decisions,
        )
        hello = self.welcomed
        policy = f"{self.scheduler}, in the shadow" if self._is_shadow else self.scheduler
        planning_ms = np.array([max(job.began_ms - job.message.submitted_time_ms, 0.0) for job in jobs])
        return Replayed(
            *(hello.name, hello.application, policy, self.scheduler, self._is_shadow, self.questions, record),
            planning_ms,
            tuple("AdaptiveSparkPlan" in (job.message.plan or ()) for job in jobs),
        )

    def _tasks(self, jobs: list[_JobState], first_ms: float) -> dict[str, Any]:
        """Return the arrays of the record with one entry per task, by field name."""
        never = (np.nan, np.nan, -1, -1, 0)
        rows: list[tuple[float, float, int, int, int]] = []
        for job_state in jobs:
            for stage in job_state.stages.values():
                spans = self._spans.get((job_state.message.id, stage.id), [])
                ran = _shared(spans, min(stage.done + stage.running, stage.tasks))
                for span, index, of in ran:
                    length = (span.end_ms - span.start_ms) / of
                    start_ms, end_ms = (span.start_ms + at * length - first_ms for at in (index, index + 1))
                    wave = Wave.REST if index else Wave.FIRST
                    rows.append((start_ms, end_ms, span.slot, wave, span.held))
                rows += [never] * (max(stage.tasks, 1) - len(ran))
        starts, finishes, executors, waves, parallelism = zip(*rows, strict=True)
        return {
            "task_start_ms": np.array(starts),
            "task_finish_ms": np.array(finishes),
            "task_executor": np.array(executors, dtype=np.int32),
            "task_wave": np.array(waves, dtype=np.int8),
            "task_parallelism": np.array(parallelism, dtype=np.int32),
        }


def replayed(lines: Iterable[Line]) -> list[Replayed]:
    """Replay the drivers of a log in order of connection. Drivers without a job are omitted."""
    drivers: dict[tuple[int, int], _DriverReplay] = {}
    scheduler, is_shadow, service = "", False, 0
    for line in lines:
        if isinstance(line, Started):
            scheduler, is_shadow = line.policy, line.shadow
            service += 1  # each service numbers its drivers from 1
        elif isinstance(line, Welcomed):
            drivers[service, line.driver] = _DriverReplay(line, scheduler, is_shadow)
        elif isinstance(line, Question) and (service, line.driver) in drivers:
            drivers[service, line.driver].ask(line)
        elif isinstance(line, Answered) and (service, line.driver) in drivers:
            drivers[service, line.driver].answer(line)
    replays = (driver.replayed() for driver in drivers.values())
    return [replay for replay in replays if replay is not None]


def _shared(spans: list[_Span], tasks: int) -> list[tuple[_Span, int, int]]:
    """Divide tasks among spans in proportion to their lengths.

    Returns:
        For each task: span, index within the span, number of tasks of the span.
    """
    if not spans or not tasks:
        return []
    kept = sorted(spans, key=lambda span: span.start_ms - span.end_ms)[:tasks]
    kept.sort(key=lambda span: (span.start_ms, span.slot))
    length = np.array([max(span.end_ms - span.start_ms, 1e-3) for span in kept])
    share = length / length.sum() * (tasks - len(kept))
    counts = 1 + np.floor(share).astype(np.int64)
    counts[np.argsort(counts - share, kind="stable")[: tasks - counts.sum()]] += 1
    pairs = zip(kept, counts, strict=True)
    return [(span, index, int(count)) for span, count in pairs for index in range(count)]


def _completion_ms(job_state: _JobState) -> float:
    """Return a job's completion time, ms: estimated if no question follows its end, NaN if it is incomplete."""
    if job_state.gone_ms == job_state.gone_ms or any(stage.pending for stage in job_state.stages.values()):
        return job_state.gone_ms
    left_ms = [stage.mean_ms or 0.0 for stage in job_state.stages.values() if stage.running]
    return job_state.seen_ms + max(left_ms, default=0.0)


def _sequence(jobs: list[_JobState], first_ms: float) -> JobSequence:
    profiles = []
    for job_state in jobs:
        index_of = {stage: index for index, stage in enumerate(job_state.stages)}
        pairs = ((parent, stage.id) for stage in job_state.stages.values() for parent in stage.parents)
        edges = sorted(
            {(index_of[one], index_of[other]) for one, other in pairs if one in index_of and one != other}
        )
        stages = tuple(
            StageProfile(
                max(stage.tasks, 1),
                TaskDurations.constant(stage.mean_ms or 0.0),
                stage.name,
                input_bytes=stage.input_bytes,
                operators=short_names(stage.operators),
            )
            for stage in job_state.stages.values()
        )
        name = job_state.message.name or job_state.message.id
        profiles.append(JobProfile(name, stages, np.array(edges, dtype=np.int64).reshape(-1, 2)))
    return trace_arrivals(profiles, [job_state.message.submitted_time_ms - first_ms for job_state in jobs], 0)


def live_report(found: Sequence[Replayed]) -> Report:
    """Return a report with a table row, a schedule and the number of live jobs over time for each driver."""
    table = table_of(
        f"{len(found)} driver{'s' * (len(found) > 1)} of {one_line(found[0].policy)}",
        ("Application", "Jobs", "Slots", "Questions", "Decisions", "Mean JCT", "p95 JCT", "Utilised"),
        (
            (
                *(one_line(replay.name), len(replay.record.sequence), replay.record.config.num_executors),
                *(replay.questions, replay.record.num_decisions, replay.record.mean_jct_ms / 1000),
                *(episode.jct_percentile_ms(95) / 1000, episode.utilisation),
            )
            for replay in found
            for episode in [EpisodeMetrics(replay.record)]
        ),
        (*[".0f"] * 4, ".1f", ".1f", ".1%"),
        unknown="nan",
    )
    pictures: dict[str, Callable[[], Figure]] = {}
    for index, replay in enumerate(found[:MOST_PICTURES], start=1):
        # Matplotlib reads text between dollar signs as a formula.
        title = one_line(replay.name).replace("$", r"\$")
        pictures[f"schedule-{index}"] = partial(plot_schedule, replay.record, title)
        pictures[f"jobs-in-system-{index}"] = partial(plot_jobs_in_system, {title: replay.record})
    notes = [
        "Times are seconds. Start times of tasks are more precise with more frequent questions of the driver."
    ]
    if len(found) > MOST_PICTURES:
        notes.append(f"Pictures show the first {MOST_PICTURES} drivers only.")
    return Report([table], notes, _json(found), pictures)


def _json(found: Sequence[Replayed]) -> str:
    drivers = [
        {
            "name": replay.name,
            "application": replay.application,
            "policy": replay.policy,
            "questions": replay.questions,
            "decisions": replay.record.num_decisions,
            "slots": replay.record.config.num_executors,
            "jobs": json.loads(replay.record.jobs().to_json(orient="records")),
        }
        for replay in found
    ]
    return json.dumps({"drivers": drivers}, indent=2)
