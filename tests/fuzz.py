"""Random malformed inputs for the command line: ``python -m tests.fuzz --cases 2000 --seed 0``.

Each case damages one valid input (a file, an option or the name of a scheduler) and runs a command on it in this
process. The command must refuse it with one line on stderr and an error status, or succeed if the damage is
harmless. It must end in time and with little memory, raise and warn of nothing, execute nothing, and leave no partial
file. A damaged file may also be something else in its place: a folder, a pipe, an endless device, a terabyte without
content, a link to itself, or a small archive of gigabytes.

A case is identified by seed and number; ``--only NUMBER`` repeats it.
"""

import argparse
import contextlib
import ctypes
import gc
import gzip
import io
import json
import math
import os
import random
import re
import shlex
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from decima.cli.console import LONGEST
from decima.cli.main import cli
from decima.policy.archive import read_archive
from decima.policy.archive_writer import write_archive
from decima.policy.shipped import SHIPPED
from simulator.cluster import stage_times
from simulator.cluster.estimator_file import write_estimator
from simulator.cluster.predictor import predictor_of
from tests.decima.cli.commands import every_command
from tests.decima.cli.test_malformed import JOB, TABLE, WORKFLOW, WORKLOAD
from tests.decima.service.test_log import logged
from tests.workloads.spark.logs import small_log
from workloads import embedded_tpch

#: A command that takes longer hangs: s of this process's CPU time, and s on the clock, for a command that only waits.
SOON_S, WAITING_S = 60, 600
#: Maximum memory that a command takes besides that of this process, MiB: a command alone takes less than 1 GiB.
MOST_MIB = 640
MAGIC = "was-executed"
RUN = "deeprm train --config deeprm --out run --set iterations=1 --set episodes.sets=2 --set validation.sets=2"
SERVE = "serve --no-token --spark unix:absent/s"
FEW = "--seeds 1 --executors 3 --processes 1 --schedulers fair --json new.json"
CARBON_COMMANDS = (f"compare --carbon it.csv {FEW}", f"compare --carbon it.csv:60 {FEW}")
Damage = Callable[[random.Random, bytes], bytes]


class _LateError(BaseException):
    """A command exceeded a time limit; derived such that no code catches it."""


# Valid inputs


def _workload() -> bytes:
    return json.dumps(WORKLOAD, indent=1).encode()


TOML = b"""
format = "decima-workload"
version = 1
[[profiles.etl.stages]]
name = "scan"
tasks = 4
duration_ms = 1200
[[profiles.etl.stages]]
name = "join"
tasks = 2
duration_ms = [300, 400.5]
parents = ["scan"]
memory = 0.5
[[jobs]]
profile = "etl"
arrival_ms = 10
"""
SETTINGS = b"""iterations: 2
cluster: {executors: 5, moving_delay: 2.0, reward: jct}
workload: {jobs: 3, arrivals: poisson, interval: [20, 30]}
policy: {preset: profiled, overrides: {embedding: 8}}
update: {learning_rate: 1e-3, normalise: std}
episodes:
  sequences: 2
  per_sequence: 2
"""


CARBON = b"time,intensity\n# of a day\n0,100\n3600,150.5\n7200,90\n"
EXPORT = (
    "Datetime (UTC),Country,Carbon intensity gCO2eq/kWh (direct)\n2024-01-01 00:00:00,A,100\n"
    "2024-01-01 01:00:00,A,150.5\n2024-01-01 02:00:00,A,90\n"
)
POOLS = b"""<?xml version="1.0" encoding="utf-8"?>
<allocations><pool name="a"><schedulingMode>FIFO</schedulingMode><weight>2</weight><minShare>3</minShare></pool>
</allocations>
"""


TENANTS = b"""tenants:
  etl: {applications: [nightly-*], quota: 6, weight: 2.5, priority: 1, pools: {a: {weight: 2, min_share: 1, quota: 3}}}
tokens:
  driver: {secret: 0123456789abcdefgh, tenant: etl, requests_per_second: 50, expires: 2027-12-31}
  grafana: {secret: 0123456789abcdefghi, role: reader}
"""


def _event_log() -> bytes:
    return "".join(json.dumps(event) + "\n" for event in small_log().events).encode()


@cache
def _estimator() -> bytes:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_times, "TREES", 2)
        fitted = predictor_of(tuple(embedded_tpch(["2g"], list(range(1, 9)))), also_dag_only=True)
        assert fitted is not None
        write_estimator(Path(folder) / "it.npz", fitted)
        return (Path(folder) / "it.npz").read_bytes()


