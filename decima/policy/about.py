"""Information about the training in a policy file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decima.policy.archive import read_archive
from decima.policy.files import HEAD, head_of, policy_path

__all__ = ["TRAINED_ON", "read_about"]

#: Key of the training distribution.
TRAINED_ON = "trained_on"


def read_about(path: str | Path) -> dict[str, Any]:
    """Return the information about the training in a policy file; empty for the published Decima weights.

    Args:
        path: path of a policy file, or name of a shipped policy.

    Raises:
        PolicyFileError: the file or its text is malformed. Weights, custom parts and the training distribution are
            not checked.
    """
    path = policy_path(path)
    arrays = read_archive(path)
    return head_of(path, arrays)[1] if HEAD in arrays else {}
