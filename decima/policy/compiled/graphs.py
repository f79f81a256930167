"""Compiled: build the graph of an observation, the input of the graph neural network, and the guard's mask.

Finished stages are not in the graph (Decima, section 5.1, embeds remaining work). Messages go from children to
parents, so no unfinished stage's embedding depends on a finished stage.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.features import Columns, Offer, covers, describe
from simulator.compiled import compiled, inner

__all__ = [
    "LIMIT_KINDS", "NO_GUARD", "ClusterConstants", "GraphSpec", "Graphs", "Guard", "Profiles", "build",
    "make_graph",
]  # fmt: skip

INPUT, OUTPUTS, STAGE, NONE = 0, 1, 2, 3
#: Value of ``PolicyConfig.limit`` -> number in compiled code.
LIMIT_KINDS = {"input": INPUT, "outputs": OUTPUTS, "stage": STAGE, "none": NONE}

#: ``low`` and ``high``, int32 [S], see ``Graphs``, of choices that the guard does not mask; empty if it masks nothing.
Guard = tuple[NDArray[np.int32], NDArray[np.int32]]
NO_GUARD: Guard = (np.zeros(0, np.int32), np.zeros(0, np.int32))
#: Sums over the stages of a live job, and ``held``: its number of executors without the offered ones.
WORK = np.dtype(
    (
        np.record,
        [
            ("remaining_ms", np.float64),  # work of tasks that have not started
            ("unclaimed_ms", np.float64),  # part of remaining_ms: tasks to which no executor is committed
            ("fitting_ms", np.float64),  # part of unclaimed_ms: tasks that fit on the offered executors
            ("attained_ms", np.float64),  # executor time of tasks that have finished
            (
                "path_ms",
                np.float64,
            ),  # longest path of unfinished stages, in mean task durations; 0 without heights
            ("busy", np.int64),  # executors that run a task or are committed to one
            ("held", np.int64),
        ],
    )
)


class Graphs(NamedTuple):
    """Graphs of B observations, concatenated: S stages, J live jobs and M messages in total.

    Indices of stages and jobs count from 0 in each observation.

    Attributes:
        first_stage: int64 [B + 1]; the stages of observation b are ``first_stage[b]:first_stage[b + 1]``.
        first_job: int64 [B + 1], likewise for jobs.
        first_message: int64 [B + 1], likewise for messages.
        features: float32 [S, F], scaled features of stages.
        job_features: float32 [J, F_job], scaled features of jobs.
        stage_job: int32 [S], job of each stage.
        unfinished: bool [S], whether each stage is unfinished.
        stage_index: int32 [S], index of each stage in the observation's arrays, ascending.
        low: int32 [S], number of executors of the stage's job (of the stage if limits are per stage), or one less if
            waiting is a choice; valid limits are larger.
        high: int32 [S], largest valid limit; larger than ``low`` if and only if the stage may be chosen.
        messages: int32 [M, 3], step, receiver, sender. In each observation, messages ascend by step, and messages to
            one receiver are consecutive.
    """

    first_stage: NDArray[np.int64]
    first_job: NDArray[np.int64]
    first_message: NDArray[np.int64]
    features: NDArray[np.float32]
    job_features: NDArray[np.float32]
    stage_job: NDArray[np.int32]
    unfinished: NDArray[np.bool_]
    stage_index: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    messages: NDArray[np.int32]

    @property
    def num_graphs(self) -> int:
        """Number of observations B."""
        return self.first_stage.size - 1


class Profiles(NamedTuple):
    """Values that depend only on the profiles of the J live jobs of an observation."""

    useful: NDArray[np.float64]
    """[J, 2], useful parallelism of each job alone at two cost exponents; 0 if no feature needs it."""
    height_ms: NDArray[np.float64]
    """[S], mean task durations on the longest path from each stage to a leaf; empty if no feature needs it."""
    first_message: NDArray[np.int64]
    """[J + 1]; the messages of job j are ``messages[first_message[j]:first_message[j + 1]]``."""
    messages: NDArray[np.int32]
    """[M, 3], step, receiver, sender; indices of stages count from 0 in each job."""


class GraphSpec(NamedTuple):
    """Settings of a ``PolicyConfig`` that determine graphs, for compiled code."""

    columns: tuple[Any, ...]
    """Fields of ``features.Columns``."""
    finished_stages: bool
    limit_kind: int
    all_limits: bool
    num_limits: int


class ClusterConstants(NamedTuple):
    """Constants of a cluster that determine graphs; for those from ``configured`` on see ``features.Offer``."""

    offers_again: bool
    """Whether idle executors are offered again."""
    worth_leaving_ms: float
    """Work per executor that makes a move of another job's executor worthwhile, ms."""
    worth_moving_ms: float
    """The same for a free executor."""
    can_wait: bool
    can_guard: bool
    configured: int
    guard_wait_ms: float
    moving_delay_ms: float
    lasting_ms: float


