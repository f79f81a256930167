"""The studies of single parts that ``decima reproduce`` offers: the network, the simulator, planners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import Tell
from decima.cli.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    BUDGET,
    FILE,
    FOLDER,
    SEED,
    SEEDS,
    WORKERS,
    Option,
    refuse_without_effect,
    with_options,
    workload_named,
    workload_options,
)

if TYPE_CHECKING:
    from decima.show.shown import Shown

__all__ = ["PARTS"]

#: Executors of the Decima paper's section 7.3.
FOUR_SIZES = "50x0.25,50x0.5,50x0.75,50x1"


def _critical_path(name: str, command: str, tell: Tell, seeds: int, budget: float) -> Shown:
    from decima.studies.critical_path import ITERATIONS, measure_expressiveness
    from decima.studies.critical_path_report import shown

    iterations = max(1, round(budget * ITERATIONS))
    return shown(measure_expressiveness(range(seeds), iterations, on_step=partial(tell, "training")), command)


def _fig18(
    name: str,
    command: str,
    tell: Tell,
    recordings: tuple[Path, ...],
    live: bool,
    executors: int | None,
    seeds: int,
    batches: int | None,
) -> Shown:
    if live:
        refuse_without_effect(
            click.get_current_context(),
            dict.fromkeys(("recordings", "seeds"), "with --live, Spark runs now and durations are measured"),
        )
        return _fig18_live(name, command, tell, executors=executors, batches=batches)
    refuse_without_effect(click.get_current_context(), {"batches": "it is for --live"})
    executors = executors or 2
    if not recordings:
        raise click.UsageError(
            "fig18 needs runs on real Spark: --recordings DIR; python -m workloads.spark.recorder makes them, "
            "or --live runs jobs now"
        )
    from decima.evaluation.spark.recordings import load_recordings
    from decima.studies.fig18 import measure_fidelity
    from decima.studies.fig18_report import shown

    read, on_step = load_recordings(recordings), partial(tell, "predicting")
    return shown(measure_fidelity(read, executors, seeds, on_step=on_step), command)


def _fig18_live(name: str, command: str, tell: Tell, **values: Any) -> Shown:
    from decima.studies.fig18_live import SETTING, measure_live_fidelity, shown
    from workloads.sources.open import open_workload

    setting = replace(SETTING, **{key: value for key, value in values.items() if value is not None})
    try:
        found = measure_live_fidelity(open_workload("tpch").profiles, setting, partial(tell, "running"))
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{name} --live needs {error.name}: pip install -e '.[spark]'") from None
    return shown(found, command)


def _on_spark(
    name: str,
    command: str,
    tell: Tell,
    workload: str | None,
    profiles: Path | None,
    **values: Any,
) -> Shown:
    from decima.studies import fig9_spark, fig9_spark_report, spark_applications, spark_applications_report
    from workloads.sources.open import open_workload

    named = open_workload(workload_named(workload, profiles) or "tpch")
    setting, on_run = fig9_spark.Setting(**values), partial(tell, "running")
    try:
        if name == "fig9-spark":
            live = fig9_spark.compare_live(named.profiles, setting, tell=on_run)
            return fig9_spark_report.shown(live, command)
        shared = spark_applications.compare_applications(named.profiles, setting, on_run)
        return spark_applications_report.shown(shared, command)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{name} needs {error.name}: pip install -e '.[spark]'") from None


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
    workers: int | str | None,
) -> Shown:
    from decima.studies.packing import job_packing, packing
    from decima.studies.packing_report import shown
    from decima.workers.pool import available_cpus

    named = workload_named(workload, profiles)
    if (instances is None) == (named is None):
        raise click.UsageError("expected either --instances or a workload")
    on_step, workers = partial(tell, "planning"), workers or available_cpus()
    of_jobs = ("classes", "memory_demand", "sample")
    without_effect = (
        dict.fromkeys(of_jobs, "it is for a workload")
        if instances
        else {"best": "jobs are compared with lower bounds"}
    )
    refuse_without_effect(click.get_current_context(), without_effect)
    if instances is not None:
        return shown(packing(instances, best, seed, workers, on_step), command)
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
    return shown(job_packing(jobs, cluster, seed, workers, on_step), command)


#: Name -> help, own options, and what finds the results.
PARTS: dict[str, tuple[str, Option, Callable[..., Shown]]] = {
    "critical-path": (
        """Show which graph neural networks find critical paths.

        The graph neural network learns from examples to find the stage with the longest critical path, with and
        without a non-linearity behind the sum over a stage's children (Decima, section 5.1 and appendix E). About 8
        minutes of CPU time.""",
        with_options(
            click.option(
                *SEEDS, "seeds", type=AT_LEAST_ONE, default=5, help="Networks of each kind that are trained."
            ),
            BUDGET,
        ),
        _critical_path,
    ),
    "fig18": (
        """Compare real with simulated runs of queries.

        Runs of TPC-H queries on a real Spark cluster are predicted by the simulator from the durations in other
        runs, and mixtures of applications from runs of each alone. Shows the errors per query and per mixture, and
        what they are without the effects that the simulator models. Seconds; with --live about 15 minutes.""",
        with_options(
            click.option(
                "--recordings",
                metavar="DIR",
                type=FOLDER,
                multiple=True,
                help="Folder that python -m workloads.spark.recorder wrote, or of event logs of single runs; may be "
                "given several times.",
            ),
            click.option(
                "--live",
                is_flag=True,
                help="Run jobs of the embedded TPC-H set, whose tasks sleep, on a real Spark with Decima in charge. "
                "Needs pip install -e '.[spark]'.",
            ),
            click.option(
                "--executors",
                type=AT_LEAST_ONE,
                help="Executors of a query alone; of Spark with --live.  [default: 2; with --live 8]",
            ),
            click.option(*SEEDS, "seeds", type=AT_LEAST_ONE, default=10, help="Draws of the durations."),
            click.option(
                "--batches",
                type=AT_LEAST_ONE,
                help="With --live: mixtures of 10 jobs; twice as many jobs run alone.  [default: 3]",
            ),
        ),
        _fig18,
    ),
    "fig9-spark": (
        """Put Decima in charge of a real Spark.

        Starts Spark on this machine and runs jobs on it whose tasks sleep as long as their profiles say: in Spark's
        FIFO and FAIR mode, and under tuned weighted fair sharing and Decima, which take charge through the plugin and
        decima serve. Shows the mean job completion times beside those that the simulator predicts. Needs a Java runtime
        and pyspark: pip install -e '.[spark]' brings both. About half an hour.""",
        with_options(
            workload_options(),
            click.option("--executors", type=AT_LEAST_ONE, default=8, help="Executors, of one slot each."),
            click.option("--jobs", type=AT_LEAST_ONE, default=10, help="Jobs in a batch, or in a stream."),
            click.option("--batches", type=AT_LEAST_ONE, default=5, help="Batches, or streams."),
            click.option(
                "--arrivals",
                type=click.Choice(["batch", "poisson"]),
                default="batch",
                help="All jobs at once, or a stream that keeps the executors busy for 85 % of the time.",
            ),
            click.option("--scale", type=ABOVE_ZERO, default=4.0, help="Factor on the durations of tasks."),
            click.option(
                "--tasks", type=ABOVE_ZERO, default=0.05, help="Factor on the number of tasks of each stage."
            ),
            click.option("--seed", type=SEED, default=0, help="Of the first batch."),
        ),
        _on_spark,
    ),
    "spark-applications": (
        """Share a real standalone cluster of Spark among applications.

        Starts a master and a worker on this machine and several applications on it, each with a job whose tasks sleep
        as long as its profile says: as Spark's master shares executors (first come, first served), with equal static
        shares, and with Decima in charge, which moves executors from one application to another. Needs a Java runtime
        and pyspark: pip install -e '.[spark]' brings both. About 20 minutes.""",
        with_options(
            workload_options(),
            click.option("--executors", type=AT_LEAST_ONE, default=8, help="Slots of the cluster."),
            click.option("--jobs", type=AT_LEAST_ONE, default=4, help="Applications in a batch."),
            click.option("--batches", type=AT_LEAST_ONE, default=3, help="Batches."),
            click.option("--scale", type=ABOVE_ZERO, default=10.0, help="Factor on the durations of tasks."),
            click.option(
                "--tasks", type=ABOVE_ZERO, default=0.1, help="Factor on the number of tasks of each stage."
            ),
            click.option("--seed", type=SEED, default=0, help="Of the first batch."),
        ),
        _on_spark,
    ),
    "packing": (
        """Compare how compactly Graphene and simpler planners pack tasks.

        Plans projects of PSPLIB, whose best makespans are known: random order, Tetris, longest critical path first, and
        Graphene (OSDI 2016), as it is and with its plans justified. The table and the JSON tell deviations in percent.
        The 240 projects of j30 take seconds.
        Needs the package psplib: pip install -e '.[packing]'. Or plans the jobs of a workload, each alone on a
        cluster, and compares with lower bounds.""",
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
            click.option("--seed", type=SEED, default=0, help="Seed of the random order."),
            WORKERS,
        ),
        _packing,
    ),
}
