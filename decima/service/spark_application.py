"""An application of the study ``spark-applications``: a program that runs one job on a standalone cluster."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from decima.outputs import atomic_path
from decima.service.live_spark import LiveSpark
from workloads.arrivals import JobSequence
from workloads.sources.open import open_workload


def main(folder: Path, name: str) -> None:
    """Start, wait for the file that holds the start time, run the job, and write the time of its end."""
    from pyspark import SparkConf, SparkContext

    # The JVM and what it loads are no part of what is measured; that the executors have to start is.
    SparkContext._ensure_initialized()
    jobs = JobSequence(open_workload(str(folder / f"{name}.json")).profiles, np.zeros(1))
    (folder / f"{name}.ready").touch()
    go = folder / f"{name}.go"
    while not go.exists():
        time.sleep(0.02)
    time.sleep(max(0.0, float(go.read_text()) - time.time()))
    context = SparkContext(conf=SparkConf().setAppName(name))
    LiveSpark(context, 1, fair=False).run(jobs)
    with atomic_path(folder / f"{name}.done") as path:
        path.write_text(str(time.time()))
    context.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
