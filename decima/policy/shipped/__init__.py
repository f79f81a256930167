"""Names and files of the trained policies that ship with the package.

Policy ``NAME`` is the file ``NAME.npz`` in this folder, written by ``decima train`` and read by
``decima.policy.files``. A missing file is an error only when it is used. This module imports quickly.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["BATCHES_ONLY", "SHIPPED", "default_policies", "objective_policy", "specialists"]

#: Policies for executors of several classes; the first one is preferred to others that fit as well.
_PACKING = ("packing", "packing-tpch", "packing-trace")
#: Specialists: policies only for evaluation settings inside their own training distribution.
_SPECIALISTS = ("tpch-batch", "tpch-stream", "embedded-batch", "embedded-stream", "embedded-errors")
#: Specialists that are better than ``general`` in batches, and worse in streams, although they were trained on both.
BATCHES_ONLY = ("embedded-errors",)

#: Metric of ``decima compare --show`` -> policy that was trained for it.
_OBJECTIVES = {"misses": "tpch-misses", "weighted": "tpch-weighted"}

#: Policies of the paper's training alone, without any rule; never a default.
_PAPER = ("paper-batch", "paper-stream")

#: Name of a shipped policy -> its file. ``general`` was trained on clusters of many sizes and moving delays, with
#: batches and streams of TPC-H and random DAGs. ``packing`` and ``packing-*`` were trained on streams with four
#: executor classes, of published TPC-H profiles or of jobs of an industrial trace; ``packing`` decides as the rule
#: ``srpt-tuned``. Specialists were trained on 50 executors, on batches of 20 jobs or streams of published or
#: embedded profiles, ``embedded-errors`` on both with wrong estimates. There, they are better than ``general`` in
#: batches, and as good in streams. ``tpch-misses`` and ``tpch-weighted`` are for other objectives than the mean JCT, in
#: streams of published profiles on 50 executors. ``paper-batch`` and ``paper-stream`` show how far the paper's method
#: gets in the settings of ``tpch-batch`` and ``tpch-stream``, which are better.
SHIPPED: dict[str, Path] = {
    name: Path(__file__).with_name(f"{name}.npz")
    for name in ("general", *_PACKING, *_SPECIALISTS, *_OBJECTIVES.values(), *_PAPER)
}


def default_policies(num_classes: int = 1) -> tuple[str, ...]:
    """Return the names of the default policies for a number of executor classes; missing files are left out."""
    return _existing(("general",) if num_classes == 1 else _PACKING)


def specialists() -> tuple[str, ...]:
    """Return the names of policies for their own training distribution only; missing files are left out."""
    return _existing(_SPECIALISTS)


def objective_policy(metric: str) -> str | None:
    """Return the name of the policy trained for a metric of ``decima compare --show``; None if none ships."""
    return next(iter(_existing([_OBJECTIVES[metric]] if metric in _OBJECTIVES else [])), None)


def _existing(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if SHIPPED[name].is_file())
