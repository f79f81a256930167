"""The commands ``decima reproduce NAME``: a study each. The tables say which, and with what options of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import INTERRUPTED, Tell, command_line, end, progress, report
from decima.cli.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    FILE,
    FOLDER,
    JSON,
    PROCESSES,
    Aside,
    Numbers,
    Option,
    out_option,
    refuse_without_effect,
    with_options,
    workload_keys,
    workload_named,
    workload_options,
)

if TYPE_CHECKING:
    from decima.show.shown import Shown

__all__ = ["reproduce"]

BUDGET = click.option(
    "--budget",
    type=ABOVE_ZERO,
    default=1.0,
    help="Size of training and comparison; 1 is full size, 0.01 shows within minutes that all works.",
)
POLICIES = click.option(
    "--policies",
    cls=Aside,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of trained policies; what is there is not trained again, what was cut off goes on.  "
    "[default: policies-BUDGET in the folder for pictures]",
)
#: Executors of the Decima paper's section 7.3.
FOUR_SIZES = "50x0.25,50x0.5,50x0.75,50x1"


def _cluster(executors: int) -> Option:
    """What studies of policies for clusters share; they have the names of the arguments of ``Study``."""
    return with_options(
        workload_options(),
        click.option("--executors", type=AT_LEAST_ONE, default=executors, help="Executors of the cluster."),
        BUDGET,
        click.option(
            "--seeds",
            "num_experiments",
            type=AT_LEAST_ONE,
            help="Experiments, instead of the study's own number.",
        ),
        click.option(
            "--jobs", "num_jobs", type=AT_LEAST_ONE, help="Jobs in each, instead of the study's own number."
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the first experiment."),
        POLICIES,
        PROCESSES,
    )


#: What studies on grids share; they have the names of the arguments of ``GridStudy``.
GRID = with_options(
    BUDGET,
    click.option(
        "--sets", type=click.IntRange(min=2), default=100, help="Unseen sets of jobs to compare on."
    ),
    click.option(
        "--seed", type=click.IntRange(0, 999_999), default=0, help="Names the sets; of trainings too."
    ),
    POLICIES,
)
CHECKPOINT = click.option(
    "--checkpoint",
    type=FILE,
    help="Policy file of decima train that stands for the full policy, which is then not trained.",
)
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
BUSY = "Share of the time that executors are to be busy"
LOAD = click.option("--load", type=SHARE, default=0.85, help=f"{BUSY}; sets the time between arrivals.")
#: Of section 7.3, either workload.
PACKING_INTERVAL = click.option(
    "--interval", "interval_s", type=ABOVE_ZERO, default=4.0, help="Mean seconds between TPC-H jobs."
)
PACKING_WINDOW = click.option(
    "--window", "window_s", type=ABOVE_ZERO, default=6480.0, help="Seconds of a trace that are an experiment."
)
WEIGHTS = Numbers("three numbers with commas between them", count=3)

#: Name -> help, and own options, which have the names of the study's arguments.
Studies = dict[str, tuple[str, Option]]

_ON_CLUSTERS: Studies = {
    "fig9a": (
        """Compare Decima with classic schedulers on batches.

        100 batches of 20 TPC-H jobs on 50 executors (Decima, Figure 9a).""",
        CHECKPOINT,
    ),
    "fig9b": (
        """Compare Decima with classic schedulers on streams.

        Jobs arrive by a Poisson process that keeps executors busy for 85% of the time (Decima, Figure 9b); a closer
        look at one of the streams (Figure 10). fig10 is the same command.""",
        with_options(
            click.option(
                "--load", type=SHARE, help=f"{BUSY}; sets the time between arrivals.  [default: 0.85]"
            ),
            click.option(
                "--interval",
                "interval_s",
                type=ABOVE_ZERO,
                help="Mean seconds between arrivals, instead of a load; the published code has 25.",
            ),
            CHECKPOINT,
        ),
    ),
    "fig13": (
        """Compare policies learned for different objectives.

        The average JCT with the moving delay, the same with moves that take no time, and the makespan (Decima,
        Figure 13).""",
        CHECKPOINT,
    ),
    "fig14": (
        """Measure what each idea of Decima is for, as the load grows.

        Without parallelism control, without graph embedding, trained on unfixed sequences, trained on batches
        (Decima, Figure 14).""",
        with_options(
            click.option(
                "--load",
                "loads",
                type=SHARE,
                multiple=True,
                default=(0.55, 0.65, 0.75, 0.85),
                help=f"{BUSY}; may be given several times. All policies are trained at the highest.",
            ),
            CHECKPOINT,
        ),
    ),
    "fig15a": (
        """Compare how parallelism limits are encoded, by how fast they are learned.

        As an input of one function, as separate outputs, and for single stages (Decima, Figure 15a).""",
        LOAD,
    ),
    "fig21": (
        """Compare Decima with the best order of jobs.

        Executors move at once and tasks do not vary, so that order is all that matters; of all orders of 10 jobs the
        best is searched (Decima, Figure 21).""",
        CHECKPOINT,
    ),
    "fig22": (
        """Measure what it costs not to know how long tasks take.

        On batches of 20 jobs (Decima, Figure 22).""",
        CHECKPOINT,
    ),
    "table2": (
        """Measure how policies generalise.

        To more arrivals than in training, more jobs, more executors; and to smaller and larger clusters (Decima,
        Tables 2 and 3).""",
        with_options(
            LOAD,
            click.option(
                "--part",
                "parts",
                type=click.Choice(["arrivals", "sizes", "clusters"]),
                multiple=True,
                default=("arrivals", "sizes", "clusters"),
                help="What of it: other arrivals, fewer jobs and executors in training, other clusters; may be "
                "given several times.",
            ),
            CHECKPOINT,
        ),
    ),
}
_ON_CLUSTERS["fig10"] = _ON_CLUSTERS["fig9b"]

#: Those of section 7.3; there are 200 executors unless somebody says otherwise.
_ON_CLASSES: Studies = {
    "fig11a": (
        """Compare Decima with schedulers that pack, on a trace.

        Windows of the trace that --workload names, on executors of four sizes, with Graphene*, Graphene, Tetris and
        weighted fair sharing tuned in each experiment (Decima, Figure 11a).""",
        with_options(PACKING_WINDOW, CHECKPOINT),
    ),
    "fig11b": (
        """Compare Decima with schedulers that pack, on TPC-H jobs.

        Streams of 200 jobs whose stages need memory drawn from (0, 1], on executors of four sizes, with Graphene*,
        Graphene, Tetris and weighted fair sharing tuned in each experiment (Decima, Figure 11b).""",
        with_options(PACKING_INTERVAL, CHECKPOINT),
    ),
    "fig12": (
        """Show which jobs Decima completes faster than Graphene*, and on which executors.

        By the jobs' total work (Decima, Figures 12 and 20), on TPC-H jobs or a trace. fig20 is the same command.""",
        with_options(PACKING_INTERVAL, PACKING_WINDOW, CHECKPOINT),
    ),
    "fig19": (
        """Show jobs, executors and memory over time, with Decima and with Graphene*.

        Of the first experiment (Decima, Figure 19), on TPC-H jobs or a trace.""",
        with_options(PACKING_INTERVAL, PACKING_WINDOW, CHECKPOINT),
    ),
}
_ON_CLASSES["fig20"] = _ON_CLASSES["fig12"]

