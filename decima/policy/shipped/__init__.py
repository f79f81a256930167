"""Trained policies that ship with the package, and which of them fits a workload.

Policy ``NAME`` is the file ``NAME.npz`` beside this one, as ``decima train`` writes it and ``decima.policy.files``
reads it. A missing file is refused where it is needed. This module imports nothing that takes long.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["SHIPPED", "default_policies", "specialists"]

#: Specialists: for evaluation settings inside their own training distribution only.
_SPECIALISTS = ("tpch-batch", "tpch-stream", "embedded-batch", "embedded-stream")

#: Name -> file. The first is for clusters of many sizes and moving delays, batches and streams of TPC-H and of random
#: DAGs. Those that pack learned from streams on executors of four classes: of published TPC-H profiles, and of the jobs
#: of an industrial trace. The others, the specialists, know batches of 20 jobs and streams on 50 executors, of
#: published profiles or embedded ones, and are better there than the first.
SHIPPED: dict[str, Path] = {
    name: Path(__file__).with_name(f"{name}.npz")
    for name in ("general", "packing-tpch", "packing-trace", *_SPECIALISTS)
}


def default_policies(num_classes: int = 1) -> tuple[str, ...]:
    """Return the names of the default policies for a number of executor classes, of those whose file exists."""
    return _there(("general",) if num_classes == 1 else ("packing-tpch", "packing-trace"))


def specialists() -> tuple[str, ...]:
    """Return the names of the specialists whose file exists."""
    return _there(_SPECIALISTS)


def _there(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if SHIPPED[name].is_file())
