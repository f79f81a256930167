"""The command ``decima train``: learn a policy, show how it does, go on with a run that was cut off."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.console import INTERRUPTED, end, library_errors, make_console

if TYPE_CHECKING:
    from rich.table import Table

    from decima.training.config import TrainingConfig
    from decima.training.trainer import IterationReport, TrainingResult

__all__ = ["train"]

DEFAULT_RECIPE = "batch"
#: Without a terminal, there is a line at least this often, s.
QUIET_S = 60.0


def _explain(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    """Show all settings and metrics, and end."""
    if not wanted:
        return
    from rich.table import Table

    from decima.training.config import describe_settings
    from decima.training.metrics import METRICS

    settings, metrics = (Table(box=None, padding=(0, 2, 0, 0)) for _ in range(2))
    for table, headings in ((settings, ("setting", "default", "meaning")), (metrics, ("metric", "meaning"))):
        for heading in headings:
            table.add_column(heading, no_wrap=heading != "meaning")
    for row in describe_settings():
        settings.add_row(*row)
    for pair in METRICS.items():
        metrics.add_row(*pair)
    console = make_console()
    console.print(settings)
    console.print()
    console.print(metrics)
    context.exit()


@click.command(context_settings={"show_default": True})
@click.option(
    "--config",
    metavar="FILE.yaml|RECIPE",
    help="Settings of the training: a file, or a recipe (batch, stream, makespan, paper).  "
    f"[default: {DEFAULT_RECIPE}]",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another value for a setting, such as cluster.executors=10; may be given several times.",
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder for policy, checkpoint, metrics."
)
@click.option(
    "--resume", is_flag=True, help="Go on with the run in that folder, by default with its settings."
)
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
@click.option(
    "--explain",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Show all settings and all metrics, and end.",
)
def train(out: Path, resume: bool, device: str, processes: int, **options: Any) -> int:
    """Learn a scheduling policy from a workload (Decima, SIGCOMM 2019).

    The folder gets the policy that is best on sequences that no training meets (policy.npz), all settings
    (config.yaml), metrics (metrics.jsonl, TensorBoard) and a checkpoint to go on from. The same settings give
    the same policy, bit for bit on a CPU, however many processes there are and however often the run was cut
    off. Ctrl-C ends it early.
    """
    with library_errors():
        from decima.training.trainer import Trainer

        config = _config(out, resume, options)
        trainer = Trainer(
            config, out, resume=resume, device=device, processes=processes, command=_command_line(options)
        )
        with _progress(config) as (on_iteration, on_phase):
            result = trainer.run(on_iteration, on_phase)
    make_console().print(_table(result))
    for line in _notes(result):
        click.echo(line)
    if result.interrupted:
        done = f"{result.iteration} of {config.iterations} iterations"
        end(f"interrupted after {done}; --resume goes on", INTERRUPTED)
    return 0


def _config(out: Path, resume: bool, options: dict[str, Any]) -> TrainingConfig:
    from decima.training.config import TrainingError, read_config
    from decima.training.trainer import CONFIG

    overrides: list[str] = list(options["overrides"])
    if options["profiles"] is not None:
        overrides.append(f"workload.profiles={_quoted(options['profiles'])}")
    if options["workload"] is not None:
        overrides.append(f"workload.file={_quoted(options['workload'])}")
    source: str | Path | None = options["config"]
    if resume and source is None:
        source = out / CONFIG
        if not source.exists():
            raise TrainingError(f"{out}: holds no training run to go on with")
    return read_config(source or DEFAULT_RECIPE, overrides)


def _quoted(path: Path) -> str:
    import json

    return json.dumps(str(path))  # a YAML text, whatever characters it has


def _command_line(options: dict[str, Any]) -> str:
    words = ["decima", "train", "--config", str(options["config"] or DEFAULT_RECIPE)]
    for override in options["overrides"]:
        words += ["--set", override]
    for name in ("profiles", "workload"):
        if options[name] is not None:
            words += [f"--{name}", str(options[name])]
    return shlex.join([*words, "--out", "DIR"])


@contextmanager
def _progress(config: TrainingConfig) -> Iterator[tuple[Any, Any]]:
    """Two functions that show how far it is: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(config.cluster.reward), lambda words: click.echo(words, err=True)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=config.iterations, told="")

        def on_iteration(report: IterationReport) -> None:
            told = f"best: {_versus(report.improvement)}"
            progress.update(bar, completed=report.iteration, told=told)

        yield on_iteration, lambda words: progress.update(bar, description=words)


class _Lines:
    """Tells of an iteration in a line, if it was validated or the last line was long ago."""

    def __init__(self, reward: str) -> None:
        self.reward = reward
        self.last = -math.inf

    def __call__(self, report: IterationReport) -> None:
        metrics = report.metrics
        if "improvement" not in metrics and time.monotonic() - self.last < QUIET_S:
            return
        self.last = time.monotonic()
        parts = [f"{report.iteration}/{report.iterations}"]
        if "jct_s" in metrics:
            parts.append(f"training JCT {metrics['jct_s']:.1f} s, entropy {metrics.get('entropy', 0):.2f}")
        if "improvement" in metrics:
            objective = self.reward.upper() if self.reward == "jct" else self.reward
            value = metrics[f"validation_{self.reward}_s"]
            parts.append(f"validation {objective} {value:.1f} s, {_versus(metrics['improvement'])}")
        parts.append(f"best: {_versus(report.improvement)}")
        click.echo("; ".join(parts), err=True)
        sys.stderr.flush()


def _versus(improvement: float) -> str:
    return f"{abs(improvement):.1%} {'better' if improvement >= 0 else 'worse'} than tuned weighted fair"


def _table(result: TrainingResult) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from decima.intervals import mean_and_half_width

    what = "Makespan" if result.config.cluster.reward == "makespan" else "Mean JCT"
    table = Table(
        title=f"{result.config.validation.sequences} validation sequences, s",
        title_justify="left",
        title_style="",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("Scheduler")
    for heading in (what, "decima is shorter by"):
        table.add_column(heading, justify="right", no_wrap=True)
    own = result.results["decima"].mean()
    for name, values in result.results.items():
        mean, half_width = mean_and_half_width(values / 1000)
        shorter = "" if name == "decima" else f"{1 - own / values.mean():.1%}"
        table.add_row(
            name, f"{mean:.1f} ± {half_width:.1f}", shorter, style="bold" if name == "decima" else None
        )
    return table


def _notes(result: TrainingResult) -> Sequence[str]:
    return (
        f"decima is the policy after {result.best_iteration} of {result.iteration} iterations, the best on these "
        f"sequences; {result.cpu_s / 60:.1f} minutes of CPU time.",
        "tuned-weighted-fair has the best alpha of each sequence, known only in hindsight.",
        "On sequences that had no say in the choice:",
        f"  {shlex.join(_compare_command(result))}",
    )


def _compare_command(result: TrainingResult) -> list[str]:
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
        words += ["--arrivals", "poisson", "--interval", f"{workload.interval:g}"]
    return [*words, "--jobs", str(workload.jobs)]
