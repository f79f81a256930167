"""Objective: carbon emissions of the executors, or the price of their electricity."""

from __future__ import annotations

from simulator.cluster.objectives.base import LiveJobs, Objective

__all__ = ["Carbon"]


class Carbon(Objective):
    """Emissions of the executors in g, or the price of their electricity; 1 g counts like 1 s of job time.

    Executors that run a task or move use ``ClusterConfig.executor_watts``, idle ones ``ClusterConfig.idle_watts``.

    Args:
        signal: name of the signal, as for ``workloads.open_signal``; None: the signal of the cluster.
    """

    uses_carbon = True

    def __init__(self, signal: str | None = None) -> None:
        self.signal = signal

    def cost_ms(self, begin_ms: float, end_ms: float, jobs: LiveJobs, scale_ms: float) -> float:
        """Return the emissions of the interval, g, times 1000 ms."""
        return 1000 * jobs.carbon
