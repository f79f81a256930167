"""The command ``decima train``, and shared functions of all training commands."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import click

from decima.cli.console import INTERRUPTED, command_line, command_words, end, make_console, print_line
from decima.cli.options import (
    FLAG,
    PATH,
    TEXT,
    WORKERS,
    Option,
    option,
    secondary,
    with_options,
    workload_named,
    workload_options,
)
from decima.show.visible import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from decima.learning.cluster.config import TrainingConfig
    from decima.learning.metrics import TrainingResult
    from decima.settings import RunConfig, Section

DEFAULT_RECIPE = "batch"

Config = TypeVar("Config", bound="RunConfig")

DEVICE = secondary("--device", TEXT, "Device for updates: cpu or cuda. Episodes run on CPUs.", "cpu")


def _needed_to_train(context: click.Context, option: click.Parameter, value: Path | None) -> Path | None:
    if value is None and not context.params.get("explain"):
        raise click.MissingParameter(ctx=context, param=option)
    return value


def training_options(recipes: str, default: str, *jobs: Option) -> Option:
    """Return the options ``--config``, ``--set``, ``--resume``, ``--out`` and ``--explain`` of a training.

    ``jobs`` are further options, for the jobs.
    """
    return with_options(
        option(
            "--config FILE.yaml|RECIPE",
            TEXT,
            f"Settings of the training: a file, or a recipe ({recipes}).  [default: {default}]",
        ),
        option(
            "--set KEY=VALUE",
            TEXT,
            "Override a setting, such as iterations=100; may be given several times.",
            name="overrides",
            multiple=True,
        ),
        *jobs,
        secondary(
            "--out FOLDER",
            PATH,
            "Folder for policy, checkpoint, metrics.  [required]",
            callback=_needed_to_train,
        ),
        secondary(
            "--resume",
            FLAG,
            "Resume the training in the folder --out, which must contain one, by default with its settings.",
        ),
        secondary(
            "--explain",
            FLAG,
            "Show all settings with their values in the file or recipe, and all metrics, then exit.",
            is_eager=True,
        ),
    )


def settings_source(options: Mapping[str, Any], default: str) -> str | Path:
    """Return the source of the settings: ``--config``, the folder of a training to resume, or the default recipe."""
    if options["config"] is not None or not options["resume"]:
        return default if options["config"] is None else options["config"]
    from decima.learning.loop import CONFIG

    source: Path = options["out"] / CONFIG
    if not source.exists():
        raise click.UsageError(f"{options['out']}: contains no training run to resume")
    return source


def override(key: str, value: object) -> str:
    """Return a value of ``--set``, quoted so that a text may contain any characters."""
    return f"{key}={json.dumps(None if value is None else str(value))}"


@click.command(context_settings={"show_default": True})
@training_options(
    "quick, batch, stream, mixed, search, few, errors, makespan, deadlines, weights, paper, general, packing, trace",
    DEFAULT_RECIPE,
    workload_options("the workload of the settings"),
)
@DEVICE
@WORKERS
@click.pass_context
def train(context: click.Context, /, device: str, workers: int | str | None, **options: Any) -> None:
    """Learn a scheduling policy from a workload (Decima, SIGCOMM 2019).

    Writes to the folder: the best policy on validation sequences (policy.npz), all settings (config.yaml), metrics
    (metrics.jsonl, TensorBoard) and a checkpoint. The same settings give the same policy, bit for bit on a CPU, with
    any number of workers and interruptions. Ctrl-C ends the training early, and --resume continues it. The recipe quick
    takes less than two minutes.
    """
    from decima.learning.cluster.config import read_config
    from decima.policy.files import load_actor

    workload = workload_named(options["workload"], options["profiles"])
    source = settings_source(options, DEFAULT_RECIPE)
    config = read_config(source, options["overrides"], workload=workload)  # before PyTorch is imported
    if options["explain"]:
        from decima.learning.metrics import CLUSTER_METRICS

        explain(config, source, CLUSTER_METRICS)
        return

    if config.start is not None:
        load_actor(config.start)  # raises before PyTorch is imported

    from decima.learning.cluster.train import train_policy
    from decima.workers import available_cpus

    note = (
        "tuned-weighted-fair has the best alpha of each sequence, known only in hindsight; ± is half a 95 % confidence "
        "interval (Student's t) of paired differences."
    )
    if config.settings is not None:
        note = (
            "The kept policy is the best on average among policies without a significant loss in any setting."
        )
    out = options["out"]
    train_this = partial(
        train_policy,
        config,
        out,
        resume=options["resume"],
        device=device,
        workers=workers or available_cpus(),
        command=training_command(context, source),
    )
    result = run_training(train_this, context)
    show_training(
        result,
        _table(result) if config.settings is None else _grid_table(result),
        ("decima is the policy", "sequences"),
        note,
        _compare_command(result),
        context,
    )


def _table(result: TrainingResult[TrainingConfig]) -> Table:
    import numpy as np

    from decima.evaluation.metrics import mean_interval
    from decima.learning.metrics import objective_title
    from decima.show.tables import table_of

    what = objective_title(result.config.cluster.reward)
    title = f"{result.config.validation.sequences} validation sequences, s"
    rows = (
        (name, mean_interval(np.divide(values, 1000)), _change_text(result, name))
        for name, values in result.results.items()
    )
    headings = ("Scheduler", what[0].upper() + what[1:], f"decima's {what} is")
    return table_of(title, headings, rows, ".1f", bold={"decima"})


def _change_text(result: TrainingResult[TrainingConfig], name: str) -> str:
    """Describe the relative change of decima's paired results against a scheduler's; empty for decima."""
    from decima.evaluation.metrics import paired_change
    from decima.show.tables import interval_text

    change = paired_change(result.results["decima"], result.results[name])
    # The cost of missed deadlines is 0 if no deadline is missed.
    if name == "decima" or math.isnan(change.mean):
        return ""
    size = interval_text(change._replace(mean=abs(change.mean)), ".1%")
    is_time = result.config.cluster.reward in ("jct", "makespan")
    more, less = ("longer", "shorter") if is_time else ("higher", "lower")
    return f"{size} {more if change.mean > 0 else less}"


def _grid_table(result: TrainingResult[TrainingConfig]) -> Table:
    from decima.learning.cluster.randomised import by_cell, validation_settings
    from decima.learning.metrics import objective_title
    from decima.show.tables import table_of

    validation, settings = result.config.validation, result.config.settings
    assert settings is not None
    what = objective_title(result.config.cluster.reward)
    title = f"{validation.cells} settings, {validation.sequences} sequences each: {what}, s"
    names = (validation.against, "decima")
    reference, learned = (by_cell(result.results[name], validation.cells) / 1000 for name in names)
    cells = validation_settings(settings, validation.cells)
    rows = zip(cells, reference, learned, learned / reference - 1, strict=True)
    return table_of(title, ("Setting", *names, "Change"), rows, (".2f", ".2f", "+.1%"))


def _compare_command(result: TrainingResult[TrainingConfig]) -> list[str]:
    """Return the command that compares the policy on the cluster and workload of its training."""
    from decima.evaluation.conditions import SETTINGS
    from decima.evaluation.fit import JUDGED_BY
    from decima.policy.parts import custom_parts
    from workloads.quantities import to_outside

    cluster, workload = result.config.cluster, result.config.workload
    parts = custom_parts(result.config.policy.build())
    modules = {part.name.partition(":")[0]: None for part in parts}
    words = ["decima", *(word for module in modules for word in ("--allow-parts", module))]
    words += ["compare", "--checkpoint", str(result.policy_file)]
    if result.config.settings is not None:
        return words
    suited = JUDGED_BY.get(cluster.reward.partition(":")[0])
    words += [] if suited is None else ["--objective", suited[0]]
    option_values = to_outside(cluster) | to_outside(workload)
    option_values |= {"workload": option_values["file"], "interval": fmean(workload.intervals_ms) / 1000}
    without = set() if option_values["classes"] is None else {"executors"}
    without |= set() if workload.arrivals == "poisson" else {"interval"}
    if workload.file is not None and workload.read().sequence is not None:
        without |= {"arrivals", "interval", "jobs"}  # the file contains the arrivals
    if option_values["profiles"] is not None:
        words += ["--profiles", option_values["profiles"]]
    for name, quantity in SETTINGS.items():
        value = option_values.get(name)
        shown = name in ("executors", "jobs", "interval") or value != quantity.default
        if shown and value is not None and name not in without:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    return words


# ---- shared by training commands ---------------------------------------------------------------------------


def training_command(context: click.Context, source: object) -> str:
    """Return the command line for the policy file; ``source``: recipe or file of the settings."""
    if context.params["resume"] and context.params["config"] is None:
        return command_line(context, resume=True, out="DIR")
    return command_line(context, config=source, resume=context.params["resume"], out="DIR")


def explain(settings: Section, source: object, metrics: Mapping[str, str]) -> None:
    """Print all settings with their values in a file or recipe, and all metrics."""
    from rich.table import Table

    from decima.cli.settings_table import describe_settings

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


def run_training(
    train: Callable[[], TrainingResult[Config]], context: click.Context
) -> TrainingResult[Config]:
    """Run a training, which shows its progress; Ctrl-C before there is a policy ends the program."""
    from decima.learning.loop import CONFIG

    try:
        return train()
    except KeyboardInterrupt:
        if not (context.params["out"] / CONFIG).exists():
            raise
        end(f"interrupted before there was a policy; {_how_to_resume(context)}", INTERRUPTED)


def _how_to_resume(context: click.Context) -> str:
    words = [*command_words(context), "--resume", "--out", str(context.params["out"])]
    return f"to resume: {shlex.join(words)}"


def show_training(
    result: TrainingResult[Any],
    table: Table,
    names: tuple[str, str],
    note: str,
    command: Sequence[str],
    context: click.Context,
) -> None:
    """Show the result of a training, and end the program if the training was interrupted.

    ``names`` describe the policy and the validation set; ``command`` compares the policy on other jobs, and is empty if
    no command can.
    """
    from decima.outputs import atomic_path
    from decima.settings import TrainingError

    make_console().print(table)
    what, judges = names
    print_line(
        f"{what} after {result.best_iteration} of {result.iteration} iterations, the best on these {judges}; "
        f"{result.cpu_s / 60:.1f} minutes of CPU time."
    )
    print_line(note)
    curve = context.params["out"] / "learning-curve.png"
    try:
        figure = _draw_curve(context.params["out"])
    except TrainingError as error:  # metrics of earlier iterations are damaged, the policy is not
        print_line(f"No learning curve: {error}")
    else:
        with atomic_path(curve) as path:
            figure.savefig(path, format="png")
        print_line(f"Learning curve: {curve}")
    if command:
        print_line(f"To compare the policy on other {judges}:\n  {shlex.join(command)}")
    if result.interrupted:
        done = f"{result.iteration} of {result.config.iterations} iterations"
        end(f"interrupted after {done}; {_how_to_resume(context)}", INTERRUPTED)


def _draw_curve(out: Path) -> Figure:
    from decima.learning.curves import curve_of, objective_metric, read_run, reference_of
    from decima.show.learning import plot_curves

    run = read_run(out)
    metric = objective_metric(run)
    return plot_curves({"policy": curve_of([run], metric)}, metric, reference_of([run], metric))
