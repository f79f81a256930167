"""Constrained training: limits on further objectives, kept by learned Lagrange multipliers (dual ascent).

A limit such as ``jct<=1.05*priced-srpt`` bounds the policy's cost per job by an objective: at most a factor times the
cost of a scheduler on the same sequences. The multiplier of a limit grows while training episodes exceed the limit, and
falls, at least to 0, while they keep it. The reward is that of the training's objective plus, for each limit, the
multiplier times the reward of the limit's objective.

Source: constrained Markov decision processes (Altman, 1999); multipliers as in RCPO (Tessler et al., ICLR 2019).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from decima.evaluation.run import objective_ms, run_scheduler
from decima.learning.cluster.rollout import (
    EpisodePlan,
    Shared,
    Trajectories,
    roll_out,
    roll_out_plans,
    start_episodes,
)
from decima.policy.files import make_actor
from decima.policy.scheduler import NeuralScheduler
from decima.registry import make_scheduler
from decima.settings import TrainingError
from simulator.cluster.episode import run_episode
from simulator.cluster.objectives import objective_named

__all__ = ["Limit", "Limits", "parse_limits"]

_FORM = re.compile(r"(?P<objective>[^<=+*\s]+)\s*<=\s*(?P<factor>[0-9.]+)\s*\*\s*(?P<scheduler>\S.*)")
#: Added to the excess in ``Limits.penalty``, so that policies that keep all limits are better than all others.
PENALTY = 10.0
Weights = dict[str, NDArray[np.float32]]


class Limit(NamedTuple):
    """A limit: the cost per job by an objective is at most a factor times the cost of a scheduler."""

    objective: str
    factor: float
    scheduler: str


def parse_limits(texts: Sequence[str]) -> list[Limit]:
    """Parse limits such as ``jct<=1.05*priced-srpt``.

    Raises:
        TrainingError: a text has another form, or names no objective or scheduler.
    """
    try:
        return [_parse(text) for text in texts]
    except ValueError as error:
        raise TrainingError(f"cluster.limits: {error}") from None


def _parse(text: str) -> Limit:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"expected OBJECTIVE<=FACTOR*SCHEDULER, such as jct<=1.05*priced-srpt, got {text!r:.60}"
        )
    try:
        factor = float(found["factor"])
    except ValueError:
        raise ValueError(f"{text!r:.60}: expected a number, got {found['factor']!r}") from None
    if not factor > 0:
        raise ValueError(f"{text!r:.60}: expected a factor above 0")
    objective_named(found["objective"])
    make_scheduler(found["scheduler"])
    objective = "jct" if found["objective"] == "mean" else found["objective"]
    return Limit(objective, factor, found["scheduler"])


class Limits:
    """Limits of a training with their Lagrange multipliers.

    Args:
        rate: growth of a multiplier per iteration and relative excess.

    Attributes:
        multipliers: float64 [limits], at least 0.
        excess: float64 [limits], relative excess in the last iteration: mean cost over mean bound, less 1; NaN before.
    """

    def __init__(self, limits: Sequence[Limit], rate: float) -> None:
        self.limits, self.rate = tuple(limits), rate
        self.multipliers = np.zeros(len(self.limits))
        self.excess = np.full(len(self.limits), np.nan)

    def update(self, costs: NDArray[np.float64], bounds: NDArray[np.float64]) -> None:
        """Update the multipliers by dual ascent.

        Args:
            costs: float64 [episodes, limits], cost per job by each limit's objective, ms.
            bounds: float64 [episodes, limits], bound of each limit on the same sequence, ms.
        """
        mean = np.maximum(bounds.mean(axis=0), 1e-9)
        self.excess = costs.mean(axis=0) / mean - 1
        self.multipliers = np.maximum(self.multipliers + self.rate * self.excess, 0.0)

    def reward(self, objective: str) -> str:
        """Return the reward of an iteration: the objective plus the multipliers times the limits' objectives."""
        terms = [
            f"{multiplier:.6f}*{limit.objective}"
            for multiplier, limit in zip(self.multipliers.tolist(), self.limits, strict=True)
            if multiplier > 0
        ]
        return "+".join([objective, *terms])

    def roll_out(
        self,
        run: Callable[..., list[Any]],
        weights: Weights,
        shares: Sequence[Sequence[EpisodePlan]],
        objective: str,
    ) -> Trajectories:
        """Run planned episodes with the reward of this iteration, and update the multipliers.

        Args:
            run: runs work items in the workers.
            shares: planned episodes of each work item.
        """
        if not self.limits:
            return Trajectories.concatenate(run(partial(roll_out_plans, weights), shares))
        parts = run(partial(_roll_out, weights, self.limits, self.reward(objective)), shares)
        seeds = [plan.sequence_seed for share in shares for plan in share]
        unique = list(dict.fromkeys(seeds))
        bounds = dict(zip(unique, run(partial(_bounds_ms, self.limits), unique), strict=True))
        self.update(np.concatenate([costs for _, costs in parts]), np.array([bounds[seed] for seed in seeds]))
        return Trajectories.concatenate([samples for samples, _ in parts])

    def penalty(self, run: Callable[..., list[Any]], weights: Weights, seeds: Sequence[int]) -> float:
        """Return the amount that exceeded limits take off a policy's improvement on validation sequences."""
        if not self.limits:
            return 0.0
        costs = np.array(run(partial(_costs_ms, weights, self.limits), seeds))
        bounds = np.array(run(partial(_bounds_ms, self.limits), seeds))
        excess = float((costs.mean(axis=0) / np.maximum(bounds.mean(axis=0), 1e-9)).max()) - 1
        return PENALTY + excess if excess > 0 else 0.0

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of an iteration: largest relative excess, and sum of the multipliers; empty without limits."""
        if not self.limits:
            return {}
        return {"limit_excess": float(self.excess.max()), "limit_multiplier": float(self.multipliers.sum())}

    def state(self) -> dict[str, Any]:
        """Return the state for checkpoints; empty without limits."""
        return {"limits": torch.from_numpy(self.multipliers.copy())} if self.limits else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state that ``state`` returned.

        Raises:
            KeyError, ValueError: the state is of another training.
        """
        if self.limits:
            if state["limits"].shape != self.multipliers.shape:
                raise ValueError("the state is of a training with other limits")
            self.multipliers = state["limits"].numpy().astype(np.float64)


