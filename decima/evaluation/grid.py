"""Schedulers on a grid, on the same sets of jobs: the figures of the three papers, each over all jobs or all sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.intervals import Interval, mean_interval
from decima.policy.grid.files import load_network
from decima.policy.grid.scheduler import COMPARED, Actor
from decima.policy.threads import one_thread
from decima.schedulers.grid import GridScheduler, Tetris, make_heuristic, play, tune_tetris
from simulator.grid.config import GridConfig
from simulator.grid.grid import Grid
from simulator.grid.record import GridRecord
from workloads.arrivals import RandomStream, random_stream
from workloads.grid_jobs import JobSets

__all__ = [
    "HEURISTIC_NAMES",
    "MEASURES",
    "TRAINING_SEED",
    "TUNED",
    "Evaluation",
    "GridConditions",
    "best_of",
    "evaluate",
    "heuristics_for",
    "network_actor",
    "relative_change",
]

#: Added to the seed of sets that schedulers are compared on, for those that they are trained or tuned on.
TRAINING_SEED = 1_000_000
#: Tetris* with the knob that is best on training sets.
TUNED = "tetris*"
#: Heuristics that the papers compare with.
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

    def summary(self) -> dict[str, Any]:
        """Every measure for JSON: the mean, half its 95 % confidence interval, the means of the sets."""
        summary: dict[str, Any] = {"unfinished": int(self.record.unfinished.sum())}
        for measure in MEASURES:
            mean, half_width = self.interval(measure)
            per_set = self.by_set(measure)[0].tolist()
            summary[measure] = {"mean": mean, "ci95": half_width, "per_set": per_set}
        return summary


@dataclass(frozen=True, eq=False)
class GridConditions:
    """A grid, how its jobs are drawn, and who schedules them.

    Attributes:
        grid: machines, and the queue before them.
        draw: gives so many sets of jobs by a seed.
        heuristics: see ``heuristics_for``.
        networks: name that is shown -> policy file.
        sets: unseen ones that schedulers are compared on; as many are there to tune Tetris* on.
        seed: names the sets, and what networks draw.
    """

    grid: GridConfig
    draw: Callable[[int, int], JobSets]
    heuristics: Sequence[str] = HEURISTIC_NAMES
    networks: Mapping[str, Path] = field(default_factory=dict)
    sets: int = 100
    seed: int = 0

    def jobs(self) -> JobSets:
        """The sets that schedulers are compared on; no training meets them."""
        return self.draw(self.sets, self.seed)

    def schedulers(self) -> dict[str, GridScheduler]:
        """All who take part, in the order in which they are shown."""
        heuristics = heuristics_for(
            self.grid, self.draw(self.sets, TRAINING_SEED + self.seed), self.heuristics
        )
        return heuristics | {name: network_actor(path, self.seed) for name, path in self.networks.items()}

    def run(self, schedulers: Mapping[str, GridScheduler] | None = None) -> dict[str, Evaluation]:
        """Run these schedulers, or all who take part, on the sets; by name.

        Raises:
            PolicyFileError: a file holds no network.
            SchedulerError: there is no such heuristic.
            WorkloadError: the jobs do not fit the grid.
        """
        with one_thread():
            return evaluate(self.grid, self.jobs(), schedulers or self.schedulers())


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


def network_actor(path: Path, seed: int) -> GridScheduler:
    """A network as a scheduler. It draws its actions, among those that were possible in its training.

    Args:
        path: the file.
        seed: of what it draws.

    Raises:
        PolicyFileError: the file holds no network.
    """
    network, config = load_network(path)
    random = random_stream(seed, RandomStream.POLICY, COMPARED)
    return Actor(network, random, mask=config.mask)
