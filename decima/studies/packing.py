"""How compact plans of Graphene and of simpler planners are, on projects whose best makespans are known, or on jobs.

Packing tasks that depend on each other into resources and time is resource-constrained project scheduling (RCPSP);
PSPLIB has instances that exact solvers have settled. Plans of jobs, each alone on a cluster, are compared with lower
bounds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from decima.evaluation.intervals import Interval, mean_interval
from decima.outputs import json_text
from decima.schedulers.graphene import Plan, Project, critical_path_first, graphene, random_order, tetris
from decima.schedulers.graphene.online import project_of
from decima.studies.projects import ProjectFileError, read_best, read_projects
from decima.workers.pool import make_workers
from simulator.cluster.config import ClusterConfig, check_demands
from workloads.arrivals import JobSequence

__all__ = ["BEST", "BOUND", "PLANNERS", "RIVALS", "Packing", "job_packing", "measure_packing", "packing"]

#: Name -> planner, called with a project and a seed.
PLANNERS: dict[str, Callable[[Project, int], Plan]] = {
    "random": random_order,
    "tetris": lambda project, _: tetris(project),
    "critical-path": lambda project, _: critical_path_first(project),
    "graphene": lambda project, _: graphene(project),
    "graphene+justification": lambda project, _: graphene(project, justified=True),
}
#: Those that Graphene's own paper compares it with.
RIVALS = ("critical-path", "tetris")
#: What plans are compared with.
BEST, BOUND = "best known makespan", "lower bound"
#: Makespans that differ by less are the same.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Packing:
    """What planners made of projects.

    Attributes:
        plans: a row for each plan, columns ``instance``, ``planner``, ``makespan``, ``reference`` (what that would be
            at best), ``deviation`` (of the two, in percent) and ``cpu_s``.
        reference: what plans are compared with.
    """

    plans: pd.DataFrame
    reference: str

    @property
    def num_instances(self) -> int:
        """How many projects were planned."""
        return self.plans["instance"].nunique()

    def saved(self, than: str, planner: str = "graphene") -> Interval:
        """How much shorter a planner's plans are than those of another on average, percent."""
        makespan = self.plans.pivot_table(index="instance", columns="planner", values="makespan", sort=False)
        return mean_interval(100 * (1 - makespan[planner] / makespan[than]))

    def summary(self) -> pd.DataFrame:
        """A row for each planner, columns ``mean_deviation``, ``ci95`` (half its confidence interval),
        ``median_deviation``, ``worst_deviation``, ``optimal`` (how many plans are no longer than the reference) and
        ``cpu_s`` (of all).
        """
        rows = {}
        for planner, plans in self.plans.groupby("planner", sort=False):
            mean, half_width = mean_interval(plans["deviation"])
            rows[planner] = {
                "mean_deviation": mean,
                "ci95": half_width,
                "median_deviation": plans["deviation"].median(),
                "worst_deviation": plans["deviation"].max(),
                "optimal": (plans["deviation"] <= 100 * TOLERANCE).sum(),
                "cpu_s": plans["cpu_s"].sum(),
            }
        return pd.DataFrame.from_dict(rows, orient="index").astype({"optimal": int})

    def to_json(self, **provenance: Any) -> str:
        """Everything as JSON text; ``provenance`` is added as it is."""
        content = {
            **provenance,
            "unit": "percent",
            "reference": self.reference,
            "instances": self.num_instances,
            "graphene_shorter_by": {
                than: dict(zip(("mean", "ci95"), self.saved(than), strict=True)) for than in RIVALS
            },
            "planners": json.loads(self.summary().to_json(orient="index", double_precision=6)),
            "makespans": {
                str(instance): {
                    "reference": float(plans["reference"].iloc[0]),
                    **dict(zip(plans["planner"], plans["makespan"].tolist(), strict=True)),
                }
                for instance, plans in self.plans.groupby("instance", sort=False)
            },
        }
        return json_text(content)


