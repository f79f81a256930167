"""Tables of one job profile for compiled code: its stages, and durations of their tasks in flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import record
from workloads.job import JobProfile, Wave

_INT, _FLOAT = np.dtype(np.int64), np.dtype(np.float64)

# Waves from which an empty cell takes its durations, in order of preference.
_FALLBACK = {
    Wave.FRESH: (Wave.FRESH, Wave.FIRST, Wave.REST),
    Wave.FIRST: (Wave.FIRST, Wave.FRESH, Wave.REST),
    Wave.REST: (Wave.REST, Wave.FIRST, Wave.FRESH),
}


#: A stage and its progress.
STAGE = record(
    ("job", _INT),
    ("num_tasks", _INT),
    ("started", _INT),  # tasks that have started, without those that must run again
    ("finished", _INT),
    ("running", _INT),  # executors on the stage
    ("claimed", _INT),  # executors committed to the stage or moving to it
    ("selected", _INT),  # 1 if chosen in the open round
    ("open_parents", _INT),  # parents that are not saturated; with `ready_stages_only`, not complete
    ("incomplete_parents", _INT),  # parents that are not complete
    ("open_order", _INT),  # ascending in the order in which stages became ready (all parents complete)
    ("path_rank", _INT),  # rank in the job: the order of stages that become ready at the same time
    ("first_task", _INT),
    ("returned", _INT),  # task whose run was lost last, the first of a linked list
    ("lost_outputs", _INT),  # finished tasks whose output is lost
    ("first_child", _INT),  # range of the stage's children in `children`, ascending
    ("end_child", _INT),
    ("first_level", _INT),  # range of the stage's levels in `levels`; jobs of one profile share them
    ("end_level", _INT),
    ("mean_task_ms", _FLOAT),
    ("factor", _FLOAT),  # factor of task times, drawn in forks where estimates have errors
    ("finished_ms", _FLOAT),  # total executor time of finished tasks
    ("cpu", _FLOAT),  # demand of a task
    ("memory", _FLOAT),
)

#: One parallelism level of one stage. For each wave: index of the first duration, number of durations, and 1 if the
#: warm-up delay is added.
LEVEL = record(("level", _INT), ("first", _INT, (3,)), ("count", _INT, (3,)), ("cold", _INT, (3,)))


#: Estimate of a stage.
ESTIMATE = record(
    ("task_ms", _FLOAT),  # mean task time as estimated when the job arrived
    ("num_tasks", _INT),  # as estimated, until the stage is ready
    ("finished", _INT),  # number of finished tasks
    ("finished_ms", _FLOAT),  # total executor time of finished tasks
    ("running", _INT),  # number of running tasks
    ("running_ms", _FLOAT),  # total time that running tasks have run
    ("mean_ms", _FLOAT),  # posterior median of the mean task time
    ("log_sd", _FLOAT),  # posterior standard deviation of the logarithm of the mean task time
)

#: Estimate of a job; for the first two columns see ``simulator.cluster.estimates.Estimate``.
BELIEF = record(
    ("job_var", _FLOAT),
    ("stage_var", _FLOAT),
    ("log_factor", _FLOAT),  # posterior mean of the logarithm of the job's factor
    ("log_sd", _FLOAT),  # posterior standard deviation of the logarithm of the job's factor
    ("scale", _INT),  # scale of the job's profile, a power of the step
    ("is_late", _INT),  # 1 if running tasks have run longer than expected
    ("is_old", _INT),  # 1 if there are observations since the last update
)


class Packed(NamedTuple):
    """Tables of one job profile."""

    stages: NDArray[np.void]  # STAGE; tasks, children and levels are numbered from the job's first one
    children: NDArray[np.int64]  # [edges], numbered from the job's first stage
    levels: NDArray[np.void]  # LEVEL; durations are numbered from the job's first one
    values: NDArray[np.float64]  # durations, ms


@lru_cache(maxsize=4096)
def pack(profile: JobProfile) -> Packed:
    """Return the tables of a job profile."""
    values, levels, num_levels = _duration_tables(profile)
    num_children = [len(children) for children in profile.children]
    stages = np.zeros(profile.num_stages, dtype=STAGE)
    stages["num_tasks"] = [stage.num_tasks for stage in profile.stages]
    stages["open_parents"] = stages["incomplete_parents"] = [len(parents) for parents in profile.parents]
    stages["open_order"] = stages["returned"] = -1
    stages["path_rank"] = profile.path_rank
    stages["first_task"] = block_starts(stages["num_tasks"])
    stages["first_child"] = block_starts(num_children)
    stages["end_child"] = stages["first_child"] + num_children
    stages["first_level"] = block_starts(num_levels)
    stages["end_level"] = stages["first_level"] + num_levels
    stages["mean_task_ms"] = [stage.durations.mean_ms for stage in profile.stages]
    stages["factor"] = 1.0
    stages["cpu"] = [stage.cpu for stage in profile.stages]
    stages["memory"] = [stage.memory for stage in profile.stages]
    children = np.array([child for children in profile.children for child in children], dtype=np.int64)
    return Packed(stages, children, levels, values)


def _duration_tables(profile: JobProfile) -> tuple[NDArray[np.float64], NDArray[np.void], NDArray[np.int64]]:
    """Return durations, float64, ms; ``LEVEL`` of all stages; and the number of levels of each stage, int64.

    Empty cells refer to another wave.
    """
    stages = [stage.durations for stage in profile.stages]
    values_before = np.cumsum([0, *(stage.values.size for stage in stages)])
    num_levels = np.array([stage.levels.size for stage in stages])
    cells = np.concatenate([stage.cells for stage in stages], axis=1)
    cells += np.repeat(values_before[:-1], num_levels)[:, None]
    start, stop = cells[..., 0].T, cells[..., 1].T
    every = np.arange(len(start))
    levels = np.zeros(len(start), dtype=LEVEL)
    levels["level"] = np.concatenate([stage.levels for stage in stages])
    for wave, sources in _FALLBACK.items():
        source = np.array(sources)[np.argmax((stop > start)[:, sources], axis=1)]
        levels["first"][:, wave] = start[every, source]
        levels["count"][:, wave] = (stop - start)[every, source]
        levels["cold"][:, wave] = (wave == Wave.FRESH) & (source != Wave.FRESH)
    return np.concatenate([stage.values for stage in stages]), levels, num_levels


def block_starts(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start of each of consecutive blocks of the given sizes, int64 [len(counts)]."""
    return np.cumsum(counts, dtype=np.int64) - np.asarray(counts, dtype=np.int64)
