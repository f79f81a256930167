"""Figure 9 on a real Spark: what is predicted, what runs, and how they compare."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.studies.fig9_spark import LiveComparison, Setting, sleeping
from decima.studies.fig9_spark_report import plot_live, shown
from decima.studies.live_spark import Overhead, runs_as_it_is
from tests.spark.harness import why_not
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, StageProfile, TaskDurations
from workloads.sources.tpch_measured import embedded_tpch


def a_job(sizes: list[int], edges: list[tuple[int, int]]) -> JobProfile:
    stages = tuple(StageProfile(size, TaskDurations.constant(100.0)) for size in sizes)
    return JobProfile("job", stages, np.array(edges))


def test_which_jobs_spark_can_run() -> None:
    assert runs_as_it_is(a_job([3, 2, 2], [(0, 1), (0, 2), (1, 2)]))
    assert not runs_as_it_is(a_job([3, 2, 4], [(0, 1), (0, 2), (1, 2)])), (
        "one shuffle has one number of readers"
    )
    assert not runs_as_it_is(a_job([3, 2, 2], [(0, 1), (0, 2)])), "a job ends in one stage"


def test_each_task_has_a_duration_of_its_own_the_same_for_all() -> None:
    setting = Setting(scale=2.0, tasks=0.05)
    for profile in embedded_tpch()[:8]:
        nap = sleeping(profile, setting)
        assert nap.edges.tolist() == profile.edges.tolist()
        for before, stage, again in zip(
            profile.stages, nap.stages, sleeping(profile, setting).stages, strict=True
        ):
            assert stage.num_tasks == max(1, round(0.05 * before.num_tasks)) == len(stage.durations.values)
            assert list(stage.durations.values) == list(again.durations.values)
            assert max(stage.durations.values) <= np.round(2 * max(before.durations.values))


def test_what_takes_longer_than_tasks_sleep_is_predicted() -> None:
    """One executor, stages of two tasks of 100 ms; nobody waits for a stage to begin where Spark is in charge."""
    jobs = JobSequence((a_job([2, 2], [(0, 1)]),), np.zeros(1))
    setting, overhead = Setting(executors=1), Overhead(20.0, 50.0)
    assert setting.predicted_ms(jobs, "decima", "fifo", overhead) == 2 * (170 + 120)
    assert setting.predicted_ms(jobs, "Spark FIFO", "fifo", overhead) == 4 * 120
    assert setting.predicted_ms(jobs, "Spark FAIR", "fair", overhead) == 4 * 120


def found() -> LiveComparison:
    rows = [
        {
            "batch": batch,
            "scheduler": name,
            "real_ms": real_ms,
            "predicted_ms": 0.9 * real_ms,
            "task_ms": 20.0,
            "stage_ms": 100.0,
            "jct_ms": [real_ms, real_ms],
        }
        for name, both in {"Spark FIFO": (2e4, 4e4), "Spark FAIR": (1e4, 3e4), "decima": (1e4, 2e4)}.items()
        for batch, real_ms in enumerate(both)
    ]
    return LiveComparison(Setting(batches=2, jobs=2), pd.DataFrame(rows), "")


def test_changes_are_paired_and_count_by_size() -> None:
    assert found().change("decima", "Spark FIFO").mean == pytest.approx(-0.5)
    assert found().change("decima", "Spark FAIR").mean == pytest.approx(-0.25)
    assert found().error("decima") == pytest.approx(-0.1)
    content = json.loads(shown(found(), "decima").json)
    assert content["schedulers"]["decima"]["change"]["Spark FIFO"]["mean"] == pytest.approx(-0.5)
    assert len(content["runs"]) == 6
    assert len(plot_live(found()).axes) == 2


def test_who_lacks_pyspark_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *more: object, **others: object) -> object:
        if name == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return real(name, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    result = CliRunner().invoke(cli, ["reproduce", "fig9-spark", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "fig9-spark needs pyspark: pip install -e '.[spark]'" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_on_a_real_spark(tmp_path: Path) -> None:
    size = ["--batches", "1", "--jobs", "2", "--executors", "2", "--scale", "0.3", "--tasks", "0.005"]
    options = [*size, "--out", str(tmp_path), "--json", str(tmp_path / "found.json")]
    result = CliRunner().invoke(cli, ["reproduce", "fig9-spark", *options])
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "found.json").read_text())
    assert list(content["schedulers"]) == ["Spark FIFO", "Spark FAIR", "weighted fair", "decima"]
    for run in content["runs"]:
        assert len(run["jct_ms"]) == 2
        assert min(run["jct_ms"]) > 0
    assert (tmp_path / "fig9-spark.png").stat().st_size > 1000
