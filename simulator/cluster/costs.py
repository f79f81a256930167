"""Cost of an episode by an objective, and emissions of its executors, from the episode's record."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.config import ConfigError
from simulator.cluster.deadlines import deadlines_ms
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.objectives import AllJobs, LiveJobs, objective_named
from simulator.cluster.record import EpisodeRecord

__all__ = ["busy_intervals", "cost_ms", "emissions", "job_emissions"]


def cost_ms(record: EpisodeRecord, objective: str) -> float:
    """Return the cost of an episode by an objective since the first arrival, which minus the rewards add up to, ms.

    A job counts until it completes or fails, or until the episode's end.

    Args:
        objective: name of the objective, see ``ClusterConfig.reward``.

    Raises:
        ConfigError: the objective is unknown, or needs a signal that the cluster lacks.
    """
    cost = objective_named(objective)
    if cost.uses_carbon and record.config.signal is None:
        raise ConfigError(f"reward {objective!r}: the cluster has no signal")
    arrival_ms = record.sequence.arrival_ms
    left_ms = np.where(np.isnan(record.ended_ms), record.end_ms, record.ended_ms)
    of_all = AllJobs.of(record.sequence, deadlines_ms(record.sequence, record.config))
    times_ms = np.unique(np.concatenate([arrival_ms[arrival_ms <= record.end_ms], left_ms])).tolist()
    total_ms = 0.0
    for begin_ms, end_ms in pairwise(times_ms):
        live = LiveJobs(np.flatnonzero((arrival_ms <= begin_ms) & (end_ms <= left_ms)).tolist(), of_all)
        if cost.uses_carbon:  # executors may still move when the last job has ended
            live.carbon = emissions(record, begin_ms, record.end_ms if end_ms == times_ms[-1] else end_ms)
        total_ms += cost.cost_ms(begin_ms, end_ms, live, record.config.reward_scale_ms)
    return total_ms


def busy_intervals(
    record: EpisodeRecord,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the intervals in which executors run tasks or move: job, int64 [n]; begin and end, float64 [n], ms."""
    begin_ms = np.concatenate([record.task_start_ms, record.move_depart_ms])
    end_ms = np.concatenate([record.task_finish_ms, record.move_arrive_ms])
    job, within = np.concatenate([record.task_job, record.move_job]), begin_ms < record.end_ms
    return job[within], begin_ms[within], np.minimum(end_ms[within], record.end_ms)


def job_emissions(record: EpisodeRecord) -> NDArray[np.float64]:
    """Return the emissions of each job, float64 [num_jobs], g; see ``EpisodeMetrics.job_carbon``."""
    if (signal := record.config.signal) is None:
        return np.full(len(record.sequence), np.nan)
    job, begin_ms, end_ms = busy_intervals(record)
    kilowatts = record.config.executor_watts / 1000
    weights = kilowatts * signal.integral(begin_ms, end_ms) / 3_600_000
    return np.bincount(job, weights=weights, minlength=len(record.sequence)).astype(np.float64)


def emissions(record: EpisodeRecord, begin_ms: float, end_ms: float) -> float:
    """Return the emissions of all executors between two times, not before the first arrival, g.

    Idle executors count with ``ClusterConfig.idle_watts``, over the observed time.
    """
    config, signal = record.config, record.config.signal
    assert signal is not None
    _, began_ms, ended_ms = busy_intervals(record)
    began_ms = np.maximum(began_ms, begin_ms)

    def busy(until_ms: float) -> float:
        stopped_ms = np.maximum(np.minimum(ended_ms, until_ms), began_ms)
        return float(signal.integral(began_ms, stopped_ms).sum())

    power = config.executor_watts * busy(end_ms)
    if config.idle_watts:
        last_ms = min(end_ms, float(record.sequence.arrival_ms[0]) + EpisodeMetrics(record).observed_ms)
        left_ms = signal.integral(np.clip(record.change_ms, begin_ms, last_ms), last_ms)
        present = config.num_executors * float(signal.integral(begin_ms, last_ms))
        present += float(np.where(record.change_joins, 1, -1) @ left_ms)
        power += config.idle_watts * max(present - busy(last_ms), 0.0)
    return power / 1000 / 3_600_000
