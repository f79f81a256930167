"""Compiled: from an observation to the arrays of ``graphs.Graphs``."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.guard import Patience, has_work, held_back
from simulator.compiled import compiled, inner

__all__ = ["LIMIT_KINDS", "Jobs", "Recipe", "Rows", "Seen", "build", "select"]

INPUT, OUTPUTS, STAGE, NONE = 0, 1, 2, 3
#: How limits are chosen: ``PolicyConfig.limit`` and its number in compiled code.
LIMIT_KINDS = {"input": INPUT, "outputs": OUTPUTS, "stage": STAGE, "none": NONE}

# Features, in the order of feature_config.FEATURE_NAMES; those of useful_executors come last.
UNCLAIMED_TASKS, REMAINING_TASKS, MEAN_TASK_MS, UNCLAIMED_WORK_MS, REMAINING_WORK_MS = 0, 1, 2, 3, 4
EXECUTORS, OFFERED, LOCAL, RUNNING_EXECUTORS, JOB_WORK_MS = 5, 6, 7, 8, 9
READY, NEXT, SHARE, LASTING = 10, 11, 12, 13
UNUSED_CPU, UNUSED_MEMORY, COVERING, AS_LARGE, FREE_COVERING, BUSY, FITTING = 14, 15, 16, 17, 18, 19, 20
DELAY_TASKS, STREAM, RULE, RULE_EXECUTORS, PRICE = 21, 22, 23, 24, 25
USEFUL = 26


class Seen(NamedTuple):
    """What is read of an observation."""

    jobs: NDArray[np.void]
    stages: NDArray[np.void]
    classes: NDArray[np.void]
    offered: int
    executor_class: int
    source: int
    num_executors: int
    can_wait: bool
    """Whether leaving the executors idle is a choice, if no guard acts."""
    moving_delay_ms: float
    lasting_ms: float
    """How long an executor must be at work for a move to be worth it."""
    rule_stage: int
    """Which the rule would run next, a place; -1 if nobody asked it."""
    rule_limits: NDArray[np.int64]
    """Executors that it would let each job hold, [J]; empty if nobody asked it."""
    rule_away: NDArray[np.float64]
    """How far each stage is from the one that it would run next, [S]; empty if nobody asked it."""
    price: float
    """What executors cost by the rule."""
    may_guard: bool
    """Whether nobody may be left idle, nor wait for what opens late, while there is work worth a move."""
    patience: Patience


class Jobs(NamedTuple):
    """What the profiles of the live jobs tell."""

    useful_executors: NDArray[np.float64]
    """[jobs, 2]"""
    first_message: NDArray[np.int64]
    """[jobs + 1]; the messages of job j are ``messages[first_message[j]:first_message[j + 1]]``."""
    messages: NDArray[np.int32]
    """[M, 3] step, receiver, sender."""


class Recipe(NamedTuple):
    """What a ``PolicyConfig`` wants to see; features of stages come first, then those of jobs."""

    names: NDArray[np.int64]
    scales: NDArray[np.float64]
    logs: NDArray[np.bool_]
    num_stage_features: int
    keep_finished: bool
    guard: bool
    """Whether the policy is never offered what its guard forbids; else a guard acts on its choices."""
    limit_kind: int
    all_limits: bool
    num_limits: int


@compiled
def build(seen, known, recipe):
    """Make the graph of an observation.

    Args:
        seen: the observation, :class:`Seen`.
        known: the live jobs, :class:`Jobs`.
        recipe: what to tell of them, :class:`Recipe`.

    Returns:
        :class:`Rows`; the messages, int32 [M, 3], as ``graphs.Graphs`` has them; the number of different decisions
        among which the policy chooses; and ``low`` and ``high`` of the decisions that a guard leaves, which are empty
        where it leaves all of them or none.

    Raises:
        ValueError: arrays of the observation and the profiles have other lengths than they should.
    """
    _check(seen, known)
    rows = _rows(seen, known, recipe)
    messages = _messages(seen, known, rows.place)
    nothing, no_mask = np.empty(0, np.int32), np.zeros(len(seen.stages), np.bool_)
    num_answers = _limit(seen, recipe, rows.place, no_mask, seen.can_wait, rows.low, rows.high)
    if not (seen.may_guard and has_work(seen, seen.patience)):
        return rows, messages, num_answers, nothing, nothing
    masked = held_back(seen, known, seen.patience)
    if seen.rule_stage >= 0:
        masked[seen.rule_stage] = False
    if recipe.guard:
        num_answers = _limit(seen, recipe, rows.place, masked, False, rows.low, rows.high)
        return rows, messages, num_answers, nothing, nothing
    low, high = np.empty_like(rows.low), np.empty_like(rows.high)
    num_guarded = _limit(seen, recipe, rows.place, masked, False, low, high)
    if num_guarded == 0:
        return rows, messages, num_answers, nothing, nothing
    return rows, messages, num_answers, low, high


@inner
def _check(seen, known):
    """Refuse numbers that point outside of an array: compiled code would follow them."""
    jobs, stages, first = seen.jobs, seen.stages, known.first_message
    fits = (
        len(first) == len(jobs) + 1
        and len(known.useful_executors) == len(jobs)
        and known.messages.shape[1] == 3
        and 0 <= seen.executor_class < len(seen.classes)
        and -1 <= seen.source < len(jobs)
        and -1 <= seen.rule_stage < len(stages)
        and (len(seen.rule_limits) == 0 or len(seen.rule_limits) == len(jobs))
        and (len(seen.rule_away) == 0 or len(seen.rule_away) == len(stages))
    )
    if not fits:
        raise ValueError("the arrays of an observation do not fit together, or not the profiles")
    begin, begin_message = 0, 0
    for job in range(len(jobs)):
        end = jobs[job + 1].first_stage if job + 1 < len(jobs) else len(stages)
        if not (jobs[job].first_stage == begin <= end <= len(stages)):
            raise ValueError("the stages of an observation do not stand job by job")
        for stage in range(begin, end):
            fits &= stages[stage].job == job
        if not (first[job] == begin_message <= first[job + 1] <= len(known.messages)):
            raise ValueError("the messages of profiles do not stand job by job")
        for message in range(first[job], first[job + 1]):
            fits &= known.messages[message, 0] >= 0
            fits &= 0 <= known.messages[message, 1] < end - begin
            fits &= 0 <= known.messages[message, 2] < end - begin
        begin, begin_message = end, first[job + 1]
    if not (fits and begin == len(stages)):
        raise ValueError("a stage is of another job, or a profile has other stages than its job")


class Rows(NamedTuple):
    """Of stages and jobs, as ``graphs.Graphs`` has them."""

    features: NDArray[np.float32]
    job_features: NDArray[np.float32]
    stage_job: NDArray[np.int32]
    unfinished: NDArray[np.bool_]
    place: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]


@inner(arrays=True)
def _make_rows(seen, recipe):
    size = 0
    for stage in seen.stages:
        size += recipe.keep_finished or stage.finished_tasks < stage.num_tasks
    return Rows(
        np.empty((size, recipe.num_stage_features), np.float32),
        np.empty((len(seen.jobs), recipe.names.size - recipe.num_stage_features), np.float32),
        np.empty(size, np.int32),
        np.empty(size, np.bool_),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
    )


@inner(arrays=True)
def _rows(seen, known, recipe):
    """What stages and jobs are like; ``low`` and ``high`` are not filled in."""
    rows = _make_rows(seen, recipe)
    jobs, stages = seen.jobs, seen.stages
    num_jobs, num_stages = len(jobs), len(stages)
    most = max(float(seen.num_executors), 1.0)  # all may have left
    own = seen.classes[seen.executor_class]
    job_work, unclaimed_work, fitting_work = np.zeros(num_jobs), np.zeros(num_jobs), np.zeros(num_jobs)
    busy = np.zeros(num_jobs)
    for stage in stages:
        job_work[stage.job] += stage.remaining_tasks * stage.mean_task_ms
        work = stage.unclaimed_tasks * stage.mean_task_ms
        unclaimed_work[stage.job] += work
        if _covers(own, stage):
            fitting_work[stage.job] += work
        busy[stage.job] += stage.running_executors + stage.remaining_tasks - stage.unclaimed_tasks
    values = np.zeros(USEFUL + known.useful_executors.shape[1])
    values[OFFERED] = seen.offered
    values[SHARE] = seen.num_executors / max(num_jobs, 1)
    values[STREAM] = -1.0
    for job in jobs:
        if job.arrival_ms != jobs[0].arrival_ms:
            values[STREAM] = 1.0
    values[PRICE] = seen.price
    for kind in seen.classes:
        if _covers(kind, own):
            values[AS_LARGE] += kind.executors / most
    largest_cpu, largest_memory = _largest(seen.classes)
    last, scaled = np.full(recipe.num_stage_features, np.nan), np.empty(recipe.num_stage_features)
    row = 0
    for job in range(num_jobs):
        held = _held(seen, job)
        values[EXECUTORS] = jobs[job].executors
        values[LOCAL] = 1.0 if job == seen.source else -1.0
        values[JOB_WORK_MS] = job_work[job]
        values[LASTING] = min(fitting_work[job] / seen.lasting_ms, most) if seen.lasting_ms > 0 else most
        values[BUSY] = min(busy[job], held)
        values[FITTING] = fitting_work[job] / unclaimed_work[job] if unclaimed_work[job] > 0 else 0.0
        if len(seen.rule_limits):
            values[RULE_EXECUTORS] = min(max(seen.rule_limits[job], held), held + seen.offered)
        values[USEFUL:] = known.useful_executors[job]
        for k in range(recipe.num_stage_features, recipe.names.size):
            value = _scaled(values[recipe.names[k]], recipe.scales[k], recipe.logs[k])
            rows.job_features[job, k - recipe.num_stage_features] = value
        end = jobs[job + 1].first_stage if job + 1 < num_jobs else num_stages
        for place in range(jobs[job].first_stage, end):
            stage = stages[place]
            is_finished = stage.finished_tasks >= stage.num_tasks
            if is_finished and not recipe.keep_finished:
                continue
            unclaimed, remaining, mean_ms = stage.unclaimed_tasks, stage.remaining_tasks, stage.mean_task_ms
            values[UNCLAIMED_TASKS] = unclaimed
            values[REMAINING_TASKS] = remaining
            values[MEAN_TASK_MS] = mean_ms
            values[UNCLAIMED_WORK_MS] = unclaimed * mean_ms
            values[REMAINING_WORK_MS] = remaining * mean_ms
            values[RUNNING_EXECUTORS] = stage.running_executors
            values[READY] = 1.0 if stage.ready_rank >= 0 else -1.0
            values[NEXT] = 1.0 if jobs[job].next_stage == place else -1.0
            values[DELAY_TASKS] = seen.moving_delay_ms / max(mean_ms, 1.0)
            if len(seen.rule_away):
                values[RULE] = 1.0 - seen.rule_away[place]
            values[UNUSED_CPU] = (own.cpu - stage.cpu) / largest_cpu
            values[UNUSED_MEMORY] = (own.memory - stage.memory) / largest_memory
            values[COVERING] = values[FREE_COVERING] = 0.0
            for number in range(len(seen.classes)):
                kind = seen.classes[number]
                if _covers(kind, stage):
                    values[COVERING] += kind.executors / most
                    values[FREE_COVERING] += kind.free if number != seen.executor_class else 0
            for k in range(recipe.num_stage_features):
                value = values[recipe.names[k]]
                if value != last[k]:  # most are of the job or of the cluster, and logarithms take long
                    last[k] = value
                    scaled[k] = _scaled(value, recipe.scales[k], recipe.logs[k])
                rows.features[row, k] = scaled[k]
            rows.stage_job[row] = job
            rows.unfinished[row] = not is_finished
            rows.place[row] = place
            row += 1
    return rows


@inner(arrays=True)
def _held(seen, job):
    """Executors that a job holds without those offered."""
    executors = seen.jobs[job].executors
    return max(executors - seen.offered if job == seen.source else executors, 0)


@inner(arrays=True)
def _limit(seen, recipe, places, masked, can_wait, low, high):
    """Fill in ``low`` and ``high`` of the stages at these places, and return the number of different decisions.

    Args:
        masked: bool [S], stages of the observation that must not be chosen.
        can_wait: whether leaving the executors idle is a choice.
    """
    num_answers = 0
    for row in range(places.size):
        stage = seen.stages[places[row]]
        lowest = stage.running_executors if recipe.limit_kind == STAGE else _held(seen, stage.job)
        low[row] = high[row] = lowest
        if stage.schedulable == 0 or masked[places[row]]:
            continue
        highest = (
            seen.num_executors if recipe.all_limits else lowest + min(seen.offered, stage.unclaimed_tasks)
        )
        if recipe.limit_kind == OUTPUTS:
            highest = min(highest, recipe.num_limits)
        high[row] = max(highest, lowest)
        low[row] -= can_wait and highest > lowest
        num = high[row] - low[row]
        num_answers += min(num, 1) if recipe.limit_kind == NONE else num
    return num_answers


@inner(arrays=True)
def _covers(kind, need):
    """Whether executors of a class are at least as large as what a stage, or another class, is."""
    return need.cpu <= kind.cpu and need.memory <= kind.memory


@inner(arrays=True)
def _largest(classes):
    """The most cpu and the most memory that an executor has; 1 where none has any."""
    cpu, memory = 0.0, 0.0
    for kind in classes:
        cpu = max(cpu, kind.cpu)
        memory = max(memory, kind.memory)
    return cpu if cpu > 0 else 1.0, memory if memory > 0 else 1.0


@inner(arrays=True)
def _scaled(value, scale, log):
    return math.log1p(value / scale) if log else value / scale


@inner(arrays=True)
def _messages(seen, known, places):
    """Between the stages that stand at these places; step by step over all jobs, for many stages at once."""
    row_of = np.full(len(seen.stages), -1, dtype=np.int32)
    for row in range(places.size):
        row_of[places[row]] = row
    jobs, first, messages = seen.jobs, known.first_message, known.messages
    num_steps = 0
    for m in range(len(messages)):
        num_steps = max(num_steps, messages[m, 0] + 1)
    next_row = np.zeros(num_steps + 1, dtype=np.int64)
    for job in range(len(jobs)):
        for m in range(first[job], first[job + 1]):
            if _is_between(row_of, jobs[job].first_stage, messages[m]):
                next_row[messages[m, 0] + 1] += 1
    for step in range(num_steps):
        next_row[step + 1] += next_row[step]
    filled = np.empty((next_row[num_steps], 3), np.int32)
    for job in range(len(jobs)):
        first_stage = jobs[job].first_stage
        for m in range(first[job], first[job + 1]):
            if _is_between(row_of, first_stage, messages[m]):
                step = messages[m, 0]
                row = next_row[step]
                next_row[step] += 1
                filled[row, 0] = step
                filled[row, 1] = row_of[first_stage + messages[m, 1]]
                filled[row, 2] = row_of[first_stage + messages[m, 2]]
    return filled


@inner
def _is_between(row_of, first_stage, message):
    """Whether a message is from one stage of the graph to another.

    A stage that is not finished has no finished child, but where Spark runs a stage again whose output was lost.
    """
    return row_of[first_stage + message[1]] >= 0 and row_of[first_stage + message[2]] >= 0


@compiled
def select(chosen, first, first_new, rows, out):
    """Copy the rows of the chosen graphs, one graph after the other."""
    for i in range(chosen.size):
        start = first[chosen[i]]
        for row in range(first_new[i + 1] - first_new[i]):
            out[first_new[i] + row] = rows[start + row]