def _roll_out(
    weights: Weights, limits: Sequence[Limit], reward: str, shared: Shared, plans: Sequence[EpisodePlan]
) -> tuple[Trajectories, NDArray[np.float64]]:
    """Run planned episodes with a reward; return samples, and costs by limit, float64 [episodes, limits], ms."""
    conditions = replace(shared.conditions, cluster=replace(shared.conditions.cluster, reward=reward))
    episodes = start_episodes(shared.policy, conditions, plans)
    samples = roll_out(make_actor(shared.policy, weights), episodes)
    records = [episode.cluster.record() for episode in episodes]
    return samples, np.array([[objective_ms(each, limit.objective) for limit in limits] for each in records])


def _bounds_ms(limits: Sequence[Limit], shared: Shared, seed: int) -> list[float]:
    """Return the bound of each limit on a sequence, ms."""
    cluster, sequence = shared.conditions.cluster_of(seed), shared.conditions.sequence(seed)
    records = {each.scheduler: run_scheduler(cluster, sequence, each.scheduler) for each in limits}
    return [each.factor * objective_ms(records[each.scheduler], each.objective) for each in limits]


def _costs_ms(weights: Weights, limits: Sequence[Limit], shared: Shared, seed: int) -> list[float]:
    """Return the greedy policy's cost per job on a sequence, by each limit's objective, ms."""
    scheduler = NeuralScheduler(make_actor(shared.policy, weights))
    record = run_episode(shared.conditions.cluster_of(seed), shared.conditions.sequence(seed), scheduler)
    return [objective_ms(record, each.objective) for each in limits]
