"""DeepRM's simulator: a grid of resources and time on which jobs are booked, for many episodes at once."""

from simulator.grid.config import DEEPRM, PAPER, GridConfig, GridSemantics, Objective, Picture
from simulator.grid.env import GridEnv
from simulator.grid.grid import Grid, GridRecord

__all__ = [
    "DEEPRM",
    "PAPER",
    "Grid",
    "GridConfig",
    "GridEnv",
    "GridRecord",
    "GridSemantics",
    "Objective",
    "Picture",
]
