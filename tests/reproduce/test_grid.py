"""Figures of DeepRM, the CNN and A2cScheduler: verdicts on the papers' claims, tables, pictures, and small runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from decima.evaluation.grid import Withholding, compare_by, evaluate
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.schedulers.grid import Packer, ShortestJobFirst, play
from reproduce import a2c_tables, cnn_fig2, deeprm_fig6, deeprm_fig7
from reproduce.__main__ import cli
from reproduce.grid import claim, means
from simulator.grid import Grid, GridConfig
from tests.cases import cases
from tests.decima.learning.examples import tune_once
from tests.decima.show.test_plots import difference
from workloads import DISTRIBUTIONS, draw_jobs

TINY = "--sets 3 --training iterations=1 --training episodes.sets=2 --training episodes.per_set=3"
TINY += " --training validation.sets=2"
HEURISTICS = ["sjf", "packer", "tetris*", "random"]


@pytest.fixture(autouse=True)
def _tetris_is_tuned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.evaluation.grid.tune_tetris", tune_once)


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of trained networks, which all tests share."""
    return tmp_path_factory.mktemp("policies")


def content(words: str, policies: Path, folder: Path) -> dict[str, Any]:
    """Run a figure with tiny trainings, and return its results."""
    arguments = [*words.split(), *TINY.split(), "--policies", str(policies), "--out", str(folder)]
    CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)
    name = words.partition(" ")[0]
    assert (folder / f"{name}.png").stat().st_size > 1000
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


# ---- claims and tables -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=20, seed=1)
    both = {"sjf": ShortestJobFirst(), "packer": Packer()}
    return evaluate(GridConfig(), jobs, both).assign(condition="")


def test_a_claim_holds_if_the_mean_is_lower(runs: pd.DataFrame) -> None:
    assert claim("SJF is better.", runs, "sjf", ["packer"])["holds"] == "yes"
    row = claim("Packer is better.", runs, "packer", ["sjf"])
    assert row["holds"] == "no"
    slowdown = {name: each["slowdown"].mean.mean for name, each in compare_by(runs)[""].items()}
    assert row["here"].startswith(f"packer: {slowdown['packer'] / slowdown['sjf'] - 1:+.1%} ±")
    assert claim("", runs, "sjf", ["sjf"])["holds"] == "no"
    assert claim("", runs, "sjf", ["sjf"], or_equal=True)["holds"] == "yes"


def test_means_are_over_jobs_in_steps(runs: pd.DataFrame) -> None:
    table = means(runs, ["slowdown", "waiting"]).set_index("scheduler")
    assert list(table) == ["slowdown", "slowdown_ci95", "waiting (steps)", "waiting (steps)_ci95"]
    mine = runs[runs["scheduler"] == "packer"]
    assert table.loc["packer", "waiting (steps)"] == pytest.approx(np.average(mine["waiting"], weights=mine["jobs"]))


@cases(
    "validated, expected",
    ({0: 7.9, 100: 4.0, 200: 2.5, 300: 2.2}, ["yes", "yes", "yes"]),
    ({0: 6.0, 100: 4.0, 200: 3.5, 300: 2.4, 400: 3.5}, ["no", "no", "no"]),
    ({0: 7.9, 200: 2.9, 300: 2.95}, ["yes", "yes", "no"]),
    ({0: 7.9, 50: 4.0}, ["yes", "?", "?"]),
    ({0: 7.9, 50: 2.0}, ["yes", "yes", "?"]),
)
def test_claims_of_learning(validated: dict[int, float], expected: list[str]) -> None:
    curve = [{"iteration": float(each), "validation_slowdown": value} for each, value in validated.items()]
    rows = deeprm_fig6.claims(curve, {"sjf": 3.1, "packer": 5, "tetris*": 3.0, "random": 8.0})
    assert [row["holds"] for row in rows] == expected


def test_jobs_by_length() -> None:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=5, seed=1)
    grid = Grid(GridConfig(), jobs)
    watched = Withholding(Packer(), grid)
    record = play(grid, watched)
    table = deeprm_fig7.by_length({"packer": record}, {"packer": watched}).set_index("steps")
    for length in (1, 12):
        of_length = record.is_job & (jobs.duration == length)
        assert table.loc[length, "jobs"] == of_length.sum()
        expected = np.mean(GRID_METRICS["slowdown"].of(record)[of_length])
        assert table.loc[length, "slowdown packer"] == pytest.approx(expected)
        assert table.loc[length, "withheld packer"] == watched.held[of_length].sum()


# ---- pictures ----------------------------------------------------------------------------------------------

#: What a training might measure.
CURVE: list[dict[str, float]] = [{"iteration": iteration} for iteration in range(51)]
for k, row in enumerate(CURVE[1:], start=1):
    row |= {"slowdown": 3 + 4 / (1 + k / 5), "return": -20.0 - 200 / k, "return_best": -15.0 - 200 / k}
