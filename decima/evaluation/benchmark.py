"""The benchmark: twelve fixed evaluation settings, and one score for each scheduler.

Any change of settings, seeds or simulation results requires a new version of the benchmark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from decima.evaluation.comparison import Comparison, run_comparisons
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.metrics import Interval, mean_interval
from decima.evaluation.options import choose_schedulers, make_conditions
from simulator.cluster.config import Knowledge
from simulator.cluster.faults import Faults
from workloads.errors import did_you_mean
from workloads.sources.open import EMBEDDED, SYNTHETIC, open_workload
from workloads.sources.workload_file import Workload

__all__ = [
    "SCHEDULERS",
    "SEED",
    "SEQUENCES",
    "SETTINGS",
    "VERSION",
    "BenchmarkSetting",
    "run_benchmark",
    "score",
]

VERSION = 1
#: Seed of the first sequence. Training, validation and tuning use no seed between ``SEED`` and ``SEED + 1_000_000``.
SEED = 6_000_000
#: Number of sequences in each setting.
SEQUENCES = 20
#: Reference scheduler, whose score is 1.
FAIR = "fair"
#: Schedulers that are measured by default.
SCHEDULERS = (
    *("fifo", "sjf-cp", FAIR, "weighted-fair:-1", "tetris", "las", "gittins", "hesrpt", "inelastic-first"),
    *("srpt", "srpt-tuned", "decima"),
)

#: Jobs: published or embedded TPC-H profiles, DAGs of a trace, random DAGs.
Source = Literal["published", "embedded", "trace", "random"]
#: Jobs that the project does not contain -> command-line option that names their file.
OPTIONS: dict[Source, str] = {"published": "--profiles DIR", "trace": "--trace FILE"}
#: Source of jobs -> ``fingerprint`` of its profiles in version 1.
FINGERPRINTS: dict[Source, str] = {
    "embedded": "dba50263c6f5635e",
    "published": "bda3415946cdd100",
    "random": "5609083e9a9d353b",
    "trace": "3d8c311c1279b9f0",
}


@dataclass(frozen=True)
class BenchmarkSetting:
    """An evaluation setting of the benchmark: unique short name, description, and source of the jobs.

    ``options`` are arguments of ``make_conditions``; by default estimates are exact and there are no faults.
    """

    name: str
    meaning: str
    source: Source
    options: Mapping[str, Any] = field(default_factory=dict)

    def conditions(self, workload: Workload, sequences: int = SEQUENCES) -> Conditions:
        """Return cluster, jobs and seeds of the setting."""
        options = {"moving_delay": 2.0, "faults": Faults(), "knowledge": Knowledge(), **self.options}
        return make_conditions(workload=workload, seeds=sequences, seed=SEED, **options)


def _stream(interval: float, jobs: int = 100, **options: Any) -> dict[str, Any]:
    return {"arrivals": "poisson", "interval": interval, "jobs": jobs} | options


SETTINGS: dict[str, BenchmarkSetting] = {
    setting.name: setting
    for setting in (
        BenchmarkSetting("tpch-batch", "jobs that come at once (Decima, section 7.2)", "published"),
        BenchmarkSetting("tpch-stream", "arrivals at a moderate load", "published", _stream(25)),
        BenchmarkSetting("tpch-busy", "high load", "published", _stream(14)),
        BenchmarkSetting("tpch-drift", "arrivals that become twice as frequent", "published",
            _stream(25, drift="1250:2")),
        BenchmarkSetting("tpch-classes", "executors of four sizes (Decima, section 7.3)", "published",
            _stream(4, classes="50x0.25,50x0.5,50x0.75,50x1", memory_demand="uniform")),
        BenchmarkSetting("tpch-estimates", "a stream with wrong estimates and jobs without history", "published",
            _stream(14, knowledge=Knowledge(job_error=1.0, stage_error=0.5, unknown=0.2, estimator="typical"))),
        BenchmarkSetting("embedded-batch", "short jobs that come at once", "embedded"),
        BenchmarkSetting("embedded-stream", "short jobs at a high load", "embedded", _stream(4)),
        BenchmarkSetting("embedded-estimates", "a batch with wrong estimates", "embedded",
            {"knowledge": Knowledge(job_error=1.0, stage_error=0.5)}),
        BenchmarkSetting("embedded-faults", "lost executors, failing tasks and stragglers", "embedded",
            _stream(5, faults=Faults(600_000.0, task_failures=0.01, stragglers=(0.05, 3.0), lost_output=True))),
        BenchmarkSetting("random-stream", "DAGs of any shape", "random", _stream(25, jobs=60)),
        BenchmarkSetting("trace-batch", "DAGs of a production trace", "trace", {"executors": 200}),
    )
}  # fmt: skip


def run_benchmark(
    schedulers: str | Sequence[str] = SCHEDULERS,
    checkpoint: Path | None = None,
    *,
    profiles: Path | None = None,
    trace: Path | None = None,
    settings: Sequence[str] = (),
    seeds: int = SEQUENCES,
    workers: int | str | None = None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Comparison]:
    """Run schedulers, and ``fair``, in the benchmark's settings; scores need ``SEQUENCES`` sequences to be comparable.

    Args:
        schedulers: names of schedulers.
        checkpoint: policy of ``decima``; by default in each setting the shipped policy of the most similar setting.
        profiles: folder of the published TPC-H profiles; without it, their settings are left out.
        trace: workload file with the DAGs of Alibaba's trace; without it, their setting is left out.
        settings: names of settings; by default all whose jobs are given.
        seeds: number of sequences in each setting.
        workers: number of processes; by default one per CPU.
        on_step: progress callback: number of finished work items, number of all.

    Returns:
        Name of the setting -> complete comparison.

    Raises:
        CompareError: unknown setting, setting without jobs, jobs of another version, or scheduler that failed.
        WorkloadError: jobs cannot be read.
    """
    sources = _sources(profiles, trace)
    for name in settings:
        if name not in SETTINGS:
            hint = f"{did_you_mean(name, tuple(SETTINGS))}, expected one of {', '.join(SETTINGS)}"
            raise CompareError(f"no setting is named {name!r}{hint}")
        if SETTINGS[name].source not in sources:
            raise CompareError(f"the setting {name} needs {OPTIONS[SETTINGS[name].source]}")
    chosen = [
        setting
        for setting in SETTINGS.values()
        if (setting.name in settings if settings else setting.source in sources)
    ]
    comparisons = {}
    for setting in chosen:
        conditions = setting.conditions(sources[setting.source], seeds)
        named, policy, _ = choose_schedulers(conditions, schedulers, checkpoint)
        names = tuple(dict.fromkeys((FAIR, *named)))
        comparisons[setting.name] = Comparison(conditions, names, policy=policy, keep=False)
    # All settings on the same workers, so that no worker is idle between settings.
    run_comparisons(list(comparisons.values()), workers, on_step)
    return comparisons


def score(runs: pd.DataFrame, scheduler: str) -> Interval:
    """Return a scheduler's score: the geometric mean over settings of its mean JCT relative to fair sharing.

    ``runs`` are those of all comparisons, with the setting's name in the column ``condition``.

    The interval is Student's t over sequences, with a first-order expansion of the logarithm (delta method). Settings
    share seeds, so deviations are averaged by seed.
    """
    logs, deviations = [], []
    for setting in runs["condition"].unique():
        jct_s = runs[runs["condition"] == setting].pivot_table("mean_jct_s", "seed", "scheduler")
        mine, fair = jct_s[scheduler].to_numpy(), jct_s[FAIR].to_numpy()
        logs.append(np.log(mine.mean() / fair.mean()))
        deviations.append(mine / mine.mean() - fair / fair.mean())
    value = float(np.exp(np.mean(logs)))
    return Interval(value, value * mean_interval(np.mean(deviations, axis=0)).half_width)


def fingerprint(workload: Workload) -> str:
    """Return a hash of all job profiles in order: DAGs, numbers of tasks, durations and resource demands."""
    digest = hashlib.sha256()
    for profile in workload.profiles:
        digest.update(repr((profile.name, profile.parents)).encode())
        for stage in profile.stages:
            durations = stage.durations
            digest.update(repr((stage.num_tasks, stage.cpu, stage.memory, durations.mean_ms)).encode())
            for name in ("levels", "values", "cells"):
                digest.update(np.ascontiguousarray(getattr(durations, name)).tobytes())
    return digest.hexdigest()[:16]


def _sources(profiles: Path | None, trace: Path | None) -> dict[Source, Workload]:
    paths = {"embedded": EMBEDDED, "published": profiles, "random": SYNTHETIC, "trace": trace}
    workloads: dict[Source, Workload] = {}
    for source, expected in FINGERPRINTS.items():
        if (path := paths[source]) is not None:
            workloads[source] = replace(open_workload(path), sequence=None)
            if fingerprint(workloads[source]) != expected:
                raise CompareError(
                    f"{path}: not the {source} jobs of version {VERSION} of the benchmark, see docs/benchmark.md"
                )
    return workloads
