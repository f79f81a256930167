"""Convert jobs of a workload for a real Spark on this machine: fewer tasks, which sleep (see ``live_spark``)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from decima.evaluation.run import run_scheduler
from decima.evaluation.spark import SPARKS_OWN, as_simulated
from decima.service.live_spark import Overhead, runs_unchanged
from simulator.cluster.alone import known_profile
from simulator.cluster.config import ClusterConfig
from workloads.arrivals import JobSequence, RandomStream, batch_arrivals, poisson_arrivals, random_stream
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.scaling import scaled
from workloads.sources.workload_file import Workload
from workloads.sources.workload_writer import write_workload

__all__ = ["Setting", "sleeping", "sleeping_history", "sleeping_jobs"]

#: Number of simulated episodes of which a prediction is the mean.
DRAWS = 10
#: Offered load of a stream.
LOAD = 0.85


@dataclass(frozen=True)
class Setting:
    """Size of the runs on Spark.

    Attributes:
        executors: number of executors, with one slot each.
        jobs: number of jobs in a batch or stream.
        batches: number of batches or streams.
        arrivals: ``batch``, or ``poisson`` at a load of 85 %.
        scale: factor on task durations.
        tasks: factor on the number of tasks of each stage.
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
        """The simulated cluster; executors change jobs without delay, as within one Spark application."""
        return ClusterConfig(self.executors, moving_delay_ms=0.0, warmup_delay_ms=0.0)

    def predicted_ms(self, jobs: JobSequence, scheduler: str, spec: str, overhead: Overhead) -> float:
        """Return the mean JCT in the simulator, ms, with Spark's overhead added to task durations.

        Under Spark's own schedulers there is no stage overhead: they release an executor after each task, so other
        jobs use it before the next stage begins. Under the plugin the executor waits in its job.
        """
        cluster, spec = as_simulated(self.cluster, scheduler, spec)
        if scheduler in SPARKS_OWN:
            overhead = overhead._replace(stage_ms=0.0)
        longer = {profile: _with_overhead(profile, overhead) for profile in set(jobs.profiles)}
        jobs = replace(jobs, profiles=tuple(longer[profile] for profile in jobs.profiles))
        draws = (run_scheduler(cluster, replace(jobs, seed=seed), spec) for seed in range(DRAWS))
        return float(np.mean([record.mean_jct_ms for record in draws]))

    def sequence(self, profiles: Sequence[JobProfile], seed: int) -> JobSequence:
        """Draw the jobs of a batch or stream with this seed."""
        if self.arrivals == "batch":
            return batch_arrivals(profiles, self.jobs, seed)
        work_ms = float(np.mean([known_profile(profile, self.cluster).work_ms for profile in profiles]))
        return poisson_arrivals(profiles, self.jobs, work_ms / (LOAD * self.executors), seed)


def _with_overhead(profile: JobProfile, overhead: Overhead) -> JobProfile:
    """Add overhead to task durations; stage overhead goes to each executor's first task, as executors wait for it."""

    def longer(stage: StageProfile) -> StageProfile:
        rest = np.add(stage.durations.values, overhead.task_ms).tolist()
        first = np.add(stage.durations.values, sum(overhead)).tolist()
        tables = ({1: durations} for durations in (first, first, rest))
        return replace(stage, durations=TaskDurations.from_tables(*tables))

    return replace(profile, stages=tuple(map(longer, profile.stages)))


def sleeping(profile: JobProfile, setting: Setting) -> JobProfile:
    """Return the job to run on Spark: with fewer tasks, and with task durations drawn once for all runs.

    Durations are drawn from tasks on warm executors, at the parallelism level closest to the number of executors.
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
    """Return the jobs to run on Spark. Jobs whose DAG Spark cannot run unchanged are omitted.

    Raises:
        WorkloadError: Spark can run none of the jobs.
    """
    naps = [nap for profile in profiles if runs_unchanged(nap := sleeping(profile, setting))]
    if not naps:
        raise WorkloadError("the workload has no job whose DAG Spark can run unchanged")
    return naps


@contextmanager
def sleeping_history(naps: Sequence[JobProfile]) -> Iterator[tuple[Path, Path]]:
    """Yield a temporary folder and, in this folder, a workload file of the jobs as history for the service."""
    with tempfile.TemporaryDirectory(prefix="decima-spark-", ignore_cleanup_errors=True) as folder:
        history = Path(folder) / "history.json"
        write_workload(history, Workload(tuple(naps), name="sleeping"))
        yield Path(folder), history
