"""Event log files: detection, compression, lines, and messages about damaged ones."""

import errno
import gzip
import json
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.cases import cases
from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from workloads import WorkloadError, read_event_log
from workloads.spark import eventlog, logfile
from workloads.spark.eventlog import read_event_logs
from workloads.spark.importing import import_event_logs
from workloads.spark.logfile import Problems, events, find_event_logs

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
    """Logs at any depth, but none whose name, or a folder of it, begins with a dot or an underscore."""
    for name in ("b", "a.gz", ".hidden", "_SUCCESS", "c/deeper/1", "_ignored/2"):
        small_log().write(tmp_path / name)
    part(tmp_path / "aa", 1)
    (tmp_path / "none").mkdir()
    (tmp_path / "c" / "circle").symlink_to(tmp_path)
    assert [log.path.name for log in find_event_logs(tmp_path)] == ["a.gz", "aa", "b", "1"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WorkloadError, match="pipe: no event log"):
        find_event_logs(tmp_path / "pipe")
    assert len(find_event_logs(tmp_path)) == 4


@pytest.mark.parametrize(("name", "running"), [("app", False), ("app.inprogress", True), ("inprogress", False)])
def test_logs_in_progress(tmp_path, name, running):
    small_log().write(tmp_path / "one" / name)
    part(tmp_path / "rolled", 1)
    (tmp_path / "rolled" / f"appstatus_{name}").touch()
    for path in ("one", f"one/{name}", "rolled"):
        assert [log.in_progress for log in find_event_logs(tmp_path / path)] == [running], path


def test_rolled_logs_of_two_applications_in_one_folder(tmp_path):
    for name in ("events_1_app-1", "events_2_app-1.zstd", "events_1_app-2_1.lz4", "events_2_app-2_1.lz4.compact"):
        write(tmp_path / name, OTHER)
    assert [[file.name for file in log.files] for log in find_event_logs(tmp_path)] == [
        ["events_1_app-1", "events_2_app-1.zstd"],
        ["events_2_app-2_1.lz4.compact"],
    ]


NEWEST = "eventlog"
PARTS = ["eventlog-2024-01-31--23-00.gz", "eventlog-2024-02-01--00-15.gz", "eventlog-2024-02-01--09-30", NEWEST]


def databricks_log(folder: Path, log: LogBuilder, cuts: tuple[int, ...]) -> Path:
    """Write a log as the parts of a rolled log of Databricks, cut before the events with the given numbers."""
    for name, start, end in zip(PARTS[-1 - len(cuts) :], (0, *cuts), (*cuts, None), strict=True):
        piece = LogBuilder()
        piece.events = log.events[start:end]
        piece.write(folder / name)
    return folder


@pytest.mark.parametrize("cuts", [(9,), (1, 12), (5, 9, 14)])
def test_a_rolled_log_of_databricks_is_one_log(tmp_path, cuts):
    """Wherever it was cut, and if only the first part has the start of the application."""
    folder = databricks_log(tmp_path / "cluster" / "eventlog" / "7", small_log(), cuts)
    for path in (folder, tmp_path):
        [log] = find_event_logs(path)
        assert [file.name for file in log.files] == PARTS[-1 - len(cuts) :]
        [application] = read_event_log(path)
        assert [[stage.num_tasks for stage in query.stages] for query in application.queries] == [[3, 1]]
        assert application.name == "test"
    databricks_log(tmp_path / "cluster" / "eventlog" / "8", small_log(app="app-2"), (9,))
    assert [found.application_id for found in read_event_log(tmp_path)] == ["app-1", "app-2"]


def test_parts_that_are_named_one_by_one_are_joined(tmp_path):
    """Such as those of a shell's pattern ``eventlog/*``, in its order."""
    folder = databricks_log(tmp_path / "eventlog", small_log(), (5, 9, 14))
    [application], notes = read_event_logs(sorted(folder.iterdir()))
    assert (len(application.queries), notes) == (1, [])
    for number in (1, 2):
        part(tmp_path / "rolled", number)
    [log] = find_event_logs(*sorted((tmp_path / "rolled").iterdir(), reverse=True))
    assert [file.name for file in log.files] == ["events_1_app", "events_2_app"]
    assert find_event_logs(tmp_path / "rolled" / "events_2_app")[0].gaps == ()


