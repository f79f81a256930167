"""Invalid input ends a command with a one-line error that names it, quickly, and leaves files unchanged."""

import gzip
import io
import json
import math
import os
import re
import shlex
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.policy.shipped import SHIPPED
from decima.registry import SCHEDULERS
from decima.service.log import Started
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error, every_command
from tests.decima.evaluation.examples import LIBRARY, OWN
from tests.workloads.spark.logs import small_log
from workloads import write_workload

#: Time limit of a refusal, s of CPU time; waiting may take thirty times as long.
SOON_S = 20
#: Internal words that must not appear in messages.
INSIDE = ("Traceback", "pydantic", "errors.pydantic.dev", "object at 0x", "numpy.", "Unable to allocate")
#: Messages of failures that are not invalid input, with the exit status 1.
FAILURES = ("File name too long", "no jars/spark-core_")

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


def _estimator() -> bytes:
    """Return a model file whose text says nothing; the states of a file differ before that."""
    data = io.BytesIO()
    np.savez(data, estimator=np.array("{}"))
    return data.getvalue()


def _event_log() -> bytes:
    lines = [json.dumps(event) for event in small_log().events]
    return ("\n".join(lines) + "\n").encode()


TOML = 'format = "decima-workload"\nversion = 1\n\n[[profiles.a.stages]]\ntasks = 2\nduration_ms = 10\n'
FEW = "--budget 0.001"
SERVE = "serve --no-token --spark unix:absent/s"

#: Kind of file -> its name, what is in one that is right, and the commands that read it: one that meets all states
#: of such a file, and those that meet a few.
KINDS: dict[str, tuple[str, Callable[[], bytes], tuple[str, ...]]] = {
    "workload": (
        "it.json",
        lambda: json.dumps(WORKLOAD).encode(),
        (
            "compare --workload it.json", "workload show it.json", "explain --workload it.json",
            "train --out run --workload it.json", "train --out run --set workload.file=it.json",
            "benchmark --trace it.json --seeds 2",
            "serve --no-token --spark unix:s --history it.json",
        ),
    ),
    "workload, gzipped": (
        "it.json.gz",
        lambda: gzip.compress(json.dumps(WORKLOAD).encode(), mtime=0),
        ("train --out run --workload it.json.gz",),
    ),
    "workload in TOML": ("it.toml", TOML.encode, ("compare --workload it.toml",)),
    "policy": (
        "it.npz",
        lambda: SHIPPED["embedded-batch"].read_bytes(),
        (
            "compare --checkpoint it.npz", "compare --schedulers fair,decima:it.npz", "explain --policy it.npz",
            "serve --no-token --spark unix:s --policy it.npz", "train --out run --set start=it.npz",
            "deeprm compare --checkpoint it.npz", "deeprm train --out run --set start=it.npz",
            "benchmark --checkpoint it.npz --seeds 2",
            "replay --weights it.npz episode.json",
        ),
    ),
    "estimator": (
        "it.npz",
        _estimator,
        (
            "compare --unknown 1 --estimator it.npz",
            f"{SERVE} --policy fair --estimator it.npz", "train --out run --set cluster.estimator=it.npz",
            "explain --unknown 1 --estimator it.npz",
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
        ("workload import spark logs/it --out new.json", "spark what-if logs/it"),
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
            "deeprm compare --log it.swf", "deeprm train --out run --log it.swf",
            "deeprm train --out run --set jobs.log=it.swf",
            "workload import swf it.swf --out new.json",
        ),
    ),
    "log of jobs, gzipped": (
        "it.swf.gz",
        lambda: gzip.compress(f"; MaxProcs: 8\n{JOB}\n".encode(), mtime=0),
        ("deeprm compare --log it.swf.gz",),
    ),
    "served": ("it.jsonl", SERVED.encode, ("replay-live it.jsonl", "train-estimator it.jsonl -o new.npz")),
    "profiles": (
        "tpch/2g/task_duration_1.npy",
        lambda: b"\x93NUMPY\x01\x00",
        (
            "compare --profiles tpch", "compare --workload ./tpch", "train --out run --profiles tpch",
            "workload show ./tpch",
            "benchmark --profiles tpch --seeds 2",
        ),
    ),
    "token": ("token", lambda: b"secret", ("serve --spark unix:s --token-file token",)),
    "tenants": (
        "it.yaml", lambda: b"tokens: {a: {secret: 0123456789abcdefg}}", ("serve --spark unix:s --tenants it.yaml",)
    ),
    "certificate": (
        "it.pem", lambda: b"-----BEGIN CERTIFICATE-----\n", (f"{SERVE} --tls-cert it.pem --tls-key other.pem",)
    ),
    "key": ("it.pem", lambda: b"-----BEGIN PRIVATE KEY-----\n", (f"{SERVE} --tls-cert other.pem --tls-key it.pem",)),
    "pools": (
        "it.xml", lambda: b'<allocations><pool name="a"/></allocations>', (f"{SERVE} --policy fair --pools it.xml",)
    ),
    "capacity": ("it.csv", lambda: b"0,5\n60,3\n", ("compare --capacity it.csv",)),
    "carbon": ("it.csv", lambda: b"0,100\n60,50\n", ("compare --carbon it.csv",)),
    "carbon, gzipped": (
        "it.csv.gz", lambda: gzip.compress(b"0,100\n60,50\n", mtime=0), ("compare --carbon it.csv.gz",)
    ),
    "tuned parameters": (
        "it.json",
        lambda: b'{"rule": "srpt", "parameters": {"price_in_batch": 1}}',
        ("compare --schedulers srpt:it.json", "explain --rule srpt:it.json"),
    ),
    "settings of a finished run": ("plotted/config.yaml", SETTINGS.encode, ("plot plotted",)),
    "metrics": ("plotted/metrics.jsonl", lambda: b'{"iteration": 0, "x": 1.0}\n', ("plot plotted",)),
}  # fmt: skip


