"""Metrics of an episode: of its jobs (slowdown, deadlines, work) and of the cluster (utilisation, energy, ...).

Times are in ms. Values that depend on the end of a job are NaN for incomplete jobs; means and percentiles are over
completed jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.record import EpisodeRecord

__all__ = ["EpisodeMetrics", "of_known", "ratio"]


class EpisodeMetrics:
    """Metrics of an episode; each is computed when it is first read.

    Args:
        record: the episode, which the object keeps.
    """

    def __init__(self, record: EpisodeRecord) -> None:
        self.record = record
        self.config, self.sequence = record.config, record.sequence

    # ---- jobs --------------------------------------------------------------------------------------------

    @cached_property
    def busy_ms(self) -> NDArray[np.float64]:
        """Executor time spent on each job's tasks until the episode's end, float64 [num_jobs], ms."""
        duration = np.minimum(self.record.task_finish_ms, self.record.end_ms) - self.record.task_start_ms
        return self._sum_by_job(self.record.task_job, np.maximum(np.nan_to_num(duration), 0.0))

    @cached_property
    def moving_ms(self) -> NDArray[np.float64]:
        """Executor time spent moving to each job until the episode's end, float64 [num_jobs], ms."""
        duration = np.minimum(self.record.move_arrive_ms, self.record.end_ms) - self.record.move_depart_ms
        return self._sum_by_job(self.record.move_job, duration)

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
        return ratio(self.record.jct_ms, self.alone_ms)

    @cached_property
    def work_ms(self) -> NDArray[np.float64]:
        """Expected executor time of each job alone on this cluster, float64 [num_jobs], ms."""
        from simulator.cluster.known import work_ms  # estimates each job alone

        work = {
            profile: float(work_ms(profile, self.config).sum()) for profile in set(self.sequence.profiles)
        }
        return np.array([work[profile] for profile in self.sequence.profiles], dtype=np.float64)

    @cached_property
    def work_inflation(self) -> NDArray[np.float64]:
        """Ratio of the executor time of each job's tasks to the expected time when it is alone, float64 [num_jobs].

        Above 1 with more cold starts or a higher parallelism than alone (``simulator.cluster.known.work_ms``). NaN for
        a job that is incomplete or without work. Source: Decima, Figure 10(e).
        """
        spent = np.where(np.isnan(self.record.completion_ms), np.nan, self.busy_ms)
        return ratio(spent, self.work_ms)

    @cached_property
    def deadline_ms(self) -> NDArray[np.float64]:
        """Deadline of each job, float64 [num_jobs], ms; infinite without a deadline."""
        if not self.sequence.attributes:
            return np.full(len(self.sequence), np.inf)
        from simulator.cluster.deadlines import deadlines_ms

        return deadlines_ms(self.sequence, self.config)

    @cached_property
    def tardiness_ms(self) -> NDArray[np.float64]:
        """Time from each job's deadline to its completion, 0 if it is in time, float64 [num_jobs], ms.

        NaN for a job that is incomplete or has no deadline.
        """
        late_ms = np.maximum(self.record.completion_ms - self.deadline_ms, 0.0)
        late_ms[np.isinf(self.deadline_ms)] = np.nan
        return late_ms

    @cached_property
    def missed(self) -> NDArray[np.bool_]:
        """Whether each job missed its deadline, bool [num_jobs]. A failed job with a deadline has missed it.

        A job that is still running has missed its deadline if the deadline is before the episode's end.
        """
        ended_ms = np.where(np.isnan(self.record.completion_ms), np.inf, self.record.completion_ms)
        missed = ended_ms > self.deadline_ms
        waits = np.isnan(self.record.ended_ms)
        missed[waits] = self.deadline_ms[waits] < self.record.end_ms
        return missed

    def jct_percentile_ms(self, percent: float) -> float:
        """Return a percentile (0 to 100, linear interpolation) of the completed jobs' JCT, ms; NaN without jobs."""
        completed = self._completed_jct_ms
        return float(np.percentile(completed, percent)) if completed.size else float("nan")

    @property
    def weighted_mean_jct_ms(self) -> float:
        """Mean JCT of the completed jobs, weighted by ``weight``, ms; NaN without completed jobs."""
        completed = ~np.isnan(self.record.jct_ms)
        if not completed.any():
            return math.nan
        return float(np.average(self.record.jct_ms[completed], weights=self.sequence.weight[completed]))

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
    def _completed_jct_ms(self) -> NDArray[np.float64]:
        return self.record.jct_ms[~np.isnan(self.record.jct_ms)]

    # ---- cluster -----------------------------------------------------------------------------------------

    @property
    def observed_ms(self) -> float:
        """Time from the first arrival to the last end of a job, or to the episode's end if jobs are left, ms."""
        last = (
            self.record.end_ms if np.isnan(self.record.ended_ms).any() else float(self.record.ended_ms.max())
        )
        return float(last - self.sequence.arrival_ms[0])

    @property
    def capacity_ms(self) -> float:
        """Total time of executors in the cluster over the observed time, ms."""
        begin_ms, observed_ms = float(self.sequence.arrival_ms[0]), self.observed_ms
        left_ms = observed_ms - np.clip(self.record.change_ms - begin_ms, 0, observed_ms)
        return self.config.num_executors * observed_ms + float(
            np.where(self.record.change_joins, 1, -1) @ left_ms
        )

    @property
    def utilisation(self) -> float:
        """Fraction of the time of executors in the cluster that is spent on tasks, 0 to 1."""
        capacity = self.capacity_ms
        return float(self.busy_ms.sum() / capacity) if capacity else float("nan")

    @property
    def load(self) -> float:
        """Fraction of the executors' time until the last arrival spent on tasks; NaN if all jobs arrive at 0."""
        last_ms = float(self.sequence.arrival_ms[-1])
        if not last_ms:
            return math.nan
        ran = self.record.task_executor >= 0
        end_ms = np.minimum(self.record.task_finish_ms[ran], min(last_ms, self.record.end_ms))
        busy_ms = float(np.maximum(end_ms - self.record.task_start_ms[ran], 0.0).sum())
        return busy_ms / (last_ms * self.config.num_executors)

    @property
    def mean_jobs_in_system(self) -> float:
        """Time average of the number of jobs that have arrived and not ended, over the observed time."""
        left_ms = np.where(np.isnan(self.record.ended_ms), self.record.end_ms, self.record.ended_ms)
        time_in_system = left_ms - np.minimum(self.sequence.arrival_ms, self.record.end_ms)
        return float(time_in_system.sum() / self.observed_ms) if self.observed_ms else float("nan")

    @property
    def fragmentation(self) -> dict[str, float]:
        """Fractions of ``cpu`` and of ``memory`` of busy executors that their tasks do not demand, 0 to 1.

        NaN if busy executors have none of the resource. Source: Decima, section 7.3.
        """
        ran = self.record.task_executor >= 0
        busy_ms = (
            np.minimum(self.record.task_finish_ms[ran], self.record.end_ms) - self.record.task_start_ms[ran]
        )
        unused = {}
        for resource in ("cpu", "memory"):
            size, demand = self.resource(resource)
            # The threads of BLAS make products of such long vectors slower.
            held = float((busy_ms * size[self.record.task_executor[ran]]).sum())
            unused[resource] = 1 - float((busy_ms * demand[ran]).sum()) / held if held else math.nan
        return unused

    def resource(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a resource of each executor, float64 [executors], and the demand of each run, float64 [runs]."""
        classes = self.config.executor_classes
        stages = [stage for profile in self.sequence.profiles for stage in profile.stages]
        size = np.array([getattr(executor_class, name) for executor_class in classes], dtype=np.float64)[
            self.record.executor_class
        ]
        demand = np.array([getattr(stage, name) for stage in stages], dtype=np.float64)
        return size, self.record.of_runs(np.repeat(demand, self.record.stage_size))

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

        return job_emissions(self.record)

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

        return emissions(self.record, float(self.sequence.arrival_ms[0]), self.record.end_ms)

    def _sum_by_job(self, job: NDArray[np.int64], value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(job, weights=value, minlength=len(self.sequence)).astype(np.float64)


def ratio(value: NDArray[np.float64], to: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``value / to``, NaN where ``to`` is 0."""
    return np.divide(value, to, out=np.full_like(value, np.nan), where=to > 0)


def of_known(mean_or_max: Callable[[NDArray[np.float64]], np.float64], values: NDArray[np.float64]) -> float:
    """Apply a function to the values that are not NaN; return NaN if there are none."""
    numbers = values[~np.isnan(values)]
    return float(mean_or_max(numbers)) if numbers.size else math.nan