def test_last_parts_of_a_rolled_log_without_the_start_of_the_application(tmp_path):
    """Two of them are not taken for one application."""
    for name in ("a", "b"):
        databricks_log(tmp_path / name, small_log(), (2, 9))
        (tmp_path / name / PARTS[-3]).unlink()
    applications = read_event_log(tmp_path)
    assert [application.name for application in applications] == ["a", "b"]
    assert len({application.application_id for application in applications}) == 2
    assert [len(query.tasks) for application in applications for query in application.queries] == [4, 4]


def test_an_event_that_is_repeated_in_each_part_begins_no_application(tmp_path):
    log = small_log()
    start, environment = log.events[:2], {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {}}
    log.events[9:9] = [start[0], environment, start[1]]
    log.events[15:15] = [start[0], environment]
    [application] = read_event_log(databricks_log(tmp_path / "eventlog", log, (9, 15)))
    assert [len(query.tasks) for query in application.queries] == [4]
    log.events += small_log(app="app-2").events  # of another run on the cluster
    found = read_event_log(databricks_log(tmp_path / "eventlog", log, (9, 15)))
    assert [application.application_id for application in found] == ["app-1", "app-2"]


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_applications_in_one_file_without_a_start_of_the_log(tmp_path, monkeypatch, most):
    """Or with so many events before the start of the application that they are not kept."""
    monkeypatch.setattr(eventlog, "_MOST_HELD", most)
    for first in (0, 1):
        other = small_log(app="app-2")
        other.events = other.events[first:]
        (tmp_path / "log").write_bytes(small_log().text + other.text)
        assert [application.application_id for application in read_event_log(tmp_path / "log")] == ["app-1", "app-2"]
    log = small_log().add("LogStart", **{"Spark Version": "4.0.0"})
    assert read_event_log(log.write(tmp_path / "log"))[0].spark_version == "4.0.0"


def test_a_rolled_log_that_is_named_and_has_no_jobs(tmp_path):
    LogBuilder().executor("0").end().write(tmp_path / "eventlog_v2_app" / "events_1_app")
    expected = "eventlog_v2_app: nothing to import: skipped eventlog_v2_app: the log contains no Spark jobs"
    assert refused(tmp_path / "eventlog_v2_app") == expected


@cases(
    "numbers, problem", ((0, 1, 2), None), ((0, 2, 3), "parts 1 to 1 of the rolled log are missing"), ((0, 0, 1), None)
)
def test_missing_parts_of_a_rolled_log_of_databricks(tmp_path, numbers, problem):
    """Databricks numbers the parts; the numbers begin again with each run on the cluster."""
    log = small_log()
    for place, number in zip((15, 9, 0), reversed(numbers), strict=True):
        metadata = {"Event": "DBCEventLoggingListenerMetadata", "Rollover Number": number, "Spark Version": "3.4.1"}
        log.events.insert(place, metadata)
    folder = databricks_log(tmp_path / "eventlog", log, (10, 17))
    if problem:
        assert refused(folder) == f"eventlog/{PARTS[-2]}:1: {problem}"
    [application] = read_event_log(folder, partial=True)
    assert application.spark_version == "3.5.1"
    assert [len(query.tasks) for query in application.queries] == [4]


def test_a_rolled_log_of_databricks_whose_beginning_is_missing_is_noted(tmp_path):
    log = small_log()
    log.events[:1] = [{"Event": "DBCEventLoggingListenerMetadata", "Rollover Number": 3, "Spark Version": "3.4.1"}]
    [application] = read_event_log(log.write(tmp_path / NEWEST))
    assert application.report.problems == (f"{tmp_path}/{NEWEST}:1: parts 0 to 2 of the rolled log are missing",)
    assert application.spark_version == "3.4.1"


