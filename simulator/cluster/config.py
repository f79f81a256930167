"""Configuration of a simulated cluster: executors, delays, semantics, errors of estimates, reward."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal

from simulator.cluster.faults import NO_FAULTS, Faults
from simulator.cluster.reward import objective_named
from workloads.carbon import Signal
from workloads.errors import (
    LARGEST_ERROR,
    LONGEST_MS,
    ConfigError,
    check_all,
    check_instance,
    check_number,
    check_one_of,
    check_whole,
)

if TYPE_CHECKING:
    from workloads.arrivals import JobSequence
    from workloads.job import StageProfile

__all__ = [
    "DECIMA_SIM", "EXACT", "PAPER", "SEMANTICS", "TRACE", "ClusterConfig", "ConfigError", "ExecutorClass",
    "Knowledge", "Semantics", "check_demands", "parse_classes",
]  # fmt: skip


#: Largest number of executors of a class.
MOST_EXECUTORS = 1_000_000


@dataclass(frozen=True)
class ExecutorClass:
    """A class of equal executors, which can run stages whose demand is within their ``cpu`` and ``memory``.

    Args:
        count: number of executors, at least 1.
        cpu: cores of one executor.
        memory: memory of one executor, in the unit of the stages' demands.
    """

    count: int
    cpu: float = 1.0
    memory: float = 1.0

    def __post_init__(self) -> None:
        count = check_whole(self.count, "the number of executors", ConfigError, 1, MOST_EXECUTORS)
        object.__setattr__(self, "count", count)
        for name in ("cpu", "memory"):
            size = check_number(getattr(self, name), f"an executor's {name}", ConfigError)
            object.__setattr__(self, name, size)
            if not math.isfinite(size) or size < 0:
                raise ConfigError(f"an executor's {name} must be finite and not negative, got {size}")

    def fits(self, stage: StageProfile) -> bool:
        """Return whether these executors can run a stage."""
        return stage.cpu <= self.cpu and stage.memory <= self.memory


@dataclass(frozen=True)
class Semantics:
    """Differences between the Decima paper and its published simulator, one switch each.

    The defaults follow the paper, ``DECIMA_SIM`` the published simulator. ``TRACE`` is for stages of long tasks,
    ``SPARK`` for Spark's own scheduling inside one application.
    """

    offer_idle_executors: bool = True
    """Offer all free executors at every scheduling event; else only when a job arrives, or a stage of their own job
    becomes ready, so that executors wait in the common pool until the next arrival."""
    nearest_level: bool = True
    """Between two parallelism levels L < m < R, use L with probability (R-m)/(R-L); else with (m-L)/(R-L)."""
    waiting_keeps_jvm: bool = True
    """An executor that has waited in its job starts with a first-wave duration; else with a fresh one."""
    release_misfits: bool = True
    """An executor that is too small for all remaining stages of its job goes to the common pool; else it waits in the
    job until the job ends, as in Spark. The published simulator has one size only."""
    ready_stages_only: bool = False
    """Only stages with complete parents may be chosen; else also stages whose parents have started their last tasks;
    their executors wait in the job. Neither source does it. It saves nearly all decisions where jobs have many small
    stages and tasks take much longer than moves, as in traces."""
    longest_path_first: bool = True
    """Of several stages that become ready at the same time, the stage with the longest path to the end of its job
    (``JobProfile.path_rank``) is first in the order of ready stages; else the stage with the lowest number, as in the
    published simulator and in Spark. The paper does not state an order."""
    offer_after_tasks: bool = False
    """An executor is offered after each task, as in Spark; else it stays on its stage while the stage has remaining
    tasks. Neither source does it."""
    honour_max_time: bool = True
    """The episode ends at ``max_time_ms``; else ``max_time_ms`` has no effect."""
    reward_short_jobs: bool = True
    """A job that arrives and completes between two decisions counts in the reward; else it is left out."""
    fifo_reuses_grants: bool = True
    """FIFO gives its first job all executors that the job can use; else a job gets at most ``num_executors`` executors
    from elsewhere during its life, even if it gave some back."""

    def __post_init__(self) -> None:
        for switch in fields(self):
            check_instance(getattr(self, switch.name), bool, switch.name, ConfigError)


PAPER = Semantics()
DECIMA_SIM = Semantics(**{switch.name: False for switch in fields(Semantics)})
TRACE = Semantics(ready_stages_only=True)
SPARK = Semantics(ready_stages_only=True, longest_path_first=False, offer_after_tasks=True)
#: Semantics by their names in files and on the command line.
SEMANTICS = {"paper": PAPER, "decima-sim": DECIMA_SIM, "trace": TRACE, "spark": SPARK}


@dataclass(frozen=True)
class Knowledge:
    """Errors of the estimates that schedulers see: log-normal factors, by the standard deviation of their logarithms.

    Args:
        job_error: error common to all task times of a job.
        stage_error: error of the task times of each stage.
        task_count_error: error of the number of tasks of each stage, until the stage is ready.
        unknown: fraction of jobs without history. Their estimate is the workload's typical task time.

    Raises:
        ConfigError: an error is negative or above 5, or ``unknown`` is not between 0 and 1.
    """

    job_error: float = 0.0
    stage_error: float = 0.0
    task_count_error: float = 0.0
    unknown: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value, most = getattr(self, each.name), 1.0 if each.name == "unknown" else LARGEST_ERROR
            object.__setattr__(self, each.name, check_number(value, each.name, ConfigError, (0, most)))

    def __str__(self) -> str:
        """Describe the errors in a few words; empty if schedulers know the exact values."""
        shown = {"job_error": "jobs", "stage_error": "stages", "task_count_error": "numbers of tasks"}
        errors = [f"{getattr(self, name):g} ({what})" for name, what in shown.items() if getattr(self, name)]
        parts = [f"errors of estimates {', '.join(errors)}"] if errors else []
        return ", ".join(parts + ([f"{self.unknown:.0%} of jobs unknown"] if self.unknown else []))

    @property
    def is_exact(self) -> bool:
        """Whether schedulers know the exact task times and numbers of tasks."""
        return self == EXACT


EXACT = Knowledge()


@dataclass(frozen=True, repr=False)
class ClusterConfig:
    """A simulated Spark cluster, and the objective of its rewards.

    Args:
        num_executors: number of executors of the only class; ignored if ``executor_classes`` is given.
        executor_classes: classes of executors, offered in this order. With the smallest first, a stage gets the
            smallest free executors that fit, as larger ones are offered later.
        moving_delay_ms: time in which an executor moves to another job, where a new JVM starts, ms.
        warmup_delay_ms: added to first-wave durations where no fresh ones were measured, ms.
        semantics: ``PAPER``, ``DECIMA_SIM``, ``TRACE``, ``SPARK`` or other switches.
        max_time_ms: end of the episode, ms; infinite: the episode ends when all jobs are complete.
        reward: ``jct`` or ``mean`` (minus the time of all jobs in the system), ``makespan`` (minus elapsed time), or
            another objective or a sum, such as ``weighted`` or ``jct+0.5*deadline:60``, see
            ``simulator.cluster.objectives``. ``carbon`` needs a signal.
        reward_scale_ms: divisor of rewards, ms.
        engine: ``compiled``, or ``simpy``: the reference in plain Python, with the same results.
        knowledge: errors of the estimates that schedulers see.
        faults: lost executors, failing tasks and so on; none by default.
        signal: carbon intensity or price of electricity over time, which schedulers see. Free executors are offered
            when the signal changes. None: no signal.
        executor_watts: power of an executor that runs a task or moves, W.
        idle_watts: power of an idle executor in the cluster, W.

    Raises:
        ConfigError: a setting has a wrong type or is out of range.
    """

    num_executors: int = 50
    executor_classes: tuple[ExecutorClass, ...] = field(default=())
    moving_delay_ms: float = 2000.0
    warmup_delay_ms: float = 1000.0
    semantics: Semantics = PAPER
    max_time_ms: float = math.inf
    reward: str = "jct"
    reward_scale_ms: float = 100_000.0
    engine: Literal["compiled", "simpy"] = "compiled"
    knowledge: Knowledge = EXACT
    faults: Faults = NO_FAULTS
    signal: Signal | None = None
    executor_watts: float = 100.0
    idle_watts: float = 0.0

    def __post_init__(self) -> None:
        classes = check_all(self.executor_classes, ExecutorClass, "executor_classes", ConfigError)
        classes = classes or (ExecutorClass(self.num_executors),)
        check_instance(self.semantics, Semantics, "semantics", ConfigError)
        check_instance(self.knowledge, Knowledge, "knowledge", ConfigError)
        for name in ("moving_delay_ms", "warmup_delay_ms", "max_time_ms", "reward_scale_ms"):
            object.__setattr__(self, name, check_number(getattr(self, name), name, ConfigError))
        object.__setattr__(self, "executor_classes", classes)
        object.__setattr__(self, "num_executors", sum(each.count for each in classes))
        for name in ("moving_delay_ms", "warmup_delay_ms"):
            delay = getattr(self, name)
            if not math.isfinite(delay) or delay < 0:
                raise ConfigError(f"{name} must be finite and not negative, got {delay}")
            if delay > LONGEST_MS:
                raise ConfigError(f"{name} must be at most {LONGEST_MS:g}, got {delay}")
        if not self.max_time_ms > 0:
            raise ConfigError(f"max_time_ms must be positive, got {self.max_time_ms}")
        if not (math.isfinite(self.reward_scale_ms) and self.reward_scale_ms > 0):
            raise ConfigError(f"reward_scale_ms must be positive and finite, got {self.reward_scale_ms}")
        check_instance(self.reward, str, "reward", ConfigError)  # objective_named needs a hashable argument
        objective = objective_named(self.reward)
        if self.reward == "mean":
            object.__setattr__(self, "reward", "jct")
        check_one_of(self.engine, ("compiled", "simpy"), "engine", ConfigError)
        check_instance(self.faults, Faults, "faults", ConfigError)
        if self.signal is not None:
            check_instance(self.signal, Signal, "signal", ConfigError)
        if objective.uses_carbon:
            if self.signal is None:
                raise ConfigError(f"reward {self.reward!r}: the cluster has no signal")
            if objective.signal not in (None, self.signal.name, f"{self.signal.name}:1"):
                raise ConfigError(
                    f"reward {self.reward!r}: the cluster has another signal, {self.signal.name}"
                )
        for name in ("executor_watts", "idle_watts"):
            watts = check_number(getattr(self, name), name, ConfigError)
            object.__setattr__(self, name, watts)
            if not 0 <= watts < math.inf:
                raise ConfigError(f"{name} must be finite and not negative, got {watts:g}")
        if (most := max((number for _, number in self.faults.capacity), default=0)) > self.num_executors:
            raise ConfigError(
                f"a capacity of {most} executors is more than the cluster's {self.num_executors}"
            )

    def __repr__(self) -> str:
        """Show the settings that differ from the defaults."""
        classes: dict[str, object] = {"executor_classes": self.executor_classes}
        if self.executor_classes == (ExecutorClass(self.num_executors),):
            classes = {"num_executors": self.num_executors}
        others = {each.name: getattr(self, each.name) for each in fields(self)[2:]}
        changed = {each.name: each.default for each in fields(self)}
        given = classes | {name: value for name, value in others.items() if value != changed[name]}
        return f"ClusterConfig({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def parse_classes(text: str) -> tuple[ExecutorClass, ...]:
    """Parse executor classes, ``COUNTxMEMORY`` or ``COUNTxCPU:MEMORY`` separated by commas; smallest first.

    Raises:
        ConfigError: the text has another form, or a number is out of range.
    """
    classes = []
    check_instance(text, str, "executor classes", ConfigError)
    for part in text.split(","):
        try:
            if not part.isascii() or "_" in part:
                raise ValueError(part)  # Python takes underscores, and digits of all scripts
            count, sizes = part.strip().split("x")
            cpu, memory = (float(size) for size in (sizes if ":" in sizes else f"1:{sizes}").split(":"))
            classes.append(ExecutorClass(int(count), cpu, memory))
        except ValueError as error:
            reason = f": {error}" if isinstance(error, ConfigError) else ""
            raise ConfigError(
                f"executor classes {text!r}: expected COUNTxMEMORY or COUNTxCPU:MEMORY, such as 25x0.5,"
                f"25x2:1, got {part!r}{reason}"
            ) from None
    return tuple(sorted(classes, key=lambda each: (each.memory, each.cpu)))


def check_demands(config: ClusterConfig, sequence: JobSequence) -> None:
    """Check that the cluster can run all stages of a sequence.

    Raises:
        ConfigError: no executor class can run some stage.
    """
    for number, profile in enumerate(sequence.profiles):
        for place, stage in enumerate(profile.stages):
            if not any(each.fits(stage) for each in config.executor_classes):
                raise ConfigError(
                    f"no executor class can run stage {place} of job {number} ({profile.name}), which needs"
                    f" cpu {stage.cpu:g} and memory {stage.memory:g}"
                )
