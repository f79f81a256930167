"""Compute the times alone that ship with the package: ``python -m tests.times_alone`` (five minutes of CPU time).

They are those of the embedded TPC-H jobs on common clusters, and of the published jobs on a few clusters. Without the
published profiles, which are not part of the project, their present values are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from simulator import ClusterConfig
from simulator.cluster.config import DECIMA_SIM
from simulator.cluster.engine.solo import search_all
from simulator.cluster.times_alone import SHIPPED, Known, cluster_text, content_digest, shipped
from workloads import JobProfile, embedded_tpch, load_tpch

EXECUTORS = (5, 8, 10, 12, 15, 16, 20, 24, 25, 30, 32, 40, 48, 50, 60, 64, 75, 80, 100, 150, 200)
FEW = (10, 25, 50, 100)
PUBLISHED = Path(os.environ.get("DECIMA_SHARED", Path(__file__).parents[2] / "shared")) / "tpch"


def embedded_clusters() -> list[ClusterConfig]:
    """Return the clusters on which times of the embedded jobs ship."""
    usual = [ClusterConfig(each) for each in EXECUTORS]
    no_delay = [ClusterConfig(each, moving_delay_ms=0.0) for each in EXECUTORS]
    return [*usual, *no_delay, *(ClusterConfig(each, semantics=DECIMA_SIM) for each in FEW)]


def published_clusters() -> list[ClusterConfig]:
    """Return the clusters on which times of the published jobs ship."""
    return [*map(ClusterConfig, FEW), ClusterConfig(50, semantics=DECIMA_SIM)]


def compute() -> Iterator[tuple[str, Sequence[JobProfile], list[Known]]]:
    """Yield the values of each cluster: its text, and jobs with their values."""
    sets = [(embedded_tpch(), embedded_clusters())]
    if PUBLISHED.exists():
        sets.append((load_tpch(PUBLISHED), published_clusters()))
    for profiles, clusters in sets:
        for config in clusters:
            yield cluster_text(config), profiles, [tuple(each) for each in search_all(profiles, config)]


def write() -> None:
    """Compute all values, and write them to the file that ships."""
    old = json.loads(SHIPPED.read_text()) if SHIPPED.exists() else {"clusters": []}
    values = {cluster: {job.hex(): known[:2] for job, known in shipped(cluster).items()} for cluster in old["clusters"]}
    for cluster, profiles, found in compute():
        digests = (content_digest(each).hex() for each in profiles)
        values.setdefault(cluster, {}).update(zip(digests, (known[:2] for known in found), strict=True))
        print(cluster, flush=True)
    jobs = list(dict.fromkeys(job for each in values.values() for job in each))
    lines = []
    for cluster, each in values.items():
        limits, means_ms = zip(*(each.get(job, (0, 0.0)) for job in jobs), strict=True)
        lines.append(f" {json.dumps(cluster)}: {json.dumps([limits, means_ms], separators=(',', ':'))}")
    text = f'{{"jobs": {json.dumps(jobs)},\n"clusters": {{\n' + ",\n".join(lines) + "\n}}\n"
    SHIPPED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
