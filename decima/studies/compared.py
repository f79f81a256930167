"""Studies that compare schedulers on a cluster: their comparisons as tidy rows, table, notes, JSON and bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.comparison import Comparison
from decima.evaluation.intervals import Interval, mean_interval
from decima.evaluation.tuning import HINDSIGHT
from decima.policy.files import policy_path, read_about
from decima.registry import policy_named
from decima.show.style import draw_bars, legend_beside, new_axes
from decima.show.tables import interval_text, new_table
from decima.studies.outcome import FULL, UNKNOWN, Claim, Outcome, paired_change

__all__ = ["compared", "jct_s", "plot_bars", "study_table", "summary", "tidy"]

#: (condition, scheduler) -> the paper's figure as a text; the condition is empty if there is only one.
Paper = Mapping[tuple[str, str], str]


def tidy(comparisons: Mapping[str, Comparison]) -> pd.DataFrame:
    """Return the results of comparisons by condition as one table.

    Returns:
        A row for each condition, scheduler and seed; columns ``condition``, and those of ``Comparison.results``.
    """
    tables = [each.results().assign(condition=name) for name, each in comparisons.items()]
    whole = pd.concat(tables, ignore_index=True)
    return whole[["condition", *whole.columns.drop("condition")]]


def jct_s(runs: pd.DataFrame, scheduler: str, condition: str = "") -> pd.Series[float]:
    """Return the mean JCT of a scheduler on each sequence, s, indexed by seed."""
    chosen = runs[(runs["scheduler"] == scheduler) & (runs["condition"] == condition)]
    return chosen.set_index("seed")["mean_jct_s"]


def summary(runs: pd.DataFrame, reference: str = HINDSIGHT) -> dict[tuple[str, str], dict[str, float]]:
    """Average tidy results over the seeds, seconds.

    Args:
        runs: see ``tidy``.
        reference: scheduler to compare with.

    Returns:
        (condition, scheduler) -> ``mean_jct_s``, ``makespan_s`` with half of their 95 % confidence intervals
        ``mean_jct_ci95_s`` and ``makespan_ci95_s`` (Student's t; NaN with one seed), ``p95_jct_s``, ``utilisation``,
        ``load``, ``fragmentation``, and ``change``, the relative difference of the mean JCT to that of ``reference``
        in the same condition, with ``change_ci95`` of the paired differences; NaN if the reference did not run.
    """
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for key, mine in runs.groupby(["condition", "scheduler"], sort=False):
        condition, name = map(str, key)
        row = rows[condition, name] = {}
        for column in ("mean_jct_s", "makespan_s"):
            row[column], row[f"{column.removesuffix('_s')}_ci95_s"] = mean_interval(mine[column])
        for column in ("p95_jct_s", "utilisation", "load", "fragmentation"):
            row[column] = float(mine[column].mean())
        base = jct_s(runs, reference, condition)
        unknown = (math.nan, math.nan)
        row["change"], row["change_ci95"] = paired_change(mine["mean_jct_s"], base) if len(base) else unknown
    return rows


def compared(
    name: str,
    title: str,
    comparisons: Mapping[str, Comparison],
    *,
    runs: pd.DataFrame | None = None,
    reference: str = HINDSIGHT,
    makespan: bool = False,
    fragmentation: bool = False,
    paper: Paper | None = None,
    notes: Sequence[str] = (),
    claims: Sequence[Claim] = (),
    tables: Sequence[Table] = (),
    curves: Mapping[str, Sequence[Mapping[str, float]]] | None = None,
    extra: Mapping[str, Any] | None = None,
    pictures: Mapping[str, Callable[[], Figure]] | None = None,
) -> Outcome:
    """Return the outcome of a study that compared schedulers.

    Args:
        name: the study's.
        title: of the table.
        comparisons: condition -> comparison; the condition is empty if there is only one.
        runs: their results, if the caller has them already; see ``tidy``.
        reference: scheduler that all are compared with.
        makespan: whether the table has a column of makespans.
        fragmentation: whether it has a column of the memory of busy executors that no task needs.
        paper: the paper's figures.
        notes, claims, tables: of the study, besides the general ones.
        curves: variant -> rows of its ``metrics.jsonl``, if the study is about learning.
        extra: further entries of the JSON.
        pictures: name of the file -> function that draws it; by default bars.
    """
    runs, paper = tidy(comparisons) if runs is None else runs, paper or {}
    means, policies = summary(runs, reference), _policies(comparisons)
    seeds = next(iter(comparisons.values())).conditions.num_experiments
    table = study_table(f"{title}, {seeds} experiments", means, reference, makespan, fragmentation, paper)
    return Outcome(
        name,
        runs,
        [table, *tables],
        [*_general_notes(reference, fragmentation), *notes, *_training_notes(policies)],
        claims,
        {
            "title": title,
            "conditions": [
                _entry(condition, each, runs, means, paper) for condition, each in comparisons.items()
            ],
            "policies": policies,
            "learning_curves": {variant: list(rows) for variant, rows in (curves or {}).items()},
            "notes": list(notes),
            **(extra or {}),
        },
        pictures or {name: partial(plot_bars, means)},
    )


def study_table(
    title: str,
    means: Mapping[tuple[str, str], Mapping[str, float]],
    reference: str = HINDSIGHT,
    makespan: bool = False,
    fragmentation: bool = False,
    paper: Paper | None = None,
) -> Table:
    """Return the table of means in seconds beside the paper's figures; see ``summary`` and ``compared``."""
    several = len({condition for condition, _ in means}) > 1
    names = [*["Condition"] * several, "Scheduler"]
    versus = "vs tuned" if reference == HINDSIGHT else "vs reference"
    numbers = [
        "Mean JCT",
        "p95 JCT",
        *["Makespan"] * makespan,
        "Utilised",
        *["Unused"] * fragmentation,
        versus,
    ]
    table = new_table(title, *names, *numbers, names=len(names))
    table.add_column("Paper", justify="right")
    above: str | None = None
    for (condition, scheduler), row in means.items():
        if several and above not in (None, condition):
            table.add_section()
        change = interval_text(Interval(row["change"], row["change_ci95"]), "+.1%", unknown="")
        cells = [*[condition if condition != above else ""] * several, scheduler]
        cells += [_interval(row, "mean_jct"), _number(row["p95_jct_s"], ".1f")]
        cells += [_interval(row, "makespan")] * makespan
        cells += [_number(row["utilisation"], ".1%"), *[_number(row["fragmentation"], ".1%")] * fragmentation]
        cells += [
            "" if scheduler == reference else change,
            (paper or {}).get((condition, scheduler), UNKNOWN),
        ]
        table.add_row(*cells, style="bold" if scheduler == FULL else None)
        above = condition
    return table


def _interval(row: Mapping[str, float], name: str) -> str:
    return interval_text(Interval(row[f"{name}_s"], row[f"{name}_ci95_s"]), unknown=UNKNOWN)


def _number(value: float, form: str) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:{form}}"


