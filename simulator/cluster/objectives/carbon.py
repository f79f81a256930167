"""Emissions of executors, or the cost of their electricity."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Carbon"]


class Carbon(Objective):
    """The emissions of the executors in g, or the price of their electricity; 1 g costs as much as 1 s.

    Executors that run a task or move count, and idle ones by ``ClusterConfig.idle_watts``.

    Args:
        signal: name of the signal, as for ``workloads.open_signal``; None for the signal of any cluster.
    """

    uses_carbon = True

    def __init__(self, signal: str | None = None) -> None:
        self.signal = signal

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the emissions."""
        return 1000 * jobs.carbon
