"""The studies of policies for clusters that ``decima reproduce`` offers: what each is told, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from decima.cli.console import Tell
from decima.cli.options import (
    ABOVE_ZERO,
    AT_LEAST_ONE,
    BUDGET,
    FILE,
    POLICIES,
    SEED,
    SEEDS,
    WORKERS,
    FiniteRange,
    Option,
    Studies,
    with_options,
    workload_keys,
    workload_named,
    workload_options,
)

if TYPE_CHECKING:
    from decima.show.shown import Shown

__all__ = ["ON_CLASSES", "ON_CLUSTERS", "cluster_options", "on_cluster"]

CHECKPOINT = click.option(
    "--checkpoint",
    type=FILE,
    help="Policy file of decima train that stands for the full policy, which is then not trained.",
)
SHARE = FiniteRange(0, 1, min_open=True, max_open=True)
BUSY = "Share of the time that executors are to be busy"
LOAD = click.option("--load", type=SHARE, default=0.85, help=f"{BUSY}; sets the time between arrivals.")
#: Of section 7.3, either workload.
PACKING_INTERVAL = click.option(
    "--interval", "interval_s", type=ABOVE_ZERO, default=4.0, help="Mean seconds between TPC-H jobs."
)
PACKING_WINDOW = click.option(
    "--window", "window_s", type=ABOVE_ZERO, default=6480.0, help="Seconds of a trace that are an experiment."
)


def cluster_options(executors: int) -> Option:
    """What studies of policies for clusters share; they have the names of the arguments of ``Study``."""
    return with_options(
        workload_options(),
        click.option("--executors", type=AT_LEAST_ONE, default=executors, help="Executors of the cluster."),
        BUDGET,
        click.option(
            *SEEDS,
            "num_experiments",
            type=AT_LEAST_ONE,
            help="Experiments, instead of the study's own number.",
        ),
        click.option(
            "--jobs", "num_jobs", type=AT_LEAST_ONE, help="Jobs in each, instead of the study's own number."
        ),
        click.option("--seed", type=SEED, default=0, help="Seed of the first experiment."),
        POLICIES,
        WORKERS,
    )


ON_CLUSTERS: Studies = {
    "fig9a": (
        """Compare Decima with classic schedulers on batches.

        100 batches of 20 TPC-H jobs on 50 executors (Decima, Figure 9a). The policy that ships stands for one that is
        trained; for a workload file one is, about 36 minutes of CPU time.""",
        CHECKPOINT,
    ),
    "fig9b": (
        """Compare Decima with classic schedulers on streams.

        Jobs arrive by a Poisson process that keeps executors busy for 85% of the time (Decima, Figure 9b); a closer
        look at one of the streams (Figure 10). fig10 is the same command. About 5 minutes; for a workload file a policy
        is trained, half an hour of CPU time.""",
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
        Figure 13). Some 100 minutes of CPU time, nearly all of it two trainings.""",
        CHECKPOINT,
    ),
    "fig14": (
        """Measure what each idea of Decima is for, as the load grows.

        Without parallelism control, without graph embedding, trained on unfixed sequences, trained on batches
        (Decima, Figure 14); and networks as public re-implementations have them. Some 6 hours of CPU time, nearly all
        of it six trainings.""",
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

        As an input of one function, as separate outputs, and for single stages (Decima, Figure 15a); and networks as
        public re-implementations have them. Some 2 hours of CPU time, nearly all of it five trainings.""",
        LOAD,
    ),
    "fig21": (
        """Compare Decima with the best order of jobs.

        Executors move at once and tasks do not vary, so that order is all that matters; of all orders of 10 jobs the
        best is searched (Decima, Figure 21). Some 90 minutes of CPU time, of which 20 to 30 are a training.""",
        CHECKPOINT,
    ),
    "fig22": (
        """Measure what it costs not to know how long tasks take.

        On batches of 20 jobs (Decima, Figure 22). About 70 minutes of CPU time, nearly all of it two trainings.""",
        CHECKPOINT,
    ),
    "high-load": (
        """Show which jobs and decisions make the difference at high load.

        On streams as those of Figure 9b: JCT by the work of jobs, and executors of a job by the jobs in the system,
        under rules of one thrift, under a policy that learned on batches, and under priced-srpt. Nothing is trained.
        About 5 minutes.""",
        with_options(LOAD, CHECKPOINT),
    ),
    "table2": (
        """Measure how a policy generalises to more arrivals than in its training.

        Streams that keep executors busy for 85% of the time (Decima, Table 2). Some 2 hours of CPU time, nearly all of
        it two trainings.""",
        LOAD,
    ),
}
ON_CLUSTERS["fig10"] = ON_CLUSTERS["fig9b"]

#: Those of section 7.3; there are 200 executors unless somebody says otherwise.
ON_CLASSES: Studies = {
    "fig11a": (
        """Compare Decima with schedulers that pack, on a trace.

        Windows of the trace that --workload names, on executors of four sizes, with Graphene*, Graphene, Tetris and
        weighted fair sharing tuned in each experiment (Decima, Figure 11a). About 5 minutes with the policy that
        ships; to train one takes about 50 minutes of CPU time.""",
        with_options(PACKING_WINDOW, CHECKPOINT),
    ),
    "fig11b": (
        """Compare Decima with schedulers that pack, on TPC-H jobs.

        Streams of 200 jobs whose stages need memory drawn from (0, 1], on executors of four sizes, with Graphene*,
        Graphene, Tetris and weighted fair sharing tuned in each experiment (Decima, Figure 11b). To train a policy,
        where none that ships fits, takes about 50 minutes of CPU time.""",
        with_options(PACKING_INTERVAL, CHECKPOINT),
    ),
    "fig12": (
        """Show which jobs Decima completes faster than Graphene*, and on which executors.

        By the jobs' total work (Decima, Figures 12 and 20), on TPC-H jobs or a trace. fig20 is the same command. To
        train a policy, where none that ships fits, takes about 50 minutes of CPU time.""",
        with_options(PACKING_INTERVAL, PACKING_WINDOW, CHECKPOINT),
    ),
    "fig19": (
        """Show jobs, executors and memory over time, with Decima and with Graphene*.

        Of the first experiment (Decima, Figure 19), on TPC-H jobs or a trace. To train a policy, where none that ships
        fits, takes about 50 minutes of CPU time.""",
        with_options(PACKING_INTERVAL, PACKING_WINDOW, CHECKPOINT),
    ),
    "table3": (
        """Measure how a policy generalises to more jobs and more executors than in its training.

        Streams of a trace's jobs on executors of four sizes (Decima, Table 3); --workload is a workload file without
        arrivals, from decima workload import alibaba --library. About an hour of CPU time, most of it three
        trainings.""",
        click.option(
            "--interval",
            "interval_s",
            type=ABOVE_ZERO,
            default=65.0,
            help="Mean seconds between jobs in the test.",
        ),
    ),
}
ON_CLASSES["fig20"] = ON_CLASSES["fig12"]


def on_cluster(name: str, command: str, tell: Tell, **values: Any) -> Shown:
    """Run a study of ``ON_CLUSTERS`` or ``ON_CLASSES``.

    Args:
        name: of the study.
        command: the command line.
        tell: told how far it is.
        values: of all options.
    """
    from decima.policy.files import load_actor
    from decima.studies import (
        fig9,
        fig11,
        fig12,
        fig13,
        fig14,
        fig15,
        fig19,
        fig21,
        fig22,
        high_load,
        table2,
        table3,
    )
    from decima.studies.study import Study
    from decima.studies.study_report import shown
    from decima.workers.pool import available_cpus
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
        "high-load": high_load.high_load,
        "table2": table2.table2,
        "table3": table3.table3,
    }
    workload = workload_named(values.pop("workload"), values.pop("profiles"))
    if values.get("checkpoint") is not None:
        load_actor(values["checkpoint"])  # refused before the work begins
    size = {key: values.pop(key) for key in (each.name for each in fields(Study)) if key in values}
    size["workers"] = size["workers"] or available_cpus()
    study = Study(
        workload=open_workload(workload or EMBEDDED),
        source=workload_keys(workload),
        **size,
        command=command,
        tell=tell,
    )
    return shown(studies[name](study, **values), command)
