"""From a policy file to what decides: compiled code where there is some for its networks, PyTorch where not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima import policy
from decima.policy.actor import Actor, array_shapes
from decima.policy.archive import checked_weights
from decima.policy.config import PolicyConfig
from decima.policy.files import policy_path, read_policy

if TYPE_CHECKING:
    from decima.policy.policy import Policy

__all__ = ["load_actor", "load_policy", "make_actor"]


def make_actor(config: PolicyConfig, arrays: Mapping[str, NDArray[np.float32]]) -> Actor | Policy:
    """What decides as a policy does.

    Args:
        config: its shape.
        arrays: its weights, as its ``arrays`` are.

    Raises:
        PartError: a part of the user's own cannot be loaded.
    """
    if config.is_compiled:
        return Actor(config, arrays)
    network = policy.Policy(config)  # the package imports PyTorch only now
    network.take({name: array.copy() for name, array in arrays.items()})  # PyTorch wants no read-only ones
    return network


def load_actor(path: str | Path) -> Actor | Policy:
    """Read a policy, to decide.

    Args:
        path: a file; a text may be the name of a policy that ships.

    Raises:
        PolicyFileError: no archive of arrays, another version, arrays that do not fit the shape it names, or parts of
            the user's own that nobody has allowed, see ``parts.allow_parts``.
        PartError: such a part cannot be loaded.
    """
    path = policy_path(path)
    config, arrays = read_policy(path)
    if config.is_compiled:
        return Actor(config, checked_weights(path, arrays, array_shapes(config)))
    return load_policy(path)


def load_policy(path: str | Path) -> Policy:
    """Read a policy, to train it or to look at its probabilities; to decide, an ``Actor`` is enough.

    Args:
        path: as ``load_actor``.

    Raises:
        PolicyFileError: as ``load_actor``.
        PartError: a part of the user's own cannot be loaded.
    """
    path = policy_path(path)
    config, arrays = read_policy(path)
    network = policy.Policy(config)  # the package imports PyTorch only now
    network.take(checked_weights(path, arrays, {name: each.shape for name, each in network.arrays.items()}))
    return network
