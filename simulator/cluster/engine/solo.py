"""Simulate jobs alone on a cluster, to find their best parallelism limits and their times under them.

A full search simulates the job under all limits that ``alone.estimate`` finds good, the best of them
with many seeds: some hundred runs of a job that runs once in an episode. So only small jobs are searched in full. For
larger jobs the time is the estimate, corrected by three runs if task durations are random; ``TimeAlone.error`` states
its error. Which of these a job gets depends on the job and the cluster only.

Compiled code simulates whole episodes of one job without SimPy: the same steps as ``Cluster``, with the same result to
the bit, in a tenth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.alone import estimate
from simulator.cluster.config import ClusterConfig
from simulator.cluster.demands import check_demands
from simulator.cluster.engine import ends, executors, rounds, tasks
from simulator.cluster.engine.profiles import pack
from simulator.cluster.engine.state import Memory, allocate, view
from simulator.cluster.faults import NO_FAULTS
from simulator.cluster.known import known_profile
from simulator.cluster.times_alone import TimeAlone
from simulator.compiled import compiled, inner
from workloads.arrivals import JobSequence, task_noise
from workloads.job import JobProfile

__all__ = ["compute", "run_alone", "search_all"]

#: Limits up to this number are all estimated; above, each limit is a tenth larger than the one before.
EVERY_LIMIT = 50
#: Limits whose estimated time is within this factor of the shortest are candidates.
NEAR = 1.3
#: Rounds of the full search: number of runs under each limit, and number of best limits that stay for the next round.
ROUNDS = ((4, 12), (12, 4), (24, 1))
#: In the full search the best limit has more runs until the mean has this relative standard error, or so many runs.
PRECISION, MOST_RUNS = 0.005, 64
#: Tasks and pairs of stages in all runs of a full search, at most; about a millisecond.
CHEAP_STEPS = 5_000
#: Largest number of tasks and pairs of stages in a run; the time of a larger job is only estimated.
MOST_STEPS = 2_000_000
#: Jobs that are simulated in the same state, and their tasks, at most.
MOST_JOBS, MOST_TASKS = 64, 200_000
#: Jobs with at most this many random numbers share a table of them.
LONGEST_STREAM = 2**16
#: Relative errors that 95 % of jobs stay within: of the estimate for certain durations, and of corrected and plain
#: estimates for random durations. ``tests/simulator/cluster/test_solo.py`` measures them.
CERTAIN_ERROR, CORRECTED_ERROR, ESTIMATE_ERROR = 0.01, 0.1, 0.2


def compute(profiles: Sequence[JobProfile], config: ClusterConfig) -> Iterator[TimeAlone]:
    """Yield times alone: of a full search for small jobs; estimates for others, corrected if durations are random."""
    for simulation in _simulations(profiles, config):
        for job in range(len(simulation.profiles)):
            search = _Search(simulation, job)
            if search.most_steps <= CHEAP_STEPS:
                yield search.full()
            else:
                yield search.corrected() if search.is_random else search.estimated


def search_all(profiles: Sequence[JobProfile], config: ClusterConfig) -> list[TimeAlone]:
    """Return times alone by a full search, whatever it costs; see ``time_alone``."""
    return [
        _Search(simulation, job).full()
        for simulation in _simulations(profiles, config)
        for job in range(len(simulation.profiles))
    ]


class _Search:
    """Search for the best parallelism limit of a job alone on a cluster, among limits that the estimate finds good.

    Attributes:
        is_random: whether task durations depend on noise.
        estimated: time alone by the estimate.
        most_steps: upper bound on the cost of ``full``, in tasks and pairs of stages of all runs.
    """

    def __init__(self, simulation: _Simulation, job: int) -> None:
        profile, config = simulation.profiles[job], simulation.config
        if not all(
            any(executor_class.fits(stage) for executor_class in config.executor_classes)
            for stage in profile.stages
        ):
            check_demands(config, JobSequence((profile,), np.zeros(1)))
        # A job holds at most one executor per task, so that higher limits make no difference.
        limits = _limits(min(config.num_executors, profile.num_tasks))
        times_ms = estimate(profile, config, limits)[0]
        self.is_random = _has_chance(profile)
        error = ESTIMATE_ERROR if self.is_random else CERTAIN_ERROR
        self.estimated = TimeAlone(limits[int(times_ms.argmin())], float(times_ms.min()), error)
        near = times_ms <= NEAR * times_ms.min()
        self._limits, self._estimates_ms = np.array(limits)[near], times_ms[near]
        self._simulation, self._job = simulation, job
        self._times: dict[int, NDArray[np.float64]] = {}
        self._steps, most_runs = profile.num_tasks + profile.num_stages**2, self._limits.size
        if self.is_random:
            sizes = (most_runs, *(left for _, left in ROUNDS))
            most_runs = MOST_RUNS + sum(count * size for (count, _), size in zip(ROUNDS, sizes, strict=False))
        self.most_steps = most_runs * self._steps

    def full(self) -> TimeAlone:
        """Simulate all limits, the best ones with more seeds."""
        chosen = self._limits.tolist()
        most_runs = min(MOST_RUNS if self.is_random else 1, MOST_STEPS // (self._steps * len(chosen)))
        if most_runs < 1:
            return self.estimated
        for wanted, left in ROUNDS:
            count = min(wanted, most_runs)
            means_ms = {
                limit: float(np.mean(times))
                for limit, times in zip(chosen, self._times_ms(chosen, count), strict=True)
            }
            chosen = sorted(means_ms, key=means_ms.__getitem__)[:left]
        [best] = chosen
        if math.isinf(means_ms[best]):  # the job stalls under all limits
            return self.estimated
        [times_ms] = self._times_ms(chosen, count)
        while count < most_runs and np.std(times_ms) > PRECISION * np.mean(times_ms) * np.sqrt(count):
            count = min(2 * count, most_runs)
            [times_ms] = self._times_ms(chosen, count)
        return TimeAlone(best, float(np.mean(times_ms)))

    def _times_ms(self, limits: Sequence[int], number: int) -> list[NDArray[np.float64]]:
        """Return the completion times of the first ``number`` runs under each limit, float64 [number] each, ms."""
        missing: dict[int, list[int]] = {}  # number of runs so far -> limits
        for limit in limits:
            missing.setdefault(self._times.setdefault(limit, np.empty(0)).size, []).append(limit)
        for first, some in missing.items():
            if first < number:
                times_ms = self._simulation.times_ms(self._job, some, first, number)
                for limit, further in zip(some, times_ms, strict=True):
                    self._times[limit] = np.concatenate([self._times[limit], further])
        return [self._times[limit][:number] for limit in limits]

    def corrected(self) -> TimeAlone:
        """Correct the estimate by the mean ratio of simulated and estimated times, of one run each under three limits.

        The ratio depends little on the limit. The estimate of a very large job is not corrected.
        """
        if self._steps > MOST_STEPS:
            return self.estimated
        limits = (int(self._estimates_ms.argmin()), 0, -1)  # the best, lowest and highest limit
        times_ms = [
            self._simulation.times_ms(self._job, [int(self._limits[limit])], seed, seed + 1)[0, 0]
            for seed, limit in enumerate(limits)
        ]
        ratio = float(np.mean(times_ms / self._estimates_ms[list(limits)]))
        if math.isinf(ratio):  # the job stalls
            return self.estimated
        return TimeAlone(self.estimated.limit, self.estimated.mean_ms * ratio, CORRECTED_ERROR)


def _limits(most: int) -> tuple[int, ...]:
    """Return the parallelism limits to estimate, ascending; the last is ``most``."""
    limits = list(range(1, min(most, EVERY_LIMIT) + 1))
    while limits[-1] < most:
        limits.append(min(limits[-1] + limits[-1] // 10, most))
    return tuple(limits)


def _has_chance(profile: JobProfile) -> bool:
    """Return whether durations depend on noise: several levels, or several durations in a cell."""
    levels = pack(profile).levels
    if (
        len(levels) == profile.num_stages and (levels["count"] == 1).all()
    ):  # the usual case in traces, found fast
        return False
    return any(
        tables.levels.size > 1
        or any(np.ptp(tables.values[start:stop]) for start, stop in tables.cells[:, 0] if stop > start)
        for tables in (stage.durations for stage in profile.stages)
        if tables.spread[0] < tables.spread[1]
    )


def _simulations(profiles: Sequence[JobProfile], config: ClusterConfig) -> Iterator[_Simulation]:
    """Yield simulations of some jobs each, in order; to prepare a state for each job would be slow."""
    some: list[JobProfile] = []
    num_tasks = 0
    for profile in profiles:
        if some and (len(some) == MOST_JOBS or num_tasks + profile.num_tasks > MOST_TASKS):
            yield _Simulation(some, config)
            some, num_tasks = [], 0
        some.append(profile)
        num_tasks += profile.num_tasks
    yield _Simulation(some, config)


class _Simulation:
    """Simulated runs of jobs, each alone on the cluster, with the task noise of seeds 0, 1, 2 and so on."""

    def __init__(self, profiles: Sequence[JobProfile], config: ClusterConfig) -> None:
        self.profiles, self.config = tuple(profiles), config

    @cached_property
    def _memory(self) -> tuple[Memory, NDArray[np.uint8]]:
        """State of the cluster before a run, and a copy; more executors than tasks of a job make no difference."""
        most = 1 + max(profile.num_tasks for profile in self.profiles)
        classes = tuple(
            replace(executor_class, count=min(executor_class.count, most))
            for executor_class in self.config.executor_classes
        )
        config = replace(self.config, executor_classes=classes, faults=NO_FAULTS)
        profiles = tuple(known_profile(profile, self.config) for profile in self.profiles)  # as in an episode
        memory = allocate(config, JobSequence(profiles, np.zeros(len(profiles))))
        return memory, memory[0].copy()

    def times_ms(self, job: int, limits: Sequence[int], first: int, end: int) -> NDArray[np.float64]:
        """Return completion times of a job with the seeds ``first`` to ``end`` - 1, float64 [limits, seeds], ms."""
        times_ms = np.empty((len(limits), end - first))
        noise = _noise(self.profiles[job].num_tasks, first, end)
        run_alone(*self._memory, job, np.array(limits), noise, times_ms)
        return times_ms


def _noise(num_tasks: int, first: int, end: int) -> NDArray[np.float32]:
    """Return the noise of a job's tasks with the seeds ``first`` to ``end`` - 1, float32 [seeds, 2, tasks]."""
    if 2 * num_tasks > LONGEST_STREAM:
        return np.stack([task_noise(seed, 0, num_tasks) for seed in range(first, end)])
    streams = _streams(max(64, 1 << (2 * num_tasks - 1).bit_length()))
    noise = streams[first:end, : 2 * num_tasks].reshape(end - first, 2, num_tasks)
    return np.ascontiguousarray(noise)  # for another layout, Numba would compile ``run_alone`` again