def test_an_empty_part_and_a_damaged_line_of_a_later_part(tmp_path):
    """Spark may just have begun the newest part."""
    databricks_log(tmp_path / "eventlog", small_log(), (9,))
    newest = tmp_path / "eventlog" / NEWEST
    newest.rename(tmp_path / "eventlog" / "eventlog-2024-10-01--00-00")
    newest.touch()
    [application] = read_event_log(tmp_path / "eventlog")
    assert [len(query.tasks) for query in application.queries] == [4]
    newest.write_text("nonsense\n")
    assert refused(tmp_path / "eventlog") == "eventlog/eventlog:1: not an event: 'nonsense'"


def zipped(path: Path, folder: Path) -> Path:
    """Write an archive of a folder as Spark's history server does: with entries of folders."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, str(file.relative_to(folder)))
    return path


def test_the_archive_that_the_history_server_gives(tmp_path):
    """It contains a file for each attempt, or a folder with the parts of a rolled log."""
    logs = tmp_path / "logs"
    small_log(app="app-1").write(logs / "app-1_1.gz")
    small_log(app="app-1", name="again").write(logs / "app-1_2")
    rolled_log = small_log(app="app-2")
    for number, events_of_part in enumerate((rolled_log.events[:9], rolled_log.events[9:]), start=1):
        piece = LogBuilder()
        piece.events = events_of_part
        piece.write(logs / "eventlog_v2_app-2" / f"events_{number}_app-2")
    (logs / "eventlog_v2_app-2" / "appstatus_app-2").touch()
    databricks_log(logs / "eventlog", small_log(app="app-3"), (9,))
    small_log().write(logs / "__MACOSX" / "other")
    archive = zipped(tmp_path / "logs.zip", logs)
    (tmp_path / "folder").mkdir()
    zipped(tmp_path / "folder" / "named-otherwise", logs)
    for path in (archive, tmp_path / "folder", logs):
        found = read_event_log(path)
        assert [(application.application_id, application.name) for application in found] == [
            ("app-1", "test"), ("app-1", "again"), ("app-3", "test"), ("app-2", "test"),
        ]  # fmt: skip
        assert [len(query.tasks) for application in found for query in application.queries] == [4] * 4


def test_archives_without_logs_and_damaged_ones(tmp_path, monkeypatch):
    (tmp_path / "none").mkdir()
    archive = zipped(tmp_path / "a.zip", tmp_path / "none")
    assert refused(archive) == "a.zip: the folder contains no event log"
    small_log().write(tmp_path / "logs" / "app\n1")
    whole = zipped(archive, tmp_path / "logs").read_bytes()
    archive.write_bytes(whole[:-30])
    assert refused(archive).startswith("a.zip: the zip archive is unreadable (")
    archive.write_bytes(whole[:100] + bytes(20) + whole[120:])
    assert refused(archive).startswith("a.zip/app?1:1: the data are damaged")
    archive.write_bytes(whole.replace(b"\x14\0\0\0\x08", b"\x14\0\x01\0\x08"))
    assert "is encrypted, password required" in refused(archive)
    archive.write_bytes(whole)
    monkeypatch.setattr(logfile, "MOST_MEMBERS", 0)
    assert refused(archive) == "a.zip: 1 files, expected at most 0 in a zip archive"
    monkeypatch.setattr(logfile, "LARGEST_CONTENTS", 10)
    assert refused(archive).startswith("a.zip: the zip archive is unreadable (its table of contents has more than")


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


def test_folders_without_logs_and_logs_without_jobs(tmp_path):
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty") == "empty: the folder contains no event log"
    assert refused(tmp_path / "none") == "none: no such file or folder"
    path = LogBuilder().executor("0").end().write(tmp_path / "log")
    assert refused(path) == "log: the log contains no Spark jobs"
    assert read(path, partial=True) == ([], ["log: the log contains no Spark jobs"])


def test_files_that_are_no_logs_and_idle_applications_are_skipped_in_a_folder(tmp_path):
    """One line for each reason, with the number and the first path. A log that the caller names is still refused."""
    logs = tmp_path / "logs"
    small_log().write(logs / "good")
    for name in ("notes.txt", "more/readme"):
        (logs / name).parent.mkdir(exist_ok=True)
        (logs / name).write_text("hello\n")
    (logs / "empty").touch()
    (logs / "framed.lz4").write_bytes(b"\x04\x22\x4d\x18________")
    LogBuilder().executor("0").end().write(logs / "idle")
    LogBuilder().job(0, [stage_info(0, 1)], at=2000).job_end(0, 2100, "JobFailed").end().write(logs / "failed")
    for partial in (False, True):
        [application], notes = read_event_logs([logs], partial=partial)
        assert len(application.queries) == 1
        assert sorted(notes) == [
            f"{logs}: skipped empty: the file is empty, not a Spark event log",
            f"{logs}: skipped failed: no query ran to its end",
            f"{logs}: skipped framed.lz4: the LZ4 frame compression is not supported; unpack it by: lz4 -d",
            f"{logs}: skipped idle: the log contains no Spark jobs",
            f"{logs}: skipped more/readme and 1 more: not a Spark event log",
        ]
        assert list(import_event_logs([logs], partial=partial).notes[-5:]) == notes
        for name in ("notes.txt", "empty", "framed.lz4"):
            with pytest.raises(WorkloadError, match=f"logs/{name}"):
                read_event_logs([logs, logs / name], partial=partial)
    assert refused(logs / "idle") == "idle: the log contains no Spark jobs"
    (logs / "good").unlink()
    assert refused(logs).startswith("logs: nothing to import: skipped ")
    small_log().write(tmp_path / "others" / "good")
    with pytest.raises(WorkloadError, match="logs: nothing to import"):
        read_event_logs([tmp_path / "others", logs])


def test_an_idle_application_among_others_in_one_file(tmp_path):
    idle = LogBuilder(app="app-0").executor("0").end().text
    (tmp_path / "log").write_bytes(small_log().text + idle + small_log(app="app-2").text)
    found, notes = read_event_logs([tmp_path])
    assert [application.application_id for application in found] == ["app-1", "app-2"]
    assert notes == [f"{tmp_path}: skipped log: the log contains no Spark jobs"]
    assert refused(tmp_path / "log") == "log: the log contains no Spark jobs"


def test_a_file_without_permission_is_skipped_in_a_folder(tmp_path, monkeypatch):
    def opened(path: Path) -> BinaryIO:
        if path.name == "secret":
            raise PermissionError(errno.EACCES, "Permission denied")
        return path.open("rb")

    monkeypatch.setattr(logfile, "open_regular", opened)
    for name in ("good", "secret"):
        small_log().write(tmp_path / "logs" / name)
    [_], notes = read_event_logs([tmp_path / "logs"])
    assert notes == [f"{tmp_path}/logs: skipped secret: Permission denied, expected an event log of Spark"]
    assert refused(tmp_path / "logs" / "secret") == "secret: Permission denied, expected an event log of Spark"


@cases("version, first", ("", "Stage Infos"), ("", "Parent IDs"), ("1.3.1", "Parent IDs"))
def test_logs_of_spark_before_1_4_are_refused(tmp_path, version, first):
    """They lack the parents of stages; the oldest ones lack their own version, too."""
    log = small_log(version=version)
    start = next(event for event in log.events if event["Event"].endswith("JobStart"))
    for owner in (start, *start["Stage Infos"]):
        owner.pop(first, None)
    log.events = log.events if version else log.events[1:]
    path = log.write(tmp_path / "logs" / "old")
    line = 4 if version else 3
    reason = "Spark before 1.4 does not log the parents of stages, expected a log of Spark 1.4 or newer"
    assert refused(path) == f"old:{line}: {reason}"
    small_log().write(tmp_path / "logs" / "new")
    assert read_event_logs([tmp_path / "logs"])[1] == [f"{tmp_path}/logs: skipped old: {reason}"]
    new = small_log(version="3.5.1")
    new.events[3]["Stage Infos"][0].pop("Parent IDs")
    assert refused(new.write(tmp_path / "log")) == "log:4: SparkListenerJobStart without a usable 'Parent IDs'"


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
    (b"\n \nhello\n", NO_EVENT.replace(":1:", ":3:")),
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
