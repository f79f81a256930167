"""Compiled: from an observation to its graph, and what a guard leaves of the choices there.

A graph leaves finished stages out (Decima, section 5.1, embeds what is left to do): messages go from children to
parents, so that no other stage's embedding depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.features import describe, sum_work
from simulator.compiled import compiled, inner

__all__ = ["LIMIT_KINDS", "NO_GUARD", "GraphSpec", "Graphs", "Guard", "Profiles", "build"]

INPUT, OUTPUTS, STAGE, NONE = 0, 1, 2, 3
#: How limits are chosen: ``PolicyConfig.limit`` and its number in compiled code.
LIMIT_KINDS = {"input": INPUT, "outputs": OUTPUTS, "stage": STAGE, "none": NONE}

#: ``low`` and ``high``, int32 [S], of the choices that a guard leaves; both are empty where no guard acts.
Guard = tuple[NDArray[np.int32], NDArray[np.int32]]
NO_GUARD: Guard = (np.zeros(0, np.int32), np.zeros(0, np.int32))


class Graphs(NamedTuple):
    """B observations with S stages, J live jobs and M messages in all, one after the other.

    Numbers of stages and jobs count from 0 in each observation.

    Attributes:
        first_stage: int64 [B + 1]; the stages of observation b are ``first_stage[b]:first_stage[b + 1]``.
        first_job: int64 [B + 1].
        first_message: int64 [B + 1].
        features: float32 [S, F], normalised.
        job_features: float32 [J, F_job], normalised.
        stage_job: int32 [S]; the stage's job.
        unfinished: bool [S].
        place: int32 [S]; the stage's place in the observation's arrays, ascending.
        low: int32 [S]; limits begin above it: the executors that its job (or the stage, where limits are those of
            stages) holds, or one less where waiting is a choice.
        high: int32 [S]; the largest limit; above ``low`` if and only if the stage may be chosen.
        messages: int32 [M, 3]; step, receiver, sender; in each observation ascending by step, those of a
            receiver together.
    """

    first_stage: NDArray[np.int64]
    first_job: NDArray[np.int64]
    first_message: NDArray[np.int64]
    features: NDArray[np.float32]
    job_features: NDArray[np.float32]
    stage_job: NDArray[np.int32]
    unfinished: NDArray[np.bool_]
    place: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    messages: NDArray[np.int32]

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.first_stage.size - 1

    def rows_of(self, stage: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the rows of one stage of each observation, int64 [B].

        Args:
            stage: int [B]; places of the stages in the observations' arrays.
        """
        spread = int(self.place.max(initial=0)) + 1
        owner = np.repeat(np.arange(self.num_graphs), np.diff(self.first_stage))
        found: NDArray[np.int64] = np.searchsorted(
            owner * spread + self.place, np.arange(self.num_graphs) * spread + stage
        )
        return found

    @staticmethod
    def concatenate(parts: Sequence[Graphs]) -> Graphs:
        """Join all observations of ``parts``, which are not empty, in order."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, NDArray[Any]] = {}
        lengths = [part.num_graphs for part in parts]
        for name in Graphs._fields:
            pieces = [getattr(part, name) for part in parts]
            if name not in _POINTERS:
                arrays[name] = np.concatenate(pieces)
                continue
            starts = np.cumsum([0, *(piece[-1] for piece in pieces[:-1])])
            arrays[name] = np.concatenate([pieces[0][:1], *(piece[1:] for piece in pieces)])
            arrays[name][1:] += np.repeat(starts, lengths)
        return Graphs(**arrays)

    def select(self, chosen: NDArray[np.int64]) -> Graphs:
        """Return the observations of these numbers, in this order."""
        arrays: dict[str, NDArray[Any]] = {}
        for pointer, names in _POINTERS.items():
            first = getattr(self, pointer)
            new = np.zeros(chosen.size + 1, dtype=np.int64)
            np.cumsum(first[chosen + 1] - first[chosen], out=new[1:])
            arrays[pointer] = new
            for name in names:
                rows = getattr(self, name)
                out = np.empty((int(new[-1]), *rows.shape[1:]), dtype=rows.dtype)
                _select(chosen, first, new, rows, out)
                arrays[name] = out
        return Graphs(**arrays)


_POINTERS = {
    "first_stage": ("features", "stage_job", "unfinished", "place", "low", "high"),
    "first_job": ("job_features",),
    "first_message": ("messages",),
}


@compiled
def _select(chosen, first, first_new, rows, out):
    """Copy the rows of the chosen graphs, one graph after the other."""
    for i in range(chosen.size):
        start = first[chosen[i]]
        for row in range(first_new[i + 1] - first_new[i]):
            out[first_new[i] + row] = rows[start + row]


class Profiles(NamedTuple):
    """Values derived from the profiles of the J live jobs only: useful parallelism and messages."""

    useful: NDArray[np.float64]
    """[J, 2] executors that a job uses well alone; 0 where no feature asks for it."""
    first_message: NDArray[np.int64]
    """[J + 1]; the messages of job j are ``messages[first_message[j]:first_message[j + 1]]``."""
    messages: NDArray[np.int32]
    """[M, 3] step, receiver, sender; stages by their numbers in the job."""


class GraphSpec(NamedTuple):
    """Settings of graphs from a ``PolicyConfig``; features of stages stand before features of jobs."""

    columns: NDArray[np.int64]
    """Number of each feature; ``features.CUSTOM`` for those that Python fills in."""
    scales: NDArray[np.float64]
    logs: NDArray[np.bool_]
    num_stage_features: int
    finished_stages: bool
    guard: bool
    """Whether the policy is never offered what its guard forbids; else a guard acts on its choices."""
    limit_kind: int
    all_limits: bool
    num_limits: int


@compiled
def build(jobs, stages, classes, offer, rule_price, rule_limits, rule_away, profiles, spec):
    """Make the graph of an observation.

    Args:
        jobs: rows of the observation.
        stages: likewise.
        classes: likewise.
        offer: :class:`features.Offer`.
        rule_price: cost exponent of executors by the rule.
        rule_limits: int64 [J], limit of each job by the rule; empty where it is not asked.
        rule_away: float64 [S], how far each stage is from the one that the rule runs next; likewise.
        profiles: :class:`Profiles` of the live jobs.
        spec: :class:`GraphSpec`.

    Returns:
        :class:`Graphs`, the number of different decisions among which the policy chooses, and ``low`` and ``high`` of
        the choices that a guard leaves, which are empty where it leaves all of them or none.

    Raises:
        ValueError: arrays of the observation and the profiles have other lengths than they should.
    """
    _check(jobs, stages, classes, offer, rule_limits, rule_away, profiles)
    work = sum_work(jobs, stages, classes[offer.executor_class], offer)
    place, stage_job, unfinished = _rows(stages, spec.finished_stages)
    features, job_features = describe(
        jobs, stages, classes, offer, work, profiles.useful, rule_price, rule_limits, rule_away, spec, place
    )
    messages = _messages(jobs, len(stages), profiles, place)

    low, high = np.empty(place.size, np.int32), np.empty(place.size, np.int32)
    guarded_low, guarded_high = np.empty(0, np.int32), np.empty(0, np.int32)
    masked = np.zeros(len(stages), np.bool_)
    num_answers = _limit(stages, offer, work, spec, place, masked, offer.can_wait, low, high)
    if offer.can_guard and _has_work(jobs, stages, offer, work):
        _mask_late(jobs, stages, profiles, offer.guard_wait_ms, masked)
        if offer.rule_stage >= 0:
            masked[offer.rule_stage] = False
        if spec.guard:
            num_answers = _limit(stages, offer, work, spec, place, masked, False, low, high)
        else:
            guarded_low, guarded_high = np.empty_like(low), np.empty_like(high)
            if _limit(stages, offer, work, spec, place, masked, False, guarded_low, guarded_high) == 0:
                guarded_low, guarded_high = np.empty(0, np.int32), np.empty(0, np.int32)
    graph = Graphs(
        np.array([0, place.size]),
        np.array([0, len(jobs)]),
        np.array([0, len(messages)]),
        features,
        job_features,
        stage_job,
        unfinished,
        place,
        low,
        high,
        messages,
    )
    return graph, num_answers, guarded_low, guarded_high


@inner
def _check(jobs, stages, classes, offer, rule_limits, rule_away, profiles):
    """Refuse numbers that point outside of an array: compiled code would follow them."""
    first = profiles.first_message
    fits = (
        len(first) == len(jobs) + 1
        and len(profiles.useful) == len(jobs)
        and profiles.messages.shape[1] == 3
        and 0 <= offer.executor_class < len(classes)
        and -1 <= offer.source < len(jobs)
        and -1 <= offer.rule_stage < len(stages)
        and (len(rule_limits) == 0 or len(rule_limits) == len(jobs))
        and (len(rule_away) == 0 or len(rule_away) == len(stages))
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
        if not (first[job] == begin_message <= first[job + 1] <= len(profiles.messages)):
            raise ValueError("the messages of profiles do not stand job by job")
        for message in range(first[job], first[job + 1]):
            fits &= profiles.messages[message, 0] >= 0
            fits &= 0 <= profiles.messages[message, 1] < end - begin
            fits &= 0 <= profiles.messages[message, 2] < end - begin
        begin, begin_message = end, first[job + 1]
    if not (fits and begin == len(stages)):
        raise ValueError("a stage is of another job, or a profile has other stages than its job")


@inner(arrays=True)
def _rows(stages, finished_stages):
    """Return the stages of the graph: places, ascending; jobs; and whether each is unfinished."""
    most, size = len(stages), 0
    place, job, unfinished = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.bool_)
    for number in range(most):
        stage = stages[number]
        is_unfinished = stage.finished_tasks < stage.num_tasks
        if finished_stages or is_unfinished:
            place[size], job[size], unfinished[size] = number, stage.job, is_unfinished
            size += 1
    return place[:size].copy(), job[:size].copy(), unfinished[:size].copy()


@inner(arrays=True)
def _messages(jobs, num_stages, profiles, place):
    """Messages between the stages of the graph, step by step over all jobs: for many stages at once."""
    row_of = np.full(num_stages, -1, dtype=np.int32)
    for row in range(place.size):
        row_of[place[row]] = row
    first, messages = profiles.first_message, profiles.messages
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

    An unfinished stage has no finished child, except where Spark runs a stage again whose output was lost.
    """
    return row_of[first_stage + message[1]] >= 0 and row_of[first_stage + message[2]] >= 0


