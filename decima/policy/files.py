"""Policies as files: plain arrays in a NumPy archive, which never executes code.

Each layer is ``NETWORK.LAYER.weight`` (float32, outputs x inputs) and ``NETWORK.LAYER.bias``; ``policy`` is a text,
JSON, with the version of the format, the policy's shape and whatever its maker says about it. An archive without
that text has the layout of the published Decima weights.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from decima.outputs import atomic_path
from decima.policy.config import DECIMA_SIM_POLICY, PolicyConfig
from decima.policy.policy import Policy
from workloads.errors import DecimaError

__all__ = ["PolicyFileError", "load_policy", "read_about", "read_archive", "save_policy", "write_archive"]

VERSION = 1
#: Of all arrays together, bytes; a policy has some ten thousand numbers.
LARGEST = 2**30


class PolicyFileError(DecimaError, ValueError):
    """A file that holds no policy. The message is one line that names the file and what was expected."""


def save_policy(path: Path, policy: Policy, about: Mapping[str, Any] | None = None) -> None:
    """Write a policy, in one step.

    Args:
        path: where; by custom it ends in ``.npz``.
        policy: what.
        about: anything that JSON can hold, such as the command that made it and its results.
    """
    text = json.dumps(
        {"version": VERSION, "config": policy.config.model_dump(mode="json"), "about": dict(about or {})}
    )
    write_archive(path, {"policy": np.array(text), **_arrays(policy)})


def load_policy(path: Path) -> Policy:
    """Read a policy.

    Raises:
        PolicyFileError: no archive of arrays, another version, or arrays that do not fit the shape it names.
    """
    arrays = read_archive(path)
    config = _head(path, arrays)[0] if "policy" in arrays else DECIMA_SIM_POLICY
    arrays.pop("policy", None)
    policy = Policy(config)
    expected = _arrays(policy)
    for name, wanted in expected.items():
        if name not in arrays:
            raise PolicyFileError(f"{path}: there is no array {name}")
        array = arrays[name]
        if array.shape != wanted.shape or array.dtype.kind != "f":
            raise PolicyFileError(
                f"{path}: {name} must be float of shape {wanted.shape}, got {array.dtype} {array.shape}"
            )
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(np.float32)
        if not np.isfinite(arrays[name]).all():
            raise PolicyFileError(f"{path}: {name} has weights that are not finite")
    for name in arrays:
        if name not in expected:
            raise PolicyFileError(f"{path}: there should be no array {name}")
    with torch.no_grad():
        for network, layer, linear in policy.layers():
            linear.weight.copy_(torch.from_numpy(arrays[f"{network}.{layer}.weight"]))
            linear.bias.copy_(torch.from_numpy(arrays[f"{network}.{layer}.bias"]))
    return policy


def read_about(path: Path) -> dict[str, Any]:
    """What a policy's maker says about it.

    Raises:
        PolicyFileError: as ``load_policy``, but the weights are not looked at.
    """
    arrays = read_archive(path)
    return _head(path, arrays)[1] if "policy" in arrays else {}


def _arrays(policy: Policy) -> dict[str, NDArray[np.float32]]:
    arrays = {}
    for network, layer, linear in policy.layers():
        arrays[f"{network}.{layer}.weight"] = linear.weight.detach().float().cpu().numpy()
        arrays[f"{network}.{layer}.bias"] = linear.bias.detach().float().cpu().numpy()
    return arrays


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
        with zipfile.ZipFile(path) as archive:
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


def _head(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[PolicyConfig, dict[str, Any]]:
    try:
        head = json.loads(str(arrays["policy"]))
        version = head["version"]
        if version != VERSION:
            raise PolicyFileError(f"{path}: format version {VERSION} expected, got {version!r}")
        return PolicyConfig.model_validate(head["config"]), dict(head.get("about", {}))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise PolicyFileError(f"{path}: policy config {place}: {first['msg']}") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        if isinstance(error, PolicyFileError):
            raise
        raise PolicyFileError(f"{path}: the text 'policy' is not what a policy file has: {error}") from None
