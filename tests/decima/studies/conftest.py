"""Fixtures of studies: a workload so small that training takes a second."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from decima.learning.grid.config import DeepRMConfig
from decima.learning.trainings import train_all
from decima.studies.study import Study
from tests.decima.learning.examples import sweep_once
from workloads import read_workload

PROFILES = {
    "wide": {"stages": [{"tasks": 8, "duration_ms": 2000}, {"tasks": 3, "duration_ms": [1000, 2000], "parents": [0]}]},
    "long": {
        "stages": [
            {"tasks": 2, "duration_ms": 4000},
            {"tasks": 2, "duration_ms": 3000, "parents": [0]},
            {"tasks": 1, "duration_ms": 1500, "parents": [1]},
        ]
    },
    "small": {"stages": [{"tasks": 2, "duration_ms": {"fresh": 1500, "first": 900, "rest": [700, 800]}}]},
}


CLONING = ("behaviour_cloning", {"epochs": 2})


@pytest.fixture(autouse=True)
def _short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure loads on streams of fewer jobs."""
    monkeypatch.setattr("decima.studies.study.LOAD_JOBS", 200)


def shorter(config: Any) -> Any:
    """Shorten a training configuration: two epochs of cloning on a cluster, three episodes per set on a grid."""
    section, few = ("episodes", {"per_set": 3}) if isinstance(config, DeepRMConfig) else CLONING
    full = getattr(config, section)
    return config if full is None else config.model_copy(update={section: full.model_copy(update=few)})


@pytest.fixture(autouse=True)
def _one_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the policies of a folder in one test process only, shorter, with one reference setting per sequence."""

    def locked(configs: Mapping[str, Any], folder: Path, *others: Any) -> dict[str, Path]:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            return train_all({name: shorter(each) for name, each in configs.items()}, folder, *others)

    monkeypatch.setattr("decima.learning.cluster.validation.sweep_ms", sweep_once)
    for place in ("study", "grid_study"):
        monkeypatch.setattr(f"decima.studies.{place}.train_all", locked)


@pytest.fixture(scope="session")
def workload_file(run_folder: Path) -> Path:
    file = run_folder / "tiny.json"
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            file.write_text(json.dumps({"format": "decima-workload", "version": 1, "profiles": PROFILES}))
    return file


@pytest.fixture(scope="session")
def trace_file(workload_file: Path) -> Path:
    """Return the file of a trace of 60 jobs: ten windows of 10 s with six jobs each."""
    names, file = list(PROFILES), workload_file.with_name("trace.json")
    jobs = [{"profile": names[job % 3], "arrival_ms": 1667 * job} for job in range(60)]
    file.write_text(json.dumps(json.loads(workload_file.read_text()) | {"jobs": jobs}))
    return file


@pytest.fixture(scope="session")
def make_study(workload_file: Path) -> Callable[..., Study]:
    """Return ``make_study(policies, **others)``: two experiments of four jobs on five executors, few iterations."""

    def make(policies: Path, **others: Any) -> Study:
        return Study(
            **{
                "workload": read_workload(workload_file), "source": {"file": str(workload_file)}, "executors": 5,
                "budget": 0.0025, "num_experiments": 2, "num_jobs": 4, "policies": policies, **others,
            }
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def policies(run_folder: Path) -> Path:
    """Return the folder of trained policies, which all tests share."""
    return run_folder / "policies"


@pytest.fixture(scope="session")
def study(make_study: Callable[..., Study], policies: Path) -> Study:
    return make_study(policies)
