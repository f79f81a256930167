"""The card of a network for grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decima.learning.cluster.card import write_card

__all__ = ["network_card"]

SHOWN = ("slowdown", "completion", "waiting")


def network_card(name: str, config: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Markdown from what a network file of ``decima deeprm train`` says about itself.

    Args:
        name: of the network.
        config: the settings of its training.
        about: see ``decima.policy.grid.files.read_about``.
    """
    validation = about["validation"]
    rows = (
        f"| {scheduler} | {' | '.join(f'{measures[each]:.2f}' for each in SHOWN)} |"
        for scheduler, measures in validation["results"].items()
    )
    less = validation["improvement_over_best_heuristic"]
    return write_card(
        name,
        about,
        config,
        heading=f"{validation['sets']} validation sets (means over jobs; times are steps)",
        table=[f"| scheduler | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|", *rows],
        verdict=f"Its {validation['objective']} is {less:.1%} better than that of the best heuristic. These sets",
        columns=(f"validation {validation['objective']}", "better than the best heuristic"),
        digits=2,
    )
