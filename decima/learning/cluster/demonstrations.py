"""Demonstrations: a scheduler's decisions as choices of a policy, for behaviour cloning and for a heuristic's baseline.

Worker processes import this module: it needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from decima.learning.cluster.rollout import Episode, Shared, Trajectories, gather
from decima.registry import make_scheduler
from simulator.cluster.observation import Decision, Observation

if TYPE_CHECKING:
    from decima.policy.compiled.graphs import Graphs
    from decima.policy.config import PolicyConfig
    from simulator.cluster.episode import DecidesStages

__all__ = ["choice_of", "record_scheduler", "record_sequence"]


def record_scheduler(scheduler: DecidesStages, episodes: Sequence[Episode]) -> Trajectories:
    """Run episodes with any scheduler, and record its decisions as choices of a policy.

    Decisions that the policy cannot choose: leaving executors idle is no sample if the policy cannot wait; a limit
    above the policy's largest limit is recorded as the largest.
    """
    config = episodes[0].featurizer.config
    for episode in episodes:
        scheduler.reset(episode.config)
        while not episode.cluster.done:
            observation = episode.observation = episode.cluster.observe()
            decision = scheduler.decide(observation) if observation.num_schedulable else None
            graph, num_answers = episode.featurizer.graph_and_answers(observation)
            choice = choice_of(config, observation, graph, decision) if num_answers > 1 else None
            if choice is not None:
                episode.record(graph, *choice, 0.0)
                decision = episode.featurizer.decision(observation, *choice)
            episode.decide(decision)
    return gather(config, episodes)


def record_sequence(
    scheduler: str, num_jobs: int | None, share: float, shared: Shared, seed: int
) -> Trajectories:
    """Record a scheduler's decisions on one job sequence; ``num_jobs`` replaces the workload's number of jobs."""
    conditions = shared.conditions if num_jobs is None else replace(shared.conditions, num_jobs=num_jobs)
    episode = Episode(shared.policy, conditions.cluster_of(seed), conditions.sequence(seed), share=share)
    return record_scheduler(make_scheduler(scheduler, shared.seed), [episode])


def choice_of(
    config: PolicyConfig, observation: Observation, graph: Graphs, decision: Decision | None
) -> tuple[int, int] | None:
    """Convert a decision to a choice (stage and limit) of a policy, the inverse of ``Featurizer.decision``.

    Idle executors can be expressed at every stage: the stage of the job with the least remaining work is taken.
    Limits above the network's largest limit become the largest. None if the network has no such choice.
    """
    if decision is None:
        work = observation.work_ms(observation.remaining_tasks)
        stages = np.flatnonzero(observation.schedulable)
        stage = int(stages[np.argmin(work[observation.stage_job[stages]])])
    else:
        stage = decision.stage
    row = int(np.searchsorted(graph.stage_index, stage))
    low, high = int(graph.low[row]), int(graph.high[row])
    held = observation.held(int(observation.stage_job[stage]))
    limit = held if decision is None else decision.limit
    if config.limit == "stage":
        limit += int(observation.running_executors[stage]) - held
    return (stage, min(limit, high)) if low < limit and low < high else None
