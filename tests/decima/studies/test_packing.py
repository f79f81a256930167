"""How compactly planners pack, on projects of PSPLIB; files that are refused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from rich.console import Console

from decima.cli.main import cli
from decima.studies.packing import BEST, BOUND, PLANNERS, Packing, job_packing, measure_packing, packing
from decima.studies.packing_report import packing_notes, packing_table, plot_packing
from decima.studies.projects import ProjectFileError, read_best, read_project, read_projects
from simulator.cluster.config import ClusterConfig, ExecutorClass
from tests.decima.cli.commands import assert_one_line_error
from tests.decima.schedulers.graphene.examples import project
from tests.decima.show.test_plots import difference
from tests.refusal import refusal
from tests.simulator.cluster.build import job, jobs, stage

#: A long task at hand and one behind a short one, as in the tests of the planners, between a source and a sink.
TROUBLE = """\
************************************************************************
jobs (incl. supersource/sink ):  6
RESOURCES
  - renewable                 :  2   R
  - nonrenewable              :  0   N
PRECEDENCE RELATIONS:
jobnr.    #modes  #successors   successors
   1        1          2           2   4
   2        1          1           3
   3        1          1           6
   4        1          1           5
   5        1          1           6
   6        1          0
************************************************************************
REQUESTS/DURATIONS:
jobnr. mode duration  R 1  R 2
------------------------------------------------------------------------
  1      1     0       0    0
  2      1    10       6    0
  3      1     2       1    2
  4      1     1       5    0
  5      1    10       4    0
  6      1     0       0    0
************************************************************************
RESOURCEAVAILABILITIES:
  R 1  R 2
   10    3