def _pipe(path: Path, good: bytes) -> None:
    os.mkfifo(path)


def _sparse(path: Path, good: bytes) -> None:
    path.touch()
    os.truncate(path, 2**40)


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
    "a terabyte without content": _sparse,
    "a link to itself": lambda path, good: path.symlink_to(path),
    "empty": lambda path, good: path.write_bytes(b"") and None,
    "cut short": _cut,
    "a picture": _write(_png()),
    "gzip of nothing": lambda path, good: path.write_bytes(gzip.compress(b"")) and None,
    "an archive of something else": _write(_zip(**{"a.npy": b"x", "policy.npy": b"no array"})),
    "NUL": _write(bytes(1000)),
    "UTF-16": _write("{}".encode("utf-16")),
    "brackets": _write(b"[" * 10_000),
    "escape codes": _write(b"\x1b[31m\x1b]0;x\x07"),
    "a long line": _write(b"1 " * 200_000),
    "text": _write(b"what is this?\n: ["),
    "a list": _write(b"[1, 2]"),
}
#: What commands may differ in: how a file is opened, and that what its reader raises is caught.
FEW_STATES = ("missing", "a folder", "a pipe", "empty", "a picture")
#: States in which such a file is right, or may be.
RIGHT = {
    ("settings", "empty"), ("settings of a run", "empty"), ("settings of a run", "gzip of nothing"),
    ("settings", "a folder"), ("checkpoint", "missing"), ("token", "missing"), ("token", "cut short"),
    ("profiles", "a folder"), ("log to continue", "missing"), ("log to continue", "empty"),
    ("log to continue", "endless"), ("log to continue", "cut short"), ("carbon", "cut short"),
    ("capacity", "cut short"), ("settings of a finished run", "empty"), ("metrics", "empty"),
}  # fmt: skip
COMMANDS = [
    pytest.param(kind, state, command, id=f"{state}: {command}")
    for kind, (_, _, commands) in KINDS.items()
    for command in commands
    for state in (STATES if command == commands[0] else FEW_STATES)
    if (kind, state) not in RIGHT
]


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
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
    """Assert that the command is refused in one line with one of these names, and that existing files stay
    unchanged.
    """
    kept = Path("results.json")
    kept.write_text("kept")
    result = CliRunner().invoke(cli, shlex.split(line) if isinstance(line, str) else line)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    # The first command after a change of the code compiles, and says so.
    said = re.sub(r"\ACompiling the simulator .*\n", "", result.stderr)
    assert result.exit_code == (1 if any(word in said for word in FAILURES) else 2), result.output
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
    for folder in ("projects", "plotted"):
        Path(folder).mkdir()
    Path("other.pem").touch(0o600)
    for other, text in (("plotted/config.yaml", SETTINGS), ("plotted/metrics.jsonl", '{"iteration": 0, "x": 1}\n')):
        if other != name:
            Path(other).write_text(text)
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    STATES[state](path, good())
    named = (path.name, path.parent.name) if path.parent.name else (path.name,)
    assert_refused(command, *named)


