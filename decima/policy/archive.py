"""Read archives of policies: NumPy archives of plain arrays, one of which is a JSON text.

Reading never executes code. ``decima.policy.files`` has the policies for clusters, ``decima.policy.grid`` those for
DeepRM's grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from workloads.archive import read_arrays
from workloads.errors import PolicyFileError, WorkloadError
from workloads.reading import parse_json

__all__ = [
    "checked", "checked_weights", "read_archive", "read_head",
]  # fmt: skip

Model = TypeVar("Model", bound=BaseModel)


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Read named arrays of an archive as ``numpy.load`` does, and refuse any other content.

    Raises:
        PolicyFileError: the file cannot be read or contains anything but arrays.
    """
    try:
        return read_arrays(path, "policy")
    except WorkloadError as error:
        raise PolicyFileError(str(error)) from None


def read_head(path: Path, arrays: Mapping[str, NDArray[Any]], name: str, version: int) -> dict[str, Any]:
    """Parse the JSON text of a policy file.

    Args:
        path: path of the file, for error messages.
        arrays: arrays of the file by name.
        name: name of the array that contains the text.
        version: expected format version.

    Returns:
        Its entries, not yet validated (see ``checked``). Among them are two objects: ``config``, the configuration, and
        ``about``, information about the training.

    Raises:
        PolicyFileError: the text is missing, or is not a JSON object of this format version.
    """
    text = arrays.get(name, np.zeros(0))
    expected = f"{path}: the text {name!r} is malformed"
    if text.shape or text.dtype.kind != "U":
        raise PolicyFileError(f"{expected}: expected a single text")
    try:
        head = parse_json(str(text))
    except ValueError as error:
        raise PolicyFileError(f"{expected}: {error}") from None
    if not isinstance(head, dict):
        raise PolicyFileError(f"{expected}: expected an object")
    if (file_version := head.get("version")) != version or isinstance(file_version, bool):
        raise PolicyFileError(f"{path}: format version {version} expected, got {file_version!r:.60}")
    for key in ("config", "about"):
        if not isinstance(head.setdefault(key, {} if key == "about" else None), dict):
            raise PolicyFileError(f"{expected}: {key}: expected an object")
    return head


def checked_weights(
    path: Path, arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]], within: str = ""
) -> dict[str, NDArray[np.float32]]:
    """Check names, shapes and values of weights, and return the weights as float32.

    Args:
        path: path of the file, for error messages.
        arrays: arrays by name.
        shapes: expected shapes by name.
        within: beginning of the names in the file, for error messages.

    Raises:
        PolicyFileError: an array is missing or unknown, has another shape or type, or is not finite.
    """
    weights = {}
    for name in sorted(arrays.keys() | shapes.keys()):
        if name not in arrays or name not in shapes:
            raise PolicyFileError(f"{path}: the array {within}{name} is missing or unknown")
        array = arrays[name]
        if array.shape != shapes[name] or array.dtype.kind != "f":
            raise PolicyFileError(
                f"{path}: {within}{name} must be float of shape {shapes[name]}, got {array.dtype} {array.shape}"
            )
        with np.errstate(over="ignore"):
            weights[name] = array.astype(np.float32, order="C")
        if not np.isfinite(weights[name]).all():
            raise PolicyFileError(f"{path}: {within}{name} has weights that are not finite")
    return weights


def checked(path: Path, model: type[Model], value: object, key: str) -> Model:
    """Validate a part of a policy file; ``key`` names it in errors.

    Raises:
        PolicyFileError: a key is unknown or has a wrong value.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        from workloads.validation import first_error

        raise PolicyFileError(f"{path}: {key}: {first_error(error, model)}") from None
