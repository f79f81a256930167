"""Proximal policy optimisation (PPO; Schulman et al., 2017): clipped loss, entropy bonus and update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning.cluster.reinforce import Reinforce, take_step

if TYPE_CHECKING:
    from decima.learning.cluster.rollout import Trajectories
    from decima.policy.policy import Policy

__all__ = ["PPO"]


class PPO(Reinforce):
    """Proximal policy optimisation (PPO): epochs of minibatch gradient steps with a clipped probability ratio.

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
        rows, size = [], advantage.size
        for _ in range(self.epochs):
            divergence = []
            for part in np.array_split(random.permutation(size), min(self.minibatches, size)):
                optimiser.zero_grad()
                sums = np.zeros(4)
                with policy.accumulate_gradients():
                    for piece in samples.pieces(policy, part):
                        log_probability, entropies = samples.evaluate(policy, piece)
                        old = torch.from_numpy(samples.log_probability[piece]).to(log_probability)
                        gain = torch.from_numpy(advantage[piece]).to(log_probability)
                        log_ratio = log_probability - old
                        ratio = log_ratio.exp()
                        clipped_ratio = ratio.clamp(1 - self.clip, 1 + self.clip)
                        loss = -torch.minimum(ratio * gain, clipped_ratio * gain).sum() / part.size
                        entropy = entropies.sum() / part.size
                        (loss - entropy_weight * entropy).backward()  # type: ignore[no-untyped-call]
                        with torch.no_grad():
                            kl = (ratio - 1 - log_ratio).sum().item() / part.size
                            clipped = ((ratio - 1).abs() > self.clip).float().sum().item() / part.size
                        sums += loss.item(), entropy.item(), kl, clipped
                loss_, entropy_, kl, clipped = sums.tolist()
                norm = take_step(policy, optimiser, loss_, max_gradient_norm=max_gradient_norm)
                divergence.append(kl)
                rows.append((loss_, entropy_, clipped, norm))
            if np.mean(divergence) > self.max_kl:
                break
        loss_, entropy_, clipped_, norm_ = np.mean(rows, axis=0).tolist()
        return {
            "loss": loss_,
            "entropy": entropy_,
            "kl": kl,
            "clipped": clipped_,
            "gradient_norm": norm_,
            "steps": len(rows),
        }
