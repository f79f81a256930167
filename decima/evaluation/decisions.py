"""Re-run an episode of a comparison and record its decisions."""

from __future__ import annotations

from typing import NamedTuple

from decima.evaluation.comparison import Comparison
from simulator.cluster.base import BaseCluster
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
    """Return the decisions of a scheduler, in order, in the experiment whose episodes the comparison kept.

    The episode runs again, with the scheduler's setting. Decisions to keep executors with their job, which the engine
    takes for such a scheduler, are not among them, see ``DecidesStages``.

    Args:
        comparison: with at least one finished experiment.
        scheduler: name of a scheduler of the comparison.
    """
    conditions, seed = comparison.conditions, min(comparison.finished)
    sequence = conditions.sequence(seed)
    recorder = _Recorder(comparison.scheduler(scheduler, seed))
    run_episode(conditions.cluster_of(seed), sequence, recorder)
    return recorder.taken


class _Recorder:
    """Scheduler that records the decisions of another scheduler."""

    def __init__(self, scheduler: DecidesStages) -> None:
        self._scheduler = scheduler
        self.keeps_executors = getattr(scheduler, "keeps_executors", False)
        self.taken: list[Decided] = []

    def reset(self, config: ClusterConfig) -> None:
        self._scheduler.reset(config)

    def watch(self, cluster: BaseCluster) -> None:
        if callable(watch := getattr(self._scheduler, "watch", None)):
            watch(cluster)

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
