"""A study's outcome for people and for programs: the table beside the paper's figures, its claims, JSON, pictures."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from rich.table import Table

import decima
from decima.evaluation.comparison import Comparison
from decima.evaluation.intervals import Interval, mean_interval
from decima.evaluation.tuning import HINDSIGHT
from decima.outputs import json_text
from decima.policy.files import policy_path, read_about
from decima.registry import policy_named
from decima.show.shown import Shown
from decima.show.style import draw_bars, legend_beside, new_axes
from decima.show.tables import interval_text, new_table
from decima.studies.claims import Claim, claims_table

__all__ = [
    "Outcome",
    "paired_change",
    "plot_bars",
    "shown",
    "study_json",
    "study_notes",
    "study_table",
    "summary",
]

#: What is not known of the paper's result, or was not measured.
UNKNOWN = "—"
#: The strongest rule of this project on one class of executors.
RULE = "priced-srpt"
#: The policy that a study is about.
FULL = "decima"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a study found.

    Attributes:
        name: of the figure or table, such as fig9a.
        title: what was compared.
        comparisons: condition -> what schedulers did; the condition is empty where there is only one.
        paper: (condition, scheduler) -> the paper's figure as a text.
        notes: one sentence each.
        extra: whatever else the JSON tells.
        makespan: whether the table shows makespans too.
        fragmentation: whether it shows what of the memory of busy executors is not needed.
        reference: the scheduler that all are compared with.
        claims: of the paper.
        tables: further ones.
        curves: variant -> rows of its ``metrics.jsonl``, where the study is about learning.
        pictures: name of the file -> what draws it; bars if there are none.
    """

    name: str
    title: str
    comparisons: Mapping[str, Comparison]
    paper: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    makespan: bool = False
    fragmentation: bool = False
    reference: str = HINDSIGHT
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    curves: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[Outcome], Figure]] = field(default_factory=dict)


def shown(outcome: Outcome, command: str) -> Shown:
    """An outcome for people and programs.

    Args:
        outcome: of a study.
        command: that gives it again.
    """
    pictures = outcome.pictures or {outcome.name: plot_bars}
    return Shown(
        tables=[
            study_table(outcome),
            *outcome.tables,
            *([claims_table(outcome.claims)] if outcome.claims else []),
        ],
        notes=study_notes(outcome),
        json=study_json(outcome, command=command),
        pictures={name: partial(plot, outcome) for name, plot in pictures.items()},
    )


def summary(
    comparisons: Mapping[str, Comparison], reference: str = HINDSIGHT
) -> dict[tuple[str, str], dict[str, float]]:
    """Means over the seeds, seconds, by condition and scheduler.

    Entries: ``mean_jct_s``, ``makespan_s`` with half of their 95 % confidence intervals ``mean_jct_ci95_s`` and
    ``makespan_ci95_s`` (Student's t; NaN with one seed), ``p95_jct_s``, ``utilisation``, ``load``,
    ``fragmentation``, and ``change``, by what fraction the mean JCT is above that of ``reference`` in the same
    condition, with ``change_ci95`` of the paired differences; NaN where that did not take part.
    """
    rows = {}
    for condition, comparison in comparisons.items():
        known = [name for name, spec in comparison.schedulers.items() if spec == reference]
        jct_s = comparison.runs(known[0])["mean_jct_s"] if known else None
        for name in comparison.schedulers:
            rows[condition, name] = _summary(comparison.runs(name), jct_s)
    return rows


def _summary(runs: pd.DataFrame, reference: pd.Series[float] | None) -> dict[str, float]:
    row = {}
    for column in ("mean_jct_s", "makespan_s"):
        row[column], row[f"{column.removesuffix('_s')}_ci95_s"] = mean_interval(runs[column])
    for column in ("p95_jct_s", "utilisation", "load", "fragmentation"):
        row[column] = float(runs[column].mean())
    row["change"] = row["change_ci95"] = math.nan
    if reference is not None:
        row["change"], row["change_ci95"] = paired_change(runs["mean_jct_s"], reference)
    return row


def paired_change(values: ArrayLike, reference: ArrayLike) -> Interval:
    """By what fraction the mean of some values is above that of others, which are paired with them; NaN above 0."""
    ours, others = np.asarray(values), np.asarray(reference)
    difference, half_width = mean_interval(ours - others)
    mean = float(others.mean())
    return Interval(difference / mean, half_width / mean) if mean else Interval(math.nan, math.nan)


def study_table(outcome: Outcome) -> Table:
    """The means, in seconds, beside the paper's."""
    seeds = next(iter(outcome.comparisons.values())).conditions.num_experiments
    several = len(outcome.comparisons) > 1
    names = [*(["Condition"] if several else []), "Scheduler"]
    versus = "vs tuned" if outcome.reference == HINDSIGHT else "vs reference"
    unused = ["Unused"] if outcome.fragmentation else []
    numbers = [
        "Mean JCT",
        "p95 JCT",
        *(["Makespan"] if outcome.makespan else []),
        "Utilised",
        *unused,
        versus,
    ]
    table = new_table(f"{outcome.title}, {seeds} experiments", *names, *numbers, names=len(names))
    table.add_column("Paper", justify="right")
    shown = ""
    for (condition, scheduler), row in summary(outcome.comparisons, outcome.reference).items():
        if several and shown and condition != shown:
            table.add_section()
        cells = [condition if condition != shown else ""] if several else []
        shown = condition
        cells += [
            scheduler,
            interval_text(Interval(row["mean_jct_s"], row["mean_jct_ci95_s"]), unknown=UNKNOWN),
            _number(row["p95_jct_s"], ".1f"),
        ]
        if outcome.makespan:
            makespan = Interval(row["makespan_s"], row["makespan_ci95_s"])
            cells.append(interval_text(makespan, unknown=UNKNOWN))
        change = interval_text(Interval(row["change"], row["change_ci95"]), "+.1%", unknown="")
        cells.append(_number(row["utilisation"], ".1%"))
        if outcome.fragmentation:
            cells.append(_number(row["fragmentation"], ".1%"))
        cells.append("" if scheduler == outcome.reference else change)
        paper = outcome.paper.get((condition, scheduler), UNKNOWN)
        table.add_row(*cells, paper, style="bold" if scheduler == FULL else None)
    return table


