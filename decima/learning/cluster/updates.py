"""Updates of the policy by gradients: behaviour cloning, REINFORCE and PPO.

* Behaviour cloning (imitation learning): before reinforcement learning, the policy learns a scheduler's choices. The
  loss is the mean negative log-probability of the choices. Trainings on clusters and on grids share it.
* REINFORCE (Williams, 1992; Decima, Algorithm 1): one policy-gradient step on all samples; gradient clipping.
* Proximal policy optimisation (PPO; Schulman et al., 2017): clipped loss, entropy bonus and update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.checkpoint import TrainingPart
from decima.policy.parts import NotFiniteError
from decima.settings import Progress

if TYPE_CHECKING:
    from decima.learning.cluster.rollout import Trajectories
    from decima.policy.policy import Policy

__all__ = ["PPO", "Reinforce", "clone_epochs", "policy_gradient", "split", "take_step"]


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
                for piece in samples.pieces(part):
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


PHASE = "behaviour cloning, gradient steps"


def clone_epochs(
    evaluate: Callable[[NDArray[np.int64]], tuple[Tensor, Tensor]],
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    draw_minibatches: Callable[[], list[NDArray[np.int64]]],
    rates: Sequence[float],
    epochs_done: int,
    progress: Progress,
    *,
    entropy_weight: float = 0.0,
    max_gradient_norm: float = math.inf,
) -> Iterator[dict[str, float]]:
    """Learn recorded choices by gradient steps, epoch by epoch.

    Args:
        evaluate: maps sample indices, int64 [k], to log-probability and entropy of the choices, float [k] each.
        draw_minibatches: draws the minibatches (sample indices) of the next epoch; none if there are no samples.
        rates: learning rate of each epoch.
        epochs_done: number of epochs that were completed before the run was resumed.
        progress: progress callback, called with the number of gradient steps.
        entropy_weight: weight of the entropy bonus.
        max_gradient_norm: norm to which larger gradients are clipped.

    Yields:
        Metrics of each remaining epoch, see ``metrics.COMMON``.

    Raises:
        NotFiniteError: a loss or its gradient is not finite.
    """
    for epoch, rate in enumerate(rates):
        minibatches = draw_minibatches()
        if epoch < epochs_done:
            continue
        done, total = epoch * len(minibatches), len(rates) * len(minibatches)
        optimiser.param_groups[0]["lr"] = rate
        rows: list[tuple[float, float, float]] = []
        for part in minibatches:
            progress(PHASE, done + len(rows), total)
            log_probability, entropies = evaluate(part)
            loss, entropy = -log_probability.mean(), entropies.mean()
            optimiser.zero_grad()
            (loss - entropy_weight * entropy).backward()  # type: ignore[no-untyped-call]
            norm = take_step(network, optimiser, loss.item(), max_gradient_norm=max_gradient_norm)
            rows.append((loss.item(), entropy.item(), norm))
        metrics = {"learning_rate": rate}
        if rows:
            progress(PHASE, done + len(rows), total)
            means = np.mean(rows, axis=0).tolist()
            metrics |= dict(zip(("cloning_loss", "entropy", "gradient_norm"), means, strict=True))
            metrics |= {"samples": sum(map(len, minibatches)), "steps": len(rows)}
        yield metrics
