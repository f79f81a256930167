"""Decisions of an episode, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from simulator.cluster.episode import start_episode

if TYPE_CHECKING:
    from decima.evaluation.conditions import Conditions
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.episode import DecidesStages
    from simulator.cluster.observation import Decision, Observation

__all__ = ["DecisionRecord", "count_differences", "decisions", "effect_of", "replay"]


def replay(
    conditions: Conditions, seed: int, scheduler: DecidesStages
) -> Iterator[tuple[BaseCluster, Observation, Decision | None]]:
    """Run an experiment; yield each decision with the cluster and its observation."""
    cluster = start_episode(conditions.cluster_of(seed), conditions.sequence(seed), scheduler)
    while not cluster.done:
        seen = cluster.observe()
        decision = scheduler.decide(seen) if seen.num_schedulable else None
        if seen.num_schedulable:
            yield cluster, seen, decision
        cluster.decide(decision)


class DecisionRecord(NamedTuple):
    """One decision; job and stage are -1, and the limit is 0, if the ``offered`` executors are left idle."""

    time_ms: float
    offered: int
    job: int = -1
    stage: int = -1
    limit: int = 0


def decisions(conditions: Conditions, seed: int, scheduler: DecidesStages) -> list[DecisionRecord]:
    """Run an experiment, and return the scheduler's decisions in order.

    Decisions to keep executors in their job, which the engine takes on the scheduler's behalf (see
    ``DecidesStages``), are not included.
    """
    decided = []
    for _, seen, decision in replay(conditions, seed, scheduler):
        when = float(seen.time_ms), seen.offered
        if decision is None:
            decided.append(DecisionRecord(*when))
        else:
            job = int(seen.stage_job[decision.stage])
            stage = int(decision.stage - seen.job_first_stage[job])
            decided.append(DecisionRecord(*when, int(seen.job_id[job]), stage, int(decision.limit)))
    return decided


def effect_of(seen: Observation, decision: Decision | None) -> tuple[int, int] | None:
    """Return the effect of a decision: the chosen stage, and its number of new executors; None if left idle."""
    if decision is None:
        return None
    held = seen.held(int(seen.stage_job[decision.stage]))
    return int(decision.stage), min(
        decision.limit - held, seen.offered, int(seen.unclaimed_tasks[decision.stage])
    )


def count_differences(
    conditions: Conditions, seed: int, scheduler: DecidesStages, rule: DecidesStages, most: int = 2_000
) -> tuple[int, int]:
    """Run an experiment, and ask a rule in the same states, too.

    Args:
        most: number of decisions after which the comparison ends.

    Returns:
        Number of decisions in which the rule has another effect, and number of decisions.
    """
    rule.reset(conditions.cluster_of(seed))
    differing = count = 0
    for _, seen, decision in itertools.islice(replay(conditions, seed, scheduler), most):
        differing += effect_of(seen, decision) != effect_of(seen, rule.decide(seen))
        count += 1
    return differing, count
