"""The command ``decima train``: learn a policy, show how it does, go on with a run that was cut off."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import INTERRUPTED, end, library_errors, make_console
from decima.cli.training import command_line, explain, progress, quoted, settings_source, training_options

if TYPE_CHECKING:
    from rich.table import Table

    from decima.learning.cluster.config import TrainingConfig
    from decima.learning.loop import TrainingResult

__all__ = ["train"]

DEFAULT_RECIPE = "batch"
AGAINST = "tuned weighted fair"


def _explain() -> None:
    from decima.learning.cluster.config import TrainingConfig
    from decima.learning.cluster.metrics import METRICS

    explain(TrainingConfig, METRICS)


@click.command(context_settings={"show_default": True})
@training_options("batch, stream, makespan, paper", DEFAULT_RECIPE, _explain)
@click.option(
    "--profiles",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Draw jobs from the published TPC-H profiles in this folder (workload.profiles).",
)
@click.option(
    "--workload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Draw jobs from the profiles of this file, or replay its jobs (workload.file).",
)
@click.option(
    "--device", default="cpu", help="Where updates are computed: cpu or cuda. Episodes run on CPUs."
)
@click.option("--processes", type=click.IntRange(min=1), default=1, help="Processes that run episodes.")
def train(out: Path, resume: bool, device: str, processes: int, **options: Any) -> int:
    """Learn a scheduling policy from a workload (Decima, SIGCOMM 2019).

    The folder gets the policy that is best on sequences that no training meets (policy.npz), all settings
    (config.yaml), metrics (metrics.jsonl, TensorBoard) and a checkpoint to go on from. The same settings give
    the same policy, bit for bit on a CPU, however many processes there are and however often the run was cut
    off. Ctrl-C ends it early.
    """
    with library_errors():
        from decima.learning.cluster.trainer import Trainer

        config = _config(out, resume, options)
        trainer = Trainer(
            config, out, resume=resume, device=device, processes=processes, command=_command_line(options)
        )
        with progress(config.iterations, AGAINST, lambda metrics: _measured(config, metrics)) as tell:
            result = trainer.run(*tell)
    make_console().print(_table(result))
    for line in _notes(result):
        click.echo(line)
    if result.interrupted:
        done = f"{result.iteration} of {config.iterations} iterations"
        end(f"interrupted after {done}; --resume goes on", INTERRUPTED)
    return 0


def _config(out: Path, resume: bool, options: dict[str, Any]) -> TrainingConfig:
    from decima.learning.cluster.config import read_config

    overrides: list[str] = list(options["overrides"])
    if options["profiles"] is not None:
        overrides.append(f"workload.profiles={quoted(options['profiles'])}")
    if options["workload"] is not None:
        overrides.append(f"workload.file={quoted(options['workload'])}")
    return read_config(settings_source(options["config"], out, resume, DEFAULT_RECIPE), overrides)


def _command_line(options: dict[str, Any]) -> str:
    paths = {name: options[name] for name in ("profiles", "workload")}
    return command_line(
        ["decima", "train"], str(options["config"] or DEFAULT_RECIPE), options["overrides"], paths
    )


def _measured(config: TrainingConfig, metrics: Mapping[str, float]) -> Sequence[str]:
    """An iteration, in words."""
    parts = []
    if "jct_s" in metrics:
        parts.append(f"training JCT {metrics['jct_s']:.1f} s, entropy {metrics.get('entropy', 0):.2f}")
    if "improvement" in metrics:
        reward = config.cluster.reward
        objective = reward.upper() if reward == "jct" else reward
        parts.append(f"validation {objective} {metrics[f'validation_{reward}_s']:.1f} s")
    return parts


def _table(result: TrainingResult[TrainingConfig]) -> Table:
    import numpy as np

    from decima.evaluation.intervals import mean_interval
    from decima.show.tables import interval_text, new_table

    what = "Makespan" if result.config.cluster.reward == "makespan" else "Mean JCT"
    title = f"{result.config.validation.sequences} validation sequences, s"
    table = new_table(title, "Scheduler", what, "decima is shorter by")
    own = fmean(result.results["decima"])
    for name, values in result.results.items():
        mean = interval_text(mean_interval(np.divide(values, 1000)))
        shorter = "" if name == "decima" else f"{1 - own / fmean(values):.1%}"
        table.add_row(name, mean, shorter, style="bold" if name == "decima" else None)
    return table


def _notes(result: TrainingResult[TrainingConfig]) -> Sequence[str]:
    return (
        f"decima is the policy after {result.best_iteration} of {result.iteration} iterations, the best on these "
        f"sequences; {result.cpu_s / 60:.1f} minutes of CPU time.",
        "tuned-weighted-fair has the best alpha of each sequence, known only in hindsight.",
        "On sequences that had no say in the choice:",
        f"  {shlex.join(_compare_command(result))}",
    )


def _compare_command(result: TrainingResult[TrainingConfig]) -> list[str]:
    """How to compare the policy on the cluster and workload that it was trained on."""
    cluster, workload = result.config.cluster, result.config.workload
    words = ["decima", "compare", "--checkpoint", str(result.policy_file)]
    words += ["--executors", str(cluster.executors)]
    for option, value, default in (
        ("--moving-delay", cluster.moving_delay, type(cluster).model_fields["moving_delay"].default),
        ("--semantics", cluster.semantics, type(cluster).model_fields["semantics"].default),
        ("--profiles", workload.profiles, None),
        ("--workload", workload.file, None),
    ):
        if value != default:
            words += [option, str(value)]
    if workload.file is not None and workload.read().sequence is not None:
        return words  # the file says which jobs arrive when
    if workload.arrivals == "poisson":
        words += ["--arrivals", "poisson", "--interval", f"{fmean(workload.intervals):g}"]
    return [*words, "--jobs", str(workload.jobs)]
