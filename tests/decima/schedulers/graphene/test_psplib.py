"""Plans of projects of the project scheduling problem library (PSPLIB; Kolisch and Sprecher, 1997).

All resources are renewable, each activity has one mode, and exact solvers have found the best makespans.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from decima.schedulers.graphene import Project, critical_path_first, graphene, random_order, tetris

psplib = pytest.importorskip("psplib")


def read_project(path: Path) -> Project:
    """Read a ``.sm`` file; activities become stages of one task."""
    read = psplib.parse(path)
    parents: list[list[int]] = [[] for _ in read.activities]
    for number, activity in enumerate(read.activities):
        for successor in activity.successors:
            parents[successor].append(number)
    modes = [activity.modes[0] for activity in read.activities]
    return Project(
        np.array([mode.duration for mode in modes], np.float64),
        np.array([mode.demands for mode in modes], np.float64),
        np.array([resource.capacity for resource in read.resources], np.float64),
        parents,
    )


def test_graphene_packs_the_projects_of_psplib_well(shared: Callable[[str], Path]) -> None:
    with (shared("rcpsp/j30") / "best.csv").open(newline="") as file:
        best = {row["instance"]: float(row["best"]) for row in csv.DictReader(file)}
    paths = sorted(shared("rcpsp/j30").glob("*.sm"))
    assert len(paths) == 240
    above: dict[str, list[float]] = {}
    for path in paths[::3]:
        project = read_project(path)
        plans = {
            "random": random_order(project, 0),
            "tetris": tetris(project),
            "critical path": critical_path_first(project),
            "graphene": graphene(project),
            "justified": graphene(project, justified=True),
        }
        for name, plan in plans.items():
            above.setdefault(name, []).append(100 * (plan.makespan / best[path.stem] - 1))
    assert min(map(min, above.values())) > -1e-6, "a plan is shorter than an optimum"
    mean = {name: np.mean(each) for name, each in above.items()}
    assert mean["graphene"] <= 1.5
    assert mean["justified"] <= 0.7
    assert mean["graphene"] < mean["critical path"] < mean["tetris"] < mean["random"]
