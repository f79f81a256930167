"""The benchmark: twelve fixed evaluation settings, and one score for each scheduler.

Any change of settings, seeds or simulation results requires a new version of the benchmark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from decima.evaluation.comparison import Comparison, run_comparisons
from decima.evaluation.conditions import CompareError, Conditions
from decima.evaluation.metrics import Interval, mean_interval
from decima.evaluation.options import choose_schedulers, make_conditions
from decima.show.style import GREY, draw_dots, finish_axes, new_axes
from decima.show.tables import table_of
from decima.studies.catalogue import FOUR_SIZES
from decima.studies.compared import change, gains_table, jct_s, tidy
from decima.studies.outcome import FULL, Outcome, Setup
from decima.workers.pool import available_cpus
from simulator.cluster.config import Knowledge
from simulator.cluster.faults import Faults
from workloads.errors import did_you_mean
from workloads.sources.open import EMBEDDED, SYNTHETIC, open_workload
from workloads.sources.workload_file import Workload

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
    *("srpt", FULL),
)

#: Ticks of the logarithmic axis of scores.
TICKS = (0.5, 0.7, 1, 2, 5, 10)
#: Number of schedulers in the table of settings: those with the best scores.
SHOWN = 4

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
class Setting:
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


SETTINGS: dict[str, Setting] = {
    each.name: each
    for each in (
        Setting("tpch-batch", "jobs that come at once (Decima, section 7.2)", "published"),
        Setting("tpch-stream", "arrivals at a moderate load", "published", _stream(25)),
        Setting("tpch-busy", "high load", "published", _stream(14)),
        Setting("tpch-drift", "arrivals that become twice as frequent", "published", _stream(25, drift="1250:2")),
        Setting("tpch-classes", "executors of four sizes (Decima, section 7.3)", "published",
            _stream(4, classes=FOUR_SIZES, memory_demand="uniform")),
        Setting("tpch-estimates", "a stream with wrong estimates and jobs without history", "published",
            _stream(14, knowledge=Knowledge(job_error=1.0, stage_error=0.5, unknown=0.2))),
        Setting("embedded-batch", "short jobs that come at once", "embedded"),
        Setting("embedded-stream", "short jobs at a high load", "embedded", _stream(4)),
        Setting("embedded-estimates", "a batch with wrong estimates", "embedded",
            {"knowledge": Knowledge(job_error=1.0, stage_error=0.5)}),
        Setting("embedded-faults", "lost executors, failing tasks and stragglers", "embedded",
            _stream(5, faults=Faults(600_000.0, task_failures=0.01, stragglers=(0.05, 3.0), lost_output=True))),
        Setting("random-stream", "DAGs of any shape", "random", _stream(25, jobs=60)),
        Setting("trace-batch", "DAGs of a production trace", "trace", {"executors": 200}),
    )
}  # fmt: skip


def benchmark(
    setup: Setup,
    scheduler_names: str | None,
    checkpoint: Path | None,
    profiles: Path | None,
    trace: Path | None,
    settings: Sequence[str],
    seeds: int = SEQUENCES,
    workers: int | str | None = None,
) -> Outcome:
    """Run schedulers, and ``fair``, in the benchmark's settings; scores need ``SEQUENCES`` sequences to be comparable.

    Raises:
        CompareError: unknown setting, setting without jobs, jobs of another version, or scheduler that failed.
        WorkloadError: jobs cannot be read.
    """
    sources = _sources(profiles, trace)
    for name in settings:
        if name not in SETTINGS:
            known = f"{did_you_mean(name, tuple(SETTINGS))}, expected one of {', '.join(SETTINGS)}"
            raise CompareError(f"no setting is named {name!r}{known}")
        if SETTINGS[name].source not in sources:
            raise CompareError(f"the setting {name} needs {OPTIONS[SETTINGS[name].source]}")
    names = settings or [name for name, each in SETTINGS.items() if each.source in sources]
    chosen = [each for name, each in SETTINGS.items() if name in names]
    left_out = [name for name in SETTINGS if name not in names]
    comparisons = {}
    for setting in chosen:
        conditions = setting.conditions(sources[setting.source], seeds)
        named, policy, _ = choose_schedulers(conditions, scheduler_names or SCHEDULERS, checkpoint)
        schedulers = tuple(dict.fromkeys((FAIR, *named)))
        comparisons[setting.name] = Comparison(conditions, schedulers, policy=policy, keep=False)
    # All settings on the same workers, so that no worker is idle between settings.
    tell = partial(setup.tell, "running the benchmark")
    run_comparisons(list(comparisons.values()), workers or available_cpus(), tell)
    conditions_of = {name: each.conditions for name, each in comparisons.items()}
    return outcome(tidy(comparisons), conditions_of, left_out)


def outcome(
    runs: pd.DataFrame, conditions: Mapping[str, Conditions] | None = None, left_out: Sequence[str] = ()
) -> Outcome:
    """Return scores, tables and JSON of the benchmark from tidy results; ``condition`` is the name of the setting."""
    schedulers, settings = runs["scheduler"].unique(), runs["condition"].unique().tolist()
    scores = {name: score(runs, name) for name in schedulers}
    order = sorted(schedulers, key=lambda name: scores[name].mean)
    changes = {each: {name: change(runs, name, FAIR, each) for name in order} for each in settings}
    best = [name for name in order if name != FAIR][:SHOWN]
    shown = {each: {name: row[name] for name in best} for each, row in changes.items()}
    whole, ratios = len(settings) == len(SETTINGS), _ratios(runs)
    rows = ((name, scores[name], f"{ratios[name].idxmax()} ({ratios[name].max():.2f})") for name in order)
    headings = ("Scheduler", "Score", "Slowest setting")
    table = table_of(f"Score over {len(ratios)} settings", headings, rows, ".3f", bold={FULL})
    notes = [
        f"Benchmark version {VERSION}, {len(settings)} of {len(SETTINGS)} settings, "
        f"{runs['seed'].nunique()} sequences each.",
        "Score: geometric mean over settings of the mean JCT relative to fair sharing; lower is better.",
        "In each setting: change of the mean JCT against fair; paired; ± is half a 95 % confidence interval. "
        f"Shown are the {SHOWN} best scores; --json FILE writes all.",
    ]
    if not whole:
        notes.append(
            f"Left out: {', '.join(left_out)}. A score of fewer settings is comparable to none of another set."
        )
    return Outcome(
        "benchmark",
        runs,
        [table, gains_table("Mean JCT against fair", "Setting", shown)],
        notes,
        extra={
            "version": VERSION,
            "complete": whole and runs["seed"].nunique() == SEQUENCES,
            "scores": [
                {"scheduler": name, "score": scores[name].mean, "score_ci95": scores[name].half_width}
                for name in order
            ],
            "settings": [
                {"name": name, "meaning": SETTINGS[name].meaning}
                | ({"conditions": conditions[name].to_dict()} if conditions else {})
                | {"changes": {each: interval._asdict() for each, interval in changes[name].items()}}
                for name in settings
            ],
            "left_out": list(left_out),
        },
        pictures={"benchmark": partial(plot_scores, runs)},
    )


def score(runs: pd.DataFrame, scheduler: str) -> Interval:
    """Return a scheduler's score: the geometric mean over settings of its mean JCT relative to fair sharing.

    The interval is Student's t over sequences, with a first-order expansion of the logarithm (delta method). Settings
    share seeds, so deviations are averaged by seed.
    """
    logs, deviations = [], []
    for setting in runs["condition"].unique():
        mine, fair = jct_s(runs, scheduler, setting), jct_s(runs, FAIR, setting)
        logs.append(np.log(mine.mean() / fair.mean()))
        deviations.append(mine.to_numpy() / mine.mean() - fair.to_numpy() / fair.mean())
    value = float(np.exp(np.mean(logs)))
    return Interval(value, value * mean_interval(np.mean(deviations, axis=0)).half_width)


def plot_scores(runs: pd.DataFrame) -> Figure:
    """Draw scores with intervals, and ticks at the relative mean JCT in each setting."""
    scores = {name: score(runs, name) for name in runs["scheduler"].unique()}
    scores = dict(sorted(scores.items(), key=lambda item: item[1].mean))
    ratios = _ratios(runs)
    figure, axes = new_axes(7, 0.35 * len(scores) + 1.5)
    for place, name in enumerate(reversed(scores)):
        axes.plot(ratios[name], np.full(len(ratios), place), "|", color=GREY)
    draw_dots(axes, scores)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, map(str, TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    finish_axes(axes, xlabel="Mean JCT relative to fair; grey: each setting")
    return figure


def fingerprint(workload: Workload) -> str:
    """Return a hash of all job profiles in order: DAGs, numbers of tasks, durations and resource demands."""
    found = hashlib.sha256()
    for profile in workload.profiles:
        found.update(repr((profile.name, profile.parents)).encode())
        for stage in profile.stages:
            durations = stage.durations
            found.update(repr((stage.num_tasks, stage.cpu, stage.memory, durations.mean_ms)).encode())
            for name in ("levels", "values", "cells"):
                found.update(np.ascontiguousarray(getattr(durations, name)).tobytes())
    return found.hexdigest()[:16]


def _sources(profiles: Path | None, trace: Path | None) -> dict[Source, Workload]:
    paths = {"embedded": EMBEDDED, "published": profiles, "random": SYNTHETIC, "trace": trace}
    found: dict[Source, Workload] = {}
    for source, expected in FINGERPRINTS.items():
        if (path := paths[source]) is not None:
            found[source] = replace(open_workload(path), sequence=None)
            if fingerprint(found[source]) != expected:
                raise CompareError(
                    f"{path}: not the {source} jobs of version {VERSION} of the benchmark, see docs/benchmark.md"
                )
    return found


def _ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean JCTs relative to fair sharing; rows are settings, columns are schedulers."""
    means = runs.pivot_table("mean_jct_s", "condition", "scheduler", sort=False)
    return means.div(means[FAIR], axis=0)
