"""Simple baselines: FIFO, SJF-CP and random decisions.

FIFO is Spark's default, and SJF-CP is shortest job first along the critical path (Decima, section 7.1, baselines 1 and
2, and appendix G).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler
from decima.schedulers.decisions import all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled
from workloads.arrivals import RandomStream, random_stream

__all__ = ["Fifo", "RandomChoice", "SjfCp", "first_job", "on_critical_path"]


class Fifo(Scheduler):
    """Jobs in order of arrival, each with as many executors as it can use.

    With the published simulator's semantics (``Semantics.fifo_reuses_grants`` off) this is its ``spark_fifo``:
    executors stay with their job while it has work, and the executors that a job gets from outside, in total over its
    lifetime, are at most the number of executors of the cluster, even if the job returned some of them.
    """

    def __init__(self) -> None:
        self._reuses_grants = True
        self._granted: dict[int, int] = {}

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode without grants of executors."""
        self._reuses_grants = config.semantics.fifo_reuses_grants
        self._granted = {}

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the next stage of the first job that has one, with all offered executors."""
        if not self._reuses_grants:
            return self._decide_by_grants(observation)
        head = int(np.argmax(observation.next_stage >= 0))
        return all_offered(observation, int(observation.next_stage[head]))

    def _decide_by_grants(self, observation: Observation) -> Decision | None:
        if observation.source >= 0 and observation.next_stage[observation.source] >= 0:
            return all_offered(observation, int(observation.next_stage[observation.source]))
        for job in np.flatnonzero(observation.next_stage >= 0).tolist():
            job_id, stage = int(observation.job_id[job]), int(observation.next_stage[job])
            left = observation.num_executors - self._granted.get(job_id, 0)
            if left > 0:
                count = min(int(observation.unclaimed_tasks[stage]), left, observation.offered)
                self._granted[job_id] = self._granted.get(job_id, 0) + count
                return Decision(stage, observation.held(job) + count)
        return None


class SjfCp(Scheduler):
    """The job with the least total work first, and within a job the stage with the longest critical path.

    A stage gets all executors that it can use before the next stage gets any, and so does a job. Ready stages come
    before stages whose parents run their last tasks.
    """

    def __init__(self) -> None:
        self._work_ms: PerJob[NDArray[np.float64]] = PerJob(lambda profile, _: profile.work_ms, np.array)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the smallest job's stage on its critical path, for all offered executors."""
        job = first_job(observation.jobs, observation.stages, self._work_ms(observation), True)
        return on_critical_path(observation, job)


def on_critical_path(observation: Observation, job: int) -> Decision:
    """Return the decision that gives all offered executors to a job's stage with the longest critical path.

    Ready stages come before stages whose parents run their last tasks. Ties: the first stage.

    Args:
        observation: state of the cluster.
        job: live job (index in the job arrays) with a schedulable stage.
    """
    stages, critical_path_ms = observation.stages_of(job), observation.profiles[job].critical_path_ms
    chosen = _longest_path(observation.stages[stages], critical_path_ms)
    return all_offered(observation, stages.start + chosen)


@compiled
def first_job(jobs, stages, key, ahead):  # type: ignore[no-untyped-def]
    """Return the job with the least ``key`` [J] among live jobs with a schedulable stage (index in the job arrays).

    Unless ``ahead``, the stage must be ready. Without such a job, return -1.
    """
    first = -1
    for job in range(len(jobs)):
        # A job's next stage is ready if the job has a ready stage.
        stage = jobs[job].next_stage
        if stage >= 0 and (ahead or stages[stage].ready_rank >= 0) and (first < 0 or key[job] < key[first]):
            first = job
    return first


@compiled
def _longest_path(stages, critical_path_ms):  # type: ignore[no-untyped-def]
    """Return a job's schedulable stage with the longest path, ready stages first; -1 for none."""
    best, best_key = -1, (False, 0.0)
    for stage in range(len(stages)):
        key = (stages[stage].ready_rank >= 0, critical_path_ms[stage])
        if stages[stage].schedulable and (best < 0 or key > best_key):
            best, best_key = stage, key
    return best


class RandomChoice(Scheduler):
    """Choose a schedulable stage and a parallelism limit uniformly at random.

    Args:
        seed: random seed; the random numbers are the same in each episode.
    """

    def __init__(self, seed: int = 0):
        self._seed = seed
        self._random = random_stream(seed, RandomStream.POLICY, seed)

    def reset(self, config: ClusterConfig) -> None:
        """Restart the sequence of random numbers."""
        self._random = random_stream(self._seed, RandomStream.POLICY, self._seed)

    def decide(self, observation: Observation) -> Decision | None:
        """Draw a schedulable stage and a number of offered executors."""
        stage = int(self._random.choice(np.flatnonzero(observation.schedulable)))
        held = observation.held(int(observation.stage_job[stage]))
        return Decision(stage, held + int(self._random.integers(1, observation.offered + 1)))
