"""A policy's card: what it is, how it was made and how good it is, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["policy_card"]

#: Rows of the learning curve in a card.
CURVE_ROWS = 12


def policy_card(name: str, about: Mapping[str, Any]) -> str:
    """Markdown from what a policy file of ``decima train`` says about itself.

    Args:
        name: of the policy.
        about: see ``decima.agent.files.read_about``.
    """
    validation, curve = about["validation"], about["curve"]["rows"]
    results = [f"| {scheduler} | {seconds:.1f} |" for scheduler, seconds in validation["results"].items()]
    step = max(1, -(-len(curve) // CURVE_ROWS))
    shown = sorted({*range(0, len(curve), step), len(curve) - 1})
    learning = [f"| {curve[row][0]:.0f} | {curve[row][1]:.1f} | {curve[row][2]:+.1%} |" for row in shown]
    less = validation["improvement_over_tuned_weighted_fair"]
    lines = [
        f"# {name}",
        "",
        f"Trained with `{about['command']}`, seed {about['seed']}:",
        f"{about['training_cpu_s'] / 60:.0f} minutes of CPU time for {about['iterations_trained']} iterations.",
        f"This is the policy after iteration {about['iteration']}, the best on the validation sequences.",
        "",
        f"## On {validation['sequences']} validation sequences ({validation['objective']})",
        "",
        "| scheduler | |",
        "|---|---|",
        *results,
        "",
        f"That is {less:.1%} less than weighted fair sharing with the best alpha of each sequence. These sequences",
        "chose the best iteration, so unseen ones may be a little worse.",
        "",
        "## Learning curve",
        "",
        "| iteration | validation, s | less than tuned weighted fair |",
        "|---|---|---|",
        *learning,
        "",
        "## Settings",
        "",
        "```yaml",
        yaml.safe_dump(about["config"], sort_keys=False).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)
