"""Custom returns, baseline and algorithm."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decima.learning import Baseline, Curve, Reinforce, Returns, take_step
from decima.learning.cluster.rollout import Trajectories
from decima.policy import Policy


class Forgetful(Returns):
    """Returns discounted per decision, independent of time.

    Args:
        factor: discount per decision.
    """

    def __init__(self, factor: float = 0.95) -> None:
        self.factor = factor

    def steps(
        self, reward: NDArray[np.float64], time_ms: NDArray[np.float64], end_ms: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return reward, np.full_like(reward, self.factor)


class PastMean(Baseline):
    """The mean of all returns so far, in this iteration and before."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def __call__(self, curves: Sequence[Curve]) -> list[NDArray[np.float64]]:
        self.total += sum(float(curve.value.sum()) for curve in curves)
        self.count += sum(curve.value.size for curve in curves)
        return [np.full_like(curve.value, self.total / max(self.count, 1)) for curve in curves]

    def state(self) -> dict[str, Any]:
        return {"total": self.total, "count": self.count}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.total, self.count = float(state["total"]), int(state["count"])


class Better(Reinforce):
    """Makes decisions with positive advantage more likely, independent of its size, in one step."""

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
        better = np.flatnonzero(advantage > 0)
        log_probability, entropy = samples.evaluate(policy, better if better.size else np.arange(1))
        loss = -log_probability.mean()
        optimiser.zero_grad()
        (loss - entropy_weight * entropy.mean()).backward()
        norm = take_step(policy, optimiser, loss.item(), max_gradient_norm=max_gradient_norm)
        return {"loss": loss.item(), "entropy": entropy.mean().item(), "gradient_norm": norm, "steps": 1}
