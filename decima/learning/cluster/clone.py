"""Behaviour cloning (imitation learning): before reinforcement learning, the policy learns a scheduler's choices.

The loss is the mean negative log-probability of the choices. Trainings on clusters and on grids share this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from decima.learning.loop import take_step
from decima.settings import Progress

__all__ = ["clone_epochs", "split"]

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


def split(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Split indices into nearly equal parts of at most ``size`` indices."""
    return np.array_split(order, max(1, math.ceil(order.size / size)))
