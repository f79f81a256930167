"""How networks learn from samples: REINFORCE (Decima, Algorithm 1), PPO, the two halves of A2C, behaviour cloning.

What the samples are, these functions need not know: they are handed a function that evaluates some of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.policy.errors import NotFiniteError

__all__ = [
    "Evaluate",
    "UpdateReport",
    "add_policy_gradient",
    "clone_behaviour",
    "fit_values",
    "parts_of",
    "ppo",
    "reinforce",
    "take_step",
]

#: Of numbers of samples, int64 [n]: the log-probability of what was chosen, and the entropy (nats), both [n].
Evaluate = Callable[[NDArray[np.int64]], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class UpdateReport:
    """What an update did, averaged over its gradient steps.

    Attributes:
        loss: of the policy, without the entropy bonus.
        entropy: nats per sample.
        kl: estimated divergence of the new policy from the one that acted, at the end, nats.
        clipped: share of samples whose probability ratio was clipped.
        gradient_norm: before it was clipped.
        steps: gradient steps taken.
    """

    loss: float
    entropy: float
    kl: float
    clipped: float
    gradient_norm: float
    steps: int

    @staticmethod
    def of(rows: list[tuple[float, float, float, float, float]]) -> UpdateReport:
        """From what each gradient step reports, in the order above."""
        loss, entropy, _, clipped, norm = np.mean(rows, axis=0).tolist()
        return UpdateReport(loss, entropy, rows[-1][2], clipped, norm, len(rows))


def reinforce(
    evaluate: Evaluate,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    advantage: NDArray[np.float64],
    *,
    entropy_weight: float,
    max_gradient_norm: float,
    chunk: int,
) -> UpdateReport:
    """One gradient step on all samples: Algorithm 1 of the paper.

    Args:
        evaluate: the samples, by the network.
        network: what learns.
        optimiser: of its parameters.
        advantage: float64 [n].
        entropy_weight: of the entropy bonus, the mean entropy in the objective.
        max_gradient_norm: longer gradients are clipped.
        chunk: samples per pass, which bounds memory; does not change the result.

    Raises:
        NotFiniteError: the loss or its gradient is no number.
    """
    optimiser.zero_grad()
    loss = entropy = 0.0
    for part in parts_of(np.arange(advantage.size), chunk):
        own_loss, own_entropy = add_policy_gradient(
            *evaluate(part), advantage[part], entropy_weight, advantage.size
        )
        loss += own_loss
        entropy += own_entropy
    norm = take_step(network, optimiser, loss, max_gradient_norm=max_gradient_norm)
    return UpdateReport.of([(loss, entropy, 0.0, 0.0, norm)])


def add_policy_gradient(
    log_probability: Tensor,
    entropy: Tensor,
    advantage: NDArray[np.float64],
    entropy_weight: float,
    count: int = 1,
) -> tuple[float, float]:
    """Add up the gradient of the policy's loss, and of the entropy bonus; of A2C the actor's half.

    Args:
        log_probability: float [n], with gradient.
        entropy: likewise.
        advantage: float64 [n].
        entropy_weight: of the entropy.
        count: divides the sums over the samples.

    Returns:
        The loss without the entropy, and the entropy.
    """
    loss = -(log_probability * _tensor(advantage, log_probability)).sum() / count
    spread = entropy.sum() / count
    (loss - entropy_weight * spread).backward()  # type: ignore[no-untyped-call]
    return loss.item(), spread.item()


def ppo(
    evaluate: Evaluate,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    advantage: NDArray[np.float64],
    old_log_probability: NDArray[np.float32],
    random: np.random.Generator,
    *,
    entropy_weight: float,
    max_gradient_norm: float,
    clip: float,
    epochs: int,
    minibatches: int,
    max_kl: float,
) -> UpdateReport:
    """Proximal policy optimisation: several gradient steps, which end when the policy has moved far.

    Args:
        evaluate: the samples, by the network.
        network: what learns.
        optimiser: of its parameters.
        advantage: float64 [n].
        old_log_probability: float32 [n]; of the policy that acted.
        random: shuffles the samples.
        entropy_weight: of the entropy bonus, the mean entropy in the objective.
        max_gradient_norm: longer gradients are clipped.
        clip: how far the ratio of probabilities may leave 1 before it earns nothing more.
        epochs: how often each sample is used at most.
        minibatches: gradient steps per epoch.
        max_kl: nats; an epoch in which the mean divergence exceeds this is the last.

    Raises:
        NotFiniteError: a loss or its gradient is no number.
    """
    rows, size = [], advantage.size
    for _ in range(epochs):
        divergence = []
        for part in np.array_split(random.permutation(size), min(minibatches, size)):
            log_probability, entropies = evaluate(part)
            change = log_probability - _tensor(old_log_probability[part], log_probability)
            ratio = change.exp()
            gain = _tensor(advantage[part], ratio)
            loss = -torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
            entropy = entropies.mean()
            optimiser.zero_grad()
            (loss - entropy_weight * entropy).backward()  # type: ignore[no-untyped-call]
            norm = take_step(network, optimiser, loss.item(), max_gradient_norm=max_gradient_norm)
            with torch.no_grad():
                kl = (ratio - 1 - change).mean().item()
                clipped = ((ratio - 1).abs() > clip).float().mean().item()
            divergence.append(kl)
            rows.append((loss.item(), entropy.item(), kl, clipped, norm))
        if np.mean(divergence) > max_kl:
            break
    return UpdateReport.of(rows)


def clone_behaviour(
    evaluate: Evaluate,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    parts: Iterable[NDArray[np.int64]],
    *,
    entropy_weight: float = 0.0,
    max_gradient_norm: float = math.inf,
) -> UpdateReport:
    """Make the choices of the samples likely: a gradient step for each part, which makes an epoch of all samples.

    Raises:
        NotFiniteError: a loss or its gradient is no number.
    """
    rows = []
    for part in parts:
        log_probability, entropies = evaluate(part)
        loss, entropy = -log_probability.mean(), entropies.mean()
        optimiser.zero_grad()
        (loss - entropy_weight * entropy).backward()  # type: ignore[no-untyped-call]
        norm = take_step(network, optimiser, loss.item(), max_gradient_norm=max_gradient_norm)
        rows.append((loss.item(), entropy.item(), 0.0, 0.0, norm))
    return UpdateReport.of(rows)


def fit_values(
    inputs: Tensor,
    targets: Tensor,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    parts: Iterable[NDArray[np.int64]],
) -> float:
    """Teach a critic values by least squares: of A2C the critic's half.

    Args:
        inputs: what it sees, [n, ..], on the CPU; a part at a time goes to where the network is.
        targets: float32 [n], in the unit of its output.
        network: the critic, with one output.
        optimiser: of its parameters.
        parts: numbers of samples, int64; a gradient step each.

    Returns:
        The sum of its square errors, each before it learned from it.

    Raises:
        NotFiniteError: a gradient is no number.
    """
    total, device = 0.0, next(network.parameters()).device
    for part in map(torch.from_numpy, parts):
        values = network(inputs[part].to(device))[:, 0]
        loss = (targets[part].to(device) - values).square().sum()
        loss.backward()
        total += float(loss.detach())
        take_step(network, optimiser, count=len(part))
    return total


def take_step(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: float = 0.0,
    *,
    max_gradient_norm: float = math.inf,
    count: int = 1,
) -> float:
    """Take a gradient step if it can be taken, and forget the gradient.

    Args:
        network: what learns.
        optimiser: of its parameters.
        loss: whose gradient it is.
        max_gradient_norm: longer ones are clipped.
        count: divides the gradient.

    Returns:
        The length of the gradient before it was clipped.

    Raises:
        NotFiniteError: the loss or its gradient is no number.
    """
    for parameter in network.parameters() if count != 1 else ():
        if parameter.grad is not None:
            parameter.grad /= count
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), max_gradient_norm))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise NotFiniteError(f"the loss is {loss}, the length of its gradient {norm}")
    optimiser.step()
    optimiser.zero_grad()
    return norm


def parts_of(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """About equal parts, of at most so many."""
    return np.array_split(order, max(1, math.ceil(order.size / size)))


def _tensor(array: NDArray[np.generic], like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device, like.dtype)
