"""Names of custom classes of users, ``module:Class``; ``workloads.custom_code`` runs their code."""

from __future__ import annotations

import re

__all__ = ["is_custom"]

#: Name of a user's class.
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_custom(name: str) -> bool:
    """Return whether a name has the form ``module:Class``."""
    return _NAME.fullmatch(name) is not None
