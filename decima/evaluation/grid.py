"""Evaluation of schedulers on DeepRM's grid, and their comparison at several loads.

Metrics are over jobs or job sets, with confidence intervals over sets. A comparison has heuristics, and a network
trained by ``decima deeprm train``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError
from decima.evaluation.metrics import Interval, mean_interval
from decima.outputs import json_text, versions
from decima.policy.grid import COMPARED, Actor, load_network
from decima.policy.threads import one_thread
from decima.schedulers.grid import GridScheduler, Tetris, make_heuristic, play, tune_tetris
from simulator.grid.config import DEEPRM, PAPER, GridConfig
from simulator.grid.grid import Grid, GridRecord
from workloads.arrivals import RandomStream, random_stream
from workloads.grid_jobs import DISTRIBUTIONS, JobSets, draw_jobs
from workloads.job import WorkloadError
from workloads.sources.swf import swf_jobs

if TYPE_CHECKING:
    from decima.policy.grid import GridPolicyConfig
    from workloads.sources.swf import SwfLog

__all__ = [
    "HEURISTIC_NAMES", "LEARNED", "MEASURES", "SHIPPED_NETWORK", "TRAINING_SEED", "TUNED", "Evaluation",
    "GridComparison", "GridConditions", "GridSettings", "Withholding", "best_of", "evaluate",
    "heuristics_for", "network_actor", "relative_change",
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


#: Displayed name of the network.
LEARNED = "deeprm"
#: The shipped network.
SHIPPED_NETWORK = Path(__file__).parents[1] / "policy" / "shipped" / "deeprm.npz"
#: Maximum length of an episode, steps; reached only if almost no jobs are booked.
MAX_STEPS = 1000
#: Units of each resource of a machine, for jobs of a log.
LOG_UNITS = 10
#: Default loads, as shares: those of DeepRM's Figure 4.
LOADS = tuple(percent / 100 for percent in range(10, 200, 20))


@dataclass(frozen=True, eq=False)
class GridSettings:
    """Settings of a comparison on a grid.

    Args:
        loads: offered loads, as fractions of the units of all machines; by default 0.1, 0.3, .. up to 1.9, or up to
            the highest load (a job in every step).
        distribution: distribution of jobs, a name in ``DISTRIBUTIONS``.
        log: log to draw jobs from instead.
        heuristics: see ``heuristics_for``.
        network: policy file.
        deeprm_semantics: whether to simulate DeepRM's published code instead of its paper.
        sets: number of evaluation sets at each load, and of training sets for Tetris*.
        steps: number of steps in which jobs of a set enter.

    Raises:
        CompareError: no schedulers, or a network for other machines.
        PolicyFileError: the policy file is invalid.
        WorkloadError: a load that no arrival rate gives.
    """

    loads: tuple[float, ...] = ()
    distribution: str = "code"
    log: SwfLog | None = None
    machines: int = 1
    heuristics: tuple[str, ...] = HEURISTIC_NAMES
    network: Path | None = None
    deeprm_semantics: bool = False
    sets: int = 100
    steps: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.loads:
            lower = tuple(load for load in LOADS if load < self.highest_load * (1 - 1e-9))
            last = () if math.isinf(self.highest_load) else (self.highest_load,)
            object.__setattr__(self, "loads", (*lower, *last))
        if len(set(self.loads)) < len(self.loads):
            raise CompareError("a load is given twice")
        if not self.schedulers:
            raise CompareError("no schedulers to compare")
        if len(set(self.schedulers)) < len(self.schedulers):
            raise CompareError(f"a scheduler is given twice: {', '.join(self.schedulers)}")
        _ = self.grid
        for load in self.loads:
            if not 0 < load <= self.highest_load * (1 + 1e-9):
                most = (
                    "" if math.isinf(self.highest_load) else f" and at most {100 * self.highest_load:.4g} %"
                )
                raise WorkloadError(f"a load of {100 * load:g} %: expected above 0{most}")

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Displayed names of all schedulers, in order."""
        return (*self.heuristics, *([LEARNED] if self.network is not None else []))

    @cached_property
    def grid(self) -> GridConfig:
        """Machines and queue; a network determines the queue."""
        units = LOG_UNITS if self.log is not None else DISTRIBUTIONS[self.distribution].slots
        grid = GridConfig(units=units, machines=self.machines, max_steps=MAX_STEPS)
        if self.deeprm_semantics:
            grid = replace(grid, semantics=DEEPRM)
        if self.network is None:
            return grid
        return _grid_of(self.network, self.trained.grid.build(), grid)

    @cached_property
    def trained(self) -> GridPolicyConfig:
        """Configuration of the network."""
        assert self.network is not None
        return load_network(self.network)[1]

    @property
    def network_name(self) -> str | None:
        """Displayed name of the network; None if there is none."""
        if self.network is None:
            return None
        return "that ships" if self.network == SHIPPED_NETWORK else str(self.network)

    @property
    def highest_load(self) -> float:
        """Load with a job in every step; infinite for a log."""
        return (
            math.inf if self.log is not None else DISTRIBUTIONS[self.distribution].load(1.0) / self.machines
        )

    def rate(self, load: float) -> float | None:
        """Return the probability that a job enters in a step; None for a log."""
        if self.log is not None:
            return None
        return DISTRIBUTIONS[self.distribution].rate(load * self.machines)

    def conditions(self, load: float) -> GridConditions:
        """Return the evaluation setting of one load."""
        return GridConditions(
            self.grid,
            partial(self._draw, load),
            self.heuristics,
            {} if self.network is None else {LEARNED: self.network},
            self.sets,
            self.seed,
        )

    def _draw(self, load: float, sets: int, seed: int) -> JobSets:
        size: dict[str, Any] = {"load": load * self.machines, "sets": sets, "steps": self.steps, "seed": seed}
        if self.log is not None:
            return swf_jobs(self.log, slots=LOG_UNITS, **size)
        return draw_jobs(DISTRIBUTIONS[self.distribution], **size)


