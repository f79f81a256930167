"""The commands ``decima sweep`` and ``decima plot``."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from decima.cli import sweep as command
from decima.cli.main import cli
from tests.decima.cli.commands import assert_one_line_error, succeeded
from tests.decima.learning.examples import assert_same_run
from tests.decima.learning.test_sweep import GRID, SAMPLED
from tests.programs import started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Path("grid.yaml").write_text(yaml.safe_dump(GRID, sort_keys=False))
    Path("sampled.yaml").write_text(yaml.safe_dump(SAMPLED, sort_keys=False))
    return tmp_path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def results(out: str) -> Any:
    """Return all results except times."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: timeless(each) for name, each in value.items() if name != "cpu_s"}
        return [timeless(each) for each in value] if isinstance(value, list) else value

    return timeless(json.loads(Path(out, "results.json").read_text()))


@pytest.mark.usefixtures("pictures")
def test_a_sweep_is_shown_saved_and_drawn_and_its_trainings_can_be_plotted(folder: Path) -> None:
    result = succeeded(invoke("sweep", "--config", "grid.yaml", "--out", "out", "--set", "validation.sets=5"))
    found = results("out")
    assert found["command"] == "decima sweep --config grid.yaml --set validation.sets=5"
    assert found["sweep"]["fixed"]["validation.sets"] == 5
    rows = [line.split() for line in result.stdout.splitlines()]
    shown = {row[0]: row[1:] for row in rows if row and row[0] in "01"}
    for trial in found["trials"]:
        row = shown[str(trial["number"])]
        assert float(row[0]) == trial["settings"]["update.learning_rate"]
        assert float(row[1]) == pytest.approx(trial["objective"]["mean"], abs=0.01)
        assert float(row[3]) == pytest.approx(trial["objective"]["half_width"], abs=0.01)
        assert len(trial["seeds"]) == 2
    with Path("out/results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(row["trial"], row["seed"]) for row in table] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert float(table[2]["objective"]) == found["trials"][1]["seeds"][0]["objective"]
    assert Path("out/learning-curves.png").read_bytes().startswith(b"\x89PNG")

    plotted = succeeded(invoke("plot", "out", "--metric", "entropy", "--out", "pictures"))
    assert "entropy: mean over runs that differ only by seed" in plotted.stdout
    assert "update.learning_rate=0.01" in plotted.stdout
    assert Path("pictures/entropy.png").read_bytes().startswith(b"\x89PNG")
    assert "picture: plot/validation_slowdown.png" in invoke("plot", "out/trial-000").stdout
    assert_one_line_error(invoke("plot", "out", "--metric", "jct"), "has no metric jct; it has ")
    assert_one_line_error(invoke("plot", "pictures"), "pictures: no training run")
    assert_one_line_error(
        invoke("sweep", "--config", "grid.yaml", "--out", "out"), "belongs to a sweep with other fixed"
    )


def test_ctrl_c_shows_what_has_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from decima.learning import sweep

    train_all = sweep.train_all

    def interrupted(configs: dict[str, Any], *rest: Any) -> Any:
        if "trial-001/seed-1" in configs:
            raise KeyboardInterrupt
        return train_all(configs, *rest)

    monkeypatch.setattr(sweep, "train_all", interrupted)
    result = invoke("sweep", "--config", "grid.yaml", "--out", "out")
    assert result.exit_code == 130
    assert (
        result.stderr.splitlines()[-1] == "decima: interrupted after 1 of 2 trials; the same command resumes the sweep"
    )
    assert "1 of 2 trials" in result.stdout
    assert len(results("out")["trials"]) == 1


def test_without_optuna_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    refused = invoke("sweep", "--config", "grid.yaml", "--out", "out")
    assert_one_line_error(refused, "decima sweep needs the optuna package: pip install -e '.[sweep]'")


def start(out: str) -> AbstractContextManager[subprocess.Popen[str]]:
    words = (sys.executable, "-m", "decima", "sweep", "--config", "sampled.yaml", "--out", out)
    return started(words, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_ended_by_a_signal_goes_on_with_the_same_command(folder: Path, number: signal.Signals) -> None:
    succeeded(invoke("sweep", "--config", "sampled.yaml", "--out", "whole"))
    for begun in ("trial-000/seed-1", "trial-001/seed-0"):
        with start("out") as process:
            while not Path("out", begun, "metrics.jsonl").exists():
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.002)
            os.kill(process.pid, number)
            errors = process.communicate()[1]
            assert "Traceback" not in errors
            assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    succeeded(invoke("sweep", "--config", "sampled.yaml", "--out", "out"))
    assert results("out") == results("whole")
    for run in Path("whole").glob("trial-*/seed-*"):
        assert_same_run(run, Path("out", *run.parts[1:]))
