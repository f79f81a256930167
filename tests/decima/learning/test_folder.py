"""The folder of a training: one training at a time, no new files of a training that cannot start, and resuming."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.learning import IterationReport, train_policy
from decima.outputs import LOCK, OutputError, folder_lock
from decima.settings import DivergedError, TrainingError
from tests.cases import cases
from tests.decima.learning.cluster.examples import small
from tests.decima.learning.examples import Runs
from tests.programs import started
from tests.refusal import one_line
from workloads.errors import NotFiniteError

BUSY = "another training writes into this folder now"


def test_a_second_training_with_the_same_folder_is_refused(runs: Runs, tmp_path: Path) -> None:
    config, message = runs.config(), f"{tmp_path / 'out'}: {BUSY}; "
    early = runs.trainer(config)
    refused = []

    def try_the_same_folder(report: IterationReport) -> None:
        refused.append(one_line(OutputError, runs.trainer, config))
        refused.append(one_line(OutputError, runs.trainer, config, resume=True))
        refused.append(one_line(OutputError, early.run))

    runs.trainer(config).run(try_the_same_folder)
    assert len(refused) == 12  # after iteration 0 and each of three iterations
    assert all(each.startswith(message) for each in refused)
    with pytest.raises(TrainingError, match="another training has written into this folder meanwhile"):
        early.run()
    runs.train(config, "whole")
    runs.assert_same("whole", "out")


def test_a_training_from_python_respects_the_lock(tmp_path: Path) -> None:
    out = tmp_path / "one"
    out.mkdir()
    with folder_lock(out):
        assert BUSY in one_line(OutputError, train_policy, small(tmp_path), out)
        assert [path.name for path in out.iterdir()] == [LOCK]
    assert not list(out.iterdir())


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys, time
from decima.outputs import folder_lock
with folder_lock(pathlib.Path({str(tmp_path)!r})):
    print("locked", flush=True)
    time.sleep(600)
"""

    with started((sys.executable, "-c", code), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(OutputError, match=BUSY), folder_lock(tmp_path):
            pass
        process.kill()
        process.wait()
        with folder_lock(tmp_path):
            pass


@cases("command", "train", "train --config quick", "deeprm train", "deeprm train --config a2c")
def test_resume_needs_a_training_run(command: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("typo/of/folder", "empty"):
        message = f"{tmp_path / name}: contains no training run to resume"
        result = CliRunner().invoke(cli, [*command.split(), "--resume", "--out", str(tmp_path / name)])
        assert (result.exit_code, result.stderr) == (2, f"decima: error: {message}\n")
        assert message == one_line(TrainingError, train_policy, small(tmp_path), tmp_path / name, resume=True)
    assert not (tmp_path / "typo").exists()
    assert not list((tmp_path / "empty").iterdir())


def test_a_run_that_was_killed_before_its_first_checkpoint_is_resumed(runs: Runs, tmp_path: Path) -> None:
    config = runs.config()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.yaml").write_text(config.to_yaml())
    assert runs.train(config, resume=True).iteration == 3


def paths_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


@pytest.mark.parametrize("there", [(), ("a",), ("a", "a/out", "a/out/notes.txt"), ("a", "a/out", "a/out/config.yaml")])
def test_a_training_that_cannot_start_leaves_the_folders_as_they_were(
    there: tuple[str, ...], grid_runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in there:
        (tmp_path / name).write_text("mine") if "." in name else (tmp_path / name).mkdir()
    before = paths_below(tmp_path)
    missing = grid_runs.config(start=str(tmp_path / "missing.npz"), behaviour_cloning=None)
    with pytest.raises(Exception, match=r"missing\.npz"):
        grid_runs.train(missing, "a/out")
    assert paths_below(tmp_path) == before

    trainer = grid_runs.trainer(grid_runs.config(), "a/out")

    def diverge() -> dict[str, Any]:
        raise NotFiniteError("the loss is nan")

    monkeypatch.setattr(trainer, "_run_heuristics", diverge)
    with pytest.raises(DivergedError, match="there is no checkpoint yet"):
        trainer.run()
    assert paths_below(tmp_path) == before


def test_a_training_that_fails_later_keeps_its_files(grid_runs: Runs, tmp_path: Path) -> None:
    def fail(report: IterationReport) -> None:
        if report.iteration == 1:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        grid_runs.trainer(grid_runs.config()).run(fail)
    assert {"checkpoint.pt", "policy.npz", "config.yaml", "metrics.jsonl"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