for k, row in enumerate(CURVE[::10]):
    row["validation_slowdown"] = 3.2 + 4 / (1 + 2 * k)


def test_pictures_of_withheld_jobs_and_of_learning(tmp_path: Path) -> None:
    lengths = pd.DataFrame(
        {
            "steps": [1, 3, 10, 15],
            "slowdown deeprm": [2.0, 1.5, 4.0, 3.5],
            "withheld deeprm": [0, 3, 40, 57],
            "slowdown tetris*": [3.0, 2.0, 2.5, 2.2],
        }
    )
    assert difference(deeprm_fig7.plot(lengths), "deeprm-withheld", tmp_path) is None
    heuristics = {"sjf": 3.0, "packer": 5.4, "tetris*": 2.9, "random": 7.8}
    assert difference(deeprm_fig6.plot(CURVE, heuristics), "deeprm-learning", tmp_path) is None
    figure = cnn_fig2.plot({"deeprm": CURVE, "cnn": CURVE[:31]})
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [6, 4]


# ---- small runs --------------------------------------------------------------------------------------------


def test_figures_4_and_5_share_a_network(policies: Path, tmp_path: Path) -> None:
    found = content("deeprm-fig4 --load 130 --load 50", policies, tmp_path)
    assert [row["load"] for row in found["tables"]["slowdown"]] == ["130 %", "50 %"]
    assert found["tables"]["slowdown"][0]["deeprm_ci95"] > 0
    assert found["tables"]["claims"][0]["holds"] == "yes"
    measured = (policies / "deeprm-130" / "metrics.jsonl").read_text()
    means_of = content("deeprm-fig5", policies, tmp_path)["tables"]["means"]
    assert [row["scheduler"] for row in means_of][-2:] == ["deeprm, for slowdown", "deeprm, for completion"]
    assert (policies / "deeprm-130" / "metrics.jsonl").read_text() == measured, "the training is not repeated"
    assert means_of[-2]["slowdown"] == pytest.approx(found["tables"]["slowdown"][0]["deeprm"])


@cases(
    "words, table, schedulers",
    ("deeprm-fig6", "means", [*HEURISTICS, "deeprm"]),
    ("cnn-fig2 --weights 1,0.5,2", "means", [*HEURISTICS, "deeprm", "cnn", "cnn, reshaped", "weights 1, 0.5, 2"]),
    ("cnn-fig3", "means", [*HEURISTICS, "cnn"]),
)
def test_a_figure(words: str, table: str, schedulers: list[str], policies: Path, tmp_path: Path) -> None:
    rows = content(words, policies, tmp_path)["tables"][table]
    assert [row["scheduler"] for row in rows] == schedulers
    assert all(row["slowdown"] >= 1 for row in rows)


def test_figure_7_counts_all_jobs(policies: Path, tmp_path: Path) -> None:
    found = content("deeprm-fig7", policies, tmp_path)
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.1, sets=3, seed=0)
    assert sum(row["jobs"] for row in found["tables"]["lengths"]) == (jobs.duration > 0).sum()
    assert len(found["tables"]["claims"]) == 4


def test_tables_of_a2c_have_the_numbers_of_the_paper_and_a_log(
    policies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: a2c_tables.ARCHITECTURES[name] for name in ("fully connected", "conv3-16, pooling")}
    monkeypatch.setattr(a2c_tables, "ARCHITECTURES", few)
    log = tmp_path / "small.swf"
    rows = (
        f"{job} {60 * job} 0 {60 * (1 + job % 9)} {1 + job % 4} -1 -1 {1 + job % 4} -1 -1 1 1 1 1 1 1 -1 -1"
        for job in range(1, 400)
    )
    log.write_text("; MaxProcs: 8\n" + "\n".join(rows) + "\n")
    tables = content(f"a2c-tables --log {log}", policies, tmp_path)["tables"]
    assert list(tables) == ["rates", "architectures", "log", "claims"]
    paper = {(row["condition"], row["scheduler"]): row["paper"] for row in tables["rates"] if row["paper"]}
    assert paper == {("rate 0.9", "random"): 5.5, ("rate 0.9", "packer"): 2.9, ("rate 0.9", "sjf"): 1.8}
    assert [row["scheduler"] for row in tables["architectures"]] == list(few)
    assert [row["scheduler"] for row in tables["log"]] == ["random", "packer", "sjf", "tetris*", "a2c"]


@cases(
    "words, message",
    ("cnn-fig2 --weights 1,2", "--weights 1,2: expected three numbers"),
    ("deeprm-fig4 --load 190", "the load must be above 0 and at most 1.845"),
    ("a2c-tables --log none.swf", "none.swf"),
)
def test_bad_input(words: str, message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, [*words.split(), "--policies", str(tmp_path), "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
