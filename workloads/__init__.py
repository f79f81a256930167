"""What runs on a cluster: jobs as DAGs of stages, when they arrive, and where they come from.

Every source gives ``JobProfile`` objects, which are checked when they are built; ``batch_arrivals``,
``poisson_arrivals`` or ``trace_arrivals`` turns them into the ``JobSequence`` that a simulator runs:

>>> from workloads import embedded_tpch, poisson_arrivals
>>> jobs = poisson_arrivals(embedded_tpch(), num_jobs=3, mean_interval_ms=25_000, seed=1)
>>> len(jobs), jobs.num_tasks > 100
(3, True)

Whatever is malformed is refused with a ``WorkloadError`` of one line.
"""

from workloads.arrivals import (
    JobSequence,
    RandomStream,
    batch_arrivals,
    poisson_arrivals,
    random_stream,
    trace_arrivals,
    uniform_memory,
)
from workloads.errors import DecimaError
from workloads.excerpt import Excerpt
from workloads.grid_jobs import DISTRIBUTIONS, JobDistribution, JobSets, draw_jobs
from workloads.job import JobProfile, StageProfile, TaskDurations, Wave, WorkloadError
from workloads.scaling import scaled
from workloads.simplify import simplified
from workloads.sources.alibaba import read_alibaba
from workloads.sources.open import open_workload
from workloads.sources.swf import SwfLog, read_swf, swf_jobs
from workloads.sources.synthetic import random_dag, synthetic_profiles
from workloads.sources.tpch_measured import embedded_tpch, embedded_workload
from workloads.sources.tpch_published import load_tpch, load_tpch_job
from workloads.sources.wfcommons import read_wfcommons
from workloads.sources.workload_file import Workload, read_workload, write_workload
from workloads.spark.eventlog import read_event_log
from workloads.spark.importing import SparkImport, import_event_logs
from workloads.spark.model import SparkModel

__all__ = [
    "DISTRIBUTIONS",
    "DecimaError",
    "Excerpt",
    "JobDistribution",
    "JobProfile",
    "JobSequence",
    "JobSets",
    "RandomStream",
    "SparkImport",
    "SparkModel",
    "StageProfile",
    "SwfLog",
    "TaskDurations",
    "Wave",
    "Workload",
    "WorkloadError",
    "batch_arrivals",
    "draw_jobs",
    "embedded_tpch",
    "embedded_workload",
    "import_event_logs",
    "load_tpch",
    "load_tpch_job",
    "open_workload",
    "poisson_arrivals",
    "random_dag",
    "random_stream",
    "read_alibaba",
    "read_event_log",
    "read_swf",
    "read_wfcommons",
    "read_workload",
    "scaled",
    "simplified",
    "swf_jobs",
    "synthetic_profiles",
    "trace_arrivals",
    "uniform_memory",
    "write_workload",
]
