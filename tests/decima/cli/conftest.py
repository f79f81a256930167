"""A small ``decima compare``."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from tests.decima.cli.commands import Compare
from tests.decima.evaluation.examples import LIBRARY
from workloads import write_workload


@pytest.fixture(autouse=True)
def _in_a_new_folder_where_no_time_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of progress messages, so that they do not depend on the load of the machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("decima.progress.time", SimpleNamespace(monotonic=lambda: 0.0))


@pytest.fixture
def pictures() -> None:
    """Draw pictures. Without this fixture their files are empty: drawing takes most of the time of a command."""


@pytest.fixture(autouse=True)
def _few_pictures_are_drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("decima.show.style.save_figure", lambda figure, path: path.touch())


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A workload file with a few small profiles to draw from."""
    path = tmp_path / "tiny.json"
    write_workload(path, LIBRARY)
    return path


@pytest.fixture
def run(library: Path) -> Compare:
    """Run a small ``decima compare`` with more options."""
    small = ("--workload", str(library), "--jobs", "3", "--seeds", "2", "--processes", "1")

    def run(*options: str, base: Sequence[str] = small) -> Result:
        if base is small and "--classes" not in options:
            base = (*small, "--executors", "4")
        return CliRunner().invoke(cli, ["compare", *base, *options])

    return run
