from .interface import (
    PolicyScheduler,
    as_scheduler,
    deeprm,
    tpch_batch,
    tpch_batch_vector,
    tpch_stream,
    tpch_stream_vector,
)

IDS: dict[str, tuple[str, str]]

__all__ = [
    "PolicyScheduler",
    "as_scheduler",
    "deeprm",
    "tpch_batch",
    "tpch_batch_vector",
    "tpch_stream",
    "tpch_stream_vector",
]
