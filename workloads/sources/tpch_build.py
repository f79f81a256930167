"""Build the embedded TPC-H set from recordings of real runs.

    python -m workloads.sources.tpch_build DIR... --out workloads/data/tpch-spark.json.gz

DIR is a folder that `workloads.spark.recorder` wrote, or a folder of its event logs. Runs at several scale factors
determine the growth of each stage; runs with several executors determine work inflation. ``--plans`` names a log with
the plans of the queries, from ``python -m workloads.spark.recorder.local --no-adaptive --tpch-only``, which only gives
the stages their operators. The same recordings and options give the same file, byte for byte.
`workloads.sources.tpch` describes the file.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workloads.errors import check_number
from workloads.job import WorkloadError
from workloads.reading import read_document
from workloads.sources.tpch import LEVELS
from workloads.sources.workload_file import Workload
from workloads.sources.workload_writer import write_workload
from workloads.spark.eventlog import SparkApplication, read_event_log
from workloads.spark.importing import median_startup_ms
from workloads.spark.model import SparkModel, fit
from workloads.spark.profiles import scaled_profile
from workloads.spark.query import QueryRuns, SparkQuery, alike
from workloads.texts import number_in

#: Parallelism levels of the embedded set: the levels of the published profiles, and one executor, which is measured.
EMBEDDED_LEVELS = (1, *LEVELS)

_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}
_BYTES_PER_MB = 1e6


def read_recordings(folder: str | Path) -> list[SparkApplication]:
    """Read the recordings of single runs in a folder; applications of several queries are left out.

    Raises:
        WorkloadError: a log or manifest is malformed.
    """
    folder = Path(folder)
    logs = folder / "eventlogs"
    mixed = {
        application["name"]
        for mixture in _manifest(folder).get("mixtures", {}).values()
        for application in mixture["applications"]
    }
    applications = read_event_log(logs if logs.is_dir() else folder)
    return [application for application in applications if application.name not in mixed]


def build(
    applications: Iterable[SparkApplication],
    *,
    sizes_gb: Sequence[float] = (2, 5, 10, 20, 50, 100),
    split: str = "32m",
    shuffle_partitions: int = 200,
    most_executors: int = 1,
    parameters: Mapping[str, float] | None = None,
    plans: Mapping[int, SparkQuery] | None = None,
) -> tuple[Workload, SparkModel]:
    """Build the profiles of all recorded queries at all sizes, and the model of their durations.

    Args:
        applications: recorded runs, from `read_recordings`.
        sizes_gb: sizes of the input, GB; a scale factor of 1 is 1 GB.
        split: maximum input of a scan task, such as ``32m``.
        shuffle_partitions: number of tasks of a stage that reads shuffles.
        most_executors: runs with more executors are used for work inflation only, as their executors shared the
            machine's cores with each other and with the driver.
        parameters: parameters of the model that replace fitted ones, by name.
        plans: run of each query that gives its stages their operators, from `read_plans`; by default the operators that
            the recordings know.

    Raises:
        WorkloadError: an application is not a recording, or there are no recordings.
    """
    by_query = _by_query(applications)
    model = fit([alike for groups in by_query.values() for alike in groups], shared_machine=True)
    model = model.rounded().having(parameters or {})
    runs = {query: _trusted(groups, most_executors) for query, groups in by_query.items()}
    for query, plan in (plans or {}).items():
        if query in runs:
            runs[query] = _with_operators(runs[query], plan)
    profiles = [
        scaled_profile(
            model,
            runs[query],
            size_gb=size_gb,
            split_mb=_megabytes(split),
            shuffle_partitions=shuffle_partitions,
            levels=EMBEDDED_LEVELS,
            name=f"tpch-q{query}-{size_gb:g}g",
        )
        for size_gb in sizes_gb
        for query in by_query
    ]
    return Workload(tuple(profiles), None, "tpch (extrapolated from Spark at 1 and 2 GB)"), model


def _by_query(applications: Iterable[SparkApplication]) -> dict[int, list[QueryRuns]]:
    """Return the runs of each query, by ascending number, in groups of the same DAG.

    The DAG may depend on the data: a query with a limit reads more partitions if one does not contain enough rows.
    """
    by_query: dict[int, list[SparkQuery]] = {}
    for query, run in sorted(map(_run, applications), key=lambda pair: pair[0]):
        by_query.setdefault(query, []).append(run)
    return {query: alike(runs, same_tasks=False) for query, runs in by_query.items()}


def _trusted(groups: Sequence[QueryRuns], most_executors: int) -> QueryRuns:
    """Select the runs from which a profile is made: those with the DAG of the largest input."""
    trusted = [[run for run in group.runs if run.tasks["level"].max() <= most_executors] for group in groups]
    if not any(trusted):
        raise WorkloadError(f"{groups[0].runs[0].name}: no run with at most {most_executors} executors")
    return QueryRuns(tuple(max(trusted, key=lambda group: max((run.size_gb for run in group), default=0.0))))


def read_plans(log: str | Path) -> dict[int, SparkQuery]:
    """Return a run of each query, by its number, from a log of `workloads.spark.recorder.local`.

    Raises:
        WorkloadError: the log is malformed.
    """
    runs = [run for application in read_event_log(log) for run in application.queries]
    numbered = [(re.match(r"tpch-q(\d{1,2})-", run.name), run) for run in runs]
    return {int(match[1]): run for match, run in numbered if match}


def _with_operators(runs: QueryRuns, plan: SparkQuery) -> QueryRuns:
    """Return runs whose stages have the operators of another run, at the stages of the same names, in their order.

    The other run may have fewer stages of a name: with more data, a query with a limit may read its input twice.
    """
    of_name: dict[str, list[tuple[str, ...]]] = {}
    for stage in plan.stages:
        of_name.setdefault(stage.name, []).append(stage.operators)
    first, *others = runs.runs
    stages, count = [], Counter[str]()
    for stage in first.stages:
        known = of_name.get(stage.name, [()])
        stages.append(replace(stage, operators=known[min(count[stage.name], len(known) - 1)]))
        count[stage.name] += 1
    return QueryRuns((replace(first, stages=tuple(stages)), *others))


def _run(application: SparkApplication) -> tuple[int, SparkQuery]:
    """Return the number of an application's query, and its only run."""
    recording = application.recording
    try:
        recording = recording if "query" in recording else {**recording, **recording["runs"][0]}
        split, partitions = _layout(recording["layout"])
        [run] = application.queries
        size_gb, split_mb = _noted(recording, "sf"), _megabytes(split)
        run = replace(run, size_gb=size_gb, split_mb=split_mb, shuffle_partitions=partitions)
        return int(_noted(recording, "query")), run
    except (KeyError, IndexError, TypeError, ValueError):
        raise WorkloadError(
            f"{application.name}: not a recording of one TPC-H query by workloads.spark.recorder"
        ) from None