@cache
def _live_log() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        logged(Path(folder) / "it.jsonl")
        return (Path(folder) / "it.jsonl").read_bytes()


@cache
def _training() -> dict[str, bytes]:
    """Return the files of a small training."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            result = CliRunner().invoke(cli, shlex.split(RUN))
            assert result.exit_code == 0, result.output
            return {path.name: path.read_bytes() for path in Path("run").iterdir() if path.is_file()}
        finally:
            os.chdir(before)


# Damage to bytes, to texts and to what they mean

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf, 10**13, 10**30,
    -(10**25), 2**63, "", "2", "x", "\ud800", "\x1b[31m", "\u202e", "\u0665", "1:30", "1_0", "a" * 3000, "../..",
    "/dev/zero", "os:system", [], {}, [[]], [None], [1, "2"], {"a": 1}, {"": None},
)  # fmt: skip
#: Pieces of text that some format or other gives a meaning.
TOKENS = (
    "9" * 6000, "1e999", "-1e999", "NaN", "Infinity", "nan", "inf", "-5", "0", "1_000", "\uff11\uff12", "1:30", "'2'",
    "0x1F", "010", "[" * 100_000, "{" * 3000, '"', "'", "\\ud800", "\\u0000", "\x00", "\ufeff", "\x1b[2J", "\u2028",
    "null", "true", "yes", "!!python/object/apply:os.system [touch " + MAGIC + "]", "&a [*a]", "<<: *a", "# ", ";", ",",
    ",,,,", "\t", "\n\n", "\r", "---\n", "-->", "$(touch " + MAGIC + ")", "../" * 40,
)  # fmt: skip


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _spliced(rng: random.Random, data: bytes) -> bytes:
    """Remove, repeat or overwrite a piece."""
    one, other, to = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return rng.choice((data[:one] + data[other:], data[:to] + data[one:], data[:one] + data[other:to] * 2))


def _recoded(rng: random.Random, data: bytes) -> bytes:
    text = data.decode("latin-1")
    return rng.choice((text.encode("utf-16"), text.encode("utf-32"), b"\xef\xbb\xbf" + data, b"", b"\n", data * 2))


def _retold(rng: random.Random, data: bytes) -> bytes:
    """Replace a word of a text, or a gap between words."""
    text = data.decode("latin-1")
    start = rng.randrange(len(text) + 1)
    end = start if rng.random() < 0.4 else min(start + rng.randrange(12), len(text))
    return text[:start].encode("latin-1") + rng.choice(TOKENS).encode() + text[end:].encode("latin-1")


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*place, key))


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def damaged_value(rng: random.Random, document: Any) -> Any:
    """Return the same document with one entry removed or replaced."""
    *before, last = rng.choice(list(_places(document)))
    inner = document
    for key in before:
        inner = inner[key]
    match rng.randrange(8):
        case 0:
            del inner[last]
        case 1:
            inner[last] = _deep(rng.choice((3, 200, 900)))
        case 2 if isinstance(inner[last], str):
            inner[last] += rng.choice(TOKENS[:30])
        case 3 if isinstance(inner, dict):
            inner[rng.choice(("unknown", "", "\ud800", "\x1b[31m", "a" * 3000))] = inner.pop(last)
        case _:
            inner[last] = rng.choice(HOSTILE)
    return document


def _json(rng: random.Random, data: bytes) -> bytes:
    return json.dumps(damaged_value(rng, json.loads(data))).encode()


def _json_line(rng: random.Random, data: bytes) -> bytes:
    lines = data.splitlines()
    number = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[number]
        case 1:
            lines.insert(number, rng.choice(lines))
        case 2:
            rng.shuffle(lines)
        case _:
            lines[number] = _json(rng, lines[number])
    return b"\n".join(lines) + b"\n"


def _archive(rng: random.Random, data: bytes) -> bytes:
    """Return a policy file with another text or another array."""
    path = Path("archive.npz")
    path.write_bytes(data)
    arrays = read_archive(path)
    text = next(name for name, array in arrays.items() if array.dtype.kind == "U")
    name = rng.choice(sorted(arrays))
    match rng.randrange(6):
        case 0:
            arrays[name] = rng.choice((np.zeros(3), np.array("x"), np.zeros((2, 2), int), arrays[name][None]))
        case 1 if name != text:
            arrays[name] = arrays[name].astype(float) * rng.choice((math.nan, math.inf, 1e300, 0.0))
        case 2:
            arrays[rng.choice(("extra", "..", "\u202e"))] = arrays.pop(name)
        case 3:
            damage = rng.choice((_retold, _cut))
            arrays[text] = np.array(damage(rng, str(arrays[text]).encode()).decode("utf-8", "replace"))
        case _:
            arrays[text] = np.array(_json(rng, str(arrays[text]).encode()).decode())
    write_archive(path, arrays)
    changed = path.read_bytes()
    path.unlink()
    return changed


def _torch(rng: random.Random, data: bytes) -> bytes:
    """Return a checkpoint in which one value or tensor is replaced."""
    document = torch.load(io.BytesIO(data), weights_only=True)
    other = rng.choice((torch.zeros(3), torch.tensor(math.nan), torch.zeros(2, 2, dtype=torch.int64)))
    if rng.random() < 0.3:
        *before, last = rng.choice(list(_places(document)))
        inner = document
        for key in before:
            inner = inner[key]
        inner[last] = other
    else:
        document = damaged_value(rng, document)
    changed = io.BytesIO()
    try:
        torch.save(document, changed)
    except RecursionError:  # too deep to be written at all
        return _cut(rng, data)
    return changed.getvalue()


def _swollen(rng: random.Random, data: bytes) -> bytes:
    """Return a JSON document in which one value is a list of a million values."""
    document = json.loads(data)
    *before, last = rng.choice(list(_places(document)))
    inner = document
    for key in before:
        inner = inner[key]
    inner[last] = "HERE"
    values = rng.choice((b"[],", b"{},", b"1e9,", b'"ab",', b'{"a":1},')) * 10**6
    return json.dumps(document).encode().replace(b'"HERE"', b"[" + values + b"0]")


def _repeated_key(rng: random.Random, data: bytes) -> bytes:
    """Return a JSON document in which a key of an object is given twice."""
    text = data.decode()
    places = [place for place, char in enumerate(text) if char == "{"]
    place = rng.choice(places) + 1
    return (text[:place] + rng.choice(('"format": 1, "format": 2,', '"a": 1, "a": 1,')) + text[place:]).encode()


def _knotted(rng: random.Random, data: bytes) -> bytes:
    """Add YAML with values that contain themselves or would be huge, and values of other types."""
    names = "abcdefghij"
    bomb = "a: &a [1, 1]\n" + "".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]\n" for x, y in pairwise(names))
    merged = "a: &a {x: 1}\n" + "".join(f"{y}: &{y} {{<<: [{', '.join([f'*{x}'] * 9)}]}}\n" for x, y in pairwise(names))
    more = (
        "x: &x [*x]", "x: &x {y: *x}", "x: &x {<<: *x}", bomb, merged, "x: 2001-13-45", "x: 2001-12-05",
        "x: " + "9" * 5000, "? [1]\n: 2", "x: !!binary '@'", "x: !!set {a, b}", "x: !!omap [a: 1]", "x: !!timestamp 1",
        "1: 2", "x: 1e999", "x: *y",
    )  # fmt: skip
    return data + rng.choice(more).encode() + b"\n"


def _inside(rng: random.Random, data: bytes) -> bytes:
    """Damage the content of a gzip file."""
    return gzip.compress(rng.choice(TEXT)(rng, gzip.decompress(data)), mtime=0)


BYTES: tuple[Damage, ...] = (_cut, _flipped, _spliced, _recoded)
TEXT: tuple[Damage, ...] = (*BYTES, _retold, _retold, _retold)


# Something else in the place of a file

#: Contents that small archives repeat; each is a piece of some valid file or a byte that readers skip.
BOMBS = (b"\0", b" ", b"\n", b"[", b"{},", b"9", b"0,1\n", b"a", b"# \n")


def _bomb(content: bytes) -> bytes:
    """Return two gigabytes in gzip; a file may have several members."""
    return gzip.compress(content * (2**24 // len(content)), 9, mtime=0) * 128


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


STATES: tuple[Callable[[random.Random, Path], object], ...] = (
    lambda rng, path: path.mkdir(),
    lambda rng, path: os.mkfifo(path),
    lambda rng, path: path.symlink_to("/dev/zero"),
    lambda rng, path: path.symlink_to("/dev/null"),
    lambda rng, path: path.symlink_to(path),
    lambda rng, path: path.symlink_to("absent"),
    lambda rng, path: _sparse(path),
    lambda rng, path: path.write_bytes(_bomb(rng.choice(BOMBS))),
)


@dataclass(frozen=True)
class Kind:
    """A kind of file that commands read.

    Attributes:
        name: file name.
        valid: makes a valid file.
        damages: functions that damage one.
        commands: commands that read it; cheap for a valid file.
        others: further files beside it, by name.
    """

    name: str
    valid: Callable[[], bytes]
    damages: tuple[Damage, ...]
    commands: tuple[str, ...]
    others: Callable[[], dict[str, bytes]] = dict


def _run_kind(name: str, *damages: Damage, plot: bool = False) -> Kind:
    commands = (f"{RUN} --resume", *(("plot run",) if plot else ()))
    return Kind(
        f"run/{name}",
        lambda: _training()[name],
        damages,
        commands,
        lambda: {f"run/{other}": data for other, data in _training().items() if other != name},
    )


def _policy(name: str, *commands: str) -> Kind:
    return Kind(
        "it.npz", (SHIPPED["tpch-batch"].parent / f"{name}.npz").read_bytes, (*BYTES, *[_archive] * 6), commands
    )


KINDS: dict[str, Kind] = {
    "workload": Kind(
        "it.json",
        _workload,
        (*TEXT, *[_json] * 8, _swollen, _repeated_key),
        (
            "workload show it.json",
            f"compare --workload it.json {FEW}",
            "serve --no-token --spark unix:absent/s --policy fair --history it.json",
        ),
    ),
    "workload in TOML": Kind("it.toml", lambda: TOML, TEXT, ("workload show it.toml",)),
    "settings": Kind("it.yaml", lambda: SETTINGS, (*TEXT, *[_retold] * 6), ("train --explain --config it.yaml",)),
    "policy": _policy(
        "embedded-batch",
        f"compare --checkpoint it.npz --jobs 1 {FEW}",
        "explain --policy it.npz --jobs 1 --executors 3 --json new.json",
        "serve --no-token --spark unix:absent/s --policy it.npz",
    ),
    "estimator": Kind(
        "it.npz",
        _estimator,
        (*BYTES, *[_archive] * 6),
        (f"compare --unknown 1 --estimator it.npz --jobs 2 {FEW}", f"{SERVE} --policy fair --estimator it.npz"),
    ),
    "policy for a grid": _policy("deeprm", "deeprm compare --checkpoint it.npz --sets 1 --json new.json"),
    "event log": Kind(
        "logs/it",
        _event_log,
        (*TEXT, *[_json_line] * 8),
        ("workload import spark logs/it --out new.json", "spark what-if logs/it --draws 1 --out what --json new.json"),
    ),
    "live log": Kind(
        "it.jsonl", _live_log, (*TEXT, *[_json_line] * 8), ("replay-live it.jsonl --out live --json new.json",)
    ),
    "table of Alibaba": Kind(
        "it.csv", TABLE.encode, (*TEXT, *[_retold] * 4), ("workload import alibaba it.csv --out new.json",)
    ),
    "workflow": Kind(
        "it.json",
        lambda: json.dumps(WORKFLOW).encode(),
        (*TEXT, *[_json] * 6, _swollen, _repeated_key),
        ("workload import wfcommons it.json --out new.json",),
    ),
    "job log": Kind(
        "it.swf",
        lambda: f"; MaxProcs: 8\n{JOB}\n{JOB}\n".encode(),
        (*TEXT, *[_retold] * 4),
        ("workload import swf it.swf --out new.json", "deeprm compare --log it.swf --loads 50 --sets 1"),
    ),
    "checkpoint": _run_kind("checkpoint.pt", *BYTES, *[_torch] * 6),
    "metrics": _run_kind("metrics.jsonl", *TEXT, *[_json_line] * 6, plot=True),
    "settings of a run": _run_kind("config.yaml", *TEXT, plot=True),
    "settings of a plotted run": Kind(
        "run/config.yaml",
        lambda: _training()["config.yaml"],
        (*TEXT, *[_retold] * 4, _knotted),
        ("plot run",),
        lambda: {"run/metrics.jsonl": _training()["metrics.jsonl"]},
    ),
    "capacity": Kind(
        "it.csv", lambda: b"0,5\n60, 3\n120 4\n", (*TEXT, *[_retold] * 4), (f"compare --capacity it.csv {FEW}",)
    ),
    "carbon": Kind("it.csv", lambda: CARBON, (*TEXT, *[_retold] * 4), CARBON_COMMANDS),
    "carbon of Electricity Maps": Kind("it.csv", EXPORT.encode, (*TEXT, *[_retold] * 4), CARBON_COMMANDS),
    "carbon in gzip": Kind(
        "it.csv.gz", lambda: gzip.compress(CARBON, mtime=0), (*BYTES, _inside), (f"compare --carbon it.csv.gz {FEW}",)
    ),
    "pools": Kind("it.xml", lambda: POOLS, (*TEXT, *[_retold] * 4), (f"{SERVE} --policy fair --pools it.xml",)),
    "tenants": Kind(
        "it.yaml",
        lambda: TENANTS,
        (*TEXT, *[_retold] * 4),
        ("serve --spark unix:absent/s --policy fair --slots 8 --tenants it.yaml",),
    ),
    "token": Kind(
        "it.txt",
        lambda: b"0123456789abcdefgh\n",
        TEXT,
        ("serve --spark unix:absent/s --policy fair --token-file it.txt",),
    ),
    "certificate": Kind(
        "it.pem",
        lambda: b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        TEXT,
        (f"{SERVE} --policy fair --tls-cert it.pem --tls-key key.pem",),
        lambda: {"key.pem": b"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"},
    ),
    "log to continue": Kind("it.jsonl", _live_log, (*TEXT, _json_line), (f"{SERVE} --policy fair --log it.jsonl",)),
    "tuned parameters": Kind(
        "it.json",
        lambda: b'{"rule": "srpt", "parameters": {"price_in_batch": 1.5, "source_factor": 0.5}}',
        (*TEXT, *[_json] * 6, _swollen, _repeated_key),
        ("compare --jobs 1 --seeds 1 --executors 3 --processes 1 --schedulers srpt:it.json --json new.json",),
    ),
}

# Options and names of schedulers

WORDS = (
    *(token for token in TOKENS if len(token) < 7000 and "\0" not in token), "", "absent", "-", "--", "5x", "x5", "1,2",
    "1,,2", "4x64:1,", "1e308", "-1e308", "5e-324", "1e5x1", "ray:x", "cuda:9", "\udcff", "weighted-fair:", "a" * 400,
)  # fmt: skip
SPECS = (
    "fifo", "fair", "weighted-fair", "tuned-weighted-fair", "srpt", "srpt-tuned",
    "srpt", "tetris", "graphene-star", "graphene", "decima", "random", "os", "json", "absent",
)  # fmt: skip


def _options(rng: random.Random) -> list[str]:
    """Return a command with one or two options that have random words as values."""
    commands = [
        (path, command)
        for path, command in every_command()
        if not isinstance(command, click.Group) and path[-1] not in ("train", "serve") and "reproduce" not in path
    ]
    path, command = rng.choice(commands)
    words = list(path)
    options = [each for each in command.params if isinstance(each, click.Option) and not each.is_flag]
    for option in rng.sample(options, min(len(options), rng.choice((1, 1, 2)))):
        words += [rng.choice(option.opts), rng.choice(WORDS)]
    if any(isinstance(each, click.Argument) and each.required for each in command.params):
        words.append(rng.choice(WORDS))
    return words


def _spec(rng: random.Random) -> list[str]:
    numbers = "".join(":" + rng.choice((*WORDS, "1", "0.5", "-1", "100", "-100")) for _ in range(rng.randrange(4)))
    spec = rng.choice(SPECS) + numbers + rng.choice(("", "", "", ",guard=off", ",", ":"))
    return shlex.split(f"compare --jobs 1 --training 1 {FEW.replace('fair', '@')}".replace("@", shlex.quote(spec)))


# Running them


@dataclass(frozen=True)
class Case:
    """A command line and its defect; the defect is empty if the command ended well."""

    number: int
    kind: str
    words: list[str]
    status: int
    wrong: str


def run_case(seed: int, number: int, keep: Path | None = None) -> Case:
    """Run one case in its own folder; with ``keep``, in this one, so that its input can be inspected."""
    rng = random.Random(f"{seed} {number}")
    before = Path.cwd()
    with contextlib.ExitStack() as ends:
        folder = keep or Path(ends.enter_context(tempfile.TemporaryDirectory()))
        ends.callback(os.chdir, before)
        os.chdir(folder)
        kind, words = _prepared(rng)
        Path("new.json").write_text("kept")
        status, stderr, error = _invoked(words)
        wrong = error or _wrong(words, status, stderr)
    return Case(number, kind, words, status, wrong)


def _prepared(rng: random.Random) -> tuple[str, list[str]]:
    kind = rng.choice((*KINDS, "option", "scheduler"))
    if kind == "option":
        return kind, _options(rng)
    if kind == "scheduler":
        return kind, _spec(rng)
    chosen = KINDS[kind]
    for name, data in ({chosen.name: rng.choice(chosen.damages)(rng, chosen.valid())} | chosen.others()).items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        if name == chosen.name and rng.random() < 0.15:
            rng.choice(STATES)(rng, path)
        else:
            path.write_bytes(data)
            path.chmod(0o600)  # files of tokens and keys must be private
    return kind, shlex.split(rng.choice(chosen.commands))


def _invoked(words: list[str]) -> tuple[int, str, str]:
    """Return exit status, stderr, and the defect: an exception, or a timeout."""

    def late(number: int, frame: object) -> None:
        raise _LateError

    limits = {signal.SIGVTALRM: (signal.ITIMER_VIRTUAL, SOON_S), signal.SIGALRM: (signal.ITIMER_REAL, WAITING_S)}
    handlers = {number: signal.signal(number, late) for number in limits}
    for timer, limit_s in limits.values():
        signal.setitimer(timer, limit_s)
    before = begin_peak()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", DeprecationWarning)  # of packages, when they are imported
            result = CliRunner().invoke(cli, words)
    except _LateError:
        return -1, "", f"not over within {SOON_S} s of CPU time and {WAITING_S} s on the clock"
    finally:
        for number, (timer, _) in limits.items():
            signal.setitimer(timer, 0)
            signal.signal(number, handlers[number])
    if (taken := peak_mib() - before) > MOST_MIB:
        return result.exit_code, result.stderr, f"took {taken} MiB of memory"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return result.exit_code, result.stderr, "".join(traceback.format_exception(result.exception)[-4:])
    return result.exit_code, result.stderr, ""


def begin_peak() -> int:
    """Let ``peak_mib`` measure from now on, and return the memory of this process now, MiB."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # return to the system what earlier cases have left
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_mib()


