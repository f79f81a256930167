"""The options that say what schedulers are compared on, which several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from decima.cli.options import (
    ABOVE_ZERO,
    NOT_NEGATIVE,
    Aside,
    Option,
    drawn_jobs_options,
    with_options,
    workload_named,
    workload_options,
)
from decima.evaluation.defaults import MOVING_DELAY

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions

__all__ = ["conditions_named", "conditions_options", "options_without_effect"]


def conditions_options() -> Option:
    """The cluster and its jobs; see ``conditions_named``."""
    return with_options(
        workload_options(),
        drawn_jobs_options(),
        click.option(
            "--classes",
            metavar="COUNTxMEMORY,..",
            help="Executors of several classes instead, such as 25x0.5,25x1; COUNTxCPU:MEMORY where they have not one "
            "core.",
        ),
        click.option(
            "--memory-demand",
            type=click.Choice(["own", "uniform"]),
            default="own",
            help="Memory that tasks need: what the workload says, or for each stage a number drawn from (0, 1].",
        ),
        click.option(
            "--moving-delay",
            type=NOT_NEGATIVE,
            help="Seconds that an executor needs to move to another job.  [default: what a workload file from event "
            f"logs says that it took; else {MOVING_DELAY:g}]",
        ),
        click.option(
            "--semantics",
            type=click.Choice(["paper", "decima-sim", "trace", "spark"]),
            default="paper",
            help="Spark as the Decima paper or as its published simulator models it; trace: as the paper, but "
            "no executor is sent to wait for a stage that is not ready; spark: besides, executors are offered after "
            "each task, as Spark itself does.",
        ),
        click.option(
            "--window",
            type=ABOVE_ZERO,
            metavar="SECONDS",
            help="Cut the jobs of a workload file into windows as long as this; each experiment is the next of those "
            "with jobs.  [default: each experiment has all jobs]",
        ),
        click.option(
            "--drift",
            metavar="AT:RATE[:WORKLOAD]",
            help="A change of Poisson arrivals: from AT seconds on, jobs come RATE times as often (2: twice as many "
            "per time); WORKLOAD, in any form of --workload, is where they come from then.",
        ),
        click.option(
            "--engine",
            cls=Aside,
            type=click.Choice(["compiled", "simpy"]),
            default="compiled",
            help="The compiled simulator, or the readable one: slower, with the same results.",
        ),
    )


def conditions_named(options: dict[str, Any], seeds: int) -> Conditions:
    """The conditions that the values of ``conditions_options`` and ``--seed`` mean.

    Args:
        options: value of each option.
        seeds: number of experiments.
    """
    from decima.evaluation.options import make_conditions
    from workloads.sources.open import EMBEDDED

    names = ("arrivals", "interval", "jobs", "executors", "classes", "memory_demand", "moving_delay")
    return make_conditions(
        workload=workload_named(options["workload"], options["profiles"]) or EMBEDDED,
        seeds=seeds,
        **{name: options[name] for name in (*names, "semantics", "engine", "window", "drift", "seed")},
    )


def options_without_effect(conditions: Conditions, options: dict[str, Any]) -> dict[str, str]:
    """Options that these experiments ignore, and why."""
    ignored = {} if options["classes"] is None else {"executors": "--classes says how many there are"}
    if conditions.workload.sequence is not None:
        ignored |= dict.fromkeys(
            ("jobs", "arrivals", "interval"), "the workload file says which jobs arrive when"
        )
    elif conditions.arrivals != "poisson":
        ignored["interval"] = "it is for --arrivals poisson"
    return ignored
