"""Write policy files, see ``files``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from decima.policy.archive_writer import write_archive, write_policy
from decima.policy.file_format import FEW_JOBS, HEAD, VERSION

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor

__all__ = ["add_about", "save_policy"]


def save_policy(path: str | Path, policy: Actor | Policy, about: Mapping[str, Any] | None = None) -> None:
    """Write a policy file atomically.

    Args:
        path: path of the file, by convention with the suffix ``.npz``.
        policy: policy to write.
        about: JSON-compatible information about the training, such as its command and results.
    """
    arrays, more = dict(policy.arrays), {}
    if few := policy.few_jobs:
        arrays |= {f"{FEW_JOBS}.{name}": array for name, array in few.policy.arrays.items()}
        more[FEW_JOBS] = {"at_most": few.at_most, "config": few.policy.config.model_dump(mode="json")}
    write_policy(Path(path), policy.config, arrays, about or {}, HEAD, VERSION, **more)


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
    from decima.policy.archive import read_archive

    arrays = read_archive(path)
    [name] = [name for name, array in arrays.items() if array.dtype.kind == "U"]
    head = json.loads(str(arrays[name]))
    head["about"] |= more
    write_archive(path, arrays | {name: np.array(json.dumps(head))})
    return dict(head["about"])