************************************************************************
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The trouble, and the same with more of the first resource; best makespans beside them."""
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / "a.sm").write_text(TROUBLE)
    (tmp_path / "projects" / "b.sm").write_text(TROUBLE.replace("   10    3", "   15    3"))
    (tmp_path / "best.csv").write_text("instance,best,lower_bound\na,13,13\nb,12,12\nc,7,7\n")
    return tmp_path / "projects"


def test_a_project_is_read(folder: Path) -> None:
    read = read_project(folder / "a.sm")
    assert read.durations.tolist() == [0, 10, 2, 1, 10, 0]
    assert read.demands.tolist() == [[0, 0], [6, 0], [1, 2], [5, 0], [4, 0], [0, 0]]
    assert read.capacity.tolist() == [10, 3]
    assert read.parents == ((), (0,), (1,), (0,), (3,), (2, 4))
    assert list(read_projects(folder)) == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("RESOURCEAVAILABILITIES", "", "expected an .sm file of PSPLIB"),
        ("   2        1          1           3\n", "   2        1          1           x\n", "expected an .sm file"),
        ("  5      1    10       4    0\n", "", "expected an .sm file"),
        ("   3        1          1           6\n", "   3        1          1          -1\n", "has a successor -1"),
        ("   3        1          1           6\n", "   3        1          1           7\n", "a successor 7"),
        ("  2      1    10       6    0\n", "  2      1    -5       6    0\n", "durations: expected finite numbers"),
        ("  2      1    10       6    0\n", "  2      1    10      11    0\n", "stage 1 needs 11 of resource 0"),
        ("   5        1          1           6\n", "   5        1          1           4\n", "in a circle"),
        ("  R 1  R 2\n   10", "  R 1  N 1\n   10", "expected renewable resources only"),
        (
            "   5        1          1           6\n   6        1          0\n",
            "   5        2          1           6\n",
            "expected activities of one mode each",
        ),
    ],
)  # fmt: skip
def test_broken_projects_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.sm"
    assert old in TROUBLE
    path.write_text(TROUBLE.replace(old, new))
    assert message in refusal(read_project, ProjectFileError, path)


@pytest.mark.parametrize("content", [b"", b"what is this?", bytes(range(256))])
def test_other_files_are_no_projects(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.sm"
    path.write_bytes(content)
    refusal(read_project, ProjectFileError, path)


def test_projects_that_take_no_time_have_no_deviation(tmp_path: Path) -> None:
    path = tmp_path / "idle.sm"
    path.write_text(re.sub(r"^(  \d      1    )..", r"\1 0", TROUBLE, flags=re.M))
    assert "expected activities that take time" in refusal(read_project, ProjectFileError, path)


def test_the_package_is_missed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psplib", None)
    assert "pip install -e '.[packing]'" in refusal(read_project, ProjectFileError, folder / "a.sm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instance,makespan\na,3\n", "expected columns instance and best"),
        ("", "expected columns instance and best"),
        ("instance,best\na,13\nb,\n", "line 3: expected a best makespan above 0"),
        ("instance,best\na\n", "line 2: expected a best makespan above 0"),
        ("instance,best\na,0\n", "line 2: expected a best makespan above 0"),
        ("instance,best\na,short\n", "short"),
    ],
)
def test_broken_makespans_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "best.csv"
    path.write_text(text)
    with pytest.raises(ProjectFileError, match=message) as caught:
        read_best(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_plans_are_compared_with_the_best_that_is_known(folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    measured = packing(folder, on_step=lambda *step: steps.append(step))
    assert steps == [(1, 2), (2, 2)]
    assert measured.reference == BEST
    summary = measured.summary()
    assert list(summary.index) == list(PLANNERS)
    assert measured.plans["instance"].tolist() == len(PLANNERS) * ["a"] + len(PLANNERS) * ["b"]
    assert summary["optimal"].to_dict()["graphene"] == 2
    tetris = summary.loc["tetris"]
    assert tetris["mean_deviation"] == pytest.approx(100 * (21 / 13 - 1) / 2)
    assert tetris["worst_deviation"] == pytest.approx(100 * (21 / 13 - 1))
    assert tetris["optimal"] == 1


def test_where_the_best_makespans_are(folder: Path) -> None:
    """In the folder rather than above it; without any, there are lower bounds."""
    (folder / "best.csv").write_text("instance,best\na,10\nb,12\n")
    measured = packing(folder)
    assert measured.summary().loc["graphene", "worst_deviation"] == pytest.approx(30)
    assert packing(folder, folder.parent / "best.csv").summary().loc["graphene", "worst_deviation"] == 0
    (folder / "best.csv").unlink()
    (folder.parent / "best.csv").unlink()
    measured = packing(folder)
    assert measured.reference == BOUND
    assert measured.summary().loc["graphene", "worst_deviation"] == pytest.approx(100 * (13 / 12 - 1))
    assert "lower bound" in str(packing_table(measured).title)
    assert any("lower bound" in note for note in packing_notes(measured))


def test_processes_and_seeds(folder: Path) -> None:
    """Processes change nothing, seeds the random order only."""
    columns = ["instance", "planner", "makespan", "reference", "deviation"]
    one, two = (packing(folder, workers=workers).plans[columns] for workers in (1, 2))
    assert one.equals(two)
    draw = np.random.default_rng(2).integers
    tasks = {
        str(number): project(draw(1, 9, 12).tolist(), draw(1, 9, 12).tolist(), 10) for number in range(3)
    }
    references = dict.fromkeys(tasks, 1.0)
    plans = [
        measure_packing(tasks, references, BOUND, seed).plans.set_index(["planner", "instance"])["makespan"]
        for seed in (0, 0, 1)
    ]
    assert plans[0].equals(plans[1])
    assert not plans[0]["random"].equals(plans[2]["random"])
    assert plans[0].drop("random", level=0).equals(plans[2].drop("random", level=0))


def test_the_table(folder: Path) -> None:
    measured = packing(folder)
    console = Console(width=100, record=True)
    console.print(packing_table(measured))
    text = console.export_text()
    assert "Percent above the best known makespan, 2 DAGs" in text
    [tetris] = [line.split() for line in text.splitlines() if "tetris" in line]
    assert tetris[1] == "30.77"
    assert [row.style for row in packing_table(measured).rows][1:] == [None, None, "bold", "bold"]
    assert tetris[4:7] == ["30.77", "61.5", "1"]


def test_plans_of_graphene_are_compared_with_those_of_others(folder: Path) -> None:
    """13 and 12 instead of 21 and 12; see ``measured.plans``."""
    measured = packing(folder)
    makespan = measured.plans.set_index(["instance", "planner"])["makespan"]
    expected = 100 * (2 - 13 / makespan["a", "tetris"] - 12 / makespan["b", "tetris"]) / 2
    assert measured.saved("tetris").mean == pytest.approx(expected)
    assert measured.saved("graphene").mean == 0


def test_jobs_are_planned_alone_on_a_cluster() -> None:
    """Two stages that only the large executor can run, one after the other, and a short job; none without work."""
    classes = (ExecutorClass(3, memory=0.5), ExecutorClass(1, memory=1.0))
    large, small = stage(2, 1000.0, memory=1.0), stage(4, 1000.0, memory=0.5)
    sequence = jobs(job(large, large), job(small), job(stage(1, 0.0)))
    measured = job_packing(sequence, ClusterConfig(executor_classes=classes))
    assert measured.reference == BOUND
    makespan = measured.plans.set_index(["instance", "planner"])["makespan"]
    assert makespan["0 job", "graphene"] == 4000
    assert makespan["1 job", "graphene"] == 1000
    assert measured.num_instances == 2


def test_the_command_plans_the_jobs_of_a_workload(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    options = ["--workload", "tpch", "--sample", "4", "--memory-demand", "uniform", "--processes", "1"]
    shown = CliRunner().invoke(
        cli, ["reproduce", "packing", *options, "--json", str(results), "--out", str(tmp_path / "out")]
    )
    assert shown.exit_code == 0, shown.output
    content = json.loads(results.read_text())
    assert (content["reference"], content["instances"]) == (BOUND, 4)
    assert content["planners"]["graphene"]["mean_deviation"] >= 0


def test_the_picture(tmp_path: Path) -> None:
    """Made up."""
    rows = [
        (str(instance), planner, 100 + deviation, 0.01, 100, deviation)
        for place, planner in enumerate(PLANNERS)
        for instance, deviation in enumerate(np.linspace(0, 5, 20) ** 2 / (place + 1) - place)
    ]
    columns = ["instance", "planner", "makespan", "cpu_s", "reference", "deviation"]
    figure = plot_packing(Packing(pd.DataFrame(rows, columns=columns), BEST))
    assert difference(figure, "packing", tmp_path) is None


def test_the_command(folder: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "results.json", tmp_path / "pictures"
    options = ["--instances", str(folder), "--seed", "3", "--processes", "1"]
    shown = CliRunner().invoke(
        cli, ["reproduce", "packing", *options, "--json", str(results), "--out", str(out)]
    )
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
    assert content["makespans"]["a"]["reference"] == 13
    assert content["makespans"]["a"]["tetris"] == 21


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "expected either --instances or a workload"),
        ("--instances {folder} --workload tpch", "expected either --instances or a workload"),
        (
            "--instances {folder} --memory-demand uniform",
            "--memory-demand has no effect: it is for a workload",
        ),
        ("--workload tpch --best {folder}/few.csv", "--best has no effect"),
        ("--workload tpch --memory-demand uniform --classes 4x0.5", "no executor class can run stage"),
        ("--instances {folder}/nowhere", "does not exist"),
        ("--instances {folder} --best {folder}/nowhere.csv", "does not exist"),
        ("--instances {folder}/..", "expected .sm files of PSPLIB"),
        ("--instances {folder} --best {folder}/few.csv", "few.csv: expected a best known makespan of b"),
        ("--instances {folder}/broken", "broken.sm: expected an .sm file of PSPLIB"),
        ("--instances {folder} --seed -1", "--seed"),
    ],
)
def test_what_the_command_refuses(options: str, message: str, folder: Path, tmp_path: Path) -> None:
    (folder / "few.csv").write_text("instance,best\na,13\n")
    (folder / "broken").mkdir()
    (folder / "broken" / "broken.sm").write_text("")
    words = options.format(folder=folder).split()
    shown = CliRunner().invoke(cli, ["reproduce", "packing", *words, "--out", str(tmp_path / "out")])
    assert_one_line_error(shown, message)


def test_graphene_packs_the_projects_of_psplib_well(shared: Callable[[str], Path]) -> None:
    measured = packing(shared("rcpsp/j30"))
    assert measured.num_instances == 240
    deviations = measured.summary()["mean_deviation"]
    print(f"\n{measured.summary()}")
    assert (measured.plans["deviation"] > -1e-6).all(), "nothing is shorter than an optimum"
    assert deviations["graphene"] <= 1.5
    assert deviations["graphene+justification"] <= 0.7
    assert deviations["graphene"] < deviations["critical-path"] < deviations["tetris"] < deviations["random"]
