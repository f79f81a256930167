"""Carbon emissions of a running cluster: energy of its executors times the carbon or price signal."""

from __future__ import annotations

from simulator.cluster.config import ClusterConfig

__all__ = ["Emissions"]


class Emissions:
    """Emissions accumulated during an episode; at its end, they equal ``EpisodeRecord.carbon``.

    Between two calls of ``add``, neither the signal nor the number of executors in the cluster may change. A shallow
    copy is independent of the original.

    Args:
        config: the cluster, which must have a signal.
    """

    def __init__(self, config: ClusterConfig) -> None:
        assert config.signal is not None
        self._signal = config.signal
        self._busy, self._idle = (
            watts / 1000 / 3_600_000 for watts in (config.executor_watts, config.idle_watts)
        )
        self._until_ms, self._idle_ms = 0.0, 0.0

    def add(self, now_ms: float, idle_ms: float, present: int, observed: bool) -> float:
        """Return the emissions since the last call, g.

        Args:
            now_ms: current time, ms.
            idle_ms: total idle time of executors since the beginning of the episode, ms.
            present: number of executors in the cluster since the last call.
            observed: count idle executors, which is done from the first arrival to the end of the last job.
        """
        waited_ms = idle_ms - self._idle_ms
        busy_ms = max(present * (now_ms - self._until_ms) - waited_ms, 0.0)
        value = self._signal.at(self._until_ms)
        self._until_ms, self._idle_ms = now_ms, idle_ms
        return value * (self._busy * busy_ms + (self._idle * waited_ms if observed else 0.0))
