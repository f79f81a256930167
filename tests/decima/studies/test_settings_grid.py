"""Grid of settings: choice of cells, and verdicts on synthetic results."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.variants import HINDSIGHT
from decima.registry import make_scheduler
from decima.studies.cells import CELLS, Source
from decima.studies.compared import choose_settings
from decima.studies.outcome import RULE, Outcome, Setup
from decima.studies.settings_grid import (
    PLAIN_RULE,
    Cells,
    left_out_notes,
    outcome,
    plot_grid,
    settings_grid,
    with_typical_task,
    workloads,
)
from simulator import ClusterConfig, run_episode
from tests.decima.show.test_plots import difference
from tests.decima.studies.test_compared import printed
from tests.simulator.cluster.build import job, stage
from workloads import Workload, batch_arrivals, read_workload, synthetic_profiles

TINY = Workload((job(stage(4, 100.0)),), None, "made up")
SEEDS = 4
#: Factors on the JCT by seed.
LUCK = np.array([0.9, 1.0, 1.2, 0.9])
BETTER, WORSE, NOISY, NONE = "tpch-batch-5", "embedded-stream-4s", "embedded-batch-20", "trace-batch-20"
#: Cell -> scheduler -> average JCT on each sequence, s, or its mean.
JCT_S: dict[str, dict[str, float | list[float]]] = {
    BETTER: {"fair": 30.0, HINDSIGHT: 24.0, RULE: 20.0, "decima": 18.0},
    WORSE: {"fair": 12.0, HINDSIGHT: 10.0, RULE: 11.0, "decima": 10.5},
    NOISY: {"fair": 10.0, HINDSIGHT: 10.0, RULE: 11.0, "decima": [13.5, 10.0, 9.0, 13.5]},
    NONE: {"fair": 800.0, HINDSIGHT: 500.0, RULE: 400.0},
}


def made_up(*names: str, jct_s: Mapping[str, Mapping[str, float | list[float]]] = JCT_S) -> pd.DataFrame:
    """Return tidy synthetic results of cells."""
    rows = []
    for name in names:
        for scheduler, values in {**jct_s[name], PLAIN_RULE: float(np.mean(jct_s[name][RULE])) * 1.1}.items():
            times = values if isinstance(values, list) else (values * LUCK).tolist()
            for seed, time_s in enumerate(times):
                rows.append({"condition": name, "scheduler": scheduler, "seed": seed, "mean_jct_s": time_s})
    return pd.DataFrame(rows)


def policies(*names: str) -> dict[str, str | None]:
    return {name: None if name == NONE else "mine.npz" for name in names}


def cells(*names: str) -> Cells:
    return Cells(made_up(*names), policies(*names))


def found(*names: str, left_out: tuple[str, ...] = ()) -> Outcome:
    return outcome(made_up(*names), policies(*names), left_out)


def test_references_and_cells_without_a_policy() -> None:
    both = cells(BETTER, WORSE, NOISY)
    assert (both.best[BETTER], both.best[WORSE]) == (RULE, HINDSIGHT)
    assert both.changes[BETTER]["decima"].mean == pytest.approx(-0.1)
    assert (both.changes[BETTER][RULE], both.changes[WORSE]["fair"].mean) == ((0.0, 0.0), pytest.approx(0.2))
    half_width = 3.182446 * (0.5 * LUCK).std(ddof=1) / np.sqrt(SEEDS)  # t of 3 degrees of freedom
    assert both.changes[WORSE]["decima"].half_width == pytest.approx(half_width / 10)
    assert [both.not_worse(each) for each in (BETTER, WORSE, NOISY)] == [True, False, True]
    result = found(NONE)
    assert result.notes[0] == "There is no policy for any cell, so nothing can be said of decima."
    assert "No policy for all cells: --checkpoint FILE gives one." in result.notes
    content = json.loads(result.shown("decima").json)
    assert content["in_every_cell_not_worse"] is content["on_average_better"] is None
    [cell] = content["cells"]
    assert cell["mean_jct_s"] == {
        "fair": 800.0, HINDSIGHT: 500.0, PLAIN_RULE: pytest.approx(440.0), RULE: 400.0, "decima": None,
    }  # fmt: skip
    assert cell["not_worse"] is None


def test_worst_and_average_cells() -> None:
    every = cells(BETTER, NOISY, WORSE, NONE)
    assert every.changes[NOISY]["decima"].mean > every.changes[WORSE]["decima"].mean
    assert every.worst == WORSE
    assert cells(BETTER, NOISY).worst == NOISY
    assert cells(NONE).worst is None
    # Cells share their noise, which therefore does not average out over cells.
    average = cells(BETTER, WORSE, NONE).average
    assert average.mean == pytest.approx((-0.1 + 0.05) / 2)
    half_width = 3.182446 * (0.025 * LUCK).std(ddof=1) / np.sqrt(SEEDS)
    assert average.half_width == pytest.approx(half_width)
    assert np.isnan(cells(NONE).average.mean)


def table_lines(result: Outcome) -> list[list[str]]:
    return [line.split() for line in printed(result.tables[0])]


def test_the_table_and_the_answers() -> None:
    result = found(BETTER, WORSE, NONE, left_out=("Left out.",))
    lines = table_lines(result)
    assert ["tpch-batch-5", "30.0", "24.0", "22.0", "20.0", "18.0", "-10.0%", "±", "2.3%", "yes"] in lines
    assert ["embedded-stream-4s", "12.0", "10.0", "12.1", "11.0", "10.5", "+5.0%", "±", "1.1%", "no"] in lines
    assert ["trace-batch-20", "800.0", "500.0", "440.0", "400.0", "—", "—", "no", "policy"] in lines
    better = "not worse than the best of the rules and tuned weighted fair by more than its interval"
    assert result.notes[:2] == [
        f"In every cell with a policy decima is {better}: no (worst cell: embedded-stream-4s, +5.0% ± 1.1%).",
        "On average over the cells it is better: yes (-2.5% ± 0.6%).",
    ]
    assert "decima follows mine.npz in tpch-batch-5, embedded-stream-4s." in result.notes
    assert "No policy for trace-batch-20: --checkpoint FILE gives one." in result.notes
    assert result.notes[-1] == "Left out."


def test_the_json() -> None:
    content = json.loads(found(BETTER, WORSE).shown("decima").json)
    assert (content["command"], content["seeds"]) == ("decima", [0, 1, 2, 3])
    assert content["on_average_better"]["holds"] is True
    assert content["in_every_cell_not_worse"]["worst_cell"] == WORSE
    cell = content["cells"][1]
    assert (cell["name"], cell["best_reference"], cell["not_worse"]) == (WORSE, HINDSIGHT, False)
    assert cell["settings"] == {
        "workload": None,  # nothing ran
        "source": "embedded",
        "jobs": 60,
        "arrivals": "poisson",
        "interval_s": 4.0,
        "executors": 50,
        "moving_delay_s": 2.0,
    }
    assert cell["mean_jct_s"]["decima"] == pytest.approx(10.5)
    assert cell["per_seed_mean_jct_s"][RULE] == pytest.approx((11 * LUCK).tolist())


def test_the_picture(tmp_path: Path) -> None:
    """Results contain changes beyond the colour scale, a policy that is worse, and cells without policy."""
    jct_s: dict[str, dict[str, float | list[float]]] = {}
    for place, name in enumerate(CELLS):
        jct_s[name] = {"fair": 12.0 + place / 3, HINDSIGHT: 10.0 + place / 8, RULE: 11.0}
        if name != NONE:
            jct_s[name]["decima"] = 13 - place / 6
    every = Cells(made_up(*CELLS, jct_s=jct_s), policies(*CELLS))
    assert difference(plot_grid(every), "settings-grid", tmp_path) is None


def test_cells_have_names_and_sources() -> None:
    for name, each in CELLS.items():
        if "-stream-" in name:
            assert f"-stream-{each.interval_s:g}s" in name
        else:
            assert f"-batch-{each.num_jobs}" in name
            assert each.interval_s is None
        usual = {"trace": 200, "short": 30}.get(each.source, 50)
        assert name.partition("-on-")[2] == ("" if each.num_executors == usual else str(each.num_executors))
        delay_s = 1 if each.source == "short" else 2
        assert each.moving_delay_s == (0 if name.endswith("-delay-0") else delay_s)
    chosen, left_out = choose_settings(CELLS, [], known("embedded", "random", "short", "trace"), "cell")
    assert len(chosen) == 10
    [line] = left_out_notes(left_out)
    assert line.startswith("Left out without --profiles DIR: tpch-batch-5, tpch-batch-20, ")
    everything = known("published", "embedded", "trace", "random", "short")
    assert choose_settings(CELLS, [], everything, "cell") == (list(CELLS.values()), [])
    names = ["random-batch-20", "embedded-batch-20"]
    chosen, left_out = choose_settings(CELLS, names, known("embedded", "random"), "cell")
    assert [cell.name for cell in chosen] == names[::-1]
    assert len(left_out) == len(CELLS) - 2
    with pytest.raises(CompareError, match=r"^no cell is named 'nowhere', expected one of tpch-batch-5, "):
        choose_settings(CELLS, ["nowhere"], {}, "cell")
    with pytest.raises(CompareError, match=r"^the cell tpch-batch-20 needs --profiles DIR$"):
        choose_settings(CELLS, ["tpch-batch-20"], known("trace"), "cell")


def known(*sources: Source) -> dict[Source, Workload]:
    return dict.fromkeys(sources, TINY)


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
    np.testing.assert_allclose(one.values, factors[0] * other.values)  # noqa: PD011  # no pandas
    np.testing.assert_array_equal(one.cells, other.cells)


def test_only_the_profiles_of_a_trace_are_used(workload_file: Path, tmp_path: Path) -> None:
    content = json.loads(workload_file.read_text())
    exact = tmp_path / "exact.json"
    exact.write_text(json.dumps(content | {"jobs": [{"profile": "small", "arrival_ms": 0}]}))
    trace = workloads(trace=exact)["trace"]
    assert trace.sequence is None
    assert len(trace.profiles) == 3


def measured(cell: str, **options: Path | int | None) -> Outcome:
    given = {"checkpoint": None, "profiles": None, "trace": None, "seeds": 2, "workers": 1} | options
    return settings_grid(Setup(), cells=[cell], **given)  # type: ignore[arg-type]


def test_a_cell_is_measured_in_its_setting(workload_file: Path, policy: Path) -> None:
    result = measured("trace-batch-20", checkpoint=policy, trace=workload_file, seed=5)
    by_name = result.runs.set_index(["scheduler", "seed"])
    sequence = batch_arrivals(read_workload(workload_file).profiles, 20, 5)
    cluster = ClusterConfig(num_executors=200, moving_delay_ms=2000.0)
    alpha = by_name.loc[(HINDSIGHT, 5), "setting"]
    for name, spec in (
        ("fair", "fair"),
        (HINDSIGHT, alpha),
        (PLAIN_RULE, PLAIN_RULE),
        (RULE, RULE),
        ("decima", f"decima:{policy}"),
    ):
        record = run_episode(cluster, sequence, make_scheduler(spec, 5))
        assert by_name.loc[(name, 5), "mean_jct_s"] == record.mean_jct_ms / 1000
    assert (result.extra["seeds"], result.extra["cells"][0]["policy"]) == ([5, 6], str(policy))


@pytest.mark.usefixtures("shipped")
def test_by_default_a_cell_has_the_policy_that_ships_for_it() -> None:
    assert measured("random-batch-20").extra["cells"][0]["policy"] == "general"


@pytest.mark.usefixtures("not_shipped")
def test_a_cell_without_a_policy_says_so() -> None:
    assert table_lines(measured("random-batch-20"))[-2][-2:] == ["no", "policy"]
