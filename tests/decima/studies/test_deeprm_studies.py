"""Each study on a grid from training to table, through its command, at a size that shows nothing but that it works."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.evaluation.grid import Evaluation, evaluate
from decima.evaluation.withholding import Withholding
from decima.schedulers.grid import Packer, ShortestJobFirst
from decima.studies.grid import a2c
from decima.studies.grid.figures import _learning_claims
from decima.studies.grid.report import Part, better
from decima.studies.grid.study import GridStudy
from decima.studies.grid.withheld import by_length
from simulator.grid import Grid, GridConfig
from tests.decima.cli.commands import assert_same_again
from workloads import DISTRIBUTIONS, draw_jobs

TINY = ("--budget", "0.002", "--sets", "3")

#: Runs a study with its further options; the result and the JSON.
Run = Callable[..., tuple[Result, Any]]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by the studies of this module, as the networks that they mean are the same."""
    return tmp_path_factory.mktemp("policies")


@pytest.fixture
def run(policies: Path, tmp_path: Path) -> Run:
    def run(name: str, *options: str | Path) -> tuple[Result, Any]:
        words = [*TINY, *options, "--policies", policies, "--out", tmp_path, "--json", tmp_path / "r.json"]
        result = CliRunner().invoke(cli, ["reproduce", name, *map(str, words)])
        assert result.exit_code == 0, result.output
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        content = json.loads((tmp_path / "r.json").read_text())
        assert content["study"] == name
        assert "What the paper says" in result.stdout
        assert {type(claim["holds"]) for claim in content["claims"]} <= {bool, type(None)}
        for note in content["notes"]:
            assert note in result.stdout
        return result, content

    return run


def schedulers(content: Any, part: int = 0) -> dict[str, list[str]]:
    """Condition -> schedulers."""
    return {name: list(row) for name, row in content["parts"][part]["conditions"].items()}


def test_fig4(run: Run, policies: Path, tmp_path: Path) -> None:
    result, content = run("deeprm-fig4", "--load", "130", "--load", "50")
    every = ["sjf", "packer", "tetris*", "random", "deeprm"]
    assert schedulers(content) == {"130 %": every, "50 %": every}
    assert "SJF performs better than Packer." in result.stdout
    for entry, load in zip(content["networks"].values(), (1.3, 0.5), strict=True):
        assert entry["iterations_trained"] == 1
        assert (policies / f"deeprm-{100 * load:g}" / "policy.npz").exists()
    words = f"decima reproduce deeprm-fig4 --load 130.0 --load 50.0 {' '.join(TINY)} --seed 0"
    assert content["command"] == words
    assert_same_again(tmp_path / "r.json", "--policies", str(policies), "--out", str(tmp_path))


def test_fig5_takes_the_network_of_fig4(run: Run, policies: Path) -> None:
    run("deeprm-fig4", "--load", "130")
    before = (policies / "deeprm-130" / "policy.npz").stat().st_mtime_ns
    _, content = run("deeprm-fig5")
    assert (policies / "deeprm-130" / "policy.npz").stat().st_mtime_ns == before
    assert list(content["networks"]) == ["deeprm, for slowdown", "deeprm, for completion"]
    assert len(content["claims"]) == 3
    assert schedulers(content)[""][:3] == ["sjf", "packer", "tetris*"]


def test_fig6(run: Run) -> None:
    _, content = run("deeprm-fig6")
    assert [row["iteration"] for row in content["learning_curve"]] == [0, 1]
    assert list(content["validation_slowdown"]) == ["sjf", "packer", "tetris*", "random"]
    assert content["claims"][2]["holds"] is None  # as many iterations as that need were not run


def test_fig7(run: Run) -> None:
    result, content = run("deeprm-fig7")
    assert 0 <= content["not_work_conserving"] <= 1
    jobs = sum(row["jobs"] for row in content["by_length"])
    assert jobs == draw_jobs(DISTRIBUTIONS["code"], load=1.1, sets=3, seed=0).num_jobs.sum()
    assert all(row["tetris* withheld"] == 0 for row in content["by_length"])
    assert "By length of job" in result.stdout


def test_cnn_fig2(run: Run) -> None:
    _, content = run("cnn-fig2", "--weights", "1,0.5,2")
    assert list(content["networks"]) == ["deeprm", "cnn", "cnn, reshaped", "weights 1, 0.5, 2"]
    configs = [entry["iterations_trained"] for entry in content["networks"].values()]
    assert configs == [1] * 4
    assert list(content["learning_curves"]) == list(content["networks"])


def test_cnn_fig3(run: Run) -> None:
    result, content = run("cnn-fig3")
    assert schedulers(content)[""] == ["sjf", "packer", "tetris*", "random", "cnn"]
    assert "Two machines, load 70 %" in result.stdout


