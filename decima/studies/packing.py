"""Makespans of plans by Graphene and simpler planners, relative to best known makespans or lower bounds.

Packing dependent tasks into resources and time is the resource-constrained project scheduling problem (RCPSP). For the
projects of PSPLIB, exact solvers have found the best makespans. Plans of jobs, each alone on a cluster, are compared
with lower bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import Interval, mean_interval
from decima.schedulers.graphene import Plan, Project, critical_path_first, graphene, random_order, tetris
from decima.schedulers.graphene.planner import project_of
from decima.schedulers.graphene.project import ProjectFileError, read_best, read_projects
from decima.show.style import finish_axes, legend_beside, new_axes, styles
from decima.show.tables import interval_text, table_of
from decima.studies.catalogue import FOUR_SIZES
from decima.studies.outcome import OptionError, Outcome, Setup
from decima.workers.pool import available_cpus, make_workers, map_in_order
from simulator.cluster.config import ClusterConfig, check_demands, parse_classes
from workloads.arrivals import JobSequence, trace_arrivals, uniform_memory
from workloads.sources.open import open_workload
from workloads.transform import Excerpt

#: Displayed name -> planner, a function of a project and a random seed.
PLANNERS: dict[str, Callable[[Project, int], Plan]] = {
    "random": random_order,
    "tetris": lambda project, _: tetris(project),
    "critical-path": lambda project, _: critical_path_first(project),
    "graphene": lambda project, _: graphene(project),
    "graphene+justification": lambda project, _: graphene(project, justified=True),
}
#: Planners in the comparison of the Graphene paper.
RIVALS = ("critical-path", "tetris")
#: Kinds of reference makespans.
BEST, BOUND = "best known makespan", "lower bound"
#: Relative difference up to which makespans are equal.
TOLERANCE = 1e-9


def packing(
    setup: Setup,
    instances: Path | None,
    best: Path | None,
    workload: str | Path | None,
    classes: str | None,
    memory_demand: str | None,
    sample: int | None,
    seed: int,
    workers: int | str | None,
) -> Outcome:
    """Compare planners on projects of PSPLIB or on jobs of a workload.

    Raises:
        OptionError: neither or both of ``instances`` and ``workload``, or an option of the other.
        ProjectFileError: see ``of_projects``.
        ConfigError: no executor class can run a stage.
    """
    if (instances is None) == (workload is None):
        raise OptionError("expected either --instances or a workload")
    if instances is not None:
        setup.refuse(dict.fromkeys(("classes", "memory_demand", "sample"), "it needs a workload"))
        projects, best_known, reference = of_projects(instances, best)
    else:
        setup.refuse({"best": "jobs are compared with lower bounds"})
        assert workload is not None
        profiles = open_workload(workload).profiles
        chosen = Excerpt(sample=sample, seed=seed).choose([0.0] * len(profiles))
        jobs = trace_arrivals([profiles[number] for number in chosen], [0.0] * len(chosen), seed)
        jobs = uniform_memory(jobs) if memory_demand == "uniform" else jobs
        cluster = ClusterConfig(executor_classes=parse_classes(classes or FOUR_SIZES))
        projects, best_known, reference = of_jobs(jobs, cluster)
    plans = measure(projects, best_known, seed, workers or available_cpus(), partial(setup.tell, "planning"))
    saved = {rival: shorter_by(plans, rival) for rival in RIVALS}
    told = ", ".join(f"{interval_text(each, '.1f')} % than {rival}'s" for rival, each in saved.items())
    bound = "the lower bound (critical path, work over capacity), thus optimal"
    met = f"the {BEST}" if reference == BEST else bound
    return Outcome(
        "packing",
        plans,
        [planners_table(plans, reference)],
        [
            "Means with half a 95 % confidence interval (Student's t).",
            f"Met: how many plans are as short as {met}.",
            f"Plans of graphene are shorter by {told} (its paper, on jobs: 25 %; half of them within 4 % of the "
            "bound).",
            "random, tetris, critical-path: whatever fits starts, in this order.",
            "graphene: plans ahead (OSDI 2016, section 4); the order of each plan is also carried out greedily.",
            "+justification: plans are also pushed to their end and back, as long as that makes them shorter.",
        ],
        extra={
            "unit": "percent",
            "reference": reference,
            "instances": plans["instance"].nunique(),
            "graphene_shorter_by": {
                rival: dict(zip(("mean", "ci95"), each, strict=True)) for rival, each in saved.items()
            },
            "planners": summary(plans).round(6).to_dict("index"),
            "makespans": {
                str(instance): {
                    "reference": float(each["reference"].iloc[0]),
                    **dict(zip(each["planner"], each["makespan"].tolist(), strict=True)),
                }
                for instance, each in plans.groupby("instance", sort=False)
            },
        },
        pictures={"packing": partial(plot_packing, plans, reference)},
    )


#: Projects by name, reference makespans by name, and the kind of reference, ``BEST`` or ``BOUND``.
Known = tuple[dict[str, Project], dict[str, float], str]


def of_projects(instances: Path, best: Path | None = None) -> Known:
    """Read the projects of a folder of ``.sm`` files, and their reference makespans.

    These are in the file ``best``, by default ``best.csv`` in the folder or its parent; without it, they are lower
    bounds. Raises ``ProjectFileError`` if a file is malformed, or has no makespan for one of the projects.
    """
    known = {} if best is None else read_best(best)
    projects = read_projects(instances)
    if best is None:
        beside = (folder / "best.csv" for folder in (instances, instances.resolve().parent))
        best = next((path for path in beside if path.exists()), None)
    if best is None:
        return _with_bounds(projects)
    known = known or read_best(best)
    for name in projects:
        if name not in known:
            raise ProjectFileError(f"{best}: expected a best known makespan of {name}")
    return projects, known, BEST


def of_jobs(jobs: JobSequence, cluster: ClusterConfig) -> Known:
    """Turn each job with work into a project, alone on a cluster, whose tasks take the mean duration of their stage.

    Raises ``ConfigError`` if no executor class can run a stage.
    """
    check_demands(cluster, jobs)
    return _with_bounds(
        {
            f"{number} {profile.name}": project_of(profile, cluster)
            for number, profile in enumerate(jobs.profiles)
            if profile.work_ms > 0
        }
    )


def _with_bounds(projects: dict[str, Project]) -> Known:
    return projects, {name: project.lower_bound for name, project in projects.items()}, BOUND


def measure(
    projects: Mapping[str, Project],
    references: Mapping[str, float],
    seed: int = 0,
    workers: int | str = 1,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Plan projects with all planners; ``seed`` is of the random order.

    Args:
        references: reference makespans by name, above 0.

    Returns:
        One row per plan; columns ``instance``, ``planner``, ``makespan``, ``cpu_s``, ``reference``, and ``deviation``
        (makespan above the reference, percent).
    """
    with make_workers(seed, workers, len(projects)) as pool:
        found, _ = map_in_order(pool, _plan, list(projects.items()), on_step)
    rows = [row for each in found for row in each]
    plans = pd.DataFrame(rows, columns=["instance", "planner", "makespan", "cpu_s"])
    plans["reference"] = plans["instance"].map(references)
    plans["deviation"] = 100 * (plans["makespan"] / plans["reference"] - 1)
    return plans