@compiled
def build(rows, offered, profiles, constants, spec):
    """Build the graph of an observation.

    All arguments are plain tuples, since named tuples are unpacked three times as slowly.

    Args:
        rows: ``jobs``, ``stages`` and ``classes`` of the observation.
        offered: ``offered``, ``executor_class``, ``source``, ``time_ms`` and ``last_call`` of the observation.
        profiles: fields of the ``Profiles`` of the live jobs.
        constants: fields of ``ClusterConstants``.
        spec: fields of ``GraphSpec``.

    Returns:
        ``Graphs`` of one observation; number of different decisions; ``low`` and ``high`` after the guard's
        mask, empty if the guard masks nothing or everything.

    Raises:
        ValueError: lengths or order of the arrays are inconsistent.
    """
    return make_graph(rows, offered, profiles, constants, spec)


@inner(arrays=True)
def make_graph(rows, offered, profiles, constants, spec):
    """See ``build``."""
    jobs, stages, classes = rows
    profiles, spec = Profiles(*profiles), GraphSpec(*spec)
    offer = _make_offer(classes, offered, ClusterConstants(*constants))
    _check(jobs, stages, classes, offer, profiles)
    work = _sum_work(jobs, stages, classes[offer.executor_class], offer, profiles.height_ms)
    stage_index, stage_job, unfinished = _rows(stages, spec.finished_stages)
    columns = Columns(*spec.columns)
    features, job_features = describe(
        jobs,
        stages,
        classes,
        offer,
        work,
        profiles.useful,
        _typical_ms(work),
        profiles.height_ms,
        columns,
        stage_index,
    )
    messages = _messages(jobs, len(stages), profiles, stage_index)

    low, high = np.empty(stage_index.size, np.int32), np.empty(stage_index.size, np.int32)
    guarded_low, guarded_high = np.empty(0, np.int32), np.empty(0, np.int32)
    masked = np.zeros(len(stages), np.bool_)
    num_answers = _limit(stages, offer, work, spec, stage_index, masked, offer.can_wait, low, high)
    if offer.can_guard and _has_work(jobs, stages, offer, work):
        _mask_late(jobs, stages, profiles, offer.guard_wait_ms, masked)
        guarded_low, guarded_high = (
            np.empty(stage_index.size, np.int32),
            np.empty(stage_index.size, np.int32),
        )
        if _limit(stages, offer, work, spec, stage_index, masked, False, guarded_low, guarded_high) == 0:
            guarded_low, guarded_high = np.empty(0, np.int32), np.empty(0, np.int32)
    first_stage, first_job, first_message = (
        np.zeros(2, np.int64),
        np.zeros(2, np.int64),
        np.zeros(2, np.int64),
    )
    first_stage[1], first_job[1], first_message[1] = stage_index.size, len(jobs), len(messages)
    first = first_stage, first_job, first_message
    graph = Graphs(*first, features, job_features, stage_job, unfinished, stage_index, low, high, messages)
    return graph, num_answers, guarded_low, guarded_high


