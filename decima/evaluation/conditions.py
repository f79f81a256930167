"""Evaluation setting: cluster, distribution of jobs, seeds; and whether it fits a policy's training distribution."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from simulator.cluster.config import SEMANTICS, ClusterConfig, ConfigError, ExecutorClass, check_demands
from workloads.arrivals import (
    JobSequence,
    RandomStream,
    batch_arrivals,
    poisson_arrivals,
    random_stream,
)
from workloads.drift import Drift
from workloads.errors import DecimaError, check_instance, check_number, check_one_of, check_whole
from workloads.scaling import uniform_memory
from workloads.sources.workload_file import Workload
from workloads.transform import NOTHING_DRAWN, AttributeDistribution

__all__ = ["TRAINING_OFFSET", "CompareError", "Conditions"]

#: Offset of the seeds of training sequences from those of experiments, which makes them disjoint.
TRAINING_OFFSET = 1_000_000


class CompareError(DecimaError, ValueError):
    """Invalid comparison. The message is one line."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """Evaluation setting: a cluster, a distribution of jobs, and seeds; each seed is an experiment.

    Args:
        workload: profiles to draw jobs from, or an exact sequence. An exact sequence is replayed with the task noise
            of each experiment's seed, or window by window; ``arrivals``, ``interval_ms`` and ``num_jobs`` are then
            ignored.
        cluster: the cluster; its episodes must end when all jobs are complete.
        arrivals: all jobs at time 0, or a Poisson process.
        interval_ms: mean time between Poisson arrivals, ms.
        num_jobs: number of jobs in each sequence.
        memory_demand: the workload's ``own``, or ``uniform``: drawn for each stage, see ``workloads.uniform_memory``.
        num_experiments: number of experiments, with seeds ``seed``, ``seed + 1``, ..
        seed: first seed.
        drift: change of the arrival rate and the jobs within a Poisson process.
        window_ms: length of windows into which an exact sequence is cut, ms. An experiment replays the window whose
            index, among those with jobs, is its seed; schedulers are tuned on the last windows.
        signal_start_ms: time in the cluster's signal at the start of each experiment, ms; None draws it from the seed.
        attributes: distribution of deadlines, tenants and weights of jobs; by default those of the workload.

    Raises:
        CompareError: a number out of range, or fewer windows than experiments.
        ConfigError: a stage that no executor class can run.
        WorkloadError: no jobs can be drawn.
    """

    workload: Workload
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    arrivals: Literal["batch", "poisson"] = "batch"
    interval_ms: float = 25_000.0
    num_jobs: int = 20
    memory_demand: Literal["own", "uniform"] = "own"
    num_experiments: int = 20
    seed: int = 0
    window_ms: float | None = None
    drift: Drift | None = None
    attributes: AttributeDistribution = NOTHING_DRAWN
    signal_start_ms: float | None = None

    def __post_init__(self) -> None:
        check_instance(self.workload, Workload, "workload", CompareError)
        check_instance(self.cluster, ClusterConfig, "cluster", CompareError)
        check_one_of(self.arrivals, ("batch", "poisson"), "arrivals", CompareError)
        check_one_of(self.memory_demand, ("own", "uniform"), "memory_demand", CompareError)
        check_instance(self.attributes, AttributeDistribution, "attributes", CompareError)
        for name in ("num_jobs", "num_experiments", "seed"):
            object.__setattr__(self, name, check_whole(getattr(self, name), name, CompareError))
        if self.signal_start_ms is not None:
            check_number(self.signal_start_ms, "signal_start_ms", CompareError)
            if self.cluster.signal is None or not 0 <= self.signal_start_ms < self.cluster.signal.period_ms:
                raise CompareError("the start of a signal needs a signal, and lies within it")
        for name in ("interval_ms", *(() if self.window_ms is None else ("window_ms",))):
            object.__setattr__(self, name, check_number(getattr(self, name), name, CompareError))
        if not 1 <= self.num_experiments <= TRAINING_OFFSET:
            raise CompareError(f"between 1 and {TRAINING_OFFSET} experiments, got {self.num_experiments}")
        if self.drift is not None:
            check_instance(self.drift, Drift, "drift", CompareError)
            if self.arrivals != "poisson" or self.workload.sequence is not None:
                raise CompareError(
                    "a drift needs Poisson arrivals, and a workload that does not have its own"
                )
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
        return uniform_memory(sequence) if self.memory_demand == "uniform" else sequence

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
        """Return the evaluation setting for JSON; times are seconds."""
        cluster, sampled = self.cluster, self.workload.sequence is None
        poisson = sampled and self.arrivals == "poisson"
        semantics = (name for name, each in SEMANTICS.items() if each == cluster.semantics)
        return {
            "workload": self.workload.name,
            "executors": cluster.num_executors,
            "executor_classes": [asdict(kind) for kind in cluster.executor_classes],
            "memory_demand": self.memory_demand,
            "arrivals": self.arrivals if sampled else "exact",
            "interval_s": self.interval_ms / 1000 if poisson else None,
            "drift": self.drift and self.drift.to_dict(),
            "attributes": self.attributes.to_dict(),
            "window_s": None if self.window_ms is None else self.window_ms / 1000,
            "jobs": len(self.sequence(self.seed)),
            "moving_delay_s": cluster.moving_delay_ms / 1000,
            "semantics": next(semantics, asdict(cluster.semantics)),
            "knowledge": asdict(cluster.knowledge),
            "faults": cluster.faults.to_dict(),
            "carbon": None
            if cluster.signal is None
            else {
                "signal": cluster.signal.name,
                "start_s": None if self.signal_start_ms is None else self.signal_start_ms / 1000,
                "executor_watts": cluster.executor_watts,
                "idle_watts": cluster.idle_watts,
            },
        }

    @cached_property
    def _windows(self) -> tuple[JobSequence, ...]:
        """Windows of an exact sequence, one per experiment."""
        if self.workload.sequence is None:
            raise CompareError(f"{self.workload.name}: no windows, the workload has no arrival times")
        return self.workload.sequence.windows(math.inf if self.window_ms is None else self.window_ms)

    def _check_windows(self, num_training: int) -> None:
        needed = self.seeds.stop + num_training
        if self.window_ms is not None and needed > len(self._windows):
            raise CompareError(
                f"{self.workload.name}: {len(self._windows)} windows with jobs, expected at least {needed}: up to "
                f"number {self.seeds[-1]} to compare on, and {num_training} to tune on"
            )