class GridComparison:
    """Schedulers on the same job sets at each load.

    Attributes:
        results: load -> scheduler -> results.
        knobs: load -> tuned knob of Tetris*, if it is compared.
    """

    def __init__(self, settings: GridSettings) -> None:
        self.settings = settings
        self.results: dict[float, dict[str, Evaluation]] = {}
        self.knobs: dict[float, float] = {}

    def run(self, on_step: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Run all schedulers at all loads; ``on_step`` gets the number of finished loads and of all.

        Raises:
            SchedulerError: an unknown heuristic.
            WorkloadError: the jobs do not fit the grid.
        """
        loads = self.settings.loads
        for done, load in enumerate(loads):
            on_step(done, len(loads))
            conditions = self.settings.conditions(load)
            schedulers = conditions.schedulers()
            if isinstance(tuned := schedulers.get(TUNED), Tetris):
                self.knobs[load] = tuned.knob
            self.results[load] = conditions.run(schedulers)
        on_step(len(loads), len(loads))

    @property
    def complete(self) -> bool:
        """Whether all loads have been run."""
        return len(self.results) == len(self.settings.loads)

    def table(self, measure: str = "slowdown") -> pd.DataFrame:
        """Return means of a metric, float64: one row per load, one column per scheduler."""
        means = {
            load: {name: each.mean(measure) for name, each in results.items()}
            for load, results in self.results.items()
        }
        return pd.DataFrame.from_dict(means, orient="index").rename_axis("load")

    def to_json(self, **extra: Any) -> str:
        """Return the results and further entries as JSON; equal settings give equal text, bit for bit."""
        settings = self.settings
        content = {
            "jobs": settings.log.name if settings.log is not None else settings.distribution,
            "machines": settings.machines,
            "units": settings.grid.units,
            "semantics": "paper" if settings.grid.semantics == PAPER else "deeprm",
            "sets": settings.sets,
            "steps": settings.steps,
            "seed": settings.seed,
            "network": settings.network_name,
            "versions": versions(),
            **extra,
            "measures": MEASURES,
            "loads": [
                {
                    "load": load,
                    "rate": settings.rate(load),
                    "jobs": int(next(iter(results.values())).record.is_job.sum()),
                    "tetris_knob": self.knobs.get(load),
                    "schedulers": {name: each.summary() for name, each in results.items()},
                }
                for load, results in self.results.items()
            ],
        }
        return json_text(content)


def _grid_of(path: Path, trained: GridConfig, grid: GridConfig) -> GridConfig:
    """Return the grid with the queue and picture size for which a network was trained."""
    for name, noun in (
        ("machines", "machines"),
        ("units", "units of each resource"),
        ("num_resources", "resources"),
    ):
        expected, got = getattr(grid, name), getattr(trained, name)
        if expected != got:
            raise CompareError(f"{path}: this network is for {got} {noun}, not for {expected}")
    return replace(trained, semantics=grid.semantics, max_steps=grid.max_steps)
