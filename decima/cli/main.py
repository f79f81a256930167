"""The command ``decima``. It parses, shows and saves; what it shows is computed elsewhere in the library.

Modules that take long to import are imported inside the commands, so that ``decima --help`` is quick.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from decima.cli.console import INTERRUPTED, OneLineErrors, chosen_workload, end, library_errors, make_console
from decima.cli.deeprm import deeprm
from decima.cli.reproduce import reproduce
from decima.cli.train import train
from decima.cli.workload import workload as workload_commands

if TYPE_CHECKING:
    from decima.evaluation.comparison import Comparison
    from decima.evaluation.conditions import Conditions

__all__ = ["cli", "main"]

DEFAULT_SCHEDULERS = "fifo,sjf-cp,fair,naive-weighted-fair,weighted-fair,tuned-weighted-fair,decima"
#: Options that change what a command shows or how fast, never its results.
PRESENTATION = ("processes", "json_file", "out", "engine")


@click.group(cls=OneLineErrors, invoke_without_command=True)
@click.version_option(package_name="decima", message="decima %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Schedule data-processing clusters: simulate them, compare schedulers, learn better ones."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli.add_command(deeprm)
cli.add_command(reproduce)
cli.add_command(train)
cli.add_command(workload_commands)


def main() -> NoReturn:
    """Entry point of the command ``decima``."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may lack a character
    sys.exit(cli(prog_name="decima"))


@cli.command()
def schedulers() -> None:
    """List the schedulers that come with the project."""
    from rich.table import Table

    from decima.show.report import scheduler_summaries

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    for name, summary in scheduler_summaries().items():
        table.add_row(name, summary)
    make_console().print(table)


@cli.command(context_settings={"show_default": True})
@click.option(
    "--profiles",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Draw jobs from the published TPC-H profiles in this folder.",
)
@click.option(
    "--workload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Draw jobs from the profiles of this file; if it says which jobs arrive when, replay them just so, "
    "each experiment with other task noise.  [default: TPC-H, measured on Spark]",
)
@click.option(
    "--arrivals", type=click.Choice(["batch", "poisson"]), default="batch", help="When jobs arrive."
)
@click.option("--interval", type=float, default=25.0, help="Mean seconds between Poisson arrivals.")
@click.option("--jobs", type=click.IntRange(min=1), default=20, help="Jobs in each experiment.")
@click.option("--executors", type=click.IntRange(min=1), default=50, help="Executors of the cluster.")
@click.option(
    "--moving-delay",
    type=click.FloatRange(min=0),
    default=2.0,
    help="Seconds that an executor needs to move to another job.",
)
@click.option(
    "--semantics",
    type=click.Choice(["paper", "decima-sim"]),
    default="paper",
    help="Spark as the Decima paper or as its published simulator models it.",
)
@click.option(
    "--schedulers",
    "scheduler_names",
    default=DEFAULT_SCHEDULERS,
    metavar="A,B,..",
    help="What to compare: names that 'decima schedulers' lists, or module:Class for your own.",
)
@click.option(
    "--checkpoint",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare decima too, with the policy in this file.  [default: a policy that ships, by workload and arrivals]",
)
@click.option("--seeds", type=click.IntRange(min=1), default=20, help="Number of experiments.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the first experiment.")
@click.option("--training", type=click.IntRange(min=1), default=6, help="Sequences to tune weighted-fair on.")
@click.option(
    "--engine",
    type=click.Choice(["compiled", "simpy"]),
    default="compiled",
    help="The compiled simulator, or the readable one: slower, with the same results.",
)
@click.option("--processes", type=click.IntRange(min=1), help="Parallel processes.  [default: all CPUs]")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file too."
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("compare"), help="Folder for pictures.")
@click.pass_context
def compare(context: click.Context, /, **options: Any) -> int:
    """Compare schedulers on the same job sequences with the same task noise.

    Shows average job completion time (JCT), its 95 % confidence interval, p95 JCT, makespan, utilisation and
    the paired difference to the best classic scheduler. Saves pictures of schedules and of the results.
    Ctrl-C ends it early and keeps the experiments that have finished.
    """
    with library_errors():
        comparison = _comparison(options)
        conditions = comparison.conditions
        _refuse_without_effect(context, conditions)
        _check_outputs(options)
        interrupted = _run(comparison, options["processes"])
        if comparison.finished:
            _report(comparison, options, _command_line(context, conditions, options))
    if interrupted:
        finished = f"{len(comparison.finished)} of {conditions.num_experiments} experiments finished"
        end(f"interrupted, {finished}", INTERRUPTED)
    return 0


