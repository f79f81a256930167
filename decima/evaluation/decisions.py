"""The decisions of an episode: it runs again, and somebody takes notes."""

from __future__ import annotations

from typing import NamedTuple

from decima.evaluation.comparison import Comparison
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import DecidesStages, run_episode
from simulator.cluster.observation import Decision, Observation

__all__ = ["Decided", "decisions"]


class Decided(NamedTuple):
    """One decision.

    Attributes:
        time_ms: the clock, ms.
        offered: executors that were offered.
        job: its number in the sequence; -1 where the executors were left idle.
        stage: its number in the job; -1 likewise.
        limit: of the job's executors; 0 likewise.
    """

    time_ms: float
    offered: int
    job: int = -1
    stage: int = -1
    limit: int = 0


def decisions(comparison: Comparison, scheduler: str) -> list[Decided]:
    """What a scheduler decided in the experiment whose episodes the comparison kept, in order.

    It is asked once more, with the setting that it had. Those that keep executors with their job are not asked where
    they would say so again, see ``DecidesStages``.

    Args:
        comparison: with at least one finished experiment.
        scheduler: one of those that are shown.
    """
    conditions, seed = comparison.conditions, min(comparison.finished)
    sequence = conditions.sequence(seed)
    notes = _Notes(comparison.scheduler(scheduler, seed))
    run_episode(conditions.cluster_of(seed), sequence, notes)
    return notes.taken


class _Notes:
    """Asks a scheduler, and takes notes."""

    def __init__(self, scheduler: DecidesStages) -> None:
        self._scheduler = scheduler
        self.keeps_executors = getattr(scheduler, "keeps_executors", False)
        self.taken: list[Decided] = []

    def reset(self, config: ClusterConfig) -> None:
        self._scheduler.reset(config)

    def decide(self, seen: Observation) -> Decision | None:
        decision = self._scheduler.decide(seen)
        when = float(seen.time_ms), seen.offered
        if decision is None:
            self.taken.append(Decided(*when))
        else:
            job = int(seen.stage_job[decision.stage])
            stage = int(decision.stage - seen.job_first_stage[job])
            self.taken.append(Decided(*when, int(seen.job_id[job]), stage, int(decision.limit)))
        return decision
