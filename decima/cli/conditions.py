"""Options for the evaluation setting (cluster and jobs), shared by ``decima compare`` and ``decima explain``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from decima.cli.options import (
    ABOVE_ZERO,
    ABOVE_ZERO_OR_NEVER,
    AT_LEAST_ONE,
    FILE,
    LOG_ERROR,
    NOT_NEGATIVE,
    SHARE,
    Numbers,
    Option,
    SecondaryOption,
    drawn_jobs_options,
    with_options,
    workload_named,
    workload_options,
)
from decima.evaluation import MOVING_DELAY

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions

#: Options of ``knowledge_options``, by the names of the fields of ``Knowledge``.
#: Options of ``carbon_options``.
CARBON = ("carbon", "carbon_start", "executor_watts", "idle_watts")
KNOWLEDGE = ("job_error", "stage_error", "task_count_error", "unknown")


def conditions_options() -> Option:
    """Options for cluster and jobs; see ``conditions_named``."""
    return with_options(
        workload_options(),
        drawn_jobs_options(),
        click.option(
            "--classes",
            metavar="COUNTxMEMORY,..",
            help="Executors of several classes instead, such as 25x0.5,25x1; COUNTxCPU:MEMORY if they have another "
            "number of cores than one.",
        ),
        click.option(
            "--memory-demand",
            type=click.Choice(["own", "uniform"]),
            default="own",
            help="Memory demand of tasks: that of the workload, or for each stage a number drawn from (0, 1].",
        ),
        click.option(
            "--moving-delay",
            type=NOT_NEGATIVE,
            help="Seconds that an executor needs to move to another job.  [default: as measured in a workload file "
            f"from event logs; else {MOVING_DELAY:g}]",
        ),
        click.option(
            "--semantics",
            type=click.Choice(["paper", "decima-sim", "trace", "spark"]),
            default="paper",
            help="Semantics of the simulator: of the Decima paper, or of its published simulator; trace: as the paper, "
            "but no executor waits for a stage that is not ready; spark: as trace, and executors are offered after "
            "each task, as Spark does.",
        ),
        click.option(
            "--window",
            type=ABOVE_ZERO,
            metavar="SECONDS",
            help="Cut the jobs of a workload file into windows of this length; each experiment is the next window that "
            "has jobs.  [default: each experiment has all jobs]",
        ),
        click.option(
            "--drift",
            metavar="AT:RATE[:WORKLOAD]",
            help="Change of Poisson arrivals: from AT seconds on, RATE times as many jobs arrive per time, drawn from "
            "WORKLOAD (any form of --workload) if it is given.",
        ),
        attributes_options(),
        knowledge_options(),
        faults_options(),
        carbon_options(),
        click.option(
            "--engine",
            cls=SecondaryOption,
            type=click.Choice(["compiled", "simpy"]),
            default="compiled",
            help="Simulator: compiled, or readable, which is slower and has the same results.",
        ),
    )


SLACK, WEIGHTS = Numbers("one slack or two, such as 3 or 2,4"), Numbers("weights, such as 1,4,16")


def attributes_options() -> Option:
    """Options for drawn attributes of jobs."""
    return with_options(
        click.option(
            "--deadlines",
            type=SLACK,
            metavar="SLACK[,MOST]",
            help="Give each job a deadline: SLACK times its time alone after its arrival; with MOST, a slack "
            "drawn between both.  [default: deadlines of the workload file]",
        ),
        click.option(
            "--tenants",
            type=AT_LEAST_ONE,
            metavar="N",
            help="Draw the tenant of each job from N.  [default: tenants of the workload file]",
        ),
        click.option(
            "--weights",
            type=WEIGHTS,
            metavar="A,B,..",
            help="Draw the weight of each job from these, such as 1,4,16.  [default: weights of the workload file]",
        ),
    )


def knowledge_options() -> Option:
    """Options for errors of the estimates that schedulers see; names are the fields of ``Knowledge``."""
    measured = "  [default: as measured in a workload file from event logs; else 0]"
    return with_options(
        click.option(
            "--job-error",
            type=LOG_ERROR,
            metavar="SIGMA",
            help="Error of the task times that schedulers see: a log-normal factor of each job. SIGMA is the standard "
            f"deviation of its logarithm; at 0.5, one job in six is off by a factor of two.{measured}",
        ),
        click.option(
            "--stage-error", type=LOG_ERROR, metavar="SIGMA", help=f"The same for each stage.{measured}"
        ),
        click.option(
            "--task-count-error",
            type=LOG_ERROR,
            metavar="SIGMA",
            help=f"The same for the number of tasks of each stage, until the stage is ready.{measured}",
        ),
        click.option(
            "--unknown",
            type=SHARE,
            metavar="SHARE",
            help="Share of jobs without history, 0 to 1: schedulers see the workload's typical task time.  "
            "[default: 0]",
        ),
    )


def faults_options() -> Option:
    """Options for faults of a cluster; see ``faults_named``."""
    return with_options(
        click.option(
            "--executor-lifetime",
            type=ABOVE_ZERO,
            metavar="SECONDS",
            help="Mean time until an executor is lost, with the task that it runs; exponential.  [default: as measured "
            "in a workload file from event logs; else never]",
        ),
        click.option(
            "--executor-return",
            type=ABOVE_ZERO_OR_NEVER,
            metavar="SECONDS|never",
            default=60.0,
            help="Mean time until a lost executor is replaced; exponential. never: it is not replaced.",
        ),
        click.option(
            "--capacity",
            type=FILE,
            metavar="FILE",
            help="Number of executors over time: lines of a time in seconds and a number.",
        ),
        click.option(
            "--lost-output",
            is_flag=True,
            help="Outputs of finished tasks are lost with their executor; the tasks run again if a stage needs them, "
            "as in Spark without an external shuffle service.",
        ),
        click.option(
            "--task-failures",
            type=SHARE,
            metavar="P",
            help="Probability that a run of a task fails; the task runs again, and its fourth failure fails its job.  "
            "[default: as measured in a workload file from event logs; else 0]",
        ),
        click.option(
            "--stragglers",
            metavar="P:FACTOR",
            help="Probability that a run of a task takes FACTOR times as long.",
        ),
        click.option(
            "--speculation",
            is_flag=False,
            flag_value="0.75:1.5",
            metavar="[QUANTILE:MULTIPLIER]",
            help="Copy tasks that run long to idle executors of their job, as Spark does: when QUANTILE of the tasks "
            "of a stage have finished, those that have run for MULTIPLIER times the median, and 100 ms. Without a "
            "value 0.75:1.5, as in Spark 3; Spark 4 has 0.9:3.  [default: never]",
        ),
    )


def carbon_options() -> Option:
    """Options for the carbon intensity or price of electricity."""
    return with_options(
        click.option(
            "--carbon",
            metavar="FILE[:SCALE]",
            help="Carbon intensity (gCO2/kWh) or price of electricity over time: a CSV file of times in seconds and "
            "values, an export of Electricity Maps, or a made-up sample: synthetic-solar, synthetic-wind or "
            "synthetic-coal. Times are divided by SCALE: 60 makes an hour a minute.",
        ),
        click.option(
            "--carbon-start",
            type=NOT_NEGATIVE,
            metavar="SECONDS",
            help="Place in the signal at the beginning of each experiment, after SCALE.  [default: drawn from its "
            "seed]",
        ),
        click.option(
            "--executor-watts",
            type=NOT_NEGATIVE,
            default=100.0,
            help="With --carbon: watts of an executor that runs a task or moves.",
        ),
        click.option(
            "--idle-watts", type=NOT_NEGATIVE, default=0.0, help="With --carbon: watts of an idle executor."
        ),
    )


def faults_named(options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of ``faults_options`` by the fields of ``Faults``."""
    from simulator.cluster.faults import parse_speculation, parse_stragglers, read_capacity

    lifetime, returns, stragglers, capacity, speculation = (
        options[name]
        for name in ("executor_lifetime", "executor_return", "stragglers", "capacity", "speculation")
    )
    given = {
        "executor_lifetime_ms": None if lifetime is None else lifetime * 1000,
        "executor_return_ms": math.inf if returns == "never" else returns * 1000,
        "task_failures": options["task_failures"],
        "stragglers": None if stragglers is None else parse_stragglers(stragglers),
        "lost_output": options["lost_output"],
        "capacity": None if capacity is None else read_capacity(capacity),
        "speculation": None if speculation is None else parse_speculation(speculation),
    }
    return {name: value for name, value in given.items() if value is not None}


