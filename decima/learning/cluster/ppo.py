"""Proximal policy optimisation (PPO; Schulman et al., 2017): clipped loss, entropy bonus and update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decima.learning.cluster.reinforce import Reinforce
from decima.learning.loop import take_step

if TYPE_CHECKING:
    from decima.learning.cluster.rollout import Trajectories
    from decima.policy.policy import Policy

__all__ = ["PPO"]


class PPO(Reinforce):
    """PPO: epochs of minibatch gradient steps with a clipped probability ratio. Subclasses may replace ``loss``.

    Args:
        clip: distance from 1 at which the probability ratio is clipped.
        epochs: maximum number of epochs over the samples.
        minibatches: number of minibatches, and so of gradient steps, per epoch.
        max_kl: largest mean KL divergence from the acting policy after which a further epoch starts, nats.
    """

    def __init__(
        self, clip: float = 0.2, epochs: int = 2, minibatches: int = 6, max_kl: float = 0.02
    ) -> None:
        self.clip = clip
        self.epochs = epochs
        self.minibatches = minibatches
        self.max_kl = max_kl

    def loss(self, log_probability: Tensor, old_log_probability: Tensor, advantage: Tensor) -> Tensor:
        """Return the loss of each sample, float [n], without the entropy bonus: the clipped surrogate objective.

        Args:
            log_probability: float [n], log-probabilities of the choices, with gradient.
            old_log_probability: float [n], log-probabilities under the acting policy.
            advantage: float [n], advantages.
        """
        ratio = (log_probability - old_log_probability).exp()
        clipped_ratio = ratio.clamp(1 - self.clip, 1 + self.clip)
        return -torch.minimum(ratio * advantage, clipped_ratio * advantage)

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
        """See ``Reinforce.update``; metrics are means over the gradient steps, except ``kl``, that of the last step."""
        steps = []
        for _ in range(self.epochs):
            divergence = []
            order = random.permutation(len(samples))
            for minibatch in np.array_split(order, min(self.minibatches, len(samples))):
                optimiser.zero_grad()
                sums = np.zeros(4)
                for piece in samples.pieces(minibatch):
                    log_probability, entropy = samples.evaluate(policy, piece)
                    old = torch.from_numpy(samples.log_probability[piece]).to(log_probability)
                    losses = self.loss(log_probability, old, torch.from_numpy(advantage[piece]).to(old))
                    if not isinstance(losses, Tensor) or losses.shape != old.shape:
                        raise self.wrong("update.algorithm", f"a loss of shape {list(old.shape)}")
                    (losses - entropy_weight * entropy).sum().div(len(minibatch)).backward()  # type: ignore[no-untyped-call]
                    with torch.no_grad():
                        log_ratio = log_probability - old
                        ratio = log_ratio.exp()
                        kl, is_clipped = ratio - 1 - log_ratio, ((ratio - 1).abs() > self.clip).float()
                    sums += [tensor.sum().item() for tensor in (losses, entropy, kl, is_clipped)]
                loss, mean_entropy, mean_kl, clipped = (sums / len(minibatch)).tolist()
                norm = take_step(policy, optimiser, loss, max_gradient_norm=max_gradient_norm)
                divergence.append(mean_kl)
                steps.append((loss, mean_entropy, clipped, norm))
            if np.mean(divergence) > self.max_kl:
                break
        means = np.mean(steps, axis=0).tolist()
        metrics = dict(zip(("loss", "entropy", "clipped", "gradient_norm"), means, strict=True))
        return metrics | {"kl": divergence[-1], "steps": len(steps)}