def _noted(recording: Mapping[str, Any], name: str) -> float:
    """Return a number of a recorder's notes, which may be a text."""
    value = recording[name]
    return check_number(number_in(value) if isinstance(value, str) else value, name, WorkloadError, (0, 1e9))


def _layout(layout: Any) -> tuple[str, int]:
    """Return split size and number of shuffle partitions of a layout such as ``12m/16``."""
    parts: Sequence[Any] = layout.split("/") if isinstance(layout, str) else layout
    return str(parts[0]), int(parts[1])


def _megabytes(size: str) -> float:
    """Convert a size in Spark's notation, in powers of 1024, to MB (10^6 bytes)."""
    match = re.fullmatch(r"([0-9]{1,9})([kmg])", size)
    if not match:
        raise WorkloadError(f"a size is written as in 32m, not {size!r}")
    return int(match[1]) * _UNITS[match[2]] / _BYTES_PER_MB


def _manifest(folder: Path) -> dict[str, Any]:
    """Read a manifest, see `workloads.spark.recorder.record.Manifest`; empty if the file is missing."""
    path = folder / "manifest.json"
    if not path.exists():
        return {}
    content = read_document(path, "a manifest of recordings")
    if not isinstance(content, dict) or content.get("format") != 1:
        raise WorkloadError(f"{path}: not a manifest of recordings")
    return content


