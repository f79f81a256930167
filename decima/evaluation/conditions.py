"""Evaluation setting: cluster, distribution of jobs, seeds; and whether it fits a policy's training distribution."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf

from simulator.cluster.config import ClusterConfig, ConfigError, ExecutorClass
from simulator.cluster.demands import check_demands
from workloads.arrivals import (
    MOST_JOBS,
    JobSequence,
    RandomStream,
    batch_arrivals,
    poisson_arrivals,
    random_stream,
)
from workloads.declaration import Number, Text, Whole, declared, described, instance_of
from workloads.drawn_attributes import NOTHING_DRAWN, AttributeDistribution
from workloads.errors import LONGEST_MS, CompareError, check_all
from workloads.job import JobProfile
from workloads.quantities import quantities, to_outside
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

if TYPE_CHECKING:
    from workloads.drift import Drift

__all__ = ["SETTINGS", "TRAINING_OFFSET", "CompareError", "Conditions", "Sampling"]

#: Offset of the seeds of training sequences from those of experiments, which makes them disjoint.
TRAINING_OFFSET = 1_000_000
#: Maximum seed of a sequence.
MOST_SEED = 2**63 - 1


def as_workload(jobs: Any) -> Workload:
    """Return jobs as a workload.

    Args:
        jobs: a name or path for ``open_workload``, a workload, a job sequence, or several profiles.

    Raises:
        CompareError: ``jobs`` has another type.
        WorkloadError: the workload cannot be read.
    """
    if isinstance(jobs, Workload):
        return jobs
    if isinstance(jobs, str | Path):
        return open_workload(jobs)
    if isinstance(jobs, JobSequence):
        return Workload(tuple(dict.fromkeys(jobs.profiles)), jobs, "own")
    return Workload(check_all(jobs, JobProfile, "workload", CompareError), None, "own")


if TYPE_CHECKING:
    _Drift = Drift | None
else:
    _Drift = Annotated[
        Any,
        instance_of("workloads.drift:Drift"),
        Text("AT:RATE[:WORKLOAD]", "workloads.sources.drift:open_drift", attrgetter("text")),
    ]
_Length = Annotated[Number, Field(gt=0, le=LONGEST_MS)]


@declared(CompareError, eq=False)
class Sampling:
    """How job sequences are drawn from a workload; a workload with arrival times is replayed instead.

    Raises:
        CompareError: a value has a wrong type or is out of range.
    """

    arrivals: Literal["batch", "poisson"] = described(
        "batch", "Arrivals of jobs: all at time 0, or a Poisson process.", kw_only=True
    )
    interval_ms: _Length = described(
        25_000.0,
        "Mean time between Poisson arrivals.",
        kw_only=True,
    )
    num_jobs: Annotated[Whole, Field(ge=1, le=MOST_JOBS)] = described(
        20, "Number of jobs in each sequence.", kw_only=True
    )
    memory_demand: Literal["own", "uniform"] = described(
        "own",
        "Memory demand of tasks: the workload's own, or uniformly drawn from (0, 1] for each stage.",
        kw_only=True,
    )
    drift: _Drift = described(
        None,
        "Change of Poisson arrivals: from AT seconds on, the arrival rate is multiplied by RATE, and jobs are "
        "drawn from WORKLOAD (any form of --workload) if it is given.",
        kw_only=True,
    )
    attributes: AttributeDistribution = described(
        NOTHING_DRAWN, "Deadlines, tenants and weights of jobs.", kw_only=True
    )


@declared(CompareError, eq=False)
class Conditions(Sampling):
    """Evaluation setting: a cluster, a distribution of jobs, and seeds; each seed is an experiment.

    An exact sequence is replayed with the task noise of each experiment's seed, or window by window; ``arrivals``,
    ``interval_ms`` and ``num_jobs`` are then ignored. Episodes must end when all jobs are complete.

    Raises:
        CompareError: a value has a wrong type or is out of range, or there are fewer windows than experiments.
        ConfigError: a stage that no executor class can run.
        WorkloadError: the workload cannot be read, or no jobs can be drawn.
    """

    workload: Annotated[
        InstanceOf[Workload],
        Text("NAME|DIR|FILE", open_workload, attrgetter("name")),
        BeforeValidator(as_workload),
    ] = described(
        cast("Workload", EMBEDDED),
        "Jobs: tpch (extrapolated from Spark at 1 and 2 GB), synthetic (random DAGs), a folder of the "
        "published TPC-H profiles, or a workload file; if the file has arrival times, each experiment replays them "
        "with other task noise. In Python also a Workload, a JobSequence or several JobProfiles.",
        validate_default=True,
    )
    cluster: ClusterConfig = described(ClusterConfig(), "The cluster.")
    window_ms: _Length | None = described(
        None,
        "Split the jobs of a workload file into windows of this length; each experiment is the next window "
        "with jobs, numbered from its seed; schedulers are tuned on the last windows.  [default: each experiment "
        "has all jobs]",
        metavar="SECONDS",
    )
    signal_start_ms: Annotated[Number, Field(ge=0, le=LONGEST_MS)] | None = described(
        None,
        "Time in the scaled signal at which each experiment starts.  [default: drawn by the experiment's seed]",
        metavar="SECONDS",
        name="carbon_start",
    )
    num_experiments: Annotated[Whole, Field(ge=1, le=TRAINING_OFFSET)] = described(
        20, "Number of experiments.", name="seeds"
    )
    seed: Annotated[Whole, Field(ge=0, le=MOST_SEED)] = described(
        0, "Seed of the first experiment, or with --window the number of its window."
    )

    def __post_init__(self) -> None:
        if self.signal_start_ms is not None:
            signal = self.cluster.signal
            if signal is None or self.signal_start_ms >= signal.period_ms:
                raise CompareError("the start of a signal needs a signal, and lies within it")
        if self.drift is not None and (self.arrivals != "poisson" or self.workload.sequence is not None):
            raise CompareError("a drift needs Poisson arrivals, and a workload that does not have its own")
        if not math.isinf(self.cluster.max_time_ms):
            raise CompareError("schedulers are compared on complete episodes, leave max_time_ms infinite")
        self._check_windows(0)
        if self.memory_demand == "uniform" and max(kind.memory for kind in self.cluster.executor_classes) < 1:
            raise ConfigError("no executor class has the memory 1 that a stage may need with uniform demands")
        check_demands(self.cluster, self._examples)

    @cached_property
    def _examples(self) -> JobSequence:
        """All possible jobs; if demands are drawn for each job, the jobs of the first experiment."""
        first = self.sequence(self.seed)
        if self.memory_demand == "uniform":
            return first
        if self.workload.sequence is not None:
            return self.workload.sequence
        profiles = self.workload.profiles + (() if self.drift is None else self.drift.profiles)
        return JobSequence(profiles, np.zeros(len(profiles)))

    @property
    def idle_classes(self) -> list[ExecutorClass]:
        """Executor classes on which no stage of these jobs fits."""
        stages = [stage for profile in self._examples.profiles for stage in profile.stages]
        return [kind for kind in self.cluster.executor_classes if not any(map(kind.fits, stages))]

    @property
    def seeds(self) -> range:
        """Seeds of the experiments."""
        return range(self.seed, self.seed + self.num_experiments)

    def training_seeds(self, count: int) -> range:
        """Return seeds of sequences for tuning, disjoint from those of experiments."""
        first = self.seed + TRAINING_OFFSET
        self._check_windows(count)
        return range(first, first + count)

    def cluster_of(self, seed: int) -> ClusterConfig:
        """Return the cluster of a seed, with the signal shifted to the experiment's start time."""
        if (signal := self.cluster.signal) is None:
            return self.cluster
        start_ms = self.signal_start_ms
        if start_ms is None:
            start_ms = float(random_stream(seed, RandomStream.SIGNAL).uniform(0, signal.period_ms))
        return replace(self.cluster, signal=signal.shifted(start_ms))

    def sequence(self, seed: int) -> JobSequence:
        """Return the job sequence of a seed."""
        return self.draw(seed, self.interval_ms)

    def draw(self, seed: int, interval_ms: float) -> JobSequence:
        """Return the job sequence of a seed with another mean time between arrivals, ms."""
        sequence = self.attributes.draw(self._draw(seed, interval_ms))
        if self.memory_demand == "own":
            return sequence
        from workloads.scaling import uniform_memory

        return uniform_memory(sequence)

    def _draw(self, seed: int, interval_ms: float) -> JobSequence:
        if self.window_ms is not None:
            training = seed - self.seed - TRAINING_OFFSET
            return replace(self._windows[seed if training < 0 else -1 - training], seed=seed)
        if self.workload.sequence is not None:
            return replace(self.workload.sequence, seed=seed)
        profiles = self.workload.profiles
        if self.arrivals == "poisson":
            drawn = poisson_arrivals(profiles, self.num_jobs, interval_ms, seed, self.drift)
        else:
            drawn = batch_arrivals(profiles, self.num_jobs, seed)
        return self.workload.attributed(drawn)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation setting for JSON, by the names of the command line; times are seconds, as ``x_s``."""
        setting = to_outside(self, with_units=True) | {"jobs": len(self.sequence(self.seed))}
        if self.workload.sequence is not None:
            setting["arrivals"] = "exact"
        if setting["arrivals"] != "poisson":
            setting["interval_s"] = None
        without_effect = [
            *NOT_COMPARED,
            *(name for name, quantity in SETTINGS.items() if quantity.extra["only_speed"]),
        ]
        return {name: value for name, value in setting.items() if name not in without_effect}

    @cached_property
    def _windows(self) -> tuple[JobSequence, ...]:
        """Windows of an exact sequence, one per experiment."""
        if self.workload.sequence is None:
            raise CompareError(f"{self.workload.name}: no windows, the workload has no arrival times")
        from workloads.windows import windows  # most comparisons have none

        return windows(self.workload.sequence, math.inf if self.window_ms is None else self.window_ms)

    def _check_windows(self, num_training: int) -> None:
        needed = self.seeds.stop + num_training
        if self.window_ms is not None and needed > len(self._windows):
            raise CompareError(
                f"{self.workload.name}: {len(self._windows)} windows with jobs, expected at least {needed}: up to "
                f"number {self.seeds[-1]} to compare on, and {num_training} to tune on"
            )


#: Settings of ``Conditions`` that only trainings have; the objective of a comparison is its metric.
NOT_COMPARED = ("reward",)
#: Settings of a comparison by the names that users see; the workload is first.
SETTINGS = {
    "workload": quantities(Conditions)["workload"],
    **{name: quantity for name, quantity in quantities(Conditions).items() if name not in NOT_COMPARED},
}
