"""Speed of the grid: CPU time on one core, relative to SimPy.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_grid_speed.py``.
"""

import time

import numpy as np
import pytest

from decima.schedulers.grid import ShortestJobFirst
from simulator.grid import DEEPRM, Grid, GridConfig
from tests.benchmarks.yardstick import callback_s
from workloads.grid_jobs import DISTRIBUTIONS, draw_jobs

pytestmark = pytest.mark.benchmark

#: Load -> steps that the public code does in a second, with shortest job first and the picture, on a machine where
#: SimPy handles so many callbacks in a second.
CALLBACKS = 1_250_000
PUBLIC = {0.70: 44_000, 1.29: 28_000, 1.84: 22_000}


def step_rate(grid: Grid) -> float:
    """Return the steps of running episodes per second under shortest job first, including its decisions."""
    scheduler = ShortestJobFirst()
    grid.reset()
    steps = 0
    started = time.process_time()
    while not grid.done.all():
        steps += int(np.count_nonzero(~grid.done))
        grid.step(scheduler(grid))
    return steps / (time.process_time() - started)


@pytest.mark.parametrize("load", PUBLIC)
def test_steps_are_ten_times_those_of_the_public_code(load: float) -> None:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=load, sets=1000, seed=1)
    grid = Grid(GridConfig(semantics=DEEPRM), jobs)
    step_rate(grid)  # compiles, or loads what was compiled
    rates = sorted(step_rate(grid) for _ in range(5))
    print(f"\n{load:.0%}: {rates[2]:,.0f} steps/s, {rates[2] / PUBLIC[load]:.1f} times", end="")
    assert rates[2] * callback_s() >= 10 * PUBLIC[load] / CALLBACKS
