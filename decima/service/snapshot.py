"""Cluster snapshot: the observation of a live cluster for the scheduler, and the commitments for one question.

A task slot of Spark is one executor of the observation, since an executor of ``simulator.cluster`` runs one task at a
time. The snapshot is built from protocol messages only, by the rules of ``simulator.cluster``: a stage is schedulable
if no parent has unclaimed tasks, and slots that wait in their job for the job's next stage are not free.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from decima.service.jobs import LiveJob
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import CLASS, JOB, NO_ATTRIBUTES, STAGE, Decision, Observation
from workloads.arrivals import WorkPrior
from workloads.attributes import DEFAULT_TENANT, Tenant
from workloads.errors import SchedulingError

if TYPE_CHECKING:
    from simulator.cluster.episode import DecidesStages
    from simulator.cluster.kept import Overruled

__all__ = ["Choice", "Share", "Snapshot", "cluster_of", "take_overruled"]

#: Quota of a pool or tenant without a quota, slots.
NO_QUOTA = 10**9


@dataclass(frozen=True)
class Share(Tenant):
    """Entitlement of a Spark pool in an application, or of a tenant on a cluster that applications share.

    Args:
        quota: maximum number of slots.
        priority: a higher one gets slots first; only those with the same priority share by ``min_share`` and
            ``weight``.
    """

    quota: int = NO_QUOTA
    priority: int = 0


class Choice(NamedTuple):
    """A decision of the scheduler and the resulting commitment.

    Attributes:
        job: index among the live jobs.
        stage: index in the job's profile.
        limit: parallelism limit of the job.
        executors: number of executors committed to the stage.
        source: index of the live job that held the executors; -1 if no live job did.
        probability: probability of the decision under the policy; NaN if the scheduler reports none.
    """

    job: int
    stage: int
    limit: int
    executors: int
    source: int
    probability: float


@lru_cache(maxsize=256)
def cluster_of(num_executors: int, moving_delay_ms: float, warmup_delay_ms: float) -> ClusterConfig:
    """Return the same config object for equal clusters: schedulers keep their caches while the config is the same."""
    return ClusterConfig(num_executors, moving_delay_ms=moving_delay_ms, warmup_delay_ms=warmup_delay_ms)


class Snapshot:
    """Live jobs and executors of a cluster while one question is decided.

    Args:
        time_ms: the driver's clock, ms.
        jobs: live jobs in order of arrival.
        common: number of free executors outside live jobs.
        waiting: number of free executors of each live job.
        coming: number of executors that are moving to each live job; by default 0.
        prior: distribution of job sizes; None if unknown.
        known_pools: pool name -> share.

    Attributes:
        tenants: pools of the live jobs, in order of their names; empty if no pool is known or named by a job.
        tenant: index of each job's pool.
        committed: number of executors committed to each stage, by job and stage.
        policy_ms: time spent in the scheduler, ms.
    """

    def __init__(
        self,
        config: ClusterConfig,
        time_ms: float,
        jobs: Sequence[LiveJob],
        common: int,
        waiting: Sequence[int],
        coming: Sequence[int] | None = None,
        prior: WorkPrior | None = None,
        known_pools: Mapping[str, Share] | None = None,
    ) -> None:
        self._prior = prior
        self.config, self.time_ms, self.jobs = config, time_ms, jobs
        self.common, self.waiting = common, list(waiting)
        self._coming = list(coming) if coming is not None else [0] * len(jobs)
        self.committed = [[0] * job.profile.num_stages for job in jobs]
        self.choices: list[Choice] = []
        self.policy_ms = 0.0
        self._first = np.cumsum([0, *(job.profile.num_stages for job in jobs)]).tolist()
        self._held = [
            sum(job.running) + waiting_ + coming_
            for job, waiting_, coming_ in zip(jobs, self.waiting, self._coming, strict=True)
        ]
        self._chosen: set[int] = set()
        self._profiles = tuple(job.profile for job in jobs)
        pools = [job.message.pool or DEFAULT_TENANT for job in jobs]
        pools_known = known_pools or {}
        has_pools = bool(pools_known) or any(job.message.pool for job in jobs)
        names = sorted(set(pools)) if has_pools else ()
        self.tenants = tuple(pools_known.get(name, Share(name)) for name in names)
        tenant_index = {tenant.name: index for index, tenant in enumerate(self.tenants)}
        self.tenant = [tenant_index.get(pool, 0) for pool in pools]
        self._job_rows = np.zeros(len(jobs), dtype=JOB)
        self._stage_rows = np.zeros(self._first[-1], dtype=STAGE)
        self._num_schedulable = [0] * len(jobs)
        self._fill_rows()
        for index, count in enumerate(self._coming):
            self._claim(index, count)
        for index in range(len(jobs)):
            self._refresh(index)

    @property
    def num_schedulable(self) -> int:
        """Number of schedulable stages."""
        return sum(self._num_schedulable)

    @property
    def launched(self) -> int:
        """Number of tasks that the commitments so far start immediately."""
        return sum(
            committed
            for job, stages in zip(self.jobs, self.committed, strict=True)
            for ready, committed in zip(job.ready, stages, strict=True)
            if ready
        )

    @property
    def stalled(self) -> bool:
        """Whether no task runs or starts and no stage is about to become ready."""
        return not (
            self.launched
            or any(any(job.running) for job in self.jobs)
            or any(map(self._is_about_to_open, range(len(self.jobs))))
        )

    def finishing(self, place: int) -> int:
        """Return the number of a job's executors on stages without pending tasks; they become idle next."""
        job = self.jobs[place]
        return sum(running for running, pending in zip(job.running, job.pending, strict=True) if not pending)

    def _awaited(self, place: int) -> int:
        """Return the number of a job's unclaimed tasks in schedulable stages that are not ready."""
        rows = self._stage_rows[self._first[place] : self._first[place + 1]]
        awaited = rows["unclaimed_tasks"][(rows["schedulable"] == 1) & (rows["ready_rank"] < 0)]
        return int(awaited.sum())

    def _is_about_to_open(self, place: int) -> bool:
        """Return whether a stage that Spark has created waits only for running tasks of its parents."""
        job = self.jobs[place]
        return any(
            pending
            and stage_id is not None
            and not ready
            and not any(job.pending[parent] for parent in parents)
            for pending, stage_id, ready, parents in zip(
                job.pending, job.ids, job.ready, job.profile.parents, strict=True
            )
        )

    def _has_open_stage(self, place: int) -> bool:
        job = self.jobs[place]
        return any(
            ready and pending > committed
            for ready, pending, committed in zip(job.ready, job.pending, self.committed[place], strict=True)
        )

    def demand(self, place: int) -> int:
        """Return the number of executors that a job can use: running, committed, and in schedulable stages."""
        rows = self._stage_rows[self._first[place] : self._first[place + 1]]
        unclaimed = int(rows["unclaimed_tasks"][rows["schedulable"] == 1].sum())
        return sum(self.jobs[place].running) + sum(self.committed[place]) + unclaimed

    def offer_all(self, scheduler: DecidesStages, jobs: Sequence[int] | None = None) -> None:
        """Offer all free executors to a scheduler, source by source.

        The order is: idle executors of jobs with a ready stage, executors outside live jobs, idle executors of other
        jobs. Those of other jobs are offered only if they outnumber the unclaimed tasks that they wait for.

        Args:
            jobs: jobs whose idle executors are offered; None: all jobs, and executors outside live jobs.

        Raises:
            SchedulingError: the scheduler made an invalid decision.
        """
        idle = [index for index in (range(len(self.jobs)) if jobs is None else jobs) if self.waiting[index]]
        with_stage = [index for index in idle if self._has_open_stage(index)]
        without_stage = [index for index in idle if index not in with_stage]
        for source in (*with_stage, *(() if jobs is not None else (-1,)), *without_stage):
            if source not in without_stage or self._free(source) > self._awaited(source):
                self.offer_free(scheduler, source)

    def offer_free(self, scheduler: DecidesStages, source: int, last_call: bool = False) -> None:
        """Offer the free executors of one source to a scheduler, see ``offer``."""
        free = self._free(source)
        used = free - self.offer(scheduler, source, free, last_call)
        if source < 0:
            self.common -= used
        else:
            self.waiting[source] -= used

    def pool_free(self) -> None:
        """Move idle executors of live jobs outside, where they are free for all jobs."""
        self.common += sum(self.waiting)
        for index, count in enumerate(self.waiting):
            self._held[index] -= count
            self.waiting[index] = 0
            self._refresh(index)

    def fill(self, places: Sequence[int], count: int) -> None:
        """Commit executors outside live jobs to ready stages of some jobs in order. Valid only as the last round."""
        for place in places:
            job, committed = self.jobs[place], self.committed[place]
            for stage, ready in enumerate(job.ready):
                take = min(count, job.pending[stage] - committed[stage]) if ready else 0
                if take > 0:
                    committed[stage] += take
                    count -= take
                    self.choices.append(Choice(place, stage, 0, take, -1, math.nan))

    def _free(self, source: int) -> int:
        return self.common if source < 0 else self.waiting[source]

    def offer(self, scheduler: DecidesStages, source: int, offered: int, last_call: bool = False) -> int:
        """Run one round: a scheduler commits executors of one source until none is left or it leaves the rest idle.

        Args:
            source: index of the live job that holds the executors; -1: outside live jobs.
            offered: number of executors.
            last_call: whether no task would run if the scheduler left all executors idle.

        Returns:
            Number of executors left idle.

        Raises:
            SchedulingError: the scheduler made an invalid decision.
        """
        while offered and self.num_schedulable:
            observation = self.observation(source, offered, last_call)
            start_s = time.perf_counter()
            decision = scheduler.decide(observation)
            self.policy_ms += (time.perf_counter() - start_s) * 1000
            if decision is None:
                break
            probability = float(getattr(scheduler, "probability", math.nan))
            offered -= self._commit(source, offered, decision, probability)
        for index in {self._job_of(row) for row in self._chosen}:
            self._chosen -= set(range(self._first[index], self._first[index + 1]))
            self._refresh(index)
        return offered

    def observation(self, source: int, offered: int, last_call: bool = False) -> Observation:
        """Return the observation for an offer (see ``offer``). It is valid until the next commitment."""
        executors = self.config.num_executors
        free = self.common + sum(self.waiting)
        classes = np.array([(executors, free, 1.0, 1.0)], dtype=CLASS)
        return Observation(
            *(self.config, self.time_ms, offered, 0, source, self.num_schedulable, self._job_rows),
            *(self._stage_rows, classes, self._profiles, last_call, self._prior, self.tenants),
        )

    def _commit(self, source: int, offered: int, decision: Decision, probability: float) -> int:
        row, limit = int(decision.stage), int(decision.limit)
        if not 0 <= row < len(self._stage_rows) or not self._stage_rows["schedulable"][row]:
            raise SchedulingError(f"stage {row} is not schedulable")
        index = self._job_of(row)
        held = self._held[index] - (offered if index == source else 0)
        if limit <= held:
            raise SchedulingError(
                f"the limit must exceed the {held} executors that the job holds, got {limit}"
            )
        stage = row - self._first[index]
        count = min(limit - held, offered, int(self._stage_rows["unclaimed_tasks"][row]))
        self.committed[index][stage] += count
        self._chosen.add(row)
        if index != source:
            self._held[index] += count
            if source >= 0:
                self._held[source] -= count
                self._job_rows["executors"][source] = self._held[source]
        self._refresh(index)
        self.choices.append(Choice(index, stage, limit, count, source, probability))
        return count

    def _claim(self, place: int, count: int) -> None:
        """Commit executors that are moving to a job to its stages with pending tasks, ready stages first."""
        job = self.jobs[place]
        stages = sorted(range(len(job.pending)), key=lambda stage: not job.ready[stage])
        for stage in stages:
            take = min(count, job.pending[stage])
            self.committed[place][stage] += take
            count -= take

    def _job_of(self, row: int) -> int:
        return int(self._stage_rows["job"][row])

    def _fill_rows(self) -> None:
        """Fill in the job and stage rows; most columns stay constant while the question is decided."""
        rows = [
            (
                *(index, tasks, left, left, running, done, rank if ready and left else -1),
                *(0, mean_ms, 1.0, 0.0, log_sd, finished_ms),
            )
            for index, job in enumerate(self.jobs)
            for tasks, left, running, done, rank, ready, mean_ms, log_sd, finished_ms in zip(
                *(job.tasks, job.pending, job.running, job.done, job.ranks, job.ready),
                *(job.mean_ms, job.log_sd, job.finished_ms),
                strict=True,
            )
        ]
        self._stage_rows = np.array(rows, dtype=STAGE)
        jobs = [
            (
                *(job.number, first, held, 0, len(job.complete) - sum(job.complete), -1),
                *(job.arrival_ms, float(job.belief["log_sd"][0]), job.first_work_ms),
                *(*NO_ATTRIBUTES[:-1], tenant),
            )
            for job, first, held, tenant in zip(
                self.jobs, self._first[:-1], self._held, self.tenant, strict=True
            )
        ]
        self._job_rows = np.array(jobs, dtype=JOB)

    def _refresh(self, place: int) -> None:
        """Update the columns of a job that depend on commitments: schedulable stages and number of executors."""
        job, first, committed = self.jobs[place], self._first[place], self.committed[place]
        # Slots wait in a job for the job's next stage, which becomes ready when its parents end. If Spark has not
        # created the stage yet, slots wait only while the job has running tasks, since the stage's time is unknown.
        busy = any(job.running) or any(map(mul, job.ready, committed))
        pairs = zip(job.pending, committed, strict=True)
        unclaimed = [left - claimed if left > claimed else 0 for left, claimed in pairs]
        schedulable = [
            bool(
                left
                and first + stage not in self._chosen
                and (
                    job.ready[stage]
                    or ((busy or job.ids[stage] is not None) and not any(map(unclaimed.__getitem__, parents)))
                )
            )
            for stage, (left, parents) in enumerate(zip(unclaimed, job.profile.parents, strict=True))
        ]
        # Ready stages come first, in the order in which they became ready, then stages that are not ready.
        following, best = -1, (True, 0)
        path_rank = job.estimate.profile.path_rank
        for stage, may in enumerate(schedulable):
            if may:
                key = (False, job.ranks[stage]) if job.ready[stage] else (True, int(path_rank[stage]))
                if following < 0 or key < best:
                    following, best = first + stage, key
        rows = self._stage_rows[first : self._first[place + 1]]
        rows["unclaimed_tasks"] = unclaimed
        rows["schedulable"] = schedulable
        self._num_schedulable[place] = sum(schedulable)
        row = self._job_rows[place]
        row["executors"] = self._held[place]
        row["unsaturated_stages"] = sum(map(bool, unclaimed))
        row["next_stage"] = following


def take_overruled(scheduler: DecidesStages) -> tuple[str, ...]:
    """Return the guarantee of each decision that was changed since the last call, and forget these decisions."""
    overruled: list[Overruled] = getattr(scheduler, "overruled", [])  # an attribute of ``Guarded`` alone
    guarantees = tuple(decision.guarantee for decision in overruled)
    overruled.clear()
    return guarantees
