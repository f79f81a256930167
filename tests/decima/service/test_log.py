"""The log of what was decided, and how it is replayed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.schedulers.priced_srpt import PricedSrpt
from decima.service.history import History
from decima.service.log import DecisionLog, LogError, Started, read_log
from decima.service.replay import replayed
from decima.service.server import ServeError
from decima.service.service import Service
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import Client, a_job, a_stage, a_state, executors, serving
from tests.decima.service.test_driver import PROFILES, SEQUENCES, SLOTS

SEQUENCE = SEQUENCES["stream"][0]
FIRST = Started(policy="p", shadow=False, time_ms=0).model_dump_json() + "\n"


def logged(path: Path, name: str = "etl") -> ScriptedSpark:
    """A driver runs its jobs, and all of it is logged."""
    log = DecisionLog(path, "priced-srpt")
    jobs = list(zip(SEQUENCE.profiles, SEQUENCE.arrival_ms.tolist(), strict=True))
    with (
        serving(Service(PricedSrpt, History(PROFILES), watchers=[log])) as where,
        Client(where, name=name) as client,
    ):
        spark = ScriptedSpark(jobs, client.ask, SLOTS)
        spark.run()
    log.close()
    return spark


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ScriptedSpark]:
    path = tmp_path_factory.mktemp("log") / "service.jsonl"
    return path, logged(path)


def test_a_log_that_is_replayed_is_what_happened(written: tuple[Path, ScriptedSpark]) -> None:
    path, spark = written
    [driver] = replayed(read_log(path))
    record = driver.record
    jct_ms = np.array([job.completion_ms - job.arrival_ms for job in spark.jobs])
    assert record.jct_ms == pytest.approx(jct_ms)
    assert (driver.name, driver.policy, driver.questions) == ("etl", "priced-srpt", spark.questions)
    assert record.config.num_executors == SLOTS
    assert (record.task_executor >= 0).all()
    assert record.sequence.arrival_ms == pytest.approx(SEQUENCE.arrival_ms)
    expected = [profile.num_tasks for profile in SEQUENCE.profiles]
    assert [profile.num_tasks for profile in record.sequence.profiles] == expected
    # The work that was seen is the work that was done, but for what lies between two questions.
    work_ms = sum(profile.work_ms for profile in SEQUENCE.profiles)
    assert record.busy_ms.sum() == pytest.approx(work_ms, rel=0.02)


def test_no_slot_runs_two_tasks_at_once(written: tuple[Path, ScriptedSpark]) -> None:
    [driver] = replayed(read_log(written[0]))
    tasks = driver.record.tasks().sort_values(["executor", "start_ms"])
    same = tasks["executor"].to_numpy()[1:] == tasks["executor"].to_numpy()[:-1]
    overlap_ms = tasks["finish_ms"].to_numpy()[:-1] - tasks["start_ms"].to_numpy()[1:]
    assert (overlap_ms[same] < 1e-6).all()


def test_the_log_says_who_decided_what(written: tuple[Path, ScriptedSpark]) -> None:
    lines = [json.loads(text) for text in written[0].read_text().splitlines()]
    assert [line["event"] for line in lines[:3]] == ["started", "welcomed", "asked"]
    assert lines[-1]["event"] == "left"
    choices = [choice for line in lines[2:-1] for choice in line.get("choices", ())]
    assert choices
    assert all(choice["executors"] >= 1 for choice in choices)
    # What did not change is not written again.
    assert sum(len(line.get("jobs", ())) for line in lines[2:-1]) < 4 * len(lines)


def test_half_a_line_at_the_end_is_left_out(written: tuple[Path, ScriptedSpark], tmp_path: Path) -> None:
    text = written[0].read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(text[: len(text) // 2])
    assert len(replayed(read_log(tmp_path / "cut.jsonl"))) == 1


def test_a_service_goes_on_with_the_log_of_one_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    logged(path)
    path.write_bytes(path.read_bytes()[:-9])
    logged(path, name="again")
    first, second = replayed(read_log(path))
    assert (first.name, second.name) == ("etl", "again")
    assert first.record.jct_ms == pytest.approx(second.record.jct_ms)
    other = tmp_path / "other.txt"
    other.write_text("something of somebody's\n")
    with pytest.raises(ServeError, match="nothing is written over it"):
        DecisionLog(other, "fifo")
    assert other.read_text() == "something of somebody's\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", None),
        ("{}\n", "line 1: not a log of decima serve"),
        ('{"format":"decima-workload","version":1}\n', "line 1: not a log of decima serve"),
        (FIRST.replace('"version":1', '"version":2'), "line 1: not a log of decima serve of version 1"),
        (FIRST + '{"event":"left","driver":"x","time_ms":1}\n', "line 2: left.driver: "),
        (FIRST + "nonsense\n" * 2 + FIRST, "line 2: Invalid JSON"),
        (FIRST + 'nonsense\n{"event":"left","driver":1,"time_ms":1}\n', "line 2: Invalid JSON"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_refused_in_one_line(text: str, message: str | None, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    if message is None:
        assert replayed(read_log(path)) == []
        return
    with pytest.raises(LogError) as caught:
        list(read_log(path))
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_a_log_that_cannot_be_written_is_refused_or_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ServeError, match="cannot write"):
        DecisionLog(tmp_path / "nowhere" / "log.jsonl", "fifo")
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    caplog.set_level(logging.ERROR)
    log = DecisionLog(Path("/dev/full"), "fifo")
    with serving(Service(PricedSrpt, watchers=[log])) as where, Client(where) as client:
        assert client.ask(a_state(1, a_job("a", a_stage(7)), having=executors(2))).stages
    assert [record.getMessage() for record in caplog.records] == [
        "the log /dev/full ends here: No space left on device"
    ]


def test_replay_live_draws_it(tmp_path: Path) -> None:
    """Whatever the names are."""
    logged(tmp_path / "log.jsonl", name="[bold]$\\frac{1}{0}$\x1b[31m")
    result = CliRunner().invoke(
        cli,
        [
            "replay-live",
            str(tmp_path / "log.jsonl"),
            "--out",
            str(tmp_path / "out"),
            "--json",
            str(tmp_path / "j"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "[bold]" in result.output.replace("\n", "")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"schedule-1.png", "jobs-in-system-1.png"}
    found: dict[str, Any] = json.loads((tmp_path / "j").read_text())
    assert len(found["drivers"][0]["jobs"]) == len(SEQUENCE)
    empty = tmp_path / "empty.jsonl"
    empty.write_text(FIRST)
    result = CliRunner().invoke(cli, ["replay-live", str(empty)])
    assert result.exit_code == 1
