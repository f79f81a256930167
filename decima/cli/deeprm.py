"""The commands ``decima deeprm``: comparison of schedulers on grids of resources, and training of policies."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.conditions import SettingsCommand
from decima.cli.console import Commands, command_line, report
from decima.cli.options import (
    AT_LEAST_ONE,
    COMPARISON_SEED,
    JSON,
    POLICY_FILE,
    TEXT,
    Numbers,
    option,
    out_option,
    refuse_without_effect,
    secondary,
)
from decima.cli.train import (
    DEVICE,
    explain,
    override,
    run_training,
    settings_source,
    show_training,
    training_command,
    training_options,
)
from decima.progress import PATIENCE_S, progress

if TYPE_CHECKING:
    from rich.table import Table

    from decima.evaluation.grid import GridComparison
    from decima.learning.grid.config import DeepRMConfig
    from decima.learning.metrics import TrainingResult

DEFAULT_RECIPE = "deeprm"
#: Settings of jobs and grid that have options.
SETTINGS = "decima.policy.grid_config:OPTIONS"
SHOWN = ("slowdown", "completion", "waiting")
NUMBERS = Numbers()


@click.group(cls=Commands)
def deeprm() -> None:
    """Schedule jobs on a grid of resources and time: DeepRM, its CNN variant, A2cScheduler."""


@deeprm.command(cls=SettingsCommand, settings=SETTINGS, context_settings={"show_default": True})
@option(
    "--loads A,B,..",
    NUMBERS,
    "Loads, in percent of the capacity.  [default: 10, 30, .. up to the maximum load of the jobs]",
)
@option(
    "--rates A,B,..",
    NUMBERS,
    "Arrival probabilities of a job in a step, each above 0 and at most 1, instead of loads.",
)
@option("--sets", AT_LEAST_ONE, "Number of job sets at each load.", 100)
@option("--seed", COMPARISON_SEED, "Seed of the sets.", 0)
@option(
    "--heuristics A,B,..",
    TEXT,
    "Heuristics: sjf, packer, tetris* (with a knob tuned at each load), tetris:KNOB, random, random:SEED, or "
    "module:Class for a rule of one's own.",
    "sjf,packer,tetris*,random",
)
@option(
    "--checkpoint",
    POLICY_FILE,
    "Policy file of decima deeprm train, compared as deeprm.  [default: the shipped policy]",
)
@secondary(
    "--measure",
    click.Choice(["slowdown", "completion", "waiting", "makespan", "utilisation"]),
    "Measure to show; --json contains all measures.",
    "slowdown",
)
@JSON
@out_option()
@click.pass_context
def compare(
    context: click.Context, /, measure: str, json_file: Path | None, out: Path | None, **options: Any
) -> None:
    """Compare schedulers on DeepRM's grid at several loads.

    Shows the mean slowdown (completion time over duration) of jobs in held-out sets with its 95 % confidence interval,
    as in DeepRM's Figure 4, which --out draws.
    """
    from decima.outputs import prepare_outputs

    ignored = () if options["log"] is None else ("distribution", "rates")
    refuse_without_effect(context, dict.fromkeys(ignored, "jobs are drawn from a log by load"))
    comparison = _comparison(options)
    prepare_outputs(out, json_file)

    from decima.show.grid_report import comparison_notes, comparison_table, plot_by_load
    from decima.show.tables import Report

    with progress(PATIENCE_S) as update:
        comparison.run(lambda done, total: update("Comparing", done, total))
    notes = list(comparison_notes(comparison, measure))
    if not comparison.networks:
        notes.append(
            "deeprm is omitted: no shipped policy fits these jobs; --checkpoint FILE adds another policy."
        )
    by_load = {
        load: comparison.compared[condition]
        for condition, jobs in comparison.conditions.items()
        if condition in comparison.compared  # else its sets have no jobs
        for load in jobs.loads(comparison.grid)
    }
    shown = Report(
        tables=[comparison_table(comparison, measure)],
        notes=notes,
        json=comparison.to_json(command=command_line(context, **dict.fromkeys(ignored))),
        pictures={f"deeprm-{measure}": lambda: plot_by_load(by_load, measure)},
    )
    report(shown, out, json_file)


def _comparison(options: dict[str, Any]) -> GridComparison:
    from decima.policy.archive import read_archive
    from decima.policy.grid_config import OPTIONS
    from workloads.grid_jobs import DISTRIBUTIONS

    if options["checkpoint"] is not None:
        read_archive(options["checkpoint"])  # raises before PyTorch is imported

    from decima.evaluation.grid import SHIPPED_NETWORK, grid_comparison

    distribution, log, machines = options["distribution"], options["log"], options["machines"]
    if options["loads"] is not None and options["rates"] is not None:
        raise click.UsageError("--loads and --rates exclude each other")
    loads = [percent / 100 for percent in NUMBERS.parse(options["loads"])]
    loads += [DISTRIBUTIONS[distribution].load(rate) / machines for rate in NUMBERS.parse(options["rates"])]
    # The shipped policy is for one machine of ten units.
    fits = machines == 1 and (log is not None or distribution != "paper") and SHIPPED_NETWORK.is_file()
    return grid_comparison(
        loads=loads,
        heuristics=[name.strip() for name in options["heuristics"].split(",")],
        network=options["checkpoint"] or (SHIPPED_NETWORK if fits else None),
        sets=options["sets"],
        seed=options["seed"],
        **{name: options[name] for name in OPTIONS},
    )


@deeprm.command(
    cls=SettingsCommand,
    settings=SETTINGS,
    without={"steps", "distribution", "machines", "semantics"},
    context_settings={"show_default": True},
)
@training_options("deeprm, cnn, a2c", DEFAULT_RECIPE)
@DEVICE
@click.pass_context
def train(context: click.Context, /, device: str, **options: Any) -> None:
    """Learn a policy on a grid from a stream of jobs (DeepRM, HotNets 2016).

    Writes to the folder: the best policy on validation sets (policy.npz), all settings (config.yaml), metrics
    (metrics.jsonl, TensorBoard) and a checkpoint. The same settings give the same policy, bit for bit on a CPU, with
    any interruptions. Ctrl-C ends the training early.
    """
    from decima.learning.grid.config import RECIPES, DeepRMConfig
    from decima.policy.archive import read_archive
    from decima.settings import read_settings
    from workloads.sources.swf import read_swf

    source = settings_source(options, DEFAULT_RECIPE)
    named = [] if options["log"] is None else [override("jobs.log", options["log"])]
    config = read_settings(DeepRMConfig, RECIPES, source, [*options["overrides"], *named])
    if options["explain"]:
        from decima.learning.metrics import GRID_METRICS

        explain(config, source, GRID_METRICS)
        return
    if config.start is not None:
        read_archive(Path(config.start))  # raises before PyTorch is imported
    if config.jobs.log is not None:
        click.echo(read_swf(config.jobs.log).summary(), err=True)

    from decima.learning.grid.train import train_on_grid
    from decima.learning.loop import check_resumable

    if options["resume"]:
        check_resumable(options["out"])

    train_this = partial(
        train_on_grid,
        config,
        options["out"],
        resume=options["resume"],
        device=device,
        command=training_command(context, source),
    )
    result = run_training(train_this, context)
    show_training(
        result,
        _table(result),
        ("deeprm is the policy", "sets"),
        "tetris* has the best knob on the training sets.",
        _compare_command(result),
        context,
    )


def _compare_command(result: TrainingResult[DeepRMConfig]) -> list[str]:
    """Return the command that compares the policy on the grid and the jobs of its training.

    The command is empty if ``decima deeprm compare`` has no grid of this size.
    """
    from decima.evaluation.grid import LOG_UNITS
    from simulator.grid.config import DEEPRM
    from workloads.grid_jobs import DISTRIBUTIONS

    grid, jobs = result.config.grid, result.config.jobs
    if grid.units != (DISTRIBUTIONS[jobs.distribution].slots if jobs.log is None else LOG_UNITS):
        return []
    words = ["decima", "deeprm", "compare", "--checkpoint", str(result.policy_file)]
    words += ["--distribution", jobs.distribution] if jobs.log is None and jobs.distribution != "code" else []
    words += [] if jobs.log is None else ["--log", str(jobs.log)]
    words += ["--machines", str(grid.machines)] if grid.machines > 1 else []
    return words + (["--semantics", "deeprm"] if grid.semantics == DEEPRM else [])


def _table(result: TrainingResult[DeepRMConfig]) -> Table:
    from decima.show.tables import table_of

    title = f"{result.config.validation.sets} validation sets, means over their jobs; times are steps"
    rows = ((name, *(each[measure] for measure in SHOWN)) for name, each in result.results.items())
    return table_of(title, ("Scheduler", *SHOWN), rows, ".2f", bold={"deeprm"})
