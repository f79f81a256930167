"""A Ray cluster of several nodes on this machine, which other machines cannot reach."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from decima.workers import WorkerError
from decima.workers.pool import make_workers
from decima.workers.ray_actors import LOOPBACK_ONLY, NOT_NICE, QUIET
from tests.programs import PATIENCE_S, started

#: For tests that start Ray, which takes about 10 s.
NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")


def check_that_silence_is_refused(by_name: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the refusal of an address without Ray, given by ``RAY_ADDRESS`` or as the workers' address."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(WorkerError, match=rf"{address}: there is no Ray cluster: .*refused$"):
            make_workers(None, "ray" if by_name else f"ray://{address}")


@contextmanager
def ray_cluster(nodes: int) -> Iterator[list[Any]]:
    """Nodes with one CPU each, and a head without CPU; workers ``ray`` use this cluster. Nodes have ``kill()``."""
    os.environ.update(QUIET | LOOPBACK_ONLY | NOT_NICE)
    import ray
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}, shutdown_at_exit=False
    )
    try:
        added = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(nodes)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        assert all(node["NodeManagerAddress"] == "127.0.0.1" for node in ray.nodes())
        yield [_Node(cluster, node) for node in added]
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def client_server(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A Ray of two CPUs with a token; yields ``ray://HOST:PORT`` and the environment of clients."""
    token = folder / "token"
    token.write_text("of nobody else's ".replace(" ", "-") * 3)
    environment = os.environ | QUIET | LOOPBACK_ONLY | NOT_NICE
    environment |= {"RAY_AUTH_TOKEN_PATH": str(token), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("RAY_AUTH_MODE", None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # beyond the ports that Ray gives its workers
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=2"]
    command += ["--include-dashboard=false", "--node-ip-address=127.0.0.1", "--port=0"]
    command += [f"--ray-client-server-port={port}"]
    with started(command, env=environment | {"RAY_AUTH_MODE": "token"}, stdout=subprocess.DEVNULL):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
                break
            time.sleep(0.2)
        yield f"ray://127.0.0.1:{port}", environment


class _Node:
    def __init__(self, cluster: Any, node: Any) -> None:
        self._cluster, self._node = cluster, node

    def kill(self) -> None:
        """Kill the node with everything that runs on it."""
        self._cluster.remove_node(self._node, allow_graceful=False)