def _put(document: Any, place: str, value: Any) -> Any:
    """Return a copy with another value in one place; without the entry if the value is Ellipsis."""
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


#: Event of ``small_log`` and place in it -> values that cannot stand there.
EVENTS: dict[str, list[Any]] = {
    "TaskEnd.Task Info.Finish Time": [0, 10**25, 1e300, math.inf, "soon"],
    "TaskEnd.Task Info.Launch Time": [None, ...],
    "TaskEnd.Task Info": [[]],
    "TaskEnd.Stage ID": [10**30],
    "TaskEnd.Task Metrics": [[1]],
    "TaskEnd.Task End Reason": ["Success"],
    "JobStart.Stage Infos": [{}, [3]],
    "JobStart.Submission Time": ["then", math.nan],
    "JobStart.Stage Infos.0.Number of Tasks": [-1, 10**15],
    "JobStart.Stage Infos.1.Parent IDs": [[1]],
    "JobStart.Stage Infos.0.Parent IDs": [[1]],
    "JobStart.Stage Infos.0.RDD Info": [[{}]],
    "ExecutorAdded.Executor Info": [None],
    "ExecutorAdded.Executor Info.Total Cores": ["many"],
    "ExecutorAdded.Timestamp": ["\x1b[31m"],
    "ApplicationStart.Timestamp": [None],
}


@pytest.mark.parametrize(
    ("place", "value"),
    [(place, value) for place, values in EVENTS.items() for value in values],
    ids=lambda value: f"{value!r:.40}",
)
def test_an_event_log(place: str, value: Any) -> None:
    kind, _, inside = place.partition(".")
    wrong = [
        _put(event, inside, value) if event["Event"] == f"SparkListener{kind}" else event
        for event in small_log().events
    ]
    Path("it").write_text("".join(json.dumps(event) + "\n" for event in wrong))
    assert_refused("workload import spark it --out new.json", "it:", "it")


def _nonsense(option: click.Option) -> Iterator[str]:
    """Return values that are invalid for an option of this type."""
    match option.type:
        case click.IntRange():
            yield from ("x", "", "1.5", "-1", "nan", "1_0", "\u0663", "0x10", "9" * 40, "9" * 5000)
        case click.FloatRange():
            yield from ("x", "", "nan", "inf", "-1e300", "1e300", "1e999", "1_0", "\u0663.5", "\x1b[31m1")
        case click.Choice():
            yield from ("nonsense", "", "\x1b[31m")
        case click.Path(exists=True):
            yield from ("absent", "", "absent/\x1b[31m")
    if type(option.type).__name__ == "Numbers":
        yield from ("x", "", ",", "1,,2", "nan", "1,inf", "1_0", "1;2", "\u0663")


def _necessary(command: click.Command, given: click.Option) -> list[str]:
    """Return the required options of a command."""
    words = []
    for parameter in command.params:
        if parameter.required and parameter is not given:
            value = "."
            if parameter.name == "out":
                value = "new.npz" if command.name == "train-estimator" else "new.json"
            words += [*(parameter.opts[:1] if isinstance(parameter, click.Option) else ()), value]
    return words


