"""Trained policies that ship with the package, and which of them fits a workload.

Policy ``NAME`` is the file ``NAME.npz`` beside this one, as ``decima train`` writes it and ``decima.policy.files``
reads it. What is not there is refused by whoever needs it. This module imports nothing that takes long.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from workloads import Workload

__all__ = ["SHIPPED", "default_policy"]

#: Name of a TPC-H job.
_QUERY = r"tpch-q\d+-\d+g"

#: Name -> file. They learned from the published TPC-H profiles or from the embedded ones, in batches or streams;
#: the one that packs learned from streams of published profiles on executors of four classes.
SHIPPED: dict[str, Path] = {
    name: Path(__file__).with_name(f"{name}.npz")
    for name in (
        "tpch-batch",
        "tpch-stream",
        "embedded-batch",
        "embedded-stream",
        "packing-tpch",
    )
}


def default_policy(workload: Workload, arrivals: Literal["batch", "poisson"], num_classes: int = 1) -> str:
    """The name of the policy that learned from what is most like a workload, however unlike that may be.

    Args:
        workload: where jobs come from.
        arrivals: how they arrive, unless the workload says so itself.
        num_classes: of executors.
    """
    if num_classes > 1:
        return "packing-tpch"
    profiles = "tpch" if _is_published(workload) else "embedded"
    if workload.sequence is not None:
        arrival_ms = workload.sequence.arrival_ms
        arrivals = "poisson" if arrival_ms[-1] > arrival_ms[0] else "batch"
    return f"{profiles}-{'stream' if arrivals == 'poisson' else 'batch'}"


def _is_published(workload: Workload) -> bool:
    """Whether all jobs are published TPC-H profiles. The embedded ones have their names, but name the stages too."""
    return all(
        re.fullmatch(_QUERY, profile.name) and not any(stage.name for stage in profile.stages)
        for profile in workload.profiles
    )
