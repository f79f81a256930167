"""The commands ``decima spark``: predict the gain of other schedulers on a real Spark, and install its plugin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from decima.cli.console import INTERRUPTED, Commands, command_line, end, report
from decima.cli.options import (
    AT_LEAST_ONE,
    EXECUTORS,
    FLAG,
    JSON,
    NOT_NEGATIVE,
    PATH,
    SEED,
    SHARE,
    TEXT,
    option,
    out_option,
)
from decima.progress import PATIENCE_S, progress


@click.group(cls=Commands)
def spark() -> None:
    """Predict the gain of other schedulers on a real Spark, and install the plugin for a policy."""


@spark.command()
def jar() -> None:
    """Print the path of the plugin for Spark 3.3 to 4.x, a value for spark.jars."""
    from decima.service.plugin import JAR

    click.echo(JAR)


@spark.command(name="build")
@option(
    "--spark HOME",
    click.Path(exists=True, file_okay=False, path_type=Path),
    "Home folder of the Spark to compile for, with a folder jars.",
    name="home",
    required=True,
)
@option("--out FILE.jar", PATH, "File to write.", "decima-spark.jar", show_default=True)
def build_(home: Path, out: Path) -> None:
    """Compile the plugin for a Spark that the shipped plugin does not support. Needs a JDK, version 9 or later."""
    from decima.service.plugin import build

    build(home, out)
    click.echo(out)


@click.command(name="what-if", context_settings={"show_default": True})
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@option(
    "--executors",
    EXECUTORS,
    "Number of task slots of the cluster.  [default: the largest number at any time in the logs]",
)
@option(
    "--moving-delay",
    NOT_NEGATIVE,
    "Delay of a slot that moves to another job, seconds.  [default: 0 if one application ran all jobs, else the "
    "executors' start-up time]",
)
@option("--policy NAME|FILE", TEXT, "Also predict decima with this policy file, or shipped policy.")
@option(
    "--unknown",
    SHARE,
    "Share of jobs without history, whose task times schedulers only estimate.",
    0.0,
)
@option(
    "--estimator forest|typical|FILE",
    TEXT,
    "Estimates of jobs without history: forest is fitted to the other queries of the logs, typical is the typical task "
    "time, FILE is a model file of decima train-estimator.",
    "forest",
)
@option("--draws", AT_LEAST_ONE, "Number of simulations of each scheduler.", 20)
@option("--seed", SEED, "Seed of the first simulation.", 0)
@option(
    "--keep-warm-up",
    FLAG,
    "Keep the jobs that an application ran one by one before the first two overlapping jobs, and pool the cold first "
    "runs of queries with later runs.",
    name="keep",
)
@option("--partial", FLAG, "Keep the readable part of damaged logs.", name="damaged")
@JSON
@out_option()
@click.pass_context
def what_if(
    context: click.Context,
    /,
    logs: Sequence[Path],
    executors: int | None,
    moving_delay: float | None,
    policy: str | None,
    unknown: float,
    estimator: str,
    draws: int,
    seed: int,
    keep: bool,
    damaged: bool,
    json_file: Path | None,
    out: Path | None,
) -> None:
    """Predict the completion times of your jobs under other schedulers.

    Reads Spark's event logs in LOGS (files, folders, zip archives) and simulates their jobs at their real arrival times
    under Spark's FIFO and FAIR, weighted fair sharing, and the rules srpt and srpt-tuned. Shows the gain with its
    uncertainty. Applications that ran at the same time under one master shared a cluster; all other applications are
    predicted separately.
    """
    from decima.evaluation.spark.logged_jobs import logged_jobs, predict_held_out
    from decima.evaluation.spark.what_if import SCHEDULERS, simulate_what_if
    from decima.outputs import prepare_outputs
    from decima.registry import LEARNED, make_scheduler
    from decima.show.what_if import shown
    from simulator.cluster.config import Knowledge
    from simulator.cluster.estimators import open_estimator
    from workloads.spark.importing import import_event_logs

    schedulers = {**SCHEDULERS}
    if policy is not None:
        schedulers[LEARNED] = f"{LEARNED}:{policy}"
        make_scheduler(schedulers[LEARNED])  # raises before the logs are read
    knowledge = Knowledge(unknown=unknown, estimator=open_estimator(estimator))
    prepare_outputs(out, json_file)
    imported = import_event_logs(logs, partial=damaged, warm_ups=keep, cold_runs=keep, name="the logs")
    logged = logged_jobs(imported, executors, None if moving_delay is None else 1000 * moving_delay)
    try:
        with progress(PATIENCE_S) as update:
            held_out = predict_held_out(imported, on_step=partial(update, "predicting runs")).with_driver()
            simulated = simulate_what_if(
                imported, held_out, logged, schedulers, draws, seed, partial(update, "simulating"), knowledge
            )
    except KeyboardInterrupt:
        end("interrupted", INTERRUPTED)
    report(shown(simulated, command_line(context), imported.notes), out, json_file)


spark.add_command(what_if)
