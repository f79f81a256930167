"""Jobs that never ran, with plans: errors of predictions and mean JCT with and without operators and bytes of stages.

The forest predicts the times of stages from DAGs and numbers of tasks (``DAG``), and also from the operators of the
stages and the bytes that they read from storage (``DAG and plan``). No forest has seen the template of a job: another
size of the same query, or the same DAG with the same numbers of tasks. All jobs are unknown, except in the last table:
there 30 % are, and the history of the others has errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import decima
from reproduce.common import Result, batches_and_streams
from reproduce.unknown import with_errors
from simulator.cluster.estimates import dag_only
from simulator.cluster.predictor import predictor_of, template_keys, templates
from workloads import Workload

RULE, FAIR = "srpt-tuned", "fair"
#: Numbers of templates to which forests are fitted, and number of times that templates are drawn.
FEW, DRAWS = (5, 10, 20), 5
FORMATS = {
    "error of work": ".2f",
    "error of stages": ".2f",
    "within 50 %": ".0%",
    "within 90 %": ".0%",
    "vs typical": "+.1%",
}


def run(
    *,
    workload: str = "tpch",
    others: tuple[str, ...] = ("recordings/kinds/jobs.json.gz",),
    trace: str = "",
    executors: int = 50,
    batch_jobs: int = 20,
    stream_jobs: int = 80,
    interval: float = 5.0,
    trace_executors: int = 20,
    window: float = 600.0,
    windows: int = 8,
    seeds: int = 20,
    seed: int = 0,
    workers: int = 1,
) -> Result:
    """Measure errors of predictions, and compare estimators on batches, on streams and on windows of a trace.

    Args:
        workload: Jobs with operators and bytes: tpch or a workload file.
        others: Further workloads whose errors are measured.
        trace: Workload file of a trace, with arrivals; none by default.
        executors: Number of executors.
        batch_jobs: Number of jobs in a batch.
        stream_jobs: Number of jobs in a stream.
        interval: Mean seconds between the jobs of a stream.
        trace_executors: Number of executors for the trace.
        window: Seconds of the trace in a window.
        windows: Number of windows of the trace.
        seeds: Number of batches and of streams.
        seed: Seed of the first batch and stream.
        workers: Number of processes.
    """
    jobs = decima.open_workload(workload)
    named = {workload: jobs, **{name: decima.open_workload(name) for name in others}}
    common = {"seeds": seeds, "seed": seed, "workers": workers}
    arrivals = batches_and_streams(batch_jobs, stream_jobs, interval)
    simulated = {name: {"executors": executors, **setting} for name, setting in arrivals.items()}
    tables = {name: compare_inputs(jobs, {**common, **settings}) for name, settings in simulated.items()}
    if trace:
        replayed = named[trace] = decima.open_workload(trace)
        settings = {"executors": trace_executors, "window": window, "seeds": windows, "semantics": "trace"}
        tables["trace"] = compare_inputs(replayed, {**settings, "workers": workers})
    tables["history with errors"] = with_errors({**common, "workload": workload}, simulated)
    rows = [row for name, jobs in named.items() for row in errors(name, jobs)]
    of_few = [row for name, jobs in named.items() for row in few_templates(name, jobs)]
    return Result(
        {"errors": pd.DataFrame(rows), "few templates": pd.DataFrame(of_few), **tables}, formats=FORMATS
    )


def without_plans(workload: Workload) -> Workload:
    """Return a workload whose stages have neither operators nor bytes."""
    of_profile = {profile: dag_only(profile) for profile in workload.profiles}
    sequence = workload.sequence
    if sequence is not None:
        sequence = replace(sequence, profiles=tuple(of_profile[profile] for profile in sequence.profiles))
    return replace(workload, profiles=tuple(of_profile.values()), sequence=sequence)


def inputs_of(workload: Workload) -> dict[str, Workload]:
    """Return a workload by what a forest uses of its jobs; one entry if there are only DAGs."""
    stripped = without_plans(workload)
    if stripped.profiles == workload.profiles:
        return {"DAG": workload}
    return {"DAG": stripped, "DAG and plan": workload}


def errors(name: str, workload: Workload) -> Sequence[Mapping[str, Any]]:
    """Return a row for each input of the forest: errors for jobs of templates that it has not seen."""
    rows = []
    for inputs, jobs in inputs_of(workload).items():
        predictor = predictor_of(jobs.profiles)
        if predictor is not None:
            accuracy = predictor.fits[0].accuracy
            row = {
                "workload": name.rpartition("/")[2],
                "inputs": inputs,
                "templates": predictor.templates,
                "error of work": accuracy.work_sd,
                "error of stages": accuracy.stage_sd,
                "within 50 %": accuracy.within_50,
                "within 90 %": accuracy.within_90,
            }
            rows.append(row)
    return rows


def few_templates(name: str, workload: Workload) -> Sequence[Mapping[str, Any]]:
    """Return shares of jobs in their intervals if forests are fitted to few templates, drawn several times."""
    rows = []
    for inputs, jobs in inputs_of(workload).items():
        template = np.array(templates([template_keys(profile) for profile in jobs.profiles]))
        for count in FEW:
            within = []
            for seed in range(DRAWS):
                drawn = np.random.default_rng(seed).permutation(template.max() + 1)[:count]
                chosen = np.flatnonzero(np.isin(template, drawn)).tolist()
                predictor = predictor_of(tuple(jobs.profiles[job] for job in chosen))
                if predictor is not None:
                    accuracy = predictor.fits[0].accuracy
                    within.append((accuracy.within_50, accuracy.within_90))
            within_50, within_90 = np.mean(within, axis=0).tolist()
            row = {"workload": name.rpartition("/")[2], "inputs": inputs, "templates": count}
            rows.append({**row, "within 50 %": within_50, "within 90 %": within_90})
    return rows


def compare_inputs(workload: Workload, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Return the mean JCT for each input of the forest, and its change, paired by seed, against typical times."""
    exact = decima.compare([FAIR, RULE], workload=workload, **settings)
    jct_s = {name: group.set_index("seed")["mean_jct_s"] for name, group in exact.groupby("scheduler")}

    def unknown(jobs: Workload, estimator: str) -> pd.Series[float]:
        knowledge = {"unknown": 1.0, "estimator": estimator}
        return decima.compare([RULE], workload=jobs, **settings, knowledge=knowledge).set_index("seed")[
            "mean_jct_s"
        ]

    typical = unknown(workload, "typical")
    means = {
        (FAIR, ""): jct_s[FAIR],
        (RULE, "exact"): jct_s[RULE],
        (RULE, "typical"): typical,
        **{
            (RULE, f"forest: {inputs}"): unknown(jobs, "forest")
            for inputs, jobs in inputs_of(workload).items()
        },
    }
    rows = []
    for (scheduler, estimates), mean_jct_s in means.items():
        row: dict[str, Any] = {
            "scheduler": scheduler,
            "estimates": estimates,
            "mean_jct_s": mean_jct_s.mean(),
        }
        if estimates != "typical":
            row["vs typical"], row["vs typical_ci95"] = decima.paired_change(mean_jct_s, typical)
        rows.append(row)
    return pd.DataFrame(rows)
