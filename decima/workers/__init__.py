"""Worker pools for independent work items: processes of this machine, or actors of a Ray cluster.

``pool`` chooses and describes them; ``processes`` and ``ray_actors`` have them; ``in_order`` maps items over them.
"""

from __future__ import annotations

import os

from workloads.errors import DecimaError


class WorkerError(DecimaError, RuntimeError):
    """Workers died or are not available."""


def available_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
