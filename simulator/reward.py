"""The reward: minus the time that jobs spend in the system, or minus elapsed time (Decima, section 5.3)."""

from __future__ import annotations

from collections.abc import Collection

from simulator.config import ClusterConfig

__all__ = ["RewardMeter"]


class RewardMeter:
    """Adds up a reward from one decision to the next.

    With ``reward="jct"`` all rewards of an episode add up to minus the sum of job completion times (of jobs that
    are not complete, the time since arrival), in units of ``reward_scale_ms``.
    """

    def __init__(self, config: ClusterConfig):
        self._scale_ms = config.reward_scale_ms
        self._makespan = config.reward == "makespan"
        self._all_jobs = config.semantics.reward_short_jobs
        self._step_ms = 0.0
        self._counted_ms = 0.0
        self._jobs_ms = 0.0
        self._seen: set[int] = set()

    def count(self, now_ms: float, num_jobs: int) -> None:
        """The number of jobs in the system is about to change from ``num_jobs``."""
        self._jobs_ms += num_jobs * (now_ms - self._counted_ms)
        self._counted_ms = now_ms

    def end_job(self, now_ms: float, num_jobs: int, job: int, arrival_ms: float) -> None:
        """A job completes."""
        self.count(now_ms, num_jobs)
        if not self._all_jobs and job not in self._seen:
            self._jobs_ms -= now_ms - max(arrival_ms, self._step_ms)

    def step(self, now_ms: float, live: Collection[int]) -> float:
        """The reward since the last step."""
        self.count(now_ms, len(live))
        lost_ms = now_ms - self._step_ms if self._makespan else self._jobs_ms
        self._step_ms, self._jobs_ms = now_ms, 0.0
        if not self._all_jobs:
            self._seen = set(live)
        return -lost_ms / self._scale_ms