_ON_GRIDS: Studies = {
    "deeprm-fig4": (
        """Compare DeepRM with heuristics as the load grows.

        A network is trained at each load (DeepRM, Figure 4). About 60 minutes of CPU time.""",
        click.option(
            "--load",
            "loads",
            type=ABOVE_ZERO,
            multiple=True,
            help="Load in percent; may be given several times.  [default: 10, 30, .. 170, 184.5]",
        ),
    ),
    "deeprm-fig5": (
        """Compare networks that learned for slowdown and for completion time.

        At a load of 130 % (DeepRM, Figure 5). About 15 minutes of CPU time.""",
        with_options(),
    ),
    "deeprm-fig6": (
        """Show how fast DeepRM learns.

        At a load of 70 % (DeepRM, Figure 6). About 10 minutes of CPU time.""",
        with_options(),
    ),
    "deeprm-fig7": (
        """Show which jobs DeepRM withholds, and whom that helps.

        At a load of 110 % (DeepRM, Figure 7). About 7 minutes of CPU time.""",
        with_options(),
    ),
    "cnn-fig2": (
        """Compare a convolution, the reshaped state and reward weights with DeepRM.

        On jobs at a load of 70 % (Chen, Xu and Wu, 2017, Figure 2). About 10 minutes of CPU time.""",
        click.option(
            "--weights",
            type=WEIGHTS,
            metavar="A,B,C",
            multiple=True,
            default=("1,1,2", "0.5,1,1"),
            help="alpha, beta and gamma of a reward to try; may be given several times.",
        ),
    ),
    "cnn-fig3": (
        """Compare a network for two machines with heuristics.

        At a load of 70 % of both (Chen, Xu and Wu, 2017, Figure 3). About 8 minutes of CPU time.""",
        with_options(),
    ),
    "a2c-tables": (
        """Compare actor-critic training with heuristics at four rates of arrival.

        Slowdown, completion and waiting time; architectures; a real log (A2cScheduler, 2020). About 25 minutes of
        CPU time.""",
        with_options(
            click.option("--log", type=FILE, help="Compare on this log in Standard Workload Format too."),
            click.option(
                "--log-load",
                type=ABOVE_ZERO,
                default=70.0,
                help="Load in percent that the log is resampled to.",
            ),
        ),
    ),
}


