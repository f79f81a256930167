"""Comparison of schedulers on DeepRM's grid: the same job sets for all, and tidy results in one table.

As in ``comparison``, results are rows of ``GridComparison.runs``, and ``metrics`` averages them, with confidence
intervals over the job sets. One call of compiled code runs all job sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decima import policy
from decima.evaluation.documents import json_text, versions
from decima.evaluation.grid_metrics import GRID_METRICS
from decima.evaluation.metrics import ShownMetric, compare_metrics
from decima.policy.grid_config import MAX_STEPS, GridJobs
from decima.policy.parts import build_part
from decima.schedulers.grid import (
    GRID_SCHEDULERS,
    GridRandomChoice,
    GridScheduler,
    GridTetris,
    play,
    tune_tetris,
)
from simulator.grid.config import PAPER, GridConfig
from simulator.grid.grid import Grid
from simulator.grid.record import GridRecord
from workloads.arrivals import RandomStream, random_stream
from workloads.custom import is_custom
from workloads.errors import CompareError, PartError, SchedulerError, WorkloadError
from workloads.grid_jobs import DISTRIBUTIONS, JobSets
from workloads.quantities import build, quantities
from workloads.texts import number_in, whole_in

__all__ = [
    "HEURISTIC_NAMES", "LEARNED", "SHIPPED_NETWORK", "TRAINING_SEED", "TUNED", "GridComparison",
    "Withholding", "compare_by", "evaluate", "grid_comparison", "heuristics_for", "load_name",
    "make_grid_scheduler",
    "measure_sets", "network_actor", "network_name", "summary",
]  # fmt: skip

#: Offset of the seed of training sets from that of evaluation sets.
TRAINING_SEED = 1_000_000
#: Tetris* with its knob tuned on training sets.
TUNED = "tetris*"
#: Heuristics of the papers.
HEURISTIC_NAMES = ("sjf", "packer", TUNED, "random")
#: Displayed name of the network.
LEARNED = "deeprm"
#: The shipped network.
SHIPPED_NETWORK = Path(__file__).parents[1] / "policy" / "shipped" / "deeprm.npz"
#: Units of each resource of a machine, for jobs of a log.
LOG_UNITS = 10
#: Default loads, as shares: those of DeepRM's Figure 4.
LOADS = tuple(percent / 100 for percent in range(10, 200, 20))


# ---- results of job sets ---------------------------------------------------------------------------------------------


def measure_sets(record: GridRecord) -> pd.DataFrame:
    """Return results of job sets, one row for each set with jobs.

    Columns: ``set`` (index), ``jobs`` and ``unfinished`` (numbers of jobs, and of jobs that were never booked), and
    ``GRID_METRICS`` (float64; means over the set's jobs).
    """
    num_jobs = record.is_job.sum(axis=1)
    sets = np.flatnonzero(num_jobs)
    columns = {"set": sets, "jobs": num_jobs[sets], "unfinished": record.unfinished[sets]}
    for name, metric in GRID_METRICS.items():
        values = np.asarray(metric.of(record), dtype=np.float64)[sets]
        columns[name] = np.nanmean(values, axis=1) if metric.per_job else values
    return pd.DataFrame(columns)


def evaluate(grid: GridConfig, jobs: JobSets, schedulers: Mapping[str, GridScheduler]) -> pd.DataFrame:
    """Run schedulers on job sets.

    Args:
        schedulers: displayed name -> scheduler.

    Returns:
        Tidy results, one row per scheduler and set with jobs: ``scheduler``, and the columns of ``measure_sets``.

    Raises:
        WorkloadError: the jobs do not fit the grid.
    """
    return _stacked(
        "scheduler",
        {name: measure_sets(play(Grid(grid, jobs), scheduler)) for name, scheduler in schedulers.items()},
    )


def _stacked(column: str, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables; their names become the first column."""
    return pd.concat(tables, names=[column]).reset_index(column).reset_index(drop=True)


def compare_by(
    runs: pd.DataFrame, column: str = "condition", reference: str | None = None
) -> dict[Any, dict[str, dict[str, ShownMetric]]]:
    """Average tidy results over job sets.

    Args:
        runs: rows of ``GridComparison.runs``.
        column: column whose values are the groups.
        reference: scheduler to compare with.

    Returns:
        Group -> scheduler -> metric -> mean, and difference to the reference, paired by set; see ``compare_metrics``.
    """
    return {
        group: compare_metrics(rows, rows["scheduler"].unique(), reference, GRID_METRICS)
        for group, rows in runs.groupby(column, sort=False)
    }


def summary(runs: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Summarise results of one condition for JSON.

    Returns:
        Scheduler -> number of unfinished jobs, and of each metric the mean, half of its 95 % confidence interval, and
        the values of the sets.
    """
    by_scheduler = {str(name): rows for name, rows in runs.groupby("scheduler", sort=False)}
    compared = compare_metrics(runs, by_scheduler, None, GRID_METRICS)
    return {
        name: {"unfinished": int(rows["unfinished"].sum())}
        | {
            metric: {"mean": found.mean, "ci95": found.half_width, "per_set": rows[metric].tolist()}
            for metric, (found, *_) in compared[name].items()
        }
        for name, rows in by_scheduler.items()
    }


# ---- schedulers ------------------------------------------------------------------------------------------------------


def heuristics_for(
    config: GridConfig, training: JobSets, names: Sequence[str] = HEURISTIC_NAMES
) -> dict[str, GridScheduler]:
    """Create heuristics by name: ``tetris*``, with its knob tuned on training sets, else see ``make_grid_scheduler``.

    Raises ``SchedulerError`` for an unknown name.
    """
    return {
        name: GridTetris(tune_tetris(Grid(config, training))) if name == TUNED else make_grid_scheduler(name)
        for name in names
    }


def make_grid_scheduler(spec: str) -> GridScheduler:
    """Make a scheduler of DeepRM's grid from its name.

    Args:
        spec: one of ``GRID_SCHEDULERS``, ``tetris:KNOB`` or ``random:SEED``; or ``module:Class``, a custom class, also
            from the current folder, built without arguments, whose objects map a ``Grid`` to actions, see
            ``ScoredRule``.

    Raises:
        SchedulerError: the name is unknown, or a parameter is out of range.
    """
    name, colon, argument = spec.partition(":")
    if name in GRID_SCHEDULERS:
        if not colon:
            return GRID_SCHEDULERS[name]()
        if name == "tetris" and 0 <= (knob := number_in(argument)) <= 1:
            return GridTetris(knob)
        if name == "random" and (seed := whole_in(argument)) is not None and seed >= 0:
            return GridRandomChoice(seed)
        raise SchedulerError(f"{spec!r}: expected tetris:KNOB with a knob of 0 to 1, or random:SEED")
    if not is_custom(spec):
        raise SchedulerError(
            f"unknown heuristic {spec!r}: expected one of {', '.join(GRID_SCHEDULERS)}, tetris:KNOB, random:SEED or "
            "module:Class; decima deeprm compare also accepts tetris*"
        )
    try:
        scheduler = build_part(spec)
    except PartError as error:
        raise SchedulerError(f"heuristic {error}") from None
    if not callable(scheduler):
        raise SchedulerError(f"heuristic {spec!r}: expected a class whose objects map a grid to actions")
    return scheduler  # type: ignore[no-any-return]


def network_actor(path: Path, seed: int) -> GridScheduler:
    """Load a network as a scheduler, which samples actions under the mask of its training.

    Raises:
        PolicyFileError: the file is invalid.
    """
    network, config = policy.load_network(path)  # imports PyTorch only now
    random = random_stream(seed, RandomStream.POLICY, policy.COMPARED)
    return policy.GridActor(network, random, mask=config.mask)


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


# ---- comparisons -----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class GridComparison:
    """Schedulers on the same job sets, under several conditions, such as loads.

    Args:
        grid: the grid of all conditions.
        conditions: displayed name of a condition -> its jobs.
        heuristics: names of heuristics, see ``heuristics_for``.
        networks: displayed name -> policy file.
        sets: number of evaluation sets of a condition, and of training sets for Tetris*.
        seed: seed of the sets and of sampled actions.

    Attributes:
        schedulers: displayed names of all schedulers, in order.
        knobs: condition -> tuned knob of Tetris*, if it is compared.

    Raises:
        CompareError: no schedulers, or a scheduler twice.

    Examples:
        >>> from decima.policy.grid_config import GridJobs
        >>> jobs = {f"load {load:g}": GridJobs(load=load) for load in (0.5, 1.3)}
        >>> comparison = GridComparison(GridConfig(), jobs, ["sjf", "packer"], sets=20)
        >>> comparison.run()
        >>> comparison.table("slowdown").round(1)  # doctest: +NORMALIZE_WHITESPACE
        scheduler  sjf  packer
        condition
        load 0.5   2.5     4.0
        load 1.3   4.7    11.8
    """

    grid: GridConfig
    conditions: Mapping[str, GridJobs]
    heuristics: Sequence[str] = HEURISTIC_NAMES
    networks: Mapping[str, Path] = field(default_factory=dict)
    _: KW_ONLY
    sets: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        self.schedulers = (*self.heuristics, *self.networks)
        if not self.schedulers:
            raise CompareError("no schedulers to compare")
        if len(set(self.schedulers)) < len(self.schedulers):
            raise CompareError(f"a scheduler is given twice: {', '.join(self.schedulers)}")
        self.knobs: dict[str, float] = {}
        self._results: dict[str, pd.DataFrame] = {}

    def run(self, on_step: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Run all schedulers under all conditions; ``on_step`` gets the number of finished conditions and of all.

        Raises:
            PolicyFileError: a policy file is invalid.
            SchedulerError: an unknown heuristic.
            WorkloadError: the jobs do not fit the grid.
        """
        for done, (name, jobs) in enumerate(self.conditions.items()):
            on_step(done, len(self.conditions))
            schedulers = self.make_schedulers(name)
            if isinstance(tuned := schedulers.get(TUNED), GridTetris):
                self.knobs[name] = tuned.knob
            drawn = jobs.draw(self.grid, self.sets, self.seed)
            with policy.one_thread() if self.networks else nullcontext():
                self._results[name] = evaluate(self.grid, drawn, schedulers)
        on_step(len(self.conditions), len(self.conditions))
        self.__dict__.pop("compared", None)

    def make_schedulers(self, condition: str) -> dict[str, GridScheduler]:
        """Create the schedulers of a condition by displayed name; training sets are disjoint from evaluation sets."""
        training = self.conditions[condition].draw(self.grid, self.sets, TRAINING_SEED + self.seed)
        heuristics = heuristics_for(self.grid, training, self.heuristics)
        return heuristics | {name: network_actor(path, self.seed) for name, path in self.networks.items()}

    @property
    def complete(self) -> bool:
        """Whether all conditions have been run."""
        return len(self._results) == len(self.conditions)

    @property
    def runs(self) -> pd.DataFrame:
        """Results of the finished conditions, one row per condition, scheduler and set with jobs.

        Columns: ``condition``, ``scheduler`` and those of ``measure_sets``.
        """
        return _stacked("condition", self._results)

    @cached_property
    def compared(self) -> dict[str, dict[str, dict[str, ShownMetric]]]:
        """Condition -> scheduler -> metric -> its mean over the sets, see ``compare_by``."""
        return compare_by(self.runs)

    def table(self, metric: str = "slowdown") -> pd.DataFrame:
        """Return means of a metric, float64: one row per condition, one column per scheduler."""
        means = {
            condition: {name: row[metric].mean.mean for name, row in rows.items()}
            for condition, rows in self.compared.items()
        }
        table = pd.DataFrame.from_dict(means, orient="index").rename_axis("condition")
        return table.rename_axis("scheduler", axis="columns")

    def to_json(self, **extra: Any) -> str:
        """Return the results and further entries as JSON; equal settings give equal text, bit for bit."""
        jobs = next(iter(self.conditions.values()))
        file = self.networks.get(LEARNED)
        content = {
            "jobs": jobs.name,
            "machines": self.grid.machines,
            "units": self.grid.units,
            "semantics": "paper" if self.grid.semantics == PAPER else "deeprm",
            "sets": self.sets,
            "steps": jobs.steps,
            "seed": self.seed,
            "network": None if file is None else network_name(file),
            "versions": versions(),
            **extra,
            "measures": {name: metric.meaning for name, metric in GRID_METRICS.items()},
            "loads": [self._entry(condition, runs) for condition, runs in self._results.items()],
        }
        return json_text(content)

    def _entry(self, condition: str, runs: pd.DataFrame) -> dict[str, Any]:
        """Return the results of a condition for JSON: its load, and means, intervals and means of sets."""
        jobs = self.conditions[condition]
        [load] = jobs.loads(self.grid)
        return {
            "load": load,
            "rate": None if jobs.log is not None else jobs.distribution_on(self.grid).rate(load),
            "jobs": int(runs["jobs"].sum()) // len(self.schedulers),
            "tetris_knob": self.knobs.get(condition),
            "schedulers": summary(runs),
        }


def grid_comparison(
    *,
    loads: Sequence[float] = (),
    heuristics: Sequence[str] = HEURISTIC_NAMES,
    network: Path | None = None,
    sets: int = 100,
    seed: int = 0,
    **setting: Any,
) -> GridComparison:
    """Set up the comparison of ``decima deeprm compare``: heuristics and a network at several loads.

    Args:
        loads: offered loads, as fractions of the units of all machines; by default 0.1, 0.3, .. up to 1.9, or up to
            the highest load (a job in every step).
        network: policy file, compared as ``deeprm``; it determines the queue and the picture of the grid.
        setting: settings of ``GridJobs`` (``distribution``, ``log``, ``steps``) and of ``GridConfig`` (``machines``,
            ``semantics``); a machine has the units for which the jobs are made.

    Other arguments are those of ``GridComparison``.

    Raises:
        CompareError: a setting is wrong, no schedulers, one twice, a load twice, or a network for other machines.
        PolicyFileError: the policy file is invalid.
        WorkloadError: a load that no arrival rate gives, or the log cannot be read.
    """
    of_jobs = {name: value for name, value in setting.items() if name in quantities(GridJobs)}
    of_grid = {name: value for name, value in setting.items() if name not in of_jobs}
    jobs = build(GridJobs, of_jobs, CompareError)
    units = LOG_UNITS if jobs.log is not None else DISTRIBUTIONS[jobs.distribution].slots
    grid = build(GridConfig, of_grid, CompareError, {"units": units, "max_steps": MAX_STEPS})
    highest = jobs.highest_load(grid)
    if not loads:
        lower = (load for load in LOADS if load < highest * (1 - 1e-9))
        loads = (*lower, *(() if math.isinf(highest) else (highest,)))
    if len(set(map(load_name, loads))) < len(loads):
        raise CompareError("a load is given twice")
    for load in loads:
        if not 0 < load <= highest * (1 + 1e-9):
            most = "" if math.isinf(highest) else f" and at most {100 * highest:.4g} %"
            raise WorkloadError(f"a load of {100 * load:g} %: expected above 0{most}")
    networks = {} if network is None else {LEARNED: network}
    if network is not None:
        grid = _grid_of(network, grid)
    at_loads = {load_name(load): replace(jobs, load=load, rate=None) for load in loads}
    return GridComparison(grid, at_loads, heuristics, networks, sets=sets, seed=seed)


def load_name(load: float) -> str:
    """Format a load in percent."""
    return f"{100 * load:.4g} %"


def network_name(file: Path) -> str:
    """Return the displayed name of a policy file."""
    return "that ships" if file == SHIPPED_NETWORK else str(file)


def _grid_of(path: Path, grid: GridConfig) -> GridConfig:
    """Return the grid with the queue and picture size for which a network was trained."""
    trained = policy.load_network(path)[1].grid
    for name, noun in (
        ("machines", "machines"),
        ("units", "units of each resource"),
        ("num_resources", "resources"),
    ):
        expected, got = getattr(grid, name), getattr(trained, name)
        if expected != got:
            raise CompareError(f"{path}: this network is for {got} {noun}, not for {expected}")
    return replace(trained, semantics=grid.semantics, max_steps=grid.max_steps)
