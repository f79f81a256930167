"""What learns: networks and their optimisers, and how to go on from where they stood."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from decima.settings import TrainingError

__all__ = ["Learner", "check_device", "copy_weights", "load_weights"]


class Learner:
    """Networks, each with its optimiser or none.

    Args:
        networks: by name.
        optimisers: by name.
        kept: the one that is judged and kept.

    Attributes:
        cpu_s: CPU time of what was learned so far, s.
    """

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        optimisers: Mapping[str, torch.optim.Optimizer],
        kept: nn.Module,
    ) -> None:
        self.networks = nn.ModuleDict(networks)
        self.optimisers = dict(optimisers)
        self.kept = kept
        self.cpu_s = 0.0

    def state(self) -> dict[str, Any]:
        """A copy of all that is learned from iteration to iteration, on the CPU."""
        return {
            "networks": copy_weights(self.networks),
            "optimisers": {name: _copy(each.state_dict()) for name, each in self.optimisers.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` gave.

        Raises:
            AttributeError, KeyError, RuntimeError, TypeError, ValueError: it is of another learner, or damaged.
        """
        load_weights(self.networks, state["networks"])
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(state["optimisers"][name])
            for weight, of_weight in optimiser.state.items():
                if any(value.shape not in (weight.shape, torch.Size()) for value in of_weight.values()):
                    raise ValueError("the optimiser's state has another shape than the weights")


def check_device(name: str) -> str:
    """A device to compute updates on, if it is here: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        TrainingError: it is not.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name not in ("cpu", *(("cuda",) if gpus else ()), *(f"cuda:{number}" for number in range(gpus))):
        raise TrainingError(f"there is no device {name} here")
    return name


def copy_weights(network: nn.Module) -> dict[str, Tensor]:
    """A copy of a network's weights, by name, on the CPU."""
    return {name: weight.detach().cpu().clone() for name, weight in network.state_dict().items()}


def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a network these weights.

    Raises:
        AttributeError, RuntimeError, TypeError: they are of other sizes, or no weights at all.
        ValueError: they are not finite.
    """
    network.load_state_dict(weights)
    if not all(torch.isfinite(weight).all() for weight in weights.values()):
        raise ValueError("weights that are not finite")


def _copy(state: Any) -> Any:
    """An optimiser's state, on the CPU."""
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        return {key: _copy(value) for key, value in state.items()}
    return copy.copy(state)
