"""Compiled: random numbers of one run of a task, as in ``simulator.cluster.chance``."""

from __future__ import annotations

from simulator.compiled import inner

__all__ = [
    "COPY",
    "DURATION",
    "LEVEL",
    "chance",
    "copy_delay_factor",
    "delay_factor",
    "draw_noise",
    "fails",
    "run_of",
]

# Purposes, see `simulator.cluster.chance.Purpose`.
FAILS, STRAGGLES, LEVEL, DURATION = 0, 1, 2, 3
COPY = 4  # added for a copy


@inner
def _mix(key, number):
    key = (key + (int(number) + 1) * 0x9E3779B1) & 0xFFFFFFFF
    key = ((key >> 16) ^ key) * 0x45D9F3B & 0xFFFFFFFF
    key = ((key >> 16) ^ key) * 0x45D9F3B & 0xFFFFFFFF
    return (key >> 16) ^ key


@inner
def chance(state, job, task, purpose):
    """Return the uniform number of a purpose for the current attempt at a task of a job."""
    owner = state.jobs[job]
    number = task - state.stages[owner.first_stage].first_task
    return (_mix(_mix(_mix(owner.key, number), state.tasks[task].attempt), purpose) >> 8) / 16777216.0


@inner
def run_of(state, executor):
    """Return the record, ``LOST``, of an executor's run, if its task was copied and ``TASK`` has its other run.

    ``outcome`` is ``COPY`` if the run began as the copy, else 0. These are the last records of the table of lost runs.
    """
    return state.lost[len(state.lost) - len(state.executors) + executor]


@inner
def fails(state, executor):
    """Return whether the run of a task that ends on an executor has failed."""
    runner, share = state.executors[executor], state.cluster[0].task_failures
    return share > 0 and chance(state, runner.job, runner.task, FAILS) < share


@inner
def delay_factor(state, job, task):
    """Return the factor by which the current attempt at a task takes longer."""
    cluster = state.cluster[0]
    return cluster.straggler_factor if chance(state, job, task, STRAGGLES) < cluster.straggler_share else 1.0


@inner
def copy_delay_factor(state, job, task):
    """Return the factor by which a copy of the current attempt at a task takes longer."""
    cluster, drawn = state.cluster[0], chance(state, job, task, STRAGGLES + COPY)
    return cluster.straggler_factor if drawn < cluster.straggler_share else 1.0


@inner
def draw_noise(state, job, task):
    """Draw the noise of the current attempt at a task, which is not the first."""
    state.noise[task].level = chance(state, job, task, LEVEL)
    state.noise[task].duration = chance(state, job, task, DURATION)
