"""The cluster as a scheduler is shown it, and what changes while a question is being decided.

Free slots are executors here, as an executor of ``simulator.cluster`` runs one task. Everything comes from messages:
who is live, what runs, whose slots are free. The rules are those of ``simulator.cluster``: a stage may be chosen if no
parent has tasks left to hand out, and slots that wait in their job for its next stage are not free.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import NamedTuple

import numpy as np

from decima.service.jobs import LiveJob
from simulator.cluster.base import SchedulingError
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages
from simulator.cluster.observation import CLASS, JOB, STAGE, Decision, Observation

__all__ = ["Board", "Choice", "cluster_of"]


class Choice(NamedTuple):
    """A decision that was carried out.

    Attributes:
        job: place among the live jobs.
        stage: place in the job's profile.
        limit: the job's parallelism limit.
        executors: that were committed.
        source: the live job whose executors they were; -1 for free ones.
        probability: of the decision, where the policy knows it, else NaN.
    """

    job: int
    stage: int
    limit: int
    executors: int
    source: int
    probability: float


@lru_cache(maxsize=256)
def cluster_of(num_executors: int, moving_delay_ms: float, warmup_delay_ms: float) -> ClusterConfig:
    """The same object for the same cluster: what schedulers work out of profiles they keep as long as it stays."""
    return ClusterConfig(num_executors, moving_delay_ms=moving_delay_ms, warmup_delay_ms=warmup_delay_ms)


class Board:
    """The live jobs and the executors at one question.

    Args:
        config: the cluster.
        time_ms: the clock.
        jobs: in order of arrival.
        common: free executors of no live job.
        waiting: of each live job, its free executors.
        coming: of each live job, executors that are on their way to it.
    """

    def __init__(
        self,
        config: ClusterConfig,
        time_ms: float,
        jobs: Sequence[LiveJob],
        common: int,
        waiting: Sequence[int],
        coming: Sequence[int] | None = None,
    ) -> None:
        self.config, self.time_ms, self.jobs = config, time_ms, jobs
        self.common, self.waiting = common, list(waiting)
        self._coming = list(coming) if coming is not None else [0] * len(jobs)
        #: Of each live job, executors of others (or of nobody) that were committed to each of its stages.
        self.committed = [[0] * job.profile.num_stages for job in jobs]
        self.choices: list[Choice] = []
        #: How long the scheduler took.
        self.policy_ms = 0.0
        self._first = np.cumsum([0, *(job.profile.num_stages for job in jobs)]).tolist()
        self._held = [
            sum(job.running) + waiting_ + coming_
            for job, waiting_, coming_ in zip(jobs, self.waiting, self._coming, strict=True)
        ]
        self._chosen: set[int] = set()
        self._profiles = tuple(job.profile for job in jobs)
        self._job_rows = np.zeros(len(jobs), dtype=JOB)
        self._stage_rows = np.zeros(self._first[-1], dtype=STAGE)
        self._num_schedulable = [0] * len(jobs)
        self._fill()
        for place, count in enumerate(self._coming):
            self._claim(place, count)
        for place in range(len(jobs)):
            self._refresh(place)

    @property
    def num_schedulable(self) -> int:
        """Stages that may be chosen."""
        return sum(self._num_schedulable)

    def crew(self, place: int) -> int:
        """Executors of a live job that run the last tasks of their stage."""
        job = self.jobs[place]
        return sum(running for running, pending in zip(job.running, job.pending, strict=True) if not pending)

    def awaited(self, place: int) -> int:
        """Tasks of a live job's stages that may be chosen but are not ready; executors wait for them in the job."""
        rows = self._stage_rows[self._first[place] : self._first[place + 1]]
        found = rows["unclaimed_tasks"][(rows["schedulable"] == 1) & (rows["ready_rank"] < 0)]
        return int(found.sum())

    def could_use(self, place: int) -> bool:
        """Whether a live job has tasks to start, now or later."""
        return any(self.jobs[place].pending)

    def is_about_to_open(self, place: int) -> bool:
        """Whether a stage of a live job is next that Spark has made: all tasks of its parents have begun."""
        job = self.jobs[place]
        return any(
            pending
            and number is not None
            and not ready
            and not any(job.pending[parent] for parent in parents)
            for pending, number, ready, parents in zip(
                job.pending, job.ids, job.ready, job.profile.parents, strict=True
            )
        )

    def has_open_stage(self, place: int) -> bool:
        """Whether a live job has a stage that is ready and has tasks for more executors."""
        job = self.jobs[place]
        return any(
            ready and pending > committed
            for ready, pending, committed in zip(job.ready, job.pending, self.committed[place], strict=True)
        )

    def offer(self, scheduler: DecidesStages, source: int, offered: int, last_call: bool = False) -> int:
        """A round: the scheduler commits executors of one source until none is left, or it leaves the rest idle.

        Returns:
            How many were left idle.

        Raises:
            SchedulingError: it decided what cannot be done.
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
        for place in {self._job_of(row) for row in self._chosen}:
            self._chosen -= set(range(self._first[place], self._first[place + 1]))
            self._refresh(place)
        return offered

    def observation(self, source: int, offered: int, last_call: bool = False) -> Observation:
        """What a scheduler sees while executors of a source are offered; valid until they are committed."""
        executors = self.config.num_executors
        free = self.common + sum(self.waiting)
        return Observation(
            self.config,
            self.time_ms,
            offered,
            0,
            source,
            self.num_schedulable,
            self._job_rows,
            self._stage_rows,
            np.array([(executors, free, 1.0, 1.0)], dtype=CLASS),
            self._profiles,
            last_call,
        )

    def _commit(self, source: int, offered: int, decision: Decision, probability: float) -> int:
        row, limit = int(decision.stage), int(decision.limit)
        if not 0 <= row < len(self._stage_rows) or not self._stage_rows["schedulable"][row]:
            raise SchedulingError(f"stage {row} is not schedulable")
        place = self._job_of(row)
        held = self._held[place] - (offered if place == source else 0)
        if limit <= held:
            raise SchedulingError(
                f"the limit must exceed the {held} executors that the job holds, got {limit}"
            )
        stage = row - self._first[place]
        count = min(limit - held, offered, int(self._stage_rows["unclaimed_tasks"][row]))
        self.committed[place][stage] += count
        self._chosen.add(row)
        if place != source:
            self._held[place] += count
            if source >= 0:
                self._held[source] -= count
                self._job_rows["executors"][source] = self._held[source]
        self._refresh(place)
        self.choices.append(Choice(place, stage, limit, count, source, probability))
        return count

    def take(self, source: int, count: int) -> None:
        """Free executors of a source are free no more."""
        if source < 0:
            self.common -= count
        else:
            self.waiting[source] -= count

    def _claim(self, place: int, count: int) -> None:
        """Executors on their way to a job are for its first stages with tasks left, those first that are ready."""
        job = self.jobs[place]
        stages = sorted(range(len(job.pending)), key=lambda stage: not job.ready[stage])
        for stage in stages:
            take = min(count, job.pending[stage])
            self.committed[place][stage] += take
            count -= take

    def _job_of(self, row: int) -> int:
        return int(self._stage_rows["job"][row])

    def _fill(self) -> None:
        """What does not change while the question is decided."""
        rows = []
        for place, job in enumerate(self.jobs):
            rows += [
                (place, *numbers, job.mean_ms[stage], 1.0, 0.0)
                for stage, numbers in enumerate(
                    zip(
                        job.tasks,
                        job.pending,
                        job.pending,
                        job.running,
                        job.done,
                        [
                            rank if ready and left else -1
                            for rank, ready, left in zip(job.ranks, job.ready, job.pending, strict=True)
                        ],
                        [0] * len(job.tasks),
                        strict=True,
                    )
                )
            ]
        self._stage_rows = np.array(rows, dtype=STAGE)
        jobs = [
            (job.number, first, held, 0, len(job.complete) - sum(job.complete), -1, job.arrival_ms)
            for job, first, held in zip(self.jobs, self._first[:-1], self._held, strict=True)
        ]
        self._job_rows = np.array(jobs, dtype=JOB)

    def _refresh(self, place: int) -> None:
        """What may be chosen of a live job."""
        job, first, committed = self.jobs[place], self._first[place], self.committed[place]
        # Slots wait in a job for its next stage, which comes when its parents end. For one that Spark has still to make
        # they wait only while tasks of the job run, or are about to: nobody knows when it comes.
        busy = any(job.running) or any(map(mul, job.ready, committed))
        unclaimed = [
            left - claimed if left > claimed else 0
            for left, claimed in zip(job.pending, committed, strict=True)
        ]
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
        # Ready stages come first, in the order in which they became ready; then the others.
        following, best = -1, (True, 0)
        for stage, may in enumerate(schedulable):
            if may:
                key = (False, job.ranks[stage]) if job.ready[stage] else (True, 0)
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
