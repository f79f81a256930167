"""Writer of small event logs like the recorder's: one query per application, with the driver's measurements."""

from pathlib import Path
from typing import Any

from tests.workloads.spark.logs import LogBuilder, stage_info

#: Measurements of the query below on two executors, with the default durations.
WALL_MS = 580.0


def recording(
    name: str, executors: int = 2, *, fresh: int = 300, first: int = 60, rest: int = 100, lag: int = 20, **noted: Any
) -> LogBuilder:
    """Return a scan of four tasks, then a stage of two, on one or two executors; durations by wave.

    The driver registers at 500, executors are granted at 1000 and register at 1500, the query starts at 1900, its
    job is submitted at 2000, and there is a ``lag`` between the stages.
    """
    log = LogBuilder(app=f"app-{name}", name=name)
    granted = {str(executor): {"granted": 1000} for executor in range(executors)}
    meta = {"name": name, "query": 1, "sf": 2.0, "n": executors, "layout": "12m/16", "opened": 0.5}
    load = {"wall": 0.6, "busy_cpu_s": 0.9}
    log.events.insert(0, {"Event": "RunMeta", **meta, **load, "executors": granted, **noted})
    for executor in granted:
        log.executor(executor, at=1500)
    scan, last = stage_info(0, 4), stage_info(1, 2, parents=(0,))
    log.sql(0, 1900, "q01").job(0, [scan, last], at=2000, sql=0)
    now = 2000
    for stage, num_tasks, durations in ((0, 4, (fresh, rest, rest, rest)), (1, 2, (first, rest))):
        now += lag * stage
        log.submit(stage, now)
        for round_, task in enumerate(range(0, num_tasks, executors)):
            for executor in range(executors):
                log.task(stage, task + executor, str(executor), now, now + durations[round_])
            now += durations[round_]
        log.complete(stage, now)
    return log.job_end(0, now).sql_end(0, now).end()


def write_recordings(folder: Path, *logs: LogBuilder) -> Path:
    """Write one file per log, named after the application; return the folder."""
    for log in logs:
        log.write(folder / f"{log.events[0]['name']}.json")
    return folder