def _number(value: float, form: str) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:{form}}"


def study_notes(outcome: Outcome) -> list[str]:
    """What the table does not say by itself, one sentence per line."""
    notes = [
        "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
        "vs tuned: mean JCT against tuned-weighted-fair, which knows the best alpha of each experiment; paired."
        if outcome.reference == HINDSIGHT
        else f"vs reference: mean JCT against {outcome.reference}; paired.",
        *(
            ["Unused: of the memory of busy executors, what their tasks do not need (fragmentation)."]
            if outcome.fragmentation
            else []
        ),
        f"Paper: what Decima (SIGCOMM 2019) reports, on its own cluster and profiles; {UNKNOWN} if it gives no figure.",
        *outcome.notes,
    ]
    policies = _policies(outcome.comparisons).values()
    teachers = [(about.get("config") or {}).get("behaviour_cloning") for about in policies]
    names = dict.fromkeys(teacher["scheduler"] for teacher in teachers if teacher)
    if names:
        notes.append(f"Training begins with the choices of {', '.join(names)}, before it goes on by reward.")
    trained = [
        f"{' / '.join(about['schedulers'])} {about['iterations_trained']} ({about['training_cpu_s'] / 60:.1f})"
        for about in policies
        if "iterations_trained" in about
    ]
    if trained:
        notes.append(f"Iterations of training (minutes of CPU time): {'; '.join(trained)}.")
    return notes


def study_json(outcome: Outcome, **provenance: Any) -> str:
    """Everything as JSON text, seconds.

    Args:
        outcome: of a study.
        provenance: further entries, such as the command.
    """
    table = summary(outcome.comparisons, outcome.reference)
    entries = []
    for condition, comparison in outcome.comparisons.items():
        conditions, exact = comparison.conditions, comparison.conditions.workload.sequence is not None
        stream = conditions.arrivals == "poisson" and not exact
        schedulers = {}
        for name, spec in comparison.schedulers.items():
            runs = comparison.runs(name)
            schedulers[name] = {
                "scheduler": spec,
                **table[condition, name],
                "paper": outcome.paper.get((condition, name)),
                "per_seed": {str(column): runs[column].tolist() for column in runs},
            }
        entries.append(
            {
                "condition": condition,
                "workload": conditions.workload.name,
                "executors": conditions.cluster.num_executors,
                "executor_classes": [asdict(kind) for kind in conditions.cluster.executor_classes],
                "memory_demand": conditions.memory_demand,
                "moving_delay_s": conditions.cluster.moving_delay_ms / 1000,
                "arrivals": "exact" if exact else conditions.arrivals,
                "interval_s": conditions.interval_ms / 1000 if stream else None,
                "window_s": None if conditions.window_ms is None else conditions.window_ms / 1000,
                "jobs": len(conditions.sequence(conditions.seed)),
                "seeds": list(conditions.seeds),
                "alphas": list(comparison.alphas),
                "schedulers": schedulers,
            }
        )
    content = {
        "study": outcome.name,
        "title": outcome.title,
        **provenance,
        "machine": machine(),
        "conditions": entries,
        "policies": _policies(outcome.comparisons),
        "learning_curves": {name: list(rows) for name, rows in outcome.curves.items()},
        "claims": [asdict(claim) for claim in outcome.claims],
        "notes": list(outcome.notes),
        **outcome.extra,
    }
    return json_text(content)


def machine() -> dict[str, Any]:
    """Where a result was made."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {"decima": decima.__version__, "numpy": np.__version__, "torch": torch.__version__},
    }


def _processor() -> str:
    """Its name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _policies(comparisons: Mapping[str, Comparison]) -> dict[str, dict[str, Any]]:
    """Policy file -> what it says of itself, and the schedulers that it is."""
    names: dict[str, list[str]] = {}
    for comparison in comparisons.values():
        for name, spec in comparison.schedulers.items():
            if (policy := policy_named(spec)) is not None:
                known = names.setdefault(policy, [])
                if name not in known:
                    known.append(name)
    return {file: {"schedulers": known, **read_about(policy_path(file))} for file, known in names.items()}


# ---- pictures ----------------------------------------------------------------------------------------------


def plot_bars(outcome: Outcome) -> Figure:
    """Mean JCT of each scheduler with its confidence interval, one group of bars for each condition."""
    table = summary(outcome.comparisons)
    groups = {
        condition.replace(", ", ",\n"): {
            name: Interval(table[condition, name]["mean_jct_s"], table[condition, name]["mean_jct_ci95_s"])
            for name in comparison.schedulers
        }
        for condition, comparison in outcome.comparisons.items()
    }
    bars = sum(len(group) + 1 for group in groups.values())
    figure, axes = new_axes(max(5.0, 0.42 * bars + 2), 4)
    draw_bars(axes, groups, "Average job completion time (s)")
    legend_beside(axes)
    return figure