def conditions_named(options: dict[str, Any], seeds: int) -> Conditions:
    """Return the evaluation setting of ``conditions_options`` and ``--seed``, with this number of experiments."""
    from decima.evaluation.options import make_conditions
    from workloads.sources.open import EMBEDDED

    names = ("arrivals", "interval", "jobs", "executors", "classes", "memory_demand", "moving_delay")
    return make_conditions(
        workload=workload_named(options["workload"], options["profiles"]) or EMBEDDED,
        seeds=seeds,
        deadlines=SLACK.parse(options["deadlines"]) or None,
        tenants=options["tenants"],
        weights=WEIGHTS.parse(options["weights"]),
        faults=faults_named(options),
        knowledge={each: options[each] for each in KNOWLEDGE if options[each] is not None},
        **{name: options[name] for name in (*names, "semantics", "engine", "window", "drift", "seed")},
        **{name: options[name] for name in CARBON},
    )


def options_without_effect(conditions: Conditions, options: dict[str, Any]) -> dict[str, str]:
    """Return the options that have no effect on these experiments -> the reason."""
    ignored = {} if options["classes"] is None else {"executors": "--classes says how many there are"}
    if conditions.workload.sequence is not None:
        ignored |= dict.fromkeys(
            ("jobs", "arrivals", "interval"), "the workload file says which jobs arrive when"
        )
    elif conditions.arrivals != "poisson":
        ignored["interval"] = "it is for --arrivals poisson"
    if math.isinf(conditions.cluster.faults.executor_lifetime_ms):
        ignored["executor_return"] = "it is for --executor-lifetime"
        if options["capacity"] is None:
            ignored["lost_output"] = "no executor is lost: it is for --executor-lifetime or --capacity"
    if options["carbon"] is None:
        ignored |= dict.fromkeys(CARBON[1:], "it is for --carbon")
    return ignored
