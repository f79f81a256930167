"""Jobs of a workload on a real Spark on this machine: fewer tasks, which sleep (see ``live``); and their prediction.

The simulator predicts each run from task durations and from the overhead of tasks and stages, which a probe job
measures before each run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from decima.evaluation.episodes import run_scheduler
from decima.evaluation.spark import SPARKS_OWN, TRAINING_SEEDS, as_simulated, tuned
from reproduce.spark.live import LiveSparkError, Overhead, live_spark, runs_unchanged, serving
from simulator.cluster.config import ClusterConfig
from simulator.cluster.known import known_profile
from workloads.arrivals import JobSequence, RandomStream, batch_arrivals, poisson_arrivals, random_stream
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.scaling import scaled
from workloads.sources.workload_file import Workload
from workloads.sources.workload_writer import write_workload

__all__ = ["SparkSetting", "check_pyspark", "run_on_spark", "sleeping", "sleeping_history", "sleeping_jobs"]

#: Number of simulated episodes of which a prediction is the mean.
DRAWS = 10
#: Offered load of a stream.
LOAD = 0.85
#: Number of simulated batches on which weighted fair sharing is tuned.
TRAINING = 20


@dataclass(frozen=True)
class SparkSetting:
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


def sleeping(profile: JobProfile, setting: SparkSetting) -> JobProfile:
    """Return the job to run on Spark: with fewer tasks, and with task durations drawn once for all runs.

    Durations are drawn from tasks on warm executors, at the parallelism level closest to the number of executors.
    """
    thin = scaled(profile, durations=setting.scale, tasks=setting.tasks)
    stages = []
    for index, stage in enumerate(thin.stages):
        tables = [stage.durations.table(wave) for wave in (Wave.REST, Wave.FIRST, Wave.FRESH)]
        durations = next(table for table in tables if any(map(len, table.values())))
        level = min(
            (level for level in durations if len(durations[level])),
            key=lambda level: abs(level - setting.executors),
        )
        random = random_stream(setting.seed, RandomStream.TASK_DURATIONS, index, len(thin.name))
        values = np.round(random.choice(durations[level], stage.num_tasks))
        stages.append(StageProfile(stage.num_tasks, TaskDurations.sampled(values), stage.name))
    return JobProfile(thin.name, tuple(stages), thin.edges)


def sleeping_jobs(profiles: Sequence[JobProfile], setting: SparkSetting) -> list[JobProfile]:
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


def check_pyspark() -> None:
    """Raise LiveSparkError if pyspark is not installed."""
    if find_spec("pyspark") is None:
        raise LiveSparkError("this figure needs pyspark: pip install -e '.[spark]'")


def run_on_spark(
    profiles: Sequence[JobProfile],
    setting: SparkSetting,
    schedulers: Mapping[str, str],
    *,
    elsewhere: Mapping[str, str] | None = None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:
    """Run batches of jobs on a real Spark under each scheduler, and predict their mean JCT.

    All schedulers run a batch before the next batch starts, so that other load of the machine affects them equally.

    Args:
        profiles: jobs to draw from.
        schedulers: displayed name -> scheduler. All but Spark's own schedulers decide through the plugin.
            ``weighted-fair`` is tuned in the simulator, on other jobs.
        elsewhere: settings for another cluster, see ``live_spark``.

    Returns:
        One row per batch and scheduler; columns ``batch`` (int64), ``scheduler`` (str), ``setting`` (str, scheduler
        after tuning), ``real_ms`` and ``predicted_ms`` (float64, mean JCT), and ``task_ms`` and ``stage_ms`` (float64,
        see ``Overhead``).

    Raises:
        WorkloadError: Spark cannot run any of the profiles.
        LiveSparkError: pyspark is not installed, Spark or the service does not start, or a job fails.
    """
    check_pyspark()
    jobs = sleeping_jobs(profiles, setting)
    training = (setting.sequence(jobs, TRAINING_SEEDS + draw) for draw in range(TRAINING))
    specs, _ = tuned(schedulers, setting.cluster, training)
    rows: list[dict[str, Any]] = []
    with sleeping_history(jobs) as (folder, history):
        for batch in range(setting.batches):
            sequence = setting.sequence(jobs, setting.seed + batch)
            for name, spec in specs.items():
                run_folder = folder / f"{batch}-{name.replace(' ', '-')}"
                with ExitStack() as programs:
                    if name in SPARKS_OWN:
                        address = ""
                    else:
                        log = run_folder.with_suffix(".jsonl")
                        address = programs.enter_context(serving(spec, history, log))
                    spark = programs.enter_context(
                        live_spark(
                            run_folder,
                            setting.executors,
                            fair=name == "Spark FAIR",
                            address=address,
                            elsewhere=elsewhere,
                        )
                    )
                    overhead = spark.overhead()
                    jct_ms = spark.run(sequence)
                rows.append(
                    {
                        "batch": batch,
                        "scheduler": name,
                        "setting": spec,
                        "real_ms": float(jct_ms.mean()),
                        "predicted_ms": setting.predicted_ms(sequence, name, spec, overhead),
                        **overhead._asdict(),
                    }
                )
                on_step(len(rows), len(specs) * setting.batches)
    return pd.DataFrame(rows)
