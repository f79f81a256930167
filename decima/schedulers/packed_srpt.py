"""Shortest remaining work first on executors of several classes: large executors go to whom only they can serve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.srpt import STAYING, ProfiledSrpt, lasting_executors
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["PackedSrpt", "covering"]


class PackedSrpt(ProfiledSrpt):
    """Shortest remaining work first, limited as profiled-srpt; large executors go to stages that need them.

    An executor that is larger than a stage needs is dear: the fewer others could run what it can, the more the work of
    the stage's job counts. Only executors at work, or on their way to it, count towards a job's limit; those that wait
    in a job may be too small for what is left of it. Nobody moves to another job to wait there. Inside a job, stages
    that are ready come first; of those the ones that fewest executors can run, and then those farthest from its end.

    Args:
        thrift: how much the executors that a job occupies count, beside the time that it takes.
        waste: exponent of the price: a stage that k times as many executors cover as cover all that the offered one
            does seems k ** waste times as long.

    Raises:
        ValueError: the exponent is negative.
    """

    def __init__(self, thrift: float = 5.0, waste: float = 1.5) -> None:
        super().__init__(thrift)
        if not waste >= 0:
            raise ValueError(f"the exponent of waste must not be negative, got {waste:g}")
        self.waste = waste
        self._height_ms: PerJob[NDArray[np.float64]] = PerJob(_height_ms, np.concatenate)

    def decide(self, observation: Observation) -> Decision | None:
        """The stage with the lowest price of a job below its limit, else of any job; see the class."""
        stages, job = observation.stages, observation.stage_job
        num_jobs, most = len(observation.jobs), observation.num_executors
        covered, as_large = covering(observation)
        work = observation.work_ms(observation.remaining_tasks)
        limit = np.clip(self.limits(observation, work), max(1, most // num_jobs), most).astype(np.int64)
        claimed = observation.remaining_tasks - observation.unclaimed_tasks
        held = observation.job_executors.copy()
        if observation.source >= 0:
            held[observation.source] -= observation.offered
            work[observation.source] *= STAYING
        busy = np.bincount(job, observation.running_executors + claimed, minlength=num_jobs)
        busy = np.minimum(busy.astype(np.int64), held)
        lasting = lasting_executors(observation)
        chosen = np.flatnonzero(stages["schedulable"])
        if not observation.last_call:
            chosen = chosen[(stages["ready_rank"][chosen] >= 0) | (job[chosen] == observation.source)]
            if not chosen.size:
                return None
        ready = stages["ready_rank"][chosen]
        keys = (
            -self._height_ms(observation)[chosen],
            covered[chosen],
            ready < 0,
            work[job[chosen]] * (covered[chosen] / as_large) ** self.waste,
        )
        order = chosen[np.lexsort(keys)]
        for bound in (limit, np.full(num_jobs, most)):
            bound = np.minimum(bound, lasting).astype(np.int64)
            allowed = busy[job[order]] < bound[job[order]]
            best = int(allowed.argmax())
            if allowed[best]:
                stage = int(order[best])
                owner = int(job[stage])
                return Decision(stage, int(held[owner] + bound[owner] - busy[owner]))
        return None


def _height_ms(profile: JobProfile, _: ClusterConfig) -> NDArray[np.float64]:
    return profile.height_ms


def covering(observation: Observation) -> tuple[NDArray[np.int64], int]:
    """Executors of the cluster that cover the demand of each stage, int64 [S], or are as large as those offered."""
    classes, stages = observation.classes, observation.stages
    cpu, memory, executors = (classes[name][:, None] for name in ("cpu", "memory", "executors"))
    covered = ((cpu >= stages["cpu"]) & (memory >= stages["memory"])) * executors
    own = classes[observation.executor_class]
    as_large = ((cpu >= own["cpu"]) & (memory >= own["memory"])) * executors
    return covered.sum(axis=0), int(as_large.sum())
