"""Evaluation settings of ``decima reproduce grid``, called cells; fixed, so that results stay comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Jobs: published or embedded TPC-H profiles, DAGs of a trace, random DAGs, random DAGs with short tasks.
Source = Literal["published", "embedded", "trace", "random", "short"]

#: Jobs that the project does not contain -> command-line option that names their file.
OPTIONS: dict[Source, str] = {"published": "--profiles DIR", "trace": "--trace FILE"}


@dataclass(frozen=True)
class Cell:
    """An evaluation setting of the grid; all executors are of one class.

    ``interval_s`` is the mean time between Poisson arrivals, None for a batch; ``moving_delay_s`` the time of an
    executor to move to another job.
    """

    name: str
    source: Source
    num_jobs: int
    interval_s: float | None = None
    num_executors: int = 50
    moving_delay_s: float = 2.0


CELLS: dict[str, Cell] = {
    cell.name: cell
    for cell in (
        Cell("tpch-batch-5", "published", 5),
        Cell("tpch-batch-20", "published", 20),
        Cell("tpch-batch-50", "published", 50),
        Cell("tpch-batch-100", "published", 100),
        Cell("tpch-batch-20-on-10", "published", 20, num_executors=10),
        Cell("tpch-batch-20-on-100", "published", 20, num_executors=100),
        Cell("tpch-batch-20-on-200", "published", 20, num_executors=200),
        Cell("tpch-batch-20-delay-0", "published", 20, moving_delay_s=0.0),
        Cell("tpch-stream-60s", "published", 200, 60.0),
        Cell("tpch-stream-25s", "published", 200, 25.0),
        Cell("tpch-stream-18s", "published", 200, 18.0),
        Cell("tpch-stream-14s", "published", 200, 14.0),
        Cell("tpch-stream-12s", "published", 200, 12.0),
        Cell("tpch-stream-7.5s-on-100", "published", 200, 7.5, num_executors=100),
        Cell("tpch-stream-25s-on-10", "published", 50, 25.0, num_executors=10),
        Cell("embedded-batch-20", "embedded", 20),
        Cell("embedded-stream-4s", "embedded", 60, 4.0),
        Cell("embedded-stream-4s-delay-0", "embedded", 60, 4.0, moving_delay_s=0.0),
        Cell("embedded-batch-5-on-500", "embedded", 5, num_executors=500),
        Cell("trace-batch-20", "trace", 20, num_executors=200),
        Cell("trace-stream-30s", "trace", 20, 30.0, num_executors=200),
        Cell("trace-stream-30s-delay-0", "trace", 50, 30.0, num_executors=200, moving_delay_s=0.0),
        Cell("random-batch-20", "random", 20),
        Cell("random-stream-25s", "random", 60, 25.0),
        Cell("short-tasks-stream-4s", "short", 60, 4.0, num_executors=30, moving_delay_s=1.0),
    )
}
