"""Compiled: random numbers of one attempt at a task (failure, delay, noise), as in ``simulator.cluster.chance``."""

from __future__ import annotations

from simulator.compiled import inner

__all__ = ["COPY", "DURATION", "LEVEL", "chance", "delay_factor", "draw_noise", "fails", "run_of"]

# Purposes of random numbers, see `simulator.cluster.chance.Purpose`.
FAILS, STRAGGLES, LEVEL, DURATION = 0, 1, 2, 3
COPY = 4  # added to the purpose for the speculative copy of a task


@inner
def _mix(key, number):
    key = (key + (int(number) + 1) * 0x9E3779B1) & 0xFFFFFFFF
    key = ((key >> 16) ^ key) * 0x45D9F3B & 0xFFFFFFFF
    key = ((key >> 16) ^ key) * 0x45D9F3B & 0xFFFFFFFF
    return (key >> 16) ^ key


@inner
def chance(state, job, task, purpose):
    """Return the uniform random number for a purpose and the current attempt at a task of a job."""
    owner = state.jobs[job]
    number = task - state.stages[owner.first_stage].first_task
    return (_mix(_mix(_mix(owner.key, number), state.tasks[task].attempt), purpose) >> 8) / 16777216.0


@inner
def run_of(state, executor):
    """Return the record of an executor's run, ``LOST``; used if its task was copied and ``TASK`` has the other run.

    ``outcome`` is ``COPY`` if the run began as a copy, else 0. These records are the last ones of the table ``lost``.
    """
    return state.lost[len(state.lost) - len(state.executors) + executor]


@inner
def fails(state, executor):
    """Return whether the task run that ends on an executor has failed."""
    runner, share = state.executors[executor], state.cluster[0].task_failures
    return share > 0 and chance(state, runner.job, runner.task, FAILS) < share


@inner
def delay_factor(state, job, task, copy):
    """Return the straggler factor of the current attempt at a task (``copy`` 0), or of its copy (``copy`` COPY)."""
    cluster = state.cluster[0]
    drawn = chance(state, job, task, STRAGGLES + copy)
    return cluster.straggler_factor if drawn < cluster.straggler_share else 1.0


@inner
def draw_noise(state, job, task):
    """Draw the noise of the current attempt at a task; the first attempt has the noise of ``task_noise``."""
    state.noise[task].level = chance(state, job, task, LEVEL)
    state.noise[task].duration = chance(state, job, task, DURATION)