def test_a2c_tables(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["fully connected", "conv3-16", "conv3-16, pooling", "conv3-32", "conv3-32, pooling"]
    assert list(a2c.ARCHITECTURES) == names
    few = names[:3:2]  # convolutions take their time
    monkeypatch.setattr(a2c, "ARCHITECTURES", {name: a2c.ARCHITECTURES[name] for name in few})
    result, content = run("a2c-tables", "--log", log)
    every = ["random", "packer", "sjf", "tetris*", "a2c"]
    assert schedulers(content) == {f"rate 0.{tenths}": every for tenths in (6, 7, 8, 9)}
    assert schedulers(content, 1)[""] == few
    assert schedulers(content, 2)[""] == every
    assert "dropped 1 with unknown run time" in result.stdout
    [row] = [line for line in result.stdout.splitlines() if " random " in line and " 5.5 " in line]
    assert "rate 0.9" in row


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["deeprm-fig4", "--load", "190"], "a load of 190 %"),
        (["deeprm-fig4", "--budget", "0"], "--budget"),
        (["deeprm-fig6", "--sets", "1"], "--sets"),
        (["cnn-fig2", "--weights", "1,2"], "'1,2': expected three numbers"),
        (["a2c-tables", "--log", "none.swf"], "none.swf"),
        (["deeprm-fig5", "--json", "{folder}"], "it is a folder"),
    ],
)
def test_bad_input(words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["reproduce", *[word.format(folder=tmp_path) for word in words]])
    assert result.exit_code not in (0, 130)
    assert result.stderr.count("\n") == 1, result.stderr
    assert told in result.stderr


# ---- what is told of the papers' claims --------------------------------------------------------------------


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Evaluation]]:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=20, seed=1)
    both = {"sjf": ShortestJobFirst(), "packer": Packer()}
    return {"": evaluate(GridConfig(), jobs, both)}


def test_a_claim_holds_if_the_means_say_so(results: dict[str, dict[str, Evaluation]]) -> None:
    assert better("", results, "sjf", ["packer"]).holds
    claim = better("", results, "packer", ["sjf"])
    assert not claim.holds
    means = [results[""][name].mean("slowdown") for name in ("packer", "sjf")]
    assert claim.here.startswith(f"packer: {means[0] / means[1] - 1:+.1%} ±")
    assert not better("", results, "sjf", ["sjf"]).holds
    assert better("", results, "sjf", ["sjf"], or_equal=True).holds


def test_the_papers_figures_stand_beside(results: dict[str, dict[str, Evaluation]]) -> None:
    part = Part("", results, ("slowdown", "waiting"), paper={("", "sjf", "slowdown"): 1.8})
    table = part.table()
    headers = [column.header for column in table.columns]
    assert headers == ["Scheduler", "Slowdown", "Paper", "Waiting time (steps)"]
    assert list(table.columns[2].cells) == ["1.8", "—"]


@pytest.mark.parametrize(
    ("validated", "expected"),
    [
        ({0: 7.9, 100: 4.0, 200: 2.5, 300: 2.2}, [True, True, True]),
        ({0: 6.0, 100: 4.0, 200: 3.5, 300: 2.4, 400: 3.5}, [False, False, False]),
        ({0: 7.9, 200: 2.9, 300: 2.95}, [True, True, False]),
        ({0: 7.9, 50: 4.0}, [True, None, None]),
        ({0: 7.9, 50: 2.0}, [True, True, None]),
    ],
)
def test_claims_of_learning(validated: dict[int, float], expected: list[bool | None]) -> None:
    curve = [{"iteration": float(each), "validation_slowdown": value} for each, value in validated.items()]
    claims = _learning_claims(curve, {"sjf": 3.1, "packer": 5, "tetris*": 3.0, "random": 8.0})
    assert [claim.holds for claim in claims] == expected


def test_jobs_by_length() -> None:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=5, seed=1)
    grid = Grid(GridConfig(), jobs)
    watched = Withholding(Packer(), grid)
    results = evaluate(GridConfig(), jobs, {"packer": watched})
    table = by_length(results, {"packer": watched})
    record = results["packer"].record
    for length in (1, 12):
        of_length = record.is_job & (jobs.duration == length)
        assert table.loc[length, "jobs"] == of_length.sum()
        expected = np.nanmean(record.slowdown()[of_length])
        assert table.loc[length, "packer slowdown"] == pytest.approx(expected)
    assert isinstance(table, pd.DataFrame)


def test_a_study_is_as_large_as_its_budget() -> None:
    full, small = (GridStudy(budget=budget).config("deeprm") for budget in (1.0, 0.5))
    assert small.iterations == round(full.iterations / 2)
    assert small.episodes.sets == full.episodes.sets
    tiny = GridStudy(budget=0.02).config("deeprm", jobs__load=1.1)
    assert tiny.episodes.sets == round(full.episodes.sets / 5)
    assert tiny.jobs.load == 1.1
