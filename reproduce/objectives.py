"""Objectives other than the mean job completion time: missed deadlines, the weighted mean, and the 99th percentile.

Each objective is measured for its rules, for a policy trained for the mean, and for the policy trained for it, if one
ships. Deadlines are 2 to 4 times a job's time alone after its arrival; weights are 1, 4 or 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import decima
from decima.show.style import finish_axes, label_points, new_figure, styles
from reproduce.common import Result


class MeasuredObjective(NamedTuple):
    """An objective: column of ``decima.compare``, its schedulers, and the attributes of the jobs."""

    column: str
    schedulers: tuple[str, ...]
    attributes: Mapping[str, Any] = MappingProxyType({})


RULE, TUNED = "srpt", "srpt-tuned"
#: Rules with searched weights, which are compared with the best of the others.
SEARCHED = (TUNED, "atc-misses", "atc-weighted")
OBJECTIVES = {
    "misses": MeasuredObjective(
        "deadline_misses",
        ("fair", RULE, "edf", "least-slack", "atc", TUNED, "atc-misses"),
        {"deadlines": (2.0, 4.0)},
    ),
    "weighted": MeasuredObjective(
        "weighted_jct_s",
        ("fair", RULE, "weighted-srpt", "atc", TUNED, "atc-weighted"),
        {"weights": (1.0, 4.0, 16.0)},
    ),
    "p99": MeasuredObjective(
        "p99_jct_s",
        (
            "fair",
            RULE,
            "fifo",
            "las",
            "hesrpt",
            *("gamma-boost:0.85", "gamma-boost", "gamma-boost:0.5"),
            TUNED,
        ),
    ),
}
#: Objectives in the picture, and schedulers that are left out of it, since they are far from all others.
DRAWN, LEFT_OUT = {"misses": "Misses (%)", "p99": "p99 JCT (s)"}, ("fifo", "las")


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    jobs: int = 100,
    load: tuple[float, ...] = (0.7, 0.85),
    seeds: int = 20,
    seed: int = 0,
    workers: int = 1,
) -> Result:
    """Compare schedulers by each objective at each load, and with the best rule for it.

    Args:
        workload: Jobs: tpch, synthetic, a workload file, or the folder of the published TPC-H profiles.
        executors: Number of executors.
        jobs: Number of jobs in a stream.
        load: Work that arrives, as a share of the executors' time.
        seeds: Number of streams.
        seed: Seed of the first stream.
        workers: Number of processes.
    """
    work_s = np.mean([profile.work_ms for profile in decima.open_workload(workload).profiles]) / 1000
    setting = {"workload": workload, "executors": executors, "jobs": jobs, "arrivals": "poisson"}
    setting |= {"seeds": seeds, "seed": seed, "workers": workers}
    tables, values, drawn = {}, {}, {}
    for share in load:
        for name, objective in OBJECTIVES.items():
            interval = work_s / (share * executors)
            runs = decima.compare(objective.schedulers, interval=interval, **objective.attributes, **setting)
            column = objective.column
            rules = [scheduler for scheduler in objective.schedulers if scheduler not in SEARCHED]
            best = runs.groupby("scheduler")[column].mean()[rules].idxmin()
            table = decima.summary_table(runs, against=best, metrics=[column])
            other_metrics = [metric for metric in ("mean_jct_s", "p99_jct_s") if metric != column]
            tables[f"{name} {share:g}"] = drawn[name] = table.merge(
                decima.summary_table(runs, metrics=other_metrics), on="scheduler"
            )
            values[f"best rule for {name} {share:g}"] = best
    return Result(tables, {"objectives": plot(drawn)}, values)


def plot(tables: dict[str, pd.DataFrame]) -> Figure:
    """Draw objectives over the mean JCT at the highest load; schedulers with equal results share a point."""
    figure = new_figure(11, 4.5)
    labels = []
    for axes, (name, ylabel) in zip(figure.subplots(1, len(DRAWN)), DRAWN.items(), strict=True):
        table = tables[name][~tables[name]["scheduler"].isin(LEFT_OUT)]
        scale = 100 if ylabel.endswith("(%)") else 1
        points = table.assign(value=scale * table[OBJECTIVES[name].column]).groupby(["mean_jct_s", "value"])
        names = points["scheduler"].agg(list)
        looks = styles(table["scheduler"])
        for point, schedulers in names.items():
            axes.plot(*point, marker="o", **{**looks[schedulers[0]], "linestyle": ""})
        finish_axes(axes, xlabel="Mean JCT (s)", ylabel=ylabel)
        axes.margins(0.1)
        labels.append((axes, names.str.join(", ").to_dict()))
    for axes, texts in labels:
        label_points(axes, texts)
    return figure
