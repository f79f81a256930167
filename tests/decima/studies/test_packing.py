"""Packing quality of planners on projects of PSPLIB and on jobs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.studies.packing import (
    BEST,
    BOUND,
    PLANNERS,
    measure,
    of_jobs,
    of_projects,
    planners_table,
    plot_packing,
    shorter_by,
    summary,
)
from simulator.cluster.config import ClusterConfig, ExecutorClass
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error
from tests.decima.schedulers.graphene.examples import project
from tests.decima.schedulers.graphene.test_psplib import write_projects
from tests.decima.show.test_plots import difference
from tests.decima.studies.test_compared import printed
from tests.simulator.cluster.build import job, jobs, stage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_projects(tmp_path)


def plans_of(folder: Path, best: Path | None = None, **others: Any) -> pd.DataFrame:
    projects, references, _ = of_projects(folder, best)
    return measure(projects, references, **others)


def test_plans_are_compared_with_the_best_and_by_processes_and_seeds(folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    plans = plans_of(folder, on_step=lambda *step: steps.append(step))
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert of_projects(folder)[2] == BEST
    assert list(summary(plans).index) == list(PLANNERS)
    assert plans["instance"].tolist() == len(PLANNERS) * ["a"] + len(PLANNERS) * ["b"]
    assert summary(plans)["optimal"].to_dict()["graphene"] == 2
    tetris = summary(plans).loc["tetris"]
    assert tetris["mean_deviation"] == pytest.approx(100 * (21 / 13 - 1) / 2)
    assert (tetris["worst_deviation"], tetris["optimal"]) == (pytest.approx(100 * (21 / 13 - 1)), 1)
    # Processes do not change results; seeds change only the random order.
    columns = ["instance", "planner", "makespan", "reference", "deviation"]
    one, two = (plans_of(folder, workers=workers)[columns] for workers in (1, 2))
    assert one.equals(two)
    draw = np.random.default_rng(2).integers
    tasks = {str(number): project(draw(1, 9, 12).tolist(), draw(1, 9, 12).tolist(), 10) for number in range(3)}
    references = dict.fromkeys(tasks, 1.0)
    plans = [measure(tasks, references, seed).set_index(["planner", "instance"])["makespan"] for seed in (0, 0, 1)]
    assert plans[0].equals(plans[1])
    assert not plans[0]["random"].equals(plans[2]["random"])
    assert plans[0].drop("random", level=0).equals(plans[2].drop("random", level=0))


def test_where_the_best_makespans_are(folder: Path) -> None:
    """The file is in the folder or its parent; without the file, references are lower bounds."""

    def worst(best: Path | None = None) -> float:
        return float(summary(plans_of(folder, best)).loc["graphene", "worst_deviation"])

    (folder / "best.csv").write_text("instance,best\na,10\nb,12\n")
    assert worst() == pytest.approx(30)
    assert worst(folder.parent / "best.csv") == 0
    (folder / "best.csv").unlink()
    (folder.parent / "best.csv").unlink()
    assert of_projects(folder)[2] == BOUND
    assert worst() == pytest.approx(100 * (13 / 12 - 1))


def test_table_and_comparison_of_planners(folder: Path) -> None:
    table = planners_table(plans_of(folder), BEST)
    title, *lines = printed(table)
    assert title.strip() == "Percent above the best known makespan, 2 DAGs"
    [tetris] = [line.split() for line in lines if "tetris" in line]
    assert tetris[1] == "30.77"
    assert [row.style for row in table.rows][1:] == [None, None, "bold", "bold"]
    assert tetris[4:7] == ["30.77", "61.5", "1"]
    # Makespans are 13 and 12 with Graphene, 21 and 12 with Tetris.
    plans = plans_of(folder)
    makespan = plans.set_index(["instance", "planner"])["makespan"]
    expected = 100 * (2 - 13 / makespan["a", "tetris"] - 12 / makespan["b", "tetris"]) / 2
    assert shorter_by(plans, "tetris").mean == pytest.approx(expected)
    assert shorter_by(plans, "graphene").mean == 0


def test_jobs_are_planned_alone_on_a_cluster() -> None:
    """One job has two sequential stages for the large executor, one is short, one without work is left out."""
    classes = (ExecutorClass(3, memory=0.5), ExecutorClass(1, memory=1.0))
    large, small = stage(2, 1000.0, memory=1.0), stage(4, 1000.0, memory=0.5)
    sequence = jobs(job(large, large), job(small), job(stage(1, 0.0)))
    projects, references, _ = of_jobs(sequence, ClusterConfig(executor_classes=classes))
    plans = measure(projects, references)
    makespan = plans.set_index(["instance", "planner"])["makespan"]
    assert (makespan["0 job", "graphene"], makespan["1 job", "graphene"]) == (4000, 1000)
    assert plans["instance"].nunique() == 2


def test_the_picture(tmp_path: Path) -> None:
    rows = [
        (str(instance), planner, 100 + deviation, 0.01, 100, deviation)
        for place, planner in enumerate(PLANNERS)
        for instance, deviation in enumerate(np.linspace(0, 5, 20) ** 2 / (place + 1) - place)
    ]
    columns = ["instance", "planner", "makespan", "cpu_s", "reference", "deviation"]
    figure = plot_packing(pd.DataFrame(rows, columns=columns), BEST)
    assert difference(figure, "packing", tmp_path) is None


def test_the_command(folder: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "results.json", tmp_path / "pictures"
    options = ["--instances", str(folder), "--seed", "3", "--processes", "1"]
    shown = CliRunner().invoke(cli, ["reproduce", "packing", *options, "--json", str(results), "--out", str(out)])
    assert shown.exit_code == 0, shown.output
    assert "graphene+justification" in shown.stdout
    assert (out / "packing.png").stat().st_size > 1000
    content = json.loads(results.read_text())
    assert content["command"] == f"decima reproduce packing --instances {folder} --seed 3"
    assert (content["unit"], content["instances"]) == ("percent", 2)
    assert content["planners"]["graphene"].keys() == {
        "mean_deviation", "ci95", "median_deviation", "worst_deviation", "optimal", "cpu_s"
    }  # fmt: skip
    assert content["graphene_shorter_by"].keys() == {"critical-path", "tetris"}
    assert content["planners"]["graphene"]["mean_deviation"] == 0
    assert content["planners"]["critical-path"]["optimal"] == 1
    assert content["planners"]["random"]["cpu_s"] > 0
    assert (content["makespans"]["a"]["reference"], content["makespans"]["a"]["tetris"]) == (13, 21)


@cases(
    "options, message",
    ("", "expected either --instances or a workload"),
    ("--instances {folder} --workload tpch", "expected either --instances or a workload"),
    ("--instances {folder} --memory-demand uniform", "--memory-demand has no effect: it needs a workload"),
    ("--workload tpch --best {folder}/few.csv", "--best has no effect: jobs are compared"),
    ("--instances {folder} --sample 3", "--sample has no effect: it needs a workload"),
    ("--workload tpch --memory-demand uniform --classes 4x0.5", "no executor class can run stage"),
    ("--instances {folder}/nowhere", "does not exist"),
    ("--instances {folder} --best {folder}/nowhere.csv", "does not exist"),
    ("--instances {folder}/..", "expected .sm files of PSPLIB"),
    ("--instances {folder} --best {folder}/few.csv", "few.csv: expected a best known makespan of b"),
    ("--instances {folder}/broken", "broken.sm: expected an .sm file of PSPLIB"),
    ("--instances {folder} --seed -1", "--seed"),
)
def test_what_the_command_refuses(options: str, message: str, folder: Path, tmp_path: Path) -> None:
    (folder / "few.csv").write_text("instance,best\na,13\n")
    (folder / "broken").mkdir()
    (folder / "broken" / "broken.sm").write_text("")
    words = options.format(folder=folder).split()
    shown = CliRunner().invoke(cli, ["reproduce", "packing", *words, "--out", str(tmp_path / "out")])
    assert_one_line_error(shown, message)


def test_graphene_packs_the_projects_of_psplib_well(shared: Callable[[str], Path]) -> None:
    plans = plans_of(shared("rcpsp/j30"))
    assert plans["instance"].nunique() == 240
    deviations = summary(plans)["mean_deviation"]
    print(f"\n{summary(plans)}")
    assert (plans["deviation"] > -1e-6).all(), "nothing is shorter than an optimum"
    assert deviations["graphene"] <= 1.5
    assert deviations["graphene+justification"] <= 0.7
    assert deviations["graphene"] < deviations["critical-path"] < deviations["tetris"] < deviations["random"]
