"""Results of studies that compare schedulers on a cluster: tidy rows, table, notes, JSON and bar chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import CompareError
from decima.evaluation.metrics import METRICS, Interval, paired_change, summarise
from decima.evaluation.variants import HINDSIGHT
from decima.policy.files import policy_path, read_about
from decima.registry import policy_named
from decima.show.style import draw_bars, legend_beside, new_axes
from decima.show.tables import interval_text, metric_text, table_of
from decima.studies.outcome import FULL, UNKNOWN, Claim, Outcome
from workloads.arrivals import JobSequence

# A condition is the name of an evaluation setting; it is empty in studies with a single setting.
#: (condition, scheduler) -> result of the paper, as text.
Paper = Mapping[tuple[str, str], str]
#: (condition, scheduler) -> row of ``summarise``.
Means = Mapping[tuple[str, str], Mapping[str, float]]


#: Number of groups of jobs by total work; all groups have the same size.
GROUPS = 5
#: Metrics in each table.
COLUMNS = ("mean_jct_s", "p95_jct_s", "utilisation")
#: Columns of ``summarise`` in the JSON.
IN_JSON = (
    *("mean_jct_s", "mean_jct_ci95_s", "makespan_s", "makespan_ci95_s"),
    *("p95_jct_s", "utilisation", "load", "fragmentation"),
)


def tidy(comparisons: Mapping[str, Comparison]) -> pd.DataFrame:
    """Concatenate ``Comparison.runs`` of all conditions; the first column is ``condition``."""
    tables = [each.runs.assign(condition=name) for name, each in comparisons.items()]
    whole = pd.concat(tables, ignore_index=True)
    return whole[["condition", *whole.columns.drop("condition")]]


def jct_s(runs: pd.DataFrame, scheduler: str, condition: str = "") -> pd.Series[float]:
    """Return a scheduler's mean JCT on each sequence, s; the index is the seed."""
    chosen = runs[(runs["scheduler"] == scheduler) & (runs["condition"] == condition)]
    return chosen.set_index("seed")["mean_jct_s"]


def change(runs: pd.DataFrame, one: str, other: str, condition: str = "") -> Interval:
    """Return the relative change of the mean JCT from scheduler ``other`` to ``one``, paired by sequence."""
    return paired_change(jct_s(runs, one, condition), jct_s(runs, other, condition))


def change_text(runs: pd.DataFrame, one: str, other: str) -> str:
    """Format ``change`` with its interval, and name the scheduler that it is relative to."""
    return f"{interval_text(change(runs, one, other), '+.1%')} against {other}"


def summary(runs: pd.DataFrame, reference: str = HINDSIGHT) -> Means:
    """Average tidy results over seeds. Returns: (condition, scheduler) -> row of ``summarise``."""
    return {
        (str(condition), name): row
        for condition, mine in runs.groupby("condition", sort=False)
        for name, row in summarise(mine, mine["scheduler"].unique(), reference).items()
    }


def gains_table(
    title: str, corner: str, rows: Mapping[str, Mapping[str, Interval]], form: str = "+.1%"
) -> Table:
    """Return a table of relative changes: row -> column -> change; all rows have the same columns in order."""
    headings = (corner, *next(iter(rows.values())))
    return table_of(title, headings, ((name, *row.values()) for name, row in rows.items()), form)


def jobs_by_work(sequence: JobSequence) -> list[NDArray[np.int64]]:
    """Split job indices into ``GROUPS`` groups of equal size by total work, smallest jobs first.

    Raises ``CompareError`` if there are fewer jobs than groups.
    """
    if len(sequence) < GROUPS:
        raise CompareError(
            f"seed {sequence.seed}: {len(sequence)} jobs, expected at least {GROUPS} to group them by work"
        )
    work_ms = np.array([profile.work_ms for profile in sequence.profiles])
    return np.array_split(np.argsort(work_ms, kind="stable"), GROUPS)


