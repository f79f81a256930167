"""The reward: minus the time that jobs spend in the system, or minus elapsed time (Decima, section 5.3)."""

from __future__ import annotations

from simulator.cluster.config import ClusterConfig

__all__ = ["RewardMeter"]


class RewardMeter:
    """Adds up a reward from one decision to the next. A shallow copy is independent of the original.

    With ``reward="jct"`` all rewards of an episode add up to minus the sum of job completion times (of jobs that
    are not complete, the time since arrival), in units of ``reward_scale_ms``.
    """

    def __init__(self, config: ClusterConfig):
        self._scale_ms = config.reward_scale_ms
        self._makespan = config.reward == "makespan"
        self._all_jobs = config.semantics.reward_short_jobs
        self._live: frozenset[int] = frozenset()
        self._seen: frozenset[int] = frozenset()  # live at the last step
        self._step_ms = 0.0
        self._counted_ms = 0.0
        self._jobs_ms = 0.0

    def add_job(self, now_ms: float, job: int) -> None:
        """A job arrives."""
        self._count(now_ms)
        self._live |= {job}

    def end_job(self, now_ms: float, job: int, arrival_ms: float) -> None:
        """A job completes."""
        self._count(now_ms)
        self._live -= {job}
        if not self._all_jobs and job not in self._seen:
            self._jobs_ms -= now_ms - max(arrival_ms, self._step_ms)

    def step(self, now_ms: float) -> float:
        """The reward since the last step."""
        self._count(now_ms)
        lost_ms = now_ms - self._step_ms if self._makespan else self._jobs_ms
        self._step_ms, self._jobs_ms = now_ms, 0.0
        self._seen = self._live
        return -lost_ms / self._scale_ms

    def _count(self, now_ms: float) -> None:
        """Add the time that jobs spent in the system since the last change of their number."""
        self._jobs_ms += len(self._live) * (now_ms - self._counted_ms)
        self._counted_ms = now_ms
