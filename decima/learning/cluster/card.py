"""A policy's card: what it is, how it was made and how good it is, for people to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

__all__ = ["policy_card", "write_card"]

#: Rows of the learning curve in a card.
CURVE_ROWS = 12


def policy_card(name: str, about: Mapping[str, Any]) -> str:
    """Markdown from what a policy file of ``decima train`` says about itself.

    Args:
        name: of the policy.
        about: see ``decima.policy.files.read_about``.
    """
    validation = about["validation"]
    less = validation["improvement_over_tuned_weighted_fair"]
    return write_card(
        name,
        about,
        about["config"],
        heading=f"{validation['sequences']} validation sequences ({validation['objective']})",
        table=[
            "| scheduler | |",
            "|---|---|",
            *(f"| {scheduler} | {seconds:.1f} |" for scheduler, seconds in validation["results"].items()),
        ],
        verdict=f"That is {less:.1%} less than weighted fair with the best alpha of each sequence. These sequences",
        columns=("validation, s", "less than tuned weighted fair"),
    )


def write_card(
    name: str,
    about: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    heading: str,
    table: Sequence[str],
    verdict: str,
    columns: tuple[str, str],
    digits: int = 1,
) -> str:
    """Markdown from what a trained policy says about itself.

    Args:
        name: of the policy.
        about: its command, seed, iterations, CPU time and learning curve.
        config: the settings.
        heading: what it was validated on.
        table: lines of the results.
        verdict: a sentence about them, and how the next one begins.
        columns: what the learning curve shows beside the iteration.
        digits: of the first of them, behind the point.
    """
    curve = about["curve"]["rows"]
    step = max(1, -(-len(curve) // CURVE_ROWS))
    shown = sorted({*range(0, len(curve), step), len(curve) - 1})
    learning = [
        f"| {curve[row][0]:.0f} | {curve[row][1]:.{digits}f} | {curve[row][2]:+.1%} |" for row in shown
    ]
    lines = [
        f"# {name}",
        "",
        f"Trained with `{about['command']}`, seed {about['seed']}:",
        f"{about['training_cpu_s'] / 60:.0f} minutes of CPU time for {about['iterations_trained']} iterations.",
        f"This is the policy after iteration {about['iteration']}, the best on the validation sequences.",
        "",
        f"## On {heading}",
        "",
        *table,
        "",
        verdict,
        "chose the best iteration, so unseen ones may be a little worse.",
        "",
        "## Learning curve",
        "",
        f"| iteration | {columns[0]} | {columns[1]} |",
        "|---|---|---|",
        *learning,
        "",
        "## Settings",
        "",
        "```yaml",
        yaml.safe_dump(dict(config), sort_keys=False).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)
