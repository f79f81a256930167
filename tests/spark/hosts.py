"""Several hosts on this machine: network namespaces on a bridge, and a Spark cluster with a worker in each.

Links can go down. Delay and loss need ``tc netem``, which some kernels lack. ``python -m tests.spark.hosts`` compares
Decima with Spark's own schedulers on such a cluster.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Self

from decima.evaluation.spark import SPARKS_OWN
from decima.registry import LEARNED
from reproduce.common import Result, markdown
from reproduce.fig9_spark import SCHEDULERS, tables
from reproduce.spark.live import LEAN
from reproduce.spark.sleeping import SparkSetting, run_on_spark
from tests.spark.harness import spark_environment
from workloads.sources.open import EMBEDDED, open_workload
from workloads.spark.recorder.cluster import StandaloneCluster, free_port


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@cache
def why_no_hosts() -> str | None:
    """Return the reason why network namespaces cannot be made here; None if they can."""
    if shutil.which("ip") is None:
        return "needs the program ip"
    name = f"decima-probe-{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"needs network namespaces: {error.stderr.strip()}"
    return None


class Hosts:
    """Hosts in one subnet, which this machine is in, too; a context manager.

    Args:
        count: number of hosts.

    Attributes:
        own: address of this machine in the subnet.
    """

    def __init__(self, count: int) -> None:
        number = os.getpid() % 250
        self._name = f"dc{os.getpid()}"
        self._subnet = f"10.213.{number}"
        self.own = f"{self._subnet}.1"
        self._count = count

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        _run("ip", "link", "add", self._name, "type", "bridge")
        _run("ip", "addr", "add", f"{self.own}/24", "dev", self._name)
        _run("ip", "link", "set", self._name, "up")
        for host in range(self._count):
            space, outer = self._space(host), self._link(host)
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", outer, "master", self._name, "up")
            _run("ip", "-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", space, "link", "set", device, "up")

    def __exit__(self, *_: object) -> None:
        for host in range(self._count):
            subprocess.run(["ip", "netns", "del", self._space(host)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._name], check=False, capture_output=True)

    def address(self, host: int) -> str:
        """Return the address of a host."""
        return f"{self._subnet}.{host + 2}"

    def on(self, host: int) -> list[str]:
        """Return the beginning of a command that runs on a host."""
        return ["ip", "netns", "exec", self._space(host)]

    def link(self, host: int, state: str) -> None:
        """Set the link of a host ``up`` or ``down``."""
        _run("ip", "link", "set", self._link(host), state)

    def _space(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _link(self, host: int) -> str:
        return f"{self._name}v{host}"


class HostCluster(StandaloneCluster):
    """A Spark cluster with a worker on each of several hosts; the master is on this machine.

    Args:
        folder: see ``StandaloneCluster``.
        hosts: the hosts.
        workers: number of hosts with a worker, the first ones.
        slots: number of slots of each.
    """

    def __init__(self, folder: Path, hosts: Hosts, workers: int, slots: int) -> None:
        super().__init__(folder, workers * slots, slot_memory_mb=256, pin=False, workers=workers)
        self.hosts = hosts

    def environment(self) -> dict[str, str]:
        """Return environment variables for processes of Spark."""
        kept = {name: value for name, value in super().environment().items() if not name.startswith("SPARK_LOCAL_")}
        java = {name: value for name, value in spark_environment().items() if not name.startswith("SPARK_LOCAL_")}
        return {
            **kept,
            **java,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": f"{LEAN} -Dspark.worker.timeout=20",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }

    def application(self, slots: int, **settings: object) -> dict[str, object]:
        """Return arguments of ``harness.application`` for one executor on each host."""
        return {
            "master": self.master_url, "spark__driver__host": self.hosts.own,
            "spark__driver__bindAddress": self.hosts.own, "spark__executor__cores": slots,
            "spark__cores__max": self.num_slots, "spark__executor__memory": "512m", **settings,
        }  # fmt: skip

    def _start_master(self) -> None:
        port = free_port()
        arguments = ["--host", self.hosts.own, "--port", str(port), "--webui-port", "0"]
        self._start("master", "org.apache.spark.deploy.master.Master", arguments, "elected leader")
        self.master_url = f"spark://{self.hosts.own}:{port}"

    def _start_worker(self, number: int) -> None:
        slots = self.num_slots // (self.workers or 1)
        arguments = ["--host", self.hosts.address(number), "--webui-port", "0", "--cores", str(slots)]
        arguments += ["--memory", "512m", "--work-dir", str(self.folder / "work" / str(number)), self.master_url]
        worker = "org.apache.spark.deploy.worker.Worker"
        self._start(f"worker{number}", worker, arguments, "registered with master", self.hosts.on(number))


def main() -> None:
    """Compare FIFO, FAIR and Decima on three hosts with four slots each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name, value in (("batches", 5), ("jobs", 15), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    setting = SparkSetting(12, options.jobs, options.batches, tasks=0.1, scale=2.0, seed=options.seed)
    schedulers = {name: SCHEDULERS[name] for name in (*SPARKS_OWN, LEARNED)}
    with (
        Hosts(3) as hosts,
        tempfile.TemporaryDirectory() as folder,
        HostCluster(Path(folder) / "cluster", hosts, 3, 4) as cluster,
    ):
        conf = cluster.application(4)
        elsewhere = {"spark.master": str(conf.pop("master"))}
        elsewhere |= {name.replace("__", "."): str(value) for name, value in conf.items()}
        profiles = open_workload(EMBEDDED).profiles
        runs = run_on_spark(profiles, setting, schedulers, elsewhere=elsewhere)
    for name, rows in Result(tables(runs)).content("", {})["tables"].items():
        print(f"{name}\n\n{markdown(rows, {'error': '+.1%'})}\n")


if __name__ == "__main__":
    main()
