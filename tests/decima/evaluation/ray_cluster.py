"""A Ray cluster of several nodes on this machine, which nobody else can reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from decima.evaluation.ray_workers import LOOPBACK_ONLY, NOT_NICE, QUIET

#: For tests that start Ray, which takes about 10 s.
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")


@contextmanager
def ray_cluster(nodes: int) -> Iterator[list[Any]]:
    """Nodes of a CPU each, and a head of none; ``ray`` is this cluster then. What is given says ``kill()``."""
    os.environ.update(QUIET | LOOPBACK_ONLY | NOT_NICE)
    import ray
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized()
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False},
        shutdown_at_exit=False,
    )
    try:
        added = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(nodes)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        assert all(node["NodeManagerAddress"] == "127.0.0.1" for node in ray.nodes())
        yield [_Node(cluster, node) for node in added]
    finally:
        ray.shutdown()
        cluster.shutdown()


class _Node:
    def __init__(self, cluster: Any, node: Any) -> None:
        self._cluster, self._node = cluster, node

    def kill(self) -> None:
        """It is gone at once, with all that runs on it."""
        self._cluster.remove_node(self._node, allow_graceful=False)