def _general_notes(reference: str, fragmentation: bool) -> list[str]:
    return [
        "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
        "vs tuned: mean JCT against tuned-weighted-fair, which knows the best alpha of each experiment; paired."
        if reference == HINDSIGHT
        else f"vs reference: mean JCT against {reference}; paired.",
        *["Unused: of the memory of busy executors, what their tasks do not need (fragmentation)."]
        * fragmentation,
        f"Paper: what Decima (SIGCOMM 2019) reports, on its own cluster and profiles; {UNKNOWN} if it gives no figure.",
    ]


def _training_notes(policies: Mapping[str, Mapping[str, Any]]) -> list[str]:
    notes = []
    teachers = [(about.get("config") or {}).get("behaviour_cloning") for about in policies.values()]
    if names := dict.fromkeys(teacher["scheduler"] for teacher in teachers if teacher):
        notes.append(f"Training begins with the choices of {', '.join(names)}, before it goes on by reward.")
    trained = [
        f"{' / '.join(about['schedulers'])} {about['iterations_trained']} ({about['training_cpu_s'] / 60:.1f})"
        for about in policies.values()
        if "iterations_trained" in about
    ]
    if trained:
        notes.append(f"Iterations of training (minutes of CPU time): {'; '.join(trained)}.")
    return notes


def _entry(
    condition: str,
    comparison: Comparison,
    runs: pd.DataFrame,
    means: Mapping[tuple[str, str], Mapping[str, float]],
    paper: Paper,
) -> dict[str, Any]:
    """Return the JSON entry of one condition."""
    conditions, exact = comparison.conditions, comparison.conditions.workload.sequence is not None
    stream = conditions.arrivals == "poisson" and not exact
    schedulers = {}
    for name, spec in comparison.schedulers.items():
        mine = runs[(runs["condition"] == condition) & (runs["scheduler"] == name)]
        schedulers[name] = {
            "scheduler": spec,
            **means[condition, name],
            "paper": paper.get((condition, name)),
            "per_seed": mine.drop(columns=["condition", "scheduler", "seed"]).to_dict("list"),
        }
    return {
        "condition": condition,
        "workload": conditions.workload.name,
        "executors": conditions.cluster.num_executors,
        "executor_classes": [asdict(kind) for kind in conditions.cluster.executor_classes],
        "memory_demand": conditions.memory_demand,
        "moving_delay_s": conditions.cluster.moving_delay_ms / 1000,
        "arrivals": "exact" if exact else conditions.arrivals,
        "interval_s": conditions.interval_ms / 1000 if stream else None,
        "drift": conditions.drift and conditions.drift.to_dict(),
        "window_s": None if conditions.window_ms is None else conditions.window_ms / 1000,
        "jobs": len(conditions.sequence(conditions.seed)),
        "seeds": list(conditions.seeds),
        "alphas": list(comparison.alphas),
        "schedulers": schedulers,
    }


def _policies(comparisons: Mapping[str, Comparison]) -> dict[str, dict[str, Any]]:
    """Return policy file -> its metadata, and the names of the schedulers that follow it."""
    names: dict[str, dict[str, None]] = {}
    for comparison in comparisons.values():
        for name, spec in comparison.schedulers.items():
            if (policy := policy_named(spec)) is not None:
                names.setdefault(policy, {})[name] = None
    return {
        file: {"schedulers": list(known), **read_about(policy_path(file))} for file, known in names.items()
    }


def plot_bars(means: Mapping[tuple[str, str], Mapping[str, float]]) -> Figure:
    """Draw the mean JCT of each scheduler with its interval: a group of bars for each condition."""
    groups: dict[str, dict[str, Interval]] = {}
    for (condition, name), row in means.items():
        group = groups.setdefault(condition.replace(", ", ",\n"), {})
        group[name] = Interval(row["mean_jct_s"], row["mean_jct_ci95_s"])
    bars = sum(len(group) + 1 for group in groups.values())
    figure, axes = new_axes(max(5.0, 0.42 * bars + 2), 4)
    draw_bars(axes, groups, "Average job completion time (s)")
    legend_beside(axes)
    return figure
