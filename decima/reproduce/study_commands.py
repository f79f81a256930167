"""The commands ``decima reproduce NAME`` of the studies that train policies. The studies are in the modules beside."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.console import INTERRUPTED, chosen_workload, end, library_errors, make_console

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from decima.reproduce.study import Study, Tell
    from decima.reproduce.study_report import Outcome

    Pictures = Mapping[str, Callable[[Outcome], Figure]]

__all__ = ["STUDY_COMMANDS"]

#: Options that change what is shown, how fast, or where policies are kept, never the results.
PRESENTATION = ("processes", "policies", "json_file", "out")
#: Without a terminal, there is a line at least this often, s.
QUIET_S = 60.0

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
    click.option(
        "--budget",
        type=click.FloatRange(min=0, min_open=True),
        default=1.0,
        help="Size of training and comparison; 1 is full size, 0.01 shows within minutes that all works.",
    ),
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
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the first experiment."),
    click.option(
        "--checkpoint",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Policy file of decima train that stands for the full policy, which is then not trained.",
    ),
    click.option(
        "--policies",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder of trained policies; what is there is not trained again, what was cut off goes on.  "
        "[default: policies-BUDGET in the folder for pictures]",
    ),
    click.option("--processes", type=click.IntRange(min=1), help="Parallel processes.  [default: all CPUs]"),
    click.option(
        "--json", "json_file", type=click.Path(path_type=Path), help="Write the results to this file too."
    ),
    click.option(
        "--out", type=click.Path(path_type=Path), default=Path("reproduce"), help="Folder for pictures."
    ),
)


def _command(*own: Callable[[Any], Any]) -> Callable[[Callable[..., None]], click.Command]:
    """A command with its own options, then those that all studies share."""

    def decorate(function: Callable[..., None]) -> click.Command:
        wrapped = click.pass_context(function)
        for option in reversed((*own, *_SHARED)):
            wrapped = option(wrapped)
        return click.command(context_settings={"show_default": True})(wrapped)

    return decorate


@_command()
def fig9a(context: click.Context, /, **options: Any) -> None:
    """Compare Decima with classic schedulers on batches.

    100 batches of 20 TPC-H jobs on 50 executors (Decima, Figure 9a).
    """
    from decima.reproduce import fig9

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
    from decima.reproduce import fig9

    if load is not None and interval is not None:
        raise click.UsageError("--load and --interval exclude each other")
    study = partial(fig9.fig9b, load=load or 0.85, interval_s=interval)
    _run(context, options, study, {"fig9b": fig9.plot_fig9, "fig10": fig9.plot_fig10})


@_command()
def fig13(context: click.Context, /, **options: Any) -> None:
    """Compare policies learned for different objectives.

    The average JCT with the moving delay, the same with moves that take no time, and the makespan (Decima, Figure 13).
    """
    from decima.reproduce import fig13

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
    from decima.reproduce import fig14

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
    from decima.reproduce import fig15

    if options["checkpoint"] is not None:
        raise click.UsageError("--checkpoint has no effect: a policy file has no learning curve")
    _run(context, options, partial(fig15.fig15a, load=load), {"fig15a": fig15.plot_fig15a})


@_command()
def fig21(context: click.Context, /, **options: Any) -> None:
    """Compare Decima with the best order of jobs.

    Executors move at once and tasks do not vary, so that order is all that matters; of all orders of 10 jobs the best
    is searched (Decima, Figure 21).
    """
    from decima.reproduce import fig21, study_report

    _run(context, options, fig21.fig21, {"fig21": study_report.plot_bars})


@_command()
def fig22(context: click.Context, /, **options: Any) -> None:
    """Measure what it costs not to know how long tasks take.

    On batches of 20 jobs (Decima, Figure 22).
    """
    from decima.reproduce import fig22, study_report

    _run(context, options, fig22.fig22, {"fig22": study_report.plot_bars})


@_command(_LOAD)
def table2(context: click.Context, /, load: float, **options: Any) -> None:
    """Measure how policies generalise.

    To more arrivals than in training, more jobs, more executors; and to smaller and larger clusters (Decima, Tables 2
    and 3).
    """
    from decima.reproduce import study_report, table2

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
    from decima.agent.files import PolicyFileError
    from decima.outputs import atomic_path
    from decima.reproduce.study_report import study_json, study_notes, study_table

    command = _command_line(context)
    out: Path = options["out"]
    try:
        with library_errors(), _telling() as tell:
            outcome = study(_make_study(options, command, tell))
    except PolicyFileError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        end("interrupted; the same command goes on with the training", INTERRUPTED)
    with library_errors():
        if options["json_file"] is not None:
            with atomic_path(options["json_file"]) as path:
                path.write_text(study_json(outcome, command=command), encoding="utf-8")
        make_console().print(study_table(outcome))
        for note in study_notes(outcome):
            click.echo(note)
        for name, plot in pictures.items():
            with atomic_path(out / f"{name}.png") as path:
                plot(outcome).savefig(path)
    files = ", ".join(str(out / f"{name}.png") for name in pictures)
    click.echo(f"{'picture' if len(pictures) == 1 else 'pictures'}: {files}")


def _make_study(options: dict[str, Any], command: str, tell: Tell) -> Study:
    from decima.agent.files import load_policy
    from decima.outputs import check_file, make_folder
    from decima.reproduce.study import Study
    from decima.workers import available_cpus

    profiles, file, budget = options["profiles"], options["workload"], options["budget"]
    workload = chosen_workload(profiles, file)
    sources = {"profiles": profiles, "file": file}
    if options["checkpoint"] is not None:
        load_policy(options["checkpoint"])  # refused before the work begins
    if options["json_file"] is not None:
        check_file(options["json_file"])
    make_folder(options["out"])
    return Study(
        workload=workload,
        source={kind: str(path) for kind, path in sources.items() if path is not None},
        executors=options["executors"],
        budget=budget,
        seed=options["seed"],
        num_experiments=options["num_experiments"],
        num_jobs=options["num_jobs"],
        policies=options["policies"] or options["out"] / f"policies-{budget:g}",
        checkpoint=options["checkpoint"],
        processes=options["processes"] or available_cpus(),
        command=command,
        tell=tell,
    )


@contextmanager
def _telling() -> Iterator[Tell]:
    """A function that shows how far it is: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("")
        now = ""

        def tell(what: str, done: int, total: int) -> None:
            nonlocal now
            if what != now:
                now = what
                progress.reset(bar)
            progress.update(bar, description=what, completed=done, total=total)

        yield tell


class _Lines:
    """Tells what begins, and how far it is if the last line was long ago."""

    def __init__(self) -> None:
        self.what, self.last = "", 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self.what or time.monotonic() - self.last >= QUIET_S:
            self.what, self.last = what, time.monotonic()
            click.echo(f"{what}: {done} of {total}", err=True)


def _command_line(context: click.Context) -> str:
    """The command with every option that its results depend on, defaults too."""
    words = ["decima", "reproduce", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        value = context.params[name]
        if name not in PRESENTATION and value is not None:
            for each in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], str(each)]
    return shlex.join(words)
