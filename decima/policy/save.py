"""Write policy files, see ``files``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from decima.outputs import atomic_path
from decima.policy.files import HEAD, VERSION, read_archive

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor

__all__ = ["add_about", "save_policy", "write_archive", "write_policy"]


def save_policy(path: str | Path, policy: Actor | Policy, about: Mapping[str, Any] | None = None) -> None:
    """Write a policy file atomically.

    Args:
        path: path of the file, by convention with the suffix ``.npz``.
        policy: policy to write.
        about: JSON-compatible information about the training, such as its command and results.
    """
    write_policy(Path(path), policy.config, policy.arrays, about or {}, HEAD, VERSION)


def add_about(path: Path, more: Mapping[str, Any]) -> dict[str, Any]:
    """Add information about the training to a policy file, for clusters or for DeepRM's grid.

    Args:
        path: path of the file, which is rewritten.
        more: JSON-compatible information by key; replaces keys that exist.

    Returns:
        All information about the training in the new file.

    Raises:
        PolicyFileError: see ``read_archive``.
    """
    arrays = read_archive(path)
    [name] = [name for name, array in arrays.items() if array.dtype.kind == "U"]
    head = json.loads(str(arrays[name]))
    head["about"] |= more
    write_archive(path, arrays | {name: np.array(json.dumps(head))})
    return dict(head["about"])


def write_policy(
    path: Path,
    config: BaseModel,
    arrays: Mapping[str, NDArray[Any]],
    about: Mapping[str, Any],
    head: str,
    version: int,
) -> None:
    """Write a policy file atomically.

    Args:
        config: configuration of the policy.
        arrays: weights by name.
        about: JSON-compatible information about the training, such as its command and results.
        head: name of the array with the JSON text.
        version: format version.
    """
    text = json.dumps({"version": version, "config": config.model_dump(mode="json"), "about": dict(about)})
    write_archive(path, {head: np.array(text), **arrays})


def write_archive(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write named arrays atomically."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)