def _plan(seed: int, item: tuple[str, Project]) -> list[tuple[str, str, float, float]]:
    """Plan a project with each planner. Returns: rows of project, planner, makespan, and CPU time (s)."""
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
    """Plan a small project once per process, so that measured times exclude compilation."""
    project = Project(np.ones(2), np.ones((2, 1)), np.ones(1), [(), ()])
    for plan in PLANNERS.values():
        plan(project, 0)


def shorter_by(plans: pd.DataFrame, than: str, planner: str = "graphene") -> Interval:
    """Return how much shorter a planner's plans are than another's: mean and interval, percent."""
    makespan = plans.pivot_table("makespan", "instance", "planner", sort=False)
    return mean_interval(100 * (1 - makespan[planner] / makespan[than]))


def summary(plans: pd.DataFrame) -> pd.DataFrame:
    """Summarise the result of ``measure``, one row per planner.

    Columns are ``mean_deviation`` (percent), ``ci95`` (half its interval), ``median_deviation``, ``worst_deviation``,
    ``optimal`` (number of plans no longer than the reference) and ``cpu_s`` (sum).
    """
    groups = plans.assign(optimal=plans["deviation"] <= 100 * TOLERANCE).groupby("planner", sort=False)
    return groups.agg(
        mean_deviation=("deviation", "mean"),
        ci95=("deviation", lambda each: mean_interval(each).half_width),
        median_deviation=("deviation", "median"),
        worst_deviation=("deviation", "max"),
        optimal=("optimal", "sum"),
        cpu_s=("cpu_s", "sum"),
    )


def planners_table(plans: pd.DataFrame, reference: str) -> Table:
    """Return the table of deviations (percent), numbers of optimal plans, and CPU times (s), one row per planner."""
    found = summary(plans)
    rows = ((name, Interval(*row.iloc[:2]), *row.iloc[2:]) for name, row in found.iterrows())
    return table_of(
        f"Percent above the {reference}, {plans['instance'].nunique()} DAGs",
        ("Planner", "Mean", "Median", "Worst", "Met", "CPU (s)"),
        rows,
        (".2f", ".2f", ".1f", ".0f", ".2f"),
        bold=found.index[found["mean_deviation"] == found["mean_deviation"].min()],
    )


def plot_packing(plans: pd.DataFrame, reference: str) -> Figure:
    """Draw the cumulative share of projects over the deviation of plans, one line per planner."""
    figure, axes = new_axes(7, 3.5)
    worst = plans["deviation"].max()
    for planner, look in styles(plans["planner"].unique()).items():
        deviations = np.sort(plans.loc[plans["planner"] == planner, "deviation"])
        share: Any = 100 * np.arange(1, deviations.size + 1) / deviations.size
        places = np.concatenate((deviations[:1], deviations, [worst]))
        axes.step(places, [0, *share, 100], where="post", label=planner, **look)
    xlabel = f"At most so far above the {reference} (%)"
    finish_axes(axes, xlabel=xlabel, ylabel="DAGs (%)", ylim=(0, 102))
    legend_beside(axes)
    return figure
