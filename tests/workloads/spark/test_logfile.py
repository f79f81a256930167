"""Event log files: detection, compression, lines, and messages about damaged ones."""

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from tests.cases import cases
from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from workloads import WorkloadError, read_event_log
from workloads.spark import logfile
from workloads.spark.logfile import EventLog, Problems, events, find_event_logs

START, END, OTHER = (f'{{"Event":"{name}"}}' for name in ("Start", "End", "Other"))
WANTED = frozenset({"Start", "End"})


def lines_of(path: Path, problems: Problems | None = None) -> list[tuple[int, str, bool]]:
    """Return line, name and whether the event was parsed, for each event of a log."""
    [log] = find_event_logs(path)
    return [
        (int(place.removeprefix(f"{path}:")), name, event is not None)
        for place, name, event in events(log, WANTED, problems or Problems(partial=False))
    ]


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("\n".join(lines) + end)
    return path


def refusal(path: Path, *, partial: bool = False) -> str:
    with pytest.raises(WorkloadError) as caught:
        lines_of(path, Problems(partial))
    return str(caught.value).removeprefix(f"{path}:")


def test_last_lines_without_an_end_and_blank_lines(tmp_path):
    path = write(tmp_path / "log", START, OTHER, '{"x": 1, "Event": "End"}', '{"x": 1, "Event": "Other"}', "", END)
    assert lines_of(path) == [
        (1, "Start", True), (2, "Other", False), (3, "End", True), (4, "Other", False), (6, "End", True),
    ]  # fmt: skip
    [log] = find_event_logs(path)
    found = [event for _, _, event in events(log, WANTED, Problems(partial=False))]
    assert found[2] == {"x": 1, "Event": "End"}
    problems = Problems(partial=False)
    path = write(tmp_path / "log", START, END[:-1], end="")
    assert lines_of(path, problems) == [(1, "Start", True)]
    assert problems.lines == (f"{path}:2: the log is cut off in mid-line (truncated, or still being written)",)
    assert lines_of(write(tmp_path / "log", START, END, end=""), problems)[1:] == [(2, "End", True)]


@pytest.mark.parametrize("bad", ["[1]", "3", '{"Event": 3}', '{"x": 1}', "null", '{"Event":"End"', "[" * 100_000])
def test_a_line_that_is_no_event(tmp_path, bad):
    path = write(tmp_path / "log", START, bad, END)
    assert refusal(path) == f"2: not an event: {bad[:40]!r}"
    problems = Problems(partial=True)
    assert [line for line, _, _ in lines_of(path, problems)] == [1, 3]
    assert problems.messages == [f"{path}:2: not an event: {bad[:40]!r}"]


@pytest.mark.parametrize("more", [-1, 0, 1, 9000])
def test_a_long_first_line(tmp_path, more):
    """Detection reads a few bytes only; reading a log reads the first line whole."""
    first = json.dumps({"Event": "Start", "x": "y" * (logfile._PROBE - 24 + more)})
    path = write(tmp_path / "log", first, END)
    assert lines_of(path) == [(1, "Start", True), (2, "End", True)]
    [log] = find_event_logs(path)
    assert next(events(log, WANTED, Problems(partial=False)))[2] == json.loads(first)
    hidden = json.dumps({"x": "y" * 9000, "Event": "Start"})
    assert refusal(write(path, hidden, END)) == '1: not a Spark event log (expected {"Event":...})'


def test_blank_lines_are_passed_over_up_to_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(logfile, "MOST_BLANK", 3)
    assert lines_of(write(tmp_path / "log", START, "", " ", "\t", END))[1:] == [(5, "End", True)]
    assert refusal(write(tmp_path / "log", START, *[""] * 4, END)) == "5: more than 3 blank lines"


def test_the_longest_line(tmp_path, monkeypatch):
    monkeypatch.setattr(logfile, "MAX_LINE", 100)
    monkeypatch.setattr(logfile, "MOST_OF_A_LINE", 500)

    def long(length: int) -> str:
        return END[:-1] + " " * (length - len(END) - 1) + "}"  # and the end of the line

    for length in (40, 99):
        found = lines_of(write(tmp_path / "log", START, long(length), START))
        assert found == [(1, "Start", True), (2, "End", True), (3, "Start", True)]
    for length in (100, 101, 102, 200, 499):
        assert refusal(write(tmp_path / "log", START, long(length), START)) == "2: an event of more than 0 MiB"
        unwanted = long(length).replace("End", "Owl")
        assert lines_of(write(tmp_path / "log", START, unwanted, END))[1:] == [(2, "Owl", False), (3, "End", True)]
    assert len(lines_of(write(tmp_path / "log", START, long(500).replace("End", "Owl")))) == 2
    assert refusal(write(tmp_path / "log", START, long(501)), partial=True) == "2: a line of more than 0 MiB"