OPTIONS = [
    pytest.param(path, command, option, id=f"{' '.join(path)} {option.opts[0]}")
    for path, command in every_command()
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag and any(_nonsense(option))
]


@pytest.mark.parametrize(("path", "command", "option"), OPTIONS)
def test_nonsense_for_an_option(path: tuple[str, ...], command: click.Command, option: click.Option) -> None:
    for value in _nonsense(option):
        assert_refused([*path, *_necessary(command, option), option.opts[0], value], option.opts[0])


#: A comparison that is soon over.
SMALL = "compare --workload tiny.json --jobs 3 --seeds 2 --processes 1"
GRID = "deeprm train --out run"
TRACE = "workload import alibaba one.csv --out new.json"
LOG = "workload import spark log --out new.json"

#: Command -> last words that it refuses, each by name.
REFUSED = {
    "compare --schedulers": "weighted-fair:x weighted-fair:nan weighted-fair:1e999 weighted-fair:1e308 "
    "weighted-fair:-1e308 weighted-fair:101 weighted-fair:1_0 "
    "srpt:1e308 tetris:1e308 graphene-star:-1:1e308 "
    "weighted-fair:1:2 srpt:-1 fair:1 decima: os:getcwd "
    "absent:Class absent: graphene:1:2:3",
    "compare --classes": "x 0x1 -1x1 5xnan 5xinf \u0665x1 5x1,",
    "compare": "extra --unknown --seeds",
    "train --out run --config": "absent absent.yaml",
    "train --out run --set": "iterations =3 iterations=[",
    "deeprm compare --heuristics": "absent tetris:x tetris:nan random:-1",
    "serve --no-token --spark unix:s --log": "absent/log .",
    "serve --spark": "x 65536 123456 -1 unix: unix 1.5 \u0665",
}
#: Scheduler -> the name that was meant.
SLIPS = {
    "compare --schedulers fiar": "fair",
    "compare --schedulers SRPT": "srpt",
    "compare --schedulers weightd-fair:-1": "weighted-fair",
    "compare --schedulers decima:embeded-batch": "embedded-batch",
    "compare --workload tcph": "tpch",
    "compare --unknown 1 --estimator forrest": "forest",
    "serve --no-token --spark unix:s --estimator typcal": "typical",
    "workload show sinthetic": "synthetic",
    "explain --policy tpch-bach": "tpch-batch",
    "explain --rule sprt": "srpt",
    "train --config bacth --out run": "batch",
}


