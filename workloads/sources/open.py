"""Open a workload by name: a workload that comes with the project, a folder, or a file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from workloads.arrivals import Drift
from workloads.errors import check_path, did_you_mean
from workloads.job import WorkloadError
from workloads.sources.synthetic import synthetic_profiles
from workloads.sources.tpch_measured import embedded_workload
from workloads.sources.tpch_published import load_tpch
from workloads.sources.workload_file import Workload, read_workload

__all__ = ["EMBEDDED", "SYNTHETIC", "open_drift", "open_workload"]

#: The names of the workloads that come with the project.
EMBEDDED, SYNTHETIC = "tpch", "synthetic"


def open_workload(name_or_path: str | Path = EMBEDDED) -> Workload:
    """Read a workload of any kind.

    Args:
        name_or_path: the text ``tpch`` for the embedded TPC-H set, extrapolated from Spark at 1 and 2 GB;
            ``synthetic`` for the first random DAGs of ``synthetic_profiles``; a folder of the published TPC-H
            profiles; or a workload file. A folder of your own that is called ``tpch`` is ``./tpch``.

    Raises:
        WorkloadError: there is nothing of that name, or it is malformed.
    """
    if name_or_path == EMBEDDED:
        return embedded_workload()
    if name_or_path == SYNTHETIC:
        return _synthetic()
    path = check_path(name_or_path, "name_or_path", WorkloadError)
    if path.is_dir():
        return Workload(load_tpch(path), None, path.resolve().name)
    if not path.exists():
        raise WorkloadError(
            f"{name_or_path}: no such workload{did_you_mean(name_or_path, (EMBEDDED, SYNTHETIC))}, expected {EMBEDDED} "
            f"(extrapolated from Spark at 1 and 2 GB), {SYNTHETIC} (random DAGs), a folder of the published TPC-H "
            "profiles, or a workload file"
        )
    return read_workload(path)


def open_drift(text: str) -> Drift:
    """Read a change of a stream of jobs, ``AT:RATE[:WORKLOAD]``.

    Args:
        text: time of the change, s; factor on the arrival rate; and what ``open_workload`` takes, whose arrivals do
            not matter. Without a workload, the jobs stay the same.

    Raises:
        WorkloadError: the text has another form, a number is out of range, or the workload cannot be read.
    """
    at, _, rest = text.partition(":")
    rate, _, name = rest.partition(":")
    try:
        numbers = float(at), float(rate)
    except ValueError:
        raise WorkloadError(
            f"drift {text!r}: expected AT:RATE[:WORKLOAD], a time in seconds and a factor on the arrival rate"
        ) from None
    workload = open_workload(name) if name else None
    return Drift(1000 * numbers[0], numbers[1], *((workload.profiles, workload.name) if workload else ()))


@lru_cache(maxsize=1)
def _synthetic() -> Workload:
    return Workload(synthetic_profiles(), None, "random DAGs")
