"""Evaluation of schedulers on DeepRM's grid: metrics over jobs or job sets, with confidence intervals over sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decima.evaluation.metrics import Interval, mean_interval
from decima.policy.grid import COMPARED, Actor, load_network
from decima.policy.threads import one_thread
from decima.schedulers.grid import GridScheduler, Tetris, make_heuristic, play, tune_tetris
from simulator.grid.config import GridConfig
from simulator.grid.grid import Grid
from simulator.grid.record import GridRecord
from workloads.arrivals import RandomStream, random_stream
from workloads.grid_jobs import JobSets

__all__ = [
    "HEURISTIC_NAMES", "MEASURES", "TRAINING_SEED", "TUNED", "Evaluation", "GridConditions",
    "Withholding", "best_of", "evaluate", "heuristics_for", "network_actor", "relative_change",
]  # fmt: skip

#: Offset of the seed of training sets from that of evaluation sets.
TRAINING_SEED = 1_000_000
#: Tetris* with its knob tuned on training sets.
TUNED = "tetris*"
#: Heuristics of the papers.
HEURISTIC_NAMES = ("sjf", "packer", TUNED, "random")

#: Metric -> meaning.
MEASURES = {
    "slowdown": "completion time over duration, mean over jobs",
    "completion": "steps from entering to finishing, mean over jobs",
    "waiting": "steps from entering to starting, mean over jobs",
    "makespan": "steps until all jobs are finished",
    "utilisation": "share of all units in use until then",
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of one scheduler on N job sets.

    Jobs that are not booked when the episode ends count as finished at that time.
    """

    record: GridRecord

    def by_job(self, measure: str) -> NDArray[np.float64]:
        """Return slowdown, completion or waiting of each job, float64 [N, J]; NaN for absent jobs."""
        record = self.record
        ended = record.clock[:, None] - record.jobs.enter
        completion = np.where(record.start >= 0, record.completion, ended).astype(np.float64)
        completion[~record.is_job] = np.nan
        duration = np.maximum(record.jobs.duration, 1)
        if measure == "slowdown":
            return np.asarray(completion / duration)
        return completion if measure == "completion" else completion - record.jobs.duration

    def mean(self, measure: str) -> float:
        """Return the mean over all jobs or all sets; NaN if there are no jobs."""
        values = self.by_set(measure)[0] if measure in ("makespan", "utilisation") else self.by_job(measure)
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    def by_set(self, measure: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and weight (number of jobs, or 1) of each set with jobs, float64 [n] each."""
        jobs = self.record.is_job.sum(axis=1)
        some = jobs > 0
        if measure in ("makespan", "utilisation"):
            return np.asarray(getattr(self.record, measure), dtype=np.float64)[some], np.ones(int(some.sum()))
        return np.nanmean(self.by_job(measure)[some], axis=1), jobs[some].astype(np.float64)

    def interval(self, measure: str) -> Interval:
        """Return the mean and half of its 95 % confidence interval (Student's t over sets, as jobs are dependent)."""
        return mean_interval(*self.by_set(measure))

    def summary(self) -> dict[str, Any]:
        """Return all metrics for JSON: mean, half of its 95 % confidence interval, means of the sets."""
        summary: dict[str, Any] = {"unfinished": int(self.record.unfinished.sum())}
        for measure in MEASURES:
            mean, half_width = self.interval(measure)
            per_set = self.by_set(measure)[0].tolist()
            summary[measure] = {"mean": mean, "ci95": half_width, "per_set": per_set}
        return summary


@dataclass(frozen=True, eq=False)
class GridConditions:
    """Evaluation setting: a grid, a distribution of jobs, and schedulers.

    Attributes:
        draw: function of a number of job sets and a seed that returns the sets.
        heuristics: see ``heuristics_for``.
        networks: displayed name -> policy file.
        sets: number of evaluation sets, and of training sets for Tetris*.
        seed: seed of the sets and of sampled actions.
    """

    grid: GridConfig
    draw: Callable[[int, int], JobSets]
    heuristics: Sequence[str] = HEURISTIC_NAMES
    networks: Mapping[str, Path] = field(default_factory=dict)
    sets: int = 100
    seed: int = 0

    def jobs(self) -> JobSets:
        """Return the evaluation sets, disjoint from the training sets."""
        return self.draw(self.sets, self.seed)

    def schedulers(self) -> dict[str, GridScheduler]:
        """Return all schedulers by displayed name, in order."""
        heuristics = heuristics_for(
            self.grid, self.draw(self.sets, TRAINING_SEED + self.seed), self.heuristics
        )
        return heuristics | {name: network_actor(path, self.seed) for name, path in self.networks.items()}

    def run(self, schedulers: Mapping[str, GridScheduler] | None = None) -> dict[str, Evaluation]:
        """Run schedulers (by default all) on the evaluation sets; return results by name.

        Raises:
            PolicyFileError: a policy file is invalid.
            SchedulerError: an unknown heuristic.
            WorkloadError: the jobs do not fit the grid.
        """
        with one_thread():
            return evaluate(self.grid, self.jobs(), schedulers or self.schedulers())


def evaluate(
    config: GridConfig, jobs: JobSets, schedulers: Mapping[str, GridScheduler]
) -> dict[str, Evaluation]:
    """Run schedulers on job sets; return results by name."""
    return {name: Evaluation(play(Grid(config, jobs), scheduler)) for name, scheduler in schedulers.items()}


def best_of(evaluations: Mapping[str, Evaluation], measure: str) -> str:
    """Return the scheduler with the best mean; the first one on a tie."""
    sign = -1 if measure == "utilisation" else 1
    return min(evaluations, key=lambda name: sign * evaluations[name].mean(measure))


def relative_change(one: Evaluation, other: Evaluation, measure: str) -> Interval:
    """Return the relative difference of two means with its 95 % confidence interval, paired by set.

    The mean of ``other`` is treated as exact.
    """
    values, weights = one.by_set(measure)
    difference, half_width = mean_interval(values - other.by_set(measure)[0], weights)
    mean = other.mean(measure)
    return Interval(difference / mean, half_width / abs(mean))


def heuristics_for(
    config: GridConfig, training: JobSets, names: Sequence[str] = HEURISTIC_NAMES
) -> dict[str, GridScheduler]:
    """Create heuristics by name: ``tetris*``, with its knob tuned on training sets, and names for ``make_heuristic``.

    Raises ``SchedulerError`` for an unknown name.
    """
    return {
        name: Tetris(tune_tetris(Grid(config, training))) if name == TUNED else make_heuristic(name)
        for name in names
    }


def network_actor(path: Path, seed: int) -> GridScheduler:
    """Load a network as a scheduler, which samples actions under the mask of its training.

    Raises:
        PolicyFileError: the file is invalid.
    """
    network, config = load_network(path)
    random = random_stream(seed, RandomStream.POLICY, COMPARED)
    return Actor(network, random, mask=config.mask)


class Withholding:
    """Wraps a scheduler to count the jobs that it withholds; a ``GridScheduler`` for one run of a grid.

    Attributes:
        held: int64 [N, J], number of steps in which each job was withheld.
        steps: int64 [N], number of steps.
        held_steps: int64 [N], number of steps in which a job was withheld, so that the schedule is not
            work-conserving.
    """

    def __init__(self, scheduler: GridScheduler, grid: Grid) -> None:
        self.scheduler = scheduler
        self.held = np.zeros(grid.jobs.enter.shape, dtype=np.int64)
        self.steps = np.zeros(len(grid), dtype=np.int64)
        self.held_steps = np.zeros(len(grid), dtype=np.int64)

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """Return the scheduler's actions, int64 [N]."""
        actions = self.scheduler(grid)
        books = grid.action_mask()[np.arange(len(grid)), actions] & (actions < grid.config.num_actions - 1)
        passes = ~grid.done & ~books
        could_start = grid.startable().any(axis=1) & passes[:, None]
        episode, slot = np.nonzero(could_start)
        self.held[episode, grid.slots[episode, slot]] += 1
        self.steps += passes
        self.held_steps += could_start.any(axis=1)
        return actions
