"""The commands ``decima workload``, for workload files from event logs and traces, and ``decima train-estimator``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from decima.cli.console import Commands, make_console, print_line
from decima.cli.options import (
    ABOVE_ZERO,
    ANY_NUMBER,
    AT_LEAST_ONE,
    EXECUTORS,
    FILE,
    FLAG,
    SEED,
    TEXT,
    FileToWrite,
    Numbers,
    Option,
    option,
    with_options,
)
from decima.progress import PATIENCE_S, progress
from workloads.display import count_text
from workloads.texts import number_in

if TYPE_CHECKING:
    from rich.table import Table

    from decima.evaluation.spark.logged_jobs import HeldOut
    from workloads.excerpt import Excerpt
    from workloads.job import JobProfile
    from workloads.sources.workload_file import Workload
    from workloads.spark.model import SparkModel

LEVELS = Numbers("whole numbers from 1, such as 5,10,20", int, least=1)
#: Maximum number of profiles that ``show`` prints.
MOST_ROWS = 500
SIZE = Numbers("two numbers, such as 4,16", count=2)
OUT = option("--out FILE.json[.gz]", FileToWrite(".json", ".json.gz"), "File to write.", required=True)


@click.group(cls=Commands)
def workload() -> None:
    """Import workload files from event logs and traces, and show workloads."""


@workload.group(name="import", cls=Commands)
def import_() -> None:
    """Create a workload file from recordings of a cluster."""


def _parameters(texts: Sequence[str]) -> dict[str, float]:
    parameters = {}
    for text in texts:
        name, _, value = text.partition("=")
        parameters[name] = number_in(value)
        if math.isnan(parameters[name]):
            raise click.BadParameter(f"{text!r:.60} is not NAME=NUMBER", param_hint="'--set'")
    return parameters


@import_.command(context_settings={"show_default": True})
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@OUT
@option("--partial", FLAG, "Keep the readable part of damaged logs and failed queries.")
@option("--keep-cold", FLAG, "Pool the cold first runs of queries with later runs.", name="cold_runs")
@option("--arrivals", FLAG, "Keep the arrival time of each query, to replay the logs.")
@option(
    "--levels A,B,..",
    LEVELS,
    "Numbers of executors for which each profile gets durations, measured or else from the model.",
    "5,10,20,40,50,60,80,100",
)
@click.option(
    "--shared-machine/--separate-machines",
    default=None,
    help="The executors shared the cores of one machine: remove the resulting slow-down of scans.  "
    "[default: detected in the logs]",
)
@option(
    "--tenants",
    click.Choice(["pool", "group"]),
    "Tenant of a query with --arrivals: the pool of Spark's FAIR scheduler, or the job group.  [default: none]",
)
@option(
    "--set NAME=VALUE",
    TEXT,
    "Value of a parameter of the model, instead of the fitted value; may be given several times.",
    name="parameters",
    multiple=True,
)
def spark(logs: Sequence[Path], out: Path, levels: str, parameters: Sequence[str], **options: Any) -> None:
    """Spark's event logs: a profile for each query in LOGS (files, folders, rolled logs, zip archives).

    Runs of the same query are pooled, except for cold ones: if an application ran a query several times, and the first
    time took longer, the first run is left out. Durations on other numbers of executors than in the logs follow a model
    of task durations, whose parameters are fitted to the logs and shown. The command also shows the error of
    predictions of runs from the other runs of their query.
    """
    from decima.evaluation.spark.logged_jobs import predict_held_out
    from decima.outputs import check_file
    from workloads.sources.workload_writer import write_workload
    from workloads.spark.importing import import_event_logs

    options |= {"levels": LEVELS.parse(levels), "parameters": _parameters(parameters)}
    check_file(out)
    imported = import_event_logs(logs, name=out.name.split(".")[0], **options)
    write_workload(out, imported.workload)
    make_console().print(_model_table(imported.model))
    for note in (*imported.notes, *imported.variation):
        print_line(note)
    with progress(PATIENCE_S) as update:
        predicted = predict_held_out(imported, on_step=partial(update, "predicting runs"))
    print_line(_trust(predicted))
    print_line(_estimator_text(imported.workload.profiles))
    count, sequence = imported.workload.about["queries"], imported.workload.sequence
    came = "" if sequence is None else f", which arrive in {sequence.arrival_ms[-1] / 60_000:.1f} minutes,"
    profiles = count_text(len(imported.workload.profiles), "profile")
    print_line(f"{profiles} from {count_text(count, 'run')} of queries{came} in {out}")


def _estimator_text(profiles: Sequence[JobProfile]) -> str:
    """Say how well forests predict jobs without history of templates that they have not seen."""
    from simulator.cluster.predictor import FEWEST_TEMPLATES, predictor_of

    predictor = predictor_of(tuple(profiles))
    if predictor is None:
        return (
            "jobs without history get typical task times: the jobs are of too few templates to learn from, "
            f"at least {FEWEST_TEMPLATES} are needed"
        )
    return f"jobs without history, estimated from what is known before they run: {predictor.fits[0].accuracy}"


@click.command("train-estimator")
@click.argument("jobs", nargs=-1, required=True)
@option("-o --out FILE.npz", FileToWrite(".npz"), "File to write.", required=True)
@option(
    "--executors",
    EXECUTORS,
    "Fit to the expected task times on this number of executors.  [default: to the mean task times of the jobs]",
)
def train_estimator(jobs: Sequence[str], out: Path, executors: int | None) -> None:
    """Fit an estimator of jobs without history to JOBS.

    JOBS are workload files, logs of decima serve (.jsonl), folders of the published TPC-H profiles, tpch or synthetic.
    Comparisons and decima serve take the written model file as their estimator. It predicts the task times of a job
    from its DAG and from numbers of tasks. Shows the errors for jobs of templates that a forest has not seen; a
    template is all sizes of a query, and all jobs of the same DAG with the same numbers of tasks.
    """
    from decima.outputs import check_file
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.estimator_file import write_estimator
    from simulator.cluster.known import known_profile
    from simulator.cluster.predictor import FEWEST_TEMPLATES, predictor_of

    check_file(out)
    profiles = tuple(profile for name in jobs for profile in _profiles(name))
    if executors is not None:
        cluster = ClusterConfig(executors)
        profiles = tuple(known_profile(profile, cluster) for profile in profiles)
    predictor = predictor_of(profiles, also_dag_only=True)
    if predictor is None:
        raise click.UsageError(
            f"{', '.join(jobs)}: too few different jobs to learn from, at least {FEWEST_TEMPLATES} templates are needed"
        )
    write_estimator(out, predictor, ", ".join(jobs), _sha256(jobs))
    for fit, used in zip(predictor.fits, ("", "from DAGs and numbers of tasks alone: "), strict=False):
        print_line(f"{used}{fit.accuracy}")
    counts = f"{count_text(predictor.jobs, 'job')} of {count_text(predictor.templates, 'template')}"
    print_line(f"estimator of {counts} in {out}")


def _profiles(name: str) -> Sequence[JobProfile]:
    """Return the jobs of a workload, or the complete jobs of a log of the service."""
    from workloads.sources.open import open_workload

    if not name.endswith(".jsonl"):
        return open_workload(name).profiles
    from decima.service.log import LogError, read_log
    from decima.service.replay import replayed
    from decima.service.summary import live_workload

    drivers = replayed(read_log(Path(name)))
    try:
        return live_workload(drivers, name)[0].profiles
    except LogError as error:
        raise click.UsageError(f"{name}: {error}") from None


def _sha256(names: Sequence[str]) -> str:
    """Return the hash of the contents of all files, one after the other; empty without files."""
    import hashlib

    from workloads.reading import open_regular

    digest, files = hashlib.sha256(), [Path(name) for name in names if Path(name).is_file()]
    for path in files:
        with open_regular(path) as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest() if files else ""


#: Minimum error of predictions, as a fraction, that is explained.
MUCH_OFF = 0.3
#: Minimum share of the driver's own time that is shown.
TELLING = 0.05


def _trust(predicted: HeldOut) -> str:
    if predicted.runs.empty:
        return "no run could be predicted from other runs: no query ran alone twice"
    error, bias = (f"{value.mean:.1%}" for value in (predicted.error, predicted.bias))
    runs = f"{len(predicted.runs)} runs predicted from the other runs of their query"
    text = f"{runs}: mean error {error}, bias {bias}"
    if predicted.driver_share > TELLING:
        text += f"; {predicted.driver_share:.0%} of a run was the driver's own time, which profiles do not contain"
    if predicted.error.mean > MUCH_OFF:
        text += (
            ". Such a large error means that runs of the same query differed as much: other programs used the machine, "
            "some runs were the first after a start, or the data had grown. Comparisons of schedulers with these jobs "
            "are useful, but their times in seconds are not reliable; omit such logs, or log more runs"
        )
    return text


def trace_options(clock: str) -> Option:
    """Return options for an excerpt of a trace, see ``_write_trace``; ``clock``: the origin of times, for the help."""
    return with_options(
        OUT,
        option("--from SECONDS", ANY_NUMBER, f"Omit jobs that arrive earlier, {clock}.", name="from_s"),
        option("--until SECONDS", ANY_NUMBER, "Omit jobs that arrive later.", name="until_s"),
        option("--sample N", AT_LEAST_ONE, "Number of jobs to draw at random."),
        option("--seed", SEED, "Seed of the random draw and of the task noise.", 0),
        option("--speed-up", ABOVE_ZERO, "Divisor of arrival times.", 1.0),
        option(
            "--scale-tasks",
            ABOVE_ZERO,
            "Divisor of the number of tasks of each stage, for a smaller cluster; each stage keeps at least one.",
            1.0,
        ),
        option(
            "--library",
            FLAG,
            "Omit arrival times: the file contains only profiles from which jobs can be drawn.",
        ),
    )


def _write_trace(
    out: Path, library: bool, options: dict[str, Any], read: Callable[[Excerpt], Workload]
) -> None:
    from decima.outputs import check_file
    from workloads.excerpt import Excerpt
    from workloads.sources.workload_writer import write_workload

    check_file(out)
    taken = read(Excerpt(**{name: value for name, value in options.items() if value is not None}))
    arrival_ms = 0.0 if taken.sequence is None else float(taken.sequence.arrival_ms[-1])
    sequence = None if library else taken.sequence
    write_workload(out, replace(taken, name=out.name.split(".")[0], sequence=sequence))
    _tell(taken)
    counts = ("num_stages", "num_tasks")
    stages, tasks = (sum(getattr(profile, count) for profile in taken.profiles) for count in counts)
    arrivals = "without their arrivals" if library else f"which arrive in {arrival_ms / 60_000:.1f} minutes"
    content = f"{count_text(stages, 'stage')} and {count_text(tasks, 'task')}"
    print_line(f"{count_text(len(taken.profiles), 'job')} of {content}, {arrivals}, in {out}")


@import_.command(context_settings={"show_default": True})
@click.argument("table", type=FILE)
@trace_options("since the start of the trace")
@option(
    "--executor CORES,PERCENT",
    SIZE,
    "Size of the executor whose shares are the demands: cores, and percent of a machine's memory.",
    "96,100",
)
@option(
    "--priority COLUMN",
    TEXT,
    "Further column of TABLE with priorities of tasks; a job's weight is 1 + its highest priority.  "
    "[default: weight 1]",
)
def alibaba(
    table: Path, out: Path, library: bool, executor: str, priority: str | None, **options: Any
) -> None:
    """Alibaba's cluster trace of 2018: the jobs in TABLE, which is batch_task.csv or batch_task.csv.gz.

    Failed jobs, and jobs whose tasks cannot be ordered, are omitted and counted. Each instance of a task is assumed to
    take as long as the task.
    """
    from workloads.sources.alibaba import read_alibaba

    size = SIZE.parse(executor)
    _write_trace(out, library, options, lambda excerpt: read_alibaba(table, excerpt, size, priority))


@import_.command(context_settings={"show_default": True})
@click.argument("files", nargs=-1, required=True, type=FILE)
@trace_options("since the start of the first workflow")
@option(
    "--executor CORES,GIB",
    SIZE,
    "Size of the executor whose shares are the demands: cores, and GiB of memory.  [default: omit demands]",
)
def wfcommons(files: Sequence[Path], out: Path, library: bool, executor: str | None, **options: Any) -> None:
    """Scientific workflows: a job for each of FILES in WfFormat 1.5 (.json, .json.gz), the format of WfCommons."""
    from workloads.sources.wfcommons import read_wfcommons

    size = None if executor is None else SIZE.parse(executor)
    _write_trace(out, library, options, lambda excerpt: read_wfcommons(files, excerpt, executor=size))


@import_.command(context_settings={"show_default": True})
@click.argument("log", type=FILE)
@trace_options("since the submission of the first job")
@option(
    "--executor PROCESSORS,GIB",
    SIZE,
    "Size of the executor whose shares are the demands: processors, and GiB of memory.  "
    "[default: in processors, without memory]",
)
@option(
    "--gang",
    FLAG,
    "A job is one task that needs all its processors at once, on one executor of that size.  [default: a task for "
    "each processor; tasks may run one after the other]",
)
@option(
    "--tenants",
    click.Choice(["user", "group", "queue"]),
    "Field that becomes the tenant of a job.  [default: no tenants]",
)
def swf(
    log: Path,
    out: Path,
    library: bool,
    executor: str | None,
    gang: bool,
    tenants: Literal["user", "group", "queue"] | None,
    **options: Any,
) -> None:
    """Job logs: the jobs in LOG, in Standard Workload Format, as in the Parallel Workloads Archive.

    A job of n processors for t seconds is a stage of n tasks of t seconds. Jobs that did not run, and jobs with unknown
    times or sizes, are omitted and counted.
    """
    from workloads.sources.swf import read_swf_workload

    size = None if executor is None else SIZE.parse(executor)
    _write_trace(out, library, options, lambda excerpt: read_swf_workload(log, excerpt, size, gang, tenants))


@import_.command()
@click.argument("log", type=FILE)
@OUT
def live(log: Path, out: Path) -> None:
    """Log of decima serve: a profile for each complete job in LOG.

    LOG is the file of decima serve --log. All tasks of a stage have the mean duration on the stage's executors, so
    these profiles contain less information than those from Spark's event logs. Incomplete jobs are omitted and counted.
    """
    from decima.outputs import check_file
    from decima.service.log import read_log
    from decima.service.replay import replayed
    from decima.service.summary import live_workload
    from workloads.sources.workload_writer import write_workload

    check_file(out)
    live_jobs, left_out = live_workload(replayed(read_log(log)), out.name.split(".")[0])
    write_workload(out, live_jobs)
    omitted = count_text(left_out, "incomplete job")
    print_line(_estimator_text(live_jobs.profiles))
    print_line(f"{count_text(len(live_jobs.profiles), 'profile')} in {out}, {omitted} omitted")


@workload.command()
@click.argument("workload", default="tpch")
@option(
    "--profile NAME", TEXT, "Show only this profile; may be given several times.", name="names", multiple=True
)
@option("--out FILE.png", FileToWrite(".png"), "Draw the DAGs in this PNG file.")
def show(workload: str, names: Sequence[str], out: Path | None) -> None:
    """Show the job profiles of WORKLOAD.

    WORKLOAD is tpch (the default, extrapolated from Spark at 1 and 2 GB), a folder of the published TPC-H profiles, or
    a workload file. Columns: stages, tasks, total work (executor time; on 50 executors, unless the profile has means),
    path of work (the paper's critical path: the longest path by total work of stages), least time (the longest path by
    mean task time, a lower bound for any number of executors), the range of the tasks' demands, and the numbers of
    executors with known durations.
    """
    from decima.outputs import atomic_path, check_file
    from workloads.sources.open import open_workload

    shown = open_workload(workload)
    profiles = _chosen(shown, names)
    if out is not None:
        check_file(out)
    make_console().print(_profile_table(profiles[:MOST_ROWS]))
    if len(profiles) > MOST_ROWS:
        print_line(f"the first {MOST_ROWS} of {len(profiles)} profiles; --profile shows other profiles")
    if shown.sequence is not None:
        print_line(f"{count_text(len(shown.sequence), 'job')} with arrival times")
    _tell(shown)
    measured = shown.about.get("measured_levels")
    if isinstance(measured, list) and "model" in shown.about:
        print_line(
            f"durations on {_told(measured)} executors were measured, other durations follow the model"
        )
    if out is not None:
        from decima.show.plots import FEW_DAGS, MOST_DAGS, plot_dags
        from decima.show.style import save_figure

        with atomic_path(out) as path:
            save_figure(plot_dags(profiles), path)
        first = f"the first {FEW_DAGS} of " if len(profiles) > MOST_DAGS else ""
        print_line(f"{first}{len(profiles)} DAGs in {out}")


def _chosen(shown: Workload, names: Sequence[str]) -> tuple[JobProfile, ...]:
    profiles = {profile.name: profile for profile in shown.profiles}
    for name in names:
        if name not in profiles:
            message = f"no profile named {name!r}; without --profile the command shows all profiles"
            raise click.BadParameter(message, param_hint="'--profile'")
    return tuple(profiles[name] for name in dict.fromkeys(names)) if names else shown.profiles


def _profile_table(profiles: Sequence[JobProfile]) -> Table:
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.known import known_profile

    headings = ("stages", "tasks", "work (s)", "path of work (s)", "least time (s)", "cpu", "memory")
    table = _plain_table("profile", headings, ("executors",))
    for profile in (known_profile(job_profile, ClusterConfig()) for job_profile in profiles):
        table.add_row(
            profile.name,
            str(profile.num_stages),
            str(profile.num_tasks),
            f"{profile.work_ms / 1000:.1f}",
            f"{profile.critical_path_ms.max() / 1000:.1f}",
            f"{profile.height_ms.max() / 1000:.1f}",
            _range([stage.cpu for stage in profile.stages]),
            _range([stage.memory for stage in profile.stages]),
            _levels(profile),
        )
    return table


def _plain_table(name: str, values: Sequence[str], texts: Sequence[str]) -> Table:
    """Return an empty table without lines: a column of names, then numbers, then texts."""
    from decima.show.tables import PlainTable

    table = PlainTable(box=None, padding=(0, 2, 0, 0))
    table.add_column(name, no_wrap=True, style="bold")
    for heading in values:
        table.add_column(heading, justify="right")
    for heading in texts:
        table.add_column(heading)
    return table


def _range(demands: Sequence[float]) -> str:
    """Format the range of numbers, or one number if all numbers are equal."""
    least, most = (f"{value:.3g}" for value in (min(demands), max(demands)))
    return least if least == most else f"{least}-{most}"


def _levels(profile: JobProfile) -> str:
    levels = sorted({level for stage in profile.stages for level in stage.durations.levels.tolist()})
    return "any" if levels == [1] else " ".join(map(str, levels))


def _model_table(model: SparkModel) -> Table:
    table = _plain_table("parameter", ("value",), ("unit", "meaning"))
    for parameter in model.parameters():
        value = parameter.value
        text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        table.add_row(parameter.name, text, parameter.unit, parameter.meaning)
    for level, factor in model.contention.items():
        table.add_row(f"contention at {level}", f"{factor:.3g}", "", "slow-down factor of the machine")
    return table


def _tell(workload: Workload) -> None:
    errors = {key: value for key, value in workload.imperfections.to_json().items() if value is not None}
    for key, value in {**workload.about, **({"errors": errors} if errors else {})}.items():
        print_line(f"{key}: {_told(value) or 'none'}")


def _told(value: object) -> str:
    """Format metadata of a file as one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_told(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return "; ".join(_told(entry) for entry in value)
    return str(value)
