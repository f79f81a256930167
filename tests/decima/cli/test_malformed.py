"""Whatever is given to a command that it cannot use ends it in one line that names it, soon, and touches nothing."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.policy.shipped import SHIPPED
from decima.service.log import Started
from tests.workloads.spark.logs import small_log

#: Longest time until something is refused, s of CPU time; what waits has thirty times as long.
SOON_S = 20
#: Words that no user knows the meaning of.
INSIDE = ("Traceback", "pydantic", "errors.pydantic.dev", "object at 0x", "numpy.", "Unable to allocate")

WORKLOAD: dict[str, Any] = {
    "format": "decima-workload",
    "version": 1,
    "profiles": {
        "a": {"stages": [{"name": "scan", "tasks": 4, "duration_ms": 100}]},
        "b": {
            "stages": [
                {"name": "scan", "tasks": 2, "duration_ms": {"fresh": 200, "first": [90, 80], "rest": 70}},
                {"name": "join", "tasks": 3, "duration_ms": [50, 60], "parents": ["scan"], "memory": 0.5},
            ]
        },
    },
    "jobs": [{"profile": "a", "arrival_ms": 0}, {"profile": "b", "arrival_ms": 10}],
}
WORKFLOW: dict[str, Any] = {
    "name": "w",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {"tasks": [{"name": "t", "id": "t", "parents": [], "children": []}]},
        "execution": {
            "makespanInSeconds": 2,
            "executedAt": "2020-01-01T00:00:00Z",
            "tasks": [{"id": "t", "runtimeInSeconds": 2, "coreCount": 1, "memoryInBytes": 10}],
        },
    },
}
TABLE = "M1,2,j_1,1,Terminated,100,200,100,0.5\nR2_1,1,j_1,1,Terminated,200,300,100,0.5\n"
JOB = "1 0 5 60 4 -1 -1 4 60 -1 1 1 1 1 1 1 -1 -1"
SETTINGS = "iterations: 2\ncluster: {executors: 5}\n"
SERVED = '{"event":"started","format":"decima-service-log"}\n'
PROJECT = "file with basedata : x.bas\n"


def _event_log() -> bytes:
    lines = [json.dumps(event) for event in small_log().events]
    return ("\n".join(lines) + "\n").encode()


TOML = 'format = "decima-workload"\nversion = 1\n\n[[profiles.a.stages]]\ntasks = 2\nduration_ms = 10\n'
FEW = "--budget 0.001"

#: Kind of file -> its name, what is in one that is right, and the commands that read it: one that meets all states
#: of such a file, and those that meet a few.
KINDS: dict[str, tuple[str, Callable[[], bytes], tuple[str, ...]]] = {
    "workload": (
        "it.json",
        lambda: json.dumps(WORKLOAD).encode(),
        (
            "compare --workload it.json",
            "workload show it.json",
            "explain --workload it.json",
            "train --out run --workload it.json",
            "train --out run --set workload.file=it.json",
            f"reproduce fig9a --workload it.json {FEW}",
            f"reproduce grid --trace it.json {FEW}",
            "serve --no-token --spark unix:s --history it.json",
        ),
    ),
    "workload, gzipped": (
        "it.json.gz",
        lambda: gzip.compress(json.dumps(WORKLOAD).encode(), mtime=0),
        ("train --out run --workload it.json.gz", f"reproduce fig9a --workload it.json.gz {FEW}"),
    ),
    "workload in TOML": ("it.toml", TOML.encode, ("compare --workload it.toml",)),
    "policy": (
        "it.npz",
        lambda: SHIPPED["embedded-batch"].read_bytes(),
        (
            "compare --checkpoint it.npz",
            "compare --schedulers fair,decima:it.npz",
            "explain --policy it.npz",
            "serve --no-token --spark unix:s --policy it.npz",
            "train --out run --set start=it.npz",
            "deeprm compare --checkpoint it.npz",
            "deeprm train --out run --set start=it.npz",
            f"reproduce fig9a --checkpoint it.npz {FEW}",
            f"reproduce grid --checkpoint it.npz {FEW}",
            "replay --weights it.npz episode.json",
        ),
    ),
    "checkpoint": (
        "run/checkpoint.pt",
        lambda: b"PK\x03\x04",
        ("train --resume --out run --config batch", "deeprm train --resume --out run --config deeprm"),
    ),
    "settings": (
        "it.yaml",
        SETTINGS.encode,
        ("train --out run --config it.yaml", "deeprm train --out run --config it.yaml"),
    ),
    "settings of a run": ("run/config.yaml", SETTINGS.encode, ("deeprm train --out run --resume",)),
    "event log": (
        "logs/it",
        _event_log,
        (
            "workload import spark logs/it --out new.json",
            "spark what-if logs/it",
            "reproduce fig18 --recordings logs",
        ),
    ),
    "table of Alibaba": ("it.csv", TABLE.encode, ("workload import alibaba it.csv --out new.json",)),
    "table of Alibaba, gzipped": (
        "it.csv.gz",
        lambda: gzip.compress(TABLE.encode(), mtime=0),
        ("workload import alibaba it.csv.gz --out new.json",),
    ),
    "workflow": (
        "it.json",
        lambda: json.dumps(WORKFLOW).encode(),
        ("workload import wfcommons it.json --out new.json",),
    ),
    "log of jobs": (
        "it.swf",
        lambda: f"; MaxProcs: 8\n{JOB}\n".encode(),
        (
            "deeprm compare --log it.swf",
            "deeprm train --out run --log it.swf",
            "deeprm train --out run --set jobs.log=it.swf",
            "reproduce a2c-tables --log it.swf",
            "workload import swf it.swf --out new.json",
        ),
    ),
    "log of jobs, gzipped": (
        "it.swf.gz",
        lambda: gzip.compress(f"; MaxProcs: 8\n{JOB}\n".encode(), mtime=0),
        ("deeprm compare --log it.swf.gz",),
    ),
    "served": ("it.jsonl", SERVED.encode, ("replay-live it.jsonl",)),
    "project": ("projects/it.sm", PROJECT.encode, ("reproduce packing --instances projects",)),
    "best makespans": (
        "it.csv",
        lambda: b"instance,best\nx,3\n",
        ("reproduce packing --instances projects --best it.csv",),
    ),
    "profiles": (
        "tpch/2g/task_duration_1.npy",
        lambda: b"\x93NUMPY\x01\x00",
        (
            "compare --profiles tpch",
            "compare --workload ./tpch",
            "train --out run --profiles tpch",
            "workload show ./tpch",
            f"reproduce fig9a --profiles tpch {FEW}",
            "reproduce grid --profiles tpch --cells tpch-batch-20",
        ),
    ),
    "token": ("token", lambda: b"secret", ("serve --spark unix:s --token-file token",)),
}


def _pipe(path: Path, good: bytes) -> None:
    os.mkfifo(path)


def _cut(path: Path, good: bytes) -> None:
    path.write_bytes(good[: len(good) // 2])


def _write(content: bytes) -> Callable[[Path, bytes], None]:
    def write(path: Path, good: bytes) -> None:
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)

    return write


def _png() -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def _zip(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


#: State of a file -> what makes it, from one that is right.
STATES: dict[str, Callable[[Path, bytes], None]] = {
    "missing": lambda path, good: None,
    "a folder": lambda path, good: path.mkdir(),
    "a pipe": _pipe,
    "endless": lambda path, good: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path, good: path.symlink_to(path),
    "empty": lambda path, good: path.write_bytes(b"") and None,
    "cut short": _cut,
    "a picture": _write(_png()),
    "gzip of nothing": lambda path, good: path.write_bytes(gzip.compress(b"")) and None,
    "an archive of something else": _write(_zip(**{"a.npy": b"x", "policy.npy": b"no array"})),
    "NUL": _write(bytes(1000)),
    "UTF-16": _write("{}".encode("utf-16")),
    "brackets": _write(b"[" * 100_000),
    "escape codes": _write(b"\x1b[31m\x1b]0;x\x07"),
    "a long line": _write(b"1 " * 200_000),
    "text": _write(b"what is this?\n: ["),
    "a list": _write(b"[1, 2]"),
}
#: What commands may differ in: how a file is opened, and that what its reader raises is caught.
FEW_STATES = ("missing", "a folder", "a pipe", "empty", "a picture")
#: States in which such a file is right, or may be.
RIGHT = {
    ("settings", "empty"),
    ("settings of a run", "empty"),
    ("settings of a run", "gzip of nothing"),
    ("settings", "a folder"),
    ("checkpoint", "missing"),
    ("token", "missing"),
    ("token", "cut short"),
    ("profiles", "a folder"),
}
COMMANDS = [
    pytest.param(kind, state, command, id=f"{state}: {command}")
    for kind, (_, _, commands) in KINDS.items()
    for command in commands
    for state in (STATES if command == commands[0] else FEW_STATES)
    if (kind, state) not in RIGHT
]


@pytest.fixture(autouse=True)
def _soon_in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"not refused within {SOON_S} s")

    before = {number: signal.signal(number, late) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, SOON_S)
    signal.alarm(30 * SOON_S)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    for number, handler in before.items():
        signal.signal(number, handler)


def assert_refused(line: str | list[str], *named: str) -> None:
    """The command is refused in one line that names something of these; what is there stays as it is."""
    kept = Path("results.json")
    kept.write_text("kept")
    result = CliRunner().invoke(cli, shlex.split(line) if isinstance(line, str) else line)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    said = result.stderr
    assert result.exit_code not in (0, 130), result.output
    assert said.startswith("decima: error: "), said
    assert said.count("\n") == 1, said
    assert all(char.isprintable() for char in said[:-1]), said.encode()
    assert not any(word in said for word in INSIDE), said
    assert any(name in said for name in named), said
    assert kept.read_text() == "kept"
    assert not Path("new.json").exists()


@pytest.mark.parametrize(("kind", "state", "command"), COMMANDS)
def test_a_file_in_a_state(kind: str, state: str, command: str) -> None:
    name, good, _ = KINDS[kind]
    Path("projects").mkdir()
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    STATES[state](path, good())
    named = (path.name, path.parent.name) if path.parent.name else (path.name,)
    assert_refused(command, *named)


def _put(document: Any, place: str, value: Any) -> Any:
    """A copy with another value in one place; nothing there if the value is Ellipsis."""
    copy = json.loads(json.dumps(document))
    *before, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    inner = copy
    for part in before:
        inner = inner[part]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copy


NAN, INF = float("nan"), float("inf")
STAGE, OTHER = "profiles.a.stages.0", "profiles.b.stages.1"
DEEP: Any = 1
for _ in range(900):
    DEEP = [DEEP]
#: Place in a workload file -> values that cannot stand there; without a value the place is missing.
WORKLOADS: dict[str, list[Any]] = {
    "format": ["decima", ..., None],
    "version": [2, "1", True, 1.5],
    "profiles": [{}, [], ...],
    "profiles.a": [{"stages": []}, "a"],
    "profiles.a.stages": [{}],
    "unknown": [1],
    f"{STAGE}.unknown": [1, DEEP],
    f"{STAGE}.tasks": [0, -1, 1.5, "4", True, 10**13, 10**30, None, ...],
    f"{STAGE}.duration_ms": [..., -1, NAN, INF, 1e300, 10**400, [], [1, -1], [1, None], "100", {}, DEEP]
    + [{"rest": value} for value in ({}, {"0": [1]}, {"\u0665": [1]}, {"99999999999": [1]}, {"5": []})]
    + [{"middle": 1}, {"rest": 1, "mean_ms": -1}],
    f"{STAGE}.name": [5],
    f"{STAGE}.parents": [["scan"], [0], [7], [-1], ["\x1b[31mred"], [None]],
    f"{STAGE}.cpu": [-1, NAN],
    f"{STAGE}.memory": [INF, 1e300],
    f"{OTHER}.parents": [["scan", "scan"], ["join"]],
    f"{OTHER}.memory": ["half"],
    "jobs": [{}, "a"],
    "jobs.0.profile": ["\u202egnp.x", "[red]x[/red]", ...],
    "jobs.0.arrival_ms": [-1, NAN, 1e300, "0"],
    "seed": [-1, 2**200, 0.5],
    "about": [3, NAN],
}


def each(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(place, value) for place, values in table.items() for value in values]


@pytest.mark.parametrize(("place", "value"), each(WORKLOADS), ids=lambda value: f"{value!r:.30}")
def test_a_workload_file(place: str, value: Any) -> None:
    Path("it.json").write_text(json.dumps(_put(WORKLOAD, place, value)))
    words = ["compare", "--workload", "it.json", "--seeds", "1", "--schedulers", "fair"]
    assert_refused(words, "it.json", "stage 0 of job 0 (a)")


@pytest.mark.parametrize(
    "text",
    [
        '{"format": "decima-workload", "format": "decima-workload"}',
        '{"a": 1, "b": {"c": 1, "c": 2}}',
        "[" * 100 + "1" + "]" * 100,
        '{"version": ' + "9" * 5000 + "}",
        "null",
        "3",
        '"decima-workload"',
        "{} {}",
        '{"format": "decima-workload",}',
        "// nothing",
        '{"format": "\\ud800"}',
        "NaN",
        "\ufeff{}",
    ],
    ids=lambda text: text[:20],
)
@pytest.mark.parametrize(
    "command", ["workload show it.json", "workload import wfcommons it.json --out new.json"]
)
def test_a_text_of_json(text: str, command: str) -> None:
    Path("it.json").write_text(text)
    assert_refused(command, "it.json")


TASK = "workflow.execution.tasks.0"
WORKFLOWS: dict[str, list[Any]] = {
    "schemaVersion": ["1.3", 1.5],
    "workflow": [..., []],
    "workflow.specification.tasks": [[]],
    "workflow.specification.tasks.0.parents": [["nobody"], ["t"]],
    "workflow.specification.tasks.0.children": [["t"]],
    "workflow.specification.tasks.0.id": [3],
    "workflow.execution.tasks": [[]],
    "workflow.execution.executedAt": [3],
    f"{TASK}.runtimeInSeconds": [-1, NAN, 1e300, "2"],
    f"{TASK}.id": ["another"],
}


@pytest.mark.parametrize(("place", "value"), each(WORKFLOWS), ids=lambda value: f"{value!r:.30}")
def test_a_workflow(place: str, value: Any) -> None:
    Path("it.json").write_text(json.dumps(_put(WORKFLOW, place, value)))
    assert_refused("workload import wfcommons it.json --out new.json", "it.json")


#: Event of ``small_log`` and place in it -> values that cannot stand there.
EVENTS: dict[str, list[Any]] = {
    "TaskEnd.Task Info.Finish Time": [0, 10**25, 1e300, INF, "soon"],
    "TaskEnd.Task Info.Launch Time": [None, ...],
    "TaskEnd.Task Info": [[]],
    "TaskEnd.Stage ID": [10**30],
    "TaskEnd.Task Metrics": [[1]],
    "TaskEnd.Task End Reason": ["Success"],
    "JobStart.Stage Infos": [{}, [3]],
    "JobStart.Submission Time": ["then", NAN],
    "JobStart.Stage Infos.0.Number of Tasks": [-1, 10**15],
    "JobStart.Stage Infos.1.Parent IDs": [[1]],
    "JobStart.Stage Infos.0.Parent IDs": [[1]],
    "JobStart.Stage Infos.0.RDD Info": [[{}]],
    "ExecutorAdded.Executor Info": [None],
    "ExecutorAdded.Executor Info.Total Cores": ["many"],
    "ExecutorAdded.Timestamp": ["\x1b[31m"],
    "ApplicationStart.Timestamp": [None],
}


@pytest.mark.parametrize(("place", "value"), each(EVENTS), ids=lambda value: f"{value!r:.40}")
def test_an_event_log(place: str, value: Any) -> None:
    kind, _, inside = place.partition(".")
    wrong = [
        _put(event, inside, value) if event["Event"] == f"SparkListener{kind}" else event
        for event in small_log().events
    ]
    Path("it").write_text("".join(json.dumps(event) + "\n" for event in wrong))
    assert_refused("workload import spark it --out new.json", "it:", "it")


@pytest.mark.parametrize(
    "line",
    [
        "M1,x,j_1,1,Terminated,100,200,100,0.5",
        "M1,-2,j_1,1,Terminated,100,200,100,0.5",
        "M1,2.5,j_1,1,Terminated,100,200,100,0.5",
        "M1,1e300,j_1,1,Terminated,100,200,100,0.5",
        "M1,nan,j_1,1,Terminated,100,200,100,0.5",
        "M1,2,j_1,1,Terminated,100,inf,100,0.5",
        "M1,2,j_1,1,Terminated,300,200,100,0.5",
        "M1,2,j_1,1,Terminated,100,200,-1,0.5",
        "M1,2,j_1,1,Terminated,100,200,100,\x1b[31m",
        "M1,2,j_1,1,Terminated,100,200,100",
        "M1,2,,1,Terminated,100,200,100,0.5",
        "M1,2,j_1,1,Failed,100,200,100,0.5",
        "M1_2,2,j_1,1,Terminated,100,200,100,0.5",
        "M1,99999999999999999999,j_1,1,Terminated,100,200,100,0.5",
        ",,,,,,,,",
        "job_name,job_name",
    ],
)
def test_a_table_of_alibaba(line: str) -> None:
    Path("it.csv").write_text(f"{line}\n")
    assert_refused("workload import alibaba it.csv --out new.json", "it.csv")


@pytest.mark.parametrize(
    "line",
    [
        JOB.replace("60", "x", 1),
        JOB.replace("60", "nan", 1),
        JOB.replace("60", "inf", 1),
        JOB.replace("60", "1e300", 1),
        JOB.replace("60", "-1"),
        JOB.replace(" 4 ", " 0 "),
        JOB.replace(" 4 ", " 1e30 "),
        "1 2 3",
        "; a comment",
        "\x1b[31m" + JOB[1:],
        JOB.replace("0", "\u0665", 1),
        JOB.replace("60", "6_0", 1),
        JOB.replace("60", "\uff16\uff10", 1),
    ],
)
def test_a_log_of_jobs(line: str) -> None:
    Path("it.swf").write_text(f"{line}\n")
    assert_refused("deeprm compare --log it.swf --loads 50 --sets 2", "it.swf")


@pytest.mark.parametrize(
    "text",
    [
        "iterations: 2001-13-45",
        "iterations: !!timestamp x",
        "? [a]\n: b",
        "? {a: 1}\n: b",
        "iterations: !!int ''",
        "iterations: !!python/object/apply:os.system [ls]",
        "iterations: " + "9" * 5000,
        "iterations: 99999999999999999999999",
        "iterations: &a [*a]",
        "iterations: 1\niterations: 2",
        "iterations: true",
        "iterations: 1.5",
        "iterations: 0",
        "iterations: -1",
        "iterations: .nan",
        "iterations: [1]",
        "iterations: {a: 1}",
        "iterations: '\u0663'",
        "iterations: '2'",
        "iterations: 1:30",
        "iterations: 1_0",
        "iterations: 010",
        "iterations: 0x10",
        "cluster: {moving_delay: '2'}",
        "cluster: {moving_delay: 1:30}",
        "workload: {intervals: ['25', 30]}",
        "workload: {arrivals: poisson, interval: ['25', 30]}",
        "episodes: {fixed_sequences: 'yes'}",
        "policy: {overrides: {embedding: '8'}}",
        "policy: {stage_features: [{name: price, scale: '2'}]}",
        "iteration: 1",
        "- iterations: 1",
        "iterations",
        "a: " + "[" * 3000,
        "a: *b",
        "---\niterations: 1\n---\niterations: 2",
        "%YAML 9.9\n---\niterations: 1",
        "cluster: 3",
        "cluster: {executors: 0}",
        "cluster: {executors: 100000000}",
        "cluster: {moving_delay: .inf}",
        "cluster: {moving_delay: 1e300}",
        "cluster: {moving_delay: -1}",
        "cluster: {classes: nonsense}",
        "cluster: {reward: money}",
        "workload: {jobs: 0}",
        "workload: {jobs: 100000000000}",
        "workload: {file: absent.json}",
        'workload: {file: "a\\0b"}',
        "workload: {profiles: absent}",
        "workload: {intervals: [1e300]}",
        "start: absent.npz",
        "seed: -1",
        "seed: 1000000",
        "optimiser: {learning_rate: .inf}",
        "network: {width: 1000000000}",
        "\titerations: 1",
        "iterations: 1\x1b[31m",
        "network: {activation: '\u202egnp'}",
    ],
    ids=lambda text: text[:30],
)
def test_settings(text: str) -> None:
    Path("it.yaml").write_text(text)
    assert_refused("train --out run --config it.yaml --processes 1", "it.yaml", "absent", "a\\x00b")
    assert not Path("run/checkpoint.pt").exists()


# ---- options -----------------------------------------------------------------------------------------------


def _all(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _all(command, (*path, name))
        else:
            yield (*path, name), command


def _nonsense(option: click.Option) -> Iterator[str]:
    """Values that an option of such a type never has."""
    match option.type:
        case click.IntRange():
            yield from ("x", "", "1.5", "-1", "nan", "1_0", "\u0663", "0x10", "9" * 40, "9" * 5000)
        case click.FloatRange():
            yield from ("x", "", "nan", "inf", "-inf", "1e999", "1_0", "\u0663.5", "\x1b[31m1")
        case click.Choice():
            yield from ("nonsense", "", "\x1b[31m")
        case click.Path(exists=True):
            yield from ("absent", "", "absent/\x1b[31m")
    if type(option.type).__name__ == "Numbers":
        yield from ("x", "", ",", "1,,2", "nan", "1,inf", "1_0", "1;2", "\u0663")


def _necessary(command: click.Command, given: click.Option) -> list[str]:
    """What a command cannot do without."""
    words = []
    for parameter in command.params:
        if parameter.required and parameter is not given:
            value = "new.json" if parameter.name == "out" else "."
            words += [*(parameter.opts[:1] if isinstance(parameter, click.Option) else ()), value]
    return words


OPTIONS = [
    pytest.param(path, command, option, id=f"{' '.join(path)} {option.opts[0]}")
    for path, command in _all(cli)
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag and any(_nonsense(option))
]


@pytest.mark.parametrize(("path", "command", "option"), OPTIONS)
def test_nonsense_for_an_option(path: tuple[str, ...], command: click.Command, option: click.Option) -> None:
    for value in _nonsense(option):
        assert_refused([*path, *_necessary(command, option), option.opts[0], value], option.opts[0])


#: Command -> last words that it refuses, each by name.
REFUSED = {
    "compare --schedulers": "weighted-fair:x weighted-fair:nan weighted-fair:1e999 weighted-fair:1e308 "
    "weighted-fair:-1e308 weighted-fair:101 weighted-fair:1_0 capped-srpt:1e308 "
    "priced-srpt:1e308 packed-srpt:1:1e308 lookahead:1e308 tetris:1e308 graphene-star:-1:1e308 "
    "weighted-fair:1:2 profiled-srpt:-1 profiled-srpt:0 priced-srpt:-1 fair:1 decima: os:getcwd "
    "absent:Class absent: graphene:1:2:3",
    "compare --classes": "x 0x1 -1x1 5xnan 5xinf \u0665x1 5x1,",
    "compare": "extra --unknown --seeds",
    "train --out run --config": "absent absent.yaml",
    "train --out run --set": "iterations =3 iterations=[",
    "train --out run --device": "tpu cuda:x",
    "deeprm compare --heuristics": "absent tetris:x tetris:nan random:-1",
    "serve --no-token --spark unix:s --log": "absent/log .",
}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        *((f"{command} {word}", word) for command, words in REFUSED.items() for word in words.split()),
        ("compare --schedulers ''", "unknown scheduler ''"),
        ("compare --schedulers fair,,fifo", "unknown scheduler ''"),
        ("compare --schedulers fair,fair", "fair"),
        ("compare --schedulers 'weighted-fair: 1'", "weighted-fair: 1"),
        ("compare --schedulers weighted-fair:\u0663", "weighted-fair"),
        ("compare --schedulers decima:absent", "absent"),
        ("compare --schedulers decima:.", "'.'"),
        ("compare --schedulers \x1b[31mx:y", "x:y"),
        ("compare --classes 99999999999x1", "99999999999"),
        ("compare --executors 1000001", "executors"),
        ("compare --executors 10 --classes 5x1", "--executors"),
        ("compare --jobs 10000001", "jobs"),
        ("compare --moving-delay 1e300", "moving"),
        ("compare --arrivals poisson --interval 1e300", "interval"),
        ("compare --interval 3", "--interval"),
        ("compare --window 1e300", "window"),
        ("compare --window 10", "window"),
        ("compare --workload tpch --profiles .", "--profiles"),
        ("compare --profiles .", "task_duration_1.npy"),
        ("compare --workload ''", "workload"),
        ("compare --workload .", "task_duration_1.npy"),
        ("unknown", "unknown"),
        ("workload show --profile \x1b[31m", "--profile"),
        ("workload import spark . --out new.json", "event log"),
        ("workload import spark absent --out new.json", "absent"),
        ("workload import alibaba results.json --out new.json --executor 0,1", "executor"),
        ("workload import swf one.swf --out new.json --executor 0,1", "executor"),
        ("workload import swf one.swf --out new.json --from 5", "one.swf"),
        ("workload import alibaba results.json --out new.json --sample 0", "--sample"),
        ("workload import spark results.json --out new.json --set x", "--set"),
        ("workload import spark results.json --out new.json --levels 0", "--levels"),
        ("explain --decision 1 --at 3", "--decision"),
        ("explain --rule decima:absent", "absent"),
        ("explain --executors 1000001", "executors"),
        ("train", "--out"),
        ("train --out run --config ''", "recipe"),
        ("train --out run --set iterations=x", "iterations"),
        ("train --out run --set iterations.x=3", "iterations"),
        ("train --out run --set unknown=3", "unknown"),
        ("train --out run --set start=absent", "absent"),
        ("train --out run --resume", "run"),
        ("train --out run --workload tpch --profiles .", "--profiles"),
        ("deeprm train --out run --set grid.units=0", "units"),
        ("deeprm train --out run --set jobs.load=1e300", "load"),
        ("deeprm train --out run --set jobs.log=absent", "absent"),
        ("deeprm train --out run --set grid.machine_weights=[-1]", "machine_weights"),
        ("deeprm train --out run --set grid.slot_weight=-1", "weight"),
        ("deeprm train --out run --set start=absent", "absent"),
        ("deeprm compare --loads 0", "load"),
        ("deeprm compare --loads -1", "load"),
        ("deeprm compare --loads 1e300", "load"),
        ("deeprm compare --loads 50 --rates 0.5", "--loads"),
        ("deeprm compare --rates 0", "rate"),
        ("deeprm compare --rates 2", "rate"),
        ("deeprm compare --heuristics ''", "''"),
        ("deeprm compare --machines 101", "--machines"),
        ("reproduce cnn-fig2 --weights -1,1,1", "--weights"),
        ("reproduce cnn-fig2 --weights 1,1", "--weights"),
        ("reproduce fig18", "--recordings"),
        ("reproduce fig18 --recordings .", "event log"),
        ("reproduce fig9b --load 1", "--load"),
        ("reproduce fig9b --load 0.5 --interval 3", "interval"),
        ("reproduce fig11a", "does not say which jobs arrive when"),
        ("reproduce packing", "--instances"),
        ("reproduce packing --instances . --workload tpch", "--instances"),
        ("reproduce packing --instances .", ".sm"),
        ("reproduce packing --workload tpch --best results.json", "--best"),
        ("reproduce grid --seeds 1", "--seeds"),
        ("reproduce grid --cells tpch-batch-20 --trace results.json", "--trace"),
        ("reproduce fig9a --budget 1e-300 --seeds 100000001", "--seeds"),
        ("serve --spark x", "--spark"),
        ("serve --spark 65536", "--spark"),
        ("serve --spark unix:", "--spark"),
        ("serve --spark -1", "--spark"),
        ("serve --spark \u0665", "--spark"),
        ("serve --no-token --spark unix:absent/s", "absent/s"),
        ("serve --no-token --token-file t", "--token-file"),
        ("spark what-if .", "event log"),
        ("replay", "FILES"),
        ("compare --workload nowhere", "nowhere"),
        ("compare --checkpoint /dev/null", "/dev/null"),
        ("workload show --profile absent", "absent"),
        ("workload import spark results.json --out new.txt", "new.txt"),
        ("workload import swf one.swf --out new.txt", "new.txt"),
        ("explain --rule absent", "absent"),
        ("explain --policy absent", "absent"),
        ("reproduce a2c-tables --log one.swf", "one.swf"),
        ("reproduce packing --workload tpch --classes x", "x"),
        ("reproduce absent", "absent"),
        ("serve --no-token --spark 0 --host nowhere.invalid", "nowhere.invalid"),
        ("serve --policy absent", "absent"),
        ("spark what-if absent", "absent"),
        ("spark build --spark .", "."),
        ("replay-live absent", "absent"),
    ],
)
def test_a_command(line: str, named: str) -> None:
    Path("one.swf").write_text(f"{JOB}\n")
    assert_refused(line, named)


# ---- outputs -----------------------------------------------------------------------------------------------

COMPARE = "compare --jobs 2 --seeds 1 --schedulers fair --processes 1"
IMPORT = "workload import alibaba good.csv"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (f"{COMPARE} --out results.json", "results.json"),
        (f"{COMPARE} --out pipe", "pipe"),
        (f"{COMPARE} --out /proc/nothing", "/proc/nothing"),
        (f"{COMPARE} --json folder", "folder"),
        (f"{COMPARE} --json absent/x.json", "absent/x.json"),
        (f"{COMPARE} --json pipe", "pipe"),
        (f"{COMPARE} --json loop", "loop"),
        (f"{COMPARE} --json results.json/x", "results.json/x"),
        (f"{COMPARE} --json ''", "."),
        (f"{COMPARE} --json {'a' * 300}", "aaa"),
        (f"{COMPARE} --csv folder", "folder"),
        (f"{COMPARE} --report absent/x.html", "absent/x.html"),
        (f"{COMPARE} --trace-events pipe", "pipe"),
        (f"{COMPARE} --json /dev/full", "/dev/full"),
        (f"{COMPARE} --csv /dev/full", "/dev/full"),
        (f"{COMPARE} --trace-events /dev/full", "/dev/full"),
        (f"{IMPORT} --out folder", "folder"),
        (f"{IMPORT} --out absent/new.json", "absent/new.json"),
        (f"{IMPORT} --out pipe.json", "pipe.json"),
        (f"{IMPORT} --out new.toml", "new.toml"),
        (f"{IMPORT} --out full.json", "full.json"),
        ("workload show --out folder.png", "folder"),
        ("workload show --out x.jpg", ".png"),
        ("workload show --profile tpch-q6-2g --out full.png", "full.png"),
        ("train --out results.json", "results.json"),
        ("train --out pipe", "pipe"),
        ("deeprm train --out results.json/x", "results.json/x"),
        ("deeprm compare --out results.json", "results.json"),
        ("reproduce fig9a --out results.json", "results.json"),
        ("reproduce fig9a --json folder", "folder"),
        ("reproduce fig9a --policies results.json", "results.json"),
        ("explain --json folder", "folder"),
        ("spark what-if recordings --out results.json", "results.json"),
        ("replay-live good.jsonl --json folder", "no driver"),
    ],
)
def test_an_output_that_cannot_be_written(line: str, named: str) -> None:
    Path("folder").mkdir()
    Path("recordings").mkdir()
    Path("good.csv").write_text(TABLE)
    Path("good.jsonl").write_text(Started(policy="fair", shadow=False, time_ms=0).model_dump_json() + "\n")
    Path("loop").symlink_to("loop")
    Path("folder.png").mkdir()
    for name in ("full.json", "full.png"):
        Path(name).symlink_to("/dev/full")
    for name in ("pipe", "pipe.json"):
        os.mkfifo(name)
    Path("results.json").write_text("kept")
    assert_refused(line, named)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"\0", b" ", b"\n", b"[", b"1,", b"1 "], ids=repr)
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("workload show it.json.gz", "it.json.gz"),
        ("replay it.json.gz", "it.json.gz"),
        ("deeprm compare --log it.swf.gz", "it.swf.gz"),
        ("workload import alibaba it.csv.gz --out new.json", "it.csv.gz"),
        ("workload import wfcommons it.json.gz --out new.json", "it.json.gz"),
        ("workload import spark it.gz --out new.json", "it.gz"),
    ],
)
def test_three_gigabytes_in_a_small_file(command: str, name: str, content: bytes) -> None:
    """Some megabytes of the same, packed, over and over: gzip files may stand one behind the other."""
    Path(name).write_bytes(gzip.compress(content * (2**26 // len(content)), 9, mtime=0) * 48)
    if command.startswith("replay "):
        result = CliRunner().invoke(cli, shlex.split(command))
        assert result.stdout.startswith("it.json.gz: ")
        assert (result.stdout.count("\n"), result.exit_code) == (2, 1)
    else:
        assert_refused(command, name)
