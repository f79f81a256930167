"""Read and write policy files for DeepRM's grid: NumPy archives of plain arrays, which cannot execute code.

Each parameter of the actor is an array. The array ``network`` is JSON text with the format version, the configuration
(``config``) and free information about the training (``about``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from decima.policy.errors import PolicyFileError
from decima.policy.files import checked_weights, read_archive, read_head, write_archive
from decima.policy.grid.config import GridPolicyConfig
from decima.settings import TrainingError, parse_settings
from workloads.errors import ConfigError

__all__ = ["load_network", "read_about", "save_network"]

VERSION = 2
HEAD = "network"


def save_network(path: Path, network: nn.Module, config: GridPolicyConfig, about: Mapping[str, Any]) -> None:
    """Write an actor's network atomically.

    Args:
        path: path of the file, by convention with the suffix ``.npz``.
        network: network that ``config`` built.
        config: configuration of the network.
        about: JSON-compatible information about the training, such as its command and results.
    """
    head = {"version": VERSION, "config": config.model_dump(mode="json"), "about": dict(about)}
    arrays = {name: weight.detach().cpu().numpy() for name, weight in network.state_dict().items()}
    write_archive(path, {HEAD: np.array(json.dumps(head)), **arrays})


def load_network(path: Path) -> tuple[nn.Module, GridPolicyConfig]:
    """Read an actor's network and its configuration.

    Raises:
        PolicyFileError: the file is malformed, has another format version, or weights that do not match its
            configuration.
    """
    arrays = read_archive(path)
    config, _ = _head(path, arrays)
    try:
        with torch.device("meta"):  # allocates nothing, whatever the file's sizes are
            network = config.build()
    except (ConfigError, OverflowError, RuntimeError, TypeError) as error:
        raise PolicyFileError(f"{path}: config: {' '.join(str(error).split()):.200}") from None
    arrays.pop(HEAD)
    weights = checked_weights(
        path, arrays, {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
    )
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, assign=True)
    return network, config


def read_about(path: Path) -> dict[str, Any]:
    """Return the information about the training in a policy file.

    Raises:
        PolicyFileError: the file or its text is malformed; weights are not checked.
    """
    return _head(path, read_archive(path))[1]


def _head(path: Path, arrays: Mapping[str, Any]) -> tuple[GridPolicyConfig, dict[str, Any]]:
    if HEAD not in arrays:
        raise PolicyFileError(f"{path}: not a network for a grid: expected the text {HEAD!r}")
    settings, about = read_head(path, arrays, HEAD, VERSION)
    try:
        return parse_settings(GridPolicyConfig, settings, f"{path}: config"), about
    except TrainingError as error:
        raise PolicyFileError(str(error)) from None
