"""Information about the training in a policy file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decima.policy.archive import checked, read_archive
from decima.policy.distribution import Distribution
from decima.policy.file_format import HEAD, TRAINED_ON
from decima.policy.files import head_of, policy_path

__all__ = ["read_about", "read_trained_on"]


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


def read_trained_on(path: str | Path) -> Distribution | None:
    """Return the training distribution of a policy; None if the policy file does not contain it.

    Args:
        path: path of a policy file, or name of a shipped policy.

    Raises:
        PolicyFileError: the file, its text or its training distribution is malformed.
    """
    about = read_about(path)
    if TRAINED_ON not in about:
        return None
    return checked(policy_path(path), Distribution, about[TRAINED_ON], f"about.{TRAINED_ON}")