@cache
def _streams(size: int) -> NDArray[np.float32]:
    """Return the first random numbers of each seed, float32 [MOST_RUNS, size]; all jobs begin with these."""
    return np.stack([task_noise(seed, 0, size // 2).ravel() for seed in range(MOST_RUNS)])


@compiled
def run_alone(memory, fresh, job, limits, noise, times):  # type: ignore[no-untyped-def]
    """Simulate a job that arrives at time 0 alone; its next stage gets all executors that the limit allows.

    The limit is ignored where the job would stall because the executors that it holds are too small. All runs share one
    state, of which each run resets what it has changed. A job that never holds more than k executors of a class does
    not notice more than k + 1: the others join only when the limit is ignored.

    Args:
        memory: a cluster and its jobs, as returned by ``allocate``; it is the same afterwards, except for logs.
        fresh: uint8 [bytes], copy of the first array of ``memory``.
        job: number of the job; the others do not arrive.
        limits: int64 [limits], parallelism limits of the job.
        noise: float32 [runs, 2, tasks], the noise of the job's tasks in each run, see ``draws.task_noise``.
        times: float64 [limits, runs], completion times, ms; filled in. Infinity if the job stalls because all executors
            are left idle.
    """
    state, initial = view(memory), view((fresh, memory[1], memory[2]))
    starts = np.zeros(len(state.classes) + 1, np.int64)  # first executor of each class, and the end
    for executor in range(len(state.executors)):
        starts[state.executors[executor].class_id + 1] = executor + 1
    for run in range(len(noise)):
        first = state.stages[state.jobs[job].first_stage].first_task
        for task in range(noise.shape[2]):
            state.noise[first + task].level = noise[run, 0, task]
            state.noise[first + task].duration = noise[run, 1, task]
        for index in range(len(limits)):
            times[index, run], present = _run(state, job, limits[index], starts)
            _reset(state, initial, job, starts, present)


@inner
def _run(state, number, limit, starts):  # type: ignore[no-untyped-def]
    """Simulate one run of job ``number``; return its completion time, ms, and the number of executors of a class."""
    cluster, job, num_executors = state.cluster[0], state.jobs[number], len(state.executors)
    present = limit + 1
    _add_executors(state, starts, 0, present)
    rounds.add_job(state, number)
    last_call, now = False, 0.0
    while True:
        if len(state.moves) < cluster.num_moves + num_executors:
            _forget_moves(state)
        rounds.open_next(state, False, now)
        if cluster.offered > 0:
            target = tasks.next_of_job(state, number, cluster.offered_class)
            held = job.executors - (cluster.offered if cluster.source_job == number else 0)
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
                return math.inf, present
            last_call = True
            _add_executors(state, starts, present, num_executors)
            present = num_executors
            rounds.offer_free(state, False, now)
            if cluster.offered == 0:
                return math.inf, present
            continue
        limit_ms, limit_order = math.inf, 0
        if is_moving:
            move = state.moves[cluster.num_moved]
            limit_ms, limit_order = move.time + cluster.moving_ms, move.order
        now, happened, executor, _, offered = ends.run_tasks(state, limit_ms, limit_order)
        if executor < 0:
            executors.end_moves(state, limit_order, now)
        elif happened & executors.JOB_COMPLETE:
            return now, present
        elif happened:
            rounds.after_task(state, happened, executor, number, offered, False, now)


@inner
def _add_executors(state, starts, first, end):  # type: ignore[no-untyped-def]
    """Put executors ``first`` to ``end`` - 1 of each class, as far as they exist, into the common pool."""
    for class_id in range(len(state.classes)):
        begin = starts[class_id]
        for executor in range(begin + first, min(begin + end, starts[class_id + 1])):
            executors.go_to_common_pool(state, executor)


@inner
def _reset(state, initial, number, starts, present):  # type: ignore[no-untyped-def]
    """Reset the state after a run of job ``number`` with at most ``present`` executors of each class."""
    num_classes, used = len(state.classes), 0
    state.cluster[0] = initial.cluster[0]
    for class_id in range(num_classes):
        state.classes[class_id] = initial.classes[class_id]
        begin = starts[class_id]
        end = min(begin + present, starts[class_id + 1])
        for executor in range(begin, end):
            state.executors[executor] = initial.executors[executor]
        used += end - begin
        for owner in (number, -1):
            pool = executors.pool_of(state, owner, class_id)
            state.pools[pool] = initial.pools[pool]
            state.sources[pool] = initial.sources[pool]
    for commitment in range(used):
        state.commitments[commitment] = initial.commitments[commitment]
    state.jobs[number] = initial.jobs[number]
    job = state.jobs[number]
    for stage in range(job.first_stage, job.end_stage):
        state.stages[stage] = initial.stages[stage]
    for pair in range(job.first_stage * num_classes, job.end_stage * num_classes):
        state.pairs[pair] = initial.pairs[pair]
        state.sources[len(state.pools) + pair] = initial.sources[len(state.pools) + pair]


@inner
def _forget_moves(state):  # type: ignore[no-untyped-def]
    """Delete moves that have ended from the log."""
    cluster = state.cluster[0]
    cluster.num_moves -= cluster.num_moved
    for index in range(cluster.num_moves):
        state.moves[index] = state.moves[cluster.num_moved + index]
    cluster.num_moved = 0
