"""Builders of small grids for tests."""

from typing import Any

from simulator.grid import Grid, GridConfig
from tests.simulator.grid.naive import Written
from workloads.grid_jobs import JobSets

#: Void, the last action of any grid.
VOID = -1

SMALL = {"num_resources": 1, "units": 3, "visible_jobs": 3, "slot_width": 3, "horizon": 4, "backlog": 4}


def small(*jobs: Written, steps: int = 10, **changes: Any) -> Grid:
    """Return one episode on a machine with three units of one resource and a horizon of four; options are changes."""
    return Grid(GridConfig(**SMALL | changes), JobSets.of([jobs], steps))


def act(grid: Grid, *actions: int) -> list[float]:
    """Return the rewards of actions in a grid of one episode."""
    return [float(grid.step([action % grid.config.num_actions])[0]) for action in actions]


def drawn(grid: Grid) -> str:
    """Return the picture of the only episode as text: a dot for 0, # for 1, else the number of the shade."""
    shades = (grid.pictures[0] * 40).round().astype(int).tolist()
    return "\n".join("".join({0: ".", 40: "#"}.get(shade, str(shade)) for shade in row) for row in shades)