@cases(
    "line, named",
    *((f"{command} {word}", word) for command, words in REFUSED.items() for word in words.split()),
    *((line, f"(did you mean {near!r}?)") for line, near in SLIPS.items()),
    ("unknown", "No such command 'unknown'"),
    ("workload nonsense", "No such command"),
    # What runs, and where.
    ("compare --schedulers ''", "unknown scheduler ''"),
    ("compare --schedulers fair,,fifo", "unknown scheduler ''"),
    ("compare --schedulers fair,fair", "fair"),
    ("compare --schedulers nobody", f"unknown scheduler 'nobody': expected one of {next(iter(SCHEDULERS))}"),
    ("compare --schedulers 'weighted-fair: 1'", "weighted-fair: 1"),
    ("compare --schedulers weighted-fair:\u0663", "weighted-fair"),
    ("compare --schedulers srpt:-1", "the jitter must not be negative, got -1"),
    ("compare --schedulers srpt:price_with_classes=0", "the price_with_classes must be positive, got 0"),
    ("compare --schedulers decima:.", "'.'"),
    ("compare --schedulers \x1b[31mx:y", "x:y"),
    (f"{SMALL} --schedulers {OWN}Leaving", "SystemExit: 3"),
    (f"{SMALL} --schedulers {OWN}Faulty", "ZeroDivisionError"),
    (f"{SMALL} --schedulers {OWN}Idle", "Idle on seed 0"),
    ("compare --classes 4y1", "classes: expected COUNTxMEMORY or COUNTxCPU:MEMORY, such as 25x0.5,25x2:1, got '4y1'"),
    ("compare --classes 99999999999x1", "99999999999"),
    (f"{SMALL} --classes 4x0.5:1", "no executor class can run stage 0"),
    ("compare --memory-demand uniform --classes 4x0.5", "no executor class has the memory 1"),
    ("compare --executors 10 --classes 5x1", "--executors has no effect"),
    ("compare --executors 1000001", "1000001 is not in the range 1<=x<=1000000"),
    ("compare --jobs 10000001", "10000001 is not in the range 1<=x<=10000000"),
    ("compare --interval 3", "--interval has no effect: it needs --arrivals poisson"),
    ("compare --window 10", "no windows, the workload has no arrival times"),
    (
        "compare --workers 0",
        "'0' is not a specification of workers: expected a number from 1 to 1024, ray, ray:N or ray://HOST:",
    ),
    ("compare --workload tpch --profiles .", "--profiles and --workload exclude each other"),
    ("compare --profiles .", "contains no folder 2g, expected the published TPC-H profiles"),
    ("compare --workload ''", "workload"),
    ("compare --workload .", "contains no folder 2g, expected the published TPC-H profiles"),
    ("compare --workload nowhere", "nowhere: no such workload, expected tpch"),
    ("compare --checkpoint /dev/null", "/dev/null"),
    ("compare --checkpoint missing.npz", "'--checkpoint': Path 'missing.npz' does not exist"),
    ("compare --checkpoint .", "'--checkpoint': the folder '.' contains no policy.npz"),
    # Faults.
    ("compare --executor-return 5", "--executor-return has no effect: it needs --executor-lifetime"),
    ("compare --executor-return never", "--executor-return has no effect: it needs --executor-lifetime"),
    ("compare --executor-lifetime 5 --executor-return inf", "'inf' is not a finite number"),
    ("compare --lost-output", "--lost-output has no effect: no executor is lost"),
    ("compare --stragglers 0.5", "stragglers: expected P:FACTOR, such as 0.05:4, got '0.5'"),
    ("compare --stragglers 0.5:0.5", "stragglers[1]: expected a number of at least 1, got 0.5"),
    ("compare --speculation 0.5", "speculation: expected QUANTILE:MULTIPLIER, such as 0.75:1.5, got '0.5'"),
    ("compare --speculation 0:2", "speculation[0]: expected a number above 0, got 0"),
    ("compare --speculation 0.5:nan", "speculation: expected QUANTILE:MULTIPLIER, such as 0.75:1.5, got '0.5:nan'"),
    ("compare --stragglers nan:2", "stragglers: expected P:FACTOR, such as 0.05:4, got 'nan:2'"),
    ("compare --capacity back.csv", "back.csv, line 2: expected a time in seconds and a number of executors"),
    ("compare --capacity words.csv", "words.csv, line 1: expected a time in seconds and a number of"),
    ("compare --capacity empty.csv", "empty.csv: it has no line of a time and a number of executors"),
    ("compare --capacity many.csv --executors 4", "a capacity of 5 executors is more than the cluster's 4"),
    (f"{SMALL} --capacity none.csv", "cannot complete: 50 executors are lost, and the others are idle"),
    # Workloads.
    ("workload show --profile \x1b[31m", "--profile"),
    ("workload show --profile absent", "no profile named 'absent'"),
    ("workload show missing.json", "missing.json: no such workload, expected tpch"),
    ("workload import spark back.csv --out new.json", "event log"),
    ("workload import spark absent --out new.json", "'absent' does not exist"),
    ("workload import spark log", "Missing option '--out'"),
    ("workload import spark --out new.json", "Missing argument 'LOGS...'"),
    ("workload import spark log --out new.toml", "ending in .json or .json.gz"),
    (f"{LOG} --levels 0", "'0': expected whole numbers from 1"),
    (f"{LOG} --levels many", "'many': expected whole numbers from 1"),
    (f"{LOG} --set fresh_ms", "'fresh_ms' is not NAME=NUMBER"),
    (f"{LOG} --set heat=1", "no parameter 'heat'"),
    (f"{LOG} --set fresh_ms=-1", "fresh_ms must be finite and not negative"),
    (f"{TRACE} --executor 4", "'4': expected two numbers"),
    (f"{TRACE} --executor 0,1", "must be above 0 and finite"),
    (f"{TRACE} --from 9 --until 5", "begins before it ends"),
    (f"{TRACE} --from 1e9", "one.csv: expected jobs that arrive"),
    ("workload import wfcommons --out new.json", "Missing argument 'FILES...'"),
    ("workload import swf one.swf --out new.json --executor 0,1", "executor"),
    ("workload import swf one.swf --out new.json --from 5", "one.swf"),
    ("train-estimator tpch", "Missing option '-o' / '--out'"),
    ("train-estimator tcph -o new.npz", "(did you mean 'tpch'?)"),
    ("train-estimator tpch -o new.json", "expected a name ending in .npz"),
    ("train-estimator tpch -o absent/new.npz", "absent/new.npz"),
    ("train-estimator tiny.json -o new.npz", "tiny.json: too few different jobs to learn from"),
    ("workload import swf one.swf --out new.txt", "new.txt"),
    # Decisions.
    ("explain --decision 1 --at 3", "--decision and --at exclude each other"),
    ("explain --workload tiny.json --jobs 2 --decision 1000000", "the episode has"),
    ("explain --rule decima:absent", "absent"),
    ("explain --policy absent", "absent"),
    ("spark what-if back.csv", "event log"),
    ("spark what-if log --policy nobody", "nobody"),
    ("spark build --spark .", "."),
    # Training.
    ("train", "--out"),
    ("train --out run --config ''", "recipe"),
    ("train --out run --config bach", "unknown recipe 'bach'"),
    ("train --out run --config gone.yaml", "gone.yaml: No such file"),
    ("train --out run --set iterations", "not of the form section.key=value"),
    ("train --out run --set iterations=x", "iterations"),
    ("train --out run --set iteratoins=3", "iteratoins: unknown key (did you mean 'iterations'?)"),
    ("train --out run --set start=absent", "absent"),
    ("train --out run --set workload.file=gone.json", "gone.json: no such workload"),
    ("train --out run --set 'workload.file=\"a\\0b\"'", "a\\x00b"),
    ("train --out run --set workload.profiles=. --set workload.file=a", "profiles and file exclude each other"),
    ("train --out run --workload gone.json", "gone.json: no such workload"),
    ("train --out run --workload bad.json", "bad.json: profiles: "),
    ("train --out run --profiles .", "contains no folder 2g"),
    ("train --out run --device tpu", "there is no device tpu here"),
    ("train --out run --device cuda:x", "cuda:x"),
    ("train --out run --resume", "run: contains no training run to resume"),
    (f"{GRID} --config bach", "unknown recipe 'bach': expected one of a2c, cnn, deeprm"),
    (f"{GRID} --log gone.swf", "'gone.swf' does not exist"),
    (f"{GRID} --set grid.units=0", "units"),
    (f"{GRID} --set grid.units=8", "slot_width must be at most the 8 units"),
    (f"{GRID} --set grid.horizon=9", "longer than the horizon"),
    (f"{GRID} --set grid.machine_weights=[-1]", "machine_weights"),
    (f"{GRID} --set grid.slot_weight=-1", "weight"),
    (f"{GRID} --set jobs.rate=0.5", "jobs: load and rate exclude each other"),
    (f"{GRID} --set jobs.load=1.9", "the load must be above 0 and at most 1.845"),
    (f"{GRID} --set jobs.log=absent", "absent"),
    (f"{GRID} --set 'network={{filters: 2, kernel: 30}}'", "is too small for filters of 30 x 30"),
    # Grids.
    ("deeprm compare extra", "unexpected extra argument"),
    ("deeprm compare --loads -1", "a load of -1 %"),
    ("deeprm compare --loads 200", "a load of 200 %: expected above 0 and at most 184.5 %"),
    ("deeprm compare --loads 50,x", "'50,x': expected numbers"),
    ("deeprm compare --loads 50 --rates 0.5", "--loads and --rates exclude each other"),
    ("deeprm compare --rates 1.5", "the rate must be above 0 and at most 1"),
    ("deeprm compare --heuristics ''", "''"),
    ("deeprm compare --heuristics fifo", "unknown heuristic 'fifo'"),
    ("deeprm compare --heuristics tetris:2", "tetris:KNOB"),
    ("deeprm compare --log one.swf --distribution paper", "--distribution has no effect"),
    # Studies.
    ("benchmark --seeds 1", "--seeds"),
    # The service, and recordings.
    ("reproduce fig9a", "python -m reproduce fig9a"),
    ("serve --spark ''", "--spark ''"),
    ("serve --no-token --spark unix:absent/s", "absent/s"),
    ("serve --no-token --token-file t", "--token-file and --no-token exclude each other"),
    ("serve --no-token --spark 0 --host nowhere.invalid", "nowhere.invalid"),
    ("serve --policy absent", "absent"),
    ("replay", "Missing argument 'FILES...'"),
    ("replay --weights missing.npz one.swf", "missing.npz' does not exist"),
    ("replay-live absent", "absent"),
)
def test_a_command(line: str, named: str) -> None:
    Path("one.swf").write_text(f"{JOB}\n")
    Path("one.csv").write_text(TABLE)
    Path("bad.json").write_text('{"format": "decima-workload", "version": 1, "profiles": {}}')
    small_log().write(Path("log"))
    write_workload(Path("tiny.json"), LIBRARY)
    lines = {"back": "5,1\n5,2", "words": "5,many", "empty": "# nothing", "many": "0 5", "none": "0 0"}
    for name, text in lines.items():
        Path(f"{name}.csv").write_text(text)
    assert_refused(line, named)
    assert not Path("run/checkpoint.pt").exists()


