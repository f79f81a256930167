"""REINFORCE (Williams, 1992; Decima, Algorithm 1): one policy-gradient step on all samples; gradient clipping."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.checkpoint import TrainingPart
from decima.policy.errors import NotFiniteError

if TYPE_CHECKING:
    from decima.learning.cluster.rollout import Trajectories
    from decima.policy.policy import Policy

__all__ = ["Reinforce", "policy_gradient", "split", "take_step"]


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
        with policy.accumulate_gradients():
            for part in samples.pieces(policy, np.arange(advantage.size)):
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


def take_step(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: float = 0.0,
    *,
    max_gradient_norm: float = math.inf,
    count: int = 1,
) -> float:
    """Take an optimiser step with the accumulated gradient, after gradient clipping, and reset the gradient.

    Args:
        network: network to update.
        optimiser: optimiser of the network's parameters.
        loss: value of the loss, to check that it is finite.
        max_gradient_norm: norm to which a larger gradient is clipped.
        count: divisor of the gradient.

    Returns:
        Norm of the gradient before clipping.

    Raises:
        NotFiniteError: the loss or its gradient is not finite.
    """
    for parameter in network.parameters() if count != 1 else ():
        if parameter.grad is not None:
            parameter.grad /= count
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), max_gradient_norm))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise NotFiniteError(f"the loss is {loss}, the norm of its gradient {norm}")
    optimiser.step()
    optimiser.zero_grad()
    return norm


def split(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Split indices into nearly equal parts of at most ``size`` indices."""
    return np.array_split(order, max(1, math.ceil(order.size / size)))