@inner(arrays=True)
def _limit(stages, offer, work, spec, place, masked, can_wait, low, high):
    """Fill in ``low`` and ``high`` of the stages at these places, and return the number of different decisions.

    Args:
        masked: bool [number of stages]; stages that must not be chosen.
        can_wait: whether leaving the executors idle is a choice.
    """
    num_answers, of_stage = 0, spec.limit_kind == STAGE
    for row in range(place.size):
        stage = stages[place[row]]
        lowest = stage.running_executors if of_stage else work[stage.job].held
        low[row] = high[row] = lowest
        if stage.schedulable == 0 or masked[place[row]]:
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


# The guard: choices that leave executors idle beside work that is worth a move.


@inner(arrays=True)
def _has_work(jobs, stages, offer, work):
    """Whether a ready stage that fits wants executors: of the job that offers them, or worth a move.

    As in the rule ``profiled-srpt``, a job is worth a move if it has fewer executors than would find lasting work
    there, or none.
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
    """Mask the stages that are not ready and will not be soon: executors must not wait for them.

    A stage opens when the last of its parents' tasks ends; that is taken to last as long as one of these.
    """
    for job in range(len(jobs)):
        first = jobs[job].first_stage
        for m in range(profiles.first_message[job], profiles.first_message[job + 1]):
            parent, child = stages[first + profiles.messages[m, 1]], first + profiles.messages[m, 2]
            is_open = parent.finished_tasks < parent.num_tasks
            masked[child] |= is_open and parent.mean_task_ms > wait_ms
    for place in range(len(stages)):
        masked[place] &= stages[place].ready_rank < 0
