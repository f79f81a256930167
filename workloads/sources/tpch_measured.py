"""The embedded TPC-H set: 22 queries at six sizes of input, extrapolated from real Spark at 1 and 2 GB.

>>> from workloads import embedded_tpch
>>> jobs = embedded_tpch(sizes=["2g", "100g"])
>>> len(jobs), jobs[6].name
(44, 'tpch-q7-2g')

**What is measured.** Spark 3.5.9, a standalone cluster on loopback, ran every query alone, as an application
of its own, over parquet tables of scale factors 1 and 2 (about 1 and 2 GB of text), on one-core executors of a
quiet machine of 2 cores. Adaptive execution and broadcast joins were off, so that a query has the same DAG in
each run, and of the same kind as in the profiles that Decima's authors published. Measured on one executor are
the DAGs with the barriers between the Spark jobs of a query, the bytes that each stage reads and how they grow
from 1 to 2 GB, what a byte takes in each stage, the durations of first tasks in a JVM and in a stage, and how
the tasks of a stage scatter. The page cache held all tables.

**What is extrapolated**, by `workloads.spark.scaling` and the model that `workloads.spark.model` describes:

* *Size.* 2 GB is a measured size, 5 to 100 GB are not. From 1 GB the model foretells the work of a query at 2 GB
  with a mean error of 7 %, at most 16 %. At 100 GB a task reads up to eight times what it was measured with,
  and real ones would spill.
* *The cut into tasks.* Recorded with splits of 12 MB and 16 partitions, the set has splits of 32 MB of parquet,
  which hold about what 128 MB of text do, and Spark's default of 200 shuffle partitions.
* *Parallelism.* Runs with 2 and 4 executors tell of work inflation, but their executors and the driver shared
  the 2 cores: scans, which do not inflate, took 2 and 5 times as long. What stages that read shuffles took
  longer than that is inflation, 1.6 ms for each further executor and task. Resampling the queries gives 0.8 to
  2.7 ms; that is a wide range, and it reaches from 4 executors to 100. In the profiles that Decima's authors
  measured on a cluster, the same figure is 0.6 ms at 2 GB and 1.6 ms at 100 GB.

**How it differs from the published set.** Stages and tasks are much alike, and so is the order of the jobs by
work. Their work is a third (2 GB) to a sixth (100 GB) of it: a newer machine, parquet instead of text, and no
spilling. Moving an executor costs what it did, so it weighs more here, most of all in small jobs.

Regenerate it with ``python -m workloads.spark.recorder`` and ``python -m workloads.sources.tpch_build``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import as_file, files

from workloads.errors import check_all
from workloads.job import JobProfile, WorkloadError
from workloads.sources.tpch_published import DEFAULT_SIZES, QUERIES
from workloads.sources.workload_file import Workload, read_workload

__all__ = ["embedded_tpch", "embedded_workload"]


@cache
def embedded_workload() -> Workload:
    """Return all profiles, in the order of `embedded_tpch`; ``about`` describes their origin.

    Versions, machine, commands, dates, scale factors, executors and the model's parameters are in there.
    """
    with as_file(files("workloads") / "data" / "tpch-spark.json.gz") as path:
        return read_workload(path)


def embedded_tpch(
    sizes: Iterable[str] = DEFAULT_SIZES, queries: Iterable[int] = QUERIES
) -> tuple[JobProfile, ...]:
    """Return profiles of the embedded set: all queries of the first size, then of the next.

    Args:
        sizes: among ``2g``, ``5g``, ``10g``, ``20g``, ``50g`` and ``100g``.
        queries: which queries, 1 to 22.

    Raises:
        WorkloadError: a size or query that is not in the set.
    """
    profiles = {profile.name: profile for profile in embedded_workload().profiles}
    sizes = check_all(sizes, str, "sizes", WorkloadError)
    queries = check_all(queries, int, "queries", WorkloadError)
    names = [f"tpch-q{query}-{size}" for size in sizes for query in queries]
    for name in names:
        if name not in profiles:
            raise WorkloadError(
                f"no {name!r} in the embedded set, expected queries 1 to 22 at {', '.join(DEFAULT_SIZES)}"
            )
    return tuple(profiles[name] for name in names)
