"""A workload so small that policies for it are trained in a second."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from decima.studies.study import Study, Variant
from workloads import read_workload

PROFILES = {
    "wide": {
        "stages": [
            {"tasks": 8, "duration_ms": 2000},
            {"tasks": 3, "duration_ms": [1000, 2000], "parents": [0]},
        ]
    },
    "long": {
        "stages": [
            {"tasks": 2, "duration_ms": 4000},
            {"tasks": 2, "duration_ms": 3000, "parents": [0]},
            {"tasks": 1, "duration_ms": 1500, "parents": [1]},
        ]
    },
    "small": {"stages": [{"tasks": 2, "duration_ms": {"fresh": 1500, "first": 900, "rest": [700, 800]}}]},
}


@pytest.fixture(autouse=True)
def _short_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads are measured on fewer jobs."""
    monkeypatch.setattr("decima.studies.study.LOAD_JOBS", 200)


class SharedStudy(Study):
    """A study whose policies are trained by one process at a time."""

    def train(self, *variants: Variant) -> dict[str, str]:
        """Train the policies, unless another process has."""
        with FileLock(self.policies.with_suffix(".lock")):
            return super().train(*variants)


@pytest.fixture(scope="session")
def workload_file(run_folder: Path) -> Path:
    file = run_folder / "tiny.json"
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            file.write_text(json.dumps({"format": "decima-workload", "version": 1, "profiles": PROFILES}))
    return file


@pytest.fixture(scope="session")
def trace_file(workload_file: Path) -> Path:
    """60 jobs at set times: ten windows of 10 s with six jobs each."""
    names, file = list(PROFILES), workload_file.with_name("trace.json")
    jobs = [{"profile": names[job % 3], "arrival_ms": 1667 * job} for job in range(60)]
    file.write_text(json.dumps(json.loads(workload_file.read_text()) | {"jobs": jobs}))
    return file


@pytest.fixture(scope="session")
def make_study(workload_file: Path) -> Callable[..., Study]:
    """``make_study(policies, **others)``: 2 experiments of 4 jobs on 5 executors, a few iterations."""

    def make(policies: Path, **others: Any) -> Study:
        return SharedStudy(
            **{
                "workload": read_workload(workload_file),
                "source": {"file": str(workload_file)},
                "executors": 5,
                "budget": 0.005,
                "num_experiments": 2,
                "num_jobs": 4,
                "policies": policies,
                **others,
            }
        )

    return make


@pytest.fixture(scope="session")
def study(make_study: Callable[..., Study], run_folder: Path) -> Study:
    """One whose policies are shared by all tests, as by the studies: each is trained once."""
    policies = run_folder / "policies"
    policies.mkdir(exist_ok=True)
    return make_study(policies)
