"""Options for the evaluation setting (cluster and jobs), shared by ``decima compare`` and ``decima explain``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from decima.cli.options import (
    ABOVE_ZERO,
    ABOVE_ZERO_OR_NEVER,
    AT_LEAST_ONE,
    EXECUTORS,
    FILE,
    FLAG,
    LOG_ERROR,
    NOT_NEGATIVE,
    SHARE,
    TEXT,
    Numbers,
    option,
    secondary,
    with_options,
    workload_named,
    workload_options,
)
from decima.evaluation import MOVING_DELAY

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions

#: Names of the options for carbon, and for errors of estimates.
CARBON = ("carbon", "carbon_start", "executor_watts", "idle_watts")
KNOWLEDGE = ("job_error", "stage_error", "task_count_error", "unknown")
SLACK, WEIGHTS = Numbers("one slack or two, such as 3 or 2,4"), Numbers("weights, such as 1,4,16")
_MEASURED = "  [default: as measured in a workload file from event logs; else 0]"
#: Options for cluster and jobs; see ``conditions_named``.
CONDITIONS = with_options(
    workload_options(),
    option("--arrivals", click.Choice(["batch", "poisson"]), "Arrivals of jobs.", "batch"),
    option("--interval", ABOVE_ZERO, "Mean time between Poisson arrivals, seconds.", 25.0),
    option("--jobs", AT_LEAST_ONE, "Number of jobs in each experiment.", 20),
    option("--executors", EXECUTORS, "Number of executors of the cluster.", 50),
    option(
        "--classes COUNTxMEMORY,..",
        TEXT,
        "Executors of several classes instead, such as 25x0.5,25x1; COUNTxCPU:MEMORY for executors with "
        "another number of cores than one.",
    ),
    option(
        "--memory-demand",
        click.Choice(["own", "uniform"]),
        "Memory demand of tasks: the workload's own, or uniformly drawn from (0, 1] for each stage.",
        "own",
    ),
    option(
        "--moving-delay",
        NOT_NEGATIVE,
        "Delay of an executor that moves to another job, seconds.  [default: as measured in a workload file "
        f"from event logs; else {MOVING_DELAY:g}]",
    ),
    option(
        "--semantics",
        click.Choice(["paper", "decima-sim", "trace", "spark"]),
        "Semantics of the simulator: of the Decima paper, or of its published simulator; trace: like paper, "
        "but no executor waits for a stage that is not ready; spark: like trace, and executors are offered after "
        "each task, as in Spark.",
        "paper",
    ),
    option(
        "--window SECONDS",
        ABOVE_ZERO,
        "Split the jobs of a workload file into windows of this length; each experiment is the next window "
        "with jobs.  [default: each experiment has all jobs]",
    ),
    option(
        "--drift AT:RATE[:WORKLOAD]",
        TEXT,
        "Change of Poisson arrivals: from AT seconds on, the arrival rate is multiplied by RATE, and jobs are "
        "drawn from WORKLOAD (any form of --workload) if it is given.",
    ),
    # Attributes of jobs, drawn at random.
    option(
        "--deadlines SLACK[,MOST]",
        SLACK,
        "Deadline of each job: arrival plus SLACK times the job's time alone; with MOST, the slack is drawn "
        "between both.  [default: deadlines of the workload file]",
    ),
    option(
        "--tenants N",
        AT_LEAST_ONE,
        "Draw the tenant of each job from N tenants.  [default: tenants of the workload file]",
    ),
    option(
        "--weights A,B,..",
        WEIGHTS,
        "Draw the weight of each job from a list, such as 1,4,16.  [default: weights of the workload file]",
    ),
    # Errors of the estimates; names are the fields of ``Knowledge``.
    option(
        "--job-error SIGMA",
        LOG_ERROR,
        "Error of estimated task times: a log-normal factor for each job. SIGMA is the standard deviation of "
        f"its logarithm; at 0.5, the times of one job in six are wrong by a factor of two or more.{_MEASURED}",
    ),
    option(
        "--stage-error SIGMA",
        LOG_ERROR,
        f"Error of estimated task times: a log-normal factor for each stage.{_MEASURED}",
    ),
    option(
        "--task-count-error SIGMA",
        LOG_ERROR,
        f"Error of the estimated number of tasks of each stage, until the stage is ready.{_MEASURED}",
    ),
    option(
        "--unknown SHARE",
        SHARE,
        "Share of jobs without history, 0 to 1; their estimate is the workload's typical task time.  "
        "[default: 0]",
    ),
    # Faults, see ``faults_named``.
    option(
        "--executor-lifetime SECONDS",
        ABOVE_ZERO,
        "Mean time until an executor and its running task are lost; exponential.  [default: as measured in a "
        "workload file from event logs; else never]",
    ),
    option(
        "--executor-return SECONDS|never",
        ABOVE_ZERO_OR_NEVER,
        "Mean time until a lost executor is replaced; exponential. never: no replacement.",
        60.0,
    ),
    option(
        "--capacity FILE",
        FILE,
        "File of the number of executors over time: each line has a time in seconds and a number.",
    ),
    option(
        "--lost-output",
        FLAG,
        "Outputs of finished tasks are lost with their executor, and the tasks run again if a stage needs "
        "their outputs, as in Spark without an external shuffle service.",
    ),
    option(
        "--task-failures P",
        SHARE,
        "Probability that a run of a task fails. The task runs again; after four failures its job fails.  "
        "[default: as measured in a workload file from event logs; else 0]",
    ),
    option("--stragglers P:FACTOR", TEXT, "Probability that a run of a task takes FACTOR times as long."),
    option(
        "--speculation [QUANTILE:MULTIPLIER]",
        TEXT,
        "Copy slow tasks to idle executors of their job, as in Spark: after QUANTILE of a stage's tasks have "
        "finished, tasks that have run for MULTIPLIER times the median duration, and at least 100 ms. Without a "
        "value 0.75:1.5, as in Spark 3; Spark 4 has 0.9:3.  [default: never]",
        is_flag=False,
        flag_value="0.75:1.5",
    ),
    # Carbon intensity or price of electricity.
    option(
        "--carbon FILE[:SCALE]",
        TEXT,
        "Carbon intensity (gCO2/kWh) or price of electricity over time: a CSV file of times in seconds and "
        "values, an export of Electricity Maps, or a made-up sample: synthetic-solar, synthetic-wind or "
        "synthetic-coal. Times are divided by SCALE: 60 makes an hour a minute.",
    ),
    option(
        "--carbon-start SECONDS",
        NOT_NEGATIVE,
        "Time in the scaled signal at which each experiment starts.  [default: drawn by the experiment's "
        "seed]",
    ),
    option(
        "--executor-watts",
        NOT_NEGATIVE,
        "With --carbon: power of an executor that runs a task or moves, watts.",
        100.0,
    ),
    option("--idle-watts", NOT_NEGATIVE, "With --carbon: power of an idle executor, watts.", 0.0),
    secondary(
        "--engine",
        click.Choice(["compiled", "simpy"]),
        "Simulator: compiled, or the readable reference in SimPy, which is slower and has the same results.",
        "compiled",
    ),
)


def faults_named(options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the options for faults, by the fields of ``Faults``."""
    from simulator.cluster.capacity import read_capacity
    from simulator.cluster.faults import parse_speculation, parse_stragglers

    names = ("executor_lifetime", "executor_return", "stragglers", "capacity", "speculation")
    lifetime, returns, stragglers, capacity, speculation = (options[name] for name in names)
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
    """Return the evaluation setting of ``CONDITIONS`` and ``--seed``; ``seeds``: number of experiments."""
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
    """Return options that have no effect in an evaluation setting, as name -> reason."""
    ignored = {} if options["classes"] is None else {"executors": "--classes sets the number of executors"}
    if conditions.workload.sequence is not None:
        ignored |= dict.fromkeys(
            ("jobs", "arrivals", "interval"), "the workload file contains jobs and arrivals"
        )
    elif conditions.arrivals != "poisson":
        ignored["interval"] = "it needs --arrivals poisson"
    if math.isinf(conditions.cluster.faults.executor_lifetime_ms):
        ignored["executor_return"] = "it needs --executor-lifetime"
        if options["capacity"] is None:
            ignored["lost_output"] = "no executor is lost: it needs --executor-lifetime or --capacity"
    if options["carbon"] is None:
        ignored |= dict.fromkeys(CARBON[1:], "it needs --carbon")
    return ignored
