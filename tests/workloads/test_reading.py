"""Files of all kinds: unreadable files, invalid JSON, and excerpts of recorded jobs."""

import gzip
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cases import cases
from tests.refusal import refusal
from workloads import Excerpt, Workload, WorkloadError, read_alibaba, read_swf_workload, read_wfcommons, read_workload
from workloads.reading import all_of, open_regular, opened, read_bytes, read_document
from workloads.texts import number_in, whole_in

#: Three jobs of four tasks: arrival times, s, in the order of the file.
ARRIVALS_S = (10, 0, 40)


class Kind(NamedTuple):
    """A file format; ``read`` takes a path, and options of trace readers."""

    suffix: str
    texts: tuple[str, ...]
    read: Callable[..., Workload]
    expected: str


def _workflow(second: int) -> str:
    tasks = [{"name": f"t_{n}", "id": f"t_{n}", "parents": [], "children": []} for n in range(4)]
    measured = [{"id": task["id"], "runtimeInSeconds": 2} for task in tasks]
    execution = {"executedAt": f"2020-01-01T00:00:{second}Z", "tasks": measured}
    workflow = {"specification": {"tasks": tasks}, "execution": execution}
    return json.dumps({"schemaVersion": "1.5", "workflow": workflow})


KINDS = {
    "workload": Kind(
        "json",
        ('{"format": "decima-workload", "version": 1, "profiles": {"a": {"stages": []}}}',),
        read_workload,
        "a workload file",
    ),
    "SWF": Kind(
        "swf",
        ("\n".join(f"1 {second} 5 100 4 {'-1 ' * 12}-1" for second in ARRIVALS_S),),
        read_swf_workload,
        "a log in Standard Workload Format",
    ),
    "Alibaba": Kind(
        "csv",
        ("".join(f"M1,4,j_{second},1,Terminated,{1 + second},99,100,0.5\n" for second in ARRIVALS_S),),
        read_alibaba,
        "a table batch_task (.csv, .csv.gz)",
    ),
    "WfFormat": Kind(
        "json",
        tuple(_workflow(10 + second) for second in ARRIVALS_S),
        lambda path, *options, **more: read_wfcommons(
            sorted(path.parent.glob("*.json")) if path.suffix == ".json" else [path], *options, **more
        ),
        "a workflow in WfFormat 1.5",
    ),
}
TRACES = tuple(name for name in KINDS if name != "workload")


