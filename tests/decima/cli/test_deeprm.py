from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.learning.metrics_file import read_metrics
from decima.policy.grid_config import read_about
from tests.decima.cli.commands import succeeded
from tests.decima.learning.grid.examples import small
from tests.workloads.sources.test_swf import line, write

Train = Callable[..., Result]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Run a training with a file of settings for a small one."""
    (tmp_path / "small.yaml").write_text(small().to_yaml())
    return lambda *options: CliRunner().invoke(cli, ["deeprm", "train", *options])


def test_train_shows_the_network_against_the_heuristics(train: Train, tmp_path: Path) -> None:
    result = succeeded(train("--config", "small.yaml", "--set", "iterations=2", "--out", "out"))
    about = read_about(tmp_path / "out" / "policy.npz")
    lines = result.stdout.splitlines()
    rows = {row.split()[0]: row.split()[1:] for row in reversed(lines) if row.strip()}  # notes come last
    assert " ".join(result.stdout.split()).startswith("4 validation sets, means over their jobs; times are steps")
    assert rows["Scheduler"] == ["slowdown", "completion", "waiting"]
    results = about["validation"]["results"]
    assert [*results] == ["sjf", "packer", "tetris*", "random", "deeprm"]
    for name, measures in results.items():
        assert rows[name][:3] == [f"{measures[each]:.2f}" for each in rows["Scheduler"]]
    assert f"deeprm is the policy after {about['iteration']} of 2 iterations, the best on these sets;" in lines[-5]
    assert lines[-1].strip() == "decima deeprm compare --checkpoint out/policy.npz"
    assert about["command"] == "decima deeprm train --config small.yaml --set iterations=2 --out DIR"
    told = result.stderr.splitlines()
    assert told[0] == "heuristics on the validation sets: 0 of 4"
    assert told[1].startswith("0/2; validation slowdown ")
    assert told[-1].startswith("2/2; training slowdown ")
    assert "than the best heuristic" in told[-1]
    files = {"checkpoint.pt", "config.yaml", "learning-curve.png", "metrics.jsonl", "policy.md", "policy.npz"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*files, "tensorboard"}


def test_a_run_is_gone_on_with_its_own_settings(train: Train, tmp_path: Path) -> None:
    train("--config", "small.yaml", "--set", "seed=5", "--set", "iterations=2", "--out", "out")
    assert train("--resume", "--out", "out").exit_code == 0  # it is over
    succeeded(train("--resume", "--out", "out", "--set", "iterations=3"))
    assert [row["iteration"] for row in read_metrics(tmp_path / "out" / "metrics.jsonl")] == [0, 1, 2, 3]
    assert read_about(tmp_path / "out" / "policy.npz")["seed"] == 5


def test_jobs_may_come_from_a_log(train: Train, tmp_path: Path) -> None:
    """The log is of a machine with 8 processors; one line is omitted and reported."""
    jobs = [line(submit=60 * n, run=60 + 40 * (n % 5), allocated=1 + n % 4) for n in range(40)]
    write(tmp_path, *jobs, line(run=-1), header="; MaxProcs: 8\n", name="my log.swf")
    result = succeeded(train("--config", "small.yaml", "--log", "my log.swf", "--set", "iterations=1", "--out", "out"))
    assert result.stderr.startswith("my log.swf: 40 jobs on 8 processors; dropped 1 ")
    about = read_about(tmp_path / "out" / "policy.npz")
    assert about["config"]["jobs"]["log"] == "my log.swf"
    assert about["command"].endswith("--set iterations=1 --out DIR --log 'my log.swf'")