def _comparison(options: dict[str, Any]) -> Comparison:
    from decima.evaluation.comparison import Comparison
    from decima.evaluation.conditions import Conditions
    from decima.policy.shipped import SHIPPED, default_policy
    from decima.registry import LEARNED
    from simulator import DECIMA_SIM, PAPER, ClusterConfig

    workload = chosen_workload(options["profiles"], options["workload"])
    schedulers = [name.strip() for name in options["scheduler_names"].split(",")]
    checkpoint: Path | None = options["checkpoint"]
    if checkpoint is not None and LEARNED not in schedulers:
        schedulers.append(LEARNED)
    fitting = SHIPPED[default_policy(workload, options["arrivals"])]
    if checkpoint is None and options["scheduler_names"] == DEFAULT_SCHEDULERS and not fitting.is_file():
        schedulers.remove(LEARNED)  # whoever names nobody gets what there is
    conditions = Conditions(
        workload=workload,
        cluster=ClusterConfig(
            num_executors=options["executors"],
            moving_delay_ms=options["moving_delay"] * 1000,
            semantics=DECIMA_SIM if options["semantics"] == "decima-sim" else PAPER,
            engine=options["engine"],
        ),
        arrivals=options["arrivals"],
        interval_ms=options["interval"] * 1000,
        num_jobs=options["jobs"],
        num_experiments=options["seeds"],
        seed=options["seed"],
    )
    policy = None if checkpoint is None else str(checkpoint)
    return Comparison(conditions, schedulers, policy=policy, num_training=options["training"])


def _without_effect(conditions: Conditions) -> dict[str, str]:
    """Options that these experiments ignore, and why."""
    if conditions.workload.sequence is not None:
        return dict.fromkeys(
            ("jobs", "arrivals", "interval"), "the workload file says which jobs arrive when"
        )
    return {} if conditions.arrivals == "poisson" else {"interval": "it is for --arrivals poisson"}


def _refuse_without_effect(context: click.Context, conditions: Conditions) -> None:
    """Giving an option that has no effect is a mistake."""
    for name, reason in _without_effect(conditions).items():
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} has no effect: {reason}")


def _check_outputs(options: dict[str, Any]) -> None:
    from decima.outputs import prepare_outputs

    prepare_outputs(options["out"], options["json_file"])


def _run(comparison: Comparison, processes: int | None) -> bool:
    """Run it; whether that was interrupted."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("Comparing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("")
            comparison.run(processes, lambda done, total: progress.update(bar, completed=done, total=total))
    except KeyboardInterrupt:
        return True
    return False


def _report(comparison: Comparison, options: dict[str, Any], command: str) -> None:
    """Save and show; the results first, so that trouble with a picture cannot lose them."""
    from decima.outputs import atomic_path
    from decima.show.report import comparison_notes, comparison_table

    if options["json_file"] is not None:
        with atomic_path(options["json_file"]) as path:
            path.write_text(comparison.to_json(command=command), encoding="utf-8")
    make_console().print(comparison_table(comparison))
    for note in comparison_notes(comparison):
        click.echo(note)

    from decima.show.plots import save_pictures

    pictures = save_pictures(comparison, options["out"])
    click.echo(f"{len(pictures)} pictures in {options['out']}")


def _command_line(context: click.Context, conditions: Conditions, options: dict[str, Any]) -> str:
    """The command with every option that its results depend on, defaults too."""
    words = ["decima", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if name not in PRESENTATION and name not in _without_effect(conditions) and options[name] is not None:
            words += [parameter.opts[0], str(options[name])]
    return shlex.join(words)
