"""The command ``decima deeprm compare``."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.evaluation.grid import MAX_STEPS
from decima.schedulers.grid import ShortestJobFirst, play
from simulator import Grid, GridConfig
from tests.decima.cli.commands import assert_same_again, succeeded
from workloads.sources.swf import read_swf, swf_jobs

#: Invokes the command with the given options.
Compare = Callable[..., Result]

SMALL = ("--sets", "3", "--loads", "50,150")


@pytest.fixture(autouse=True)
def _no_network_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.evaluation.grid.SHIPPED_NETWORK", tmp_path / "none.npz")


@pytest.fixture
def run() -> Compare:
    """Run a small comparison with more options."""

    def run(*options: str | Path, base: tuple[str, ...] = SMALL) -> Result:
        return CliRunner().invoke(cli, ["deeprm", "compare", *base, *map(str, options)])

    return run


def rows(result: Result) -> list[list[str]]:
    """Return the table's rows, cells without intervals."""
    lines = [line for line in result.stdout.splitlines() if re.match(r" *[\d.]+ % ", line)]
    return [[cell for cell in line.split() if cell[0].isdigit()] for line in lines]


@pytest.mark.usefixtures("pictures")
def test_it_shows_a_table_and_saves_json_and_a_picture(run: Compare, tmp_path: Path) -> None:
    result = succeeded(run("--json", "r.json", "--seed", "5", "--out", "drawn"))
    assert result.stderr == ""
    document = json.loads((tmp_path / "r.json").read_text())
    for row, entry in zip(rows(result), document["loads"], strict=True):
        names = ["sjf", "packer", "tetris*", "random"]
        assert list(entry["schedulers"]) == names
        assert row[0] == f"{100 * entry['load']:g}"
        expected = [entry["schedulers"][name]["slowdown"] for name in names]
        assert row[1:] == [f"{value:.2f}" for each in expected for value in (each["mean"], each["ci95"])]
        assert len(expected[0]["per_set"]) == 3
        assert entry["tetris_knob"] > 0
    assert (tmp_path / "drawn" / "deeprm-slowdown.png").stat().st_size > 1000
    assert "picture: drawn/deeprm-slowdown.png" in result.stdout
    assert "deeprm is omitted" in result.stdout
    words = shlex.split(document["command"])
    assert words[:5] == ["decima", "deeprm", "compare", "--loads", "50,150"]
    assert words[words.index("--seed") + 1] == "5"
    assert "--json" not in words
    assert_same_again(tmp_path / "r.json", "--measure", "waiting")


def test_the_command_gives_the_same_results_of_rates_and_logs(run: Compare, log: Path, tmp_path: Path) -> None:
    for options in (("--rates", "0.25,1"), ("--loads", "70", "--log", log, "--semantics", "deeprm")):
        base = ("--sets", "2", "--heuristics", "sjf,random:3")
        succeeded(run(*options, "--json", "r.json", base=base))
        assert_same_again(tmp_path / "r.json")


def test_rates_measures_and_jobs_of_a_comparison(run: Compare, tmp_path: Path) -> None:
    result = run("--rates", "0.5,1", "--heuristics", "sjf", base=("--sets", "2"))
    assert [row[0] for row in rows(result)] == ["92.25", "184.5"]
    assert "184.5 % (highest)" in result.stdout
    result = succeeded(run("--measure", "completion", "--distribution", "coarse", "--out", "p", base=("--sets", "2")))
    assert "Completion time (steps): DeepRM's jobs on 10 units" in result.stdout
    assert (tmp_path / "p" / "deeprm-completion.png").exists()


def test_jobs_of_a_log(run: Compare, log: Path, tmp_path: Path) -> None:
    result = succeeded(run("--log", log, "--json", "r.json", "--heuristics", "sjf"))
    assert "small.swf.gz: 299 jobs on 64 processors; dropped 1 with unknown run time" in result.stdout
    [low, _] = json.loads((tmp_path / "r.json").read_text())["loads"]
    jobs = swf_jobs(read_swf(log), load=0.5, sets=3, steps=50, slots=10, seed=0)
    record = play(Grid(GridConfig(max_steps=MAX_STEPS), jobs), ShortestJobFirst())
    assert low["schedulers"]["sjf"]["slowdown"]["mean"] == pytest.approx(np.nanmean(record.slowdown()))
    assert low["rate"] is None


def test_a_network(run: Compare, network: Callable[..., Path]) -> None:
    path = network()
    result = succeeded(run("--checkpoint", path, "--heuristics", "sjf"))
    assert len(rows(result)[0]) == 1 + 2 * 2
    assert f"deeprm: the network {path}, trained on DeepRM's jobs as its code draws them, load 70 %." in (result.stdout)


def test_the_network_that_ships(run: Compare, network: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.evaluation.grid.SHIPPED_NETWORK", network())
    assert "deeprm: the network" in run("--heuristics", "sjf").stdout
    small = ("--sets", "2", "--loads", "50", "--heuristics", "sjf")
    for other in (("--distribution", "paper"), ("--machines", "2")):
        assert "deeprm is omitted" in run(*other, base=small).stdout
