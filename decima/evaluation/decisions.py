"""Re-run an episode and observe its decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import Conditions
from simulator.cluster.base import BaseCluster
from simulator.cluster.episode import DecidesStages, start_episode
from simulator.cluster.observation import Decision, Observation

__all__ = ["Decided", "decisions", "replay"]


class Decided(NamedTuple):
    """One decision.

    Attributes:
        time_ms: the clock, ms.
        offered: number of offered executors.
        job: its number in the sequence; -1 if the executors are left idle.
        stage: its number in the job; -1 likewise.
        limit: parallelism limit of the job; 0 likewise.
    """

    time_ms: float
    offered: int
    job: int = -1
    stage: int = -1
    limit: int = 0


def replay(
    conditions: Conditions, seed: int, scheduler: DecidesStages
) -> Iterator[tuple[BaseCluster, Observation, Decision | None]]:
    """Run an experiment; yield each decision with the cluster and the observation before it."""
    cluster = start_episode(conditions.cluster_of(seed), conditions.sequence(seed), scheduler)
    while not cluster.done:
        seen = cluster.observe()
        decision = scheduler.decide(seen) if seen.num_schedulable else None
        if seen.num_schedulable:
            yield cluster, seen, decision
        cluster.decide(decision)


def decisions(comparison: Comparison, scheduler: str) -> list[Decided]:
    """Return the decisions of a scheduler, in order, in the experiment whose episodes the comparison kept.

    The episode runs again, with the scheduler's setting. Decisions to keep executors with their job, which the engine
    takes on the scheduler's behalf (see ``DecidesStages``), are not included.

    Args:
        comparison: with at least one finished experiment.
        scheduler: name of a scheduler of the comparison.
    """
    seed, found = min(comparison.finished), []
    for _, seen, decision in replay(comparison.conditions, seed, comparison.scheduler(scheduler, seed)):
        when = float(seen.time_ms), seen.offered
        if decision is None:
            found.append(Decided(*when))
        else:
            job = int(seen.stage_job[decision.stage])
            stage = int(decision.stage - seen.job_first_stage[job])
            found.append(Decided(*when, int(seen.job_id[job]), stage, int(decision.limit)))
    return found
