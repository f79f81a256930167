"""Reliability of a policy: comparison with heuristics and tuned weighted fair in a fixed grid of settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import Conditions, best_fit
from decima.evaluation.metrics import Interval, mean_interval
from decima.evaluation.variants import HINDSIGHT
from decima.policy.files import load_actor
from decima.registry import LEARNED
from decima.show.style import BLACK, BLUE, GREY, RED, new_axes
from decima.show.tables import interval_text, table_of
from decima.studies.catalogue import SEQUENCES
from decima.studies.cells import CELLS, OPTIONS, Cell, Source
from decima.studies.compared import change, choose_settings, jct_s, run_settings
from decima.studies.outcome import FULL, RULE, UNKNOWN, Outcome, Setup
from simulator.cluster.config import ClusterConfig
from workloads.job import JobProfile, scaled
from workloads.sources.open import EMBEDDED, SYNTHETIC, open_workload
from workloads.sources.workload_file import Workload

#: Heuristic that limits parallelism by the profile of a job, with one cost exponent at any load.
PLAIN_RULE = "profiled-srpt:2.5"
#: The best of these schedulers in a cell is the reference of that cell.
REFERENCES = (PLAIN_RULE, RULE, HINDSIGHT)
#: Schedulers in each cell besides the policy, in the order of the table.
SCHEDULERS = ("fair", HINDSIGHT, PLAIN_RULE, RULE)
COLUMNS = (*SCHEDULERS, FULL)
#: Median task duration of random DAGs with short tasks, ms.
SHORT_MS = 150.0
#: Colour map, safe for colour-blind readers: blue is shorter, orange is longer, white is no change.
COLOURS = LinearSegmentedColormap.from_list("change", (BLUE, "white", RED))
#: Absolute change from which on the colour stays the same.
STRONGEST = 0.3


class Cells:
    """Results of all cells: tidy runs, and the policy of each cell; None if no policy fits.

    Attributes:
        jct: cell -> scheduler -> mean JCT on each sequence, s.
        best: cell -> reference scheduler, the one of ``REFERENCES`` with the lowest mean JCT.
        changes: cell -> scheduler -> relative change of the mean JCT against ``best``, paired by sequence.
        judged: cells with a policy.
    """

    def __init__(self, runs: pd.DataFrame, policies: Mapping[str, str | None]) -> None:
        self.policies = policies
        self.jct: dict[str, dict[str, pd.Series[float]]] = {}
        self.best: dict[str, str] = {}
        self.changes: dict[str, dict[str, Interval]] = {}
        for cell, policy in policies.items():
            jct = {name: jct_s(runs, name, cell) for name in COLUMNS if name != FULL or policy is not None}
            best = min(REFERENCES, key=lambda name: float(jct[name].mean()))
            self.jct[cell], self.best[cell] = jct, best
            self.changes[cell] = {name: change(runs, name, best, cell) for name in jct}
        self.judged = [cell for cell, policy in policies.items() if policy is not None]

    def not_worse(self, cell: str) -> bool:
        """Return whether the policy's mean JCT is not above the reference's by more than the interval."""
        mean, half_width = self.changes[cell][FULL]
        return mean <= half_width

    @property
    def worst(self) -> str | None:
        """Cell with the policy's largest change of the mean JCT, among the cells where it is worse, if any."""

        def badness(cell: str) -> tuple[bool, float]:
            return not self.not_worse(cell), self.changes[cell][FULL].mean

        return max(self.judged, key=badness, default=None)

    @property
    def average(self) -> Interval:
        """Mean change of the policy's mean JCT over cells of equal weight; NaN without any policy.

        Cells share seeds and jobs, so the interval is computed from means over cells for each seed.
        """
        base = {cell: self.jct[cell][self.best[cell]] for cell in self.judged}
        changes = [(self.jct[cell][FULL] - each) / each.mean() for cell, each in base.items()]
        return mean_interval(np.mean(changes, axis=0) if changes else [])

    @property
    def better(self) -> bool:
        """Whether the policy is better on average over cells: the interval lies below 0."""
        return self.average.mean + self.average.half_width < 0


def settings_grid(
    setup: Setup,
    checkpoint: Path | None,
    profiles: Path | None,
    trace: Path | None,
    cells: Sequence[str],
    budget: float = 1.0,
    seeds: int | None = None,
    seed: int = 0,
    workers: int | str | None = None,
) -> Outcome:
    """Compare schedulers in each cell on the same sequences.

    Raises:
        CompareError: see ``choose_settings``; or a scheduler failed.
        ConfigError: a stage of the trace demands more than an executor has.
        OptionError: no chosen cell needs a given source of jobs.
        WorkloadError: a source of jobs is malformed.
    """
    needed = {CELLS[each].source for each in cells or CELLS}
    options = {"profiles": "published", "trace": "trace"}
    unused = [name for name, source in options.items() if source not in needed]
    setup.refuse(dict.fromkeys(unused, "no cell that is named needs it"))
    if checkpoint is not None:
        load_actor(checkpoint)  # fails before the work begins
    known = workloads(profiles, trace)
    chosen, others = choose_settings(CELLS, cells, known, "cell")
    comparisons, policies = {}, {}
    for cell in chosen:
        conditions = _conditions(cell, known[cell.source], seeds or max(2, round(budget * SEQUENCES)), seed)
        fitting = best_fit(conditions) if checkpoint is None else (str(checkpoint),)
        policy = policies[cell.name] = None if fitting is None else fitting[0]
        learned = {} if policy is None else {FULL: f"{LEARNED}:{policy}"}
        schedulers = {name: name for name in SCHEDULERS} | learned
        comparisons[cell.name] = Comparison(conditions, schedulers, keep=False)
    runs, conditions_of = run_settings(comparisons, setup, "comparing schedulers", workers)
    return outcome(runs, policies, [] if cells else left_out_notes(others), conditions_of)


