"""Gain over fair sharing with wrong estimates of task durations, and with faults of the cluster.

Both studies compare schedulers on batches and on streams, in several settings with names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.conditions import Conditions
from decima.evaluation.metrics import Interval, mean_interval
from decima.registry import DEFAULT_POLICY, LEARNED
from decima.show.style import GREY, LEGEND, draw_bars, finish_axes, legend_beside, new_figure, styles
from decima.show.tables import interval_text, table_of
from decima.studies.catalogue import ERRORS, FAULTS
from decima.studies.compared import change, jct_s, tidy
from decima.studies.outcome import FULL, RULE, Outcome
from decima.studies.study import Study
from simulator.cluster.config import Knowledge
from simulator.cluster.faults import NO_FAULTS, SPECULATION, Faults

# ---- settings and results of both studies ------------------------------------------------------------------

#: Reference scheduler, which uses no estimates.
FAIR = "fair"
#: (arrivals, setting) -> scheduler -> mean JCT, s, and relative change against ``fair``.
Cells = Mapping[tuple[str, str], Mapping[str, tuple[Interval, Interval]]]


def _compare(
    study: Study, rules: Iterable[str], settings: Mapping[str, Mapping[str, Any]], interval_s: float
) -> tuple[pd.DataFrame, list[Conditions]]:
    """Compare heuristics and a policy on batches and streams in several settings.

    ``settings`` are settings of ``ClusterConfig`` by name. Returns tidy results, with conditions such as ``batches,
    NAME``; and evaluation settings, batches before streams.
    """
    schedulers = {name: name for name in rules} | {FULL: f"{LEARNED}:{study.checkpoint or DEFAULT_POLICY}"}
    streams = f"streams {interval_s:g} s apart"
    conditions = {
        f"{arrivals}, {name}": study.conditions(
            num_experiments=10, num_jobs=jobs, interval_s=apart, **setting
        )
        for arrivals, jobs, apart in (("batches", 20, None), (streams, 80, interval_s))
        for name, setting in settings.items()
    }
    runs = tidy(study.compare({name: (each, schedulers) for name, each in conditions.items()}))
    return runs, list(conditions.values())


def _cells(runs: pd.DataFrame) -> Cells:
    cells = {}
    for condition in runs["condition"].unique():
        arrivals, _, name = condition.partition(", ")
        cells[arrivals, name] = {
            str(each): (mean_interval(jct_s(runs, each, condition)), change(runs, each, FAIR, condition))
            for each in runs["scheduler"].unique()
        }
    return cells


def _tables(
    cells: Cells,
    title: str,
    group: Callable[[int, str], object],
    text: Callable[[str, Interval, Interval], str],
) -> list[Table]:
    """Return tables for each kind of arrivals; rows are schedulers, columns are settings.

    Consecutive settings with equal ``group`` (of index and name) share a table. ``text`` formats a table cell from
    scheduler, mean JCT and change against ``fair``.
    """
    tables = []
    for arrivals in dict.fromkeys(arrivals for arrivals, _ in cells):
        rows = {name: row for (each, name), row in cells.items() if each == arrivals}
        for _, names in groupby(enumerate(rows), lambda item: group(*item)):
            part = [name for _, name in names]
            texts = (
                (scheduler, *(text(scheduler, *rows[name][scheduler]) for name in part))
                for scheduler in rows[part[0]]
            )
            head = f"{arrivals.capitalize()}: {title}"
            tables.append(table_of(head, ("Scheduler", *part), texts, bold={FULL}))
    return tables


def _title(study: Study, conditions: Conditions) -> str:
    jobs = f"{study.workload.name} jobs, {study.executors} executors"
    return f"{jobs}, {conditions.num_experiments} experiments"


# ---- wrong estimates ---------------------------------------------------------------------------------------

EXACT = "exact"
#: Kind of error -> field of ``Knowledge``, label of an axis.
KINDS = {
    "job": ("job_error", "Error per job (sigma)"),
    "stage": ("stage_error", "Error per stage (sigma)"),
    "unknown": ("unknown", "Share of jobs without history"),
}


def estimates(study: Study, errors: Sequence[str], interval_s: float) -> Outcome:
    """Compare schedulers with exact and wrong estimates of task durations."""
    rules = (
        *(FAIR, "weighted-fair:-1", RULE, "gittins", "sjf-estimate"),
        *("srpt-bounce", "seh", "seh:0", "las", "hesrpt", "inelastic-first"),
    )
    names = [name for name in ERRORS if name == EXACT or not errors or name in errors]
    settings = {name: {"knowledge": _knowledge(name)} for name in names}
    runs, conditions = _compare(study, rules, settings, interval_s)
    cells = _cells(runs)
    worst = max(cells, key=lambda cell: cells[cell][RULE][1].mean - cells[cell][RULE][1].half_width)
    return Outcome(
        "estimates",
        runs,
        _tables(
            cells,
            _title(study, conditions[0]),
            lambda _, name: name == EXACT or name.startswith("job"),
            lambda _, mean, against_fair: interval_text(against_fair, "+.1%"),
        ),
        [
            "Change of the mean JCT against fair; paired; ± is half a 95 % confidence interval (Student's t).",
            f"Batches of {conditions[0].num_jobs} jobs; streams of {conditions[-1].num_jobs}. Errors are standard "
            "deviations of logarithms.",
            f"The cell that is worst for {RULE}, given its interval: {', '.join(worst)}: "
            f"{interval_text(cells[worst][RULE][1], '+.1%')}.",
            "seh:0 is SRPT on the remainder of the first estimate, without any correction.",
        ],
        extra={
            "gains": [
                {"arrivals": arrivals, "errors": name, "changes": {each: row[each][1] for each in row}}
                for (arrivals, name), row in cells.items()
            ],
            "seeds": sorted(runs["seed"].unique().tolist()),
        },
        pictures={"estimates": partial(plot_estimates, runs)},
    )


def _knowledge(name: str) -> Knowledge:
    kind, _, size = name.partition("-")
    return Knowledge(**{KINDS[kind][0]: float(size)}) if size else Knowledge()


def plot_estimates(runs: pd.DataFrame) -> Figure:
    """Draw the mean JCT over the size of errors; rows are kinds of arrivals, columns are kinds of errors.

    The dotted line is ``srpt`` with exact estimates.
    """
    means = runs.groupby(["condition", "scheduler"], sort=False)["mean_jct_s"].mean()
    kinds = dict.fromkeys(condition.partition(", ")[0] for condition in means.index.unique(0))
    figure, looks = new_figure(13, 9), styles(means.index.unique(1))
    for look, marker in zip(looks.values(), itertools.cycle("os^vDPX*<>p"), strict=False):
        look |= {"marker": marker, "markersize": 5}
    panels = figure.subplots(len(kinds), len(KINDS), squeeze=False, sharey="row")
    for row, arrivals in zip(panels, kinds, strict=True):
        for axes, (kind, (_, label)) in zip(row, KINDS.items(), strict=True):
            names = {
                float(name.partition("-")[2] or 0): f"{arrivals}, {name}"
                for name in ERRORS
                if name.startswith((EXACT, kind)) and f"{arrivals}, {name}" in means.index.unique(0)
            }
            for scheduler, look in looks.items():
                values = [means[name, scheduler] for name in names.values()]
                axes.plot(list(names), values, label=scheduler, **look)
            exact = means[f"{arrivals}, {EXACT}", RULE]
            axes.axhline(exact, color=GREY, linestyle=":", linewidth=0.8, label=f"{RULE}, exact")
            finish_axes(axes, title=arrivals.capitalize(), xlabel=label, ylabel="Mean JCT (s)")
    panels[0][-1].legend(**LEGEND, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


# ---- faults ------------------------------------------------------------------------------------------------

#: Schedulers in the picture of faults.
DRAWN = (FAIR, "weighted-fair:-1", "tuned-weighted-fair", "hesrpt", RULE, FULL)
#: Number of settings in a table.
COLUMNS = 4
#: Period of days, s; number of periods; and share of the executors that stay at night, the second half of a period.
PERIOD_S, NUM_PERIODS, STAYING = 240, 100, 0.6


def faults(study: Study, names: Sequence[str], interval_s: float) -> Outcome:
    """Compare schedulers without faults, with each kind of faults, and with all of them.

    Raises:
        CompareError: a job can never complete.
    """
    rules = (
        *("fifo", "sjf-cp", FAIR, "naive-weighted-fair", "weighted-fair:-1", "tuned-weighted-fair"),
        *(RULE, "las", "hesrpt", "inelastic-first"),
    )
    named = faults_named(study.executors)
    kinds = {name: named[name] for name in FAULTS if name == "none" or not names or name in names}
    settings = {name: {"faults": kind} for name, kind in kinds.items()}
    runs, conditions = _compare(study, rules, settings, interval_s)
    cells = _cells(runs)
    failed = runs[runs["failed_jobs"] > 0].groupby("condition")["failed_jobs"].sum()
    return Outcome(
        "faults",
        runs,
        _tables(
            cells,
            _title(study, conditions[0]),
            lambda place, _: place // COLUMNS,
            lambda scheduler, mean, against_fair: (
                interval_text(mean) if scheduler == FAIR else interval_text(against_fair, "+.1%")
            ),
        ),
        [
            "Mean JCT of fair in s; of the others its change against fair; paired; ± is half a 95 % confidence "
            "interval (Student's t).",
            f"Batches of {conditions[0].num_jobs} jobs; streams of {conditions[-1].num_jobs}.",
            *(
                f"{name}: {text}."
                for name, kind in kinds.items()
                if (text := str(replace(kind, capacity=())))
            ),
            f"Nights, in all, too: {STAYING:.0%} of the executors stay in the second half of every {PERIOD_S} s.",
            *(f"{name}: {number} jobs failed, over all schedulers." for name, number in failed.items()),
        ],
        extra={
            "cells": [
                {
                    "arrivals": arrivals,
                    "faults": name,
                    "settings": kinds[name].to_dict(),
                    "mean_jct_s": {each: row[each][0] for each in row},
                    "changes": {each: row[each][1] for each in row},
                }
                for (arrivals, name), row in cells.items()
            ],
            "seeds": sorted(runs["seed"].unique().tolist()),
        },
        pictures={"faults": partial(plot_faults, cells)},
    )


def faults_named(executors: int) -> dict[str, Faults]:
    """Return the faults for each name in ``FAULTS``, on a cluster with this number of executors."""
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
        "speculation": Faults(stragglers=slow, speculation=SPECULATION),
        "nights": Faults(capacity=nights),
        "all": Faults(mild_ms, task_failures=share, stragglers=slow, lost_output=True, capacity=nights),
    }


def plot_faults(cells: Cells) -> Figure:
    """Draw mean JCTs of the schedulers ``DRAWN`` with each kind of faults, one panel per kind of arrivals."""
    kinds = dict.fromkeys(arrivals for arrivals, _ in cells)
    figure = new_figure(11, 8)
    for axes, arrivals in zip(figure.subplots(len(kinds), 1, squeeze=False).flat, kinds, strict=True):
        groups = {
            name.replace("-", "\n"): {scheduler: row[scheduler][0] for scheduler in DRAWN}
            for (each, name), row in cells.items()
            if each == arrivals
        }
        draw_bars(axes, groups, "Mean JCT (s)")
        axes.set_title(arrivals.capitalize())
    legend_beside(figure.axes[0])
    return figure
