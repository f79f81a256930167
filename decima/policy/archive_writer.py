"""Write archives of policies, see ``decima.policy.archive``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from decima.outputs import atomic_path

__all__ = ["write_archive", "write_policy"]


def write_policy(
    path: Path,
    config: BaseModel,
    arrays: Mapping[str, NDArray[Any]],
    about: Mapping[str, Any],
    head: str,
    version: int,
    **more: Any,
) -> None:
    """Write a policy file atomically.

    Args:
        config: configuration of the policy.
        arrays: weights by name.
        about: JSON-compatible information about the training, such as its command and results.
        head: name of the array with the JSON text.
        version: format version.
        more: other entries of the JSON text by key.
    """
    text = {"version": version, "config": config.model_dump(mode="json"), "about": dict(about), **more}
    write_archive(path, {head: np.array(json.dumps(text)), **arrays})


def write_archive(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write named arrays atomically."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)
