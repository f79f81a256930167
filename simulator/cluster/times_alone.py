"""Time of a job alone on a cluster under its best parallelism limit: the reference of slowdown.

Values are cached by job and cluster, in memory and on disk (``alone_cache``); new ones are simulated
(``engine.solo``). For the embedded TPC-H jobs on common clusters, values of the full search ship with the package. A
job is identified by a digest of its content, a cluster by the settings that the time alone depends on.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from simulator.cluster.config import ClusterConfig, ClusterKey, cluster_key
from workloads.job import JobProfile

__all__ = [
    "SHIPPED",
    "Known",
    "TimeAlone",
    "cluster_text",
    "content_digest",
    "shipped",
    "time_alone",
    "times_alone",
]

#: What is known of a job on a cluster: best parallelism limit, mean time alone in ms, and bound on its relative error.
Known = tuple[int, float, float]

#: Values that ship with the package: for each cluster, see ``cluster_text``, the values of known jobs in order.
SHIPPED = Path(__file__).parent / "times_alone.json"


class TimeAlone(NamedTuple):
    """Time of a job alone on a cluster.

    Attributes:
        limit: best parallelism limit of the job, which has the shortest mean completion time.
        mean_ms: mean completion time of the job under this limit, with delays, ms.
        error: relative error of ``mean_ms`` that 95 % of jobs stay within; 0 after a full search.
    """

    limit: int
    mean_ms: float
    error: float = 0.0


_times: WeakKeyDictionary[JobProfile, dict[ClusterKey, TimeAlone]] = WeakKeyDictionary()


def time_alone(profile: JobProfile, config: ClusterConfig) -> TimeAlone:
    """Return the expected time of a job alone on a cluster, under its best parallelism limit.

    Under limit k the job's next stage (``Observation.next_stage``) gets all offered executors, until the job holds k.
    Runs have the task noise of seeds 0, 1, 2 and so on; a job with certain durations runs once under a limit. The time
    of a large job is estimated, see ``TimeAlone.error``.

    The result depends on the job and the cluster only, and is the same in each process, bit for bit.

    Raises:
        ConfigError: no executor class can run some stage.
    """
    [time] = times_alone([profile], config)
    return time


def times_alone(
    profiles: Iterable[JobProfile],
    config: ClusterConfig,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> list[TimeAlone]:
    """Return the times of many jobs alone, see ``time_alone``; each distinct job is computed once.

    Args:
        on_step: progress callback, called with the numbers of finished and of all jobs that are not in memory.

    Raises:
        ConfigError: no executor class can run some stage.
    """
    profiles, key = list(profiles), cluster_key(config)
    unknown = [profile for profile in dict.fromkeys(profiles) if key not in _times.get(profile, ())]
    if unknown:
        _find(unknown, config, key, on_step)
    return [_times[profile][key] for profile in profiles]


def _find(
    profiles: Sequence[JobProfile],
    config: ClusterConfig,
    key: ClusterKey,
    on_step: Callable[[int, int], None],
) -> None:
    """Add the times alone of jobs to ``_times``: values that ship, values on disk, or new ones."""
    cluster, digests = cluster_text(config), [content_digest(profile) for profile in profiles]
    shipped_times = shipped(cluster)
    unknown = {digest for digest in digests if digest not in shipped_times}
    cached = None
    if unknown:
        from simulator.cluster.alone_cache import default_cache

        if (cached := default_cache()) is not None:
            shipped_times |= cached.read(cluster, unknown)
    missing = {
        digest: profile
        for digest, profile in zip(digests, profiles, strict=True)
        if digest not in shipped_times
    }
    if missing:
        from simulator.cluster.engine.solo import compute

        new: dict[bytes, Known] = {}
        on_step(0, len(missing))
        try:
            for digest, time in zip(missing, compute(list(missing.values()), config), strict=True):
                new[digest] = (time.limit, time.mean_ms, time.error)
                on_step(len(new), len(missing))
        finally:
            if cached is not None:
                cached.write(cluster, new)
        shipped_times |= new
    for profile, digest in zip(profiles, digests, strict=True):
        _times.setdefault(profile, {})[key] = TimeAlone(*shipped_times[digest])


def content_digest(profile: JobProfile) -> bytes:
    """Return a digest, 16 bytes, of everything in a job that its time alone depends on; names do not count."""
    content = hashlib.blake2b(struct.pack("<q", len(profile.edges)), digest_size=16)
    content.update(profile.edges.tobytes())
    for stage in profile.stages:
        durations = stage.durations
        sizes = stage.num_tasks, durations.levels.size, durations.values.size
        content.update(struct.pack("<3q3d", *sizes, stage.cpu, stage.memory, durations.mean_ms))
        for array in (durations.levels, durations.values, durations.cells):
            content.update(array.tobytes())
    return content.digest()


def cluster_text(config: ClusterConfig) -> str:
    """Return the settings of a cluster that a job's time alone depends on, as text."""
    classes, moving_ms, warmup_ms, semantics = cluster_key(config)
    executors = [
        [executor_class.count, executor_class.cpu, executor_class.memory] for executor_class in classes
    ]
    switches = [name for name, value in vars(semantics).items() if value]
    return json.dumps([executors, moving_ms, warmup_ms, switches])


def shipped(cluster: str) -> dict[bytes, Known]:
    """Return the values that ship with the package for a cluster, by the digest of the job; empty for most clusters."""
    content = _shipped()
    if cluster not in content["clusters"]:
        return {}
    limits, means_ms = content["clusters"][cluster]
    return {
        bytes.fromhex(digest): (limit, mean_ms, 0.0)
        for digest, limit, mean_ms in zip(content["jobs"], limits, means_ms, strict=True)
        if limit
    }


@cache
def _shipped() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return content
