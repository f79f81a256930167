"""Record the 22 TPC-H queries on a real Spark cluster on this machine: event logs and a manifest.

    python -m workloads.spark.recorder --scale-factors 0.5,1,2 --executors 1,2 --runs 2 --out DIR

Every query is an application of its own, with new executors, and begins when all executors have registered. Adaptive
execution and broadcast joins are off, and numbers of tasks depend on the data only, so that all runs of a query have
the same DAG, as in the profiles that Decima's authors published.

With ``--mixtures`` several applications share the cluster, submitted at given times. An application may hold
``--mixture-executors``: if this is all executors, the cluster runs one application after the other, first come, first
served; if fewer, applications run side by side.

The machine should be idle. Run the command again to continue after an interruption. Needs the extra ``[spark]`` and
Java 17.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import random
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workloads.errors import DecimaError
from workloads.reading import read_document
from workloads.spark.recorder.cluster import StandaloneCluster, java_version, spark_home
from workloads.spark.recorder.submission import Application, DriverProcess, Layout
from workloads.spark.recorder.tpch import NUM_QUERIES, RecorderError, generate_tables, tpchgen_program
from workloads.texts import number_in, whole_in

_T = TypeVar("_T")


@dataclass(frozen=True)
class Mixture:
    """Applications that share the cluster."""

    name: str  # name of the mixture; a part of the applications' names
    applications: tuple[Application, ...]  # applications in order of submission
    submit_s: tuple[float, ...]  # submission time of each application, s, ascending from 0


def single_runs(
    queries: Sequence[int],
    scale_factors: Sequence[float],
    executors: Sequence[int],
    layouts: Sequence[Layout],
    repetitions: int,
) -> list[Application]:
    """List applications that run alone: all combinations of the arguments, each once before any is repeated."""
    rounds = itertools.product(range(1, repetitions + 1), scale_factors, layouts, executors, queries)
    return [
        Application(
            name=f"q{query:02d}_sf{scale_factor:g}_{_file_part(layout)}_n{count}_r{repetition}",
            query=query,
            scale_factor=scale_factor,
            executors=count,
            layout=layout,
            wait_for_executors=True,
        )
        for repetition, scale_factor, layout, count, query in rounds
    ]


def random_mixtures(
    count: int,
    size: int,
    mean_interval_s: float,
    seed: int,
    *,
    queries: Sequence[int],
    scale_factors: Sequence[float],
    layout: Layout,
    executors: Sequence[int],
) -> list[Mixture]:
    """Draw mixtures of ``size`` applications uniformly, submitted in a Poisson process.

    Args:
        count: number of draws; each draw is recorded with every number in ``executors``.
        size: number of applications in a mixture.
        mean_interval_s: mean time between submissions, s.
        seed: seed of the draws; a mixture does not depend on ``count``.
        executors: maximum numbers of executors of an application.
    """
    mixtures = []
    for index, held in itertools.product(range(count), executors):
        drawn = random.Random(f"{seed}/{index}")
        intervals = [round(drawn.expovariate(1 / mean_interval_s), 3) for _ in range(size - 1)]
        name = f"mix{seed}.{index:02d}_{_file_part(layout)}_n{held}"
        applications = tuple(
            Application(
                name=f"{name}_a{index:02d}",
                query=drawn.choice(queries),
                scale_factor=drawn.choice(scale_factors),
                executors=held,
                layout=layout,
                wait_for_executors=False,
            )
            for index in range(size)
        )
        mixtures.append(Mixture(name, applications, tuple(itertools.accumulate(intervals, initial=0.0))))
    return mixtures


def record_run(
    application: Application, cluster: StandaloneCluster, *, tables: Path, logs: Path, timeout_s: float
) -> dict[str, Any]:
    """Run one application alone; return the measurements of its driver.

    Raises:
        RecorderError: the application failed, or took too long.
    """
    with DriverProcess.started(application, cluster, tables) as driver:
        driver.submit()
        return {**driver.finish(logs, timeout_s), "log": f"{application.name}.json.gz"}


def record_mixture(
    mixture: Mixture, cluster: StandaloneCluster, *, tables: Path, logs: Path, timeout_s: float
) -> dict[str, Any]:
    """Run applications together; all drivers are ready before the first application is submitted.

    Raises:
        RecorderError: an application failed, or took too long.
    """
    with contextlib.ExitStack() as running:
        drivers = [
            running.enter_context(DriverProcess.started(application, cluster, tables))
            for application in mixture.applications
        ]
        begun = time.time()
        submitted = []
        for driver, submit_s in zip(drivers, mixture.submit_s, strict=True):
            time.sleep(max(begun + submit_s - time.time(), 0.0))
            submitted.append(driver.submit() - begun)
        records = [driver.finish(logs, timeout_s) for driver in drivers]
    for record, submit_s in zip(records, submitted, strict=True):
        record["submit_s"] = round(submit_s, 3)
        record["done_s"] = round(record["start"] + record["wall"] - begun, 3)
        record["log"] = f"{record['name']}.json.gz"
    return {
        "executors": cluster.num_slots,
        "makespan_s": max(record["done_s"] for record in records),
        "applications": records,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status: 1 after a failure, 130 on Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        return _record(options, ["python", "-m", "workloads.spark.recorder", *arguments])
    except (DecimaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run the command again to continue", file=sys.stderr)
        return 130


def _record(options: argparse.Namespace, command: list[str]) -> int:
    _check_programs()
    out: Path = options.out.resolve()
    logs = out / "eventlogs"
    logs.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(out / "manifest.json")
    runs = single_runs(
        options.queries, options.scale_factors, options.executors, options.layouts, options.runs
    )
    mixtures = random_mixtures(
        options.mixtures,
        options.applications,
        options.mean_interval,
        options.seed,
        queries=options.queries,
        scale_factors=options.scale_factors,
        layout=options.layouts[0],
        executors=options.mixture_executors,
    )
    tables: Path = options.tables.resolve() if options.tables else out / "tables"
    common = {"tables": tables, "logs": logs, "timeout_s": options.timeout}
    todo: list[tuple[str, str, Callable[[StandaloneCluster], dict[str, Any]]]] = [
        *(("runs", run.name, partial(record_run, run, **common)) for run in runs),
        *(("mixtures", mixture.name, partial(record_mixture, mixture, **common)) for mixture in mixtures),
    ]
    todo = [entry for entry in todo if not manifest.has(*entry[:2])]
    print(f"{len(todo)} to record, {len(runs) + len(mixtures) - len(todo)} done before", flush=True)
    if not todo:
        return 0
    for scale_factor in options.scale_factors:
        _read_once(generate_tables(tables, scale_factor))
    num_slots = max(*options.executors, *options.mixture_executors)
    manifest.begin_campaign(command)
    failures = 0
    with StandaloneCluster(out / "cluster", num_slots, pin=options.pin) as cluster:
        for index, (kind, name, record) in enumerate(todo, start=1):
            try:
                measured = record(cluster)
            except RecorderError as error:
                failures += 1
                print(f"{index}/{len(todo)} failed: {error}", file=sys.stderr, flush=True)
                continue
            manifest.add(kind, name, measured)
            print(f"{index}/{len(todo)} {_summary(name, measured)}", flush=True)
    if failures:
        raise RecorderError(f"{failures} of {len(todo)} failed; run the command again to repeat them")
    shutil.rmtree(cluster.folder)
    return 0


def _check_programs() -> None:
    """Check that all programs are installed, before tables are generated."""
    java_version()
    spark_home()
    tpchgen_program()
    if importlib.util.find_spec("psutil") is None:
        raise RecorderError("psutil is not installed: pip install -e '.[spark]'")


def _read_once(tables: Path) -> None:
    """Read the tables into the page cache, so that the first run of a query is not slower than later ones."""
    for table in tables.iterdir():
        with table.open("rb") as file:
            while file.read(2**24):
                pass


def _summary(name: str, measured: dict[str, Any]) -> str:
    if "makespan_s" in measured:
        return f"{name}: {len(measured['applications'])} applications in {measured['makespan_s']:.1f} s"
    return (
        f"{name}: {measured['wall']:.1f} s, {measured['rows']} rows, "
        f"{measured['other_cpu_s']:.1f} s CPU of other programs"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.spark.recorder", description="Record TPC-H queries on a real Spark cluster."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--tables", type=Path, help="folder of the TPC-H tables (default: OUT/tables)")
    parser.add_argument(
        "--queries", type=_queries, default=list(range(1, NUM_QUERIES + 1)), help="such as 1-22 or 1,5"
    )
    parser.add_argument(
        "--scale-factors", type=list_of(positive_float), default=[1.0], help="1 is about 1 GB"
    )
    parser.add_argument(
        "--executors", type=list_of(positive_int), default=[1, 2], help="one-core executors of a run"
    )
    parser.add_argument("--runs", type=int, default=1, help="repetitions; 0 records mixtures only")
    parser.add_argument(
        "--layouts",
        type=list_of(Layout.parse),
        default=[Layout("12m", 16)],
        help="maximum bytes of a scan task / tasks after a shuffle (default: 12m/16)",
    )
    parser.add_argument("--mixtures", type=int, default=0, help="mixtures of applications to record as well")
    parser.add_argument("--applications", type=positive_int, default=5, help="applications of a mixture")
    parser.add_argument("--mean-interval", type=positive_float, default=10.0, help="mean interval, s")
    parser.add_argument("--seed", type=int, default=1, help="seed of the mixtures")
    parser.add_argument(
        "--mixture-executors",
        type=list_of(positive_int),
        default=[1, 2],
        help="executors that an application of a mixture may hold",
    )
    parser.add_argument("--timeout", type=positive_float, default=900.0, help="limit of an application, s")
    parser.add_argument(
        "--pin", action=argparse.BooleanOptionalAction, default=True, help="bind each executor to one core"
    )
    return parser


def list_of(parse: Callable[[str], _T]) -> Callable[[str], list[_T]]:
    """Return a parser of comma-separated values, whose errors argparse reports."""

    def parse_list(text: str) -> list[_T]:
        try:
            return [parse(part) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse_list


def positive_int(text: str) -> int:
    """Parse a whole number above 0; raise ValueError on anything else."""
    if (value := whole_in(text)) is None or value < 1:
        raise ValueError(f"{text!r} is not a whole number above 0")
    return value


def positive_float(text: str) -> float:
    """Parse a number above 0; raise ValueError on anything else."""
    if not 0 < (value := number_in(text)) < math.inf:
        raise ValueError(f"{text!r} is not a number above 0")
    return value


def _queries(text: str) -> list[int]:
    """Parse numbers and ranges of TPC-H queries, such as 1,3,5-9."""
    queries: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = whole_in(first), whole_in(last or first)
        if low is None or high is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 1,3,5-9")
        if not 1 <= low <= high <= NUM_QUERIES:
            raise argparse.ArgumentTypeError(f"the queries are 1 to {NUM_QUERIES}, not {text}")
        queries += range(low, high + 1)
    return queries


def _file_part(layout: Layout) -> str:
    return str(layout).replace("/", "x")


class Manifest:
    """JSON file beside the event logs that lists the recordings, the machine and versions.

    Its content:

    * format: 1
    * campaigns: one entry for each start of the recorder: date, command, machine, versions
    * runs: name -> measurements of the driver (see `workloads.spark.recorder.submission`), log, campaign
    * mixtures: name -> number of executors, makespan_s, campaign, and applications: like runs, with ``submit_s`` and
      ``done_s``, times of the submission and of the end of the query since the first submission
    """

    def __init__(self, path: Path) -> None:
        """Load the file if it exists.

        Raises:
            RecorderError: the file is not a manifest.
            WorkloadError: the file cannot be read, or is not JSON.
        """
        self.path = path
        self.content: dict[str, Any] = {"format": 1, "campaigns": [], "runs": {}, "mixtures": {}}
        if path.exists():
            content = read_document(path, "a manifest of recordings")
            if not isinstance(content, dict) or content.get("format") != 1:
                raise RecorderError(f"{path}: not a manifest of recordings; move it away")
            self.content = content

    def begin_campaign(self, command: Sequence[str]) -> None:
        """Add command, machine and versions for the next recordings."""
        campaign = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(command),
            "machine": _machine(),
            "versions": _versions(),
        }
        self.content["campaigns"].append(campaign)

    def has(self, kind: str, name: str) -> bool:
        """Return whether a run or mixture (``kind``: "runs" or "mixtures") is recorded."""
        return name in self.content[kind]

    def add(self, kind: str, name: str, record: dict[str, Any]) -> None:
        """Add a record, and write the file atomically."""
        self.content[kind][name] = {**record, "campaign": len(self.content["campaigns"]) - 1}
        unfinished = self.path.with_name(self.path.name + ".part")
        unfinished.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.path)


def _machine() -> dict[str, Any]:
    import psutil

    cpu = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", cpu.read_text()) if cpu.exists() else None
    return {
        "cpu": model[1] if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
    }


def _versions() -> dict[str, str]:
    return {
        "java": java_version(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in ("pyspark", "tpchgen-cli")},
        "decima": importlib.metadata.version("decima-scheduler"),
    }
