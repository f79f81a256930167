"""The commands ``decima reproduce NAME`` of the studies that train policies. The studies are in the modules beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import chosen_workload
from decima.cli.reproduce_run import (
    BUDGET,
    JSON,
    OUT,
    POLICIES,
    SEED,
    Shown,
    policies_folder,
    run_study,
    study_command,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from decima.studies.study import Study
    from decima.studies.study_report import Outcome
    from decima.studies.trainings import Tell

    Pictures = Mapping[str, Callable[[Outcome], Figure]]

__all__ = ["STUDY_COMMANDS"]

_SHARED = (
    click.option(
        "--profiles",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Draw jobs from the published TPC-H profiles in this folder.",
    ),
    click.option(
        "--workload",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Draw jobs from the profiles of this file.  [default: TPC-H, measured on Spark]",
    ),
    click.option("--executors", type=click.IntRange(min=1), default=50, help="Executors of the cluster."),
    BUDGET,
    click.option(
        "--seeds",
        "num_experiments",
        type=click.IntRange(min=1),
        help="Experiments, instead of the study's own number.",
    ),
    click.option(
        "--jobs",
        "num_jobs",
        type=click.IntRange(min=1),
        help="Jobs in each, instead of the study's own number.",
    ),
    SEED,
    click.option(
        "--checkpoint",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Policy file of decima train that stands for the full policy, which is then not trained.",
    ),
    POLICIES,
    click.option("--processes", type=click.IntRange(min=1), help="Parallel processes.  [default: all CPUs]"),
    JSON,
    OUT,
)


def _command(*own: Callable[[Any], Any]) -> Callable[[Callable[..., None]], click.Command]:
    """A command with its own options, then those that all studies share."""
    return study_command(*own, *_SHARED)


@_command()
def fig9a(context: click.Context, /, **options: Any) -> None:
    """Compare Decima with classic schedulers on batches.

    100 batches of 20 TPC-H jobs on 50 executors (Decima, Figure 9a).
    """
    from decima.studies import fig9

    _run(context, options, fig9.fig9a, {"fig9a": fig9.plot_fig9})


@_command(
    click.option(
        "--load",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        help="Share of the time that executors are to be busy; sets the time between arrivals.  [default: 0.85]",
    ),
    click.option(
        "--interval",
        type=click.FloatRange(min=0, min_open=True),
        help="Mean seconds between arrivals, instead of a load; the published code has 25.",
    ),
)
def fig9b(context: click.Context, /, load: float | None, interval: float | None, **options: Any) -> None:
    """Compare Decima with classic schedulers on streams.

    Jobs arrive by a Poisson process that keeps executors busy for 85% of the time (Decima, Figure 9b); a closer look
    at one of the streams (Figure 10). fig10 is the same command.
    """
    from decima.studies import fig9

    if load is not None and interval is not None:
        raise click.UsageError("--load and --interval exclude each other")
    study = partial(fig9.fig9b, load=load or 0.85, interval_s=interval)
    _run(context, options, study, {"fig9b": fig9.plot_fig9, "fig10": fig9.plot_fig10})


@_command()
def fig13(context: click.Context, /, **options: Any) -> None:
    """Compare policies learned for different objectives.

    The average JCT with the moving delay, the same with moves that take no time, and the makespan (Decima, Figure 13).
    """
    from decima.studies import fig13

    _run(context, options, fig13.fig13, {"fig13": fig13.plot_fig13})


@_command(
    click.option(
        "--load",
        "loads",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        multiple=True,
        default=(0.55, 0.65, 0.75, 0.85),
        help="Share of the time that executors are to be busy; may be given several times. All policies are trained "
        "at the highest.",
    )
)
def fig14(context: click.Context, /, loads: tuple[float, ...], **options: Any) -> None:
    """Measure what each idea of Decima is for, as the load grows.

    Without parallelism control, without graph embedding, trained on unfixed sequences, trained on batches (Decima,
    Figure 14).
    """
    from decima.studies import fig14

    _run(context, options, partial(fig14.fig14, loads=loads), {"fig14": fig14.plot_fig14})


_LOAD = click.option(
    "--load",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.85,
    help="Share of the time that executors are to be busy; sets the time between arrivals.",
)


@_command(_LOAD)
def fig15a(context: click.Context, /, load: float, **options: Any) -> None:
    """Compare how parallelism limits are encoded, by how fast they are learned.

    As an input of one function, as separate outputs, and for single stages (Decima, Figure 15a).
    """
    from decima.studies import fig15

    if options["checkpoint"] is not None:
        raise click.UsageError("--checkpoint has no effect: a policy file has no learning curve")
    _run(context, options, partial(fig15.fig15a, load=load), {"fig15a": fig15.plot_fig15a})


@_command()
def fig21(context: click.Context, /, **options: Any) -> None:
    """Compare Decima with the best order of jobs.

    Executors move at once and tasks do not vary, so that order is all that matters; of all orders of 10 jobs the best
    is searched (Decima, Figure 21).
    """
    from decima.studies import fig21, study_report

    _run(context, options, fig21.fig21, {"fig21": study_report.plot_bars})


@_command()
def fig22(context: click.Context, /, **options: Any) -> None:
    """Measure what it costs not to know how long tasks take.

    On batches of 20 jobs (Decima, Figure 22).
    """
    from decima.studies import fig22, study_report

    _run(context, options, fig22.fig22, {"fig22": study_report.plot_bars})


@_command(_LOAD)
def table2(context: click.Context, /, load: float, **options: Any) -> None:
    """Measure how policies generalise.

    To more arrivals than in training, more jobs, more executors; and to smaller and larger clusters (Decima, Tables 2
    and 3).
    """
    from decima.studies import study_report, table2

    _run(context, options, partial(table2.table2, load=load), {"table2": study_report.plot_bars})


#: Name -> command.
STUDY_COMMANDS: dict[str, click.Command] = {
    "fig9a": fig9a,
    "fig9b": fig9b,
    "fig10": fig9b,
    "fig13": fig13,
    "fig14": fig14,
    "fig15a": fig15a,
    "fig21": fig21,
    "fig22": fig22,
    "table2": table2,
}


def _run(
    context: click.Context,
    options: dict[str, Any],
    study: Callable[[Study], Outcome],
    pictures: Pictures,
) -> None:
    """Run a study, then save and show what it found."""
    from decima.studies.study_report import study_json, study_notes, study_table

    def found(command: str, tell: Tell) -> Shown:
        outcome = study(_make_study(options, command, tell))
        return Shown(
            tables=(study_table(outcome),),
            notes=study_notes(outcome),
            json=study_json(outcome, command=command),
            pictures={name: partial(plot, outcome) for name, plot in pictures.items()},
        )

    run_study(context, options, found)


def _make_study(options: dict[str, Any], command: str, tell: Tell) -> Study:
    from decima.evaluation.workers import available_cpus
    from decima.policy.files import load_policy
    from decima.studies.study import Study

    profiles, file = options["profiles"], options["workload"]
    workload = chosen_workload(profiles, file)
    sources = {"profiles": profiles, "file": file}
    if options["checkpoint"] is not None:
        load_policy(options["checkpoint"])  # refused before the work begins
    return Study(
        workload=workload,
        source={kind: str(path) for kind, path in sources.items() if path is not None},
        executors=options["executors"],
        budget=options["budget"],
        seed=options["seed"],
        num_experiments=options["num_experiments"],
        num_jobs=options["num_jobs"],
        policies=policies_folder(options),
        checkpoint=options["checkpoint"],
        processes=options["processes"] or available_cpus(),
        command=command,
        tell=tell,
    )
