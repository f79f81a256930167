"""Open a workload by its name or path."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from workloads.errors import check_path, did_you_mean
from workloads.job import WorkloadError
from workloads.sources.workload_file import Workload, read_workload

# Only the reader of the workload that is asked for is imported.
__all__ = ["EMBEDDED", "SYNTHETIC", "embedded_workload", "open_workload"]

#: Names of the workloads that ship with the project.
EMBEDDED, SYNTHETIC = "tpch", "synthetic"


def open_workload(name_or_path: str | Path = EMBEDDED) -> Workload:
    """Open a workload by its name or path.

    Args:
        name_or_path: ``tpch`` for the embedded TPC-H set, extrapolated from Spark at 1 and 2 GB; ``synthetic`` for the
            first random DAGs of ``synthetic_profiles``; a folder of the published TPC-H profiles; or a workload file.
            Use ``./tpch`` for a folder of the name ``tpch``.

    Raises:
        WorkloadError: the name or path is unknown, or the workload is malformed.
    """
    if name_or_path == EMBEDDED:
        return embedded_workload()
    if name_or_path == SYNTHETIC:
        return _synthetic()
    path = check_path(name_or_path, "name_or_path", WorkloadError)
    if path.is_dir():
        from workloads.sources.published_tpch import load_tpch

        return Workload(load_tpch(path), None, path.resolve().name)
    if not path.exists():
        raise WorkloadError(
            f"{name_or_path}: no such workload{did_you_mean(name_or_path, (EMBEDDED, SYNTHETIC))}, expected {EMBEDDED} "
            f"(extrapolated from Spark at 1 and 2 GB), {SYNTHETIC} (random DAGs), a folder of the published TPC-H "
            "profiles, or a workload file"
        )
    return read_workload(path)


@cache
def embedded_workload() -> Workload:
    """Return the embedded TPC-H set, see ``workloads.sources.tpch``: all queries of the first size, then of the next.

    ``about`` gives versions, machine, commands, dates, scale factors, executors and parameters of the model.
    """
    with as_file(files("workloads") / "data" / "tpch-spark.json.gz") as path:
        return read_workload(path)


@cache
def _synthetic() -> Workload:
    from workloads.sources.synthetic import synthetic_profiles

    return Workload(synthetic_profiles(), None, "random DAGs")
