"""Peak memory of a benchmark, independent of earlier code in the same process."""

import resource
from collections.abc import Callable
from pathlib import Path

_RESET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def measure_memory() -> Callable[[], float]:
    """Start measuring; return a function that returns the peak memory since then above the current level, GB.

    On systems without this value, the peak of the whole process is used.
    """
    if not _RESET.exists():
        return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    _RESET.write_text("5")
    before = _status_gb("VmRSS")
    return lambda: _status_gb("VmHWM") - before


def _status_gb(name: str) -> float:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 2**20
