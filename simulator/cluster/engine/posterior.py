"""Compiled: posterior (Bayesian) estimates of task times, given the finished and running tasks of a job.

The logarithm of a stage's true mean task time over its estimate is the sum of two independent normal numbers, one for
the job and one for the stage. The mean of n finished tasks is the true mean times a log-normal factor of variance
``TASK_VAR / n``. So the posterior is normal, in closed form. Schedulers see its median: by the mean, uncertain jobs
would seem longer than the same jobs with certain estimates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.engine.profiles import BELIEF, ESTIMATE
from simulator.compiled import compiled, inner

if TYPE_CHECKING:
    from simulator.cluster.estimates import Estimate

#: Variance of the logarithm of one task's time.
TASK_VAR = 0.25
#: Smallest time whose logarithm is taken, ms.
SHORTEST_MS = 1e-3
#: Logarithm of the step between the scales of profiles, see ``simulator.cluster.estimates.STEP``.
LOG_STEP = math.log(2.0)
#: Scale of a job that has not been estimated yet.
NO_SCALE = -(2**31)


def records(estimate: Estimate) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Return ``BELIEF`` [1] and ``ESTIMATE`` [num_stages] of a job from which no task has run yet."""
    belief = np.zeros(1, dtype=BELIEF)
    for name in ("job_var", "stage_var"):
        belief[name] = getattr(estimate, name)
    belief["scale"], belief["is_old"] = NO_SCALE, 1
    stages = np.zeros(len(estimate.task_ms), dtype=ESTIMATE)
    stages["task_ms"] = estimate.task_ms
    stages["num_tasks"] = [stage.num_tasks for stage in estimate.profile.stages]
    return belief, stages


@compiled
def posterior(belief, stages):  # type: ignore[no-untyped-def]
    """Update the estimates of one job, ``BELIEF`` [1] and ``ESTIMATE`` [num_stages], given its observed tasks."""
    update(belief[0], stages, 0, len(stages))


@inner
def update(belief, stages, first, end):  # type: ignore[no-untyped-def]
    """Update the estimates of a job whose stages are ``stages[first:end]``, given its observed tasks.

    Running tasks take at least as long as they have run. They count as finished if this makes the mean of finished and
    running tasks longer than expected without them.
    """
    _solve(belief, stages, first, end, False)
    belief.is_late = belief.is_old = 0
    for stage in range(first, end):
        belief.is_late |= is_late(stages[stage])
    if belief.is_late:
        _solve(belief, stages, first, end, True)
    work_ms = 0.0
    for stage in range(first, end):
        work_ms += stages[stage].num_tasks * stages[stage].mean_ms
    belief.scale = math.floor(math.log(max(work_ms, SHORTEST_MS)) / LOG_STEP + 0.5)


@inner
def is_late(stage):  # type: ignore[no-untyped-def]
    """Return whether running tasks make the mean task time of a stage longer than expected."""
    tasks = stage.finished + stage.running
    return stage.running > 0 and stage.finished_ms + stage.running_ms > tasks * stage.mean_ms


@inner
def _solve(belief, stages, first, end, with_running):  # type: ignore[no-untyped-def]
    """Compute the posterior of a job and its stages; running tasks of late stages count if ``with_running``."""
    stage_var, precision, weighted = belief.stage_var, 0.0, 0.0
    for row in range(first, end):
        tasks, log = _observed(stages[row], with_running)
        if tasks > 0:
            weight = 1.0 / (stage_var + TASK_VAR / tasks)
            precision += weight
            weighted += weight * log
    job_var = belief.job_var / (1.0 + belief.job_var * precision)
    log_factor = job_var * weighted
    belief.log_factor = log_factor
    belief.log_sd = math.sqrt(job_var)
    factor, log_sd = math.exp(log_factor), math.sqrt(job_var + stage_var)
    for row in range(first, end):
        stage = stages[row]
        if stage_var == 0 or stage.finished + stage.running == 0:  # no information on the stage's own factor
            stage.mean_ms, stage.log_sd = stage.task_ms * factor, log_sd
            continue
        tasks, log = _observed(stage, with_running)
        own_var = stage_var * TASK_VAR / (tasks * stage_var + TASK_VAR)
        share = own_var * tasks / TASK_VAR
        variance = (1.0 - share) ** 2 * job_var + own_var
        stage.mean_ms = stage.task_ms * math.exp(log_factor + share * (log - log_factor))
        stage.log_sd = math.sqrt(variance)


@inner
def _observed(stage, with_running):  # type: ignore[no-untyped-def]
    """Return the number of observed tasks of a stage, and the logarithm of their mean time over its estimate."""
    tasks, total_ms = stage.finished, stage.finished_ms
    if with_running and is_late(stage):
        tasks += stage.running
        total_ms += stage.running_ms
    if tasks == 0:
        return tasks, 0.0
    return tasks, math.log(max(total_ms / tasks, SHORTEST_MS) / max(stage.task_ms, SHORTEST_MS))