@pytest.mark.parametrize("name", KINDS)
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    path = tmp_path / f"it.{kind.suffix}.gz"
    missing = "No such file or directory, expected"
    assert refusal(kind.read, WorkloadError, path) == f"{missing} {kind.expected}"
    path.mkdir()
    assert refusal(kind.read, WorkloadError, path) == f"Is a directory, expected {kind.expected}"
    path.rmdir()
    text = kind.texts[0].encode()
    whole = gzip.compress(text)
    damaged = whole[:10] + b"\xff" * 20
    for data in (text, whole[: len(whole) // 2], whole[:-9], whole[:-4], damaged):
        path.write_bytes(data)
        message = refusal(kind.read, WorkloadError, path)
        assert message == "expected gzip, the file is malformed or cut short"


def test_files_that_are_too_large() -> None:
    assert all_of(io.BytesIO(b"123"), 3) == b"123"
    with pytest.raises(OSError, match="more than 2 bytes"):
        all_of(io.BytesIO(b"123"), 2)


def test_only_regular_files_of_bounded_size_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(b"123")
    assert (read_bytes(path), read_bytes(path, 3)) == (b"123", b"123")
    with pytest.raises(OSError, match="more than 2 bytes"):
        read_bytes(path, 2)
    os.truncate(path, 2**40)  # takes no room on the disk, and must take none in memory
    with pytest.raises(OSError, match="more than 128 MiB"):
        read_bytes(path)
    pipe, endless, loop = (tmp_path / name for name in ("pipe", "endless", "loop"))
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    loop.symlink_to(loop)
    for other, reason in (
        (pipe, "a pipe, socket or device"),
        (endless, "a pipe, socket or device"),
        (loop, "Too many levels of symbolic links"),
        (tmp_path, "Is a directory"),
        (tmp_path / "absent", "No such file or directory"),
        (tmp_path / "a\0b", "not a file name"),
    ):
        with pytest.raises(OSError) as refused:
            open_regular(other)
        assert refused.value.strerror == reason


def test_a_pipe_that_takes_the_place_of_a_file_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, pipe = tmp_path / "it", tmp_path / "pipe"
    path.touch()
    os.mkfifo(pipe)
    real = os.open
    monkeypatch.setattr(os, "open", lambda _, flags: real(pipe, flags))
    with pytest.raises(OSError, match="a pipe, socket or device"):
        open_regular(path)


def test_a_small_archive_of_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "it.gz"
    path.write_bytes(gzip.compress(b"12345\n" * 100))
    with opened(path, "numbers", 600) as file:
        assert list(file) == [b"12345\n"] * 100
    with (
        pytest.raises(WorkloadError, match="more than 599 bytes, expected numbers"),
        opened(path, "numbers", 599) as file,
    ):
        file.readlines()


@pytest.mark.parametrize("value", ["[],", "{},", "0,"])
def test_documents_of_too_many_values_are_refused(tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.reading.MOST_VALUES", 1000)
    path = tmp_path / "it.json"
    path.write_text(f"[{value * 1000}0]")
    assert refusal(lambda path: read_document(path, "JSON"), WorkloadError, path) == "more than 1,000 values"
    path.write_text(f"[{value * 300}0]")
    assert len(read_document(path, "JSON")) == 301  # type: ignore[arg-type]


def test_malformed_entries_by_the_thousand_take_little_memory(tmp_path: Path) -> None:
    """Only the first malformed entry of a list is described."""
    path = tmp_path / "it.json"
    path.write_text(_workflow(1).replace('"parents": []', f'"parents": [{"1," * 20_000}1]', 1))
    assert refusal(KINDS["WfFormat"].read, WorkloadError, path) == (
        "workflow.specification.tasks[0].parents[0]: expected a valid string, got 1"
    )
    profiles = ",".join(f'"p{number}": 1' for number in range(10_001))
    path.write_text(f'{{"format": "decima-workload", "version": 1, "profiles": {{{profiles}}}}}')
    assert refusal(KINDS["workload"].read, WorkloadError, path) == "10,001 entries are malformed"


@cases(
    "text, number, whole",
    ("12", 12.0, 12),
    ("-3", -3.0, -3),
    ("1e3", 1000.0, None),
    ("1_0", math.nan, None),
    (" 1", math.nan, None),
    ("1\n", math.nan, None),
    ("\u0663", math.nan, None),
    ("\uff11", math.nan, None),
    ("0x1F", math.nan, None),
    ("", math.nan, None),
    ("1e400", math.inf, None),
    ("9" * 19, 1e19, None),
    ("9" * 5000, math.inf, None),
)
def test_numbers_in_texts(text: str, number: float, whole: int | None) -> None:
    assert number_in(text) == pytest.approx(number, nan_ok=True)
    assert whole_in(text) == whole


@pytest.mark.parametrize("name", ["workload", "WfFormat"])
@cases(
    "data, message",
    (b"", "line 1, column 1: Expecting value"),
    (b'{\n  "format": }', "line 2, column 13: Expecting value"),
    (b"[]", "expected an object"),
    (b"1", "expected an object, got 1"),
    (b"{} {}", "line 1, column 4: Extra data"),
    (b'{"a": {"b": [0, {"c": 1, "d": 2, "c": 3}]}}', "a.b[1].c: this key is given more than once"),
    (b'{"format": 1, "format": 1}', "format: this key is given more than once"),
    (b"[" * 100_000, "too many levels of brackets"),
    (b'{"a":' * 100_000, "too many levels of brackets"),
    (b'{"format": "\xe9"}', "byte 12: expected UTF-8 text"),
    (b'{"\\ud800": 1}', "expected characters, got half a surrogate pair in '\\ud800'"),
    (b'{"a": ["\\ud800"]}', "a[0]: expected characters, got half a surrogate pair in '\\ud800'"),
)
def test_malformed_json(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(data)
    assert refusal(KINDS[name].read, WorkloadError, path) == message


@pytest.fixture(params=TRACES)
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Workload]:
    """Read the three jobs from a file of each kind, with some options."""
    kind = KINDS[request.param]
    paths = [tmp_path / f"{number}.{kind.suffix}" for number in range(len(kind.texts))]
    for path, text in zip(paths, kind.texts, strict=True):
        path.write_text(text)
    return lambda *options, **more: kind.read(paths[0], *options, **more)


def arrivals_s(workload: Workload) -> list[float]:
    assert workload.sequence is not None
    return [each / 1000 for each in workload.sequence.arrival_ms.tolist()]


def test_jobs_come_in_order_from_the_first_on(read: Callable[..., Workload]) -> None:
    workload = read()
    assert arrivals_s(workload) == [0, 10, 40]
    assert workload.about["excerpt"] == {}


def test_an_excerpt(read: Callable[..., Workload], request: pytest.FixtureRequest) -> None:
    # The clock of Alibaba's trace begins before its first job.
    late = 1 if "Alibaba" in request.node.name else 0
    workload = read(Excerpt(from_s=5 + late, speed_up=2, scale_tasks=3))
    assert arrivals_s(workload) == [0, 15]
    assert {profile.num_tasks for profile in workload.profiles} == {2}
    assert workload.about["excerpt"] == {"from_s": 5 + late, "speed_up": 2, "scale_tasks": 3}
    one = read(Excerpt(until_s=40 + late, sample=1, seed=3))
    assert arrivals_s(one) == [0]
    assert one.sequence is not None
    assert one.sequence.seed == 3
    with pytest.raises(WorkloadError, match="expected jobs that arrive from 500 to inf s, got none"):
        read(Excerpt(from_s=500))


@pytest.mark.parametrize("executor", [(0, 1), (1, 0), (1, math.inf), (math.nan, 1)])
def test_executors_of_no_size(read: Callable[..., Workload], executor: Any) -> None:
    with pytest.raises(WorkloadError, match=r"^an executor's \w+ and memory must be above 0 and finite, got \("):
        read(executor=executor)


@pytest.mark.parametrize("name", ["SWF", "Alibaba"])
def test_more_jobs_than_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("workloads.excerpt.MOST_JOBS", 2)
    path = tmp_path / "it"
    path.write_text(KINDS[name].texts[0])
    message = "3 jobs at once, choose at most 2 by time or sample"
    assert refusal(KINDS[name].read, WorkloadError, path) == message
    assert len(arrivals_s(KINDS[name].read(path, Excerpt(sample=2)))) == 2
