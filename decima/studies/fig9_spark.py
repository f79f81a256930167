"""Figure 9 of the Decima paper on a real Spark: Decima in charge, against what Spark does by itself.

The jobs are those of a workload; their tasks sleep (``live_spark``). Each scheduler runs the same jobs, and the
simulator predicts each run: from the durations of the tasks, and from how much longer than it sleeps a task takes on
this machine, which is measured before each run with a job of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima.evaluation.intervals import Interval, mean_interval
from decima.evaluation.run import run_scheduler
from decima.evaluation.spark.schedulers import SPARKS_OWN, TRAINING_SEEDS, WEIGHTED_FAIR, as_simulated, tuned
from decima.outputs import json_text
from decima.registry import LEARNED
from decima.studies.live_spark import Overhead, live_spark, runs_as_it_is, serving
from simulator.cluster.alone import known_profile
from simulator.cluster.config import ClusterConfig
from workloads.arrivals import (
    JobSequence,
    RandomStream,
    batch_arrivals,
    poisson_arrivals,
    random_stream,
)
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.scaling import scaled
from workloads.sources.workload_file import Workload, write_workload

__all__ = ["SCHEDULERS", "LiveComparison", "LiveRuns", "Setting", "compare_live", "sleeping", "sleeping_jobs"]

#: Shown name -> scheduler; all but Spark's own come through the plugin.
SCHEDULERS = {**SPARKS_OWN, **WEIGHTED_FAIR, LEARNED: LEARNED}
#: Runs that weighted fair sharing is tuned on, in the simulator.
TRAINING = 20
#: Draws of the durations that a prediction is the mean of.
DRAWS = 10
#: What the executors are to be busy with in a stream.
LOAD = 0.85


@dataclass(frozen=True)
class Setting:
    """What runs.

    Attributes:
        executors: with one slot each.
        jobs: in a batch, or in a stream.
        batches: how many batches, or streams.
        arrivals: all at once, or ``poisson``, so far apart that the executors are busy for 85 % of the time.
        scale: factor on the durations of the workload's tasks.
        tasks: factor on the number of tasks of each stage.
        seed: of the first batch.
    """

    executors: int = 8
    jobs: int = 10
    batches: int = 5
    arrivals: Literal["batch", "poisson"] = "batch"
    scale: float = 4.0
    tasks: float = 0.05
    seed: int = 0

    @property
    def cluster(self) -> ClusterConfig:
        """As the simulator has it: inside one application executors change jobs at once."""
        return ClusterConfig(self.executors, moving_delay_ms=0.0, warmup_delay_ms=0.0)

    def predicted_ms(self, jobs: JobSequence, scheduler: str, spec: str, overhead: Overhead) -> float:
        """Mean JCT in the simulator, with what takes longer than tasks sleep.

        Spark itself gives an executor away after each task, so that others use it while a stage begins. In the plugin's
        charge it belongs to a job, which waits.
        """
        cluster, spec = as_simulated(self.cluster, scheduler, spec)
        if scheduler in SPARKS_OWN:
            overhead = overhead._replace(stage_ms=0.0)
        longer = {profile: _longer(profile, overhead) for profile in set(jobs.profiles)}
        jobs = replace(jobs, profiles=tuple(longer[profile] for profile in jobs.profiles))
        draws = (run_scheduler(cluster, replace(jobs, seed=seed), spec) for seed in range(DRAWS))
        return float(np.mean([record.mean_jct_ms for record in draws]))

    def sequence(self, profiles: Sequence[JobProfile], seed: int) -> JobSequence:
        """The jobs of a batch or of a stream."""
        if self.arrivals == "batch":
            return batch_arrivals(profiles, self.jobs, seed)
        work_ms = float(np.mean([known_profile(profile, self.cluster).work_ms for profile in profiles]))
        return poisson_arrivals(profiles, self.jobs, work_ms / (LOAD * self.executors), seed)


@dataclass(frozen=True, eq=False)
class LiveRuns:
    """Runs of the same batches on a real Spark, by who scheduled them.

    Attributes:
        setting: what ran.
        runs: a row for each batch and scheduler, columns ``batch`` (int64), ``scheduler`` (str), ``real_ms`` (float64,
            mean JCT) and ``jct_ms`` (lists of float, of each job in order of arrival).
    """

    setting: Setting
    runs: pd.DataFrame

    @property
    def schedulers(self) -> list[str]:
        """In their order."""
        return list(dict.fromkeys(self.runs["scheduler"]))

    def column(self, scheduler: str, name: str = "real_ms") -> NDArray[np.float64]:
        """A figure of each batch, float64 [batches]."""
        rows = self.runs[self.runs["scheduler"] == scheduler].sort_values("batch")
        return rows[name].to_numpy(dtype=np.float64)

    def mean_jct_ms(self, scheduler: str, name: str = "real_ms") -> Interval:
        """Mean over the batches, of another column if need be."""
        return mean_interval(self.column(scheduler, name))

    def change(self, scheduler: str, other: str) -> Interval:
        """By what fraction its mean JCT differs from another's; paired by batches, which count by their size."""
        base = self.column(other)
        return mean_interval(self.column(scheduler) / base - 1, base)


