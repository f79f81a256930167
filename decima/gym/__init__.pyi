from .named import deeprm, deeprm_vector, tpch_batch, tpch_batch_vector, tpch_stream, tpch_stream_vector
from .scheduler import GridPolicyScheduler, PolicyScheduler, as_grid_scheduler, as_scheduler

IDS: dict[str, tuple[str, str]]

__all__ = [
    "GridPolicyScheduler",
    "PolicyScheduler",
    "as_grid_scheduler",
    "as_scheduler",
    "deeprm",
    "deeprm_vector",
    "tpch_batch",
    "tpch_batch_vector",
    "tpch_stream",
    "tpch_stream_vector",
]
