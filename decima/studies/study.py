"""Setup of a study on a cluster: size, workload, training of policies, evaluation settings and comparisons.

The name of a policy is the name of its training folder, so that studies share policies. An interrupted training
continues in its folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Self, TypeVar

import numpy as np

from decima.evaluation.comparison import Comparison, run_comparisons
from decima.evaluation.conditions import Conditions
from decima.evaluation.fit import best_fit
from decima.evaluation.metrics import METRICS
from decima.evaluation.run import run_scheduler
from decima.evaluation.variants import ALPHAS
from decima.learning.cluster.config import TrainingConfig, read_config
from decima.learning.cluster.train import ClusterTraining
from decima.learning.trainings import train_all
from decima.policy.files import load_actor
from decima.policy.shipped import specialists
from decima.registry import LEARNED
from decima.studies.outcome import FULL, Setup
from decima.workers.pool import available_cpus, make_workers, map_in_order
from simulator.cluster.config import ClusterConfig
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import poisson_arrivals
from workloads.job import WorkloadError
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

_K = TypeVar("_K")
_T = TypeVar("_T")

#: Seed of the job streams that measure loads; no experiment or training uses it.
LOAD_SEED = 4_000_000
#: Number of jobs in such a stream, and of fixed-point iterations to find the interval for a load.
LOAD_JOBS, LOAD_ROUNDS = 1000, 5


@dataclass(frozen=True, eq=False)
class Variant:
    """A policy to train; the name is that of its training folder, unique among all studies."""

    name: str
    config: TrainingConfig


@dataclass(frozen=True, eq=False)
class Study(Setup):
    """Size, workload, policies and workers of a study.

    Attributes:
        workload: job profiles to draw from, or a trace.
        source: workload of training runs: ``profiles`` or ``file`` in the section ``workload`` of a training
            configuration; empty for the embedded TPC-H jobs.
        budget: factor on iterations, validation sequences, experiments and length of streams. The factor on sequences
            of behaviour cloning is four times the budget, at most 1.
        num_experiments: number of experiments; by default the study's own number. Likewise ``num_jobs``.
        policies: folder of trained policies.
        checkpoint: policy file that replaces the training of the full policy.
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

    @classmethod
    def of_options(cls, values: dict[str, Any], **others: Any) -> Self:
        """Make a study from option values, see ``Setup``; by default one worker for each CPU.

        Raises ``PolicyFileError`` for a bad checkpoint, ``WorkloadError`` for a workload that cannot be read.
        """
        name = values["workload"] or EMBEDDED
        if values.get("checkpoint") is not None:
            load_actor(values["checkpoint"])  # fails before the work begins
        if name != EMBEDDED:
            others["source"] = {"profiles" if Path(name).is_dir() else "file": str(name)}
        values |= {"workload": open_workload(name), "workers": values["workers"] or available_cpus()}
        return super().of_options(values, **others)

    def title(self, conditions: Conditions) -> str:
        """Return a table title that describes jobs and executors."""
        jobs = f"{conditions.num_jobs} {self.workload.name} jobs"
        if conditions.arrivals == "poisson":
            return f"{jobs} {conditions.interval_ms / 1000:g} s apart, {self.executors} executors"
        return f"Batches of {jobs}, {self.executors} executors"

    def scaled(self, full: int, least: int = 1) -> int:
        """Scale a size by the budget, to at least ``least``."""
        return max(least, round(full * self.budget))

    # ---- training --------------------------------------------------------------------------------------

    def config(self, recipe: str, **settings: Any) -> TrainingConfig:
        """Adapt a training recipe to the cluster, workload and size of this study.

        Further settings have dotted keys, with ``__`` for each dot.

        Raises:
            TrainingError: unknown recipe or setting.
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
            # Behaviour cloning takes minutes and has most of the effect: only small budgets shorten it.
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
                f"{self.workload.name}: has arrival times; this study draws jobs and expects profiles alone"
            )

    def _stream_length(self, full: int) -> int:
        """Scale the number of jobs of a training stream, to at least 20, so that jobs have to wait."""
        return min(full, self.scaled(full, least=20))

    def batch_variant(self) -> Variant:
        """Return the training of the full policy on batches, by default of 20 jobs."""
        config = self.config("batch")
        return Variant(f"batch-{config.workload.jobs}-jobs", config)

    def stream_variant(self, interval_s: float) -> Variant:
        """Return the training of the full policy on streams with this mean time between arrivals, s."""
        return Variant(f"stream-{interval_s:g}s", self.config("stream", workload__interval=interval_s))

    def train(self, variants: Mapping[_K, Variant]) -> dict[_K, str]:
        """Train missing policies, and return all policies as schedulers, by the same displayed names.

        Raises:
            TrainingError: a folder contains a policy of other settings.
            KeyboardInterrupt: Ctrl-C; the next call continues the training, bit for bit.
        """
        configs = {variant.name: variant.config for variant in variants.values()}
        trainer = partial(ClusterTraining, resume=True, workers=self.workers, command=self.command)
        files = train_all(configs, self.policies, trainer, self.tell)
        return {key: f"{LEARNED}:{files[variant.name]}" for key, variant in variants.items()}

    def full_policy(self, variant: Variant, *, shipped_for: Conditions | None = None) -> str:
        """Return the study's main policy as a scheduler.

        It is the checkpoint, else the shipped policy that fits ``shipped_for`` best, else a newly trained policy.
        """
        if self.checkpoint is not None:
            return f"{LEARNED}:{self.checkpoint}"
        shipped = None if shipped_for is None else self._shipped(shipped_for)
        return self.train({FULL: variant})[FULL] if shipped is None else f"{LEARNED}:{shipped}"

    def specialist(self, conditions: Conditions) -> str | None:
        """Return the shipped policy that was trained for exactly this evaluation setting, as a scheduler.

        None if there is none, or if the budget is not 1: shipped policies are trained at full size.
        """
        shipped = self._shipped(conditions)
        return f"{LEARNED}:{shipped}" if self.budget == 1 and shipped in specialists() else None

    def specialists(self, *arrivals: Literal["batch", "stream"]) -> list[str]:
        """Return the shipped policies for this study's TPC-H jobs, published or embedded, as schedulers."""
        jobs = "tpch" if "profiles" in self.source else "embedded"
        return [f"{LEARNED}:{jobs}-{each}" for each in arrivals if f"{jobs}-{each}" in specialists()]

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
        """Return an evaluation setting of this study's size; numbers are those at full size.

        The budget scales numbers of jobs only of streams. Jobs arrive in a batch, or ``interval_s`` apart on average.
        Further settings are those of ``ClusterConfig``. A workload with arrival times raises ``WorkloadError``.
        """
        self._check_drawn()
        jobs = num_jobs if interval_s is None else self.scaled(num_jobs, least=20)
        arrivals = {} if interval_s is None else {"arrivals": "poisson", "interval_ms": 1000 * interval_s}
        drawn = {"num_jobs": self.num_jobs or jobs, "memory_demand": memory_demand, **arrivals}
        return self._conditions(num_experiments, cluster, **drawn)

    def replay(self, *, num_experiments: int, window_s: float, **cluster: Any) -> Conditions:
        """Return an evaluation setting that replays windows of a trace, one for each experiment.

        Raises ``WorkloadError`` if the workload has no arrival times.
        """
        if self.workload.sequence is None:
            raise WorkloadError(
                f"{self.workload.name}: has no arrival times; a trace has: decima workload import"
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
        conditions: Mapping[str, tuple[Conditions, Mapping[str, str] | Sequence[str]]],
        *,
        alphas: Sequence[float] = ALPHAS,
        num_training: int = 6,
        keep: bool = False,
    ) -> dict[str, Comparison]:
        """Compare schedulers in each evaluation setting; return complete comparisons.

        Schedulers are names, or scheduler by displayed name. ``alphas`` are candidate exponents of weighted fair
        sharing. Schedulers are tuned in advance on ``num_training`` sequences. With ``keep``, the episodes of the
        first seed are kept.
        """
        comparisons = {
            name: Comparison(each, schedulers, alphas=alphas, num_training=num_training, keep=keep)
            for name, (each, schedulers) in conditions.items()
        }
        run_comparisons(list(comparisons.values()), self.workers, partial(self.tell, "comparing schedulers"))
        return comparisons

    def look_at(
        self, comparison: Comparison, look: Callable[[EpisodeRecord], _T], what: str
    ) -> dict[str, list[_T]]:
        """Re-run each scheduler of a complete comparison, and apply a function to each episode.

        Returns the values by scheduler, in order of seeds. Schedulers tuned in hindsight run again in the setting of
        that sequence. ``look`` is at module level, as it is pickled.
        """
        runs = comparison.runs
        specs = runs["setting"].where(runs["setting"] != "", runs["scheduler"].map(comparison.schedulers))
        items = list(zip(runs["seed"].tolist(), specs, strict=True))
        with make_workers(comparison.conditions, self.workers, len(items)) as workers:
            values, _ = map_in_order(workers, partial(_look, look), items, partial(self.tell, what))
        count = len(comparison.finished)
        return {
            name: values[place * count : (place + 1) * count]
            for place, name in enumerate(comparison.schedulers)
        }

    def interval_for_load(self, load: float, workload: Workload | None = None) -> float:
        """Find the mean time between Poisson arrivals, s, that gives a load between 0 and 1; three significant digits.

        The work of a job depends on its number of executors. Hence the load is measured under fair sharing: executor
        time spent on tasks over the time of all executors until the last arrival.
        """
        profiles = (workload or self.workload).profiles
        interval_ms = float(np.mean([profile.work_ms for profile in profiles])) / (load * self.executors)
        cluster = ClusterConfig(num_executors=self.executors)
        for _ in range(LOAD_ROUNDS):
            sequence = poisson_arrivals(profiles, LOAD_JOBS, interval_ms, LOAD_SEED)
            interval_ms *= METRICS["load"].of(run_scheduler(cluster, sequence, "fair")) / load
        return float(f"{interval_ms / 1000:.3g}")


def _look(look: Callable[[EpisodeRecord], _T], conditions: Conditions, item: tuple[int, str]) -> _T:
    seed, scheduler = item
    return look(run_scheduler(conditions.cluster_of(seed), conditions.sequence(seed), scheduler))
