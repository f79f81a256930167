"""Configuration of a simulated cluster: executors, delays, semantics, errors of estimates, reward."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, PlainValidator

from simulator.cluster.faults import NO_FAULTS, Faults
from workloads.declaration import (
    Flag,
    Named,
    Number,
    Text,
    Whole,
    declared,
    described,
    fields_of,
    instance_of,
)
from workloads.display import number_text
from workloads.errors import (
    LARGEST_ERROR,
    LONGEST_MS,
    ConfigError,
    described_value,
    one_of,
)

if TYPE_CHECKING:
    from simulator.cluster.estimators import FittedEstimator
    from workloads.carbon import Signal
    from workloads.job import StageProfile

__all__ = [
    "DECIMA_SIM", "ERRORS", "ESTIMATORS", "EXACT", "PAPER", "SEMANTICS", "TRACE", "ClusterConfig", "ClusterKey",
    "ConfigError", "ExecutorClass", "Knowledge", "Semantics", "cluster_key",
]  # fmt: skip


#: Names of the estimators of jobs without history that need no file.
ESTIMATORS = ("forest", "typical")


def _check_estimator(value: Any) -> Any:
    if not isinstance(value, str):
        from simulator.cluster.estimators import FittedEstimator

        if isinstance(value, FittedEstimator):
            return value
    elif value in ESTIMATORS:
        return value
    raise ValueError(f"expected {one_of(ESTIMATORS)} or an estimator's file, got {described_value(value)}")


if TYPE_CHECKING:
    _Signal = Signal | None
    _Estimator: TypeAlias = "str | FittedEstimator"
else:
    _Estimator = Annotated[
        Any,
        PlainValidator(_check_estimator),
        Text("forest|typical|FILE", "simulator.cluster.estimators:open_estimator"),
    ]
    _Signal = Annotated[
        Any,
        instance_of("workloads.carbon:Signal"),
        Text("FILE[:SCALE]", "workloads.sources.carbon:open_signal", lambda signal: signal.name),
    ]
#: Number of executors of a class.
_Count = Annotated[Whole, Field(ge=1, le=1_000_000)]
_Size = Annotated[Number, Field(ge=0, allow_inf_nan=False)]
_Error = Annotated[Number, Field(ge=0, le=LARGEST_ERROR)]
_Delay = Annotated[Number, Field(ge=0, le=LONGEST_MS)]
_Power = Annotated[Number, Field(ge=0, allow_inf_nan=False)]


@declared()
class ExecutorClass:
    """A class of equal executors, which can run stages whose demand is within their ``cpu`` and ``memory``."""

    count: _Count = Field(description="Number of executors.")
    cpu: _Size = described(1.0, "Cores of one executor.")
    memory: _Size = described(1.0, "Memory of one executor, in the unit of the stages' demands.")

    def __str__(self) -> str:
        """Return the text form, ``COUNTxMEMORY``, or ``COUNTxCPU:MEMORY`` for another number of cores than one."""
        cores = "" if self.cpu == 1 else f"{number_text(self.cpu)}:"
        return f"{self.count}x{cores}{number_text(self.memory)}"

    def fits(self, stage: StageProfile) -> bool:
        """Return whether these executors can run a stage."""
        return stage.cpu <= self.cpu and stage.memory <= self.memory


def _classes_text(classes: tuple[ExecutorClass, ...]) -> str | None:
    """Return the text form of executor classes; None if there is one class of the default size."""
    is_default = [(size.cpu, size.memory) for size in classes] == [(1.0, 1.0)]
    return None if is_default else ",".join(map(str, classes)) or None


@declared()
class Semantics:
    """Differences between the Decima paper and its published simulator, one switch each.

    The defaults follow the paper, ``DECIMA_SIM`` the published simulator. ``TRACE`` is for stages of long tasks,
    ``SPARK`` for Spark's own scheduling inside one application.
    """

    offer_idle_executors: Flag = True
    """Offer all free executors at every scheduling event; else only when a job arrives, or a stage of their own job
    becomes ready, so that executors wait in the common pool until the next arrival."""
    nearest_level: Flag = True
    """Between two parallelism levels L < m < R, use L with probability (R-m)/(R-L); else with (m-L)/(R-L)."""
    waiting_keeps_jvm: Flag = True
    """An executor that has waited in its job starts with a first-wave duration; else with a fresh one."""
    release_misfits: Flag = True
    """An executor that is too small for all remaining stages of its job goes to the common pool; else it waits in the
    job until the job ends, as in Spark. The published simulator has one size only."""
    ready_stages_only: Flag = False
    """Only stages with complete parents may be chosen; else also stages whose parents have started their last tasks;
    their executors wait in the job. Neither source does it. It saves nearly all decisions where jobs have many small
    stages and tasks take much longer than moves, as in traces."""
    longest_path_first: Flag = True
    """Of several stages that become ready at the same time, the stage with the longest path to the end of its job
    (``JobProfile.path_rank``) is first in the order of ready stages; else the stage with the lowest number, as in the
    published simulator and in Spark. The paper does not state an order."""
    offer_after_tasks: Flag = False
    """An executor is offered after each task, as in Spark; else it stays on its stage while the stage has remaining
    tasks. Neither source does it."""
    honour_max_time: Flag = True
    """The episode ends at ``max_time_ms``; else ``max_time_ms`` has no effect."""
    reward_short_jobs: Flag = True
    """A job that arrives and completes between two decisions counts in the reward; else it is left out."""
    fifo_reuses_grants: Flag = True
    """FIFO gives its first job all executors that the job can use; else a job gets at most ``num_executors`` executors
    from elsewhere during its life, even if it gave some back."""


PAPER = Semantics()
DECIMA_SIM = Semantics(**{switch.name: False for switch in fields(Semantics)})
TRACE = Semantics(ready_stages_only=True)
SPARK = Semantics(ready_stages_only=True, longest_path_first=False, offer_after_tasks=True)
#: Semantics by their names in files and on the command line.
SEMANTICS = {"paper": PAPER, "decima-sim": DECIMA_SIM, "trace": TRACE, "spark": SPARK}


@declared()
class Knowledge:
    """Errors of the estimates that schedulers see: log-normal factors, by the standard deviation of their logarithms.

    Raises:
        ConfigError: a setting has a wrong type or is out of range.
    """

    job_error: _Error = described(
        0.0,
        "Error of estimated task times: a log-normal factor for each job. SIGMA is the standard deviation of "
        "its logarithm; at 0.5, the times of one job in six are wrong by a factor of two or more.",
        metavar="SIGMA",
        measured=True,
    )
    stage_error: _Error = described(
        0.0,
        "Error of estimated task times: a log-normal factor for each stage.",
        metavar="SIGMA",
        measured=True,
    )
    task_count_error: _Error = described(
        0.0,
        "Error of the estimated number of tasks of each stage, until the stage is ready.",
        metavar="SIGMA",
        measured=True,
    )
    unknown: Annotated[Number, Field(ge=0, le=1)] = described(
        0.0,
        "Share of jobs without history.",
        metavar="SHARE",
    )
    estimator: _Estimator = described(
        "forest",
        "Estimates of jobs without history: forest predicts the task times of each stage from the DAG, numbers of "
        "tasks, and bytes and operators where they are known, learned from the workload's other jobs; typical is the "
        "workload's typical task time, which workloads of few jobs get in any case; a file of decima train-estimator "
        "predicts like forest, learned from the jobs of the file.",
    )

    def __str__(self) -> str:
        """Describe the errors in a few words; empty if schedulers know the exact values."""
        from simulator.cluster.texts import knowledge_text

        return knowledge_text(self)

    @property
    def is_exact(self) -> bool:
        """Whether schedulers know the exact task times and numbers of tasks."""
        return not (self.job_error or self.stage_error or self.task_count_error or self.unknown)


EXACT = Knowledge()
#: Errors of estimates: the numbers of ``Knowledge``.
ERRORS = ("job_error", "stage_error", "task_count_error", "unknown")


@declared(repr=False)
class ClusterConfig:
    """A simulated Spark cluster, and the objective of its rewards.

    Raises:
        ConfigError: a setting has a wrong type or is out of range.
    """

    num_executors: _Count = described(
        50, "Number of executors of the cluster; ignored if there are several classes."
    )
    executor_classes: Annotated[
        tuple[ExecutorClass, ...],
        Text("COUNTxMEMORY,..", "simulator.cluster.texts:parse_classes", _classes_text),
    ] = described(
        (),
        "Executors of several classes instead, such as 25x0.5,25x1; COUNTxCPU:MEMORY for executors with "
        "another number of cores than one. They are offered in this order: with the smallest first, a stage gets the "
        "smallest free executors that fit.",
        name="classes",
    )
    moving_delay_ms: _Delay = described(
        2000.0, "Delay of an executor that moves to another job, where a new JVM starts.", measured=True
    )
    warmup_delay_ms: _Delay = described(
        1000.0, "Added to first-wave durations where no fresh ones were measured, ms.", internal=True
    )
    semantics: Annotated[Semantics, Named(SEMANTICS)] = described(
        PAPER,
        "Semantics of the simulator: of the Decima paper, or of its published simulator; trace: like paper, "
        "but no executor waits for a stage that is not ready; spark: like trace, and executors are offered after "
        "each task, as in Spark.",
    )
    max_time_ms: Annotated[Number, Field(gt=0)] = described(
        math.inf,
        "End of the episode, ms; infinite: the episode ends when all jobs are complete.",
        internal=True,
    )
    reward: str = described(
        "jct",
        "Objective: jct or mean, the average job completion time; makespan; weighted; power-mean:K, for "
        "short tails; deadline or deadline:PENALTY, tardiness with a penalty in s for each missed deadline; "
        "misses:BOUND, tardiness up to a bound in s; fairness; carbon:FILE; module:Class; or a sum, jct+0.5*deadline. "
        "See ``simulator.cluster.objectives``.",
    )
    reward_scale_ms: Annotated[Number, Field(gt=0, allow_inf_nan=False)] = described(
        100_000.0, "Divisor of rewards, ms.", internal=True
    )
    engine: Literal["compiled", "simpy"] = described(
        "compiled",
        "Simulator: compiled, or the readable reference in SimPy, which is slower and has the same results.",
        only_speed=True,
    )
    knowledge: Knowledge = described(EXACT, "Errors of the estimates that schedulers see.")
    faults: Faults = described(NO_FAULTS, "Lost executors, failing tasks and so on; none by default.")
    signal: _Signal = described(
        None,
        "Carbon intensity (gCO2/kWh) or price of electricity over time, which schedulers see: a CSV file of times in "
        "seconds and values, an export of Electricity Maps, or a made-up sample: synthetic-solar, synthetic-wind or "
        "synthetic-coal. Times are divided by SCALE: 60 makes an hour a minute. Free executors are offered when the "
        "signal changes.",
        name="carbon",
    )
    executor_watts: _Power = described(
        100.0, "With --carbon: power of an executor that runs a task or moves, watts."
    )
    idle_watts: _Power = described(0.0, "With --carbon: power of an idle executor, watts.")

    def __post_init__(self) -> None:
        classes = self.executor_classes or (ExecutorClass(self.num_executors),)
        object.__setattr__(self, "executor_classes", classes)
        object.__setattr__(self, "num_executors", sum(executor_class.count for executor_class in classes))
        if self.reward == "mean":
            object.__setattr__(self, "reward", "jct")
        if self.reward not in ("jct", "makespan"):
            from simulator.cluster.objectives import signal_of

            object.__setattr__(self, "signal", signal_of(self.reward, self.signal))
        if (most := max((count for _, count in self.faults.capacity), default=0)) > self.num_executors:
            raise ConfigError(
                f"a capacity of {most} executors is more than the cluster's {self.num_executors}"
            )

    def __repr__(self) -> str:
        """Show the settings that differ from the defaults."""
        classes: dict[str, object] = {"executor_classes": self.executor_classes}
        if self.executor_classes == (ExecutorClass(self.num_executors),):
            classes = {"num_executors": self.num_executors}
        others = {field.name: getattr(self, field.name) for field in fields(self)[2:]}
        changed = {name: field.default for name, field in fields_of(ClusterConfig).items()}
        given = classes | {name: value for name, value in others.items() if value != changed[name]}
        return f"ClusterConfig({', '.join(f'{name}={value!r}' for name, value in given.items())})"


#: Settings that the time of a job alone depends on: executor classes, moving delay and warm-up delay in ms, semantics.
ClusterKey = tuple[tuple[ExecutorClass, ...], float, float, Semantics]


def cluster_key(config: ClusterConfig) -> ClusterKey:
    """Return the settings of a cluster that determine a job's time alone, as a key for caches."""
    return config.executor_classes, config.moving_delay_ms, config.warmup_delay_ms, config.semantics
