"""Figures on a real Spark: tables and pictures from made-up runs, a missing pyspark, and small runs."""

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from reproduce import fig9_spark, fig18_live, spark_applications, spark_workloads, unknown_spark
from reproduce.__main__ import cli
from reproduce.spark import sleeping
from reproduce.spark.live import LiveSparkError
from reproduce.spark_applications import FIFO, SHARES
from tests.cases import cases
from tests.spark.harness import why_not


def test_figure_9_compares_schedulers_on_the_same_batches_and_with_predictions() -> None:
    runs = pd.DataFrame(
        {"batch": batch, "scheduler": name, "real_ms": real_ms, "predicted_ms": 0.9 * real_ms}
        for batch in (0, 1)
        for name, both in {"Spark FIFO": (2e4, 4e4), "Spark FAIR": (1e4, 3e4), "decima": (1e4, 2e4)}.items()
        for real_ms in [both[batch]]
    )
    tables = fig9_spark.tables(runs)
    rows = tables["schedulers"].set_index("scheduler")
    assert rows.loc["decima", ["mean_jct_s", "error", "vs Spark FIFO", "vs Spark FAIR"]].tolist() == pytest.approx(
        [15.0, -0.1, -0.5, -0.25]
    )
    assert tables["batches"]["decima, predicted"].tolist() == pytest.approx([9.0, 18.0])
    assert len(fig9_spark.plot(runs).axes) == 2


def test_errors_of_figure_18_count_either_way_and_biases_do_not() -> None:
    runs = pd.DataFrame({"batch": [0, 1], "real_ms": [10_000.0, 20_000.0], "predicted_ms": [11_000.0, 18_000.0]})
    row = fig18_live.row("a job alone", runs)
    assert [row[name] for name in ("runs", "mean_jct_s", "error")] == pytest.approx([2, 15.0, 0.1])
    assert row["bias"] == pytest.approx(0.0)
    assert len(fig18_live.plot({"a job alone": runs, "mixtures": runs}).axes) == 2


def test_ways_to_share_a_cluster_are_compared_on_the_same_batches() -> None:
    means = pd.DataFrame({FIFO: [40.0, 80.0], SHARES: [20.0, 40.0], "decima": [10.0, 50.0]})
    rows = spark_applications.comparison(means).set_index("scheduler")
    assert rows.loc["decima", ["mean (s)", f"vs {FIFO}", f"vs {SHARES}"]].tolist() == pytest.approx([30.0, -0.5, 0.0])
    [axes] = spark_applications.plot(means, jobs=4, slots=8).axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[40, 80], [20, 40], [10, 50]]


def test_estimators_of_unknown_jobs_on_spark_are_compared_on_the_same_batches() -> None:
    times_s = {unknown_spark.FAIR: (20.0, 40.0), unknown_spark.TYPICAL: (16.0, 32.0), unknown_spark.FOREST: (8.0, 40.0)}
    runs = pd.DataFrame(
        {"batch": batch, "scheduler": way, "mean_s": of_way[batch]}
        for way, of_way in times_s.items()
        for batch in (1, 0)
    )
    rows = unknown_spark.comparison(runs).set_index("scheduler")
    assert rows["mean_jct_s"].tolist() == [30.0, 24.0, 24.0]
    changes = rows[[f"vs {unknown_spark.FAIR}", f"vs {unknown_spark.TYPICAL}"]]
    assert changes.loc[unknown_spark.FOREST].tolist() == pytest.approx([-0.2, 0.0])
    assert changes.loc[unknown_spark.FAIR].isna().all()


def test_ways_to_schedule_real_work_are_compared_with_fair_on_the_same_batches() -> None:
    runs = pd.DataFrame(
        {"batch": batch, "kind": kind, "job": job, "scheduler": way, "jct_s": jct_s, "load": 1.0}
        for way in spark_workloads.WAYS
        for batch, kind, fair_s in ((0, "ETL", (10.0, 30.0)), (1, "SQL", (40.0, 80.0)))
        for job, jct_s in enumerate(fair_s if way == spark_workloads.FAIR else (0.75 * fair_s[0], 0.75 * fair_s[1]))
    )
    result = spark_workloads.result(runs)
    rows = result.tables["ways"].set_index("scheduler")
    assert rows["mean_jct_s"].tolist() == [30.0, 40.0, *[30.0] * (len(rows) - 2)]
    changes = ["vs Spark FIFO", "vs Spark FAIR", "ETL vs FAIR", "SQL vs FAIR"]
    assert rows.loc["decima", changes].tolist() == pytest.approx([0.0, -0.25, -0.25, -0.25])
    assert rows.loc[spark_workloads.FAIR, changes[1:]].isna().all()
    assert result.tables["batches"]["kind"].tolist() == ["ETL", "SQL"]
    assert len(result.tables["jobs"]) == 4
    [axes] = result.pictures["spark-workloads"].axes
    assert axes.patches[0].get_height() == pytest.approx(-25)


def test_a_missing_pyspark_is_told_before_the_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "find_spec", lambda name: None)
    for figure in (fig9_spark, spark_workloads, unknown_spark):
        with pytest.raises(LiveSparkError, match=r"pip install -e '\.\[spark\]'"):
            figure.run()


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@cases(
    "words, first, rows",
    ("fig9-spark --jobs 2 --executors 2 --batches 1 --tasks 0.005 --scale 0.3", "schedulers", 4),
    ("fig18-live --jobs 2 --executors 2 --batches 1 --tasks 0.005 --scale 0.3", "fidelity", 2),
    ("spark-applications --jobs 2 --slots 2 --batches 1 --tasks 0.005 --scale 0.3", "ways", 3),
    ("unknown-spark --jobs 2 --executors 2 --batches 1 --tasks 0.005 --scale 0.3 --master local[2]", "ways", 3),
    ("spark-workloads --jobs 2 --batches 3 --scale 0.2", "ways", 5),
)
def test_on_a_real_spark(words: str, first: str, rows: int, tmp_path: Path) -> None:
    name = words.partition(" ")[0]
    CliRunner().invoke(cli, [*words.split(), "--out", str(tmp_path)], standalone_mode=False, catch_exceptions=False)
    table = pd.DataFrame(json.loads((tmp_path / f"{name}.json").read_text())["tables"][first])
    assert len(table) == rows
    times = table["mean (s)"] if name == "spark-applications" else table["mean_jct_s"]
    assert (times > 0).all()
    if name != "unknown-spark":  # tables alone
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
