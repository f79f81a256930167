"""TPC-H profiles: the embedded set.

Examples:
    >>> from workloads import embedded_tpch
    >>> jobs = embedded_tpch(sizes=["2g", "100g"])
    >>> len(jobs), jobs[6].name
    (44, 'tpch-q7-2g')

The set has 22 queries at six input sizes, extrapolated from real Spark at 1 and 2 GB.

*Measured.* Spark 3.5.9, a standalone cluster on loopback, ran every query alone, as an application of its own, over
parquet tables of scale factors 1 and 2 (about 1 and 2 GB of text), on one-core executors of a quiet machine of 2
cores. Adaptive execution and broadcast joins were off, so that a query has the same DAG in each run, and DAGs of the
same kind as in the published profiles. Measured on one executor are the DAGs with the barriers between the Spark jobs
of a query, the bytes that each stage reads and their growth from 1 to 2 GB, the time per byte in each stage, the
durations of first tasks in a JVM and in a stage, and the spread of a stage's tasks. The page cache held all tables.

*Extrapolated*, by `workloads.spark.profiles` with the model of `workloads.spark.model`:

* Size. 2 GB is a measured size, 5 to 100 GB are not. From 1 GB the model predicts the work of a query at 2 GB with a
  mean error of 7 %, at most 16 %. At 100 GB a task reads up to eight times as much as in the measurements; real tasks
  would spill. So are the bytes that a stage reads.
* Number of tasks. The recordings have splits of 12 MB and 16 partitions. The set has splits of 32 MB of parquet,
  about the content of 128 MB of text, and Spark's default of 200 shuffle partitions.
* Parallelism. Work inflation is fitted to runs with 2 and 4 executors, which shared the 2 cores with each other and
  with the driver: scans, which do not inflate, took 2 and 5 times as long. The additional time of stages that read
  shuffles is inflation, 1.6 ms for each further executor and task. Resampling the queries gives 0.8 to 2.7 ms, a
  wide range, which is extrapolated from 4 executors to 100. In the profiles that Decima's authors measured on a
  cluster, the same figure is 0.6 ms at 2 GB and 1.6 ms at 100 GB.

*Differences from the published set.* Stages and tasks are much alike, and so is the order of the jobs by work. The
work is a third (2 GB) to a sixth (100 GB) of the published work: a newer machine, parquet instead of text, and no
spilling. The moving delay of an executor is about the same, so it weighs more here, most of all in small jobs.

The operators of a stage come from the plans of the same queries with the same settings at scale factor 0.02.

Regenerate the set with ``python -m workloads.spark.recorder`` and ``python -m workloads.sources.tpch_build``.
"""

from __future__ import annotations

from collections.abc import Iterable

from workloads.errors import WorkloadError, check_all
from workloads.job import JobProfile
from workloads.sources.open import embedded_workload

__all__ = ["DEFAULT_SIZES", "LEVELS", "QUERIES", "embedded_tpch"]

#: Input sizes that the published experiments draw from; ``80g`` was measured, too, and can be read.
DEFAULT_SIZES = ("2g", "5g", "10g", "20g", "50g", "100g")

QUERIES = range(1, 23)

#: Parallelism levels that the published simulator uses; measurements at other levels are not read.
LEVELS = (5, 10, 20, 40, 50, 60, 80, 100)


def embedded_tpch(
    sizes: Iterable[str] = DEFAULT_SIZES, queries: Iterable[int] = QUERIES
) -> tuple[JobProfile, ...]:
    """Return profiles of the embedded set: all queries of the first size, then of the next.

    Args:
        sizes: among ``2g``, ``5g``, ``10g``, ``20g``, ``50g`` and ``100g``.
        queries: numbers of queries, 1 to 22.

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
