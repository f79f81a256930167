"""Record of an episode: metrics of jobs and of the cluster (JCT, slowdown, utilisation, ...). Times are in ms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.log import EpisodeLog
from workloads.display import count_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EpisodeRecord", "of_known", "ratio"]


@dataclass(frozen=True, eq=False, repr=False)
class EpisodeRecord(EpisodeLog):
    """Record of an episode: metrics of jobs and of the cluster, and the log, see ``simulator.cluster.log.EpisodeLog``.

    Values that depend on the end of a job are NaN for incomplete jobs; means and percentiles are over completed jobs.
    """

    def __repr__(self) -> str:
        jobs = f"{self._completed_jct_ms.size:,} of {count_text(len(self.sequence), 'job')} complete"
        times = f"mean JCT {self.mean_jct_ms / 1000:.1f} s, end {self.end_ms / 1000:.1f} s"
        cluster = f"{count_text(self.config.num_executors, 'executor')}, seed {self.sequence.seed}"
        return f"EpisodeRecord({jobs}, {times}, {cluster})"

    @cached_property
    def jct_ms(self) -> NDArray[np.float64]:
        """Job completion time (JCT), completion - arrival, float64 [num_jobs], ms; NaN for an incomplete job."""
        return self.completion_ms - self.sequence.arrival_ms

    @cached_property
    def busy_ms(self) -> NDArray[np.float64]:
        """Executor time spent on each job's tasks until the episode's end, float64 [num_jobs], ms."""
        duration = np.minimum(self.task_finish_ms, self.end_ms) - self.task_start_ms
        return self._sum_by_job(self.task_job, np.maximum(np.nan_to_num(duration), 0.0))

    @cached_property
    def moving_ms(self) -> NDArray[np.float64]:
        """Executor time spent moving to each job until the episode's end, float64 [num_jobs], ms."""
        duration = np.minimum(self.move_arrive_ms, self.end_ms) - self.move_depart_ms
        return self._sum_by_job(self.move_job, duration)

    @cached_property
    def alone_ms(self) -> NDArray[np.float64]:
        """Expected JCT of each job alone on this cluster under its best parallelism limit, float64 [num_jobs], ms.

        Times of large jobs are estimates, see ``simulator.cluster.times_alone.time_alone``.
        """
        from simulator.cluster.times_alone import times_alone  # simulates each job alone

        return np.array([time.mean_ms for time in times_alone(self.sequence.profiles, self.config)])

    @cached_property
    def slowdown(self) -> NDArray[np.float64]:
        """Ratio of each job's JCT to its expected time alone on the same cluster, float64 [num_jobs].

        The time alone is the mean JCT under the best parallelism limit, including delays
        (``simulator.cluster.times_alone.time_alone``). So a job that is alone has a mean slowdown of 1 under this
        limit. NaN for a job that is incomplete, or whose time alone is 0.
        """
        return ratio(self.jct_ms, self.alone_ms)

    @cached_property
    def deadline_ms(self) -> NDArray[np.float64]:
        """Deadline of each job, float64 [num_jobs], ms; infinite without a deadline."""
        from simulator.cluster.deadlines import deadlines_ms

        return deadlines_ms(self.sequence, self.config)

    @cached_property
    def tardiness_ms(self) -> NDArray[np.float64]:
        """Time from each job's deadline to its completion, 0 if it is in time, float64 [num_jobs], ms.

        NaN for a job that is incomplete or has no deadline.
        """
        late_ms = np.maximum(self.completion_ms - self.deadline_ms, 0.0)
        late_ms[np.isinf(self.deadline_ms)] = np.nan
        return late_ms

    @cached_property
    def missed(self) -> NDArray[np.bool_]:
        """Whether each job missed its deadline, bool [num_jobs]. A failed job with a deadline has missed it.

        A job that is still running has missed its deadline if the deadline is before the episode's end.
        """
        ended_ms = np.where(np.isnan(self.completion_ms), np.inf, self.completion_ms)
        missed = ended_ms > self.deadline_ms
        waits = np.isnan(self.ended_ms)
        missed[waits] = self.deadline_ms[waits] < self.end_ms
        return missed

    @cached_property
    def work_inflation(self) -> NDArray[np.float64]:
        """Ratio of the executor time of each job's tasks to the expected time when it is alone, float64 [num_jobs].

        Above 1 with more cold starts or a higher parallelism than alone (``simulator.cluster.alone.work_ms``). NaN for
        a job that is incomplete or without work. Source: Decima, Figure 10(e).
        """
        spent = np.where(np.isnan(self.completion_ms), np.nan, self.busy_ms)
        return ratio(spent, self.work_ms)

    @property
    def mean_jct_ms(self) -> float:
        """Mean JCT of the completed jobs, ms; NaN without completed jobs."""
        return float(self._completed_jct_ms.mean()) if self._completed_jct_ms.size else float("nan")

    def jct_percentile_ms(self, percent: float) -> float:
        """Return a percentile (0 to 100, linear interpolation) of the completed jobs' JCT, ms; NaN without jobs."""
        completed = self._completed_jct_ms
        return float(np.percentile(completed, percent)) if completed.size else float("nan")

    @property
    def weighted_mean_jct_ms(self) -> float:
        """Mean JCT of the completed jobs, weighted by ``weight``, ms; NaN without completed jobs."""
        completed = ~np.isnan(self.jct_ms)
        if not completed.any():
            return math.nan
        return float(np.average(self.jct_ms[completed], weights=self.sequence.weight[completed]))

    @property
    def mean_slowdown(self) -> float:
        """Mean slowdown of the completed jobs; NaN without completed jobs."""
        return of_known(np.mean, self.slowdown)

    @property
    def worst_slowdown(self) -> float:
        """Largest slowdown of a job; NaN without completed jobs."""
        return of_known(np.max, self.slowdown)

    @property
    def deadline_misses(self) -> float:
        """Fraction of the jobs with a deadline that missed it, 0 to 1; NaN without deadlines."""
        has_deadline = np.isfinite(self.deadline_ms)
        return float(self.missed[has_deadline].mean()) if has_deadline.any() else math.nan

    @property
    def mean_tardiness_ms(self) -> float:
        """Mean tardiness of the completed jobs with a deadline, ms, 0 for jobs in time; NaN without such jobs."""
        return of_known(np.mean, self.tardiness_ms)

    @property
    def executor_hours(self) -> float:
        """Total time of executors that run tasks or move to a job, h."""
        return float(self.busy_ms.sum() + self.moving_ms.sum()) / 3_600_000

    @property
    def energy_kwh(self) -> float:
        """Energy of all executors over the observed time, kWh; see ``ClusterConfig.executor_watts``."""
        energy = self.config.executor_watts * self.executor_hours
        if self.config.idle_watts:
            energy += self.config.idle_watts * max(self.capacity_ms / 3_600_000 - self.executor_hours, 0.0)
        return energy / 1000

    @cached_property
    def job_carbon(self) -> NDArray[np.float64]:
        """Emissions of each job: energy of executors that run its tasks or move to it, times the signal, g.

        Array float64 [num_jobs]; an amount of money if the signal is a price; NaN without a signal.
        """
        from simulator.cluster.costs import job_emissions

        return job_emissions(self)

    @property
    def carbon(self) -> float:
        """Emissions of all executors: their energy times the signal, g, or money for a price; NaN without a signal.

        Idle executors count with ``ClusterConfig.idle_watts``, over the observed time.
        """
        if self.config.signal is None:
            return math.nan
        if not self.config.idle_watts:
            return float(self.job_carbon.sum())
        from simulator.cluster.costs import emissions

        return emissions(self, float(self.sequence.arrival_ms[0]), self.end_ms)

    @property
    def makespan_ms(self) -> float:
        """Makespan: last end of a job - first arrival, ms; NaN if a job has not ended."""
        return float(self.ended_ms.max() - self.sequence.arrival_ms[0])

    def cost_ms(self, objective: str) -> float:
        """Return the cost by an objective since the first arrival, which minus the rewards add up to, ms.

        A job counts until it completes or fails, or until the episode's end.

        Args:
            objective: name of the objective, see ``ClusterConfig.reward``.

        Raises:
            ConfigError: the objective is unknown, or needs a signal that the cluster lacks.
        """
        from simulator.cluster.costs import cost_ms

        return cost_ms(self, objective)

    @property
    def observed_ms(self) -> float:
        """Time from the first arrival to the last end of a job, or to the episode's end if jobs are left, ms."""
        last = self.end_ms if np.isnan(self.ended_ms).any() else float(self.ended_ms.max())
        return float(last - self.sequence.arrival_ms[0])

    @property
    def utilisation(self) -> float:
        """Fraction of the time of executors in the cluster that is spent on tasks, 0 to 1."""
        capacity = self.capacity_ms
        return float(self.busy_ms.sum() / capacity) if capacity else float("nan")

    @property
    def capacity_ms(self) -> float:
        """Total time of executors in the cluster over the observed time, ms."""
        begin_ms, observed_ms = float(self.sequence.arrival_ms[0]), self.observed_ms
        left_ms = observed_ms - np.clip(self.change_ms - begin_ms, 0, observed_ms)
        return self.config.num_executors * observed_ms + float(np.where(self.change_joins, 1, -1) @ left_ms)

    @property
    def mean_jobs_in_system(self) -> float:
        """Time average of the number of jobs that have arrived and not ended, over the observed time."""
        left_ms = np.where(np.isnan(self.ended_ms), self.end_ms, self.ended_ms)
        time_in_system = left_ms - np.minimum(self.sequence.arrival_ms, self.end_ms)
        return float(time_in_system.sum() / self.observed_ms) if self.observed_ms else float("nan")

    def jobs(self) -> pd.DataFrame:
        """Return a table with a row per job, in order of arrival.

        Columns: ``name``, ``arrival_ms``, ``completion_ms``, ``jct_ms``, ``work_ms`` (expected executor time alone),
        ``busy_ms`` and ``moving_ms`` (executor time of tasks and of moves to the job), ``slowdown``,
        ``work_inflation``. With attributes also ``weight``, ``tenant``, ``deadline_ms``, ``tardiness_ms``, with a
        signal ``carbon``.
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.jobs(self)

    def jobs_in_system(self) -> pd.Series[int]:
        """Return the number of jobs in the system over time, as a step function: values int64, index in ms.

        A value holds from its index to the next one. If all jobs complete, the area below is the sum of their JCTs
        (Little's law).
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.jobs_in_system(self)

    @property
    def jobs_found(self) -> NDArray[np.int64]:
        """Number of jobs in the system when each job arrives, int64 [num_jobs], including jobs that arrive then."""
        steps = self.jobs_in_system()
        rows = np.searchsorted(steps.index.to_numpy(), self.sequence.arrival_ms, "right") - 1
        return steps.to_numpy()[rows].astype(np.int64)

    def metrics(self) -> pd.Series[float]:
        """Return the metrics of the episode by name.

        Entries: ``mean_jct_ms``, ``p50_jct_ms``, ``p95_jct_ms``, ``p99_jct_ms``, ``makespan_ms``,
        ``utilisation``, ``mean_jobs_in_system``, ``mean_slowdown``, ``mean_work_inflation`` (means over jobs with a
        value), ``worst_slowdown``, ``busy_ms``, ``moving_ms`` (sums over the jobs),
        ``completed_jobs``. With faults also ``failed_jobs``, ``lost_runs``, and ``lost_ms``, the executor time of lost
        runs. With attributes also ``weighted_mean_jct_ms``, ``deadline_misses``, ``mean_tardiness_ms``. With a signal
        also ``executor_hours``, ``energy_kwh``, ``carbon``.
        """
        from simulator.cluster import tables  # pandas is slow to import

        return tables.metrics(self)

    @property
    def _completed_jct_ms(self) -> NDArray[np.float64]:
        return self.jct_ms[~np.isnan(self.jct_ms)]

    @cached_property
    def ended_ms(self) -> NDArray[np.float64]:
        """Time at which each job completed or failed, float64 [num_jobs], ms; NaN for other jobs."""
        ended_ms = self.completion_ms.copy()
        ended_ms[self.failed_job] = self.failed_ms
        return ended_ms

    @cached_property
    def work_ms(self) -> NDArray[np.float64]:
        """Expected executor time of each job alone on this cluster, float64 [num_jobs], ms."""
        from simulator.cluster.alone import work_ms  # estimates each job alone

        work = {
            profile: float(work_ms(profile, self.config).sum()) for profile in set(self.sequence.profiles)
        }
        return np.array([work[profile] for profile in self.sequence.profiles], dtype=np.float64)

    def _sum_by_job(self, job: NDArray[np.int64], value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(job, weights=value, minlength=len(self.sequence)).astype(np.float64)


def ratio(value: NDArray[np.float64], to: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``value / to``, NaN where ``to`` is 0."""
    return np.divide(value, to, out=np.full_like(value, np.nan), where=to > 0)


def of_known(mean_or_max: Callable[[NDArray[np.float64]], np.float64], values: NDArray[np.float64]) -> float:
    """Apply a function to the values that are not NaN; return NaN if there are none."""
    numbers = values[~np.isnan(values)]
    return float(mean_or_max(numbers)) if numbers.size else math.nan
