"""The studies on DeepRM's grids that ``decima reproduce`` offers: what each is told, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import Tell
from decima.cli.options import (
    ABOVE_ZERO,
    BUDGET,
    COMPARISON_SEED,
    FILE,
    POLICIES,
    Numbers,
    Studies,
    WholeRange,
    with_options,
    workers_option,
)

if TYPE_CHECKING:
    from decima.show.shown import Shown

__all__ = ["GRID", "ON_GRIDS", "on_grid"]

#: What studies on grids share; they have the names of the arguments of ``GridStudy``.
GRID = with_options(
    BUDGET,
    click.option("--sets", type=WholeRange(2), default=100, help="Unseen sets of jobs to compare on."),
    click.option("--seed", type=COMPARISON_SEED, default=0, help="Names the sets; of trainings too."),
    POLICIES,
    workers_option("1"),
)
WEIGHTS = Numbers("three numbers, none of them negative, with commas between them", count=3, least=0)


ON_GRIDS: Studies = {
    "deeprm-fig4": (
        """Compare DeepRM with heuristics as the load grows.

        A network is trained at each load (DeepRM, Figure 4). About 70 minutes of CPU time (28 at --budget 0.4).""",
        click.option(
            "--load",
            "loads",
            type=ABOVE_ZERO,
            multiple=True,
            help="Load in percent; may be given several times.  [default: 10, 30, .. 170, 184.5]",
        ),
    ),
    "deeprm-fig5": (
        """Compare networks that learned for slowdown and for completion time.

        At a load of 130 % (DeepRM, Figure 5). About 15 minutes of CPU time.""",
        with_options(),
    ),
    "deeprm-fig6": (
        """Show how fast DeepRM learns.

        At a load of 70 % (DeepRM, Figure 6). About 10 minutes of CPU time.""",
        with_options(),
    ),
    "deeprm-fig7": (
        """Show which jobs DeepRM withholds, and whom that helps.

        At a load of 110 % (DeepRM, Figure 7). About 7 minutes of CPU time.""",
        with_options(),
    ),
    "cnn-fig2": (
        """Compare a convolution, the reshaped state and reward weights with DeepRM.

        On jobs at a load of 70 % (Chen, Xu and Wu, 2017, Figure 2). About 10 minutes of CPU time.""",
        click.option(
            "--weights",
            type=WEIGHTS,
            metavar="A,B,C",
            multiple=True,
            default=("1,1,2", "0.5,1,1"),
            help="alpha, beta and gamma of a reward to try; may be given several times.",
        ),
    ),
    "cnn-fig3": (
        """Compare a network for two machines with heuristics.

        At a load of 70 % of both (Chen, Xu and Wu, 2017, Figure 3). About 8 minutes of CPU time.""",
        with_options(),
    ),
    "a2c-tables": (
        """Compare actor-critic training with heuristics at four rates of arrival.

        Slowdown, completion and waiting time; architectures; a real log (A2cScheduler, 2020). About 25 minutes of
        CPU time.""",
        with_options(
            click.option("--log", type=FILE, help="Compare on this log in Standard Workload Format too."),
            click.option(
                "--log-load",
                type=ABOVE_ZERO,
                default=70.0,
                help="Load in percent that the log is resampled to.",
            ),
        ),
    ),
}


def on_grid(name: str, command: str, tell: Tell, **values: Any) -> Shown:
    """Run a study of ``ON_GRIDS``; the arguments are as in ``reproduce_cluster.on_cluster``."""
    from decima.studies.grid import a2c, cnn, figures, withheld
    from decima.studies.grid.report import shown
    from decima.studies.grid.study import GridStudy

    studies: dict[str, Callable[..., Any]] = {
        "deeprm-fig4": figures.fig4,
        "deeprm-fig5": figures.fig5,
        "deeprm-fig6": figures.fig6,
        "deeprm-fig7": withheld.fig7,
        "cnn-fig2": cnn.fig2,
        "cnn-fig3": cnn.fig3,
        "a2c-tables": a2c.tables,
    }
    size = {key: values.pop(key) for key in ("budget", "seed", "sets", "policies", "workers")}
    size["workers"] = size["workers"] or 1
    for key, read in (
        ("loads", lambda loads: [load / 100 for load in loads]),
        ("log_load", lambda load: load / 100),
        ("weights", lambda texts: [WEIGHTS.parse(text) for text in texts]),
    ):
        if key in values:
            values[key] = read(values[key])
    return shown(studies[name](GridStudy(**size, command=command, tell=tell), **values), command)
