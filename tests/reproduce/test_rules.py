"""Figures of this project's own settings: carbon, estimates, faults, guarantees, objectives."""

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from reproduce import carbon, estimates, guarantees, objectives, unknown
from reproduce.__main__ import cli
from reproduce.carbon import RULE

pytestmark = pytest.mark.usefixtures("few_settings")

TINY = "--seeds 2 --executors 5 --workload synthetic"


def tables(words: str, folder: Path, *, picture: bool = True) -> dict[str, pd.DataFrame]:
    """Run a figure, and return its tables."""
    CliRunner().invoke(cli, [*words.split(), "--out", str(folder)], standalone_mode=False, catch_exceptions=False)
    name = words.partition(" ")[0]
    assert not picture or (folder / f"{name}.png").stat().st_size > 1000
    return {
        name: pd.DataFrame(rows) for name, rows in json.loads((folder / f"{name}.json").read_text())["tables"].items()
    }


# ---- carbon ------------------------------------------------------------------------------------------------


def test_completion_times_are_compared_with_cap_at_equal_carbon() -> None:
    """Half way between the rule (90 g, 22 s) and cap (45 g, 44 s): 67.5 g, 33 s."""
    points = {"fair": (140, 32), RULE: (90, 22), "cap:0.5": (45, 44), "carbon-price:5": (67.5, 22), "pcaps": (10, 99)}
    table = pd.DataFrame(
        [(name, *point) for name, point in points.items()], columns=["scheduler", "carbon", "mean_jct_s"]
    )
    change = dict(zip(points, carbon.jct_against_cap(table, table), strict=True))
    assert change["carbon-price:5"] == pytest.approx(22 / 33 - 1)
    assert change[RULE] == pytest.approx(0.0)
    for name in ("fair", "cap:0.5", "pcaps"):
        assert pd.isna(change[name]), "cap itself, or more or less carbon than its settings"
    lines = {line.get_label(): len(line.get_xdata()) for line in carbon.plot(table).axes[0].lines}
    assert lines == {"fair": 1, RULE: 1, "cap": 1, "carbon-price": 1, "pcaps": 1}


def test_carbon_is_compared_at_equal_misses() -> None:
    """At 2 % misses, equal shares of 100 and 60 g give 80 g; shares 5/6 and 1/6 of 100 and 20 g give 87 g."""
    others = {"least-slack": (100, 0.01), "carbon-price:5": (60, 0.03), "cap": (20, 0.07), "edf": (95, 0.02)}

    def compared(misses: float) -> str:
        rows = [
            {"scheduler": name, "seed": seed, "carbon": grams + 10 * seed, "deadline_misses": share}
            for name, (grams, share) in (others | {"carbon-slack": (64, misses)}).items()
            for seed in range(2)
        ]
        return carbon.at_equal_misses(pd.DataFrame(rows))

    assert compared(0.02) == f"{69 / 85 - 1:+.1%} ± 0.0% against least-slack and carbon-price:5"
    assert compared(0.0) == f"{69 / 105 - 1:+.1%} ± 0.0% against least-slack"


def test_rules_with_a_signal_need_less_carbon(tmp_path: Path) -> None:
    found = tables("carbon --seeds 2 --executors 20 --jobs 6", tmp_path)
    assert list(found) == ["carbon", "slack 2 to 4", "slack 4 to 16"]
    rows = found["carbon"].set_index("scheduler")
    assert rows.loc["carbon-price:20", "carbon"] < rows.loc[RULE, "carbon"]
    change = rows.loc["fair", "carbon"] / rows.loc[RULE, "carbon"] - 1
    assert rows.loc["fair", f"vs {RULE}"] == pytest.approx(change)


# ---- other figures -----------------------------------------------------------------------------------------


def test_wrong_estimates_change_decisions_of_rules_that_use_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimates, "ERRORS", {"job": (1.0,), "unknown": (1.0,)})
    found = tables(f"estimates {TINY} --batch-jobs 6 --stream-jobs 6 --interval 2", tmp_path)
    assert list(found) == ["batches", "streams"]
    rows = found["batches"].set_index("errors")
    assert list(rows.index) == ["exact", "job 1", "unknown 1"]
    assert rows.loc["exact", "seh:0"] == rows.loc["exact", "seh"], "with exact estimates there is nothing to correct"
    assert rows.loc["unknown 1", "seh:0"] != rows.loc["exact", "seh:0"]