def packing(
    instances: Path,
    best: Path | None = None,
    seed: int = 0,
    workers: int | str = 1,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Packing:
    """Plan all projects of a folder.

    Args:
        instances: folder of ``.sm`` files.
        best: file of best known makespans; if not given, ``best.csv`` in the folder or the one above it, and without
            that, plans are compared with lower bounds.
        seed: of random orders.
        workers: see ``check_workers``.
        on_step: called with the number of projects planned and of all.

    Raises:
        ProjectFileError: a file is broken, or says nothing of one of the projects.
    """
    known = {} if best is None else read_best(best)
    projects = read_projects(instances)
    if best is None:
        beside = (folder / "best.csv" for folder in (instances, instances.resolve().parent))
        best = next((path for path in beside if path.exists()), None)
    if best is None:
        bounds = {name: project.lower_bound for name, project in projects.items()}
        return measure_packing(projects, bounds, BOUND, seed, workers, on_step)
    known = known or read_best(best)
    for name in projects:
        if name not in known:
            raise ProjectFileError(f"{best}: expected a best known makespan of {name}")
    return measure_packing(projects, known, BEST, seed, workers, on_step)


def job_packing(
    jobs: JobSequence,
    cluster: ClusterConfig,
    seed: int = 0,
    workers: int | str = 1,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Packing:
    """Plan jobs, each as if it were alone on a cluster; tasks last as long as those of their stage do on average.

    Args:
        jobs: their times of arrival do not matter; those without work are left out.
        cluster: what they run on.
        seed: of random orders.
        workers: see ``check_workers``.
        on_step: called with the number of jobs planned and of all.

    Raises:
        ConfigError: a stage that no executor class can run.
    """
    check_demands(cluster, jobs)
    projects = {
        f"{number} {profile.name}": project_of(profile, cluster)
        for number, profile in enumerate(jobs.profiles)
        if profile.work_ms > 0
    }
    bounds = {name: project.lower_bound for name, project in projects.items()}
    return measure_packing(projects, bounds, BOUND, seed, workers, on_step)


def measure_packing(
    projects: Mapping[str, Project],
    references: Mapping[str, float],
    reference: str,
    seed: int = 0,
    workers: int | str = 1,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Packing:
    """Plan projects with all planners.

    Args:
        projects: by name.
        references: name -> what its makespan is compared with, above 0.
        reference: what that is, in words.
        seed, workers, on_step: as for ``packing``.
    """
    rows = []
    with make_workers(seed, workers, len(projects)) as team:
        for done, row in enumerate(team.map(_plan, projects.items()), 1):
            rows += row
            on_step(done, len(projects))
    plans = pd.DataFrame(rows, columns=["instance", "planner", "makespan", "cpu_s"])
    plans["reference"] = plans["instance"].map(references)
    plans["deviation"] = 100 * (plans["makespan"] / plans["reference"] - 1)
    places = {name: place for place, name in enumerate((*projects, *PLANNERS))}
    order = plans[["instance", "planner"]].apply(lambda names: names.map(places))
    plans = plans.loc[order.sort_values(["instance", "planner"]).index].reset_index(drop=True)
    return Packing(plans, reference)


def _plan(seed: int, item: tuple[str, Project]) -> list[tuple[str, str, float, float]]:
    """Plan a project: name, planner, makespan and CPU seconds."""
    _compile()
    name, project = item
    rows = []
    for planner, plan in PLANNERS.items():
        begin = time.process_time()
        makespan = plan(project, seed).makespan
        rows.append((name, planner, makespan, time.process_time() - begin))
    return rows


@cache
def _compile() -> None:
    """Let a small project be planned once in a process, so that no time of compilation is measured."""
    project = Project(np.ones(2), np.ones((2, 1)), np.ones(1), [(), ()])
    for plan in PLANNERS.values():
        plan(project, 0)
