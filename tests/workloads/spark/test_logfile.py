"""Where event logs are found, how they are compressed, and what is said of those that cannot be read."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from workloads.job import WorkloadError
from workloads.spark import logfile as spark_logfile
from workloads.spark.eventlog import read_event_log


def refusal(path: Path) -> str:
    """What is said of a log that is refused: one line that names it."""
    with pytest.raises(WorkloadError) as caught:
        read_event_log(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path.parent))
    return message.removeprefix(f"{path.parent}/")


def partial(path: Path) -> tuple[list[int], list[str]]:
    """As ``read``, of a log that may be damaged."""
    return read(path, partial=True)


def read(path: Path, partial: bool = False) -> tuple[list[int], list[str]]:
    """Number of tasks of each query that was kept, and the problems, without the paths."""
    [application] = read_event_log(path, partial=partial)
    problems = [problem.removeprefix(f"{path.parent}/") for problem in application.report.problems]
    return [len(query.tasks) for query in application.queries], problems


def test_zstd_in_several_frames(tmp_path):
    zstandard = pytest.importorskip("zstandard", reason="needs the extra [spark]")
    text = small_log().text
    frames = [zstandard.compress(text[:500]), zstandard.compress(text[500:])]
    (tmp_path / "log.zstd").write_bytes(b"".join(frames))
    [application] = read_event_log(tmp_path / "log.zstd")
    assert len(application.queries) == 1


def test_zstd_cut_off(tmp_path):
    zstandard = pytest.importorskip("zstandard", reason="needs the extra [spark]")
    text = small_log().text
    cut = text.index(b"SparkListenerApplicationEnd")
    (tmp_path / "log.zstd").write_bytes(zstandard.compress(text[:cut]) + zstandard.compress(text[cut:])[:20])
    kept, problems = read(tmp_path / "log.zstd")
    assert kept == [4]
    assert "mid-line" in problems[0]


def test_zstd_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(spark_logfile, "zstandard", None)
    (tmp_path / "log.zst").write_bytes(b"\x28\xb5\x2f\xfd____")
    assert "pip install -e '.[spark]'" in refusal(tmp_path / "log.zst")


def test_compressions_that_are_not_supported(tmp_path):
    (tmp_path / "log.lz4").write_bytes(b"LZ4Block1234")
    assert refusal(tmp_path / "log.lz4") == (
        "log.lz4: lz4 compression is not supported; unpack it, or use gzip or zstd"
    )


def rolled(folder: Path, parts: int = 11, suffix: str = "") -> Path:
    """A log rolled over many files, so that their names do not sort as their numbers do."""
    lines = small_log().text.splitlines(keepends=True)
    folder.mkdir(parents=True)
    (folder / "appstatus_app-1").touch()
    for part in range(parts):
        first, last = len(lines) * part // parts, len(lines) * (part + 1) // parts
        (folder / f"events_{part + 1}_app-1{suffix}").write_bytes(b"".join(lines[first:last]))
    return folder


def test_a_rolled_log(tmp_path):
    [application] = read_event_log(rolled(tmp_path / "eventlog_v2_app-1"))
    assert [len(query.tasks) for query in application.queries] == [4]


def test_a_rolled_log_with_a_hole(tmp_path):
    log = rolled(tmp_path / "eventlog_v2_app-1")
    (log / "events_4_app-1").unlink()
    assert refusal(log) == "eventlog_v2_app-1: part 4 of the rolled log (events_4_...) is missing"
    assert len(partial(log)[1]) == 1


def test_a_rolled_log_in_progress(tmp_path):
    log = rolled(tmp_path / "eventlog_v2_app-1")
    (log / "appstatus_app-1").rename(log / "appstatus_app-1.inprogress")
    kept, problems = read(log)
    assert kept == [4]
    assert "still running, or died (.inprogress)" in problems[0]


def test_a_compacted_log_starts_at_its_compaction(tmp_path):
    log = rolled(tmp_path / "eventlog_v2_app-1", parts=3)
    whole = b"".join((log / f"events_{part}_app-1").read_bytes() for part in (1, 2))
    (log / "events_2_app-1.compact").write_bytes(whole)
    assert "compacted by Spark" in refusal(log)
    assert partial(log)[0] == [4]


def test_a_folder_of_logs(tmp_path):
    folder = tmp_path / "logs"
    small_log(name="b").write(folder / "b")
    small_log(name="c").write(folder / "c.gz")
    rolled(folder / "eventlog_v2_app-1")
    (folder / ".b.crc").write_bytes(b"crc")
    assert [application.name for application in read_event_log(folder)] == ["b", "c", "test"]


def test_nothing_there(tmp_path):
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty") == "empty: the folder holds no event log"
    assert refusal(tmp_path / "none") == "none: no such file or folder"


def test_several_applications_in_one_file(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(small_log(app="app-1").text + small_log(app="app-2").text)
    assert [application.application_id for application in read_event_log(path)] == ["app-1", "app-2"]


def test_unknown_events_are_ignored_and_counted(tmp_path):
    log = small_log().add("FromTheFuture", x=1).add("FromTheFuture", x=2)
    [application] = read_event_log(log.write(tmp_path / "log"))
    assert application.report.ignored_events == {"SparkListenerFromTheFuture": 2}
    assert application.report.lines() == ["2 events that say nothing of durations (2 FromTheFuture)"]


NO_EVENT = 'log:1: not a Spark event log (expected {"Event":...})'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *(
            (text, NO_EVENT)
            for text in (b"hello\nworld\n", b"\x00\x01\x02", b'{"a": 1}\n', b"[1]\n", b"x" * 9999)
        ),
        (b'{"Event":"click"}\n', "log: not a Spark event log (no SparkListenerApplicationStart)"),
        (b"", "log:1: the file is empty, not a Spark event log"),
    ],
)
def test_a_file_that_is_no_event_log(tmp_path, content, said):
    path = tmp_path / "log"
    path.write_bytes(content)
    assert refusal(path) == said
    with pytest.raises(WorkloadError, match="not a Spark event log"):
        read_event_log(path, partial=True)


def test_a_garbage_line(tmp_path):
    lines = small_log().text.splitlines(keepends=True)
    path = tmp_path / "log"
    path.write_bytes(b"".join([*lines[:5], b"%&!?\n", *lines[5:]]))
    assert refusal(path) == "log:6: not an event: '%&!?'"
    assert partial(path) == ([4], ["log:6: not an event: '%&!?'"])


def test_an_event_that_lacks_a_field(tmp_path):
    log = small_log()
    [line] = [number for number, event in enumerate(log.events, 1) if event["Event"].endswith("JobEnd")]
    del log.events[line - 1]["Completion Time"]
    path = log.write(tmp_path / "log")
    assert refusal(path) == f"log:{line}: SparkListenerJobEnd without a usable 'Completion Time'"
    kept, problems = partial(path)
    assert kept == [4]
    assert len(problems) == 1


def test_a_truncated_log(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(small_log().text[:-20])
    kept, problems = read(path)
    assert kept == [4]
    assert "the log is cut off in mid-line (truncated, or still being written)" in problems[0]
    assert ["mid-line" in problems[0], "no SparkListenerApplicationEnd" in problems[1]] == [True, True]


def test_a_truncated_gzip(tmp_path):
    log = LogBuilder().executor("0")
    for job in range(300):
        start = 2000 + 100 * job
        log.job(job, [stage_info(job, 1)], at=start).run(job, start, start + 90).job_end(job, start + 90)
    whole = gzip.compress(log.end().text)
    path = tmp_path / "log.gz"
    path.write_bytes(whole[: len(whole) // 2])
    kept, problems = read(path)
    assert 50 < len(kept) < 250
    assert "end early" in problems[0]


def test_a_log_still_being_written(tmp_path):
    path = small_log().write(tmp_path / "app-1.inprogress")
    assert read(path) == ([4], ["app-1.inprogress: the application is still running, or died (.inprogress)"])


def test_a_damaged_gzip(tmp_path):
    whole = bytearray(gzip.compress(small_log().text))
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / "log.gz"
    path.write_bytes(whole)
    assert "damaged" in refusal(path) or "not an event" in refusal(path)


def test_an_application_that_died(tmp_path):
    log = LogBuilder().executor("0").job(0, [stage_info(0, 3), stage_info(1, 1, (0,))], at=2000)
    log.submit(0, 2000).task(0, 0, "0", 2000, 2100).task(0, 1, "0", 2100, None)
    path = log.write(tmp_path / "log")
    assert refusal(path) == "log: no query ran to its end (0 failed, 1 unfinished)"
    [application] = read_event_log(path, partial=True)
    [query] = application.queries
    assert not query.complete
    assert [stage.num_tasks for stage in query.stages] == [3]
    assert len(query.tasks) == 1
    assert (application.report.unfinished_queries, application.report.unfinished_tasks) == (1, 1)


def test_a_log_without_jobs(tmp_path):
    path = LogBuilder().executor("0").end().write(tmp_path / "log")
    assert refusal(path) == "log: the log holds no Spark jobs"
    assert partial(path) == ([], ["log: the log holds no Spark jobs"])


def test_a_log_in_which_every_query_failed(tmp_path):
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2100, reason="ExceptionFailure").job_end(0, 2100, "JobFailed")
    path = log.end().write(tmp_path / "log")
    assert refusal(path) == "log: no query ran to its end (1 failed, 0 unfinished)"


def test_of_many_problems_only_the_first_are_kept(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(small_log().text + b"garbage\n" * 1000)
    [application] = read_event_log(path, partial=True)
    assert len(application.report.problems) == 21
    assert application.report.problems[-1] == "and 980 problems more"


def test_long_lines_that_nobody_needs_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(spark_logfile, "MAX_LINE", 10_000)
    log = small_log().add("Unknown", x="y" * 35_000).job(9, [stage_info(9, 1)], at=5000)
    [application] = read_event_log(log.write(tmp_path / "log"), partial=True)
    assert application.report.problems == ()
    assert application.report.unfinished_queries == 1


def test_a_long_line_that_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(spark_logfile, "MAX_LINE", 10_000)
    log = small_log().add("JobEnd", x="y" * 35_000)
    assert refusal(log.write(tmp_path / "log")) == f"log:{len(log.events)}: an event of more than 0 MiB"


def test_a_large_log_takes_little_memory(tmp_path):
    """80 stages of 100 tasks, with as much beside them as Spark writes: 50 MB read in a fifth of it."""
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
