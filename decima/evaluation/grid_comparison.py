"""Compare schedulers on a grid, load by load: heuristics, and a network of ``decima deeprm train``."""

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
from decima.policy.grid.files import load_network
from decima.schedulers.grid import Tetris
from simulator.grid.config import DEEPRM, PAPER, GridConfig
from workloads.grid_jobs import DISTRIBUTIONS, draw_jobs
from workloads.job import WorkloadError
from workloads.sources.swf import swf_jobs

if TYPE_CHECKING:
    from decima.policy.grid.config import GridPolicyConfig
    from workloads.grid_jobs import JobSets
    from workloads.sources.swf import SwfLog

__all__ = [
    "LEARNED",
    "SHIPPED_NETWORK",
    "GridComparison",
    "GridSettings",
]

#: The name under which a network takes part.
LEARNED = "deeprm"
#: The network that comes with the project.
SHIPPED_NETWORK = Path(__file__).parents[1] / "policy" / "shipped" / "deeprm.npz"
#: A set whose jobs are not finished by then is cut off; only a policy that hardly books a job gets there.
MAX_STEPS = 1000
#: Units of each resource that a log's machine is divided into.
LOG_UNITS = 10
#: Default loads, as shares: those of DeepRM's Figure 4.
LOADS = tuple(percent / 100 for percent in range(10, 200, 20))


@dataclass(frozen=True, eq=False)
class GridSettings:
    """What is compared, on what.

    Args:
        loads: shares of the units of all machines that are needed on average; none for 10 %, 30 % and so on up to
            190 %, or to the highest that a job in every step gives.
        distribution: of jobs, a name of ``DISTRIBUTIONS``.
        log: draw jobs from it instead.
        machines: how many there are.
        heuristics: see ``heuristics_for``.
        network: file of a network that takes part.
        deeprm_semantics: simulate as DeepRM's public code does, not as its paper says.
        sets: of jobs, at each load; as many are there to tune Tetris* on.
        steps: in which jobs of a set enter.
        seed: names the sets.

    Raises:
        CompareError: nothing to compare, or a network for other machines.
        PolicyFileError: the file holds no network.
        WorkloadError: a load that no arrival rate can give.
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
        """All who take part, in the order in which they are shown."""
        return (*self.heuristics, *([LEARNED] if self.network is not None else []))

    @cached_property
    def grid(self) -> GridConfig:
        """Machines, and the queue before them; a network brings the queue that it was made for."""
        units = LOG_UNITS if self.log is not None else DISTRIBUTIONS[self.distribution].slots
        grid = GridConfig(units=units, machines=self.machines, max_steps=MAX_STEPS)
        if self.deeprm_semantics:
            grid = replace(grid, semantics=DEEPRM)
        if self.network is None:
            return grid
        return _grid_of(self.network, self.trained.grid.build(), grid)

    @cached_property
    def trained(self) -> GridPolicyConfig:
        """What the network was made for."""
        assert self.network is not None
        return load_network(self.network)[1]

    @property
    def network_name(self) -> str | None:
        """Who the network is, for people; the one that ships has no path that means anything to them."""
        if self.network is None:
            return None
        return "that ships" if self.network == SHIPPED_NETWORK else str(self.network)

    @property
    def highest_load(self) -> float:
        """That of a job in every step; infinite for a log."""
        return (
            math.inf if self.log is not None else DISTRIBUTIONS[self.distribution].load(1.0) / self.machines
        )

    def rate(self, load: float) -> float | None:
        """The chance that a job enters a step, for a possible load; None for a log."""
        if self.log is not None:
            return None
        return DISTRIBUTIONS[self.distribution].rate(load * self.machines)

    def conditions(self, load: float) -> GridConditions:
        """Those of one load."""
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
    """Schedulers on the same sets of jobs, at each load.

    Args:
        settings: what is compared.

    Attributes:
        settings: as given.
        results: load -> scheduler -> how it did.
        knobs: load -> what Tetris* was tuned to, if it takes part.
    """

    def __init__(self, settings: GridSettings) -> None:
        self.settings = settings
        self.results: dict[float, dict[str, Evaluation]] = {}
        self.knobs: dict[float, float] = {}

    def run(self, on_step: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Run all.

        Args:
            on_step: told how many loads are done, and how many there are.

        Raises:
            SchedulerError: there is no such heuristic.
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

    def summary(self, load: float, scheduler: str) -> dict[str, Any]:
        """One scheduler at one load, see ``Evaluation.summary``."""
        return self.results[load][scheduler].summary()

    def table(self, measure: str = "slowdown") -> pd.DataFrame:
        """Means of a measure: one row per load, a column for each scheduler, float64."""
        means = {
            load: {name: each.mean(measure) for name, each in results.items()}
            for load, results in self.results.items()
        }
        return pd.DataFrame.from_dict(means, orient="index").rename_axis("load")

    def to_json(self, **extra: Any) -> str:
        """The results as JSON; the same settings give the same text, bit for bit.

        Args:
            extra: further top-level entries, such as the command that was run.
        """
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
    """The grid with the queue and the picture that a network was trained for."""
    for name, told in (
        ("machines", "machines"),
        ("units", "units of each resource"),
        ("num_resources", "resources"),
    ):
        expected, got = getattr(grid, name), getattr(trained, name)
        if expected != got:
            raise CompareError(f"{path}: this network is for {got} {told}, not for {expected}")
    return replace(trained, semantics=grid.semantics, max_steps=grid.max_steps)
