"""The decisions that are tried out, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.lookahead import forward, model
from decima.schedulers.srpt import STAYING, WORTH_LEAVING, WORTH_MOVING, ProfiledSrpt
from simulator.cluster.alone import PARALLELISM, useful_executors
from simulator.cluster.config import ClusterConfig
from simulator.cluster.engine import waves
from simulator.cluster.engine.durations import DurationTables
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["Lookahead"]

#: The rule is tried with these, too, where they are above its own thrift.
THRIFTS = (4.0, 6.0)
#: Parts of the executors offered that a job's next stage is tried with.
PARTS = (1, 2, 4)
#: The part of the cost that a decision must save to be preferred to the rule's, since the model errs.
MARGIN = 0.005


class Lookahead(Scheduler):
    """A planner: it tries decisions out on a model of the cluster, and takes the one that costs least.

    The model begins with what the observation tells, and goes on as ``ProfiledSrpt`` decides until all live jobs are
    complete: tasks take the mean time that their profiles tell for their wave and parallelism, and no job arrives. So
    it knows as much as ``ProfiledSrpt``, and nothing of the luck of an episode. A decision costs the time that the live
    jobs then spend in the system. Where jobs go on arriving, executors have a price, too.

    Tried out are that rule's own decision, and its decision with greater thrift; if ``jobs`` says so, also to give all,
    half or a quarter of the executors to the next stages of the jobs with the least work left. Where the rule leaves
    executors idle, so does the planner.

    Args:
        thrift: of the rule, see ``ProfiledSrpt``.
        price: of the time that executors work or move; 1: as if the live jobs that there are waited for it.
        jobs: a whole number: how many jobs' next stages are tried out. Where jobs go on arriving, this makes executors
            move too often, and jobs wait longer than by the rule.

    Raises:
        ValueError: a price that is negative, or a number of jobs that is not a whole one.
    """

    def __init__(self, thrift: float = 2.5, price: float = 0.0, jobs: float = 0) -> None:
        if not price >= 0:
            raise ValueError(f"price must not be negative, got {price:g}")
        if not (jobs >= 0 and float(jobs).is_integer()):
            raise ValueError(f"jobs must be a whole number, at least 0, got {jobs:g}")
        self.price, self.jobs = price, int(jobs)
        self._rule = ProfiledSrpt(thrift)
        self._thrifts = (thrift, *(more for more in THRIFTS if more > thrift))
        self._limits: PerJob[NDArray[np.int64]] = PerJob(self._limits_of, _columns)
        self._durations: PerJob[NDArray[np.float32]] = PerJob(_durations, np.concatenate)
        self._children: PerJob[list[_Children]] = PerJob(_children, list)
        self._profiles: tuple[JobProfile, ...] | None = None

    def reset(self, config: ClusterConfig) -> None:
        """Nothing is left of the last episode."""
        self._profiles = None

    def decide(self, observation: Observation) -> Decision | None:
        """The best of the decisions tried out, the rule's if none is clearly better."""
        best = self._rule.decide(observation)
        if best is None or observation.last_call:
            return best
        limits = self._begin(observation)
        least_ms, of_best = self._cost_ms(observation, limits[0])[0] * (1 - MARGIN), limits[0]
        for thriftier in limits[1:]:
            cost_ms, stage, limit = self._cost_ms(observation, thriftier)
            if cost_ms < least_ms and stage >= 0 and observation.stages["schedulable"][stage]:
                least_ms, best, of_best = cost_ms, Decision(stage, limit), thriftier
        for other in self._others(observation):
            count = other.limit - observation.held(int(observation.stage_job[other.stage]))
            cost_ms = self._cost_ms(observation, of_best, other.stage, count)[0]
            if cost_ms < least_ms:
                least_ms, best = cost_ms, other
        return best

    def _others(self, observation: Observation) -> list[Decision]:
        """Decisions for the next stages of the jobs with the least work left."""
        jobs = np.flatnonzero(observation.next_stage >= 0)
        work, others = observation.work_ms(observation.remaining_tasks)[jobs], []
        for job in jobs[np.argsort(work, kind="stable")[: self.jobs]].tolist():
            stage = int(observation.next_stage[job])
            most = min(observation.offered, int(observation.unclaimed_tasks[stage]))
            counts = sorted({-(-most // part) for part in PARTS})
            others += [Decision(stage, observation.held(job) + count) for count in counts]
        return others

    def _limits_of(self, profile: JobProfile, config: ClusterConfig) -> list[int]:
        return [useful_executors(profile, config, thrift) for thrift in self._thrifts]

    def _begin(self, observation: Observation) -> NDArray[np.int64]:
        """The model begins with what is seen; returns the limits of each thrift, [T, J]."""
        most_crews = 2 * int(observation.job_executors.sum()) + observation.num_executors
        most_crews += observation.offered + 3 * len(observation.stages)
        if observation.profiles is not self._profiles:
            self._profiles = observation.profiles
            self._start = _model(observation, self._durations(observation), self._children(observation))
            self._scratch = self._start._replace(
                run=self._start.run.copy(), jobs=self._start.jobs.copy(), stages=self._start.stages.copy()
            )
        if len(self._start.crews) < most_crews:
            crews = (np.zeros(2 * most_crews, model.CREW), np.zeros(2 * most_crews, model.CREW))
            self._start, self._scratch = (
                each._replace(crews=own)
                for each, own in zip((self._start, self._scratch), crews, strict=True)
            )
        self._start.run["executors"] = observation.num_executors
        model.begin(
            self._start, observation.jobs, observation.stages, observation.source, observation.offered
        )
        return self._limits(observation)

    def _cost_ms(
        self,
        observation: Observation,
        limits: NDArray[np.int64],
        stage: int = forward.BY_RULE,
        count: int = 0,
    ) -> tuple[float, int, int]:
        price = self.price * len(observation.jobs) / observation.num_executors
        result: tuple[float, int, int] = forward.try_out(
            self._scratch,
            self._start,
            limits,
            observation.source,
            observation.offered,
            stage,
            count,
            price,
        )
        return result


@dataclass(frozen=True)
class _Children:
    """A profile's edges: how many children each stage has, int64 [S], and which, int64 [edges]."""

    counts: NDArray[np.int64]
    stages: NDArray[np.int64]


def _children(profile: JobProfile, config: ClusterConfig) -> _Children:
    counts = np.array([len(each) for each in profile.children], dtype=np.int64)
    return _Children(counts, np.array([child for each in profile.children for child in each], dtype=np.int64))


def _columns(rows: list[list[int]]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).T.copy()


def _durations(profile: JobProfile, config: ClusterConfig) -> NDArray[np.float32]:
    """Mean duration of a task by wave and by executors of its job: float32 [S, 3, N + 1], ms.

    Between two levels it is that of the paper's reading, whatever ``Semantics.nearest_level`` says.
    """
    tables = DurationTables.of_profile(profile)
    levels = np.zeros(len(tables.levels), waves.LEVEL)
    waves.fill_levels(levels, tables.levels, tables.values, float(config.warmup_delay_ms))
    executors = np.arange(min(config.num_executors, PARALLELISM[-1]) + 1)
    durations = np.empty((profile.num_stages, 3, executors.size), np.float32)
    for stage in range(profile.num_stages):
        of_stage = levels[tables.first_level[stage] : tables.first_level[stage + 1]]
        for wave in range(3):
            durations[stage, wave] = np.interp(executors, of_stage["level"], of_stage["mean_ms"][:, wave])
    return durations


def _model(observation: Observation, durations: NDArray[np.float32], edges: list[_Children]) -> model.Model:
    """What stays as it is while the same jobs are live."""
    config, semantics = observation.config, observation.config.semantics
    run = np.zeros(1, model.RUN)
    run["moving_ms"] = config.moving_delay_ms
    if semantics.offer_idle_executors:  # as the rule has it
        run["worth_leaving_ms"] = WORTH_LEAVING * config.moving_delay_ms
        run["worth_moving_ms"] = WORTH_MOVING * config.moving_delay_ms
    run["staying"] = STAYING
    run["ready_only"] = semantics.ready_stages_only
    jobs, stages = np.zeros(len(observation.jobs), model.JOB), np.zeros(len(observation.stages), model.STAGE)
    first = observation.job_first_stage
    jobs["first_stage"] = first
    jobs["end_stage"] = np.append(first[1:], len(stages))
    stages["job"] = observation.stage_job
    stages["end_child"] = np.cumsum(np.concatenate([each.counts for each in edges]))
    stages["first_child"] = np.append(0, stages["end_child"][:-1])
    children = np.concatenate(
        [each.stages + start for each, start in zip(edges, first.tolist(), strict=True)]
    )
    return model.Model(run, jobs, stages, np.zeros(0, model.CREW), children, durations)
