"""What learns: networks and their optimisers, and how to go on from where they stood."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.progress import Tell
from decima.learning.updates import Evaluate, clone_behaviour
from decima.settings import TrainingError

__all__ = ["Learner", "check_device", "copy_weights", "load_weights"]

#: The optimiser of behaviour cloning, which is there only while it lasts.
CLONING = "cloning"


class Learner:
    """Networks, each with its optimiser or none.

    Args:
        networks: by name; the first one is the policy, which learns from recorded choices, too.
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

    def clone_epochs(
        self,
        evaluate: Evaluate,
        parts: Iterator[list[NDArray[np.int64]]],
        rates: Sequence[float],
        epochs_done: int,
        tell: Tell,
        **options: float,
    ) -> Iterator[dict[str, float]]:
        """Learn recorded choices, epoch by epoch.

        Args:
            evaluate: the choices, by the first network.
            parts: the minibatches of each epoch, those of epochs that are over too; none if there are no choices.
            rates: the learning rate of each epoch.
            epochs_done: epochs that are over.
            tell: told the gradient steps.
            options: of ``clone_behaviour``.

        Returns:
            Measured values of each epoch that is left, by the names of ``metrics.COMMON``.

        Raises:
            NotFiniteError: a loss or its gradient is not finite.
        """
        network, optimiser = self._first, self._cloning_optimiser()
        for epoch, (rate, minibatches) in enumerate(zip(rates, parts, strict=False)):
            if epoch < epochs_done:
                continue
            begun, steps = time.process_time(), len(minibatches)
            told = _told(minibatches, epoch * steps, len(rates) * steps, tell)
            metrics = {"learning_rate": rate}
            if steps:
                optimiser.param_groups[0]["lr"] = rate
                report = clone_behaviour(evaluate, network, optimiser, told, **options)
                metrics |= {
                    "cloning_loss": report.loss,
                    "entropy": report.entropy,
                    "gradient_norm": report.gradient_norm,
                    "samples": sum(map(len, minibatches)),
                    "steps": report.steps,
                }
            if epoch + 1 == len(rates):
                del self.optimisers[CLONING]
            self.cpu_s += time.process_time() - begun
            yield metrics

    @property
    def _first(self) -> nn.Module:
        return next(iter(self.networks.values()))

    def _cloning_optimiser(self) -> torch.optim.Optimizer:
        """A new one if there is none."""
        return self.optimisers.setdefault(CLONING, torch.optim.Adam(self._first.parameters()))

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
        if CLONING in state["optimisers"]:
            self._cloning_optimiser()
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


def _told(
    parts: Sequence[NDArray[np.int64]], done: int, total: int, tell: Tell
) -> Iterator[NDArray[np.int64]]:
    """The minibatches of an epoch; how many gradient steps are done is told before each, and at the end."""
    for place, part in enumerate(parts):
        tell("behaviour cloning, gradient steps", done + place, total)
        yield part
    tell("behaviour cloning, gradient steps", done + len(parts), total)
