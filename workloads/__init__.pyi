from .arrivals import (
    JobSequence,
    RandomStream,
    batch_arrivals,
    poisson_arrivals,
    random_stream,
    trace_arrivals,
)
from .attributes import JobAttributes, Tenant
from .carbon import Signal
from .drawn_attributes import AttributeDistribution
from .drift import Drift
from .errors import DecimaError
from .excerpt import Excerpt
from .grid_jobs import DISTRIBUTIONS, JobDistribution, JobSets, draw_jobs
from .job import (
    JobProfile,
    StageProfile,
    TaskDurations,
    Wave,
    WorkloadError,
)
from .scaling import scaled, simplified, uniform_memory
from .sources.alibaba import read_alibaba
from .sources.carbon import open_signal, read_signal, synthetic_signal
from .sources.open import embedded_workload, open_workload
from .sources.published_tpch import load_tpch, load_tpch_job
from .sources.swf import SwfLog, read_swf, read_swf_workload, swf_jobs
from .sources.synthetic import random_dag, synthetic_profiles
from .sources.tpch import embedded_tpch
from .sources.wfcommons import read_wfcommons
from .sources.workload_file import Workload, read_workload
from .sources.workload_writer import write_workload
from .spark.eventlog import read_event_log
from .spark.importing import SparkImport, import_event_logs
from .spark.model import SparkModel
from .windows import windows

__all__ = [
    "DISTRIBUTIONS",
    "AttributeDistribution",
    "DecimaError",
    "Drift",
    "Excerpt",
    "JobAttributes",
    "JobDistribution",
    "JobProfile",
    "JobSequence",
    "JobSets",
    "RandomStream",
    "Signal",
    "SparkImport",
    "SparkModel",
    "StageProfile",
    "SwfLog",
    "TaskDurations",
    "Tenant",
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
    "open_signal",
    "open_workload",
    "poisson_arrivals",
    "random_dag",
    "random_stream",
    "read_alibaba",
    "read_event_log",
    "read_signal",
    "read_swf",
    "read_swf_workload",
    "read_wfcommons",
    "read_workload",
    "scaled",
    "simplified",
    "swf_jobs",
    "synthetic_profiles",
    "synthetic_signal",
    "trace_arrivals",
    "uniform_memory",
    "windows",
    "write_workload",
]
