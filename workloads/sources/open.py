"""The workload that somebody names, by a folder or a file, or none and gets the embedded one."""

from __future__ import annotations

from pathlib import Path

from workloads.sources.tpch_measured import embedded_workload
from workloads.sources.tpch_published import load_tpch
from workloads.sources.workload_file import Workload, read_workload

__all__ = ["open_workload"]


def open_workload(profiles: Path | None = None, file: Path | None = None) -> Workload:
    """Read a workload.

    Args:
        profiles: folder of the published TPC-H profiles; goes before ``file``.
        file: a workload file. If neither is given, it is the embedded TPC-H set.

    Raises:
        WorkloadError: it is malformed.
        OSError: it cannot be read.
    """
    if profiles is not None:
        return Workload(load_tpch(profiles), None, profiles.resolve().name)
    return embedded_workload() if file is None else read_workload(file)
