"""Values: returns and advantages as recursive sums, and the inputs of the critic, sums over unfinished work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled

if TYPE_CHECKING:
    from simulator.cluster.observation import Observation

__all__ = ["LIVE_JOBS", "NUM_LOADS", "UNIT_MS", "accumulate", "load_of"]

Floats = NDArray[np.float64]

#: Number of sums that ``load_of`` returns, and the position of the number of live jobs among them.
NUM_LOADS, LIVE_JOBS = 7, 1
#: Unit of work in ``load_of``, ms.
UNIT_MS = 100_000.0


def accumulate(values: Floats, factors: Floats, bootstrap_value: float = 0.0) -> Floats:
    """Compute ``result[i] = values[i] + factors[i] * result[i + 1]``, where ``result[n]`` is the bootstrap value.

    Rewards and discounts give returns; TD errors and discounts times GAE lambda give GAE advantages.
    """
    result = np.empty_like(values)
    later: Any = bootstrap_value
    for place in range(len(values) - 1, -1, -1):
        later = result[place] = values[place] + factors[place] * later
    return result


def load_of(observation: Observation) -> Floats:
    """Summarise the unfinished work of the live jobs in seven sums, the inputs of the critic.

    Let w be the unfinished work of a job (tasks times mean duration, in units of ``UNIT_MS``), r the number of jobs
    with at least that much work, itself included, and n the number of executors. The sums are: 1, number of jobs, sum
    of w, sum of r * w / n (total time in the system under shortest job first), s = sum of sqrt(w), s ** 2 / n, and sum
    of r * sqrt(w).

    Returns:
        float64 [7].
    """
    sums: NDArray[np.float64] = _sums(
        observation.stages, len(observation.jobs), float(observation.num_executors)
    )
    return sums


@compiled
def _sums(stages, num_jobs, num_executors):  # type: ignore[no-untyped-def]
    work = np.zeros(num_jobs)
    for stage in stages:
        work[stage.job] += (stage.num_tasks - stage.finished_tasks) * stage.mean_task_ms / UNIT_MS
    work.sort()
    sums = np.zeros(NUM_LOADS)
    sums[0] = 1.0
    sums[1] = num_jobs
    for place in range(num_jobs):
        root = np.sqrt(work[place])
        sums[2] += work[place]
        sums[3] += (num_jobs - place) * work[place] / num_executors
        sums[4] += root
        sums[6] += (num_jobs - place) * root
    sums[5] = sums[4] ** 2 / num_executors
    return sums
