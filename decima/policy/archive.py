"""Arrays by name in a file, a NumPy archive, which never executes code."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decima.outputs import atomic_path
from decima.policy.errors import PolicyFileError
from workloads.reading import open_regular
from workloads.sources.files import parse_json

__all__ = ["add_about", "checked_weights", "read_archive", "read_head", "write_archive"]

#: Of all arrays together, bytes; a policy has some ten thousand numbers.
LARGEST = 2**28


def write_archive(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name, in one step."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an archive, as ``numpy.load`` reads them, but for anything else that it would read.

    Raises:
        PolicyFileError: it cannot be read, or there is something else in it.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > LARGEST:
                raise ValueError("larger than any policy")
            if any(not member.filename.endswith(".npy") for member in members):
                raise ValueError("something is no array")
            contents = {member.filename.removesuffix(".npy"): archive.read(member) for member in members}
        return {
            name: np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
            for name, content in contents.items()
        }
    except Exception as error:  # there is no list of what damaged archives and arrays raise
        if isinstance(error, OSError) and error.strerror:
            raise PolicyFileError(f"{path}: {error.strerror}") from None
        raise PolicyFileError(
            f"{path}: not a policy, or cut off: expected a NumPy archive of arrays"
        ) from None


def read_head(
    path: Path, arrays: Mapping[str, NDArray[Any]], name: str, version: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the text of a policy file that says what the other arrays are.

    Args:
        path: named in errors.
        arrays: of the archive, by name.
        name: of the array that holds the text.
        version: of the format.

    Returns:
        The policy's shape, which is not checked, and what its maker says about it.

    Raises:
        PolicyFileError: there is no such text, or it is not a JSON object with that version.
    """
    text = arrays.get(name, np.zeros(0))
    expected = f"{path}: the text {name!r} is not what a policy file has"
    if text.shape or text.dtype.kind != "U":
        raise PolicyFileError(f"{expected}: expected a single text")
    try:
        head = parse_json(str(text))
    except RecursionError:
        raise PolicyFileError(f"{expected}: too many levels of brackets") from None
    except ValueError as error:
        raise PolicyFileError(f"{expected}: {error}") from None
    if not isinstance(head, dict):
        raise PolicyFileError(f"{expected}: expected an object")
    if (found := head.get("version")) != version or isinstance(found, bool):
        raise PolicyFileError(f"{path}: format version {version} expected, got {found!r:.60}")
    for key in ("config", "about"):
        if not isinstance(head.setdefault(key, {} if key == "about" else None), dict):
            raise PolicyFileError(f"{expected}: {key}: expected an object")
    return head["config"], head["about"]


def add_about(path: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """Let the file of a policy, for clusters or for grids, say more of it.

    Args:
        path: of the file, which is written anew.
        said: anything that JSON can hold.

    Returns:
        All that the file says then.

    Raises:
        PolicyFileError: as ``read_archive``.
    """
    arrays = read_archive(path)
    [name] = [name for name, array in arrays.items() if array.dtype.kind == "U"]
    head = json.loads(str(arrays[name]))
    head["about"] |= said
    write_archive(path, arrays | {name: np.array(json.dumps(head))})
    return dict(head["about"])


def checked_weights(
    path: Path, arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float32]]:
    """The arrays as float32, if they are those that are expected.

    Args:
        path: named in errors.
        arrays: by name.
        shapes: of the expected ones.

    Raises:
        PolicyFileError: one is missing, unknown, of another shape or type, or has weights that are not finite.
    """
    weights = {}
    for name in sorted(arrays.keys() | shapes.keys()):
        if name not in arrays or name not in shapes:
            raise PolicyFileError(f"{path}: the array {name} is missing or unknown")
        array = arrays[name]
        if array.shape != shapes[name] or array.dtype.kind != "f":
            raise PolicyFileError(
                f"{path}: {name} must be float of shape {shapes[name]}, got {array.dtype} {array.shape}"
            )
        with np.errstate(over="ignore"):
            weights[name] = array.astype(np.float32, order="C")
        if not np.isfinite(weights[name]).all():
            raise PolicyFileError(f"{path}: {name} has weights that are not finite")
    return weights
