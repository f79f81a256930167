"""Jobs that never ran, on a real Spark: Spark's own FAIR mode, and Decima with typical and with predicted task times.

The history has other queries than those that run: queries are divided into folds, and each batch draws its jobs from
one fold, with the others as history. One Spark application runs all batches. The plugin asks one service after the
other; without a service, Spark keeps its own FAIR mode. Each task sleeps for its recorded duration.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

import decima
from reproduce.common import Result, pick
from reproduce.spark.live import LiveSparkError, live_spark, serving
from reproduce.spark.sleeping import SparkSetting, check_pyspark, sleeping_history, sleeping_jobs
from simulator.cluster.predictor import template_keys, templates
from workloads.spark.recorder.cluster import free_port

FAIR, TYPICAL, FOREST = "Spark FAIR", "decima, typical times", "decima, forest"
#: Displayed name -> estimator of the service; the empty one stands for no service.
WAYS = {FAIR: "", TYPICAL: "typical", FOREST: "forest"}
#: Time limit for the plugin to find a new service, s.
PATIENCE_S = 60.0


def run(
    *,
    workload: str = "tpch",
    policy: str = "decima",
    executors: int = 8,
    jobs: int = 10,
    batches: int = 12,
    folds: int = 3,
    scale: float = 2.0,
    tasks: float = 0.1,
    master: str = "",
    seed: int = 0,
) -> Result:
    """Run batches of unknown jobs on Spark in each way; needs ``pip install -e '.[spark]'``, takes half an hour.

    Args:
        workload: Jobs: tpch, a workload file, or the folder of the published TPC-H profiles.
        policy: Policy of the service.
        executors: Number of executors, with one slot each.
        jobs: Number of jobs in a batch.
        batches: Number of batches.
        folds: Number of folds of the queries.
        scale: Factor on the durations of tasks.
        tasks: Factor on the number of tasks of each stage.
        master: Spark's master, such as local[8]; by default executors are processes.
        seed: Seed of the first batch.
    """
    check_pyspark()
    setting = SparkSetting(executors, jobs, batches, scale=scale, tasks=tasks, seed=seed)
    naps = sleeping_jobs(decima.open_workload(workload).profiles, setting)
    fold = np.array(templates([template_keys(profile) for profile in naps])) % folds
    address = f"127.0.0.1:{free_port()}"
    rows = []
    with ExitStack() as programs:
        folder = Path(programs.enter_context(TemporaryDirectory(prefix="decima-unknown-")))
        elsewhere = {"spark.master": master} if master else None
        spark = programs.enter_context(
            live_spark(folder / "spark", executors, fair=True, address=address, elsewhere=elsewhere)
        )
        for batch in range(batches):
            new, past = (pick(naps, fold == batch % folds), pick(naps, fold != batch % folds))
            sequence = setting.sequence(new, seed + batch)
            # No way is always the first, as the JVM compiles code while it runs.
            first = batch % len(WAYS)
            for way, estimator in [*WAYS.items()][first:] + [*WAYS.items()][:first]:
                with ExitStack() as services:
                    if estimator:
                        _, history = services.enter_context(sleeping_history(past))
                        log = folder / f"{batch}-{estimator}.jsonl"
                        services.enter_context(
                            serving(policy, history, log, address=address, estimator=estimator)
                        )
                        wait_for_driver(log)
                    mean_s = float(spark.run(sequence).mean()) / 1000
                load, _, _ = os.getloadavg()
                rows.append({"batch": batch, "scheduler": way, "mean_s": mean_s, "load average": load})
    runs = pd.DataFrame(rows)
    loads = runs["load average"]
    return Result(
        {"ways": comparison(runs), "runs": runs},
        values={"load average": f"{loads.min():.1f} to {loads.max():.1f}"},
        formats={"batch": "", **{f"vs {way}": "+.1%" for way in (FAIR, TYPICAL)}},
    )


def wait_for_driver(log: Path) -> None:
    """Wait until the plugin has connected to the service with this live log.

    Raises:
        LiveSparkError: the time is over.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not log.exists() or '"welcomed"' not in log.read_text():
        if time.monotonic() > end_s:
            raise LiveSparkError(f"the plugin has not found the service within {PATIENCE_S:.0f} s")
        time.sleep(0.1)


def comparison(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean JCT in each way, s, and its changes against the others, paired by batch."""
    mean_s = runs.pivot_table("mean_s", "batch", "scheduler")
    rows = []
    for way in WAYS:
        row = {"scheduler": way, "mean_jct_s": mean_s[way].mean()}
        for other in (FAIR, TYPICAL):
            if list(WAYS).index(other) < list(WAYS).index(way):
                row[f"vs {other}"], row[f"vs {other}_ci95"] = decima.paired_change(mean_s[way], mean_s[other])
        rows.append(row)
    return pd.DataFrame(rows)
