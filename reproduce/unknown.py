"""Jobs that never ran: mean job completion time by the share of them, and by how their task times are estimated.

``typical`` gives all stages the workload's typical task time. ``forest`` predicts the time of each stage from its place
in the DAG and from numbers of tasks, by random forests; no forest has seen another size of the same query. Fair sharing
needs no estimate; exact knowledge is the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import GREY, LEGEND, finish_axes, new_figure
from reproduce.common import Result, batches_and_streams

SHARES = (0.1, 0.3, 0.5, 0.75, 1.0)
ESTIMATORS = ("typical", "forest")
#: Share of unknown jobs, and errors of the others, as the standard deviation of the logarithm of a job's factor.
WITH_ERRORS = {"unknown": 0.3, "job_error": 1.0}
RULE, FAIR = "srpt-tuned", "fair"


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    batch_jobs: int = 20,
    stream_jobs: int = 80,
    interval: float = 5.0,
    seeds: int = 20,
    seed: int = 0,
    workers: int = 1,
) -> Result:
    """Compare estimators on batches and on streams.

    Args:
        workload: Jobs: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Number of executors.
        batch_jobs: Number of jobs in a batch.
        stream_jobs: Number of jobs in a stream.
        interval: Mean seconds between the jobs of a stream.
        seeds: Number of batches and of streams.
        seed: Seed of the first batch and stream.
        workers: Number of processes.
    """
    setting = {"workload": workload, "executors": executors, "seeds": seeds, "seed": seed, "workers": workers}
    arrivals = batches_and_streams(batch_jobs, stream_jobs, interval)
    parts = []
    for name, jobs in arrivals.items():
        exact = decima.compare([FAIR, RULE], **setting, **jobs)
        parts.append(exact.assign(arrivals=name, estimator="exact", share=0.0))
        for estimator in ESTIMATORS:
            for share in SHARES:
                knowledge = {"unknown": share, "estimator": estimator}
                runs = decima.compare([RULE], **setting, **jobs, knowledge=knowledge)
                parts.append(runs.assign(arrivals=name, estimator=estimator, share=share))
    runs = pd.concat(parts)
    tables = {name: table(group) for name, group in runs.groupby("arrivals", sort=False)}
    tables["errors"] = with_errors(setting, arrivals)
    closed = {
        f"gap closed, {name}": f"{gap_closed(group):.0%}"
        for name, group in runs.groupby("arrivals", sort=False)
    }
    return Result(
        tables, {"unknown": plot(runs)}, closed, formats=dict.fromkeys(("vs typical", "vs exact"), "+.1%")
    )


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean JCT for each share and estimator, and its changes, paired by seed, with intervals."""
    jct_s = {
        key: group.set_index("seed")["mean_jct_s"]
        for key, group in runs.groupby(["scheduler", "estimator", "share"])
    }
    exact = jct_s[RULE, "exact", 0.0]
    rows: list[dict[str, Any]] = [
        {"unknown": "", "scheduler": FAIR, "estimates": "", "mean_jct_s": jct_s[FAIR, "exact", 0.0].mean()},
        {"unknown": "0%", "scheduler": RULE, "estimates": "exact", "mean_jct_s": exact.mean()},
    ]
    for share in SHARES:
        for estimator in ESTIMATORS:
            mine = jct_s[RULE, estimator, share]
            row = {
                "unknown": f"{share:.0%}",
                "scheduler": RULE,
                "estimates": estimator,
                "mean_jct_s": mine.mean(),
            }
            row["vs exact"], row["vs exact_ci95"] = decima.paired_change(mine, exact)
            if estimator != "typical":
                change = decima.paired_change(mine, jct_s[RULE, "typical", share])
                row["vs typical"], row["vs typical_ci95"] = change
            rows.append(row)
    return pd.DataFrame(rows)


def with_errors(setting: Mapping[str, Any], arrivals: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Compare estimators if some jobs are unknown and the history of the others is wrong."""
    rows = []
    for name, jobs in arrivals.items():
        typical, forest = (
            decima.compare(
                [RULE], **setting, **jobs, knowledge={**WITH_ERRORS, "estimator": estimator}
            ).set_index("seed")["mean_jct_s"]
            for estimator in ESTIMATORS
        )
        change, ci95 = decima.paired_change(forest, typical)
        rows.append(
            {
                "arrivals": name,
                "typical": typical.mean(),
                "forest": forest.mean(),
                "vs typical": change,
                "vs typical_ci95": ci95,
            }
        )
    return pd.DataFrame(rows)


def gap_closed(runs: pd.DataFrame) -> float:
    """Return the share of the gap between typical and exact task times that the forest closes if no job is known."""
    means = runs[runs["scheduler"] == RULE].groupby(["estimator", "share"])["mean_jct_s"].mean()
    typical, forest = means["typical", 1.0], means["forest", 1.0]
    return float((typical - forest) / (typical - means["exact", 0.0]))


def plot(runs: pd.DataFrame) -> Figure:
    """Draw the mean JCT over the share of unknown jobs, for each estimator."""
    means = runs.groupby(["arrivals", "scheduler", "estimator", "share"])["mean_jct_s"].mean()
    names = runs["arrivals"].unique()
    figure = new_figure(10, 4)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        exact = means[name, RULE, "exact", 0.0]
        for estimator, marker in zip(ESTIMATORS, "os", strict=True):
            jct_s = [exact, *(means[name, RULE, estimator, share] for share in SHARES)]
            axes.plot([0, *SHARES], jct_s, marker=marker, label=f"{RULE}, {estimator}")
        axes.axhline(means[name, FAIR, "exact", 0.0], color=GREY, linestyle="--", label=FAIR)
        axes.axhline(exact, color=GREY, linestyle=":", label=f"{RULE}, exact")
        finish_axes(axes, title=name.capitalize(), xlabel="Share of unknown jobs", ylabel="Mean JCT (s)")
    panels[-1].legend(**LEGEND, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