COMPARE = "compare --jobs 2 --seeds 1 --schedulers fair --processes 1"
IMPORT = "workload import alibaba good.csv"


@cases(
    "line, named",
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
    ("explain --json folder", "folder"),
    ("spark what-if recordings --out results.json", "results.json"),
    ("replay-live good.jsonl --json folder", "no driver"),
)
@pytest.mark.usefixtures("pictures")
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
@cases(
    "command, name",
    ("workload show it.json.gz", "it.json.gz"),
    ("replay it.json.gz", "it.json.gz"),
    ("deeprm compare --log it.swf.gz", "it.swf.gz"),
    ("workload import alibaba it.csv.gz --out new.json", "it.csv.gz"),
    ("workload import wfcommons it.json.gz --out new.json", "it.json.gz"),
    ("workload import spark it.gz --out new.json", "it.gz"),
)
def test_three_gigabytes_in_a_small_file(command: str, name: str, content: bytes) -> None:
    """The file contains the same compressed megabytes repeatedly, since gzip files may have several members."""
    Path(name).write_bytes(gzip.compress(content * (2**26 // len(content)), 9, mtime=0) * 48)
    if command.startswith("replay "):
        result = CliRunner().invoke(cli, shlex.split(command))
        assert result.stdout.startswith("it.json.gz: ")
        assert (result.stdout.count("\n"), result.exit_code) == (2, 1)
    else:
        assert_refused(command, name)


@cases(
    "options, message",
    (["--floor", "a=0.7,b=0.4"], "the sum of the floors must be at most 1, got 1.1"),
    (["--floor", "a=0.5", "--ceiling", "a=0.2"], "the ceiling of a, 0.2, is below its floor, 0.5"),
    (["--floor", "a"], "floor: expected TENANT=SHARE, such as etl=0.2, got 'a'"),
    (["--ceiling", "a=2"], "the ceiling of a must be above 0 and at most 1, got 2"),
    (["--no-later-than", "0.9"], "0.9 is not in the range"),
)
@pytest.mark.parametrize("command", ["compare", "explain", "serve"])
def test_impossible_guarantees_are_refused(command: str, options: list[str], message: str) -> None:
    assert_one_line_error(CliRunner().invoke(cli, [command, *options]), message)
