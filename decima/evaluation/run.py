"""Run one scheduler on one sequence of jobs."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from decima.evaluation.conditions import CompareError
from decima.registry import make_scheduler
from simulator.cluster.episode import run_episode
from workloads.errors import DecimaError

if TYPE_CHECKING:
    from decima.registry import SchedulerLike
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.record import EpisodeRecord
    from workloads.arrivals import JobSequence

__all__ = ["objective_ms", "run_scheduler"]


def objective_ms(record: EpisodeRecord, objective: str) -> float:
    """Return the quantity to minimise, ms: the ``makespan``, or the mean ``jct``."""
    return record.makespan_ms if objective == "makespan" else record.mean_jct_ms


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
