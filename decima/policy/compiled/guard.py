"""Compiled: which choices would leave executors idle beside work that is worth going for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import inner

__all__ = ["Patience", "has_work", "held_back"]


class Patience(NamedTuple):
    """What a guard takes moves to cost, ms."""

    wait_ms: float
    """How long executors may wait for a stage that is not ready."""
    lasting_ms: float
    """How long an executor must find work for a move to be worth it; 0 if moves take no time."""


@inner(arrays=True)
def has_work(seen, patience):
    """Whether a stage that is ready and fits wants executors: of the job that offers them, or worth a move.

    As the rule ``profiled-srpt`` has it, a job that has fewer executors than would find lasting work there is worth
    one, and any job is that has none.
    """
    jobs, own = seen.jobs, seen.classes[seen.executor_class]
    work_ms = np.zeros(len(jobs))
    for stage in seen.stages:
        if stage.cpu <= own.cpu and stage.memory <= own.memory:
            work_ms[stage.job] += stage.unclaimed_tasks * stage.mean_task_ms
    for stage in seen.stages:
        if stage.ready_rank < 0 or stage.schedulable == 0:
            continue
        if stage.job == seen.source or patience.lasting_ms <= 0:
            return True
        if jobs[stage.job].executors < max(1.0, work_ms[stage.job] / patience.lasting_ms):
            return True
    return False


@inner(arrays=True)
def held_back(seen, known, patience):
    """Stages for which nobody may wait now: those that are not ready and will not be soon; bool [S].

    A stage opens when the last of its parents' tasks ends; that is taken to last as long as one of these.
    """
    late = np.zeros(len(seen.stages), np.bool_)
    for job in range(len(seen.jobs)):
        first = seen.jobs[job].first_stage
        for m in range(known.first_message[job], known.first_message[job + 1]):
            parent, child = seen.stages[first + known.messages[m, 1]], first + known.messages[m, 2]
            is_open = parent.finished_tasks < parent.num_tasks
            late[child] |= is_open and parent.mean_task_ms > patience.wait_ms
    for place in range(len(seen.stages)):
        late[place] &= seen.stages[place].ready_rank < 0
    return late
