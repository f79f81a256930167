"""Several applications on a standalone cluster of Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.service.sleeping import Setting
from decima.studies.on_spark import FIFO, SHARES, applications_outcome
from tests.spark.harness import why_not


def test_changes_are_paired_and_count_by_size() -> None:
    rows = [
        {"batch": batch, "scheduler": name, "real_ms": mean_ms, "jct_ms": [mean_ms] * 4}
        for batch, means in enumerate([(40_000, 20_000, 10_000), (80_000, 40_000, 50_000)])
        for name, mean_ms in zip((FIFO, SHARES, "decima"), map(float, means), strict=True)
    ]
    shown = applications_outcome(pd.DataFrame(rows), Setting(jobs=4, batches=2)).shown("decima")
    content = json.loads(shown.json)
    decima = content["schedulers"]["decima"]
    assert decima["change"][FIFO]["mean"] == pytest.approx(-0.5)
    assert decima["change"][SHARES]["mean"] == pytest.approx(0)
    assert decima["mean_jct_ms"]["mean"] == 30_000
    assert len(content["runs"]) == 6
    assert [table.row_count for table in shown.tables] == [3, 2]
    [axes] = shown.pictures["spark-applications"]().axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[40, 80], [20, 40], [10, 50]]


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_on_a_real_cluster(tmp_path: Path) -> None:
    size = ["--batches", "1", "--jobs", "2", "--executors", "2", "--scale", "0.3", "--tasks", "0.005"]
    options = [*size, "--out", str(tmp_path), "--json", str(tmp_path / "found.json")]
    result = CliRunner().invoke(cli, ["reproduce", "spark-applications", *options])
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "found.json").read_text())
    assert list(content["schedulers"]) == [FIFO, SHARES, "decima"]
    for run in content["runs"]:
        assert len(run["jct_ms"]) == 2
        assert min(run["jct_ms"]) > 0
    assert (tmp_path / "spark-applications.png").stat().st_size > 1000
