"""Studies on DeepRM's grid: verdicts on the papers' claims, and sizes."""

import numpy as np
import pandas as pd
import pytest

from decima.evaluation.grid import Withholding, compare_by, evaluate
from decima.schedulers.grid import Packer, ShortestJobFirst, play
from decima.studies.deeprm import _learning_claims, by_length
from decima.studies.grid_study import GridStudy, Measured, better
from simulator.grid import Grid, GridConfig
from tests.cases import cases
from workloads import DISTRIBUTIONS, draw_jobs


@pytest.fixture(scope="module")
def results() -> pd.DataFrame:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=20, seed=1)
    both = {"sjf": ShortestJobFirst(), "packer": Packer()}
    return evaluate(GridConfig(), jobs, both).assign(condition="")


def test_claims_and_figures_of_the_paper(results: pd.DataFrame) -> None:
    assert better("", results, "sjf", ["packer"]).holds
    claim = better("", results, "packer", ["sjf"])
    assert not claim.holds
    means = [compare_by(results)[""][name]["slowdown"].mean.mean for name in ("packer", "sjf")]
    assert claim.here.startswith(f"packer: {means[0] / means[1] - 1:+.1%} ±")
    assert not better("", results, "sjf", ["sjf"]).holds
    assert better("", results, "sjf", ["sjf"], or_equal=True).holds
    part = Measured("", results, ("slowdown", "waiting"), paper={("", "sjf", "slowdown"): 1.8})
    table = part.table()
    headers = [column.header for column in table.columns]
    assert headers == ["Scheduler", "Slowdown", "Paper", "Waiting time (steps)"]
    assert list(table.columns[2].cells) == ["1.8", "—"]
    tidy = part.tidy()
    assert len(tidy) == 2 * 20
    for each, row in tidy.groupby("scheduler"):
        assert row["slowdown"].tolist() == results.loc[results["scheduler"] == each, "slowdown"].tolist()


@cases(
    "validated, expected",
    ({0: 7.9, 100: 4.0, 200: 2.5, 300: 2.2}, [True, True, True]),
    ({0: 6.0, 100: 4.0, 200: 3.5, 300: 2.4, 400: 3.5}, [False, False, False]),
    ({0: 7.9, 200: 2.9, 300: 2.95}, [True, True, False]),
    ({0: 7.9, 50: 4.0}, [True, None, None]),
    ({0: 7.9, 50: 2.0}, [True, True, None]),
)
def test_claims_of_learning(validated: dict[int, float], expected: list[bool | None]) -> None:
    curve = [{"iteration": float(each), "validation_slowdown": value} for each, value in validated.items()]
    claims = _learning_claims(curve, {"sjf": 3.1, "packer": 5, "tetris*": 3.0, "random": 8.0})
    assert [claim.holds for claim in claims] == expected


def test_jobs_by_length_and_the_budget_of_a_study() -> None:
    jobs = draw_jobs(DISTRIBUTIONS["code"], load=1.3, sets=5, seed=1)
    grid = Grid(GridConfig(), jobs)
    watched = Withholding(Packer(), grid)
    record = play(grid, watched)
    table = by_length({"packer": record}, {"packer": watched})
    for length in (1, 12):
        of_length = record.is_job & (jobs.duration == length)
        assert table.loc[length, "jobs"] == of_length.sum()
        expected = np.nanmean(record.slowdown()[of_length])
        assert table.loc[length, "packer slowdown"] == pytest.approx(expected)
    assert isinstance(table, pd.DataFrame)
    full, small = (GridStudy(budget=budget).config("deeprm") for budget in (1.0, 0.5))
    assert (small.iterations, small.episodes.sets) == (round(full.iterations / 2), full.episodes.sets)
    tiny = GridStudy(budget=0.02).config("deeprm", jobs__load=1.1)
    assert (tiny.episodes.sets, tiny.jobs.load) == (round(full.episodes.sets / 5), 1.1)
