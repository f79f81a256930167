"""Objective: power mean of job completion times, for short tails."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["PowerMean"]


class PowerMean(Objective):
    """Sum of powers of job completion times, so that long ones count more.

    Each power is divided by ``reward_scale_ms`` to the exponent less 1, so that its unit is ms.

    Args:
        exponent: at least 1; 1 is the sum of job completion times.

    Raises:
        ValueError: the exponent is below 1 or above 10.
    """

    def __init__(self, exponent: float = 2.0) -> None:
        if not 1 <= exponent <= 10:
            raise ValueError(f"the exponent must be between 1 and 10, got {exponent:g}")
        self.exponent = exponent

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the increase, during the interval, of the powers of the jobs' ages."""
        before, after = ((time_ms - jobs.arrival_ms) / scale_ms for time_ms in (begin_ms, end_ms))
        return scale_ms * float((after**self.exponent - before**self.exponent).sum())