@inner
def _make_offer(classes, offered, constants):
    """Return the ``Offer``, from the values of an observation and the constants of its cluster."""
    count, offered_class, source, time_ms, last_call = offered
    num_executors = 0
    for executor_class in classes:
        num_executors += executor_class.executors
    asked_again = constants.offers_again and not last_call
    return Offer(
        count,
        offered_class,
        source,
        num_executors,
        constants.configured,
        constants.can_wait and asked_again,
        constants.can_guard and asked_again,
        constants.guard_wait_ms,
        constants.worth_leaving_ms if source >= 0 else constants.worth_moving_ms,
        constants.moving_delay_ms,
        time_ms,
        constants.lasting_ms,
    )


@inner
def _check(jobs, stages, classes, offer, profiles):
    """Raise if an index is outside of its array, which compiled code does not check."""
    first = profiles.first_message
    fits = (
        len(first) == len(jobs) + 1
        and len(profiles.useful) == len(jobs)
        and (len(profiles.height_ms) == 0 or len(profiles.height_ms) == len(stages))
        and profiles.messages.shape[1] == 3
        and 0 <= offer.executor_class < len(classes)
        and -1 <= offer.source < len(jobs)
    )
    if not fits:
        raise ValueError("the arrays of an observation and the profiles have inconsistent lengths")
    begin, begin_message = 0, 0
    for job in range(len(jobs)):
        end = jobs[job + 1].first_stage if job + 1 < len(jobs) else len(stages)
        if not (jobs[job].first_stage == begin <= end <= len(stages)):
            raise ValueError("the stages of an observation are not sorted by job")
        for stage in range(begin, end):
            fits &= stages[stage].job == job
        if not (first[job] == begin_message <= first[job + 1] <= len(profiles.messages)):
            raise ValueError("the messages of profiles are not sorted by job")
        for message in range(first[job], first[job + 1]):
            fits &= profiles.messages[message, 0] >= 0
            fits &= 0 <= profiles.messages[message, 1] < end - begin
            fits &= 0 <= profiles.messages[message, 2] < end - begin
        begin, begin_message = end, first[job + 1]
    if not (fits and begin == len(stages)):
        raise ValueError("a stage has a wrong job, or a profile has other stages than its job")


@inner(arrays=True)
def _sum_work(jobs, stages, offered_class, offer, height_ms):
    """Return sums over the stages of each live job, ``WORK`` records [J]."""
    work = np.zeros(len(jobs), WORK)
    for job in range(len(jobs)):
        executors = jobs[job].executors
        work[job].held = max(executors - offer.offered if job == offer.source else executors, 0)
    for index in range(len(stages)):
        stage = stages[index]
        sums = work[stage.job]
        if len(height_ms) and stage.finished_tasks < stage.num_tasks:
            sums.path_ms = max(sums.path_ms, height_ms[index])
        unclaimed_ms = stage.unclaimed_tasks * stage.mean_task_ms
        sums.remaining_ms += stage.remaining_tasks * stage.mean_task_ms
        sums.unclaimed_ms += unclaimed_ms
        sums.attained_ms += stage.finished_ms
        if covers(offered_class, stage):
            sums.fitting_ms += unclaimed_ms
        sums.busy += stage.running_executors + stage.remaining_tasks - stage.unclaimed_tasks
    return work


@inner
def _typical_ms(work):
    """Return the geometric mean of the remaining work of jobs that have any, ms; 1 if none has."""
    log_work, count = 0.0, 0
    for sums in work:
        if sums.remaining_ms > 0:
            log_work += math.log(sums.remaining_ms)
            count += 1
    return math.exp(log_work / count) if count else 1.0


@inner(arrays=True)
def _rows(stages, finished_stages):
    """Return, for the stages in the graph, ascending: index, job, and whether the stage is unfinished."""
    most, size = len(stages), 0
    stage_index, job, unfinished = (
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.bool_),
    )
    for index in range(most):
        stage = stages[index]
        is_unfinished = stage.finished_tasks < stage.num_tasks
        if finished_stages or is_unfinished:
            stage_index[size], job[size], unfinished[size] = index, stage.job, is_unfinished
            size += 1
    return stage_index[:size].copy(), job[:size].copy(), unfinished[:size].copy()


