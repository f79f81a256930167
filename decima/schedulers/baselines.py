"""Simple baselines: FIFO, SJF-CP, packing as in Tetris, a fixed order of jobs, and random decisions.

FIFO is Spark's default, and SJF-CP is shortest job first along the critical path (Decima, section 7.1, baselines 1 and
2, and appendix G). Tetris (SIGCOMM 2014; Decima, appendix E) packs by the dot product of demands and free resources.
``JobOrder`` serves a search over all orders of jobs ("Optimality of Decima").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.base import Scheduler, all_offered
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.compiled import compiled
from workloads.arrivals import RandomStream, random_stream

__all__ = ["Fifo", "JobOrder", "RandomChoice", "SjfCp", "Tetris", "demands", "first_job", "on_critical_path"]


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


class JobOrder(Scheduler):
    """Serve jobs in a fixed order, each along its critical path.

    With the jobs in order of total work this is ``SjfCp``.

    Args:
        order: permutation of the jobs' numbers in the sequence, the most urgent job first.
        ahead: whether a job also gets executors for stages whose parents run their last tasks. These executors are
            idle until the stage opens, but then no long task of another job delays the stage.

    Raises:
        ValueError: the order is not a permutation.
    """

    def __init__(self, order: Sequence[int], ahead: bool = True):
        jobs = np.array(order)
        if not np.array_equal(np.sort(jobs), np.arange(jobs.size)):
            expected = f"expected a permutation of the numbers 0 to {jobs.size - 1}"
            raise ValueError(f"{expected} as the order of the jobs, got {list(order)}")
        self.ahead = ahead
        self._rank: NDArray[np.int64] = np.argsort(jobs)

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the critical path's stage of the first job with a schedulable stage, for all offered executors.

        Raises:
            ValueError: a live job is not in the order.
        """
        job_ids = observation.job_id
        if job_ids[0] < 0 or job_ids[-1] >= self._rank.size:
            raise ValueError(f"an order of {self._rank.size} jobs lacks some of the jobs {job_ids.tolist()}")
        job = first_job(observation.jobs, observation.stages, self._rank[job_ids], self.ahead)
        return on_critical_path(observation, job) if job >= 0 else None


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


class Tetris(Scheduler):
    """Choose the stage whose demand aligns best with the offered executor, for all executors that it can use.

    The defaults are pure packing, as in the Decima paper. The parameters add terms of the Tetris paper: a higher score
    for jobs with little remaining work, and exclusion of jobs with many executors. Ties: the first job, and in
    a job the stage with the longest path to the job's end.

    Args:
        remaining: weight of the remaining work; 1 is the weight of packing.
        fairness: share of the jobs that are excluded, those with the most executors; at least 0 and below 1.

    Raises:
        ValueError: a parameter is out of range.
    """

    def __init__(self, remaining: float = 0.0, fairness: float = 0.0) -> None:
        if not remaining >= 0:
            raise ValueError(f"the weight of remaining work must not be negative, got {remaining:g}")
        if not 0 <= fairness < 1:
            raise ValueError(f"the fairness must be at least 0 and below 1, got {fairness:g}")
        self.remaining = remaining
        self.fairness = fairness
        self._path_rank: PerJob[NDArray[np.int64]] = PerJob(
            lambda profile, _: profile.path_rank, np.concatenate
        )

    def decide(self, observation: Observation) -> Decision | None:
        """Choose the candidate stage with the highest score, see the class."""
        stages = self.candidates(observation)
        needs, offered = demands(observation)
        score = needs[stages] @ offered
        score -= self.penalty(observation, stages, needs, float(score.mean()))
        return all_offered(observation, int(stages[score.argmax()]))

    def candidates(self, observation: Observation) -> NDArray[np.int64]:
        """Return the schedulable stages of jobs that ``fairness`` does not exclude, int64 [candidates].

        They are sorted by the arrival of their jobs, and in a job by the longest path.
        """
        stages = np.flatnonzero(observation.schedulable)
        stages = stages[np.lexsort((self._path_rank(observation)[stages], observation.stage_job[stages]))]
        if not self.fairness:
            return stages
        jobs = observation.stage_job[stages]
        return stages[np.isin(jobs, self._furthest_below_share(observation, np.unique(jobs)))]

    def penalty(
        self, observation: Observation, stages: NDArray[np.int64], needs: NDArray[np.float64], scale: float
    ) -> NDArray[np.float64]:
        """Return the penalty for the remaining work of the stages' jobs, float64 [len(stages)].

        Args:
            observation: state of the cluster.
            stages: candidate stages.
            needs: demand of each stage, see ``demands``.
            scale: mean of the other term of the score; the mean penalty is ``remaining * scale``.
        """
        if not self.remaining:
            return np.zeros(stages.size)
        work = observation.remaining_tasks * observation.mean_task_ms * needs.sum(axis=1)
        left = np.bincount(observation.stage_job, work)[observation.stage_job[stages]]
        penalty: NDArray[np.float64] = self.remaining * scale * left / max(left.mean(), 1e-9)
        return penalty

    def _furthest_below_share(self, observation: Observation, jobs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the jobs with the fewest executors among some jobs; all jobs have the same fair share."""
        held = np.array([observation.held(int(job)) for job in jobs])
        count = math.ceil((1 - self.fairness) * jobs.size)
        return jobs[np.argsort(held, kind="stable")[:count]]


def demands(observation: Observation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the demand of a task of each stage, float64 [S, 2], and the size of an offered executor, float64 [2].

    Columns are CPU and memory, as shares of the largest executor class.
    """
    classes, stages = observation.classes, observation.stages
    sizes = np.array([classes["cpu"], classes["memory"]])
    largest = np.maximum(sizes.max(axis=1), 1e-12)
    needs = np.array([stages["cpu"], stages["memory"]]).T / largest
    return needs, sizes[:, observation.executor_class] / largest
