"""Decide in several clusters at once, as one batch for a network: custom networks are slow for single observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from decima.policy import batches
from decima.policy.compiled.graphs import NO_GUARD
from decima.policy.scheduler import Actor, Featurizer, NetworkChoice
from simulator.cluster.observation import Decision, Observation

if TYPE_CHECKING:
    from decima.policy.policy import Policy
    from simulator.cluster.base import BaseCluster

__all__ = ["choose_together", "run_together"]


def choose_together(
    featurizers: Sequence[Featurizer],
    observations: Sequence[Observation],
    policy: Actor | Policy,
    uniforms: NDArray[np.float64] | None = None,
) -> list[NetworkChoice]:
    """Return the choices of a policy in B observations of different clusters, as one batch for a custom network.

    Args:
        featurizers: B objects, one for each cluster.
        observations: states of the B clusters.
        policy: network that chooses.
        uniforms: float64 [B, 2] or [B, 4], see ``Featurizer.choose``.
    """
    built = [
        featurizer.build(observation)
        for featurizer, observation in zip(featurizers, observations, strict=True)
    ]
    graphs = batches.concatenate([graph for graph, _, _ in built])
    guard = NO_GUARD
    if any(low.size for _, _, (low, _) in built):
        # In observations without a mask, all limits of the graph may be chosen.
        masked = [(low, high) if low.size else (graph.low, graph.high) for graph, _, (low, high) in built]
        guard = np.concatenate([low for low, _ in masked]), np.concatenate([high for _, high in masked])
    acted = policy.act(graphs, uniforms, guard)
    choices = []
    for index, (featurizer, observation) in enumerate(zip(featurizers, observations, strict=True)):
        graph, num_answers, _ = built[index]
        stage, limit, job_limit = int(acted.stage[index]), int(acted.limit[index]), 0
        if stage >= 0:
            decision = featurizer.decision(observation, stage, limit)
            job_limit = 0 if decision is None else decision.limit
        log_probability, guarded = float(acted.log_probability[index]), bool(acted.guarded[index])
        choices.append(NetworkChoice(num_answers, stage, limit, job_limit, log_probability, guarded, graph))
    return choices


def run_together(policy: Actor | Policy, clusters: Sequence[BaseCluster], guard: bool = True) -> None:
    """Run new clusters to their ends with greedy decisions of a policy with a custom network, in lock step.

    The decisions are those of ``NeuralScheduler`` up to the rounding of larger batches.

    Args:
        guard: see ``NeuralScheduler``.
    """
    featurizers = {cluster: Featurizer(policy.config, guard=guard) for cluster in clusters}
    while running := [cluster for cluster in featurizers if not cluster.done]:
        observed = [(cluster, cluster.observe()) for cluster in running]
        asked = [pair for pair in observed if pair[1].num_schedulable]
        decisions: dict[BaseCluster, Decision | None] = dict.fromkeys(running)
        if asked:
            choices = choose_together(
                [featurizers[cluster] for cluster, _ in asked],
                [observation for _, observation in asked],
                policy,
            )
            decisions |= {
                cluster: choice.decision for (cluster, _), choice in zip(asked, choices, strict=True)
            }
        for cluster, decision in decisions.items():
            cluster.decide(decision)
