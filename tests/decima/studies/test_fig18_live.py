"""Predictions against a real Spark with Decima in charge."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.studies.fig9_spark import Setting
from decima.studies.fig18_live import LiveFidelity, plot_live_fidelity, shown
from tests.spark.harness import why_not


def found() -> LiveFidelity:
    """Made up."""
    rows = [
        ("alone", 0, 10_000.0, 11_000.0),
        ("alone", 1, 20_000.0, 18_000.0),
        ("mixtures", 0, 10_000.0, 10_500.0),
    ]
    return LiveFidelity(Setting(), pd.DataFrame(rows, columns=["kind", "run", "real_ms", "predicted_ms"]))


def test_errors_count_either_way_and_biases_do_not() -> None:
    assert found().error("alone") == pytest.approx(0.1)
    assert found().bias("alone") == pytest.approx(0)
    content = json.loads(shown(found(), "decima").json)
    assert content["mixtures"] == {"error": pytest.approx(0.05), "bias": pytest.approx(0.05)}
    assert len(content["runs"]) == 3
    assert len(plot_live_fidelity(found()).axes) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--live", "--seeds", "3"], "--seeds has no effect: with --live"),
        (["--live", "--recordings", "."], "--recordings has no effect: with --live"),
        (["--batches", "3"], "--batches has no effect: it is for --live"),
        ([], "--live runs jobs now"),
    ],
)
def test_what_has_no_effect_is_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["reproduce", "fig18", *options])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_on_a_real_spark(tmp_path: Path) -> None:
    options = [
        "--batches",
        "1",
        "--executors",
        "2",
        "--out",
        str(tmp_path),
        "--json",
        str(tmp_path / "r.json"),
    ]
    result = CliRunner().invoke(cli, ["reproduce", "fig18", "--live", *options])
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "r.json").read_text())
    assert [run["kind"] for run in content["runs"]] == ["alone", "alone", "mixtures"]
    assert (tmp_path / "fig18-live.png").exists()