# ---- unknown jobs ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_estimators_of_unknown_jobs_are_compared_with_and_without_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown, "SHARES", (1.0,))
    tiny = "--seeds 2 --executors 5 --batch-jobs 4 --stream-jobs 4 --interval 2"
    found = tables(f"unknown {tiny}", tmp_path)
    assert list(found) == ["batches", "streams", "errors"]
    rows = found["batches"].set_index("estimates")["mean_jct_s"]
    assert len(set(rows[["exact", "typical", "forest"]])) == 3
    assert list(found["errors"]["arrivals"]) == ["batches", "streams"]
    kinds = Path(unknown.__file__).parents[1] / "recordings" / "kinds" / "jobs.json.gz"
    with_plans = tables(f"unknown-plans {tiny} --others {kinds}", tmp_path, picture=False)
    errors = with_plans["errors"].set_index(["workload", "inputs"])["error of stages"]
    assert list(with_plans["few templates"]["templates"]) == [5, 10, 20] * 4
    assert list(with_plans["history with errors"]["arrivals"]) == ["batches", "streams"]
    for workload in ("tpch", "jobs.json.gz"):
        assert errors[workload, "DAG and plan"] < errors[workload, "DAG"]
    rows = with_plans["batches"].set_index("estimates")["mean_jct_s"]
    assert rows["exact"] == found["batches"].set_index("estimates")["mean_jct_s"]["exact"]
    assert len(set(rows[["typical", "forest: DAG", "forest: DAG and plan"]])) == 3


def test_lines_of_wrong_estimates_differ_and_their_legend_is_complete() -> None:
    rows = [
        {"arrivals": arrivals, "kind": kind, "size": size, "scheduler": name, "mean_jct_s": 10.0 + index}
        for arrivals in ("batches", "streams")
        for kind, sizes in {"exact": (0.0,), **estimates.ERRORS}.items()
        for size in sizes
        for index, name in enumerate(estimates.SCHEDULERS)
    ]
    axes = estimates.plot(pd.DataFrame(rows)).axes[2]
    lines = [line for line in axes.lines if line.get_label() in estimates.SCHEDULERS]
    assert len({(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in lines}) == len(lines)
    assert len(axes.get_legend().get_texts()) == len(estimates.SCHEDULERS) + 1


def test_faults_are_the_same_for_all_schedulers_and_make_jobs_slower(tmp_path: Path) -> None:
    found = tables(f"faults {TINY} --batch-jobs 6 --stream-jobs 6 --interval 2", tmp_path)
    for table in found.values():
        rows = table.set_index("faults")
        assert rows.loc["stragglers", "fair"] > rows.loc["none", "fair"]
        assert rows.loc["stragglers", "fair"] >= rows.loc["speculation", "fair"]
        assert rows.loc["none", "failed jobs"] == 0


def test_each_objective_has_its_best_rule_as_reference(tmp_path: Path) -> None:
    found = tables(f"objectives {TINY} --jobs 6 --load 0.7", tmp_path)
    assert list(found) == ["misses 0.7", "weighted 0.7", "p99 0.7"]
    for table, column in zip(found.values(), ("deadline_misses", "weighted_jct_s", "p99_jct_s"), strict=True):
        rules = table[~table["scheduler"].isin(objectives.SEARCHED)]
        [reference] = [name.removeprefix("vs ") for name in table if name.startswith("vs ") and "_ci95" not in name]
        assert rules.set_index("scheduler")[column].idxmin() == reference


def test_a_guarantee_that_nothing_can_break_costs_nothing(tmp_path: Path) -> None:
    words = f"guarantees {TINY} --jobs 24 --interval 2 --factor 1 --factor 100"
    rows = tables(words, tmp_path)["cost"].set_index(["scheduler", "factor"])
    loose, tight = rows.xs(100, level="factor"), rows.xs(1, level="factor")
    assert (loose[["mean JCT", "p99 JCT", "late jobs", "late jobs, kept", "changed"]] == 0).all(axis=None)
    assert (tight["changed"] > 0).any()
    assert (tight["latest, kept (s)"] <= tight["latest (s)"]).any()
    assert list(loose.index) == list(guarantees.SCHEDULERS)
