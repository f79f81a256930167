"""The command ``decima train-estimator``, and the use of its files."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from simulator.cluster import stage_times
from tests.decima.cli.commands import assert_one_line_error, assert_same_again, succeeded
from tests.decima.service.test_log import logged
from workloads import embedded_tpch, poisson_arrivals
from workloads.sources.workload_file import Workload
from workloads.sources.workload_writer import write_workload


def train(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["train-estimator", *arguments])


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_times, "TREES", 2)


@pytest.fixture
def jobs() -> Path:
    """A workload file of twelve queries."""
    write_workload("jobs.json", Workload(tuple(embedded_tpch(["2g"], list(range(1, 13))))))
    return Path("jobs.json")


def head(path: str) -> dict[str, Any]:
    with np.load(path) as archive:
        return dict(json.loads(str(archive["estimator"])))


def test_it_writes_a_file_that_says_what_it_is(jobs: Path) -> None:
    result = succeeded(train(str(jobs), "-o", "it.npz"))
    assert "of 12 jobs whose template the forest has not seen, the work is off by a factor of" in result.stdout
    assert result.stdout.endswith("estimator of 12 jobs of 12 templates in it.npz\n")
    found = head("it.npz")
    assert (found["source"], found["jobs"], found["templates"]) == ("jobs.json", 12, 12)
    assert found["sha256"] == hashlib.sha256(jobs.read_bytes()).hexdigest()
    assert found.keys() >= {"format", "version", "created", "features"}
    for fit in found["fits"]:
        assert fit.keys() >= {"work_sd", "stage_sd", "within_50", "within_90", "job_var", "stage_var"}
    assert len(found["fits"]) == 2
    assert "from DAGs and numbers of tasks alone: of 12 jobs" in result.stdout


def test_commands_take_the_file(jobs: Path) -> None:
    succeeded(train(str(jobs), "-o", "it.npz"))
    options = ["--unknown", "1", "--estimator", "it.npz", "--schedulers", "srpt,fair", "--executors", "5"]
    small = ["--workload", "tpch", "--jobs", "3", "--seeds", "1", "--workers", "1", "--json", "r.json"]
    result = succeeded(CliRunner().invoke(cli, ["compare", *options, *small]))
    assert "task times by estimator it.npz" in " ".join(result.stdout.split())
    assert_same_again(Path("r.json"))


def test_it_learns_from_a_log_of_the_service() -> None:
    profiles = embedded_tpch(["2g"], [1, 6, 14, 3, 4, 12])
    logged(Path("live.jsonl"), sequence=poisson_arrivals(profiles, 14, 5000.0, seed=2))
    result = succeeded(train("live.jsonl", "-o", "it.npz"))
    assert "estimator of 14 jobs of" in result.stdout
    assert head("it.npz")["source"] == "live.jsonl"


def test_other_executors_have_other_times(jobs: Path) -> None:
    Path("own.json").write_text(
        json.dumps(
            {
                "format": "decima-workload",
                "version": 1,
                "profiles": {
                    f"q-{tasks}": {"stages": [{"tasks": tasks, "duration_ms": {"first": 900, "rest": 100 * tasks}}]}
                    for tasks in (1, 2, 3, 5, 8, 13)
                },
            }
        )
    )
    for executors in ("1", "8"):
        succeeded(train("own.json", "-o", f"{executors}.npz", "--executors", executors))
    with np.load("1.npz") as one, np.load("8.npz") as eight:
        assert one["number"].mean() != eight["number"].mean()


def test_too_few_jobs_leave_the_file_as_it_is(jobs: Path) -> None:
    write_workload("few.json", Workload(tuple(embedded_tpch(["2g"], [1, 2, 3]))))
    Path("it.npz").write_bytes(b"before")
    assert_one_line_error(train("few.json", "-o", "it.npz"), "few.json: too few different jobs to learn from")
    assert Path("it.npz").read_bytes() == b"before"
    succeeded(train("few.json", str(jobs), "-o", "it.npz"))
    assert head("it.npz")["source"] == "few.json, jobs.json"
