"""The command ``decima train``, and what commands that train have in common."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import click

from decima.cli.console import INTERRUPTED, command_line, end, make_console, progress, say
from decima.cli.options import (
    DEVICE,
    WORKERS,
    override,
    settings_source,
    training_options,
    workload_keys,
    workload_named,
    workload_options,
)

if TYPE_CHECKING:
    from rich.table import Table

    from decima.learning.cluster.config import TrainingConfig
    from decima.learning.config import RunConfig
    from decima.learning.loop import IterationReport, TrainingLoop, TrainingResult
    from decima.settings import Section

__all__ = ["explain", "show_training", "train", "training_command", "watch"]

DEFAULT_RECIPE = "batch"

Config = TypeVar("Config", bound="RunConfig")


@click.command(context_settings={"show_default": True})
@training_options(
    "batch, stream, makespan, paper, general, packing, trace",
    DEFAULT_RECIPE,
    workload_options("what the settings say"),
)
@DEVICE
@WORKERS
@click.pass_context
def train(context: click.Context, /, device: str, workers: int | str | None, **options: Any) -> None:
    """Learn a scheduling policy from a workload (Decima, SIGCOMM 2019).

    The folder gets the policy that is best on sequences that no training meets (policy.npz), all settings
    (config.yaml), metrics (metrics.jsonl, TensorBoard) and a checkpoint to go on from. The same settings give
    the same policy, bit for bit on a CPU, whoever runs the episodes and however often the run was cut off.
    Ctrl-C ends it early.
    """
    from decima.learning.cluster.config import read_config

    workload = workload_named(options["workload"], options["profiles"])
    keys = workload_keys(workload)
    named = [] if workload is None else [("workload.profiles", "profiles"), ("workload.file", "file")]
    source = settings_source(options, DEFAULT_RECIPE)
    overrides = [*options["overrides"], *(override(key, keys.get(name)) for key, name in named)]
    config = read_config(source, overrides)  # before PyTorch is imported
    if options["explain"]:
        from decima.learning.cluster.metrics import METRICS

        explain(config, source, METRICS)
        return

    from decima.evaluation.workers import available_cpus
    from decima.learning.cluster.trainer import Trainer

    def describe(metrics: Mapping[str, float]) -> Sequence[str]:
        parts = []
        if "jct_s" in metrics:
            parts.append(f"training JCT {metrics['jct_s']:.1f} s, entropy {metrics.get('entropy', 0):.2f}")
        if "validation_change_mean" in metrics:
            parts.append(f"validation change {metrics['validation_change_mean']:+.1%} on average")
        elif "improvement" in metrics:
            reward = config.cluster.reward
            objective = reward.upper() if reward == "jct" else reward
            parts.append(f"validation {objective} {metrics[f'validation_{reward}_s']:.1f} s")
        return parts

    against, knob = (
        "tuned weighted fair",
        "tuned-weighted-fair has the best alpha of each sequence, known only in hindsight.",
    )
    if config.settings is not None:
        against = f"{config.validation.against} over the settings"
        knob = "The policy was kept that is best on average and nowhere worse for certain."
    command, resume = training_command(context, source), options["resume"]
    result = watch(
        Trainer(
            config,
            options["out"],
            resume=resume,
            device=device,
            workers=workers or available_cpus(),
            command=command,
        ),
        against,
        describe,
    )
    show_training(
        result,
        _table(result) if config.settings is None else _grid_table(result),
        ("decima is the policy", "sequences"),
        knob,
        _compare_command(result),
    )


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


def _grid_table(result: TrainingResult[TrainingConfig]) -> Table:
    from decima.learning.cluster.settings import by_cell
    from decima.show.tables import new_table

    validation, settings = result.config.validation, result.config.settings
    assert settings is not None
    what = "makespan" if result.config.cluster.reward == "makespan" else "mean JCT"
    title = f"{validation.cells} settings, {validation.sequences} sequences each: {what}, s"
    table = new_table(title, "Setting", validation.against, "decima", "Change")
    reference, own = (
        by_cell(result.results[name], validation.cells) / 1000 for name in (validation.against, "decima")
    )
    for setting, theirs, ours in zip(settings.cells(validation.cells), reference, own, strict=True):
        table.add_row(str(setting), f"{theirs:.2f}", f"{ours:.2f}", f"{ours / theirs - 1:+.1%}")
    return table


def _compare_command(result: TrainingResult[TrainingConfig]) -> list[str]:
    """How to compare the policy on the cluster and workload that it was trained on."""
    cluster, workload = result.config.cluster, result.config.workload
    words = ["decima", "compare", "--checkpoint", str(result.policy_file)]
    if result.config.settings is not None:
        return words
    words += ["--classes", cluster.classes] if cluster.classes else ["--executors", str(cluster.executors)]
    for option, value, default in (
        ("--memory-demand", workload.memory_demand, "own"),
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


# ---- what commands that train have in common ---------------------------------------------------------------


def training_command(context: click.Context, source: object) -> str:
    """The command line for a policy to keep.

    Args:
        context: of the command.
        source: where the settings come from.
    """
    if context.params["resume"] and context.params["config"] is None:
        return command_line(context, resume=True, out="DIR")
    return command_line(context, config=source, resume=context.params["resume"], out="DIR")


def explain(settings: Section, source: object, metrics: Mapping[str, str]) -> None:
    """Show all settings, with their values in a file or recipe, and all metrics."""
    from rich.table import Table

    from decima.outputs import visible
    from decima.settings import describe_settings

    console = make_console()
    for headings, rows in (
        (("setting", f"in {source}", "meaning"), describe_settings(type(settings), settings)),
        (("metric", "meaning"), list(metrics.items())),
    ):
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in headings:
            table.add_column(visible(heading), no_wrap=heading != "meaning")
        for row in rows:
            table.add_row(*map(visible, row))
        console.print(table)
        console.print()


def watch(
    trainer: TrainingLoop[Config], against: str, describe: Callable[[Mapping[str, float]], Sequence[str]]
) -> TrainingResult[Config]:
    """Run a training and show how far it is.

    Args:
        trainer: of the training.
        against: whom the policy is compared with.
        describe: an iteration's metrics, in words.
    """

    def versus(improvement: float) -> str:
        return f"{abs(improvement):.1%} {'better' if improvement >= 0 else 'worse'} than {against}"

    with progress() as tell:

        def on_iteration(report: IterationReport) -> None:
            validated, best = "improvement" in report.metrics, f"best: {versus(report.improvement)}"
            parts = [f"{report.iteration}/{report.iterations}", *describe(report.metrics)]
            if validated:
                parts[-1] += f", {versus(report.metrics['improvement'])}"
            line = "; ".join([*parts, best])
            tell("training", report.iteration, report.iterations, note=best, line=line, now=validated)

        total = trainer.config.iterations
        return trainer.run(on_iteration, lambda words: tell(words, 0, total, line=words, now=True))


def show_training(
    result: TrainingResult[Any], table: Table, who: tuple[str, str], knob: str, again: Sequence[str]
) -> None:
    """Show what came of a training; ends the program if it was interrupted.

    Args:
        result: of the training.
        table: schedulers on what was validated on.
        who: was trained, and on what it was validated.
        knob: what is to be known of a scheduler of the table.
        again: the command that compares on something else.
    """
    make_console().print(table)
    what, judges = who
    say(
        f"{what} after {result.best_iteration} of {result.iteration} iterations, the best on these {judges}; "
        f"{result.cpu_s / 60:.1f} minutes of CPU time."
    )
    say(knob)
    say(f"On {judges} that had no say in the choice:\n  {shlex.join(again)}")
    if result.interrupted:
        done = f"{result.iteration} of {result.config.iterations} iterations"
        end(f"interrupted after {done}; --resume goes on", INTERRUPTED)
