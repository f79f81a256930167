"""Simulates what was recorded on Spark: a run from its own durations, and runs and mixtures from other runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from decima.reproduce.recordings import Mixture, QueryKey, Run
from decima.schedulers.standalone import SparkStandalone
from simulator import ClusterConfig, ExecutorClass, run_episode
from workloads import JobProfile, JobSequence, TaskDurations, Wave, WorkloadError
from workloads.spark_application import SparkQuery
from workloads.spark_profile import to_profile
from workloads.spark_replay import in_submission_order, replay_profile, with_driver

__all__ = ["Effects", "predict_mixture", "predict_run", "replay", "replay_mixture"]


@dataclass(frozen=True)
class Effects:
    """What a prediction takes into account.

    Args:
        waves: an executor's first tasks, of the job and of each stage, differ from the rest.
        parallelism: durations depend on the number of executors; else those of all runs are pooled, whatever
            it was.
        moving: an executor takes time to come to an application.
        driver: the cluster waits for the driver between stages. The paper's simulator does not know of that.
    """

    waves: bool = True
    parallelism: bool = True
    moving: bool = True
    driver: bool = True


def replay(run: Run) -> float:
    """How long the query takes in the simulator from the run's own durations in their order, ms.

    Nothing is drawn at random. Compare it with the run's ``query.wall_ms``.
    """
    setting = _Setting(run.executors, run.executors)
    return float(setting.completion_ms([replay_profile(run.query)])[0])


def predict_run(training: Sequence[Run], executors: int, effects: Effects, num_seeds: int) -> float:
    """How long the query takes on so many executors, all of which are there when it starts, ms.

    Args:
        training: other runs of the query; those with as many executors alone tell the durations, unless
            ``effects`` leaves parallelism out.
        executors: at least 1.
        effects: what is taken into account; nobody moves here.
        num_seeds: the mean is over so many draws of the durations.

    Raises:
        WorkloadError: none of ``training`` had so many executors.
    """
    profile = _profile(training, executors, effects, overlapped=False)
    same = [run for run in training if run.executors == executors]
    setting = _Setting(executors, executors, warmup_ms=_warmup_ms(same))
    return float(np.mean([setting.completion_ms([profile], seed=seed) for seed in range(num_seeds)]))


def replay_mixture(mixture: Mixture) -> NDArray[np.float64]:
    """Job completion times in the simulator from the applications' own durations, float64 [num_applications], ms.

    What is taken from the recording is when applications were submitted and how long their executors took to
    start (the mean), and of each application the durations of its tasks and the driver's delays. When which
    application gets executors is the simulator's.
    """
    profiles = [replay_profile(run.query, max(0.0, run.preparation_ms)) for run in mixture.runs]
    moving_ms = _known_mean([run.startup_ms for run in mixture.runs])
    # Those who found free executors; the others waited as well.
    registration_ms = min(run.registration_ms for run in mixture.runs)
    setting = _Setting(mixture.slots, mixture.executors_max, moving_ms=moving_ms)
    return setting.completion_ms(profiles, mixture.submit_ms + registration_ms) - mixture.submit_ms


def predict_mixture(
    mixture: Mixture, runs: Mapping[QueryKey, Sequence[Run]], effects: Effects, num_seeds: int
) -> NDArray[np.float64]:
    """Job completion times of a mixture's applications, from single runs of their queries.

    An application arrives when it has registered with the master, and its executors take the moving delay;
    meanwhile its driver prepares the first job. Both delays are those of the single runs.

    The cluster is one machine, which applications slow down for each other. So durations are those of single
    runs on as many executors as the cluster has, even where an application holds fewer.

    Returns:
        float64 [num_applications], ms, means over ``num_seeds`` draws of the durations.

    Raises:
        WorkloadError: a query was not recorded alone with so many executors.
    """
    busy = mixture.slots
    missing = [key for key in mixture.keys if all(run.executors != busy for run in runs.get(key, ()))]
    if missing:
        raise WorkloadError(f"{mixture.name}: no single run of {missing[0]} with {busy} executors")
    same = [run for key in dict.fromkeys(mixture.keys) for run in runs[key] if run.executors == busy]
    profiles = {key: _profile(runs[key], busy, effects, overlapped=True) for key in mixture.keys}
    setting = _Setting(
        mixture.slots,
        mixture.executors_max,
        moving_ms=_known_mean([run.startup_ms for run in same]) if effects.moving else 0.0,
        warmup_ms=_warmup_ms(same),
    )
    jobs = [profiles[key] for key in mixture.keys]
    arrival_ms = mixture.submit_ms + _known_mean([run.registration_ms for run in same])
    draws = [setting.completion_ms(jobs, arrival_ms, seed) for seed in range(num_seeds)]
    predicted: NDArray[np.float64] = np.mean(draws, axis=0) - mixture.submit_ms
    return predicted


@dataclass(frozen=True)
class _Setting:
    """A cluster of one-core executors, and how many an application may hold."""

    executors: int
    executors_max: int
    moving_ms: float = 0.0
    warmup_ms: float = 0.0

    def completion_ms(
        self, profiles: Sequence[JobProfile], arrival_ms: ArrayLike | None = None, seed: int = 0
    ) -> NDArray[np.float64]:
        arrival = np.zeros(len(profiles)) if arrival_ms is None else np.asarray(arrival_ms, dtype=np.float64)
        sequence = JobSequence(tuple(profiles), arrival, seed)
        cluster = ClusterConfig(
            executor_classes=self._executor_classes(profiles),
            moving_delay_ms=self.moving_ms,
            warmup_delay_ms=self.warmup_ms,
        )
        return run_episode(cluster, sequence, SparkStandalone(self.executors_max)).completion_ms

    def _executor_classes(self, profiles: Sequence[JobProfile]) -> tuple[ExecutorClass, ...]:
        """Those with cores, and as many threads as the drivers could ever use; drivers are offered first."""
        with_cores = ExecutorClass(self.executors, cpu=1.0, memory=0.0)
        drivers = [stage for profile in profiles for stage in profile.stages if stage.cpu == 0]
        threads = sum(stage.num_tasks for stage in drivers)
        return (ExecutorClass(threads, cpu=0.0, memory=1.0), with_cores) if threads else (with_cores,)


def _known_mean(values: Sequence[float]) -> float:
    """Their mean without those that are not known (NaN); 0 if none is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else 0.0