def over_time(steps: pd.Series[Any], edges_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average a step function over time windows: values by start time, ms; it is 0 before its first step.

    Returns float64 [len(edges_ms) - 1]; the edges of windows ascend.
    """
    index = steps.index.to_numpy()
    times = np.unique(np.concatenate([index, edges_ms]))
    values = np.concatenate([[0.0], steps.to_numpy()])[np.searchsorted(index, times, "right")]
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(times))])
    found: NDArray[np.float64] = np.diff(area[np.searchsorted(times, edges_ms)]) / np.diff(edges_ms)
    return found


def compared(
    name: str,
    title: str,
    comparisons: Mapping[str, Comparison],
    *,
    reference: str = HINDSIGHT,
    columns: Sequence[str] = (),
    paper: Paper = MappingProxyType({}),
    notes: Sequence[str] = (),
    claims: Sequence[Claim] = (),
    tables: Sequence[Table] = (),
    extra: Mapping[str, Any] | None = None,
    pictures: Mapping[str, Callable[[], Figure]] | None = None,
) -> Outcome:
    """Return the outcome of a study that compared schedulers, with table, notes on it and on training, and JSON.

    Args:
        comparisons: condition -> complete comparison.
        reference: scheduler that others are compared with.
        columns: further columns of the table, names in ``METRICS``.
        notes, claims, tables, extra, pictures: see ``Outcome``; by default the picture is a bar chart of the mean JCT.
    """
    runs = tidy(comparisons)
    means, policies = summary(runs, reference), _policies(comparisons)
    seeds = next(iter(comparisons.values())).conditions.num_experiments
    table = study_table(f"{title}, {seeds} experiments", means, reference, columns, paper)
    return Outcome(
        name,
        runs,
        [table, *tables],
        [*_general_notes(reference, columns), *notes, *_training_notes(policies)],
        claims,
        {
            "title": title,
            "conditions": [_entry(name, each, runs, means, paper) for name, each in comparisons.items()],
            "policies": policies,
            "learning_curves": {},
            "notes": list(notes),
            **(extra or {}),
        },
        pictures or {name: partial(plot_bars, means)},
    )


def study_table(
    title: str,
    means: Means,
    reference: str = HINDSIGHT,
    columns: Sequence[str] = (),
    paper: Paper = MappingProxyType({}),
) -> Table:
    """Return the table of means, in seconds, with the results of the paper; for the arguments see ``compared``."""
    several = len({condition for condition, _ in means}) > 1
    metrics = [name for name in METRICS if name in (*COLUMNS, *columns)]
    names = [*["Condition"] * several, "Scheduler"]
    versus = "vs tuned" if reference == HINDSIGHT else "vs reference"
    headings = (*names, *(METRICS[name].heading for name in metrics), versus, "Paper")
    rows = []
    for (condition, scheduler), row in means.items():
        change = interval_text(Interval(row["difference"], row["difference_ci95"]), "+.1%", unknown="")
        cells = *(metric_text(row, name, UNKNOWN) for name in metrics), change * (scheduler != reference)
        known = paper.get((condition, scheduler), UNKNOWN)
        rows.append((*[condition] * several, scheduler, *cells, known))
    table = table_of(title, headings, rows, names=len(names), bold={FULL})
    table.columns[-1].no_wrap = False  # results of papers may be sentences
    return table


def _general_notes(reference: str, columns: Sequence[str]) -> list[str]:
    return [
        "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
        "vs tuned: mean JCT against tuned-weighted-fair, which knows the best alpha of each experiment; paired."
        if reference == HINDSIGHT
        else f"vs reference: mean JCT against {reference}; paired.",
        *["Unused: share of the memory of busy executors that their tasks do not need (fragmentation)."]
        * ("fragmentation" in columns),
        f"Paper: figures of Decima (SIGCOMM 2019), on its own cluster and profiles; {UNKNOWN} if it gives no figure.",
    ]


def _training_notes(policies: Mapping[str, Mapping[str, Any]]) -> list[str]:
    notes = []
    teachers = [(about.get("config") or {}).get("behaviour_cloning") for about in policies.values()]
    if names := dict.fromkeys(teacher["scheduler"] for teacher in teachers if teacher):
        notes.append(f"Training begins with behaviour cloning of {', '.join(names)} and continues with RL.")
    trained = [
        f"{' / '.join(about['schedulers'])} {about['iterations_trained']} ({about['training_cpu_s'] / 60:.1f})"
        for about in policies.values()
        if "iterations_trained" in about
    ]
    if trained:
        notes.append(f"Iterations of training (minutes of CPU time): {'; '.join(trained)}.")
    return notes


def _entry(
    condition: str, comparison: Comparison, runs: pd.DataFrame, means: Means, paper: Paper
) -> dict[str, Any]:
    """Return the JSON of one condition."""
    facts = comparison.conditions.to_dict()
    del facts["semantics"]
    first = ("workload", "executors", "executor_classes", "memory_demand", "moving_delay_s")
    schedulers = {}
    for name, spec in comparison.schedulers.items():
        mine = runs[(runs["condition"] == condition) & (runs["scheduler"] == name)]
        row = means[condition, name]
        schedulers[name] = {
            "scheduler": spec,
            **{each: row[each] for each in IN_JSON},
            "change": row["difference"],
            "change_ci95": row["difference_ci95"],
            "paper": paper.get((condition, name)),
            "per_seed": mine.drop(columns=["condition", "scheduler", "seed"]).to_dict("list"),
        }
    return {
        "condition": condition,
        **{name: facts[name] for name in first},
        **facts,
        "seeds": list(comparison.conditions.seeds),
        "alphas": list(comparison.alphas),
        "schedulers": schedulers,
    }


def _policies(comparisons: Mapping[str, Comparison]) -> dict[str, dict[str, Any]]:
    """Return metadata of each policy file, with the names of schedulers that use it."""
    names: dict[str, dict[str, None]] = {}
    for comparison in comparisons.values():
        for name, spec in comparison.schedulers.items():
            if (policy := policy_named(spec)) is not None:
                names.setdefault(policy, {})[name] = None
    return {
        file: {"schedulers": list(known), **read_about(policy_path(file))} for file, known in names.items()
    }


def plot_bars(means: Means) -> Figure:
    """Draw a bar chart of mean JCTs with intervals, one group of bars per condition."""
    groups: dict[str, dict[str, Interval]] = {}
    for (condition, name), row in means.items():
        group = groups.setdefault(condition.replace(", ", ",\n"), {})
        group[name] = Interval(row["mean_jct_s"], row["mean_jct_ci95_s"])
    bars = sum(len(group) + 1 for group in groups.values())
    longest = max(len(name) for group in groups.values() for name in group)
    figure, axes = new_axes(0.42 * bars + 0.08 * longest + 1.5, 4)
    draw_bars(axes, groups, "Average job completion time (s)")
    legend_beside(axes)
    return figure
