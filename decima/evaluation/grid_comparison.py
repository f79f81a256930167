"""Compare schedulers on a grid at several loads: heuristics, and a network trained by ``decima deeprm train``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from decima.evaluation.conditions import CompareError
from decima.evaluation.grid import HEURISTIC_NAMES, MEASURES, TUNED, Evaluation, GridConditions
from decima.outputs import json_text, versions
from decima.policy.grid import load_network
from decima.schedulers.grid import Tetris
from simulator.grid.config import DEEPRM, PAPER, GridConfig
from workloads.grid_jobs import DISTRIBUTIONS, draw_jobs
from workloads.job import WorkloadError
from workloads.sources.swf import swf_jobs

if TYPE_CHECKING:
    from decima.policy.grid import GridPolicyConfig
    from workloads.grid_jobs import JobSets
    from workloads.sources.swf import SwfLog

__all__ = ["LEARNED", "SHIPPED_NETWORK", "GridComparison", "GridSettings"]

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
        machines: number of machines.
        heuristics: see ``heuristics_for``.
        network: policy file.
        deeprm_semantics: whether to simulate DeepRM's published code instead of its paper.
        sets: number of evaluation sets at each load, and of training sets for Tetris*.
        steps: number of steps in which jobs of a set enter.
        seed: seed of the sets.

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
