"""The commands ``decima reproduce NAME`` of the studies on grids. The studies are in the modules beside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.reproduce_run import (
    BUDGET,
    JSON,
    OUT,
    POLICIES,
    Shown,
    policies_folder,
    run_study,
    study_command,
)

if TYPE_CHECKING:
    from decima.studies.grid.report import GridOutcome
    from decima.studies.grid.study import GridStudy
    from decima.studies.trainings import Tell

__all__ = ["GRID_COMMANDS"]

_SHARED = (
    BUDGET,
    click.option(
        "--sets", type=click.IntRange(min=2), default=100, help="Unseen sets of jobs to compare on."
    ),
    click.option(
        "--seed", type=click.IntRange(0, 999_999), default=0, help="Names the sets; of trainings too."
    ),
    POLICIES,
    JSON,
    OUT,
)
_PERCENT = click.FloatRange(min=0, min_open=True)


def _command(*own: Callable[[Any], Any]) -> Callable[[Callable[..., None]], click.Command]:
    """A command with its own options, then those that all these studies share."""
    return study_command(*own, *_SHARED)


@_command(
    click.option(
        "--load",
        "loads",
        type=_PERCENT,
        multiple=True,
        help="Load in percent; may be given several times.  [default: 10, 30, .. 170, 184.5]",
    )
)
def fig4(context: click.Context, /, loads: tuple[float, ...], **options: Any) -> None:
    """Compare DeepRM with heuristics as the load grows.

    A network is trained at each load (DeepRM, Figure 4). About 60 minutes of CPU time.
    """
    from decima.studies.grid import figures

    _run(context, options, partial(figures.fig4, loads=[load / 100 for load in loads]))


@_command()
def fig5(context: click.Context, /, **options: Any) -> None:
    """Compare networks that learned for slowdown and for completion time.

    At a load of 130 % (DeepRM, Figure 5). About 15 minutes of CPU time.
    """
    from decima.studies.grid import figures

    _run(context, options, figures.fig5)


@_command()
def fig6(context: click.Context, /, **options: Any) -> None:
    """Show how fast DeepRM learns.

    At a load of 70 % (DeepRM, Figure 6). About 10 minutes of CPU time.
    """
    from decima.studies.grid import figures

    _run(context, options, figures.fig6)


@_command()
def fig7(context: click.Context, /, **options: Any) -> None:
    """Show which jobs DeepRM withholds, and whom that helps.

    At a load of 110 % (DeepRM, Figure 7). About 7 minutes of CPU time.
    """
    from decima.studies.grid import withheld

    _run(context, options, withheld.fig7)


def _weights(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what is not three numbers."""
    for text in texts:
        _three(text)
    return texts


def _three(text: str) -> tuple[float, float, float]:
    try:
        alpha, beta, gamma = (float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected three numbers with commas between them") from None
    return alpha, beta, gamma


@_command(
    click.option(
        "--weights",
        metavar="A,B,C",
        multiple=True,
        default=("1,1,2", "0.5,1,1"),
        callback=_weights,
        help="alpha, beta and gamma of a reward to try; may be given several times.",
    )
)
def cnn_fig2(context: click.Context, /, weights: tuple[str, ...], **options: Any) -> None:
    """Compare a convolution, the reshaped state and reward weights with DeepRM.

    On jobs at a load of 70 % (Chen, Xu and Wu, 2017, Figure 2). About 10 minutes of CPU time.
    """
    from decima.studies.grid import cnn

    _run(context, options, partial(cnn.fig2, weights=[_three(text) for text in weights]))


@_command()
def cnn_fig3(context: click.Context, /, **options: Any) -> None:
    """Compare a network for two machines with heuristics.

    At a load of 70 % of both (Chen, Xu and Wu, 2017, Figure 3). About 8 minutes of CPU time.
    """
    from decima.studies.grid import cnn

    _run(context, options, cnn.fig3)


@_command(
    click.option(
        "--log",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Compare on this log in Standard Workload Format too.",
    ),
    click.option(
        "--log-load", type=_PERCENT, default=70.0, help="Load in percent that the log is resampled to."
    ),
)
def a2c_tables(context: click.Context, /, log: Path | None, log_load: float, **options: Any) -> None:
    """Compare actor-critic training with heuristics at four rates of arrival.

    Slowdown, completion and waiting time; architectures; a real log (A2cScheduler, 2020). About 25 minutes of CPU
    time.
    """
    from decima.studies.grid import a2c

    _run(context, options, partial(a2c.tables, log=log, log_load=log_load / 100))


#: Name -> command.
GRID_COMMANDS: dict[str, click.Command] = {
    "deeprm-fig4": fig4,
    "deeprm-fig5": fig5,
    "deeprm-fig6": fig6,
    "deeprm-fig7": fig7,
    "cnn-fig2": cnn_fig2,
    "cnn-fig3": cnn_fig3,
    "a2c-tables": a2c_tables,
}


def _run(context: click.Context, options: dict[str, Any], study: Callable[[GridStudy], GridOutcome]) -> None:
    def found(command: str, tell: Tell) -> Shown:
        from decima.studies.grid.report import shown
        from decima.studies.grid.study import GridStudy

        size = {name: options[name] for name in ("budget", "seed", "sets")}
        outcome = study(GridStudy(**size, policies=policies_folder(options), command=command, tell=tell))
        return shown(outcome, command)

    run_study(context, options, found)
