"""The command ``decima deeprm compare``. It parses, shows and saves; what it shows is computed in the library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import command_line, library_errors, make_console, stepping

if TYPE_CHECKING:
    from decima.evaluation.grid_comparison import GridComparison, GridSettings

__all__ = ["compare"]

#: Options that change what is shown, never the results.
PRESENTATION = ("json_file", "out", "measure")


@click.command(context_settings={"show_default": True})
@click.option(
    "--loads",
    metavar="A,B,..",
    help="Loads, in percent of what all machines can do.  [default: 10, 30, .. up to the highest that jobs can give]",
)
@click.option(
    "--rates",
    metavar="A,B,..",
    help="Chances that a job enters a step, each above 0 and at most 1, instead of loads.",
)
@click.option("--sets", type=click.IntRange(min=1), default=100, help="Sets of jobs at each load.")
@click.option("--steps", type=click.IntRange(min=1), default=50, help="Steps in which jobs of a set enter.")
@click.option("--seed", type=click.IntRange(0, 999_999), default=0, help="Names the sets.")
@click.option(
    "--distribution",
    type=click.Choice(["code", "paper", "coarse"]),
    default="code",
    help="DeepRM's jobs: as its code draws them, as its paper says, or nearly so on 10 units.",
)
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Draw jobs from this log in Standard Workload Format (FILE.swf or FILE.swf.gz) instead.",
)
@click.option("--machines", type=click.IntRange(1, 100), default=1, help="Machines.")
@click.option(
    "--heuristics",
    default="sjf,packer,tetris*,random",
    metavar="A,B,..",
    help="Names of sjf, packer, tetris* (its knob tuned at each load), tetris:KNOB, random, random:SEED.",
)
@click.option(
    "--checkpoint",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare deeprm too, with the network in this file of decima deeprm train.  [default: the one that ships]",
)
@click.option(
    "--semantics",
    type=click.Choice(["paper", "deeprm"]),
    default="paper",
    help="The grid as the DeepRM paper or as its public code has it.",
)
@click.option(
    "--measure",
    type=click.Choice(["slowdown", "completion", "waiting", "makespan", "utilisation"]),
    default="slowdown",
    help="What is shown; --json has all.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file too."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("compare"), help="Folder for the picture."
)
@click.pass_context
def compare(context: click.Context, /, **options: Any) -> None:
    """Compare schedulers on DeepRM's grid as the load grows.

    Shows the mean slowdown (completion time over duration) of jobs in sets that nobody trained on, with its 95 %
    confidence interval, as DeepRM's Figure 4, and draws it.
    """
    from decima.evaluation.grid_comparison import GridComparison

    with library_errors():
        settings = _settings(context, options)
        _check_outputs(options)
        comparison = GridComparison(settings)
        with stepping("Comparing") as on_step:
            comparison.run(on_step)
        _report(comparison, options, command_line(context, PRESENTATION))


def _settings(context: click.Context, options: dict[str, Any]) -> GridSettings:
    from decima.evaluation.grid_comparison import GridSettings
    from workloads import DISTRIBUTIONS, read_swf

    distribution, machines = options["distribution"], options["machines"]
    if options["log"] is not None:
        for name in ("distribution", "rates"):
            if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
                raise click.UsageError(f"--{name} has no effect: jobs are drawn from a log, by load")
    if options["loads"] is not None and options["rates"] is not None:
        raise click.UsageError("--loads and --rates exclude each other")
    loads = tuple(percent / 100 for percent in _numbers("--loads", options["loads"]))
    if options["rates"] is not None:
        rates = _numbers("--rates", options["rates"])
        loads = tuple(DISTRIBUTIONS[distribution].load(rate) / machines for rate in rates)
    return GridSettings(
        loads=loads,
        distribution=distribution,
        log=None if options["log"] is None else read_swf(options["log"]),
        machines=machines,
        heuristics=tuple(name.strip() for name in options["heuristics"].split(",")),
        network=options["checkpoint"] or _shipped(options),
        deeprm_semantics=options["semantics"] == "deeprm",
        sets=options["sets"],
        steps=options["steps"],
        seed=options["seed"],
    )


def _shipped(options: dict[str, Any]) -> Path | None:
    """The network that ships, where it fits; it is for one machine of ten units."""
    from decima.evaluation.grid_comparison import SHIPPED_NETWORK

    fits = options["machines"] == 1 and (options["log"] is not None or options["distribution"] != "paper")
    return SHIPPED_NETWORK if fits and SHIPPED_NETWORK.is_file() else None


def _numbers(option: str, text: str | None) -> list[float]:
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option} {text}: expected numbers with commas between them") from None


def _check_outputs(options: dict[str, Any]) -> None:
    from decima.outputs import prepare_outputs

    prepare_outputs(options["out"], options["json_file"])


def _report(comparison: GridComparison, options: dict[str, Any], command: str) -> None:
    """Save and show; the results first, so that trouble with the picture cannot lose them."""
    from decima.outputs import atomic_path
    from decima.show.grid_plots import plot_by_load
    from decima.show.grid_report import comparison_notes, comparison_table

    if options["json_file"] is not None:
        with atomic_path(options["json_file"]) as path:
            path.write_text(comparison.to_json(command=command), encoding="utf-8")
    measure = options["measure"]
    make_console().print(comparison_table(comparison, measure))
    for note in comparison_notes(comparison, measure):
        click.echo(note)
    if comparison.settings.network is None:
        click.echo(
            "deeprm is left out: no network that ships is for these jobs; --checkpoint FILE names another."
        )
    picture = options["out"] / f"deeprm-{measure}.png"
    with atomic_path(picture) as path:
        plot_by_load(comparison.results, measure).savefig(path)
    click.echo(f"picture: {picture}")
