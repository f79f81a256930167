"""Figure 18: reports of predicted runs; real jobs scheduled by Decima."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.evaluation.spark.fidelity import ALL, VARIANTS, Fidelity
from decima.service.sleeping import Setting
from decima.studies.fig18 import live_outcome, notes, plot, tables
from tests.decima.cli.commands import assert_same_again, succeeded
from tests.decima.evaluation.spark.test_fidelity import write_folder
from tests.decima.show.test_plots import difference
from tests.decima.studies.test_compared import printed
from tests.spark.harness import why_not


@pytest.fixture
def fidelity() -> Fidelity:
    """Return synthetic results."""
    place = np.arange(8)
    real = 6000.0 + 700 * (place * 5 % 8)
    off = 1 + 0.02 * (place % 5 - 2)
    others = dict.fromkeys(("no waves", "no parallelism", "no driver"), real * (1.2 + place / 40))
    runs = pd.DataFrame(
        {
            "data": [f"SF {1 + number // 4}, 12m/16" for number in place],
            "query": [f"q{1 + number % 4:02d}" for number in place],
            "run": [f"run{number}" for number in place],
            "real": real,
            "busy_cores": 1.5,
            "replay": real,
            "rerun": real * 1.05,
            ALL: real * off,
            **others,
        }
    )
    applications = pd.DataFrame(
        {
            "mixture": ["mix1"] * 4 + ["mix2"] * 4, "sharing": ["FAIR"] * 4 + ["FIFO"] * 4, "data": "SF 2, 12m/16",
            "query": runs["query"], "real": 2 * real, "busy_cores": 2.0, "replay": 2 * real,
            **dict.fromkeys(VARIANTS, 2 * real * off**2),
        }
    )  # fmt: skip
    return Fidelity(2, runs, runs[["run", "real", "replay"]], applications)


def test_picture_and_tables(fidelity: Fidelity, tmp_path: Path) -> None:
    assert difference(plot(fidelity), "fidelity", tmp_path) is None
    text = "\n".join(printed(*tables(fidelity)))
    assert "q01  SF 1, 12m/16" in text
    assert "mix2  FIFO" in text
    assert sum(line.split()[:1] == ["Mean"] for line in text.splitlines()) == 2
    assert notes(fidelity)[0].startswith("Alone: mean error 2.3% (paper: at most 5%)")
    assert notes(fidelity)[1].startswith("Sharing: mean error")
    assert "(1.50 cores of the machine were busy with one, 2.00 when they shared it)" in notes(fidelity)[5]


def test_recordings_without_mixtures_or_single_runs(fidelity: Fidelity) -> None:
    alone = Fidelity(2, fidelity.runs, fidelity.replays)
    assert len(tables(alone)) == 1
    assert len(plot(alone).axes) == 2 + 1
    assert not any(note.startswith("Sharing") for note in notes(alone))
    mixed = Fidelity(2, pd.DataFrame(), fidelity.replays, fidelity.applications)
    assert len(tables(mixed)) == 1
    assert not any(note.startswith(("Alone", "Rerun")) for note in notes(mixed))
    assert len(plot(mixed).axes) == 2


def test_the_command(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    results, out = tmp_path / "results.json", tmp_path / "pictures"
    options = ["--recordings", str(folder), "--seeds", "2", "--json", str(results), "--out", str(out)]
    shown = succeeded(CliRunner().invoke(cli, ["reproduce", "fig18", *options]))
    assert "Alone: mean error" in shown.stdout
    assert (out / "fig18.png").stat().st_size > 1000
    content = json.loads(results.read_text())
    assert content["command"] == f"decima reproduce fig18 --recordings {folder} --seeds 2"
    assert_same_again(results, "--out", str(out))
    assert (len(content["runs"]), len(content["applications"])) == (2, 4)


def test_errors_count_either_way_and_biases_do_not() -> None:
    rows = [("alone", 0, 10_000.0, 11_000.0), ("alone", 1, 20_000.0, 18_000.0), ("mixtures", 0, 10_000.0, 10_500.0)]
    found = live_outcome(pd.DataFrame(rows, columns=["kind", "run", "real_ms", "predicted_ms"]), Setting())
    shown = found.shown("decima")
    content = json.loads(shown.json)
    assert content["alone"] == {"error": pytest.approx(0.1), "bias": pytest.approx(0)}
    assert content["mixtures"] == {"error": pytest.approx(0.05), "bias": pytest.approx(0.05)}
    assert len(content["runs"]) == 3
    assert len(shown.pictures["fig18-live"]().axes) == 2


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_on_a_real_spark(tmp_path: Path) -> None:
    options = ["--batches", "1", "--executors", "2", "--out", str(tmp_path), "--json", str(tmp_path / "r.json")]
    succeeded(CliRunner().invoke(cli, ["reproduce", "fig18", "--live", *options]))
    content = json.loads((tmp_path / "r.json").read_text())
    assert [run["kind"] for run in content["runs"]] == ["alone", "alone", "mixtures"]
    assert (tmp_path / "fig18-live.png").exists()
