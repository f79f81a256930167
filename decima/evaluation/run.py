"""One scheduler on one sequence: the episode, and what a comparison keeps of it."""

from __future__ import annotations

import math
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from decima.evaluation.conditions import CompareError
from decima.registry import make_scheduler
from simulator.cluster.episode import run_episode
from workloads.errors import DecimaError

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord
    from workloads.arrivals import JobSequence

__all__ = ["Run", "objective_ms", "run_scheduler"]


class Run(NamedTuple):
    """Measures of one episode: one scheduler on one sequence. Unknown values are NaN.

    Attributes:
        mean_jct_ms: average job completion time, ms.
        p95_jct_ms: its 95th percentile, ms.
        makespan_ms: last completion - first arrival, ms.
        utilisation: busy executor time over executors x makespan.
        load: share of the time until the last arrival in which executors ran tasks; NaN in a batch.
        fragmentation: share of the memory of busy executors that their tasks did not demand.
        setting: the chosen setting of a tuned scheduler; empty for other schedulers.
        decisions: number of decisions, including those the engine took on the scheduler's behalf.
        guarded: number of decisions that the guard of a learned policy changed.
        slowdown: mean over the jobs of JCT over the expected time of the job alone, see ``EpisodeRecord.slowdown``.
    """

    mean_jct_ms: float
    p95_jct_ms: float = math.nan
    makespan_ms: float = math.nan
    utilisation: float = math.nan
    load: float = math.nan
    fragmentation: float = math.nan
    setting: str = ""
    decisions: int = 0
    guarded: int = 0
    slowdown: float = math.nan

    @staticmethod
    def of(record: EpisodeRecord, setting: str = "") -> Run:
        """Measure a whole episode."""
        last_ms = float(record.sequence.arrival_ms[-1])
        slowdown = record.slowdown[~np.isnan(record.slowdown)]
        return Run(
            record.mean_jct_ms,
            record.jct_percentile_ms(95),
            record.makespan_ms,
            record.utilisation,
            record.busy_until(last_ms) / (last_ms * record.config.num_executors) if last_ms else math.nan,
            record.fragmentation["memory"],
            setting,
            record.num_decisions,
            record.num_guarded,
            float(slowdown.mean()) if slowdown.size else math.nan,
        )


def objective_ms(run: Run | EpisodeRecord, objective: str) -> float:
    """Return the quantity to minimise, ms: the ``makespan``, or the mean ``jct``."""
    return run.makespan_ms if objective == "makespan" else run.mean_jct_ms


def run_scheduler(
    cluster: ClusterConfig, sequence: JobSequence, scheduler: str, instead: SchedulerLike | None = None
) -> EpisodeRecord:
    """Run a job sequence under a scheduler.

    Args:
        cluster: the cluster.
        sequence: the jobs; all schedulers meet the same task noise.
        scheduler: its name, see ``decima.registry.make_scheduler``.
        instead: the scheduler object or factory, if the name is not enough to make one.

    Raises:
        CompareError: the scheduler failed with any error; one line that names it, the seed and the reason.
    """
    try:
        return run_episode(cluster, sequence, make_scheduler(instead or scheduler, sequence.seed))
    except DecimaError as error:
        raise CompareError(f"{scheduler} on seed {sequence.seed}: {error}") from error
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        raise CompareError(f"{scheduler} on seed {sequence.seed}: {reason}") from error
