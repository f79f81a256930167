"""Where a policy can be trusted: the cells, what follows from results that are made up, and the command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from decima.cli.main import cli
from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.run import Run
from decima.evaluation.tuning import HINDSIGHT
from decima.registry import make_scheduler
from decima.studies.settings_cells import CELLS, Source
from decima.studies.settings_grid import (
    PLAIN_RULE,
    MeasuredCell,
    SettingsGrid,
    choose_cells,
    settings_grid,
    with_typical_task,
    workloads,
)
from decima.studies.settings_grid_report import grid_json, grid_notes, grid_table, plot_grid
from decima.studies.study_report import RULE
from simulator import run_episode
from tests.decima.cli.commands import assert_one_line_error, assert_same_again
from tests.decima.show.test_plots import difference
from tests.simulator.cluster.build import job, stage
from workloads import Workload, read_workload, synthetic_profiles

TINY = Workload((job(stage(4, 100.0)),), None, "made up")
SEEDS = 4
#: Differ by seed, and not all alike.
LUCK = np.array([0.9, 1.0, 1.2, 0.9])


def made_up(name: str, jct_s: Mapping[str, float | list[float]]) -> MeasuredCell:
    """A cell in which nothing ran.

    Args:
        name: of the cell.
        jct_s: scheduler -> average JCT on each sequence, s, or its mean.
    """
    comparison = Comparison(Conditions(TINY, num_experiments=SEEDS), ["fair"], keep=False)
    comparison.schedulers.clear()
    plain_s = np.array(jct_s[RULE]) * 1.1
    for scheduler, values in {**jct_s, PLAIN_RULE: float(plain_s)}.items():
        times = values if isinstance(values, list) else values * LUCK
        comparison.add(scheduler, {seed: Run(1000 * time) for seed, time in enumerate(times)})
    return MeasuredCell(CELLS[name], comparison, "mine.npz" if "decima" in jct_s else None)


BETTER = made_up("tpch-batch-5", {"fair": 30.0, HINDSIGHT: 24.0, RULE: 20.0, "decima": 18.0})
WORSE = made_up("embedded-stream-4s", {"fair": 12.0, HINDSIGHT: 10.0, RULE: 11.0, "decima": 10.5})
NOISY = made_up(
    "embedded-batch-20", {"fair": 10.0, HINDSIGHT: 10.0, RULE: 11.0, "decima": [13.5, 10.0, 9.0, 13.5]}
)
NOBODY = made_up("trace-batch-20", {"fair": 800.0, HINDSIGHT: 500.0, RULE: 400.0})


def test_a_policy_is_held_against_the_best_reference() -> None:
    assert (BETTER.best, WORSE.best) == (RULE, HINDSIGHT)
    assert BETTER.change().mean == pytest.approx(-0.1)
    assert BETTER.change(RULE) == (0.0, 0.0)
    assert WORSE.change("fair").mean == pytest.approx(0.2)
    half_width = 3.182446 * (0.5 * LUCK).std(ddof=1) / np.sqrt(SEEDS)  # t of 3 degrees of freedom
    assert WORSE.change().half_width == pytest.approx(half_width / 10)
    assert [each.not_worse for each in (BETTER, WORSE, NOISY)] == [True, False, True]


def test_the_worst_cell_is_one_where_the_policy_is_worse() -> None:
    assert NOISY.change().mean > WORSE.change().mean
    assert SettingsGrid((BETTER, NOISY, WORSE, NOBODY)).worst is WORSE
    assert SettingsGrid((BETTER, NOISY)).worst is NOISY
    assert SettingsGrid((NOBODY,)).worst is None


def test_the_average_over_cells_counts_each_the_same() -> None:
    """Luck is shared by the cells, so that it does not average out."""
    average = SettingsGrid((BETTER, WORSE, NOBODY)).average
    assert average.mean == pytest.approx((-0.1 + 0.05) / 2)
    half_width = 3.182446 * (0.025 * LUCK).std(ddof=1) / np.sqrt(SEEDS)
    assert average.half_width == pytest.approx(half_width)
    assert np.isnan(SettingsGrid((NOBODY,)).average.mean)


def shown(grid: SettingsGrid) -> list[list[str]]:
    console = Console(width=200, record=True)
    console.print(grid_table(grid))
    return [line.split() for line in console.export_text().splitlines()]


def test_the_table_and_the_answers() -> None:
    lines = shown(SettingsGrid((BETTER, WORSE, NOBODY)))
    assert ["tpch-batch-5", "30.0", "24.0", "22.0", "20.0", "18.0", "-10.0%", "±", "2.3%", "yes"] in lines
    assert ["embedded-stream-4s", "12.0", "10.0", "12.1", "11.0", "10.5", "+5.0%", "±", "1.1%", "no"] in lines
    assert ["trace-batch-20", "800.0", "500.0", "440.0", "400.0", "—", "—", "no", "policy"] in lines
    notes = grid_notes(SettingsGrid((BETTER, WORSE, NOBODY), ("Left out.",)))
    better = "not worse than the best of the rules and tuned weighted fair by more than its interval"
    assert notes[:2] == [
        f"In every cell with a policy decima is {better}: no (worst cell: embedded-stream-4s, +5.0% ± 1.1%).",
        "On average over the cells it is better: yes (-2.5% ± 0.6%).",
    ]
    assert "decima follows mine.npz in tpch-batch-5, embedded-stream-4s." in notes
    assert "No policy for trace-batch-20: --checkpoint FILE gives one." in notes
    assert notes[-1] == "Left out."


def test_without_any_policy() -> None:
    grid = SettingsGrid((NOBODY,))
    assert grid_notes(grid)[0] == "There is no policy for any cell, so nothing can be said of decima."
    content = json.loads(grid_json(grid))
    assert content["in_every_cell_not_worse"] is content["on_average_better"] is None
    [cell] = content["cells"]
    assert cell["mean_jct_s"] == {
        "fair": 800.0,
        HINDSIGHT: 500.0,
        PLAIN_RULE: pytest.approx(440.0),
        RULE: 400.0,
        "decima": None,
    }
    assert cell["not_worse"] is None


def test_the_json() -> None:
    content = json.loads(grid_json(SettingsGrid((BETTER, WORSE)), command="decima"))
    assert content["command"] == "decima"
    assert content["seeds"] == [0, 1, 2, 3]
    assert content["on_average_better"]["holds"] is True
    assert content["in_every_cell_not_worse"]["worst_cell"] == "embedded-stream-4s"
    cell = content["cells"][1]
    assert (cell["name"], cell["best_reference"], cell["not_worse"]) == (
        "embedded-stream-4s",
        HINDSIGHT,
        False,
    )
    assert cell["settings"] == {
        "workload": "made up",
        "source": "embedded",
        "jobs": 60,
        "arrivals": "batch",  # of what is made up here
        "interval_s": 4.0,
        "executors": 50,
        "moving_delay_s": 2.0,
    }
    assert cell["mean_jct_s"]["decima"] == pytest.approx(10.5)
    assert cell["per_seed_mean_jct_s"][RULE] == pytest.approx((11 * LUCK).tolist())


def test_the_picture(tmp_path: Path) -> None:
    """Made up; more than the colours reach, a policy that is worse, and none."""
    cells = []
    for place, name in enumerate(CELLS):
        jct_s = {"fair": 12.0 + place / 3, HINDSIGHT: 10.0 + place / 8, RULE: 11.0}
        cells.append(made_up(name, jct_s if name == "trace-batch-20" else jct_s | {"decima": 13 - place / 6}))
    assert difference(plot_grid(SettingsGrid(tuple(cells))), "settings-grid", tmp_path) is None


# ---- cells -------------------------------------------------------------------------------------------------


def test_the_name_of_a_cell_says_what_is_not_as_usual() -> None:
    for name, cell in CELLS.items():
        if "-stream-" in name:
            assert f"-stream-{cell.interval_s:g}s" in name
        else:
            assert f"-batch-{cell.num_jobs}" in name
            assert cell.interval_s is None
        usual = {"trace": 200, "short": 30}.get(cell.source, 50)
        assert name.partition("-on-")[2] == ("" if cell.num_executors == usual else str(cell.num_executors))
        delay_s = 1 if cell.source == "short" else 2
        assert cell.moving_delay_s == (0 if name.endswith("-delay-0") else delay_s)


def known(*sources: Source) -> dict[Source, Workload]:
    return dict.fromkeys(sources, TINY)


def test_cells_whose_jobs_nobody_has_are_left_out() -> None:
    cells, left_out = choose_cells([], known("embedded", "random", "short", "trace"))
    assert len(cells) == 10
    [line] = left_out
    assert line.startswith("Left out without --profiles DIR: tpch-batch-5, tpch-batch-20, ")
    everything = known("published", "embedded", "trace", "random", "short")
    assert choose_cells([], everything) == (list(CELLS.values()), [])


def test_cells_that_are_named() -> None:
    names = ["random-batch-20", "embedded-batch-20"]
    cells, left_out = choose_cells(names, known("embedded", "random"))
    assert ([cell.name for cell in cells], left_out) == (names[::-1], [])
    with pytest.raises(CompareError, match=r"^no cell is named 'nowhere', expected one of tpch-batch-5, "):
        choose_cells(["nowhere"], {})
    with pytest.raises(CompareError, match=r"^the cell tpch-batch-20 needs --profiles DIR$"):
        choose_cells(["tpch-batch-20"], known("trace"))


def test_jobs_with_short_tasks_are_the_same_but_for_the_scale() -> None:
    long = synthetic_profiles(20)
    short = with_typical_task(long, 150.0)
    means = np.concatenate(
        [np.full(each.num_tasks, each.durations.mean_ms) for profile in short for each in profile.stages]
    )
    assert np.median(means) == pytest.approx(150)
    factors = [one.work_ms / other.work_ms for one, other in zip(short, long, strict=True)]
    np.testing.assert_allclose(factors, factors[0])
    one, other = short[3].stages[1].durations, long[3].stages[1].durations
    np.testing.assert_allclose(one.values, factors[0] * other.values)
    np.testing.assert_array_equal(one.cells, other.cells)


def test_only_the_profiles_of_a_trace_are_used(workload_file: Path, tmp_path: Path) -> None:
    content = json.loads(workload_file.read_text())
    exact = tmp_path / "exact.json"
    exact.write_text(json.dumps(content | {"jobs": [{"profile": "small", "arrival_ms": 0}]}))
    trace = workloads(trace=exact)["trace"]
    assert trace.sequence is None
    assert len(trace.profiles) == 3


# ---- measuring ---------------------------------------------------------------------------------------------


def test_a_cell_is_measured_in_its_setting(workload_file: Path, policy: Path) -> None:
    told: list[tuple[str, int, int]] = []
    grid = settings_grid(
        {"trace": read_workload(workload_file)},
        ["trace-stream-30s"],
        checkpoint=policy,
        num_experiments=2,
        seed=5,
        tell=lambda *what: told.append(what),
    )
    assert told[-1] == ("comparing schedulers", 10, 10)
    [each] = grid.cells
    conditions = each.comparison.conditions
    assert list(conditions.seeds) == [5, 6]
    sequence = conditions.sequence(5)
    assert len(sequence) == 20
    assert 15_000 < np.diff(sequence.arrival_ms).mean() < 60_000
    assert (conditions.cluster.num_executors, conditions.cluster.moving_delay_ms) == (200, 2000.0)
    alpha = each.comparison.runs(HINDSIGHT)["setting"][5]
    for name, spec in (
        ("fair", "fair"),
        (HINDSIGHT, alpha),
        (PLAIN_RULE, PLAIN_RULE),
        (RULE, RULE),
        ("decima", f"decima:{policy}"),
    ):
        record = run_episode(conditions.cluster, sequence, make_scheduler(spec, 5))
        assert each.jct_s(name)[0] == record.mean_jct_ms / 1000


@pytest.mark.usefixtures("shipped")
def test_by_default_a_cell_has_the_policy_that_ships_for_it(workload_file: Path) -> None:
    grid = settings_grid({"random": read_workload(workload_file)}, ["random-batch-20"], num_experiments=2)
    assert [each.policy for each in grid.cells] == ["general"]


@pytest.mark.usefixtures("not_shipped")
def test_a_cell_without_a_policy_says_so(workload_file: Path) -> None:
    grid = settings_grid({"random": read_workload(workload_file)}, ["random-batch-20"], num_experiments=2)
    assert shown(grid)[-2][-2:] == ["no", "policy"]
    assert "No policy for all cells: --checkpoint FILE gives one." in grid_notes(grid)


# ---- the command -------------------------------------------------------------------------------------------


def test_the_command(workload_file: Path, policy: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "results.json", tmp_path / "pictures"
    words = f"--checkpoint {policy} --trace {workload_file} --cells trace-batch-20 --budget 0.01 --seed 3"
    where = ["--processes", "1", "--out", str(out)]
    ran = CliRunner().invoke(cli, ["reproduce", "grid", *words.split(), *where, "--json", str(results)])
    assert ran.exit_code == 0, ran.output
    assert "Average JCT, 2 sequences in each cell" in ran.stdout
    assert "In every cell decima is " in ran.stdout
    assert "comparing schedulers: 1 of 10" in ran.stderr
    assert (out / "grid.png").stat().st_size > 1000
    content = json.loads(results.read_text())
    assert content["command"] == f"decima reproduce grid {words}"
    [cell] = content["cells"]
    assert (cell["name"], cell["policy"], cell["settings"]["executors"]) == (
        "trace-batch-20",
        str(policy),
        200,
    )
    assert content["seeds"] == [3, 4]
    assert_same_again(results, *where)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--cells nowhere", "'nowhere' is not one of 'tpch-batch-5', "),
        ("--cells tpch-batch-20", "the cell tpch-batch-20 needs --profiles DIR"),
        ("--cells trace-batch-20", "the cell trace-batch-20 needs --trace FILE"),
        ("--cells random-batch-20 --profiles {folder}", "--profiles has no effect: no cell that is named"),
        ("--cells random-batch-20 --trace {file}", "--trace has no effect: no cell that is named"),
        ("--seeds 1", "--seeds"),
        ("--seed 1000000", "--seed"),
        ("--checkpoint {file}", "tiny.json"),
    ],
)
def test_what_the_command_refuses(words: str, message: str, workload_file: Path, tmp_path: Path) -> None:
    given = words.format(file=workload_file, folder=tmp_path).split()
    ran = CliRunner().invoke(cli, ["reproduce", "grid", *given, "--out", str(tmp_path / "out")])
    assert_one_line_error(ran, message)
