"""Studies on a real Spark: results, pictures, commands."""

import builtins
import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.service.sleeping import Setting
from decima.studies.on_spark import FIFO, SHARES, applications_outcome, change, fig9_outcome
from tests.cases import cases
from tests.decima.cli.commands import succeeded
from tests.spark.harness import why_not


def test_changes_of_figure_9_are_paired_and_count_by_size() -> None:
    rows = [
        {
            "batch": batch, "scheduler": name, "real_ms": real_ms, "predicted_ms": 0.9 * real_ms, "task_ms": 20.0,
            "stage_ms": 100.0, "jct_ms": [real_ms, real_ms],
        }
        for name, both in {"Spark FIFO": (2e4, 4e4), "Spark FAIR": (1e4, 3e4), "decima": (1e4, 2e4)}.items()
        for batch, real_ms in enumerate(both)
    ]  # fmt: skip
    runs = pd.DataFrame(rows)
    assert change(runs, "decima", "Spark FIFO").mean == pytest.approx(-0.5)
    assert change(runs, "decima", "Spark FAIR").mean == pytest.approx(-0.25)
    shown = fig9_outcome(runs, "", Setting(batches=2, jobs=2)).shown("decima")
    content = json.loads(shown.json)
    assert content["schedulers"]["decima"]["error"] == pytest.approx(-0.1)
    assert content["schedulers"]["decima"]["change"]["Spark FIFO"]["mean"] == pytest.approx(-0.5)
    assert len(content["runs"]) == 6
    assert len(shown.pictures["fig9-spark"]().axes) == 2
    assert [table.row_count for table in shown.tables] == [3, 2]


def test_without_pyspark_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *more: object, **others: object) -> object:
        if name == "pyspark":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return real(name, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    result = CliRunner().invoke(cli, ["reproduce", "fig9-spark", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "fig9-spark needs pyspark: pip install -e '.[spark]'" in result.stderr


def test_changes_of_applications_are_paired_and_count_by_size() -> None:
    rows = [
        {"batch": batch, "scheduler": name, "real_ms": mean_ms, "jct_ms": [mean_ms] * 4}
        for batch, means in enumerate([(40_000, 20_000, 10_000), (80_000, 40_000, 50_000)])
        for name, mean_ms in zip((FIFO, SHARES, "decima"), map(float, means), strict=True)
    ]
    shown = applications_outcome(pd.DataFrame(rows), Setting(jobs=4, batches=2)).shown("decima")
    content = json.loads(shown.json)
    decima = content["schedulers"]["decima"]
    assert decima["change"][FIFO]["mean"] == pytest.approx(-0.5)
    assert (decima["change"][SHARES]["mean"], decima["mean_jct_ms"]["mean"]) == (pytest.approx(0), 30_000)
    assert len(content["runs"]) == 6
    assert [table.row_count for table in shown.tables] == [3, 2]
    [axes] = shown.pictures["spark-applications"]().axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[40, 80], [20, 40], [10, 50]]


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@cases(
    "study, schedulers",
    ("fig9-spark", ["Spark FIFO", "Spark FAIR", "weighted fair", "decima"]),
    ("spark-applications", [FIFO, SHARES, "decima"]),
)
def test_on_a_real_spark(study: str, schedulers: list[str], tmp_path: Path) -> None:
    size = ["--batches", "1", "--jobs", "2", "--executors", "2", "--scale", "0.3", "--tasks", "0.005"]
    options = [*size, "--out", str(tmp_path), "--json", str(tmp_path / "found.json")]
    succeeded(CliRunner().invoke(cli, ["reproduce", study, *options]))
    content = json.loads((tmp_path / "found.json").read_text())
    assert list(content["schedulers"]) == schedulers
    for run in content["runs"]:
        assert len(run["jct_ms"]) == 2
        assert min(run["jct_ms"]) > 0
    assert (tmp_path / f"{study}.png").stat().st_size > 1000
