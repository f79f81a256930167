"""Networks as public re-implementations of Decima have them, to compare ours with: by settings alone."""

from __future__ import annotations

__all__ = ["ATTENTION", "NOTE", "PLAIN", "anchors"]

PLAIN, ATTENTION = "plain GNN", "attention"

NOTE = (
    f"As in public re-implementations, {PLAIN}: sums without a second network behind them, and an output for each "
    f"limit, which is no input; {ATTENTION}: weighted means over children in place of sums."
)


def anchors(executors: int) -> dict[str, dict[str, object]]:
    """What differs from the full policy: fields of ``PolicyConfig``, by name.

    Args:
        executors: of the cluster; as many limits have outputs.
    """
    plain: dict[str, object] = {"aggregate": False, "summary_aggregate": False}
    outputs: dict[str, object] = {"limit": "outputs", "num_limits": executors, "wait": False}
    return {PLAIN: plain | outputs, ATTENTION: {"encoder": "attention"}}
