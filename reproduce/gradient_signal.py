"""Gradient signal: how much of the policy gradient job sequences have in common, with returns, a critic and GAE.

Decima (section 5.3, challenge 2) subtracts a baseline for each job sequence, since returns vary with arrivals. The rest
of the noise is that of a policy's own later decisions. A critic with generalised advantage estimation (GAE) replaces
rewards after some seconds by their expectation. For a policy in the middle of the recipe ``batch``, this measures the
part of the gradient that sequences have in common, and whether its direction stays that of the returns.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from decima.learning.cluster.advantages import Advantages
from decima.learning.cluster.config import read_config, workload_overrides
from decima.learning.cluster.reinforce import sequence_gradients, signal_of
from decima.learning.cluster.rollout import Shared, plan_iteration, roll_out_plans
from decima.policy.files import load_policy
from decima.show.style import GREY, finish_axes, new_axes
from reproduce.common import Result, train

RETURNS, CRITIC = "returns", "critic, GAE horizon {:g} s"


def run(
    *,
    workload: str = "tpch",
    executors: int = 50,
    horizon: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0, 80.0),
    iterations: int = 100,
    sequences: int = 64,
    seed: int = 0,
    policies: Path = Path("reproduced/policies"),
    training: tuple[str, ...] = (),
    workers: int = 1,
) -> Result:
    """Train a policy for some iterations, and compare gradients from different advantages on the same episodes.

    Args:
        workload: tpch, a workload file, or the folder of the published TPC-H profiles.
        executors: Executors of the cluster.
        horizon: Seconds after which the critic replaces rewards.
        iterations: Iterations of the training.
        sequences: Number of job sequences, with four episodes each.
        seed: Seed of the training; the episodes have the next one.
        policies: Folder of the trained policy; a complete training in it is not repeated.
        training: Setting of the training that differs from the recipe, such as workload.jobs=10.
        workers: Processes of the training.
    """
    size = [f"cluster.executors={executors}", *training]
    settings = [*size, f"iterations={iterations}", f"seed={seed}"]
    trained = train(policies / "gradient-signal", "batch", settings, workload, workers)
    policy = load_policy(trained.removeprefix("decima:"))
    measured = [*size, f"seed={seed + 1}", f"episodes.sequences={sequences}", *workload_overrides(workload)]
    variants = {RETURNS: "critic=null"} | {
        CRITIC.format(seconds): f"critic={{gae_horizon: {seconds}}}" for seconds in horizon
    }
    configs = {name: read_config("batch", [*measured, critic]) for name, critic in variants.items()}
    config = configs[RETURNS]
    conditions, groups = config.conditions(), plan_iteration(config, 0)
    plans = [plan for group in groups for plan in group]
    samples = roll_out_plans(policy.arrays, Shared(conditions, policy.config, config.seed), plans)
    bounds = samples.first[:: config.episodes.per_sequence].tolist()
    parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
    gradients = {}
    for name, of_variant in configs.items():
        advantage = Advantages(of_variant, conditions)(policy, samples, groups)
        for part in parts:
            advantage[part] /= advantage[part].std()
        gradients[name] = sequence_gradients(policy, samples, advantage, parts)
    table = pd.DataFrame(
        [
            {"advantages": name, **_summary(mine), "direction": _alignment(mine, gradients[RETURNS])}
            for name, mine in gradients.items()
        ]
    )
    formats = {"signal": ".3f", "direction": ".2f"}
    return Result({"batches": table}, {"gradient-signal": plot(table)}, formats=formats)


def _summary(gradients: torch.Tensor) -> dict[str, float]:
    """Return the signal of gradients of n sequences, float [n, weights], with its interval by the jackknife."""
    count = len(gradients)
    without = [signal_of(torch.cat([gradients[:index], gradients[index + 1 :]])) for index in range(count)]
    return {"signal": signal_of(gradients), "signal_ci95": 1.96 * float(np.std(without)) * np.sqrt(count - 1)}


def _alignment(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of the expected gradients, without products of gradients of the same sequence."""

    def product(left: torch.Tensor, right: torch.Tensor) -> float:
        return float(left.sum(dim=0) @ right.sum(dim=0) - (left * right).sum())

    squares = product(one, one) * product(other, other)
    return product(one, other) / np.sqrt(squares) if squares > 0 else float("nan")


def plot(table: pd.DataFrame) -> Figure:
    """Draw the signal of each kind of advantages."""
    figure, axes = new_axes(7, 0.35 * len(table) + 1.5)
    places = np.arange(len(table))[::-1]
    axes.axvline(0, color=GREY)
    axes.errorbar(table["signal"], places, xerr=table["signal_ci95"], fmt="o", capsize=3)
    axes.set_yticks(places, table["advantages"])
    finish_axes(axes, xlabel="Part of the gradient that job sequences have in common")
    return figure
