"""Several applications on one standalone cluster of Spark: its own FIFO, equal static shares, and Decima in charge.

The paper's own setting: each job is an application, and executors move from one to the other at the price of a JVM's
start. Applications are submitted at once, in their order; their tasks sleep (``live_spark``).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from decima.outputs import atomic_path, json_text
from decima.registry import LEARNED
from decima.studies.fig9_spark import LiveRuns, Setting, sleeping_jobs
from decima.studies.live_spark import LiveSparkError, serving
from decima.studies.standalone_spark import Standalone
from workloads.arrivals import JobSequence
from workloads.job import JobProfile
from workloads.sources.workload_file import Workload, write_workload

__all__ = ["FIFO", "SHARES", "ApplicationsComparison", "compare_applications"]

#: Spark's standalone master gives all slots to whoever came first.
FIFO = "Spark FIFO"
#: ``spark.cores.max``: each application has as many, from beginning to end.
SHARES = "static shares"
#: Who is compared.
WAYS = (FIFO, SHARES, LEARNED)
#: Applications that come together register with the master so far apart, s, so that they come in their order.
APART_S = 0.5
#: Longest time in which a batch is done, as a multiple of what one executor would need, and beside it, s.
PATIENCE, PATIENCE_S = 1.0, 300.0


@dataclass(frozen=True, eq=False)
class ApplicationsComparison(LiveRuns):
    """What came out; an application for each job."""

    def to_json(self, **extra: Any) -> str:
        """All of it; ``extra`` is added as it is."""
        content = {
            **extra,
            "setting": vars(self.setting),
            "schedulers": {
                name: {
                    "mean_jct_ms": self.mean_jct_ms(name)._asdict(),
                    "change": {other: self.change(name, other)._asdict() for other in (FIFO, SHARES)},
                }
                for name in WAYS
            },
            "runs": self.runs.to_dict("records"),
        }
        return json_text(content)


def compare_applications(
    profiles: Sequence[JobProfile],
    setting: Setting,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> ApplicationsComparison:
    """Run batches of applications on a real cluster, each of one job.

    The ways take turns with each batch, so that a machine that is busier for a while is busier for all.

    Args:
        profiles: what jobs are drawn from; those whose DAG Spark cannot run as it stands are passed over.
        setting: what runs; ``executors`` are the cluster's slots.
        tell: told how many runs are done, and of how many.

    Raises:
        WorkloadError: no profile is left.
        LiveSparkError: Spark or the service does not start, or an application fails.
        RecorderError: no Java, no pyspark, or the cluster does not come up.
    """
    naps = sleeping_jobs(profiles, setting)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="decima-spark-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        history = folder / "history.json"
        write_workload(history, Workload(tuple(naps), name="sleeping"))
        for batch in range(setting.batches):
            jobs = setting.sequence(naps, setting.seed + batch)
            for way in WAYS:
                where = folder / f"{batch} {way}".replace(" ", "-")
                jct_ms = _run(jobs, way, setting.executors, history, where)
                real_ms = float(np.mean(jct_ms))
                rows.append({"batch": batch, "scheduler": way, "real_ms": real_ms, "jct_ms": jct_ms})
                tell(len(rows), setting.batches * len(WAYS))
    return ApplicationsComparison(setting, pd.DataFrame(rows))


def _run(jobs: JobSequence, way: str, slots: int, history: Path, where: Path) -> list[float]:
    """Completion times, ms."""
    where.mkdir()
    with ExitStack() as programs:
        settings = {}
        if way == SHARES:
            settings = {"spark.cores.max": str(max(1, slots // len(jobs)))}
        elif way != FIFO:
            address = programs.enter_context(serving(way, history, where / "served.jsonl", slots))
            settings = {
                "spark.plugins": "decima.spark.DecimaPlugin",
                "spark.decima.address": address,
                "spark.decima.executors": "true",
            }
        cluster = programs.enter_context(Standalone(where / "cluster", slots, settings))
        names = [f"application-{number}" for number in range(len(jobs))]
        for name, profile in zip(names, jobs.profiles, strict=True):
            file = where / f"{name}.json"
            write_workload(file, Workload((profile,), name="sleeping"))
            # Its first argument is what the cluster knows the application by.
            cluster.submit(name, [sys.executable, "-m", "decima.studies.spark_application", str(where), name])
        _until(lambda: all((where / f"{name}.ready").exists() for name in names), cluster, names, PATIENCE_S)
        begin_s = time.time()
        for number, name in enumerate(names):
            with atomic_path(where / f"{name}.go") as path:  # whoever sees the file sees all of it
                path.write_text(str(begin_s + number * APART_S))
        work_s = sum(profile.work_ms for profile in jobs.profiles) / 1000
        patience_s = PATIENCE * work_s + PATIENCE_S
        _until(lambda: all((where / f"{name}.done").exists() for name in names), cluster, names, patience_s)
        ends_s = [float((where / f"{name}.done").read_text()) for name in names]
        return [(end_s - begin_s) * 1000 for end_s in ends_s]


def _until(happens: Callable[[], bool], cluster: Standalone, names: list[str], patience_s: float) -> None:
    end_s = time.monotonic() + patience_s
    while not happens():
        for name in names:
            if cluster.applications[name].poll():
                last = cluster.log(name).strip().splitlines()[-1:]
                raise LiveSparkError(f"{name} failed on Spark: {''.join(last)}")
        if time.monotonic() > end_s:
            raise LiveSparkError(f"applications on Spark are not done after {patience_s:.0f} s")
        time.sleep(0.05)