def _on_cluster(name: str, command: str, tell: Tell, **values: Any) -> Shown:
    from decima.evaluation.workers import available_cpus
    from decima.policy.files import load_actor
    from decima.studies import fig9, fig11, fig12, fig13, fig14, fig15, fig19, fig21, fig22, table2
    from decima.studies.study import Study
    from decima.studies.study_report import shown
    from workloads.sources.open import EMBEDDED, open_workload

    studies: dict[str, Callable[..., Any]] = {
        "fig9a": fig9.fig9a,
        "fig9b": fig9.fig9b,
        "fig10": fig9.fig9b,
        "fig11a": fig11.fig11a,
        "fig11b": fig11.fig11b,
        "fig12": fig12.fig12,
        "fig13": fig13.fig13,
        "fig14": fig14.fig14,
        "fig15a": fig15.fig15a,
        "fig19": fig19.fig19,
        "fig20": fig12.fig12,
        "fig21": fig21.fig21,
        "fig22": fig22.fig22,
        "table2": table2.table2,
    }
    workload = workload_named(values.pop("workload"), values.pop("profiles"))
    if values.get("checkpoint") is not None:
        load_actor(values["checkpoint"])  # refused before the work begins
    size = {key: values.pop(key) for key in (each.name for each in fields(Study)) if key in values}
    size["processes"] = size["processes"] or available_cpus()
    study = Study(
        workload=open_workload(workload or EMBEDDED),
        source=workload_keys(workload),
        **size,
        command=command,
        tell=tell,
    )
    return shown(studies[name](study, **values), command)