def outcome(
    runs: pd.DataFrame,
    policies: Mapping[str, str | None],
    left_out: Sequence[str] = (),
    conditions: Mapping[str, Conditions] | None = None,
) -> Outcome:
    """Return verdicts, table and JSON of the grid; for ``runs`` and ``policies`` see ``Cells``.

    ``left_out`` has one sentence for each missing source of jobs; ``conditions`` are the cells' evaluation settings.
    """
    cells = Cells(runs, policies)
    worst = cells.worst
    verdicts: dict[str, Any] = dict.fromkeys(("in_every_cell_not_worse", "on_average_better"))
    if worst is not None:
        pairs = ((cells.not_worse(worst), cells.changes[worst][FULL]), (cells.better, cells.average))
        for name, (holds, change) in zip(verdicts, pairs, strict=True):
            verdicts[name] = {"holds": holds, "change": change.mean, "change_ci95": change.half_width}
        verdicts["in_every_cell_not_worse"]["worst_cell"] = worst
    seeds = sorted(runs["seed"].unique().tolist())
    return Outcome(
        "grid",
        runs,
        [grid_table(cells, len(seeds))],
        grid_notes(cells, left_out),
        extra={
            "seeds": seeds,
            "references": list(REFERENCES),
            "cells": [_entry(cells, name, runs, (conditions or {}).get(name)) for name in policies],
            **verdicts,
            "left_out": list(left_out),
        },
        pictures={"grid": partial(plot_grid, cells)},
    )


def workloads(profiles: Path | None = None, trace: Path | None = None) -> dict[Source, Workload]:
    """Return the available sources of jobs, without arrival times.

    Raises ``WorkloadError`` if a file is malformed.
    """
    found: dict[Source, Workload] = {
        "embedded": open_workload(EMBEDDED),
        "random": (random := open_workload(SYNTHETIC)),
        "short": Workload(with_typical_task(random.profiles, SHORT_MS), None, "random DAGs of short tasks"),
    }
    if profiles is not None:
        found["published"] = open_workload(profiles)
    if trace is not None:
        found["trace"] = replace(open_workload(trace), sequence=None)
    return found


def with_typical_task(profiles: Sequence[JobProfile], typical_ms: float) -> tuple[JobProfile, ...]:
    """Scale all task durations by one factor, so that the median of mean task durations is ``typical_ms``."""
    stages = [stage for profile in profiles for stage in profile.stages]
    mean_ms = [stage.durations.mean_ms for stage in stages]
    factor = typical_ms / float(np.median(np.repeat(mean_ms, [stage.num_tasks for stage in stages])))
    return tuple(scaled(profile, factor) for profile in profiles)


def left_out_notes(names: Sequence[str]) -> list[str]:
    """Return one sentence for each option that would add some of these cells."""
    by_option = {
        option: [each for each in names if CELLS[each].source == it] for it, option in OPTIONS.items()
    }
    return [f"Left out without {option}: {', '.join(each)}." for option, each in by_option.items() if each]


def _conditions(cell: Cell, workload: Workload, num_experiments: int, seed: int) -> Conditions:
    cluster = ClusterConfig(num_executors=cell.num_executors, moving_delay_ms=1000 * cell.moving_delay_s)
    drawn = Conditions(workload, cluster, num_jobs=cell.num_jobs, num_experiments=num_experiments, seed=seed)
    if cell.interval_s is None:
        return drawn
    return replace(drawn, arrivals="poisson", interval_ms=1000 * cell.interval_s)


def grid_table(cells: Cells, seeds: int) -> Table:
    """Return the table of mean JCTs, s, and changes of the policy, one row per cell."""
    title = f"Average JCT, {seeds} sequences in each cell"
    rows = []
    for cell, jct in cells.jct.items():
        ours: tuple[object, ...] = (UNKNOWN, UNKNOWN, "no policy")
        if cell in cells.judged:
            ours = (cells.changes[cell][FULL], _yes(cells.not_worse(cell)))
        rows.append((cell, *(each.mean() for each in jct.values()), *ours))
    forms = (*[".1f"] * len(COLUMNS), "+.1%", "")
    table = table_of(title, ("Cell", *COLUMNS, "vs best", "Not worse"), rows, forms)
    for row, (above, below) in zip(table.rows, pairwise(cells.jct), strict=False):
        row.end_section = CELLS[above].source != CELLS[below].source
    return table


