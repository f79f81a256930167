"""Settings in policy files of former versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workloads.errors import PolicyFileError

__all__ = ["drop_rule"]

#: Settings for a rule inside the network. They had no effect at 0 or false.
_RULE_WEIGHTS = ("guard", "rule_stage_weight", "rule_limit_weight")


def drop_rule(path: Path, config: dict[str, Any]) -> None:
    """Remove settings of former versions, in which a network could change the scores of a rule.

    Raises:
        PolicyFileError: the decisions of this policy depend on the rule.
    """
    for name in _RULE_WEIGHTS:
        if config.pop(name, None):
            raise PolicyFileError(
                f"{path}: policy config: {name}: expected a network without a rule inside, which former versions had. "
                "The rule is a scheduler of its own, such as srpt-tuned"
            )
    config.pop("rule", None)
    config.pop("rule_constants", None)
