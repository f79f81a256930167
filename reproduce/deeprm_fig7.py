"""DeepRM, Figure 7: which jobs are withheld, and the slowdown by duration of jobs, at a load of 110 %.

Section 4.3 of the paper: DeepRM is not work-conserving in 23.4 % of the steps; almost always it withholds large jobs,
so that the slowdown of small jobs is significantly smaller than with Tetris*, and that of large jobs higher.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from decima.evaluation import GridComparison
from decima.evaluation.grid import Withholding
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.policy.threads import one_thread
from decima.schedulers.grid import play
from decima.show import style
from reproduce.common import Result
from reproduce.grid import TUNED, train, training_text
from simulator.grid import Grid, GridRecord

SCHEDULERS = ("deeprm", TUNED)
#: Least duration of long jobs, steps.
LONG = 10
#: Share of steps in which DeepRM is not work-conserving in the paper, at this load.
PAPER = 0.234


def run(
    *,
    sets: int = 100,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
) -> Result:
    """Train a network, and watch it and Tetris* on unseen job sets; 7 minutes of CPU time.

    Args:
        sets: Number of unseen job sets.
        seed: Seed of the job sets.
        policies: Folder of the trained network; a complete training in it is not repeated.
        training: Setting of the training that differs from the recipe, such as iterations=20.
    """
    trained = train(policies / "deeprm-110", "deeprm", ["jobs.load=1.1", *training])
    config, networks = trained.config, {"deeprm": trained.policy_file}
    comparison = GridComparison(config.grid, {"": config.jobs}, [TUNED], networks, sets=sets, seed=seed)
    jobs = config.jobs.draw(config.grid, sets, seed)
    records, watched = {}, {}
    schedulers = comparison.make_schedulers("")
    for name in SCHEDULERS:
        grid = Grid(config.grid, jobs)
        watched[name] = Withholding(schedulers[name], grid)
        with one_thread():
            records[name] = play(grid, watched[name])
    lengths = by_length(records, watched)
    share = float(watched["deeprm"].held_steps.sum() / watched["deeprm"].steps.sum())
    return Result(
        {"lengths": lengths, "claims": pd.DataFrame(claims(lengths, share))},
        {"deeprm-fig7": plot(lengths)},
        {"training": training_text({"deeprm": trained}), "not work-conserving": f"{share:.1%}"},
        {f"slowdown {name}": ".2f" for name in SCHEDULERS},
    )


def by_length(records: Mapping[str, GridRecord], watched: Mapping[str, Withholding]) -> pd.DataFrame:
    """Summarise jobs by duration, from results and withheld jobs by scheduler.

    Returns:
        One row for each duration; columns ``steps`` (duration), ``jobs`` (number of jobs) and, for each scheduler,
        ``withheld NAME`` (number of steps in which such jobs were withheld: a visible job could start at once, and a
        step passes instead) and ``slowdown NAME`` (mean).
    """
    is_job = next(iter(records.values())).is_job
    duration = next(iter(records.values())).jobs.duration[is_job]
    columns: dict[str, object] = {"steps": duration, "jobs": 1}
    for name, record in records.items():
        columns[f"withheld {name}"] = watched[name].held[is_job]
        columns[f"slowdown {name}"] = GRID_METRICS["slowdown"].of(record)[is_job]
    kinds = {
        column: "mean" if column.startswith("slowdown") else "sum" for column in columns if column != "steps"
    }
    return pd.DataFrame(columns).groupby("steps").agg(kinds).reset_index()


def claims(lengths: pd.DataFrame, share: float) -> list[dict[str, str]]:
    """Check the claims of the paper; ``share``: steps in which DeepRM is not work-conserving."""
    held, is_long = lengths["withheld deeprm"], lengths["steps"] >= LONG
    held_long = float(held[is_long].sum() / max(held.sum(), 1))
    small, large = (
        {name: float(np.average(rows[f"slowdown {name}"], weights=rows["jobs"])) for name in SCHEDULERS}
        for rows in (lengths[~is_long], lengths[is_long])
    )
    rows = [
        (
            f"DeepRM is not work-conserving in {PAPER:.1%} of the steps.",
            f"in {share:.1%}",
            share > PAPER / 2,
        ),
        (
            "Almost always it is large jobs that it withholds.",
            f"{held_long:.1%} of what is withheld" if held.sum() else "nothing is withheld",
            held_long > 0.9,
        ),
        (
            "The slowdown of small jobs is significantly smaller than with Tetris*.",
            f"{small['deeprm']:.2f}; {TUNED} {small[TUNED]:.2f}",
            small["deeprm"] < small[TUNED],
        ),
        (
            "That of large jobs is higher.",
            f"{large['deeprm']:.2f}; {TUNED} {large[TUNED]:.2f}",
            large["deeprm"] > large[TUNED],
        ),
    ]
    return [{"paper": paper, "here": here, "holds": "yes" if holds else "no"} for paper, here, holds in rows]


def plot(lengths: pd.DataFrame) -> Figure:
    """Draw shares of withheld jobs and slowdowns by duration of jobs, as figures 7(a) and (b) of the paper."""
    figure = style.new_figure(10, 3.6)
    left, right = figure.subplots(1, 2)
    held = lengths["withheld deeprm"]
    left.bar(lengths["steps"], held / max(held.sum(), 1), 0.8, color=style.BLACK)
    style.finish_axes(left, xlabel="Length of withheld jobs (steps)", ylabel="Fraction", ylim=(0, None))
    for offset, (name, look) in zip((-0.2, 0.2), style.styles(SCHEDULERS).items(), strict=True):
        right.bar(
            lengths["steps"] + offset, lengths[f"slowdown {name}"], 0.4, label=name, color=look["color"]
        )
    style.finish_axes(right, xlabel="Length of jobs (steps)", ylabel="Slowdown", ylim=(0, None))
    for axes in (left, right):
        axes.grid(visible=False, axis="x")
    style.legend_beside(right)
    return figure
