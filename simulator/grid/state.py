"""State of the grid over all episodes, as arrays that compiled code changes.

Jobs are numbered inside their set, in the order in which they enter; -1 is "none".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.grid.config import GridConfig
from simulator.grid.record import GridRecord
from workloads.grid_jobs import JobSets

__all__ = ["OBJECTIVES", "GridState", "Settings", "record_of", "settings_of", "state_of"]

#: In the order of their numbers in ``rules``.
OBJECTIVES = ("slowdown", "completion", "makespan", "utilisation")

#: More steps than the clock can count.
_FOREVER = int(np.iinfo(np.int32).max)

#: Shades of running jobs in a coloured picture: 1/40 .. 39/40.
NUM_COLOURS = 39


class Settings(NamedTuple):
    """Configuration, as compiled code reads it."""

    units: int
    slot_width: int
    backlog_columns: int
    resource_width: int
    steps: int
    max_steps: int
    drain: bool
    objective: int
    queue_weight: float
    backlog_weight: float
    coloured: bool
    arrival_column: bool
    first_step: bool
    prompt_leaving: bool
    last_row: bool
    ends_early: bool
    reward_passed_step: bool


class GridState(NamedTuple):
    """N episodes; J jobs in the largest set, R resources, m machines, M slots, H rows of horizon."""

    enter: NDArray[np.int32]
    """[N, J] step in which the job enters"""
    duration: NDArray[np.int32]
    """[N, J] steps"""
    demand: NDArray[np.int32]
    """[N, J, R] units"""
    num_jobs: NDArray[np.int32]
    """[N]"""
    clock: NDArray[np.int32]
    """[N] steps"""
    done: NDArray[np.bool_]
    """[N]"""
    next_job: NDArray[np.int32]
    """[N] first job that has not entered, nor been dropped"""
    since_arrival: NDArray[np.int32]
    """[N] steps since a job entered, at most 10"""
    free: NDArray[np.int32]
    """[N, m, H, R] free units in each step from now on"""
    slots: NDArray[np.int32]
    """[N, M] visible jobs"""
    backlog: NDArray[np.int32]
    """[N, B] jobs behind them, oldest first"""
    num_backlog: NDArray[np.int32]
    """[N]"""
    running: NDArray[np.int32]
    """[N, J] booked jobs that have not left, in order of booking"""
    num_running: NDArray[np.int32]
    """[N]"""
    start: NDArray[np.int32]
    """[N, J] step in which the job starts; -1 before it is booked"""
    machine: NDArray[np.int32]
    """[N, J] machine of the job; -1 before it is booked"""
    dropped: NDArray[np.bool_]
    """[N, J] jobs dropped because the backlog was full"""
    colour_until: NDArray[np.int32]
    """[N, 39] step from which the shade can be used again"""
    machine_weights: NDArray[np.float64]
    """[m]"""
    picture: NDArray[Any]
    """[N, H, W] uint8, zeros and ones; float32 if it is coloured"""


def settings_of(config: GridConfig, steps: int) -> Settings:
    """Return the settings of a configuration, and of the number of steps in which jobs may enter."""
    return Settings(
        units=config.units,
        slot_width=config.slot_width,
        backlog_columns=config.backlog_columns,
        resource_width=config.resource_width,
        steps=steps,
        max_steps=_FOREVER if config.max_steps is None else min(config.max_steps, _FOREVER),
        drain=config.drain,
        objective=OBJECTIVES.index(config.objective),
        queue_weight=float(config.queue_weight),
        backlog_weight=float(config.backlog_weight),
        coloured=config.picture == "coloured",
        arrival_column=config.arrival_column,
        **vars(config.semantics),
    )


def state_of(config: GridConfig, jobs: JobSets) -> GridState:
    """Return empty grids, before the first step."""
    episodes, most = jobs.enter.shape
    machines, horizon, resources = config.machines, config.horizon, config.num_resources

    def none(*shape: int) -> NDArray[np.int32]:
        return np.full((episodes, *shape), -1, dtype=np.int32)

    def zeros(*shape: int) -> NDArray[np.int32]:
        return np.zeros((episodes, *shape), dtype=np.int32)

    return GridState(
        enter=jobs.enter,
        duration=jobs.duration,
        demand=jobs.demand,
        num_jobs=jobs.num_jobs,
        clock=zeros(),
        done=np.zeros(episodes, dtype=np.bool_),
        next_job=zeros(),
        since_arrival=zeros(),
        free=np.full((episodes, machines, horizon, resources), config.units, dtype=np.int32),
        slots=none(config.visible_jobs),
        backlog=none(config.backlog),
        num_backlog=zeros(),
        running=none(most),
        num_running=zeros(),
        start=none(most),
        machine=none(most),
        dropped=np.zeros((episodes, most), dtype=np.bool_),
        colour_until=zeros(NUM_COLOURS),
        machine_weights=np.array(config.weights, dtype=np.float64),
        picture=np.zeros(
            (episodes, *config.picture_shape), dtype=np.uint8 if config.picture == "binary" else np.float32
        ),
    )


def record_of(
    config: GridConfig, jobs: JobSets, state: GridState, episodes: slice = slice(None)
) -> GridRecord:
    """Return the results so far of some episodes, whose jobs are ``jobs``."""
    most = jobs.enter.shape[1]
    return GridRecord(
        config,
        jobs,
        start=state.start[episodes, :most].copy(),
        machine=state.machine[episodes, :most].copy(),
        dropped=state.dropped[episodes, :most].copy(),
        num_entered=state.next_job[episodes].copy(),
        clock=state.clock[episodes].copy(),
    )