@cases("start, name", (b"LZ4Block", "lz4"), (b"\x82SNAPPY", "snappy"), (b"ZV", "lzf"), (b"PK\x03\x04", "zip"))
def test_compressions_are_known_by_their_beginning(tmp_path, start, name):
    (tmp_path / "log").write_bytes(start + b"12345678")
    expected = f" {name} compression is not supported; unpack it, or use gzip or zstd"
    assert refusal(tmp_path / "log") == expected


def test_damage_is_a_problem_and_an_early_end_is_noted(tmp_path):
    path = tmp_path / "log.gz"
    text = "\n".join([START, *(json.dumps({"Event": "Other", "x": os.urandom(30).hex()}) for _ in range(500)), END])
    whole = gzip.compress((text + "\n").encode())
    path.write_bytes(whole[:-10])
    problems = Problems(partial=False)
    lines_of(path, problems)
    assert "the data end early (truncated, or still being written)" in problems.messages[0]
    path.write_bytes(whole[:-8] + b"\0" * 8)
    assert "the data are damaged (CRC check failed" in refusal(path)
    problems = Problems(partial=True)
    assert len(lines_of(path, problems)) > 400
    assert problems.count == len(problems.messages) == 1


def test_the_first_twenty_problems_are_kept():
    problems = Problems(partial=True)
    for number in range(20):
        problems.report(str(number))
    assert problems.lines == tuple(map(str, range(20)))
    problems.note("20")
    assert problems.lines == (*map(str, range(20)), "and 1 problems more")
    with pytest.raises(WorkloadError, match="bad"):
        Problems(partial=False).report("bad")


def part(folder: Path, number: int, suffix: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    return write(folder / f"events_{number}_app{suffix}", OTHER)


def rolled(folder: Path) -> tuple[list[str], list[str]]:
    """Return files and gaps of a rolled log."""
    [log] = find_event_logs(folder)
    return [file.name.removesuffix("_app") for file in log.files], list(log.gaps)


def test_parts_of_a_rolled_log(tmp_path):
    folder = tmp_path / "eventlog_v2_app"
    for number in (1, 2, 10):
        part(folder, number)
    (folder / "appstatus_app").touch()
    missing = "part 3 of the rolled log (events_3_...) is missing"
    assert rolled(folder) == (["events_1", "events_2", "events_10"], [missing])
    part(folder, 3, ".compact")
    assert rolled(folder)[1] == [
        "compacted by Spark: the events of jobs that ended before file 3 are gone",
        "part 4 of the rolled log (events_4_...) is missing",
    ]
    assert rolled(folder)[0] == ["events_3_app.compact", "events_10"]
    part(folder, 3)
    assert rolled(folder)[0] == ["events_3_app.compact", "events_10"]
    for number in range(4, 10):
        part(folder, number)
    assert len(rolled(folder)[1]) == 1
    assert len(rolled(folder)[0]) == 8


def test_a_rolled_log_without_its_beginning(tmp_path):
    part(tmp_path / "eventlog_v2_app", 2)
    assert rolled(tmp_path / "eventlog_v2_app")[1] == ["part 1 of the rolled log (events_1_...) is missing"]
    assert refusal(tmp_path / "eventlog_v2_app").startswith(" part 1")


def test_which_files_of_a_folder_are_logs(tmp_path):
    for name in ("b", "a.gz", ".hidden", "_SUCCESS"):
        small_log().write(tmp_path / name)
    part(tmp_path / "aa", 1)
    (tmp_path / "none").mkdir()
    small_log().write(tmp_path / "none" / "deeper")
    part(tmp_path / "_ignored", 1)
    assert [log.path.name for log in find_event_logs(tmp_path)] == ["a.gz", "aa", "b"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkloadError, match="pipe: no event log"):
        find_event_logs(tmp_path / "pipe")


@pytest.mark.parametrize(("name", "running"), [("app", False), ("app.inprogress", True), ("inprogress", False)])
def test_logs_in_progress(tmp_path, name, running):
    assert EventLog(tmp_path / name, ()).in_progress == running
    part(tmp_path / "rolled", 1)
    (tmp_path / "rolled" / f"appstatus_{name}").touch()
    assert find_event_logs(tmp_path / "rolled")[0].in_progress == running


def refused(path: Path) -> str:
    """Return the one-line message about a rejected log."""
    with pytest.raises(WorkloadError) as caught:
        read_event_log(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path.parent))
    return message.removeprefix(f"{path.parent}/")


def read(path: Path, partial: bool = False) -> tuple[list[int], list[str]]:
    """Return the number of tasks of each query that was kept, and the problems, without paths."""
    [application] = read_event_log(path, partial=partial)
    problems = [problem.removeprefix(f"{path.parent}/") for problem in application.report.problems]
    return [len(query.tasks) for query in application.queries], problems


