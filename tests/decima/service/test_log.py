"""The live log, its replay, the report on it, and its jobs as a workload."""

import errno
import json
import logging
import math
import os
import tempfile
import time
import types
import typing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel
from rich.table import Table

from decima.cli.main import cli
from decima.schedulers.srpt import Srpt
from decima.service.history import History
from decima.service.log import (
    Answered,
    Chosen,
    DecisionLog,
    Left,
    Line,
    LogError,
    Question,
    Refused,
    Started,
    Welcomed,
    read_log,
)
from decima.service.metrics import Metrics
from decima.service.protocol import (
    Answer,
    ExecutorMessage,
    Hello,
    JobMessage,
    Refusal,
    StageMessage,
    StageOrder,
    StateMessage,
    Welcome,
)
from decima.service.replay import live_report, replayed
from decima.service.server import ServeError
from decima.service.service import Service
from decima.service.summary import live_workload, summary_report
from simulator.cluster.metrics import EpisodeMetrics
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error
from tests.decima.service.scripted_spark import ScriptedSpark
from tests.decima.service.serving import Client, a_hello, a_job, a_stage, a_state, executors, serving
from tests.decima.service.test_driver import PROFILES, SEQUENCES, SLOTS, arriving
from tests.refusal import one_line
from workloads import JobSequence
from workloads.sources.workload_file import read_workload

SEQUENCE = SEQUENCES["stream"][0]
FIRST = Started(policy="p", shadow=False, time_ms=0).model_dump_json() + "\n"


def logged(path: Path, name: str = "etl", sequence: JobSequence = SEQUENCE, hidden: bool = False) -> ScriptedSpark:
    """Log a driver that runs its jobs."""
    log = DecisionLog(path, "srpt")
    with serving(Service(Srpt, History(PROFILES), watchers=[log])) as where, Client(where, name=name) as client:
        spark = ScriptedSpark(arriving(sequence), client.ask, SLOTS, hidden=hidden)
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
    assert (driver.name, driver.policy, driver.questions) == ("etl", "srpt", spark.questions)
    assert record.config.num_executors == SLOTS
    assert (record.task_executor >= 0).all()
    assert record.sequence.arrival_ms == pytest.approx(SEQUENCE.arrival_ms)
    expected = [profile.num_tasks for profile in SEQUENCE.profiles]
    assert [profile.num_tasks for profile in record.sequence.profiles] == expected
    # The work that was seen is the work that was done, but for what lies between two questions.
    work_ms = sum(profile.work_ms for profile in SEQUENCE.profiles)
    assert EpisodeMetrics(record).busy_ms.sum() == pytest.approx(work_ms, rel=0.02)


def rows(table: Table) -> list[tuple[Any, ...]]:
    """Return the texts of a table, row by row."""
    return list(zip(*(column.cells for column in table.columns), strict=True))


def test_tables_of_a_log_have_its_numbers(written: tuple[Path, ScriptedSpark]) -> None:
    [driver] = replayed(read_log(written[0]))
    record, report = driver.record, live_report([driver])
    assert rows(report.tables[0]) == [
        (
            *("etl", str(len(SEQUENCE)), str(SLOTS), str(driver.questions), str(record.num_decisions)),
            *(f"{each / 1000:.1f}" for each in (record.jct_ms.mean(), np.percentile(record.jct_ms, 95))),
            f"{EpisodeMetrics(record).utilisation:.1%}",
        )
    ]
    [found] = json.loads(report.json)["drivers"]
    assert [found[each] for each in ("slots", "questions", "decisions")] == [
        SLOTS, driver.questions, record.num_decisions,
    ]  # fmt: skip
    assert [each["jct_ms"] for each in found["jobs"]] == pytest.approx(record.jct_ms)
    *_, jobs = summary_report(read_log(written[0]), 200.0).tables
    times_ms = record.jct_ms.mean(), *np.percentile(record.jct_ms, [50, 95, 99])
    assert rows(jobs) == [("etl", *[str(len(SEQUENCE))] * 2, *(f"{each / 1000:.1f}" for each in times_ms))]


