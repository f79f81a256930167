"""Figure 7 of the DeepRM paper (HotNets 2016): which jobs DeepRM withholds, and which jobs that helps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from decima.evaluation.grid import TUNED, Evaluation, Withholding
from decima.evaluation.grid_comparison import LEARNED
from decima.policy.threads import one_thread
from decima.schedulers.grid import play
from decima.show.grid_report import load_name
from decima.show.style import BLACK, finish_axes, legend_beside, new_figure, styles
from decima.show.tables import new_table
from decima.studies.grid.compared import Measured, compared
from decima.studies.grid.figures import network_at
from decima.studies.grid.study import GridStudy
from decima.studies.outcome import Claim, Outcome
from simulator.grid.grid import Grid

__all__ = ["by_length", "fig7"]

LOAD = 1.1
#: Jobs of at least this many steps are DeepRM's long ones.
LONG = 10
#: Share of the steps in which DeepRM is not work-conserving at this load (section 4.3).
PAPER_HELD = 0.234


def fig7(study: GridStudy) -> Outcome:
    """Show withheld jobs, and slowdowns by length of job, at a load of 110 %."""
    name = network_at(LOAD)
    config = study.config("deeprm", jobs__load=LOAD)
    networks = {LEARNED: study.train({name: config})[name]}
    conditions = study.conditions(config, networks, (TUNED,))
    schedulers, jobs = conditions.schedulers(), conditions.jobs()
    results, watched = {}, {}
    for each in (LEARNED, TUNED):
        grid = Grid(conditions.grid, jobs)
        watched[each] = Withholding(schedulers[each], grid)
        with one_thread():
            results[each] = Evaluation(play(grid, watched[each]))
    lengths = by_length(results, watched)
    share = float(watched[LEARNED].held_steps.sum() / watched[LEARNED].steps.sum())
    return compared(
        "deeprm-fig7",
        [Measured(f"All jobs at a load of {load_name(LOAD)}", {"": results})],
        _claims(lengths, share),
        [
            "Withheld: a visible job could start at once, and a step passes instead; each such step of a job counts."
        ],
        networks,
        {"deeprm-fig7": partial(plot_lengths, lengths)},
        tables=[_table(lengths)],
        extra={"not_work_conserving": share, "by_length": lengths.reset_index().to_dict(orient="records")},
    )


def by_length(results: Mapping[str, Evaluation], watched: Mapping[str, Withholding]) -> pd.DataFrame:
    """Summarise jobs by their duration.

    Returns:
        A row for each duration, in steps. Columns: ``jobs``, their number; for each scheduler ``NAME slowdown``, the
        mean, and ``NAME withheld``, steps in which such jobs were withheld.
    """
    record = next(iter(results.values())).record
    there = record.is_job
    columns = {"length": record.jobs.duration[there], "jobs": 1}
    for name, evaluation in results.items():
        columns[f"{name} slowdown"] = evaluation.by_job("slowdown")[there]
        columns[f"{name} withheld"] = watched[name].held[there]
    grouped = pd.DataFrame(columns).groupby("length")
    return grouped.agg(
        {column: "mean" if column.endswith("slowdown") else "sum" for column in columns if column != "length"}
    )


def _claims(lengths: pd.DataFrame, share: float) -> list[Claim]:
    held, is_long = lengths[f"{LEARNED} withheld"], np.asarray(lengths.index >= LONG)
    of_long = float(held[is_long].sum() / max(held.sum(), 1))
    slowdown = {
        (name, is_large): float(np.average(rows[f"{name} slowdown"], weights=rows["jobs"]))
        for is_large, rows in ((True, lengths[is_long]), (False, lengths[~is_long]))
        for name in (LEARNED, TUNED)
    }

    def against(is_large: bool) -> str:
        return f"{slowdown[LEARNED, is_large]:.2f}; {TUNED} {slowdown[TUNED, is_large]:.2f}"

    return [
        Claim(
            f"DeepRM is not work-conserving in {PAPER_HELD:.1%} of the steps.",
            f"in {share:.1%}",
            share > PAPER_HELD / 2,
        ),
        Claim(
            "Almost always it is large jobs that it withholds.",
            f"{of_long:.1%} of what is withheld" if held.sum() else "nothing is withheld",
            of_long > 0.9,
        ),
        Claim(
            "The slowdown of small jobs is significantly smaller than with Tetris*.",
            against(False),
            slowdown[LEARNED, False] < slowdown[TUNED, False],
        ),
        Claim(
            "That of large jobs is higher.", against(True), slowdown[LEARNED, True] > slowdown[TUNED, True]
        ),
    ]


def _table(lengths: pd.DataFrame) -> Table:
    headings = (f"Withheld by {LEARNED}", f"Slowdown {LEARNED}", f"Slowdown {TUNED}")
    table = new_table("By length of job", "Steps", "Jobs", *headings)
    for length, row in lengths.iterrows():
        table.add_row(
            str(length),
            f"{row['jobs']:.0f}",
            f"{row[f'{LEARNED} withheld']:.0f}",
            f"{row[f'{LEARNED} slowdown']:.2f}",
            f"{row[f'{TUNED} slowdown']:.2f}",
        )
    return table


def plot_lengths(lengths: pd.DataFrame) -> Figure:
    """Draw shares of the withheld jobs by length, and slowdowns by length, as the paper's figures 7(a) and (b)."""
    figure = new_figure(10, 3.6)
    left, right = figure.subplots(1, 2)
    held = lengths[f"{LEARNED} withheld"]
    left.bar(lengths.index, held / max(held.sum(), 1), 0.8, color=BLACK)
    finish_axes(left, xlabel="Length of withheld jobs (steps)", ylabel="Fraction", ylim=(0, None))
    for place, (name, look) in enumerate(styles([LEARNED, TUNED]).items()):
        places = lengths.index + 0.4 * place - 0.2
        right.bar(places, lengths[f"{name} slowdown"], 0.4, label=name, color=look["color"])
    finish_axes(right, xlabel="Length of jobs (steps)", ylabel="Slowdown", ylim=(0, None))
    for axes in (left, right):
        axes.grid(visible=False, axis="x")
    legend_beside(right)
    return figure
