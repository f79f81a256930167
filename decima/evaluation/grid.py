"""How a scheduler does on sets of jobs: the figures of the three papers, each over all jobs or all sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.intervals import Interval, mean_interval
from decima.schedulers.grid import GridScheduler, Tetris, make_heuristic, play, tune_tetris
from simulator.grid import Grid, GridConfig, GridRecord
from workloads import JobSets

__all__ = [
    "HEURISTIC_NAMES",
    "MEASURES",
    "TRAINING_SEED",
    "TUNED",
    "Evaluation",
    "best_of",
    "evaluate",
    "heuristics_for",
    "relative_change",
]

#: Added to the seed of sets that schedulers are compared on, for those that they are trained or tuned on.
TRAINING_SEED = 1_000_000
#: Tetris* with the knob that is best on training sets.
TUNED = "tetris*"
#: Whom the papers compare with.
HEURISTIC_NAMES = ("sjf", "packer", TUNED, "random")

#: What is measured of each set of jobs, and what it is.
MEASURES = {
    "slowdown": "completion time over duration, mean over jobs",
    "completion": "steps from entering to finishing, mean over jobs",
    "waiting": "steps from entering to starting, mean over jobs",
    "makespan": "steps until all jobs are finished",
    "utilisation": "share of all units in use until then",
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One scheduler on N sets of jobs.

    Jobs that an episode's end found unbooked count as if they had finished then.

    Attributes:
        record: what happened.
    """

    record: GridRecord

    def by_job(self, measure: str) -> NDArray[np.float64]:
        """Slowdown, completion or waiting, float64 [N, J]; NaN where there is no job."""
        record = self.record
        ended = record.clock[:, None] - record.jobs.enter
        completion = np.where(record.start >= 0, record.completion, ended).astype(np.float64)
        completion[~record.is_job] = np.nan
        duration = np.maximum(record.jobs.duration, 1)
        if measure == "slowdown":
            return np.asarray(completion / duration)
        return completion if measure == "completion" else completion - record.jobs.duration

    def mean(self, measure: str) -> float:
        """Over all jobs, or all sets; NaN if there are no jobs."""
        values = self.by_set(measure)[0] if measure in ("makespan", "utilisation") else self.by_job(measure)
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    def by_set(self, measure: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each set with jobs the mean, float64 [n], and its number of jobs, float64 [n]: weights for errors."""
        jobs = self.record.is_job.sum(axis=1)
        some = jobs > 0
        if measure in ("makespan", "utilisation"):
            return np.asarray(getattr(self.record, measure), dtype=np.float64)[some], np.ones(int(some.sum()))
        return np.nanmean(self.by_job(measure)[some], axis=1), jobs[some].astype(np.float64)

    def interval(self, measure: str) -> Interval:
        """The mean and half its 95 % confidence interval; NaN where it is not defined.

        Jobs of one set depend on one another, so that the interval is from the differences between sets (Student's t).
        """
        return mean_interval(*self.by_set(measure))

    def objective(self, measure: str) -> float:
        """What is to be small: the measure, utilisation with its sign changed."""
        value = self.mean(measure)
        return -value if measure == "utilisation" else value


def evaluate(
    config: GridConfig, jobs: JobSets, schedulers: Mapping[str, GridScheduler]
) -> dict[str, Evaluation]:
    """Run each scheduler on all sets; by name."""
    return {name: Evaluation(play(Grid(config, jobs), scheduler)) for name, scheduler in schedulers.items()}


def best_of(evaluations: Mapping[str, Evaluation], measure: str) -> str:
    """The scheduler that does best, by its mean; the first among equals."""
    return min(evaluations, key=lambda name: evaluations[name].objective(measure))


def relative_change(one: Evaluation, other: Evaluation, measure: str) -> Interval:
    """By what fraction one's mean is above the other's, and half its 95 % confidence interval, paired by set.

    Both ran the same sets. The other's mean is taken as exact.
    """
    values, weights = one.by_set(measure)
    difference, half_width = mean_interval(values - other.by_set(measure)[0], weights)
    mean = other.mean(measure)
    return Interval(difference / mean, half_width / abs(mean))


def heuristics_for(
    config: GridConfig, training: JobSets, names: Sequence[str] = HEURISTIC_NAMES
) -> dict[str, GridScheduler]:
    """Heuristics by the names that are shown.

    Args:
        config: the grid.
        training: sets on which the knob of Tetris* is tuned.
        names: ``tetris*``, and what ``make_heuristic`` knows.

    Raises:
        SchedulerError: there is none of a name.
    """
    return {
        name: Tetris(tune_tetris(Grid(config, training))) if name == TUNED else make_heuristic(name)
        for name in names
    }
