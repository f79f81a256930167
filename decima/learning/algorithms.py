"""Algorithms: how a policy follows the advantages of an iteration's samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from decima.learning.part import TrainingPart
from decima.learning.updates import Evaluate, UpdateReport, ppo, reinforce

__all__ = ["PPO", "Algorithm", "Batch", "Reinforce"]

#: Samples per pass of REINFORCE, which bounds memory.
CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Batch:
    """An iteration's samples, n of them, and what the settings say of this iteration.

    Attributes:
        evaluate: of numbers of samples, int64 [k], the log-probability of what was chosen and the entropy (nats) by
            the network as it is now, float [k] both, with gradients.
        advantage: float64 [n].
        log_probability: float32 [n]; of what was chosen, by the network that acted.
        random: the same numbers whenever this iteration is done.
        entropy_weight: of the entropy bonus.
        max_gradient_norm: longer gradients are to be clipped.
    """

    evaluate: Evaluate
    advantage: NDArray[np.float64]
    log_probability: NDArray[np.float32]
    random: np.random.Generator
    entropy_weight: float
    max_gradient_norm: float


class Algorithm(TrainingPart, ABC):
    """Gradient steps from samples; the user's own ones are subclasses."""

    @abstractmethod
    def update(self, network: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch) -> UpdateReport:
        """Change the network's weights; ``updates.take_step`` takes a step of a gradient.

        Args:
            network: what learns.
            optimiser: of its parameters, with the learning rate of this iteration; its state is kept in checkpoints.
            batch: at least one sample.

        Returns:
            What was done; NaN for what was not measured.

        Raises:
            NotFiniteError: the loss or its gradient is no number.
        """


class Reinforce(Algorithm):
    """Algorithm 1 of the paper."""

    def update(self, network: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch) -> UpdateReport:
        """One step on all samples."""
        return reinforce(
            batch.evaluate,
            network,
            optimiser,
            batch.advantage,
            entropy_weight=batch.entropy_weight,
            max_gradient_norm=batch.max_gradient_norm,
            chunk=CHUNK,
        )


class PPO(Algorithm):
    """Proximal policy optimisation; see ``updates.ppo`` for the arguments."""

    def __init__(self, clip: float, epochs: int, minibatches: int, max_kl: float) -> None:
        self.clip = clip
        self.epochs = epochs
        self.minibatches = minibatches
        self.max_kl = max_kl

    def update(self, network: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch) -> UpdateReport:
        """Several steps, on parts of the samples."""
        return ppo(
            batch.evaluate,
            network,
            optimiser,
            batch.advantage,
            batch.log_probability,
            batch.random,
            entropy_weight=batch.entropy_weight,
            max_gradient_norm=batch.max_gradient_norm,
            clip=self.clip,
            epochs=self.epochs,
            minibatches=self.minibatches,
            max_kl=self.max_kl,
        )