def _profile(runs: Sequence[Run], executors: int, effects: Effects, *, overlapped: bool) -> JobProfile:
    """What the runs tell of the query on so many executors.

    ``overlapped``: the driver prepares the first job while the executors start, else once they are there.
    """
    same = [run for run in runs if run.executors == executors]
    if not same:
        raise WorkloadError(f"there is no other run of {runs[0].key} with {executors} executors")
    # The others tell which barriers between jobs are none, but came about by chance.
    others = [run for run in runs if run.executors != executors]
    queries = [run.query if effects.parallelism else _on_level(run.query, executors) for run in same + others]
    profile = _at_level(to_profile(queries), executors)
    if not effects.waves:
        profile = _without_waves(profile)
    if not effects.driver:
        return in_submission_order(profile, queries[0])
    planning_ms = None
    if overlapped:
        # What is not known (NaN) is not waited for: max keeps its first argument then.
        planning_ms = [max(0.0, run.preparation_ms - run.startup_ms * effects.moving) for run in same]
    return with_driver(profile, queries[: len(same)], planning_ms)


def _on_level(query: SparkQuery, level: int) -> SparkQuery:
    """As if the tasks had been measured with so many executors."""
    return replace(query, tasks=query.tasks.assign(level=level))


def _at_level(profile: JobProfile, level: int) -> JobProfile:
    """Only the durations of one level, where a stage has any."""

    def only_those(durations: TaskDurations) -> TaskDurations:
        if level not in durations.levels:
            return durations
        tables = (durations.table(wave)[level].tolist() for wave in Wave)
        return TaskDurations.from_tables(*({level: found} if found else {} for found in tables))

    return _with_durations(profile, only_those)


def _without_waves(profile: JobProfile) -> JobProfile:
    return _with_durations(profile, lambda durations: TaskDurations.sampled(durations.values))


def _with_durations(profile: JobProfile, change: Callable[[TaskDurations], TaskDurations]) -> JobProfile:
    stages = tuple(replace(stage, durations=change(stage.durations)) for stage in profile.stages)
    return replace(profile, stages=stages)


def _warmup_ms(runs: Iterable[Run]) -> float:
    """How much longer an executor's first task takes than its first tasks of later stages, on average, ms."""
    tasks = pd.concat([run.query.tasks for run in runs])
    mean = tasks.groupby("wave")["duration_ms"].mean()
    if Wave.FRESH not in mean or Wave.FIRST not in mean:
        return 0.0
    return max(float(mean[Wave.FRESH] - mean[Wave.FIRST]), 0.0)