def test_slots_run_one_task_and_half_lines_are_left_out(written: tuple[Path, ScriptedSpark], tmp_path: Path) -> None:
    [driver] = replayed(read_log(written[0]))
    tasks = driver.record.tasks().sort_values(["executor", "start_ms"])
    same = tasks["executor"].to_numpy()[1:] == tasks["executor"].to_numpy()[:-1]
    overlap_ms = tasks["finish_ms"].to_numpy()[:-1] - tasks["start_ms"].to_numpy()[1:]
    assert (overlap_ms[same] < 1e-6).all()
    text = written[0].read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(text[: len(text) // 2])
    assert len(replayed(read_log(tmp_path / "cut.jsonl"))) == 1


def test_the_log_says_who_decided_what(written: tuple[Path, ScriptedSpark]) -> None:
    lines = [json.loads(text) for text in written[0].read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events[:4] == ["started", "welcomed", "question", "answered"]
    assert events[2:-1] == ["question", "answered"] * written[1].questions  # in turn
    assert lines[-1]["event"] == "left"
    choices = [choice for line in lines[2:-1] for choice in line.get("choices", ())]
    assert choices
    assert all(choice["executors"] >= 1 for choice in choices)
    # What did not change is not written again.
    assert sum(len(line.get("jobs", ())) for line in lines[2:-1]) < 4 * len(lines)


def test_a_service_goes_on_with_the_log_of_one_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    logged(path)
    path.write_bytes(path.read_bytes()[:-9])
    logged(path, name="again")
    first, second = replayed(read_log(path))
    assert (first.name, second.name) == ("etl", "again")
    assert first.record.jct_ms == pytest.approx(second.record.jct_ms)


@cases(
    "content",
    b"a text of another kind\n",
    bytes(5000) + FIRST.encode(),  # truncated while a program without append mode wrote
    FIRST.encode()[9:] + FIRST.encode(),
)
def test_a_file_that_does_not_begin_like_a_log_is_kept_under_another_name(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.jsonl"
    for _ in range(2):  # both within a second, so that the name is taken
        path.write_bytes(content)
        DecisionLog(path, "fifo").close()
        assert [line.event for line in read_log(path)] == ["started"]
    kept = sorted(tmp_path.glob("log.jsonl.*.unreadable"))
    assert [each.read_bytes() for each in kept] == [content] * 2
    messages = [record.getMessage() for record in caplog.records]
    assert sorted(messages) == sorted(
        f"{path} does not begin like a log of decima serve: kept as {each}" for each in kept
    )


class Session:
    """Two drivers that ask a service with a log, without sockets."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.log = path, DecisionLog(path, "srpt", **options)
        self._service = Service(Srpt, watchers=[self.log])
        names = ("one", "two")
        self._drivers = [
            self._service.welcome(a_hello(application=name).model_dump_json().encode())[0] for name in names
        ]
        self._seq = 0

    def ask(self) -> None:
        """Ask the same question for each driver, which therefore has no changes in the log."""
        self._seq += 1
        for driver in self._drivers:
            state = a_state(self._seq, a_job("a", a_stage(7)), having=executors(2), time_ms=1000.0 * self._seq)
            assert self._service.answer(driver, state.model_dump_json().encode()).stages
            self._service.answered(driver)

    def leave(self) -> None:
        for driver in self._drivers:
            self._service.leave(driver)


def assert_whole(lines: list[Line], lost: int | None = None) -> None:
    """Check that lines begin with all that a reader must know of two drivers."""
    events = [line.event for line in lines]
    assert events[:3] == ["started", "welcomed", "welcomed"]
    assert isinstance(lines[0], Started)
    assert lines[0].lost == lost
    questions = [line for line in lines if isinstance(line, Question)]
    assert [question.driver for question in questions[:2]] == [1, 2]
    for question in questions[:2]:
        assert question.executors == executors(2)
        assert [job.id for job in question.jobs] == ["a"]
    assert not any(question.jobs for question in questions[2:])
    assert [replay.application for replay in replayed(lines)] == ["one", "two"]


@pytest.mark.parametrize("how", ["reopened", "size", "day"])
def test_each_file_of_a_rotated_log_is_readable_alone(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    options: dict[str, Any] = {"size": {"max_bytes": 2000}, "day": {"daily": True}}.get(how, {})
    session = Session(path, **options)
    before = time.localtime()
    for day in (1, 2, 3):
        if how == "day":
            now = time.struct_time((2030, 1, day, *before[3:]))
            monkeypatch.setattr("decima.service.log.time.localtime", lambda now=now: now)
        for _ in range(4):
            session.ask()
        if how == "reopened":
            path.rename(tmp_path / f"log.jsonl.{day}")
            session.log.reopen()
    session.ask()
    session.log.close()
    files = list(tmp_path.iterdir())
    assert len(files) > 3
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        if file.stat().st_size > 500:  # a question is in the file
            assert_whole(list(read_log(file)))
    questions = [line.time_ms for file in files for line in read_log(file) if isinstance(line, Question)]
    assert sorted(questions) == [1000.0 * seq for seq in range(1, 14) for _ in range(2)]


def test_a_log_that_another_program_truncates_begins_again(tmp_path: Path) -> None:
    """The option `copytruncate` of logrotate truncates the open file."""
    session = Session(tmp_path / "log.jsonl")
    session.ask()
    os.truncate(session.path, 0)
    session.ask()
    session.ask()
    assert_whole(list(read_log(session.path)))


class Disk:
    """Replaces ``os.write``; writes up to a number of bytes, and then reports a full disk."""

    def __init__(self, write: Callable[[int, memoryview], int]) -> None:
        self._write, self.free = write, math.inf

    def write(self, handle: int, data: memoryview) -> int:
        count = int(min(len(data), self.free))
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free -= count
        return self._write(handle, data[:count])


def test_a_log_resumes_after_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "decima.service")
    disk = Disk(os.write)
    monkeypatch.setattr("decima.service.log.os.write", disk.write)
    session, metrics = Session(tmp_path / "log.jsonl"), Metrics()
    metrics.watch_log(session.log)

    def exported() -> list[float | None]:
        return [metrics.registry.get_sample_value(f"decima_log_{name}") for name in ("ok", "lost_lines_total")]

    session.ask()
    assert exported() == [1, 0]
    disk.free = 50
    session.ask()
    disk.free = 50
    session.ask()
    assert exported() == [0, 8]  # two questions and two answers of each driver
    disk.free = math.inf
    session.ask()
    session.leave()
    assert exported() == [1, 8]
    lines = list(read_log(session.path))
    resumed = [line.event for line in lines].index("started", 1)
    assert_whole(lines[:resumed])
    assert_whole(lines[resumed:], lost=8)
    report = summary_report(lines, 200.0)
    assert json.loads(report.json)["lost_lines"] == 8
    assert "8 lines are missing, because the log could not be written." in report.notes
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot write {session.path}, lines are lost until it can be written: No space left on device",
        f"{session.path} is written again, 8 lines are lost",
    ]


@cases("text, message",
        ("", None),
        ("{}\n", "line 1: not a log of decima serve"),
        ('{"format":"decima-workload","version":1}\n', "line 1: not a log of decima serve"),
        (FIRST.replace('"version":5', '"version":6'), "line 1: not a log of decima serve of version 1 to 5"),
        (FIRST + '{"event":"left","driver":"x","time_ms":1}\n', "line 2: left.driver: "),
        (FIRST + "nonsense\n" * 2 + FIRST, "line 2: Invalid JSON"),
        (FIRST + 'nonsense\n{"event":"left","driver":1,"time_ms":1}\n', "line 2: Invalid JSON"),
)  # fmt: skip
def test_what_is_no_log_is_refused_in_one_line(text: str, message: str | None, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    if message is None:
        assert replayed(read_log(path)) == []
        return
    assert one_line(LogError, list, read_log(path)).startswith(f"{path}: {message}")


def test_a_log_that_cannot_be_written_is_refused_or_delays_no_driver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ServeError, match="cannot write"):
        DecisionLog(tmp_path / "nowhere" / "log.jsonl", "fifo")
    os.mkfifo(tmp_path / "pipe")  # which no process reads
    with pytest.raises(ServeError, match="cannot write"):
        DecisionLog(tmp_path / "pipe", "fifo")
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    caplog.set_level(logging.ERROR)
    log = DecisionLog(Path("/dev/full"), "fifo")
    with serving(Service(Srpt, watchers=[log])) as where, Client(where) as client:
        assert client.ask(a_state(1, a_job("a", a_stage(7)), having=executors(2))).stages
    assert [record.getMessage() for record in caplog.records] == [
        "cannot write /dev/full, lines are lost until it can be written: No space left on device"
    ]


def test_replay_live_draws_it(tmp_path: Path) -> None:
    """Names may contain any characters."""
    logged(tmp_path / "log.jsonl", name="[bold]$\\frac{1}{0}$\x1b[31m")
    result = CliRunner().invoke(
        cli, ["replay-live", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "out"), "--json", str(tmp_path / "j")]
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
    assert result.exit_code == 2


def test_a_log_of_version_1_is_read(tmp_path: Path) -> None:
    """A question and its answer are one line in version 1."""
    path = tmp_path / "log.jsonl"
    driver = {"driver": 1, "time_ms": 5.0}
    lines = [
        {"event": "started", "version": 1, "policy": "p", "shadow": False, "time_ms": 0},
        {"event": "welcomed", "application": "a", "name": "n", "spark": "3.5.9", **driver},
        {
            "event": "asked",
            "executors": [{"id": "0", "slots": 1, "running": 0}],
            "choices": [{"job": "a", "stage": 7, "limit": 1, "executors": 1}],
            "jobs": [json.loads(a_job("a", a_stage(7)).model_dump_json())],
            "answer": {"seq": 3, "stages": [{"id": 7, "slots": 1}]},
            "took_ms": 1.0,
            "policy_ms": 0.5,
            **driver,
        },
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, _, question, answered = read_log(path)
    assert isinstance(question, Question)
    assert isinstance(answered, Answered)
    assert (question.jobs[0].id, answered.answer.seq, answered.choices[0].stage) == ("a", 3, 7)
    [replay] = replayed(read_log(path))
    assert (replay.questions, replay.record.num_decisions) == (1, 1)


MESSAGES = (Hello, Welcome, Refusal, StateMessage, Answer)
LINES = (Started, Welcomed, Question, Answered, Left, Refused, Chosen)


@cache
def messages(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Draw messages or lines of a type."""
    return values(kind)


def values(hint: Any, constraints: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Draw values of a field of this type."""
    kind, inner = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Annotated:
        return values(inner[0], (*constraints, *inner[1:]))
    if kind is typing.Literal:
        return st.sampled_from(inner)
    if kind in (typing.Union, types.UnionType):
        return st.one_of(*map(values, inner))
    if kind is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if kind is dict:
        return st.dictionaries(*map(values, inner), max_size=2)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        fields = {name: values(field.annotation, tuple(field.metadata)) for name, field in hint.model_fields.items()}
        return st.fixed_dictionaries(fields).map(hint.model_validate)
    limits: dict[str, Any] = {}
    for each in constraints:
        for found in getattr(each, "metadata", [each]):
            limits |= {name: getattr(found, name) for name in BOUNDS if hasattr(found, name)}
    bounds = {BOUNDS[name]: value for name, value in limits.items()}
    if hint is str:
        return st.text(min_size=bounds.get("min_size", 0), max_size=min(bounds.get("max_size", 9), 9))
    if hint is float:
        return st.floats(**bounds, allow_nan=False, allow_infinity=False)
    return {int: st.integers(**bounds), bool: st.booleans(), type(None): st.none()}[hint]


#: Of pydantic -> of hypothesis.
BOUNDS = {"ge": "min_value", "le": "max_value", "min_length": "min_size", "max_length": "max_size"}


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_message_can_be_read_as_it_is_sent(kind: Any, data: st.DataObject) -> None:
    """Messages may contain null fields, or omit them as the server does."""
    message = data.draw(messages(kind))
    assert kind.model_validate_json(message.model_dump_json()) == message
    assert kind.model_validate_json(message.model_dump_json(exclude_none=True)) == message


@pytest.mark.parametrize("kind", LINES, ids=lambda kind: kind.__name__)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_line_can_be_read_as_it_is_written(kind: Any, data: st.DataObject) -> None:
    line = data.draw(messages(kind))
    if kind is Chosen:
        line = Answered(driver=1, choices=(line,), answer=Answer(seq=1), took_ms=1.0, policy_ms=0.0)
    with tempfile.TemporaryDirectory() as folder:
        log = DecisionLog(Path(folder) / "log.jsonl", "p")
        log.write(line)
        log.close()
        assert list(read_log(Path(folder) / "log.jsonl"))[1:] == [line]


def test_a_stage_that_is_to_come_is_in_the_log_and_in_what_is_replayed(tmp_path: Path) -> None:
    """Under adaptive execution and with history, the policy may choose a stage that Spark has not created yet."""
    sequence = SEQUENCES["batch"][0]
    path = tmp_path / "log.jsonl"
    logged(path, sequence=sequence, hidden=True)
    choices = [choice for line in read_log(path) if isinstance(line, Answered) for choice in line.choices]
    assert any(choice.stage is None for choice in choices)
    result = CliRunner().invoke(cli, ["replay-live", str(path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    [driver] = replayed(read_log(path))
    assert len(driver.record.sequence) == len(sequence)


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


def test_slots_of_a_job_that_is_gone_run_the_next_one() -> None:
    """Two slots change from job b to job a between two questions: in the middle, as far as the replay knows.

    Job b is gone without another report, so that its pending tasks have run, too.
    """

    def question(seq: int, running: str, *jobs: JobMessage, gone: str = "") -> Question:
        busy = {"running": 1, "job": running} if running else {"running": 0}
        having = tuple(ExecutorMessage.model_validate({"id": each, "slots": 1, **busy}) for each in "01")
        return Question(driver=1, seq=seq, time_ms=10_000.0 * seq, executors=having, jobs=jobs, gone=tuple(gone))

    def job(name: str, number: int, tasks: int, running: int) -> JobMessage:
        return a_job(name, a_stage(number, tasks=tasks, running=running), submitted_time_ms=10_000.0)

    [driver] = replayed(
        [
            *lines()[:2],
            question(1, "b", job("a", 0, 2, running=0), job("b", 1, 4, running=2)),
            question(2, "a", job("a", 0, 2, running=2), gone="b"),
            question(3, "", gone="a"),
        ]
    )
    tasks = driver.record.tasks()[["job", "executor", "start_ms", "finish_ms"]]
    assert [tuple(row) for row in tasks.sort_values(["job", "executor", "start_ms"]).to_numpy().tolist()] == [
        (0, 0, 5_000, 20_000), (0, 1, 5_000, 20_000),
        (1, 0, 0, 2_500), (1, 0, 2_500, 5_000), (1, 1, 0, 2_500), (1, 1, 2_500, 5_000),
    ]  # fmt: skip
    assert driver.record.completion_ms.tolist() == [20_000, 10_000]
    assert driver.record.task_parallelism.tolist() == [2] * 6
    # Without durations from the driver, those of the replay are the workload's.
    workload, left_out = live_workload([driver], "mine")
    assert ([each.work_ms for each in workload.profiles], left_out) == ([30_000, 10_000], 0)


def test_only_starts_that_the_next_question_confirms_are_replayed() -> None:
    """An answer starts two tasks at 10 s, but they begin after 20 s; another stage begins and ends after 22 s."""

    def question(seq: int, time_s: int, first: StageMessage, second: StageMessage, gone: str = "") -> Question:
        busy = {"running": 1, "job": "a"} if first.running else {"running": 0}
        having = tuple(ExecutorMessage.model_validate({"id": each, "slots": 1, **busy}) for each in "01")
        job = a_job("a", first, second, submitted_time_ms=10_000.0)
        return Question(driver=1, seq=seq, time_ms=1000.0 * time_s, executors=having, jobs=(job,), gone=tuple(gone))

    waiting, running, done = a_stage(0, tasks=2), a_stage(0, tasks=2, running=2), a_stage(0, "done", 2, mean_ms=1.0)
    later, ready, ran = a_stage(1, "waiting", 1), a_stage(1, tasks=1), a_stage(1, "done", 1, mean_ms=1.0)
    [driver] = replayed(
        [
            *lines()[:2],
            question(1, 10, waiting, later),
            Answered(driver=1, answer=Answer(seq=1, stages=(StageOrder(id=0, slots=2),)), took_ms=1.0, policy_ms=1.0),
            question(2, 20, waiting, later),
            question(3, 21, running, later),
            question(4, 22, done, ready),
            question(5, 25, done, ran),
        ]
    )
    tasks = driver.record.tasks()
    assert tasks["start_ms"].tolist() == [10_000, 10_000, 12_000]
    assert tasks["finish_ms"].tolist() == [12_000, 12_000, 15_000]


def test_running_tasks_are_on_the_executors_of_their_job() -> None:
    having = executors(0, "b", "a")
    jobs = tuple(a_job(name, a_stage(place, tasks=1, running=1)) for place, name in enumerate("ab"))
    asked = Question(driver=1, seq=1, time_ms=10_000.0, executors=having, jobs=jobs)
    [driver] = replayed([*lines()[:2], asked, Question(driver=1, seq=2, time_ms=20_000.0, gone=("a", "b"))])
    assert driver.record.task_executor.tolist() == [1, 0]


@pytest.mark.parametrize("shadow", [True, False])
def test_answers_in_the_shadow_start_no_tasks(shadow: bool) -> None:
    """Executor 1 has served the job before, so that an answer to follow starts a task there; executor 0 runs both."""

    def question(seq: int, running: int, done: int, gone: str = "") -> Question:
        having = tuple(
            ExecutorMessage.model_validate({"id": each, "slots": 1, "running": running * (each == "0"), "job": job})
            for each, job in (("0", None), ("1", "a"))
        )
        job = a_job("a", a_stage(0, tasks=2, running=running, done=done))
        jobs = () if gone else (job,)
        time_ms = 10_000.0 * (1 + seq)
        return Question(driver=1, seq=seq, time_ms=time_ms, executors=having, jobs=jobs, gone=tuple(gone))

    answer = Answer(seq=0, stages=(StageOrder(id=0, slots=1),))
    [driver] = replayed(
        [
            Started(policy="p", shadow=shadow, time_ms=0),
            lines()[1],
            question(0, running=0, done=0),
            Answered(driver=1, answer=answer, took_ms=1.0, policy_ms=1.0),
            question(1, running=1, done=0),
            question(2, running=0, done=2, gone="a"),
        ]
    )
    assert driver.policy == ("p, in the shadow" if shadow else "p")
    assert sorted(driver.record.task_executor.tolist()) == ([0, 0] if shadow else [0, 1])


def test_the_end_of_a_job_after_the_last_question_is_estimated() -> None:
    """Job a waits for the mean of its running tasks; job b has pending tasks, so that its end is unknown."""
    a = a_job("a", a_stage(0, tasks=3, running=2, done=1, mean_ms=4000.0), a_stage(2, "done", 1, mean_ms=9000.0))
    b = a_job("b", a_stage(1, tasks=2, running=1, mean_ms=500.0))
    having = executors(0, "a", "a", "b")
    [driver] = replayed([*lines()[:2], Question(driver=1, seq=0, time_ms=7000.0, executors=having, jobs=(a, b))])
    np.testing.assert_array_equal(driver.record.completion_ms, [11_000, np.nan])
    assert driver.record.end_ms == 11_000


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
    answers, times, drivers, jobs = report.tables
    assert rows(answers) == [("3", "3.0", "1", "1", "1", "1")]
    assert rows(times)[1] == ("policy", "1.0", "1.0", "1.0")
    assert rows(drivers) == [("etl", "4", "-", "-", "-", "0", "")]
    assert rows(jobs) == [("etl", "2", "1", *["31.0"] * 4)]
    assert any("1 of 2 answers with decisions (50%) served another job first" in note for note in report.notes)
    # A service that starts an hour later and answers for two minutes.
    later = [Question(driver=1, seq=seq, time_ms=4e6 + 60_000.0 * seq) for seq in (0, 2)]
    both = json.loads(summary_report([*lines(), *lines()[:2], *later], 200.0).json)
    assert (both["minutes"], both["questions"], both["services"]) == (3.0, 6, ["p", "p"])


def test_a_job_that_is_gone_is_not_the_first_of_fifo() -> None:
    """Job a is cancelled, so that serving job b first is then what FIFO would do."""
    a, b = (a_job(name, a_stage(place), submitted_time_ms=10.0 * place) for place, name in enumerate("ab"))
    chosen = (Chosen(job="b", stage=1, limit=1, executors=1),)
    asked = (
        Question(driver=1, seq=1, time_ms=0.0, executors=executors(2), jobs=(a, b)),
        Question(driver=1, seq=2, time_ms=1000.0, gone=("a",)),
    )
    answers = (
        Answered(driver=1, choices=chosen, answer=Answer(seq=each.seq or 0), took_ms=1.0, policy_ms=1.0)
        for each in asked
    )
    pairs = [line for pair in zip(asked, answers, strict=True) for line in pair]
    found = json.loads(summary_report([*lines()[:2], *pairs], 200.0).json)
    assert (found["decided"], found["unlike_fifo"]) == (2, 1)


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
    assert "the jobs are of too few templates to learn from" in result.stdout
    assert result.stdout.endswith(f"1 profile in {out}, 1 incomplete job omitted\n")
    [profile] = read_workload(out).profiles
    assert profile.num_tasks == 2
    log.write_text("no log\n")
    for command in (["report", str(log)], ["workload", "import", "live", str(log), "--out", str(out)]):
        assert_one_line_error(CliRunner().invoke(cli, command), "line 1: not a log of decima serve")
