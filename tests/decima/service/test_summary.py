"""The report on a live log, and its jobs as a workload."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.service.log import Answered, Chosen, Left, Line, LogError, Question, Refused, Started, Welcomed, read_log
from decima.service.protocol import Answer
from decima.service.replay import replayed
from decima.service.summary import live_workload, summary_report
from tests.decima.cli.commands import assert_one_line_error
from tests.decima.service.serving import a_job, a_stage, executors
from tests.decima.service.test_log import SEQUENCE, logged
from workloads.sources.workload_file import read_workload


def lines() -> list[Line]:
    """Return lines of two jobs. Job b is served before a, unlike under FIFO; b completes, a does not."""
    a = a_job("a", a_stage(0, tasks=4), submitted_time_ms=0.0)
    b = a_job("b", a_stage(1, tasks=2), submitted_time_ms=10.0)
    b_runs = a_job("b", a_stage(1, tasks=2, running=2), submitted_time_ms=10.0)

    def answered(seq: int, took_ms: float, *jobs: str, failure: str | None = None) -> Answered:
        choices = tuple(Chosen(job=job, stage=0, limit=1, executors=1) for job in jobs)
        return Answered(
            driver=1, choices=choices, answer=Answer(seq=seq), took_ms=took_ms, policy_ms=1.0, failure=failure
        )

    return [
        Started(policy="p", shadow=False, time_ms=0),
        Welcomed(driver=1, application="app", name="etl", spark="3.5.9", time_ms=0),
        Question(driver=1, seq=1, time_ms=1000.0, executors=executors(2), jobs=(a, b)),
        answered(1, 10.0, "b", "a"),
        Question(driver=1, seq=2, time_ms=2000.0, executors=executors(0, "b", "b")[:1], jobs=(b_runs,)),
        answered(2, 250.0, "a"),
        Question(driver=1, seq=3, time_ms=31_000.0, gone=("b",)),
        answered(3, 20.0, failure="ValueError: no"),
        Refused(reason="wrong token", time_ms=0),
        Question(driver=1, seq=4, time_ms=61_000.0),
        Left(driver=1, time_ms=61_000.0),
    ]  # fmt: skip


def test_a_log_is_summarised() -> None:
    report = summary_report(lines(), 200.0)
    found = json.loads(report.json)
    assert found["minutes"] == 1.0
    assert (found["questions"], found["answers"], found["answers_per_minute"]) == (4, 3, 3.0)
    assert found["answer_ms"]["p50"] == 20.0
    assert found["answer_ms"]["p99"] == pytest.approx(np.percentile([10.0, 250.0, 20.0], 99))
    assert [found[each] for each in ("late", "failed", "unanswered", "refused")] == [1, 1, 1, 1]
    assert (found["decided"], found["unlike_fifo"]) == (2, 1)
    [application] = found["applications"]
    jct_ms = {job["name"]: job["jct_ms"] for job in application["jobs"]}
    assert jct_ms == {"a": None, "b": 31_000.0 - 10.0}
    assert json.loads(summary_report(lines(), 300.0).json)["late"] == 0


def test_the_jobs_of_a_log_are_a_workload(tmp_path: Path) -> None:
    logged(tmp_path / "log.jsonl")
    found, left_out = live_workload(replayed(read_log(tmp_path / "log.jsonl")), "mine")
    assert left_out == 0
    assert len(found.profiles) == len(SEQUENCE)
    tasks = sorted(profile.num_tasks for profile in found.profiles)
    assert tasks == sorted(profile.num_tasks for profile in SEQUENCE.profiles)
    for mine, real in zip(found.profiles, SEQUENCE.profiles, strict=True):
        assert mine.num_stages == real.num_stages
        assert all(stage.durations.values.all() for stage in mine.stages)
    assert {name.partition(" (")[0] for name in (p.name for p in found.profiles)} == {
        name.partition(" (")[0] for name in (p.name for p in SEQUENCE.profiles)
    }


def test_a_job_that_is_not_complete_is_left_out() -> None:
    found, left_out = live_workload(replayed(lines()), "mine")
    assert ([profile.name for profile in found.profiles], left_out) == (["b"], 1)
    with pytest.raises(LogError, match="no job of the log is complete"):
        live_workload(replayed(lines()[:4]), "mine")


def test_the_commands(tmp_path: Path) -> None:
    log, out, figures = tmp_path / "log.jsonl", tmp_path / "jobs.json", tmp_path / "figures.json"
    log.write_text("".join(f"{line.model_dump_json()}\n" for line in lines()))
    result = CliRunner().invoke(cli, ["report", str(log), "--json", str(figures)])
    assert result.exit_code == 0, result.output
    assert "1 of 2 answers with decisions (50%) served another job first than FIFO would" in result.stdout
    assert json.loads(figures.read_text())["answers"] == 3
    result = CliRunner().invoke(cli, ["workload", "import", "live", str(log), "--out", str(out)])
    assert result.stdout == f"1 profiles in {out}, 1 incomplete jobs omitted\n"
    [profile] = read_workload(out).profiles
    assert profile.num_tasks == 2
    log.write_text("no log\n")
    for command in (["report", str(log)], ["workload", "import", "live", str(log), "--out", str(out)]):
        assert_one_line_error(CliRunner().invoke(cli, command), "line 1: not a log of decima serve")
