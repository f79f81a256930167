"""Figure 18: tables and picture from made-up predictions, and the command on recordings."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from reproduce.__main__ import cli
from reproduce.fig18 import in_seconds, plot
from reproduce.spark.fidelity import ALL, VARIANTS, Fidelity
from tests.decima.show.test_plots import difference
from tests.reproduce.spark.test_fidelity import write_folder


@pytest.fixture
def fidelity() -> Fidelity:
    """Return synthetic results."""
    index = np.arange(8)
    real = 6000.0 + 700 * (index * 5 % 8)
    off = 1 + 0.02 * (index % 5 - 2)
    others = dict.fromkeys(("no waves", "no parallelism", "no driver"), real * (1.2 + index / 40))
    runs = pd.DataFrame(
        {
            "data": [f"SF {1 + run // 4}, 12m/16" for run in index],
            "query": [f"q{1 + run % 4:02d}" for run in index],
            "run": [f"run{run}" for run in index],
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
    queries, mixtures = in_seconds(fidelity.queries()), in_seconds(fidelity.mixtures())
    assert list(queries)[:5] == ["data", "query", "runs", "real (s)", "simulated (s)"]
    assert queries["real (s)"][0] == fidelity.runs["real"][0] / 1000
    assert mixtures[["mixture", "sharing", "runs"]].to_numpy().tolist() == [["mix1", "FAIR", 4], ["mix2", "FIFO", 4]]


def test_recordings_without_mixtures_or_single_runs(fidelity: Fidelity) -> None:
    alone = Fidelity(2, fidelity.runs, fidelity.replays)
    assert in_seconds(alone.mixtures()).empty
    assert len(plot(alone).axes) == 2 + 1
    mixed = Fidelity(2, pd.DataFrame(), fidelity.replays, fidelity.applications)
    assert in_seconds(mixed.queries()).empty
    assert len(plot(mixed).axes) == 2


def test_the_command(tmp_path: Path) -> None:
    words = ["fig18", "--recordings", str(write_folder(tmp_path)), "--seeds", "2", "--out", str(tmp_path / "out")]
    CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    content = json.loads((tmp_path / "out" / "fig18.json").read_text())
    assert list(content["tables"]) == ["errors", "queries", "mixtures"]
    [row] = [
        row for row in content["tables"]["errors"] if (row["where"], row["prediction"]) == ("sharing", "predicted")
    ]
    assert row["paper"] == 0.09
    assert f"{row['mean']:.1%}" == content["values"]["sharing mean"]
    assert (tmp_path / "out" / "fig18.png").stat().st_size > 1000


def test_without_recordings_the_error_says_how_to_name_them() -> None:
    done = CliRunner().invoke(cli, ["fig18"])
    assert done.exit_code == 2
    assert "--recordings DIR" in done.stderr
