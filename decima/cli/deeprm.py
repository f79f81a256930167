"""The commands ``decima deeprm``: flat grids of resources, their heuristics, and networks that learn on them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from decima.cli.console import INTERRUPTED, end, library_errors, make_console
from decima.cli.deeprm_compare import compare
from decima.cli.training import command_line, explain, progress, quoted, settings_source, training_options

if TYPE_CHECKING:
    from rich.table import Table

    from decima.learning.grid.config import DeepRMConfig
    from decima.learning.loop import TrainingResult

__all__ = ["deeprm"]

DEFAULT_RECIPE = "deeprm"
AGAINST = "the best heuristic"
SHOWN = ("slowdown", "completion", "waiting")


@click.group()
def deeprm() -> None:
    """Book jobs on a grid of resources and time: DeepRM, its CNN variant, A2cScheduler."""


deeprm.add_command(compare)


def _explain() -> None:
    from decima.learning.grid.config import DeepRMConfig
    from decima.learning.grid.metrics import METRICS

    explain(DeepRMConfig, METRICS)


@deeprm.command(context_settings={"show_default": True})
@training_options("deeprm, cnn, a2c", DEFAULT_RECIPE, _explain)
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Draw jobs from this log in Standard Workload Format (jobs.log).",
)
def train(out: Path, resume: bool, config: str | None, overrides: tuple[str, ...], log: Path | None) -> int:
    """Learn to book jobs from a stream of them (DeepRM, HotNets 2016).

    The folder gets the network that is best on job sets that no training meets (policy.npz), all settings
    (config.yaml), metrics (metrics.jsonl, TensorBoard) and a checkpoint to go on from. The same settings give
    the same network, bit for bit, however often the run was cut off. Ctrl-C ends it early.
    """
    with library_errors():
        from decima.learning.grid.config import RECIPES, DeepRMConfig
        from decima.learning.grid.trainer import DeepRMTrainer
        from decima.settings import read_settings

        source = settings_source(config, out, resume, DEFAULT_RECIPE)
        named = [] if log is None else [f"jobs.log={quoted(log)}"]
        settings = read_settings(DeepRMConfig, RECIPES, source, [*overrides, *named])
        command = command_line(
            ["decima", "deeprm", "train"], config or DEFAULT_RECIPE, overrides, {"log": log}
        )
        if settings.jobs.log is not None:
            from workloads import read_swf

            click.echo(read_swf(settings.jobs.log).summary(), err=True)
        trainer = DeepRMTrainer(settings, out, resume=resume, command=command)
        with progress(settings.iterations, AGAINST, _measured) as tell:
            result = trainer.run(*tell)
    make_console().print(_table(result))
    for line in _notes(result):
        click.echo(line)
    if result.interrupted:
        done = f"{result.iteration} of {settings.iterations} iterations"
        end(f"interrupted after {done}; --resume goes on", INTERRUPTED)
    return 0


def _measured(metrics: Mapping[str, float]) -> Sequence[str]:
    """An iteration, in words."""
    parts = []
    if "slowdown" in metrics:
        parts.append(f"training slowdown {metrics['slowdown']:.2f}, entropy {metrics['entropy']:.2f}")
    if "improvement" in metrics:
        parts.append(
            f"validation slowdown {metrics['validation_slowdown']:.2f}, "
            f"completion {metrics['validation_completion']:.1f} steps"
        )
    return parts


def _table(result: TrainingResult[DeepRMConfig]) -> Table:
    from decima.show.tables import new_table

    title = f"{result.config.validation.sets} validation sets, means over their jobs; times are steps"
    table = new_table(title, "Scheduler", *SHOWN)
    for name, measures in result.results.items():
        values = [f"{measures[measure]:.2f}" for measure in SHOWN]
        table.add_row(name, *values, style="bold" if name == "deeprm" else None)
    return table


def _notes(result: TrainingResult[DeepRMConfig]) -> Sequence[str]:
    compare = ["decima", "deeprm", "compare", "--checkpoint", str(result.policy_file)]
    return (
        f"deeprm is the network after {result.best_iteration} of {result.iteration} iterations, the best on these "
        f"sets; {result.cpu_s / 60:.1f} minutes of CPU time.",
        "tetris* has the knob that is best on the training sets.",
        "On sets that had no say in the choice:",
        f"  {shlex.join(compare)}",
    )
