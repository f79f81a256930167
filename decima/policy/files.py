"""Read policy files: NumPy archives of plain arrays, so that reading a policy never executes code.

The array ``policy`` is JSON text with the format version, the policy's configuration (``config``) and free
information about the training (``about``). The other arrays are weights: ``NETWORK.LAYER.weight`` (float32,
[outputs, inputs]) and ``NETWORK.LAYER.bias``; arrays of custom parts are ``encoder.NAME``, ``stage_head.NAME`` or
``limit_head.NAME``. A policy may have a second network, for states with few live jobs (``few_jobs``): its weights are
``few_jobs.NETWORK.LAYER.weight``. Archives without the array ``policy`` are the published Decima weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from decima import policy
from decima.policy.archive import checked, checked_weights, read_archive, read_head
from decima.policy.config import PolicyConfig
from decima.policy.file_format import FEW_JOBS, HEAD, POLICY, VERSION
from decima.policy.shipped import SHIPPED
from workloads.errors import PartError, PolicyFileError, did_you_mean

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor

__all__ = ["load_actor", "load_policy", "policy_path"]

Arrays = Mapping[str, NDArray[Any]]
Network = TypeVar("Network", bound="Actor | Policy")


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

    def build(config: PolicyConfig, arrays: Arrays, within: str = "") -> Actor | Policy:
        if config.is_compiled:
            return policy.Actor(config, checked_weights(path, arrays, config.array_shapes, within))
        return _build_network(path, config, arrays, within)

    return _read(path, build)


def load_policy(path: str | Path) -> Policy:
    """Read a policy as PyTorch networks, for training or probabilities; ``load_actor`` decides faster.

    Args:
        path: path of a policy file, or name of a shipped policy.

    Raises:
        PolicyFileError: see ``load_actor``.
        PartError: a custom part cannot be loaded.
    """
    path = policy_path(path)
    return _read(path, partial(_build_network, path))


def _build_network(path: Path, config: PolicyConfig, arrays: Arrays, within: str = "") -> Policy:
    network = policy.Policy(config)  # imports PyTorch only now
    shapes = {name: array.shape for name, array in network.arrays.items()}
    network.take(checked_weights(path, arrays, shapes, within))
    return network


def _read(path: Path, build: Callable[..., Network]) -> Network:
    """Build a policy from its configuration, with custom parts that are allowed, and its weights, not yet checked."""
    arrays = read_archive(path)
    if HEAD not in arrays and any(array.dtype.kind == "U" for array in arrays.values()):
        raise PolicyFileError(f"{path}: a policy of decima deeprm train; expected one of decima train")
    if HEAD in arrays:
        config, _, few_jobs = head_of(path, arrays)
        del arrays[HEAD]
    else:
        config, few_jobs = policy.PRESETS["decima-sim"], None
    if config.has_custom_parts:
        from decima.policy.parts import custom_parts, find_allowed_part

        for part in custom_parts(config):
            try:
                find_allowed_part(part.name, part.base)
            except PartError as error:
                raise PolicyFileError(f"{path}: {part.key}: {error}") from None
    if few_jobs is None:
        return build(config, arrays)
    from decima.policy.few_jobs import build_both

    return build_both(path, few_jobs, config, arrays, build)


def head_of(path: Path, arrays: Arrays) -> tuple[PolicyConfig, dict[str, Any], object]:
    """Return the contents of the JSON text in the arrays of a policy file.

    Returns:
        Configuration; information about the training; and the entry of a second network, not yet validated, see
        ``few_jobs``, or None without one.

    Raises:
        PolicyFileError: the text of the file is malformed.
    """
    head = read_head(path, arrays, HEAD, VERSION)
    config = head["config"]
    if config.keys() - PolicyConfig.model_fields.keys():
        from decima.policy.former_settings import drop_rule

        drop_rule(path, config)
    return checked(path, PolicyConfig, config, "policy config"), head["about"], head.get(FEW_JOBS)
