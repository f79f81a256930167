"""REINFORCE (Williams, 1992; Decima, Algorithm 1): one policy-gradient step on all samples of an iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decima.learning.checkpoint import TrainingPart
from decima.learning.loop import take_step

if TYPE_CHECKING:
    from decima.learning.cluster.rollout import Trajectories
    from decima.policy.policy import Policy

__all__ = ["Reinforce", "policy_gradient", "sequence_gradients", "signal_of"]


class Reinforce(TrainingPart):
    """REINFORCE: one step along the gradient of ``mean(log_probability * advantage)``. Base class of algorithms."""

    def update(
        self,
        policy: Policy,
        optimiser: torch.optim.Optimizer,
        samples: Trajectories,
        advantage: NDArray[np.float64],
        *,
        random: np.random.Generator,
        entropy_weight: float,
        max_gradient_norm: float,
    ) -> dict[str, float]:
        """Update the policy's weights by one or more gradient steps (see ``take_step``).

        Args:
            policy: policy to update; ``samples.evaluate`` returns its log-probabilities and entropies.
            optimiser: Adam, with this iteration's learning rate; its state is in checkpoints.
            samples: n samples, at least one, with log-probabilities under the acting policy.
            advantage: float64 [n], advantages.
            random: generator whose random numbers depend only on the run's seed and the iteration.
            entropy_weight: weight of the entropy bonus (mean entropy) in the objective.
            max_gradient_norm: norm to which larger gradients are clipped.

        Returns:
            Metrics by name (see ``metrics.METRICS``): ``loss``, ``entropy``, ``gradient_norm``, ``steps``, ...

        Raises:
            NotFiniteError: the loss or its gradient is not finite.
        """
        optimiser.zero_grad()
        loss = entropy = 0.0
        for part in samples.pieces(np.arange(advantage.size)):
            own_loss, own_entropy = policy_gradient(
                *samples.evaluate(policy, part), advantage[part], entropy_weight, advantage.size
            )
            loss += own_loss
            entropy += own_entropy
        norm = take_step(policy, optimiser, loss, max_gradient_norm=max_gradient_norm)
        return {"loss": loss, "entropy": entropy, "gradient_norm": norm, "steps": 1}


def policy_gradient(
    log_probability: Tensor,
    entropy: Tensor,
    advantage: NDArray[np.float64],
    entropy_weight: float,
    count: int = 1,
) -> tuple[float, float]:
    """Accumulate the gradient of the policy-gradient loss with an entropy bonus.

    Args:
        log_probability: float [n], log-probabilities of the choices, with gradient.
        entropy: float [n], entropies, with gradient.
        advantage: float64 [n], advantages.
        entropy_weight: weight of the entropy bonus.
        count: divisor of the sums over samples.

    Returns:
        The loss without the bonus, and the entropy.
    """
    gain = torch.from_numpy(advantage).to(log_probability)
    loss = -(log_probability * gain).sum() / count
    spread = entropy.sum() / count
    (loss - entropy_weight * spread).backward()  # type: ignore[no-untyped-call]
    return loss.item(), spread.item()


def sequence_gradients(
    policy: Policy, samples: Trajectories, advantage: NDArray[np.float64], sequences: Sequence[slice]
) -> Tensor:
    """Return the policy gradient of each job sequence, float64 [sequences, weights].

    Args:
        advantage: float64 [n], advantages.
        sequences: samples of each job sequence.
    """
    parameters, gradients = list(policy.parameters()), []
    for sequence in sequences:
        policy.zero_grad()
        for part in samples.pieces(np.arange(sequence.start, sequence.stop)):
            policy_gradient(
                *samples.evaluate(policy, part), advantage[part], 0.0, sequence.stop - sequence.start
            )
        gradients.append(
            torch.cat([weight.grad.flatten() for weight in parameters if weight.grad is not None])
        )
    policy.zero_grad()
    return torch.stack(gradients).double()


def signal_of(gradients: Tensor) -> float:
    """Return the part of gradients g_i, float64 [n, weights], that is common: E[g_i g_j] / E[g_i²], i other than j.

    It is 1 if the gradients of all n >= 2 job sequences are equal, and about 0 if they are noise. Their mean has the
    squared signal-to-noise ratio n signal / (1 - signal).
    """
    squares, count = gradients.square().sum(), len(gradients)
    common = gradients.sum(dim=0).square().sum() - squares
    return float(common / (count - 1) / squares) if squares > 0 else math.nan
