"""A study of schedulers on a cluster: its size, trainings, conditions and comparisons.

Each policy is trained into a folder of its own, by name. Studies that need the same policy share it; an interrupted
training continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeVar

import numpy as np

from decima.evaluation.comparison import Comparison, run_comparisons
from decima.evaluation.conditions import Conditions, best_fit
from decima.evaluation.metrics import METRICS
from decima.evaluation.run import run_scheduler
from decima.evaluation.tuning import ALPHAS
from decima.learning.cluster.config import TrainingConfig, read_config
from decima.learning.cluster.train import ClusterTraining
from decima.learning.config import Progress
from decima.learning.trainings import train_all
from decima.policy.files import load_actor
from decima.policy.shipped import specialists
from decima.registry import LEARNED
from decima.workers.pool import available_cpus, make_workers, map_in_order
from simulator.cluster.config import ClusterConfig
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import poisson_arrivals
from workloads.job import WorkloadError
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

__all__ = ["Study", "Variant", "interval_for_load"]

_T = TypeVar("_T")

#: Seed of the streams that loads are measured on; no experiment or training uses it.
LOAD_SEED = 4_000_000
LOAD_JOBS, LOAD_ROUNDS = 1000, 5


@dataclass(frozen=True, eq=False)
class Variant:
    """A policy to train.

    Attributes:
        name: name of its folder, the same in all studies.
        config: configuration of its training.
    """

    name: str
    config: TrainingConfig


@dataclass(frozen=True, eq=False)
class Study:
    """Size, workload, policies and workers of a study.

    Attributes:
        workload: profiles that jobs are drawn from, or a trace.
        source: the workload in trainings: keys of the section ``workload`` (``profiles`` or ``file``); empty for the
            embedded TPC-H set.
        executors: number of executors.
        budget: factor on iterations, validation sequences, experiments and the length of streams; four times the
            budget, at most 1, is the factor on sequences of behaviour cloning.
        seed: seed of the first experiment.
        num_experiments: number of experiments, instead of the study's own.
        num_jobs: jobs in each experiment, instead of the study's own number.
        policies: folder of the trained policies.
        checkpoint: policy file to use instead of training the full policy.
        workers: see ``check_workers``.
        command: command line, kept in the files of trainings.
        tell: progress callback.
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

    @classmethod
    def of_options(cls, values: dict[str, Any], *, given: object = (), **others: Any) -> Study:
        """Make a study from the values of its command's options, which are removed from ``values``.

        Raises:
            PolicyFileError: the checkpoint is not a policy file.
            WorkloadError: the workload cannot be read.
        """
        size = {each.name: values.pop(each.name) for each in fields(cls) if each.name in values}
        name, size["workers"] = size["workload"] or EMBEDDED, size["workers"] or available_cpus()
        if size.get("checkpoint") is not None:
            load_actor(size["checkpoint"])  # refused before the work begins
        if name != EMBEDDED:
            size["source"] = {"profiles" if Path(name).is_dir() else "file": str(name)}
        return cls(**size | others | {"workload": open_workload(name)})

    def title(self, conditions: Conditions) -> str:
        """Describe jobs and executors, as the title of a table."""
        jobs = f"{conditions.num_jobs} {self.workload.name} jobs"
        if conditions.arrivals == "poisson":
            return f"{jobs} {conditions.interval_ms / 1000:g} s apart, {self.executors} executors"
        return f"Batches of {jobs}, {self.executors} executors"

    def scaled(self, full: int, least: int = 1) -> int:
        """Return a full size times the budget, at least ``least``."""
        return max(least, round(full * self.budget))

    # ---- training --------------------------------------------------------------------------------------

    def config(self, recipe: str, **settings: Any) -> TrainingConfig:
        """Return a recipe for this cluster and workload at this study's size.

        Args:
            recipe: name of the recipe.
            settings: other settings, with ``__`` for the dot of a dotted key.

        Raises:
            TrainingError: there is no such recipe or setting.
            WorkloadError: the workload has arrival times.
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
            # Cloning takes a few minutes and has most of the effect, so only small budgets shorten it.
            sequences = min(cloning.sequences, self.scaled(4 * cloning.sequences))
            values["behaviour_cloning.sequences"] = sequences
            if cloning.jobs is not None:
                values["behaviour_cloning.jobs"] = self._stream_length(cloning.jobs)
        values |= {name.replace("__", "."): value for name, value in settings.items()}
        if stream and "workload.interval" in values:
            # Time constants of a stream scale with the interval between arrivals.
            scale = values["workload.interval"] / fmean(full.workload.intervals)
            times = {"returns.horizon": full.returns.horizon}
            if full.curriculum is not None:
                times |= {"curriculum.start": full.curriculum.start, "curriculum.end": full.curriculum.end}
            if full.critic is not None:
                times["critic.gae_horizon"] = full.critic.gae_horizon
            values |= {key: round(time * scale, 3) for key, time in times.items()}
        return read_config(recipe, [f"{key}={json.dumps(value)}" for key, value in values.items()])

    def _check_drawn(self) -> None:
        if self.workload.sequence is not None:
            raise WorkloadError(
                f"{self.workload.name}: says which jobs arrive when; this study draws jobs and expects profiles alone"
            )

    def _stream_length(self, full: int) -> int:
        """Return the number of jobs of a training stream, scaled; at least 20, so that jobs wait."""
        return min(full, self.scaled(full, least=20))

    def batch_variant(self) -> Variant:
        """Return the full policy for batches, of 20 jobs by default."""
        config = self.config("batch")
        return Variant(f"batch-{config.workload.jobs}-jobs", config)

    def stream_variant(self, interval_s: float) -> Variant:
        """Return the full policy for streams with this mean time between arrivals, s."""
        return Variant(f"stream-{interval_s:g}s", self.config("stream", workload__interval=interval_s))

    def train(self, *variants: Variant) -> dict[str, str]:
        """Train the policies that are missing; return variant name -> scheduler.

        Raises:
            TrainingError: a folder holds a policy of other settings.
            KeyboardInterrupt: Ctrl-C; training continues at the next call, bit for bit.
        """
        files = train_all(
            {variant.name: variant.config for variant in variants},
            self.policies,
            partial(ClusterTraining, resume=True, workers=self.workers, command=self.command),
            self.tell,
        )
        return {name: f"{LEARNED}:{file}" for name, file in files.items()}

    def full_policy(self, variant: Variant, *, shipped_for: Conditions | None = None) -> str:
        """Return the study's main policy as a scheduler.

        Args:
            variant: its training, if there is no checkpoint.
            shipped_for: conditions for which the best fitting shipped policy may replace the training.
        """
        if self.checkpoint is not None:
            return f"{LEARNED}:{self.checkpoint}"
        shipped = None if shipped_for is None else self._shipped(shipped_for)
        return self.train(variant)[variant.name] if shipped is None else f"{LEARNED}:{shipped}"

    def specialist(self, conditions: Conditions) -> str | None:
        """Return the shipped policy that was trained for exactly these conditions, as a scheduler.

        None if there is none, or if this study's trainings are not of full size, as those of shipped policies are.
        """
        shipped = self._shipped(conditions)
        return f"{LEARNED}:{shipped}" if self.budget == 1 and shipped in specialists() else None

    def _shipped(self, conditions: Conditions) -> str | None:
        """Return the best fitting shipped policy; None for a workload file."""
        fitting = None if "file" in self.source else best_fit(conditions)
        return None if fitting is None else fitting[0]

    # ---- comparing -------------------------------------------------------------------------------------

    def conditions(
        self,
        *,
        num_experiments: int,
        num_jobs: int,
        interval_s: float | None = None,
        memory_demand: Literal["own", "uniform"] = "own",
        **cluster: Any,
    ) -> Conditions:
        """Return conditions of this study's size.

        Args:
            num_experiments: number at full size.
            num_jobs: number at full size; only streams are scaled.
            interval_s: mean time between Poisson arrivals, s; None for a batch.
            memory_demand: see ``Conditions``.
            cluster: other settings of ``ClusterConfig``.

        Raises:
            WorkloadError: the workload has arrival times.
        """
        self._check_drawn()
        jobs = num_jobs if interval_s is None else self.scaled(num_jobs, least=20)
        arrivals = {} if interval_s is None else {"arrivals": "poisson", "interval_ms": 1000 * interval_s}
        return self._conditions(
            num_experiments,
            cluster,
            num_jobs=self.num_jobs or jobs,
            memory_demand=memory_demand,
            **arrivals,
        )

    def replay(self, *, num_experiments: int, window_s: float, **cluster: Any) -> Conditions:
        """Return conditions of this study's size that replay windows of a trace, one an experiment.

        Raises:
            WorkloadError: the workload has no arrival times.
        """
        if self.workload.sequence is None:
            raise WorkloadError(
                f"{self.workload.name}: does not say which jobs arrive when; a trace does: decima workload import"
            )
        return self._conditions(num_experiments, cluster, window_ms=1000 * window_s)

    def _conditions(self, num_experiments: int, cluster: Mapping[str, Any], **jobs: Any) -> Conditions:
        return Conditions(
            workload=self.workload,
            cluster=ClusterConfig(**{"num_executors": self.executors, **cluster}),
            num_experiments=self.num_experiments or self.scaled(num_experiments, least=2),
            seed=self.seed,
            **jobs,
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
            conditions: name -> conditions, and schedulers by name.
            alphas: candidate settings of weighted fair sharing.
            num_training: number of tuning sequences of schedulers that are tuned once.
            keep: whether the episodes of the first seed are kept.
        """
        comparisons = {
            name: Comparison(each, schedulers, alphas=alphas, num_training=num_training, keep=keep)
            for name, (each, schedulers) in conditions.items()
        }
        tell = partial(self.tell, "comparing schedulers")
        run_comparisons(list(comparisons.values()), self.workers, tell)
        return comparisons

    def look_at(
        self, comparison: Comparison, look: Callable[[EpisodeRecord], _T], what: str
    ) -> dict[str, list[_T]]:
        """Re-run each scheduler of a complete comparison, and call a function on each episode.

        Args:
            comparison: schedulers with hindsight run again in the setting that they chose.
            look: module-level function of an episode.
            what: activity for the progress callback.

        Returns:
            Scheduler -> results by seed, in order.
        """
        runs = comparison.runs
        tuned = runs["setting"].where(runs["setting"] != "", runs["scheduler"].map(comparison.schedulers))
        pieces = list(zip(runs["seed"].tolist(), tuned, strict=True))
        with make_workers(comparison.conditions, self.workers, len(pieces)) as workers:
            results, _ = map_in_order(workers, partial(_look, look), pieces, partial(self.tell, what))
        count = len(comparison.finished)
        return {
            name: results[place * count : (place + 1) * count]
            for place, name in enumerate(comparison.schedulers)
        }

    def interval_for_load(self, load: float) -> float:
        """Return the mean time between arrivals for a load, s; see the function of that name."""
        return interval_for_load(self.workload, self.executors, load)


def _look(look: Callable[[EpisodeRecord], _T], conditions: Conditions, piece: tuple[int, str]) -> _T:
    seed, scheduler = piece
    return look(run_scheduler(conditions.cluster_of(seed), conditions.sequence(seed), scheduler))


def interval_for_load(workload: Workload, executors: int, load: float) -> float:
    """Find the mean time between Poisson arrivals, s, that gives a load; three significant digits.

    The work of a job depends on its number of executors, so the load is measured under fair sharing: executor time
    spent on tasks over that of all executors until the last arrival.

    Args:
        workload: profiles that jobs are drawn from, uniformly.
        executors: number of executors.
        load: fraction between 0 and 1, exclusive.
    """
    work_ms = float(np.mean([profile.work_ms for profile in workload.profiles]))
    interval_ms = work_ms / (load * executors)
    cluster = ClusterConfig(num_executors=executors)
    for _ in range(LOAD_ROUNDS):
        sequence = poisson_arrivals(workload.profiles, LOAD_JOBS, interval_ms, LOAD_SEED)
        interval_ms *= METRICS["load"].of(run_scheduler(cluster, sequence, "fair")) / load
    return float(f"{interval_ms / 1000:.3g}")