@inner(arrays=True)
def _messages(jobs, num_stages, profiles, stage_index):
    """Return the messages between stages in the graph, by step over all jobs, so that steps are large batches.

    Usually a message from a finished stage goes to a finished stage; not if Spark repeats a stage with lost output.
    """
    row_of = np.empty(num_stages, dtype=np.int32)
    for stage in range(num_stages):
        row_of[stage] = -1
    for row in range(stage_index.size):
        row_of[stage_index[row]] = row
    first, messages = profiles.first_message, profiles.messages
    num_steps = 0
    for m in range(len(messages)):
        num_steps = max(num_steps, messages[m, 0] + 1)
    next_row = np.zeros(num_steps + 1, dtype=np.int64)
    for job in range(len(jobs)):
        first_stage = jobs[job].first_stage
        for m in range(first[job], first[job + 1]):
            if row_of[first_stage + messages[m, 1]] >= 0 and row_of[first_stage + messages[m, 2]] >= 0:
                next_row[messages[m, 0] + 1] += 1
    for step in range(num_steps):
        next_row[step + 1] += next_row[step]
    filled = np.empty((next_row[num_steps], 3), np.int32)
    for job in range(len(jobs)):
        first_stage = jobs[job].first_stage
        for m in range(first[job], first[job + 1]):
            receiver, sender = row_of[first_stage + messages[m, 1]], row_of[first_stage + messages[m, 2]]
            if receiver >= 0 and sender >= 0:
                step = messages[m, 0]
                row = next_row[step]
                next_row[step] += 1
                filled[row, 0], filled[row, 1], filled[row, 2] = step, receiver, sender
    return filled


@inner(arrays=True)
def _limit(stages, offer, work, spec, stage_index, masked, can_wait, low, high):
    """Fill in ``low`` and ``high`` of the stages with these indices, and return the number of different decisions.

    Args:
        masked: bool [number of stages], stages that must not be chosen.
        can_wait: whether leaving the executors idle is a choice.
    """
    num_answers, of_stage = 0, spec.limit_kind == STAGE
    for row in range(stage_index.size):
        stage = stages[stage_index[row]]
        lowest = stage.running_executors if of_stage else work[stage.job].held
        low[row] = high[row] = lowest
        if stage.schedulable == 0 or masked[stage_index[row]]:
            continue
        highest = (
            offer.num_executors if spec.all_limits else lowest + min(offer.offered, stage.unclaimed_tasks)
        )
        if spec.limit_kind == OUTPUTS:
            highest = min(highest, spec.num_limits)
        if highest > lowest:
            high[row] = highest
            low[row] -= can_wait
            num_answers += 1 if spec.limit_kind == NONE else high[row] - low[row]
    return num_answers


# The guard: masks choices that leave executors idle although some work is worth a move.


@inner(arrays=True)
def _has_work(jobs, stages, offer, work):
    """Return whether a ready stage can use the offered executors now: a stage of their job, or one worth a move.

    As in the rule ``srpt``, a job is worth a move if it has no executors, or fewer than find lasting work.
    """
    for stage in stages:
        if stage.ready_rank < 0 or stage.schedulable == 0:
            continue
        if stage.job == offer.source or offer.guard_work_ms <= 0:
            return True
        if jobs[stage.job].executors < max(1.0, work[stage.job].fitting_ms / offer.guard_work_ms):
            return True
    return False


@inner
def _mask_late(jobs, stages, profiles, wait_ms, masked):
    """Mask stages that are not ready and will not become ready soon, so that executors do not wait for them.

    A stage becomes ready when the last task of its parents ends. The estimated wait is the duration of one task of a
    parent.
    """
    for job in range(len(jobs)):
        first = jobs[job].first_stage
        for m in range(profiles.first_message[job], profiles.first_message[job + 1]):
            parent, child = stages[first + profiles.messages[m, 1]], first + profiles.messages[m, 2]
            is_open = parent.finished_tasks < parent.num_tasks
            masked[child] |= is_open and parent.mean_task_ms > wait_ms
    for index in range(len(stages)):
        masked[index] &= stages[index].ready_rank < 0
