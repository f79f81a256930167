"""Names and files of the trained policies that ship with the package.

Policy ``NAME`` is the file ``NAME.npz`` in this folder, written by ``decima train`` and read by
``decima.policy.files``. A missing file is an error only when it is used. This module imports quickly.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["KNOWN_BATCHES_ONLY", "SHIPPED", "specialists"]

#: Policies for evaluation settings like those of their training.
_SPECIALISTS = (
    "tpch-batch", "tpch-stream", "embedded-batch", "embedded-stream", "embedded-errors",
)  # fmt: skip
#: Specialists that are worse than ``srpt-tuned`` in streams, and if an estimator predicts jobs from their DAGs.
KNOWN_BATCHES_ONLY = ("embedded-errors",)
#: Policies that are never a default: that of executor classes is not better than the rule ``srpt-tuned``, two are of
#: the paper's training alone.
_BY_NAME = ("packing-tpch", "paper-batch", "paper-stream")

#: Name of a shipped policy -> its file. They were trained on 50 executors, on batches of 20 jobs or streams of
#: published or embedded profiles, ``embedded-errors`` on both with wrong estimates, and ``packing-tpch`` on streams of
#: published profiles on 200 executors of four classes. ``paper-batch`` and ``paper-stream`` show how far the paper's
#: method gets in the settings of ``tpch-batch`` and ``tpch-stream``, which are better.
SHIPPED: dict[str, Path] = {
    name: Path(__file__).with_name(f"{name}.npz") for name in (*_SPECIALISTS, *_BY_NAME)
}


def specialists() -> tuple[str, ...]:
    """Return the names of policies for their own training distribution only; missing files are left out."""
    return tuple(name for name in _SPECIALISTS if SHIPPED[name].is_file())