def grid_notes(cells: Cells, left_out: Sequence[str] = ()) -> list[str]:
    """Return verdicts and explanations of the table, one sentence each."""
    policies: dict[str, list[str]] = {}
    for name, policy in cells.policies.items():
        policies.setdefault(policy or "", []).append(name)
    none = policies.pop("", [])

    def listed(names: Sequence[str]) -> str:
        return "all cells" if len(names) == len(cells.policies) else ", ".join(names)

    worst = cells.worst
    if worst is None:
        verdicts = ["There is no policy for any cell, so nothing can be said of decima."]
    else:
        every = "In every cell with a policy" if none else "In every cell"
        largest = interval_text(cells.changes[worst][FULL], "+.1%")
        verdicts = [
            f"{every} decima is not worse than the best of the rules and tuned weighted fair by more than its "
            f"interval: {_yes(cells.not_worse(worst))} (worst cell: {worst}, {largest}).",
            f"On average over the cells it is better: {_yes(cells.better)} ({interval_text(cells.average, '+.1%')}).",
        ]
    return [
        *verdicts,
        "Times are seconds; ± is half a 95 % confidence interval (Student's t).",
        f"vs best: decima's average JCT against that of {', '.join(REFERENCES)}, whichever is lowest in the cell; "
        "paired by sequence.",
        "Not worse: by more than the interval, which few sequences make wide (--seeds).",
        f"{HINDSIGHT} knows the best alpha of each sequence.",
        *(f"decima follows {policy} in {listed(names)}." for policy, names in policies.items()),
        *([f"No policy for {listed(none)}: --checkpoint FILE gives one."] if none else []),
        *left_out,
    ]


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _entry(cells: Cells, name: str, runs: pd.DataFrame, conditions: Conditions | None) -> dict[str, Any]:
    """Return the JSON of a cell, times in seconds; values of a missing policy are null."""
    cell, jct, changes = CELLS[name], cells.jct[name], cells.changes[name]
    missing = {} if FULL in jct else {FULL: None}
    hindsight = runs[(runs["condition"] == name) & (runs["scheduler"] == HINDSIGHT)]
    return {
        "name": name,
        "settings": {
            "workload": conditions and conditions.workload.name,
            "source": cell.source,
            "jobs": cell.num_jobs,
            "arrivals": "batch" if cell.interval_s is None else "poisson",
            "interval_s": cell.interval_s,
            "executors": cell.num_executors,
            "moving_delay_s": cell.moving_delay_s,
        },
        "policy": cells.policies[name],
        "mean_jct_s": {each: float(values.mean()) for each, values in jct.items()} | missing,
        "best_reference": cells.best[name],
        "change": {each: change.mean for each, change in changes.items()} | missing,
        "change_ci95": {each: change.half_width for each, change in changes.items()} | missing,
        "not_worse": None if missing else cells.not_worse(name),
        "per_seed_mean_jct_s": {each: values.tolist() for each, values in jct.items()},
        "per_seed_setting": {HINDSIGHT: hindsight["setting"].tolist() if "setting" in hindsight else []},
    }


def plot_grid(cells: Cells) -> Figure:
    """Draw a heat map of changes against the best reference, percent; rows are cells, columns are schedulers.

    Bold marks a policy that is worse by more than its interval, grey a cell without policy.
    """
    names, most = list(cells.policies), 100 * STRONGEST
    changes = np.array(
        [[cells.changes[cell].get(name, (math.nan,))[0] for name in COLUMNS] for cell in names]
    )
    figure, axes = new_axes(8, 0.27 * len(names) + 1.4)
    axes.set_facecolor(GREY)
    image = axes.imshow(100 * changes, cmap=COLOURS, vmin=-most, vmax=most, aspect="auto")
    for (row, column), value in np.ndenumerate(changes):
        cell = names[row]
        worse = COLUMNS[column] == FULL and cell in cells.judged and not cells.not_worse(cell)
        text = UNKNOWN if math.isnan(value) else f"{100 * value:+.1f}" if value else "0"
        colour, weight = "white" if value < -0.8 * STRONGEST else BLACK, "bold" if worse else "normal"
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small", "fontweight": weight}
        axes.text(column, row, text, color=colour, **style)
    for row, (above, below) in enumerate(pairwise(names)):
        if CELLS[above].source != CELLS[below].source:
            axes.axhline(row + 0.5, color=BLACK, linewidth=0.8)
    axes.set_xticks(range(len(COLUMNS)), COLUMNS, fontsize="small")
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    label = f"Average JCT (%) against\n{' or '.join(REFERENCES)}, whichever is lower"
    figure.colorbar(
        image, ax=axes, orientation="horizontal", extend="both", shrink=0.7, aspect=40, label=label
    )
    return figure
