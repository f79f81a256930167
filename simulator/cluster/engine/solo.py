"""Simulated time of a job alone on a cluster under its best parallelism limit: the reference of slowdown.

Compiled code simulates a whole episode of one job without SimPy: the same steps as ``Cluster``, with the same result to
the bit, in a tenth of the time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from simulator.cluster.alone import ClusterKey, cluster_key, estimate
from simulator.cluster.config import ClusterConfig
from simulator.cluster.draws import task_noise
from simulator.cluster.engine import ends, executors, rounds, tasks
from simulator.cluster.engine.state import allocate, view
from simulator.cluster.faults import NO_FAULTS
from simulator.compiled import compiled
from workloads.arrivals import JobSequence
from workloads.job import JobProfile

__all__ = ["TimeAlone", "run_alone", "time_alone"]

#: Limits up to this number are all estimated; above, each limit is a tenth larger than the one before.
EVERY_LIMIT = 50
#: Limits whose estimated time is within this factor of the shortest are simulated.
NEAR = 1.3
#: Rounds of simulation: number of runs under each limit, and number of best limits that stay for the next round.
ROUNDS = ((4, 12), (12, 4), (24, 1))
#: The best limit has more runs until the mean has this relative standard error, or until it has so many runs.
PRECISION, MOST_RUNS = 0.005, 64
#: Approximate bound on tasks and pairs of stages in all runs of a profile; larger jobs are only estimated.
MOST_STEPS = 2_000_000


class TimeAlone(NamedTuple):
    """Time of a job alone on a cluster.

    Attributes:
        limit: best parallelism limit of the job, which has the shortest mean completion time.
        mean_ms: mean completion time of the job under this limit, with delays, ms.
    """

    limit: int
    mean_ms: float


_times: WeakKeyDictionary[JobProfile, dict[ClusterKey, TimeAlone]] = WeakKeyDictionary()


def time_alone(profile: JobProfile, config: ClusterConfig) -> TimeAlone:
    """Return the expected time of a job alone on a cluster, under its best parallelism limit.

    Under limit k the job's next stage (``Observation.next_stage``) gets all offered executors, until the job holds k.
    The limits with the shortest times by ``simulator.cluster.alone.estimate`` are simulated with the task noise of
    seeds 0, 1, 2 and so on, better limits with more seeds. A job without noise runs once. A job that is too large is
    only estimated.

    Results are cached by profile and cluster. They are the same in each process, bit for bit.

    Raises:
        ConfigError: no executor class can run some stage.
    """
    known, key = _times.setdefault(profile, {}), cluster_key(config)
    if key not in known:
        known[key] = _time_alone(profile, config)
    return known[key]


def _time_alone(profile: JobProfile, config: ClusterConfig) -> TimeAlone:
    limits = _limits(config.num_executors)
    times = estimate(profile, config, limits)[0]
    chosen = [limit for limit, time in zip(limits, times, strict=True) if time <= NEAR * times.min()]
    steps = profile.num_tasks + profile.num_stages**2
    most_runs = min(MOST_RUNS if _has_chance(profile) else 1, MOST_STEPS // (steps * len(chosen)))
    estimated = TimeAlone(limits[int(np.argmin(times))], float(times.min()))
    if most_runs < 1:
        return estimated
    runs = _Runs(profile, config)
    for wanted, left in ROUNDS:
        number = min(wanted, most_runs)
        means = {limit: float(np.mean(runs.times_ms(limit, number))) for limit in chosen}
        chosen = sorted(means, key=means.__getitem__)[:left]
    best = chosen[0]
    if math.isinf(means[best]):  # the job stalls under all limits
        return estimated
    found = runs.times_ms(best, number)
    while len(found) < most_runs and np.std(found) > PRECISION * np.mean(found) * np.sqrt(len(found)):
        found = runs.times_ms(best, min(2 * len(found), most_runs))
    return TimeAlone(best, float(np.mean(found)))


def _limits(most: int) -> tuple[int, ...]:
    """Return the parallelism limits to estimate, ascending; the last is ``most``."""
    limits = list(range(1, min(most, EVERY_LIMIT) + 1))
    while limits[-1] < most:
        limits.append(min(limits[-1] + limits[-1] // 10, most))
    return tuple(limits)


def _has_chance(profile: JobProfile) -> bool:
    """Return whether durations depend on noise: several levels, or several durations in a cell."""
    return any(
        tables.levels.size > 1
        or any(np.ptp(tables.values[start:stop]) for start, stop in tables.cells[:, 0] if stop > start)
        for tables in (stage.durations for stage in profile.stages)
        if tables.spread[0] < tables.spread[1]
    )


class _Runs:
    """Simulated runs of a job alone under parallelism limits, with the noise of seeds 0, 1, 2 and so on."""

    def __init__(self, profile: JobProfile, config: ClusterConfig) -> None:
        self._memory = allocate(replace(config, faults=NO_FAULTS), JobSequence((profile,), np.zeros(1)))
        self._noise = cache(lambda seed: task_noise(seed, 0, profile.num_tasks))
        self._times: dict[int, list[float]] = {}

    def times_ms(self, limit: int, number: int) -> list[float]:
        """Return the completion times of the first ``number`` runs under a limit, ms."""
        times, (records, *others) = self._times.setdefault(limit, []), self._memory
        for seed in range(len(times), number):
            times.append(run_alone((records.copy(), *others), limit, *self._noise(seed)))
        return times[:number]


@compiled
def run_alone(memory, limit, level_noise, noise):  # type: ignore[no-untyped-def]
    """Simulate a job that arrives at time 0 alone; its next stage gets all executors that the limit allows.

    The limit is ignored where the job would stall because the executors that it holds are too small.

    Args:
        memory: a cluster with one job, as returned by ``allocate``; it is changed.
        limit: parallelism limit of the job.
        level_noise, noise: float32 [tasks], the noise of its tasks.

    Returns:
        Completion time, ms; infinity if the job stalls because all executors are left idle.
    """
    state = view(memory)
    cluster, job = state.cluster[0], state.jobs[0]
    for executor in range(len(state.executors)):
        executors.go_to_common_pool(state, executor)
    for task in range(len(noise)):
        state.noise[task].level, state.noise[task].duration = level_noise[task], noise[task]
    rounds.add_job(state, 0)
    last_call, now = False, 0.0
    while True:
        if len(state.moves) < cluster.num_moves + len(state.executors):
            executors.forget_moves(state)
        rounds.open_next(state, False, now)
        if cluster.offered > 0:
            target = tasks.next_of_job(state, 0, cluster.offered_class)
            held = job.executors - (cluster.offered if cluster.source_job == 0 else 0)
            count = cluster.offered if last_call else min(limit - held, cluster.offered)
            if target < 0 or count <= 0:
                target, count = executors.IDLE, cluster.offered
            else:
                last_call = False
            rounds.commit(state, target, count, now)
            continue
        is_moving = cluster.num_moved < cluster.num_moves
        if not is_moving and cluster.num_running == 0:
            if last_call or not cluster.offer_idle_executors:
                return math.inf
            last_call = True
            rounds.offer_free(state, False, now)
            if cluster.offered == 0:
                return math.inf
            continue
        limit_ms, limit_order = math.inf, 0
        if is_moving:
            move = state.moves[cluster.num_moved]
            limit_ms, limit_order = move.time + cluster.moving_ms, move.order
        now, happened, executor, _, offered = ends.run_tasks(state, limit_ms, limit_order)
        if executor < 0:
            executors.end_moves(state, limit_order, now)
        elif happened & executors.JOB_COMPLETE:
            return now
        elif happened:
            rounds.after_task(state, happened, executor, 0, offered, False, now)
