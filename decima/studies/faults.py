"""Faults: what schedulers gain against fair sharing where executors are lost, and tasks fail or are slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.metrics import Interval, mean_interval, paired_change
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.show.style import draw_bars, legend_beside, new_figure
from decima.show.tables import interval_text, new_table
from decima.studies.catalogue import FAULTS
from decima.studies.compared import jct_s, tidy
from decima.studies.outcome import FULL, RULE, Outcome
from decima.studies.study import Study
from simulator.cluster.faults import NO_FAULTS, Faults

__all__ = ["faults", "faults_named", "plot_faults"]

#: Scheduler that all are compared with.
FAIR = "fair"
RULES = (
    *("fifo", "sjf-cp", FAIR, "naive-weighted-fair", "weighted-fair:-1", "tuned-weighted-fair"),
    *("profiled-srpt", RULE, "las", "hesrpt", "inelastic-first"),
)
#: Schedulers in the picture.
DRAWN = (FAIR, "weighted-fair:-1", "tuned-weighted-fair", "hesrpt", RULE, FULL)
#: Columns of a table.
COLUMNS = 4
#: A night is the second half of each period; this share of the executors stays.
PERIOD_S, NUM_PERIODS, STAYING = 240, 100, 0.6
#: (arrivals, faults) -> scheduler -> mean JCT in s, its change against fair.
_Cells = Mapping[tuple[str, str], Mapping[str, tuple[Interval, Interval]]]


def faults(study: Study, names: Sequence[str], interval_s: float) -> Outcome:
    """Compare rules and a policy on batches and streams with faults of each kind and with all of them.

    Args:
        study: size and surroundings.
        names: of ``FAULTS``; by default all. ``none`` always takes part.
        interval_s: mean time between the jobs of a stream, s.

    Raises:
        CompareError: a job can never complete.
        WorkloadError: the workload says which jobs arrive when.
    """
    kinds = faults_named(study.executors)
    chosen = [name for name in FAULTS if name == "none" or not names or name in names]
    schedulers = {name: name for name in RULES} | {FULL: f"{LEARNED}:{study.checkpoint or DEFAULT_POLICY}"}
    conditions = {
        f"{arrivals}, {name}": study.conditions(
            num_experiments=10, num_jobs=jobs, interval_s=apart, faults=kinds[name]
        )
        for arrivals, jobs, apart in (
            ("batches", 20, None),
            (f"streams {interval_s:g} s apart", 80, interval_s),
        )
        for name in chosen
    }
    runs = tidy(study.compare({name: (each, schedulers) for name, each in conditions.items()}))
    cells = _cells(runs)
    failed = runs[runs["failed_jobs"] > 0].groupby("condition")["failed_jobs"].sum()
    size = [each.num_jobs for each in conditions.values()]
    count = next(iter(conditions.values())).num_experiments
    return Outcome(
        "faults",
        runs,
        _tables(cells, f"{study.workload.name} jobs, {study.executors} executors, {count} experiments"),
        [
            "Mean JCT of fair in s; of the others its change against fair; paired; ± is half a 95 % confidence "
            "interval (Student's t).",
            f"Batches of {size[0]} jobs; streams of {size[-1]}.",
            *(f"{name}: {text}." for name in chosen if (text := str(replace(kinds[name], capacity=())))),
            f"Nights, in all, too: {STAYING:.0%} of the executors stay in the second half of every {PERIOD_S} s.",
            *(f"{name}: {number} jobs failed, over all schedulers." for name, number in failed.items()),
        ],
        extra={
            "cells": [
                {
                    "arrivals": arrivals,
                    "faults": name,
                    "settings": kinds[name].to_dict(),
                    "mean_jct_s": {scheduler: mean for scheduler, (mean, _) in row.items()},
                    "changes": {scheduler: change for scheduler, (_, change) in row.items()},
                }
                for (arrivals, name), row in cells.items()
            ],
            "seeds": sorted(runs["seed"].unique().tolist()),
        },
        pictures={"faults": partial(plot_faults, cells)},
    )


def faults_named(executors: int) -> dict[str, Faults]:
    """Return the settings of each name of ``FAULTS``.

    Args:
        executors: number of executors of the cluster.
    """
    at_night = round(STAYING * executors)
    nights = tuple(
        (1000.0 * PERIOD_S * (number + 1) / 2, executors if number % 2 else at_night)
        for number in range(2 * NUM_PERIODS)
    )
    mild_ms, heavy_ms, share, slow = 1_800_000.0, 300_000.0, 0.02, (0.05, 4.0)
    return {
        "none": NO_FAULTS,
        "losses-mild": Faults(executor_lifetime_ms=mild_ms),
        "losses-heavy": Faults(executor_lifetime_ms=heavy_ms),
        "lost-output": Faults(executor_lifetime_ms=heavy_ms, lost_output=True),
        "failures": Faults(task_failures=share),
        "stragglers": Faults(stragglers=slow),
        "nights": Faults(capacity=nights),
        "all": Faults(mild_ms, task_failures=share, stragglers=slow, lost_output=True, capacity=nights),
    }


def _cells(runs: pd.DataFrame) -> _Cells:
    found = {}
    for condition in runs["condition"].unique():
        arrivals, _, name = condition.partition(", ")
        by_scheduler = {str(each): jct_s(runs, each, condition) for each in runs["scheduler"].unique()}
        found[arrivals, name] = {
            each: (mean_interval(values), paired_change(values, by_scheduler[FAIR]))
            for each, values in by_scheduler.items()
        }
    return found


def _tables(cells: _Cells, title: str) -> list[Table]:
    tables = []
    for arrivals in dict.fromkeys(arrivals for arrivals, _ in cells):
        rows = {name: row for (each, name), row in cells.items() if each == arrivals}
        names = list(rows)
        for first in range(0, len(names), COLUMNS):
            part = names[first : first + COLUMNS]
            table = new_table(f"{arrivals.capitalize()}: {title}", "Scheduler", *part)
            for scheduler in rows[names[0]]:
                values = (
                    interval_text(mean) if scheduler == FAIR else interval_text(change, "+.1%")
                    for mean, change in (rows[name][scheduler] for name in part)
                )
                table.add_row(scheduler, *values, style="bold" if scheduler == FULL else None)
            tables.append(table)
    return tables


def plot_faults(cells: _Cells) -> Figure:
    """Draw the mean JCT of the stronger schedulers by the faults: a panel for each kind of arrivals."""
    kinds = dict.fromkeys(arrivals for arrivals, _ in cells)
    figure = new_figure(11, 8)
    for axes, arrivals in zip(figure.subplots(len(kinds), 1, squeeze=False).flat, kinds, strict=True):
        groups = {
            name: {scheduler: row[scheduler][0] for scheduler in DRAWN}
            for (each, name), row in cells.items()
            if each == arrivals
        }
        draw_bars(axes, groups, "Mean JCT (s)")
        axes.set_title(arrivals.capitalize())
    legend_beside(figure.axes[0])
    return figure
