"""Run a scheduler, given by its name, on a job sequence."""

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

__all__ = ["run_scheduler"]


def run_scheduler(
    cluster: ClusterConfig, sequence: JobSequence, scheduler: str, instead: SchedulerLike | None = None
) -> EpisodeRecord:
    """Run a job sequence under a named scheduler; with ``instead``, the name is only for messages.

    Raises ``CompareError`` if the scheduler failed: one line with its name, the seed and the reason.
    """
    try:
        return run_episode(cluster, sequence, make_scheduler(instead or scheduler, sequence.seed))
    except DecimaError as error:
        raise CompareError(f"{scheduler} on seed {sequence.seed}: {error}") from error
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
        raise CompareError(f"{scheduler} on seed {sequence.seed}: {reason}") from error
