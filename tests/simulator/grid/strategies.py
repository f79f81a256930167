"""Hypothesis strategies for grids, jobs and actions."""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
from hypothesis import settings, strategies as st
from numpy.typing import NDArray

from simulator.grid import DEEPRM, PAPER, Grid, GridConfig, GridSemantics
from tests.simulator.cluster import strategies as cluster_strategies
from tests.simulator.grid.naive import Written

MANY = settings(cluster_strategies.MANY, max_examples=40)


def semantics() -> st.SearchStrategy[GridSemantics]:
    """Draw the paper's semantics, the public code's, or any mixture of the switches."""
    switches = {switch.name: st.booleans() for switch in fields(GridSemantics)}
    return st.one_of(st.just(PAPER), st.just(DEEPRM), st.builds(GridSemantics, **switches))


@st.composite
def grids(draw: st.DrawFn, *, whole: bool = False) -> GridConfig:
    """Draw small grids of all kinds; ``whole``: paper's semantics, no weights, until all jobs are finished."""
    units = draw(st.integers(1, 6))
    config = GridConfig(
        num_resources=draw(st.integers(1, 3)),
        units=units,
        visible_jobs=draw(st.integers(1, 4)),
        slot_width=draw(st.integers(1, units)),
        horizon=draw(st.integers(2, 8)),
        backlog=draw(st.integers(0, 9)),
        machines=draw(st.integers(1, 3)),
        objective=draw(st.sampled_from(["slowdown", "completion"])),
        picture=draw(st.sampled_from(("binary", "coloured"))),
        arrival_column=draw(st.booleans()),
    )
    if whole:
        return config
    weight = st.sampled_from((0.0, 0.5, 1.0, 3.0))
    return replace(
        config,
        max_steps=draw(st.one_of(st.none(), st.integers(1, 30))),
        drain=draw(st.booleans()),
        machine_weights=draw(st.one_of(st.just(()), st.tuples(*[weight] * config.machines))),
        queue_weight=draw(weight),
        backlog_weight=draw(weight),
        semantics=draw(semantics()),
    )


def jobs_for(config: GridConfig, steps: int, min_size: int) -> st.SearchStrategy[list[Written]]:
    """Draw up to 15 jobs that fit the grid, in order of arrival."""
    demand = st.tuples(*[st.integers(0, config.slot_width)] * config.num_resources).filter(any)
    longest = config.horizon if config.semantics.last_row else config.horizon - 1
    job = st.tuples(st.integers(0, steps - 1), st.integers(1, longest), demand)
    return st.lists(job, min_size=min_size, max_size=15).map(lambda jobs: sorted(jobs, key=lambda job: job[0]))


def job_sets(config: GridConfig, steps: int) -> st.SearchStrategy[list[list[Written]]]:
    """Draw one to three sets, at least one of them with jobs."""
    return st.lists(jobs_for(config, steps, min_size=0), min_size=1, max_size=3).filter(any)


#: Functions that give an action for each episode of a grid.
Choose = Callable[[Grid], NDArray[np.int64]]


def random_actions(seed: int, *, void: float = 0.1, impossible: float = 0.1) -> Choose:
    """Choose mostly bookable jobs, sometimes void, sometimes any action."""
    random = np.random.default_rng(seed)

    def choose(grid: Grid) -> NDArray[np.int64]:
        chance = random.random((len(grid), grid.config.num_actions))
        possible = grid.action_mask()
        possible[:, -1] = False
        actions = np.where(possible.any(axis=1), np.where(possible, chance, 0).argmax(axis=1), possible.shape[1] - 1)
        way = random.random(len(grid))
        actions[way < impossible] = chance.argmax(axis=1)[way < impossible]
        actions[way > 1 - void] = grid.config.num_actions - 1
        return actions

    return choose