def _on_grid(name: str, command: str, tell: Tell, **values: Any) -> Shown:
    from decima.studies.grid import a2c, cnn, figures, withheld
    from decima.studies.grid.report import shown
    from decima.studies.grid.study import GridStudy

    studies: dict[str, Callable[..., Any]] = {
        "deeprm-fig4": figures.fig4,
        "deeprm-fig5": figures.fig5,
        "deeprm-fig6": figures.fig6,
        "deeprm-fig7": withheld.fig7,
        "cnn-fig2": cnn.fig2,
        "cnn-fig3": cnn.fig3,
        "a2c-tables": a2c.tables,
    }
    size = {key: values.pop(key) for key in ("budget", "seed", "sets", "policies")}
    for key, read in (
        ("loads", lambda loads: [load / 100 for load in loads]),
        ("log_load", lambda load: load / 100),
        ("weights", lambda texts: [WEIGHTS.parse(text) for text in texts]),
    ):
        if key in values:
            values[key] = read(values[key])
    return shown(studies[name](GridStudy(**size, command=command, tell=tell), **values), command)


def _critical_path(name: str, command: str, tell: Tell, seeds: int, budget: float) -> Shown:
    from decima.studies.critical_path import ITERATIONS, measure_expressiveness
    from decima.studies.critical_path_report import shown

    iterations = max(1, round(budget * ITERATIONS))
    return shown(measure_expressiveness(range(seeds), iterations, on_step=partial(tell, "training")), command)


def _fig18(
    name: str, command: str, tell: Tell, recordings: tuple[Path, ...], executors: int, seeds: int
) -> Shown:
    if not recordings:
        raise click.UsageError(
            "fig18 needs runs on real Spark: --recordings DIR; python -m workloads.spark.recorder makes them"
        )
    from decima.studies.fig18 import measure_fidelity
    from decima.studies.fig18_report import shown
    from decima.studies.recordings import load_recordings

    read, on_step = load_recordings(recordings), partial(tell, "predicting")
    return shown(measure_fidelity(read, executors, seeds, on_step=on_step), command)


def _packing(
    name: str,
    command: str,
    tell: Tell,
    instances: Path | None,
    best: Path | None,
    workload: str | None,
    profiles: Path | None,
    classes: str | None,
    memory_demand: str | None,
    sample: int | None,
    seed: int,
    processes: int | None,
) -> Shown:
    from decima.evaluation.workers import available_cpus
    from decima.studies.packing import job_packing, packing
    from decima.studies.packing_report import shown

    named = workload_named(workload, profiles)
    if (instances is None) == (named is None):
        raise click.UsageError("expected either --instances or a workload")
    on_step, processes = partial(tell, "planning"), processes or available_cpus()
    of_jobs = ("classes", "memory_demand", "sample")
    without_effect = (
        dict.fromkeys(of_jobs, "it is for a workload")
        if instances
        else {"best": "jobs are compared with lower bounds"}
    )
    refuse_without_effect(click.get_current_context(), without_effect)
    if instances is not None:
        return shown(packing(instances, best, seed, processes, on_step), command)
    from simulator.cluster.config import ClusterConfig, parse_classes
    from workloads.arrivals import trace_arrivals, uniform_memory
    from workloads.excerpt import Excerpt
    from workloads.sources.open import open_workload

    assert named is not None
    each = open_workload(named).profiles
    chosen = Excerpt(sample=sample, seed=seed).choose([0.0] * len(each))
    jobs = trace_arrivals([each[number] for number in chosen], [0.0] * len(chosen), seed)
    jobs = uniform_memory(jobs) if memory_demand == "uniform" else jobs
    cluster = ClusterConfig(executor_classes=parse_classes(classes or FOUR_SIZES))
    return shown(job_packing(jobs, cluster, seed, processes, on_step), command)


@click.group()
def reproduce() -> None:
    """Make figures of the papers again: Decima's, DeepRM's and those of its successors."""


