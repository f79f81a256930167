"""Read policy files: NumPy archives of plain arrays, so that reading a policy never executes code.

The array ``policy`` is JSON text with the format version, the policy's configuration (``config``) and free
information about the training (``about``). The other arrays are weights: ``NETWORK.LAYER.weight`` (float32,
[outputs, inputs]) and ``NETWORK.LAYER.bias``; arrays of custom parts are ``encoder.NAME``, ``stage_head.NAME`` or
``limit_head.NAME``. Archives without the array ``policy`` are the published Decima weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decima import policy
from decima.policy.archive import POLICY, checked, checked_weights, read_archive, read_head
from decima.policy.config import PolicyConfig
from decima.policy.shipped import SHIPPED
from workloads.errors import PartError, PolicyFileError, did_you_mean

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor

__all__ = [
    "TRAINED_ON",
    "load_actor",
    "load_policy",
    "make_actor",
    "policy_path",
    "read_about",
]

VERSION = 1
HEAD = "policy"
#: Settings of former versions for a rule inside the network. They had no effect at 0 or false.
_RULE_WEIGHTS = ("guard", "rule_stage_weight", "rule_limit_weight")
#: Key of the training distribution in ``about``.
TRAINED_ON = "trained_on"


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
    network.take(checked_weights(path, arrays, {name: array.shape for name, array in network.arrays.items()}))
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
        from decima.policy.parts import find_allowed_part

        try:
            find_allowed_part(part.name, part.base)
        except PartError as error:
            raise PolicyFileError(f"{path}: {part.key}: {error}") from None
    return config, arrays


def _head(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[PolicyConfig, dict[str, Any]]:
    config, about = read_head(path, arrays, HEAD, VERSION)
    _drop_rule(path, config)
    return checked(path, PolicyConfig, config, "policy config"), about


def _drop_rule(path: Path, config: dict[str, Any]) -> None:
    """Remove settings of former versions, in which a network could change the scores of a rule.

    Raises:
        PolicyFileError: the decisions of this policy depend on the rule.
    """
    for name in _RULE_WEIGHTS:
        if config.pop(name, None):
            raise PolicyFileError(
                f"{path}: policy config: {name}: expected a network without a rule inside, which former versions had. "
                "The rule is a scheduler of its own, such as srpt-tuned"
            )
    config.pop("rule", None)
    config.pop("rule_constants", None)
