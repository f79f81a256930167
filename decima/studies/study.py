"""What the studies of learned policies share: their size, the policies that they train, and where those are kept.

A study names policies (``Variant``) and conditions to compare them under. Policies are trained into a folder each, by
name, and used again by every study that asks for the same name with the same settings; what was cut off goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from decima.evaluation.comparison import Comparison, run_comparisons
from decima.evaluation.conditions import Conditions
from decima.evaluation.fit import best_fit
from decima.evaluation.run import Run, run_scheduler
from decima.evaluation.tuning import ALPHAS
from decima.learning.cluster.config import TrainingConfig, read_config
from decima.learning.cluster.train import ClusterTraining
from decima.learning.config import Progress
from decima.learning.trainings import train_all
from decima.policy.shipped import specialists
from decima.registry import LEARNED
from simulator.cluster.config import ClusterConfig
from workloads.arrivals import poisson_arrivals
from workloads.job import WorkloadError
from workloads.sources.workload_file import Workload

__all__ = ["Study", "Variant", "interval_for_load"]

#: Names the streams on which loads are measured; neither experiments nor training meet them.
LOAD_SEED = 4_000_000
LOAD_JOBS, LOAD_ROUNDS = 1000, 5


@dataclass(frozen=True, eq=False)
class Variant:
    """A policy to be trained.

    Attributes:
        name: of the folder; the same in all studies that mean the same policy.
        config: how.
    """

    name: str
    config: TrainingConfig


@dataclass(frozen=True, eq=False)
class Study:
    """A study's size and means.

    Attributes:
        workload: whose profiles jobs are drawn from.
        source: the same for training: keys of the section ``workload`` (``profiles`` or ``file``); none for the
            embedded TPC-H set.
        executors: of the cluster.
        budget: 1 is full size. Iterations, sequences to validate on, experiments and the length of streams are
            multiplied by it; sequences of behaviour cloning by four times of it, to at most all.
        seed: the first experiment's.
        num_experiments: instead of the study's own number.
        num_jobs: of each experiment, instead of the study's own number.
        policies: folder of the trained ones.
        checkpoint: policy file that stands for the full policy, which is not trained then.
        workers: who runs episodes, see ``check_workers``.
        command: the command line, kept in what is written.
        tell: told how far it is.
    """

    workload: Workload
    source: Mapping[str, str] = field(default_factory=dict)
    executors: int = 50
    budget: float = 1.0
    seed: int = 0
    num_experiments: int | None = None
    num_jobs: int | None = None
    policies: Path = Path("reproduce/policies")
    checkpoint: Path | None = None
    workers: int | str = 1
    command: str = ""
    tell: Progress = lambda what, done, total: None

    def scaled(self, full: int, least: int = 1) -> int:
        """A full size, times the budget."""
        return max(least, round(full * self.budget))

    # What is trained.

    def config(self, recipe: str, **settings: Any) -> TrainingConfig:
        """A recipe for this cluster and workload, at this study's size.

        Args:
            recipe: its name.
            settings: further ones that differ, with ``__`` where a dotted key has a dot.

        Raises:
            TrainingError: there is no such recipe or setting.
            WorkloadError: the workload says which jobs arrive when.
        """
        self._check_drawn()
        full = read_config(recipe)
        stream = full.workload.arrivals == "poisson"
        values: dict[str, Any] = {
            "iterations": self.scaled(full.iterations),
            "validation.sequences": self.scaled(full.validation.sequences, least=2),
            "cluster.executors": self.executors,
            **{f"workload.{key}": value for key, value in self.source.items()},
        }
        if stream:
            values["workload.jobs"] = self._stream_length(full.workload.jobs)
        elif self.num_jobs is not None:
            values["workload.jobs"] = self.num_jobs
        cloning = full.behaviour_cloning
        if cloning is not None and "behaviour_cloning" not in settings:
            # It takes a few minutes and most of what is learned comes from it, so only small budgets shorten it.
            sequences = min(cloning.sequences, self.scaled(4 * cloning.sequences))
            values["behaviour_cloning.sequences"] = sequences
            if cloning.jobs is not None:
                values["behaviour_cloning.jobs"] = self._stream_length(cloning.jobs)
        values |= {name.replace("__", "."): value for name, value in settings.items()}
        if stream and "workload.interval" in values:
            # Time scales of a stream are those of its arrivals.
            scale = values["workload.interval"] / fmean(full.workload.intervals)
            values["returns.horizon"] = round(full.returns.horizon * scale, 3)
            if full.curriculum is not None:
                values["curriculum.start"] = round(full.curriculum.start * scale, 3)
                values["curriculum.end"] = round(full.curriculum.end * scale, 3)
            if full.critic is not None:
                values["critic.gae_horizon"] = round(full.critic.gae_horizon * scale, 3)
        return read_config(recipe, [f"{key}={json.dumps(value)}" for key, value in values.items()])

    def _check_drawn(self) -> None:
        if self.workload.sequence is not None:
            raise WorkloadError(
                f"{self.workload.name}: says which jobs arrive when; this study draws jobs and expects profiles alone"
            )

    def _stream_length(self, full: int) -> int:
        """Jobs in a stream to learn from: as many as at full size, or fewer, but enough for some to wait."""
        return min(full, self.scaled(full, least=20))

    def batch_variant(self) -> Variant:
        """The full policy for batches: of 20 jobs, unless the study says how many."""
        config = self.config("batch")
        return Variant(f"batch-{config.workload.jobs}-jobs", config)

    def stream_variant(self, interval_s: float) -> Variant:
        """The full policy for jobs that arrive all the time."""
        return Variant(f"stream-{interval_s:g}s", self.config("stream", workload__interval=interval_s))

    def train(self, *variants: Variant) -> dict[str, str]:
        """Train what has not been trained yet; what was cut off goes on bit for bit as if it had not been.

        Returns:
            Variant -> scheduler.

        Raises:
            TrainingError: a folder holds a policy of other settings.
            KeyboardInterrupt: Ctrl-C; what was learned is kept.
        """
        files = train_all(
            {variant.name: variant.config for variant in variants},
            self.policies,
            partial(ClusterTraining, resume=True, workers=self.workers, command=self.command),
            self.tell,
        )
        return {name: f"{LEARNED}:{file}" for name, file in files.items()}

    def full_policy(self, variant: Variant, *, shipped_for: Conditions | None = None) -> str:
        """The policy that a study is about, as a scheduler.

        Args:
            variant: how it is trained, if it is not given.
            shipped_for: where the one that comes with the project and fits best may stand for it; nowhere without.
        """
        if self.checkpoint is not None:
            return f"{LEARNED}:{self.checkpoint}"
        shipped = None if shipped_for is None else self._shipped(shipped_for)
        return self.train(variant)[variant.name] if shipped is None else f"{LEARNED}:{shipped}"

    def specialist(self, conditions: Conditions) -> str | None:
        """The policy that comes with the project and learned in just these conditions, as a scheduler.

        None where there is none, or where this study does not train at full size: those that ship were.
        """
        shipped = self._shipped(conditions)
        return f"{LEARNED}:{shipped}" if self.budget == 1 and shipped in specialists() else None

    def _shipped(self, conditions: Conditions) -> str | None:
        """The policy that comes with the project and fits best; none for a user's own jobs."""
        fitting = None if "file" in self.source else best_fit(conditions)
        return None if fitting is None else fitting[0]

    # What is compared.

    def conditions(
        self,
        *,
        num_experiments: int,
        num_jobs: int,
        interval_s: float | None = None,
        memory_demand: Literal["own", "uniform"] = "own",
        **cluster: Any,
    ) -> Conditions:
        """Conditions of this study's size.

        Args:
            num_experiments: at full size.
            num_jobs: at full size; only streams are scaled.
            interval_s: mean time between Poisson arrivals, s; a batch without it.
            memory_demand: see ``Conditions``.
            cluster: settings of ``ClusterConfig`` that are not this study's.

        Raises:
            WorkloadError: the workload says which jobs arrive when.
        """
        self._check_drawn()
        stream = interval_s is not None
        jobs = self.num_jobs or (self.scaled(num_jobs, least=20) if stream else num_jobs)
        return Conditions(
            workload=self.workload,
            cluster=ClusterConfig(**{"num_executors": self.executors, **cluster}),
            arrivals="poisson" if stream else "batch",
            interval_ms=1000 * interval_s if interval_s is not None else Conditions.interval_ms,
            num_jobs=jobs,
            memory_demand=memory_demand,
            num_experiments=self.num_experiments or self.scaled(num_experiments, least=2),
            seed=self.seed,
        )

    def compare(
        self,
        conditions: Mapping[str, tuple[Conditions, Mapping[str, str]]],
        *,
        alphas: Sequence[float] = ALPHAS,
        num_training: int = 6,
        keep: bool = False,
    ) -> dict[str, Comparison]:
        """Compare schedulers under each condition.

        Args:
            conditions: by name, with the schedulers by theirs; see ``Comparison``.
            alphas: what weighted fair sharing is tuned to, of these.
            num_training: sequences to tune on, for those that are tuned once.
            keep: whether the first episodes are kept.
        """
        comparisons = {
            name: Comparison(each, schedulers, alphas=alphas, num_training=num_training, keep=keep)
            for name, (each, schedulers) in conditions.items()
        }
        tell = partial(self.tell, "comparing schedulers")
        run_comparisons(list(comparisons.values()), self.workers, tell)
        return comparisons

    def replay(self, *, num_experiments: int, window_s: float, **cluster: Any) -> Conditions:
        """Conditions in which a trace runs again, of this study's size.

        Args:
            num_experiments: at full size.
            window_s: length of the windows of the trace, s, each of which is an experiment.
            cluster: settings of ``ClusterConfig`` that are not this study's.

        Raises:
            WorkloadError: the workload does not say which jobs arrive when.
        """
        if self.workload.sequence is None:
            raise WorkloadError(
                f"{self.workload.name}: does not say which jobs arrive when; a trace does: decima workload import"
            )
        return Conditions(
            workload=self.workload,
            cluster=ClusterConfig(**{"num_executors": self.executors, **cluster}),
            num_experiments=self.num_experiments or self.scaled(num_experiments, least=2),
            seed=self.seed,
            window_ms=1000 * window_s,
        )

    def interval_for_load(self, load: float) -> float:
        """Seconds between arrivals, for a load; see the function of that name."""
        return interval_for_load(self.workload, self.executors, load)


def interval_for_load(workload: Workload, executors: int, load: float) -> float:
    """Find the mean time between Poisson arrivals that keeps executors busy for this share of the time.

    What a job costs depends on how many executors it is given, so the load is measured: executor time spent on tasks
    over that of all executors until the last arrival, under fair sharing.

    Args:
        workload: whose profiles jobs are drawn from, uniformly.
        executors: of the cluster.
        load: more than 0, less than 1.

    Returns:
        Seconds, three digits of them.
    """
    work_ms = float(np.mean([profile.work_ms for profile in workload.profiles]))
    interval_ms = work_ms / (load * executors)
    cluster = ClusterConfig(num_executors=executors)
    for _ in range(LOAD_ROUNDS):
        sequence = poisson_arrivals(workload.profiles, LOAD_JOBS, interval_ms, LOAD_SEED)
        interval_ms *= Run.of(run_scheduler(cluster, sequence, "fair")).load / load
    return float(f"{interval_ms / 1000:.3g}")