def peak_mib() -> int:
    """Return the largest memory of this process since ``begin_peak``, MiB; 0 on other systems than Linux."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) // 1024 if found else 0
    return 0


def _wrong(words: list[str], status: int, stderr: str) -> str:
    left = [
        str(path) for path in Path().rglob("*") if path.name.startswith(f".{os.getpid()}.") or path.suffix == ".tmp"
    ]
    if left or Path(MAGIC).exists():
        return f"left behind: {left or MAGIC}"
    if "Traceback" in stderr:
        return stderr
    if not status:
        return "" if _is_whole(Path("new.json")) else "new.json is not whole"
    if status == 130:
        return "interrupted"
    if not stderr.startswith("decima: error: ") or stderr.count("\n") != 1 or len(stderr) > LONGEST + 1:
        return f"not refused in one line: {stderr!r:.2000}"
    return "" if Path("new.json").read_text() == "kept" else "new.json was written nevertheless"


def _is_whole(path: Path) -> bool:
    text = path.read_text()
    return text == "kept" or json.loads(text) is not None


def run(cases: int, seed: int, only: int | None = None, first: int = 0) -> list[Case]:
    """Run consecutive cases, and print defects."""
    found = []
    for number in range(first, first + cases) if only is None else [only]:
        case = run_case(seed, number)
        found.append(case)
        if case.wrong:
            print(f"case {number}, {case.kind}: {shlex.join(case.words)[:300]}\n{case.wrong}\n", flush=True)
    return found


def main() -> None:
    """Parse options, run, and summarise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("cases", 2000), ("seed", 0), ("first", 0), ("only", None)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    found = run(options.cases, options.seed, options.only, options.first)
    wrong = [case for case in found if case.wrong]
    for kind, count in sorted(Counter(case.kind for case in found).items()):
        of_kind = [case for case in found if case.kind == kind]
        print(f"{kind}: {count}, {sum(bool(case.status) for case in of_kind)} refused")
    print(f"{len(found)} cases, {len(wrong)} wrong, {time.process_time():.0f} s of CPU time")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
