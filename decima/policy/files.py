"""Read policy files: NumPy archives of plain arrays, so that reading a policy never executes code.

The array ``policy`` is JSON text with the format version, the policy's configuration (``config``) and free
information about the training (``about``). The other arrays are weights: ``NETWORK.LAYER.weight`` (float32,
[outputs, inputs]) and ``NETWORK.LAYER.bias``; arrays of custom parts are ``encoder.NAME``, ``stage_head.NAME`` or
``limit_head.NAME``. Archives without the array ``policy`` are the published Decima weights.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from decima import policy
from decima.policy.config import PolicyConfig
from decima.policy.parts import PartError, PolicyFileError, find_allowed_part
from decima.policy.shipped import SHIPPED
from decima.schedulers.former_names import FORMER_RULES, present_name
from workloads.errors import did_you_mean
from workloads.reading import open_regular, parse_json
from workloads.sources.file_format import first_problem

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor

__all__ = [
    "TRAINED_ON", "checked", "checked_weights", "load_actor", "load_policy", "make_actor", "policy_path", "read_about",
    "read_archive", "read_head",
]  # fmt: skip

Model = TypeVar("Model", bound=BaseModel)

VERSION = 1
HEAD = "policy"
#: Name of the policy file in the folder of a training.
POLICY = "policy.npz"
#: Key of the training distribution in ``about``.
TRAINED_ON = "trained_on"
#: Maximum size of all arrays of a file together, bytes; a policy has about ten thousand weights.
LARGEST = 2**27
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def policy_path(name: str | Path) -> Path:
    """Return the path of a policy file.

    Args:
        name: name of a shipped policy, path of a file, or folder of a training, which contains ``policy.npz``; a
            ``Path`` is returned unchanged.

    Raises:
        PolicyFileError: no shipped policy and no file has this name, or the folder contains no policy.
    """
    if isinstance(name, Path):
        return name
    path = SHIPPED.get(name, Path(name))
    if (path / POLICY).is_file():
        return path / POLICY
    if path.is_file():
        return path
    what = "is missing in this installation" if name in SHIPPED else "is neither a file nor a shipped policy"
    raise PolicyFileError(
        f"the policy {name!r} {what}{did_you_mean(name, SHIPPED)}: expected a policy file or one of "
        + ", ".join(SHIPPED)
    )


# Reading.


def load_actor(path: str | Path) -> Actor | Policy:
    """Read a policy for inference: as compiled code, or as PyTorch networks if a network is custom.

    Args:
        path: path of a policy file, or name of a shipped policy.

    Raises:
        PolicyFileError: the file is malformed, has another format version, weights that do not match its
            configuration, or custom parts that are not allowed (see ``parts.allow_parts``).
        PartError: a custom part cannot be loaded.
    """
    path = policy_path(path)
    config, arrays = _read(path)
    if config.is_compiled:
        return policy.Actor(config, checked_weights(path, arrays, config.array_shapes))
    return load_policy(path)


def load_policy(path: str | Path) -> Policy:
    """Read a policy as PyTorch networks, for training or probabilities; ``load_actor`` decides faster.

    Args:
        path: path of a policy file, or name of a shipped policy.

    Raises:
        PolicyFileError: see ``load_actor``.
        PartError: a custom part cannot be loaded.
    """
    path = policy_path(path)
    config, arrays = _read(path)
    network = policy.Policy(config)  # imports PyTorch only now
    network.take(checked_weights(path, arrays, {name: each.shape for name, each in network.arrays.items()}))
    return network


def make_actor(config: PolicyConfig, arrays: Mapping[str, NDArray[np.float32]]) -> Actor | Policy:
    """Build a policy for inference from its configuration and weights.

    Args:
        config: configuration of the policy.
        arrays: float32 weights, with names and shapes as in ``Policy.arrays``.

    Raises:
        PartError: a custom part cannot be loaded.
    """
    if config.is_compiled:
        return policy.Actor(config, arrays)
    network = policy.Policy(config)  # imports PyTorch only now
    network.take({name: array.copy() for name, array in arrays.items()})  # PyTorch refuses read-only arrays
    return network


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
    return _head(path, arrays)[1] if HEAD in arrays else {}


def _read(path: Path) -> tuple[PolicyConfig, dict[str, NDArray[Any]]]:
    """Return a policy's configuration, with custom parts that are allowed, and its weights, not yet checked."""
    arrays = read_archive(path)
    if HEAD not in arrays and any(array.dtype.kind == "U" for array in arrays.values()):
        raise PolicyFileError(f"{path}: a policy of decima deeprm train; expected one of decima train")
    config = _head(path, arrays)[0] if HEAD in arrays else policy.PRESETS["decima-sim"]
    arrays.pop(HEAD, None)
    for part in config.custom_parts:
        try:
            find_allowed_part(part.name, part.base)
        except PartError as error:
            raise PolicyFileError(f"{path}: {part.key}: {error}") from None
    return config, arrays