def _add(name: str, text: str, options: Option, find: Callable[..., Shown]) -> None:
    """Add a command.

    Args:
        name: its name.
        text: its help.
        options: besides ``--json`` and ``--out``.
        find: gives its results; called with the name, the command line, whom to tell how far it is, and all values.
    """

    @reproduce.command(name, help=text, context_settings={"show_default": True})
    @with_options(options, JSON, out_option("reproduce"))
    @click.pass_context
    def command(context: click.Context, /, out: Path, json_file: Path | None, **values: Any) -> None:
        from decima.outputs import prepare_outputs

        prepare_outputs(out, json_file)
        if "policies" in values:
            values["policies"] = values["policies"] or out / f"policies-{values['budget']:g}"
        try:
            with progress() as tell:
                shown = find(name, command_line(context), tell, **values)
        except KeyboardInterrupt:
            goes_on = "; the same command goes on with the training" if "policies" in values else ""
            end(f"interrupted{goes_on}", INTERRUPTED)
        report(shown, out, json_file)


for _name, (_text, _own) in _ON_CLUSTERS.items():
    _add(_name, _text, with_options(_own, _cluster(50)), _on_cluster)
for _name, (_text, _own) in _ON_CLASSES.items():
    _add(_name, _text, with_options(_own, _cluster(200)), _on_cluster)
for _name, (_text, _own) in _ON_GRIDS.items():
    _add(_name, _text, with_options(_own, GRID), _on_grid)
_add(
    "critical-path",
    """Show which graph neural networks find critical paths.

    The graph neural network learns from examples to find the stage with the longest critical path, with and
    without a non-linearity behind the sum over a stage's children (Decima, section 5.1 and appendix E).""",
    with_options(
        click.option("--seeds", type=AT_LEAST_ONE, default=5, help="Networks of each kind that are trained."),
        BUDGET,
    ),
    _critical_path,
)
_add(
    "fig18",
    """Compare real with simulated runs of queries.

    Runs of TPC-H queries on a real Spark cluster are predicted by the simulator from the durations in other
    runs, and mixtures of applications from runs of each alone. Shows the errors per query and per mixture, and
    what they are without the effects that the simulator models.""",
    with_options(
        click.option(
            "--recordings",
            metavar="DIR",
            type=FOLDER,
            multiple=True,
            help="Folder that python -m workloads.spark.recorder wrote, or of event logs of single runs; may be "
            "given several times.",
        ),
        click.option("--executors", type=AT_LEAST_ONE, default=2, help="Executors of a query alone."),
        click.option("--seeds", type=AT_LEAST_ONE, default=10, help="Draws of the durations."),
    ),
    _fig18,
)
_add(
    "packing",
    """Compare how compactly Graphene and simpler planners pack tasks.

    Plans projects of PSPLIB, whose best makespans are known: random order, Tetris, longest critical path first, and
    Graphene (OSDI 2016), as it is and with its plans justified. The table and the JSON tell deviations in percent.
    Needs the package psplib: pip install 'decima[packing]'. Or plans the jobs of a workload, each alone on a cluster,
    and compares with lower bounds.""",
    with_options(
        click.option("--instances", metavar="DIR", type=FOLDER, help="Folder of .sm files of PSPLIB."),
        workload_options(default="none; instead of --instances"),
        click.option(
            "--classes",
            metavar="COUNTxMEMORY,..",
            help=f"Executors for the jobs of a workload, as decima compare has them.  [default: {FOUR_SIZES}]",
        ),
        click.option(
            "--memory-demand",
            type=click.Choice(["own", "uniform"]),
            help="Memory that tasks of a workload need: what it says, or for each stage drawn from (0, 1].  "
            "[default: own]",
        ),
        click.option(
            "--sample", type=AT_LEAST_ONE, help="Draw so many jobs of the workload.  [default: all]"
        ),
        click.option(
            "--best",
            type=FILE,
            help="CSV file with columns instance and best, the best known makespan.  [default: best.csv in the "
            "folder or the one above; without it, plans are compared with lower bounds]",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the random order."),
        PROCESSES,
    ),
    _packing,
)
