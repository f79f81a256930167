"""Simple planners: list scheduling by random order, by Tetris' alignment, by critical path."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.graphene.project import Plan, Project
from decima.schedulers.graphene.space import list_schedule

__all__ = ["critical_path_first", "random_order", "tetris"]


def random_order(project: Project, seed: int = 0) -> Plan:
    """Plan by list scheduling: start the first ready task that fits, in random order."""
    return _listed(project, np.random.default_rng(seed).permutation(project.stage_of.size).astype(np.float64))


def critical_path_first(project: Project) -> Plan:
    """Plan by list scheduling: start the ready task that fits with the longest path to the end."""
    return _listed(project, project.paths(project.durations)[project.stage_of])


def tetris(project: Project) -> Plan:
    """Plan by list scheduling: start the ready task that fits and aligns best with the free resources.

    Alignment is the dot product of both, as shares of the capacity (Tetris, SIGCOMM 2014, section 3.2).
    """
    return Plan(project, list_schedule(project.dag, np.zeros(project.stage_of.size), True))


def _listed(project: Project, priority: NDArray[np.float64]) -> Plan:
    return Plan(project, list_schedule(project.dag, priority, False))