def _provenance(folder: Path, applications: Sequence[SparkApplication]) -> dict[str, Any]:
    """Describe machine and software of the recordings, as far as the folder names them."""
    recordings = [application.recording for application in applications]
    started = [datetime.fromtimestamp(app.start_ms / 1000, UTC).date().isoformat() for app in applications]
    campaigns = [
        {**campaign, "command": re.sub(r"(--(?:out|tables)[= ])\S+", r"\1DIR", campaign["command"])}
        for campaign in _manifest(folder).get("campaigns", [])
    ]
    return {
        "runs": len(applications),
        "scale_factors": sorted({_noted(entry, "sf") for entry in recordings}),
        "executors": sorted({int(_noted(entry, "n")) for entry in recordings}),
        "layouts": sorted({"{}/{}".format(*_layout(entry["layout"])) for entry in recordings}),
        "dates": sorted(set(started)),
        "spark": sorted({application.spark_version for application in applications}),
        "executor_startup_ms": round(median_startup_ms(applications)),
        **({"campaigns": campaigns} if campaigns else {}),
    }


def _about(
    options: argparse.Namespace, recordings: list[dict[str, Any]], model: SparkModel, command: str
) -> dict[str, Any]:
    return {
        "source": "TPC-H queries recorded on real Spark by this project, see workloads.sources.tpch",
        "measured": "DAGs, numbers of tasks, bytes, durations by wave, and their spread, at the recordings' "
        f"scale factors with {options.most_executors} executor(s)",
        "extrapolated": "other sizes, other numbers of executors, and the cut into tasks, by the model",
        "notes": options.note,
        "recordings": recordings,
        "model": model.to_json(),
        "built_by": command,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status, 1 on an error."""
    options = _parser().parse_args(arguments)
    try:
        _build(options)
    except (WorkloadError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _build(options: argparse.Namespace) -> None:
    recordings = {folder: read_recordings(folder) for folder in options.folders}
    workload, model = build(
        [application for applications in recordings.values() for application in applications],
        sizes_gb=options.sizes,
        split=options.split,
        shuffle_partitions=options.partitions,
        most_executors=options.most_executors,
        parameters=dict(options.set),
        plans=read_plans(options.plans) if options.plans else None,
    )
    provenance = [_provenance(folder, applications) for folder, applications in recordings.items()]
    about = _about(options, provenance, model, " ".join(_command(options)))
    write_workload(options.out, Workload(workload.profiles, None, workload.name, about))
    for parameter in model.parameters():
        print(f"{parameter.name:20} {parameter.value:8g} {parameter.unit:6} {parameter.meaning}")
    print(f"{'contention':20} {dict(model.contention)}")
    print(f"{len(workload.profiles)} profiles, {options.out.stat().st_size / 1000:.0f} kB: {options.out}")


def _command(options: argparse.Namespace) -> Iterator[str]:
    """Yield the parts of the command that determine the result, without paths."""
    yield from ("python -m workloads.sources.tpch_build", *(["DIR"] * len(options.folders)), "--out FILE")
    yield f"--sizes {','.join(f'{size:g}' for size in options.sizes)} --split {options.split}"
    yield f"--partitions {options.partitions} --most-executors {options.most_executors}"
    yield from (f"--set {name}={value:g}" for name, value in options.set)
    if options.plans:
        yield "--plans LOG"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.sources.tpch_build",
        description="Build the embedded TPC-H set from recordings.",
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="folders of recordings")
    parser.add_argument("--out", type=Path, required=True, help="the file to write, .json or .json.gz")
    parser.add_argument(
        "--sizes", type=_sizes, default=[2.0, 5.0, 10.0, 20.0, 50.0, 100.0], help="GB, such as 2,5,10"
    )
    parser.add_argument("--split", default="32m", help="maximum input of a scan task")
    parser.add_argument("--partitions", type=int, default=200, help="tasks of a stage that reads shuffles")
    parser.add_argument(
        "--most-executors", type=int, default=1, help="runs with more executors only give work inflation"
    )
    parser.add_argument(
        "--set", type=_parameter, action="append", default=[], metavar="NAME=VALUE", help="model parameter"
    )
    parser.add_argument("--plans", type=Path, metavar="LOG", help="event log with the plans of the queries")
    parser.add_argument("--note", action="append", default=[], help="comment that is kept in the file")
    return parser


def _sizes(text: str) -> list[float]:
    return [_number(part) for part in text.split(",")]


def _parameter(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, _number(value)


def _number(text: str) -> float:
    if math.isnan(value := number_in(text)):
        raise ValueError(text)
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