@dataclass(frozen=True, eq=False)
class LiveComparison(LiveRuns):
    """What came out.

    Attributes:
        runs: with columns ``predicted_ms`` (float64, mean JCT), ``task_ms`` and ``stage_ms`` (float64, see
            ``Overhead``), too.
        tuned: setting of weighted fair sharing.
    """

    tuned: str

    def error(self, scheduler: str) -> float:
        """By what fraction the predicted mean JCT differs from the real one."""
        return self.mean_jct_ms(scheduler, "predicted_ms").mean / self.mean_jct_ms(scheduler).mean - 1

    def to_json(self, **extra: Any) -> str:
        """All of it; ``extra`` is added as it is."""
        content = {
            **extra,
            "setting": vars(self.setting),
            "weighted_fair": self.tuned,
            "schedulers": {
                name: {
                    "mean_jct_ms": self.mean_jct_ms(name)._asdict(),
                    "predicted_ms": self.mean_jct_ms(name, "predicted_ms").mean,
                    "error": self.error(name),
                    "change": {
                        own: self.change(name, own)._asdict() for own in SPARKS_OWN if own in self.schedulers
                    },
                }
                for name in self.schedulers
            },
            "runs": self.runs.to_dict("records"),
        }
        return json_text(content)


def sleeping(profile: JobProfile, setting: Setting) -> JobProfile:
    """The job that runs: with fewer tasks, each with a duration of its own that is drawn once for all.

    They are drawn from those of tasks on warm executors, at the level of parallelism next to the cluster's size.
    """
    thin = scaled(profile, durations=setting.scale, tasks=setting.tasks)
    stages = []
    for number, stage in enumerate(thin.stages):
        tables = [stage.durations.table(wave) for wave in (Wave.REST, Wave.FIRST, Wave.FRESH)]
        known = next(table for table in tables if any(map(len, table.values())))
        level = min(
            (level for level in known if len(known[level])), key=lambda each: abs(each - setting.executors)
        )
        random = random_stream(setting.seed, RandomStream.TASK_DURATIONS, number, len(thin.name))
        values = np.round(random.choice(known[level], stage.num_tasks))
        stages.append(StageProfile(stage.num_tasks, TaskDurations.sampled(values), stage.name))
    return JobProfile(thin.name, tuple(stages), thin.edges)


def sleeping_jobs(profiles: Sequence[JobProfile], setting: Setting) -> list[JobProfile]:
    """The jobs that run; those whose DAG Spark cannot run as it stands are passed over.

    Raises:
        WorkloadError: none is left.
    """
    naps = [nap for profile in profiles if runs_as_it_is(nap := sleeping(profile, setting))]
    if not naps:
        raise WorkloadError("no job of the workload has a DAG that Spark can run as it stands")
    return naps


def compare_live(
    profiles: Sequence[JobProfile],
    setting: Setting,
    schedulers: Mapping[str, str] = SCHEDULERS,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> LiveComparison:
    """Run batches of jobs on a real Spark under each scheduler, and predict them.

    The schedulers take turns with each batch, so that a machine that is busier for a while is busier for all.

    Args:
        profiles: what jobs are drawn from; those whose DAG Spark cannot run as it stands are passed over.
        setting: what runs.
        schedulers: shown name -> scheduler.
        tell: told how many runs are done, and of how many.

    Raises:
        WorkloadError: no profile is left.
        LiveSparkError: Spark or the service does not start, or a job fails.
        ImportError: pyspark is not installed.
    """
    import pyspark  # noqa: F401  # before anything takes long

    naps = sleeping_jobs(profiles, setting)
    batches = [setting.sequence(naps, setting.seed + batch) for batch in range(setting.batches)]
    training = (setting.sequence(naps, TRAINING_SEEDS + draw) for draw in range(TRAINING))
    specs, alpha = tuned(schedulers, setting.cluster, training)
    rows: list[dict[str, Any]] = []
    total = len(specs) * len(batches)
    with tempfile.TemporaryDirectory(prefix="decima-spark-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        history = folder / "history.json"
        write_workload(history, Workload(tuple(naps), name="sleeping"))
        for (number, jobs), (name, spec) in product(enumerate(batches), specs.items()):
            with ExitStack() as programs:
                where, own = folder / f"{number}-{name.replace(' ', '-')}", name in SPARKS_OWN
                log = where.with_suffix(".jsonl")
                address = "" if own else programs.enter_context(serving(spec, history, log))
                spark = programs.enter_context(
                    live_spark(where, setting.executors, fair=spec == "fair" and own, address=address)
                )
                overhead = spark.overhead()
                jct_ms = spark.run(jobs)
            predicted_ms = setting.predicted_ms(jobs, name, spec, overhead)
            rows.append(
                {
                    "batch": number,
                    "scheduler": name,
                    "real_ms": float(jct_ms.mean()),
                    "predicted_ms": predicted_ms,
                    **overhead._asdict(),
                    "jct_ms": jct_ms.tolist(),
                }
            )
            tell(len(rows), total)
    return LiveComparison(setting, pd.DataFrame(rows), alpha)


def _longer(profile: JobProfile, overhead: Overhead) -> JobProfile:
    return replace(profile, stages=tuple(_longer_stage(stage, overhead) for stage in profile.stages))


def _longer_stage(stage: StageProfile, overhead: Overhead) -> StageProfile:
    """What a stage takes to begin, it takes of those who wait for it: of the first tasks of its executors."""
    rest = np.add(stage.durations.values, overhead.task_ms).tolist()
    first = np.add(stage.durations.values, sum(overhead)).tolist()
    tables = ({1: durations} for durations in (first, first, rest))
    return replace(stage, durations=TaskDurations.from_tables(*tables))