def test_zstd_in_frames_and_cut_off(tmp_path):
    zstandard = pytest.importorskip("zstandard", reason="needs the extra [spark]")
    text = small_log().text
    frames = [zstandard.compress(text[:500]), zstandard.compress(text[500:])]
    (tmp_path / "log.zstd").write_bytes(b"".join(frames))
    [application] = read_event_log(tmp_path / "log.zstd")
    assert len(application.queries) == 1
    zstandard = pytest.importorskip("zstandard", reason="needs the extra [spark]")
    text = small_log().text
    cut = text.index(b"SparkListenerApplicationEnd")
    (tmp_path / "log.zstd").write_bytes(zstandard.compress(text[:cut]) + zstandard.compress(text[cut:])[:20])
    kept, problems = read(tmp_path / "log.zstd")
    assert kept == [4]
    assert "mid-line" in problems[0]


def test_zstd_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(logfile, "zstandard", None)
    (tmp_path / "log.zst").write_bytes(b"\x28\xb5\x2f\xfd____")
    assert "pip install -e '.[spark]'" in refused(tmp_path / "log.zst")


def test_folders_without_logs_and_logs_without_jobs(tmp_path):
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty") == "empty: the folder contains no event log"
    assert refused(tmp_path / "none") == "none: no such file or folder"
    path = LogBuilder().executor("0").end().write(tmp_path / "log")
    assert refused(path) == "log: the log contains no Spark jobs"
    assert read(path, partial=True) == ([], ["log: the log contains no Spark jobs"])


def test_applications_in_one_file_and_unknown_events(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(small_log(app="app-1").text + small_log(app="app-2").text)
    assert [application.application_id for application in read_event_log(path)] == ["app-1", "app-2"]
    log = small_log().add("FromTheFuture", x=1).add("FromTheFuture", x=2)
    [found] = read_event_log(log.write(tmp_path / "log"))
    assert found.report.ignored_events == {"SparkListenerFromTheFuture": 2}
    assert found.report.lines() == ["2 events without information on durations (2 FromTheFuture)"]


NO_EVENT = 'log:1: not a Spark event log (expected {"Event":...})'


@cases(
    "content, said",
    *((text, NO_EVENT) for text in (b"hello\nworld\n", b"\x00\x01\x02", b'{"a": 1}\n', b"[1]\n", b"x" * 9999)),
    (b'{"Event":"click"}\n', "log: not a Spark event log (no SparkListenerApplicationStart)"),
    (b"", "log:1: the file is empty, not a Spark event log"),
)
def test_a_file_that_is_no_event_log(tmp_path, content, said):
    path = tmp_path / "log"
    path.write_bytes(content)
    assert refused(path) == said
    with pytest.raises(WorkloadError, match="not a Spark event log"):
        read_event_log(path, partial=True)


def test_applications_that_died_or_lack_a_field(tmp_path):
    log = small_log()
    [line] = [number for number, event in enumerate(log.events, 1) if event["Event"].endswith("JobEnd")]
    del log.events[line - 1]["Completion Time"]
    path = log.write(tmp_path / "log")
    assert refused(path) == f"log:{line}: SparkListenerJobEnd without a usable 'Completion Time'"
    kept, problems = read(path, partial=True)
    assert kept == [4]
    assert len(problems) == 1
    log = LogBuilder().executor("0").job(0, [stage_info(0, 3), stage_info(1, 1, (0,))], at=2000)
    log.submit(0, 2000).task(0, 0, "0", 2000, 2100).task(0, 1, "0", 2100, None)
    path = log.write(tmp_path / "log")
    assert refused(path) == "log: no query ran to its end (0 failed, 1 unfinished)"
    [application] = read_event_log(path, partial=True)
    [query] = application.queries
    assert not query.complete
    assert [stage.num_tasks for stage in query.stages] == [3]
    assert len(query.tasks) == 1
    assert (application.report.unfinished_queries, application.report.unfinished_tasks) == (1, 1)


def test_logs_that_are_cut_or_still_written(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(small_log().text[:-20])
    kept, problems = read(path)
    assert kept == [4]
    assert "the log is cut off in mid-line (truncated, or still being written)" in problems[0]
    assert "no SparkListenerApplicationEnd" in problems[1]
    path = small_log().write(tmp_path / "app-1.inprogress")
    assert read(path) == ([4], ["app-1.inprogress: the application is still running, or died (.inprogress)"])


def test_a_large_log_takes_little_memory(tmp_path):
    """80 stages of 100 tasks, with Spark's other data: 50 MB read in a fifth of this memory."""
    padding = {"Accumulables": "a" * 3000}
    path = tmp_path / "log.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(LogBuilder().executor("0").text)
        for stage in range(80):
            part = LogBuilder()
            part.events.clear()
            start = 2000 + 1000 * stage
            part.job(stage, [stage_info(stage, 100)], at=start).run(stage, start, start + 900)
            for event in part.job_end(stage, start + 900).events:
                event.update(padding)
            file.write(part.text)
        end = LogBuilder()
        end.events.clear()
        file.write(end.end(10**6).text)
    tracemalloc.start()
    try:
        [application] = read_event_log(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(len(query.tasks) for query in application.queries) == 8_000
    assert peak < 10e6, peak
