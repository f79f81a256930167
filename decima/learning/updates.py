"""How a policy learns from samples: REINFORCE (Decima, Algorithm 1), PPO, and imitation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decima.learning.cluster.rollout import NotFiniteError, Trajectories
from decima.policy.policy import Policy

__all__ = ["UpdateReport", "imitate", "ppo", "reinforce"]


@dataclass(frozen=True)
class UpdateReport:
    """What an update did, averaged over its gradient steps.

    Attributes:
        loss: of the policy, without the entropy's part.
        entropy: of stage and limit together, nats per sample.
        kl: estimated divergence of the new policy from the one that acted, at the end, nats.
        clipped: share of samples whose probability ratio was clipped.
        gradient_norm: before it was cut.
        steps: gradient steps taken.
    """

    loss: float
    entropy: float
    kl: float
    clipped: float
    gradient_norm: float
    steps: int


class _Meter:
    """Means of what the gradient steps report."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float, float, float]] = []

    def report(self) -> UpdateReport:
        loss, entropy, _, clipped, norm = np.mean(self.rows, axis=0).tolist()
        return UpdateReport(loss, entropy, self.rows[-1][2], clipped, norm, len(self.rows))


def reinforce(
    policy: Policy,
    optimiser: torch.optim.Optimizer,
    samples: Trajectories,
    advantage: NDArray[np.float64],
    *,
    entropy_weight: float,
    max_gradient_norm: float,
    chunk: int,
) -> UpdateReport:
    """One gradient step on all samples: Algorithm 1 of the paper.

    Args:
        policy: what learns.
        optimiser: of its parameters.
        samples: n of them.
        advantage: float64 [n].
        entropy_weight: of the mean entropy in the objective.
        max_gradient_norm: longer gradients are cut.
        chunk: samples per pass, which bounds memory; does not change the result.

    Raises:
        NotFiniteError: the loss or its gradient is no number.
    """
    optimiser.zero_grad()
    order = np.arange(len(samples))
    loss = entropy = 0.0
    for part in _parts(order, chunk):
        seen = policy(samples.graphs.select(part), samples.stage[part], samples.count[part])
        value = -(seen.log_probability * _tensor(advantage[part], seen.log_probability)).sum() / order.size
        spread = seen.entropy.sum() / order.size
        (value - entropy_weight * spread).backward()
        loss += value.item()
        entropy += spread.item()
    meter = _Meter()
    norm = _step(policy, optimiser, loss, max_gradient_norm)
    meter.rows.append((loss, entropy, 0.0, 0.0, norm))
    return meter.report()


def ppo(
    policy: Policy,
    optimiser: torch.optim.Optimizer,
    samples: Trajectories,
    advantage: NDArray[np.float64],
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
        policy: what learns.
        optimiser: of its parameters.
        samples: n of them.
        advantage: float64 [n].
        random: shuffles them.
        entropy_weight: of the mean entropy in the objective.
        max_gradient_norm: longer gradients are cut.
        clip: how far the ratio of probabilities may leave 1 before it earns nothing more.
        epochs: how often each sample is used at most.
        minibatches: gradient steps per epoch.
        max_kl: nats; an epoch in which the mean divergence exceeds this is the last.

    Raises:
        NotFiniteError: a loss or its gradient is no number.
    """
    meter = _Meter()
    for _ in range(epochs):
        divergence = []
        for part in np.array_split(random.permutation(len(samples)), min(minibatches, len(samples))):
            seen = policy(samples.graphs.select(part), samples.stage[part], samples.count[part])
            change = seen.log_probability - _tensor(samples.log_probability[part], seen.log_probability)
            ratio = change.exp()
            gain = _tensor(advantage[part], ratio)
            loss = -torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
            entropy = seen.entropy.mean()
            optimiser.zero_grad()
            (loss - entropy_weight * entropy).backward()
            norm = _step(policy, optimiser, loss.item(), max_gradient_norm)
            with torch.no_grad():
                kl = (ratio - 1 - change).mean().item()
                clipped = ((ratio - 1).abs() > clip).float().mean().item()
            divergence.append(kl)
            meter.rows.append((loss.item(), entropy.item(), kl, clipped, norm))
        if np.mean(divergence) > max_kl:
            break
    return meter.report()


def imitate(
    policy: Policy,
    optimiser: torch.optim.Optimizer,
    samples: Trajectories,
    random: np.random.Generator,
    *,
    entropy_weight: float,
    max_gradient_norm: float,
    epochs: int,
    minibatch: int,
) -> Iterator[UpdateReport]:
    """Make the choices of the samples likely; a report per epoch. The learning rate falls linearly to a tenth.

    Raises:
        NotFiniteError: a loss or its gradient is no number.
    """
    first_rates = [group["lr"] for group in optimiser.param_groups]
    for epoch in range(epochs):
        meter = _Meter()
        for group, rate in zip(optimiser.param_groups, first_rates, strict=True):
            group["lr"] = rate * (1 - 0.9 * epoch / max(1, epochs - 1))
        for part in _parts(random.permutation(len(samples)), minibatch):
            seen = policy(samples.graphs.select(part), samples.stage[part], samples.count[part])
            loss, entropy = -seen.log_probability.mean(), seen.entropy.mean()
            optimiser.zero_grad()
            (loss - entropy_weight * entropy).backward()
            norm = _step(policy, optimiser, loss.item(), max_gradient_norm)
            meter.rows.append((loss.item(), entropy.item(), 0.0, 0.0, norm))
        yield meter.report()


def _parts(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return np.array_split(order, max(1, math.ceil(order.size / size)))


def _tensor(array: NDArray[np.generic], like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device, like.dtype)


def _step(policy: Policy, optimiser: torch.optim.Optimizer, loss: float, max_gradient_norm: float) -> float:
    """Take a gradient step if it can be taken; the length of the gradient."""
    norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), max_gradient_norm))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise NotFiniteError(f"the loss is {loss}, the length of its gradient {norm}")
    optimiser.step()
    return norm
