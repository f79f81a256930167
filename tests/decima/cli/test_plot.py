"""The command ``decima plot``."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from tests.decima.cli.commands import assert_one_line_error, succeeded

#: A training of a fraction of a second.
TRAIN = (
    "deeprm train --set iterations=2 --set validation.every=1 --set episodes.sets=2 --set episodes.per_set=2 "
    "--set validation.sets=2 --set behaviour_cloning=null"
)


def invoke(line: str) -> Result:
    return CliRunner().invoke(cli, line.split())


@pytest.mark.usefixtures("pictures")
def test_trainings_that_differ_by_seed_are_one_curve() -> None:
    for rate in (0.01, 0.1):
        for seed in (0, 1):
            options = f"--set update.learning_rate={rate} --set seed={seed} --out out/{rate}-{seed}"
            succeeded(invoke(f"{TRAIN} {options}"))
    plotted = succeeded(invoke("plot out --metric entropy --out pictures"))
    assert "entropy: mean over runs that differ only by seed" in plotted.stdout
    rows = [line.split() for line in plotted.stdout.splitlines() if "update.learning_rate=" in line]
    assert [row[:2] for row in rows] == [["update.learning_rate=0.01", "2"], ["update.learning_rate=0.1", "2"]]
    assert Path("pictures/entropy.png").read_bytes().startswith(b"\x89PNG")
    assert "picture: plot/validation_slowdown.png" in succeeded(invoke("plot out/0.01-0 out/0.1-0")).stdout
    assert_one_line_error(invoke("plot out --metric jct"), "has no metric jct; it has ")
    assert_one_line_error(invoke("plot pictures"), "pictures: no training run")