def _head(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[PolicyConfig, dict[str, Any]]:
    config, about = read_head(path, arrays, HEAD, VERSION)
    if (rule := str(config.get("rule"))) in FORMER_RULES:
        config["rule"] = FORMER_RULES[rule]
    if isinstance(constants := config.get("rule_constants"), dict):
        config["rule_constants"] = {present_name(name): value for name, value in constants.items()}
    return checked(path, PolicyConfig, config, "policy config"), about


def checked(path: Path, model: type[Model], value: object, place: str) -> Model:
    """Validate a part of a policy file; ``place`` names it in errors.

    Raises:
        PolicyFileError: a key is unknown or has a wrong value.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise PolicyFileError(f"{path}: {place}: {first_problem(error, model)}") from None


# Archives of arrays, shared with networks for DeepRM's grid.


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Read named arrays of an archive as ``numpy.load`` does, and refuse any other content.

    Raises:
        PolicyFileError: the file cannot be read or contains anything but arrays.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > LARGEST:
                raise ValueError("larger than any policy")
            if any(member.compress_type not in _COMPRESSIONS for member in members):
                raise ValueError("a compression that NumPy does not use, and that may take any memory")
            if any(not member.filename.endswith(".npy") for member in members):
                raise ValueError("an entry is not an array")
            return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    except Exception as error:  # damaged archives raise exceptions of any type
        if isinstance(error, OSError) and error.strerror:
            raise PolicyFileError(f"{path}: {error.strerror}") from None
        raise PolicyFileError(
            f"{path}: not a policy, or truncated: expected a NumPy archive of arrays"
        ) from None


def _array(content: bytes) -> NDArray[Any]:
    """Return the array in the content of a .npy file. Its size must be as declared, before memory is taken for it."""
    stream = io.BytesIO(content)
    read_header = _HEADERS[np.lib.format.read_magic(stream)]
    shape, is_fortran, dtype = read_header(stream)
    begin = stream.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - begin:
        raise ValueError("a malformed array")
    return np.ndarray(shape, dtype, content, begin, order="F" if is_fortran else "C")


def read_head(
    path: Path, arrays: Mapping[str, NDArray[Any]], name: str, version: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the JSON text of a policy file.

    Args:
        path: path of the file, for error messages.
        arrays: arrays of the file by name.
        name: name of the array that contains the text.
        version: expected format version.

    Returns:
        The configuration, not yet validated (see ``checked``), and the information about the training.

    Raises:
        PolicyFileError: the text is missing, or is not a JSON object of this format version.
    """
    text = arrays.get(name, np.zeros(0))
    expected = f"{path}: the text {name!r} is malformed"
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


def checked_weights(
    path: Path, arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float32]]:
    """Check names, shapes and values of weights, and return the weights as float32.

    Args:
        path: path of the file, for error messages.
        arrays: arrays by name.
        shapes: expected shapes by name.

    Raises:
        PolicyFileError: an array is missing or unknown, has another shape or type, or is not finite.
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
