"""Settings of DeepRM: the grid, its jobs, and the network that schedules them. This module does not import PyTorch.

They are sections of the settings of a training, see ``decima.learning.grid.config``. The JSON text of a policy file
contains those of the grid and the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from decima.policy.archive import checked, read_archive, read_head
from decima.settings import Count, Outside, Section
from simulator.grid.config import GridConfig
from workloads.declaration import Number, Whole, declared, described
from workloads.errors import ConfigError, PolicyFileError
from workloads.grid_jobs import DISTRIBUTIONS, JobDistribution, JobSets, draw_jobs
from workloads.quantities import quantities
from workloads.sources.swf import SwfLog, read_swf, swf_jobs

__all__ = [
    "DEFAULT_GRID", "MAX_STEPS", "OPTIONS", "GridJobs", "GridPolicyConfig", "Mask", "NetworkSection", "StoredGrid",
    "parse_head", "read_about",
    "read_trained_on",
]  # fmt: skip

#: Name of the array with the JSON text in a policy file, and format version; see ``decima.policy.archive``.
HEAD, VERSION = "network", 2


#: Kind of action mask, see ``decima.policy.grid.GridActor``.
Mask = Literal["all", "bookable", "startable"]


def _storable(grid: GridConfig) -> GridConfig:
    if grid.max_steps is None or grid.num_resources != 2 or not grid.drain:
        raise ValueError("expected max_steps, two resources and drain, since a file contains no other grid")
    return grid


#: Maximum length of an episode, steps; reached only if almost no jobs are booked.
MAX_STEPS = 1000
#: Grid in files of settings and policies, whose episodes have a maximum length.
StoredGrid = Annotated[GridConfig, Outside(max_steps=MAX_STEPS), AfterValidator(_storable)]
DEFAULT_GRID = GridConfig(max_steps=MAX_STEPS)


class NetworkSection(Section):
    """Network of the actor; a critic has a network of the same shape."""

    filters: Annotated[int, Field(ge=0)] = described(0, "filters of a convolution on the picture; 0 for none")
    kernel: Count = described(2, "rows and columns of a filter")
    pooling: bool = described(False, "whether 2 x 2 max pooling follows the convolution")
    reshape: bool = described(False, "one channel per resource; with a convolution only")
    hidden: tuple[Count, ...] = described((20,), "units of each hidden layer", min_length=1)


class GridPolicyConfig(Section):
    """Configuration of an actor for DeepRM's grid."""

    grid: StoredGrid = DEFAULT_GRID
    network: NetworkSection = NetworkSection()
    mask: Mask = "startable"

    @property
    def sizes(self) -> str:
        """Sizes of input, output and layers, described in one line."""
        rows, columns = self.grid.picture_shape
        layers = ", ".join(f"{name} {value}" for name, value in self.network.model_dump().items())
        return f"pictures of {rows} x {columns} and {self.grid.num_actions} actions ({layers})"


_Load = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
_Rate = Annotated[Number, Field(ge=0, le=1)]


@declared()
class GridJobs:
    """Jobs: drawn from DeepRM's distributions, or from a log.

    Raises:
        ConfigError: a setting is out of range, or loads and rates are given.
    """

    distribution: Literal["code", "paper", "coarse"] = described(
        "code",
        "Distribution of DeepRM's jobs: of its code, of its paper, or an approximation of its paper's on 10 units.",
    )
    log: Path | None = described(
        None, "Draw jobs from this log in Standard Workload Format (FILE.swf or FILE.swf.gz) instead."
    )
    load: _Load | tuple[_Load, ...] | None = described(
        None,
        "Average share of each resource that jobs need; sets take loads of a list in turn. 0.7 if there is no rate.",
    )
    rate: _Rate | tuple[_Rate, ...] | None = described(
        None,
        "Probability that a job arrives in a step, instead of a load; sets take rates of a list in turn.",
    )
    steps: Annotated[Whole, Field(ge=1)] = described(50, "Number of steps in which jobs of a set arrive.")

    def __post_init__(self) -> None:
        if self.load is None and self.rate is None:
            object.__setattr__(self, "load", 0.7)
        if self.load is not None and self.rate is not None:
            raise ConfigError("load and rate exclude each other, expected one of them")
        if self.log is not None and not isinstance(self.load, float):
            raise ConfigError("load: a log is drawn from by one load")

    @cached_property
    def swf_log(self) -> SwfLog:
        """The log, read once.

        Raises:
            WorkloadError: the log cannot be read.
        """
        assert self.log is not None
        return read_swf(self.log)

    @property
    def name(self) -> str:
        """Name of the log or of the distribution."""
        return self.distribution if self.log is None else self.swf_log.name

    def draw(self, grid: GridConfig, sets: int, seed: int) -> JobSets:
        """Draw sets of jobs.

        Raises:
            WorkloadError: the log cannot be read, or the load cannot be reached.
        """
        if self.log is not None:
            assert isinstance(self.load, float)
            load = self.load * grid.machines
            return swf_jobs(self.swf_log, load=load, sets=sets, steps=self.steps, slots=grid.units, seed=seed)
        jobs = self.distribution_on(grid)
        return draw_jobs(jobs, load=self.load, rate=self.rate, steps=self.steps, sets=sets, seed=seed)

    def distribution_on(self, grid: GridConfig) -> JobDistribution:
        """Return the distribution of jobs, scaled so that loads are shares of all machines."""
        return replace(DISTRIBUTIONS[self.distribution], slots=grid.machines * grid.units)

    def loads(self, grid: GridConfig) -> tuple[float, ...]:
        """Return the loads that sets take in turn."""
        if self.load is not None:
            return self.load if isinstance(self.load, tuple) else (self.load,)
        assert self.rate is not None
        rates = self.rate if isinstance(self.rate, tuple) else (self.rate,)
        return tuple(map(self.distribution_on(grid).load, rates))

    def highest_load(self, grid: GridConfig) -> float:
        """Return the load with a job in every step; infinite for a log."""
        return math.inf if self.log is not None else self.distribution_on(grid).load(1.0)


def parse_head(path: Path, arrays: Mapping[str, Any]) -> tuple[GridPolicyConfig, dict[str, Any]]:
    """Return the configuration and the information about the training in the arrays of a policy file.

    Raises:
        PolicyFileError: the text is missing or malformed.
    """
    if HEAD not in arrays:
        raise PolicyFileError(f"{path}: not a network for a grid: expected the text {HEAD!r}")
    head = read_head(path, arrays, HEAD, VERSION)
    config, about = head["config"], head["about"]
    return checked(path, GridPolicyConfig, config, "config"), about


#: Options of ``decima deeprm compare``: quantities of the jobs and of the grid.
OPTIONS = {name: quantities(GridJobs)[name] for name in ("steps", "distribution", "log")} | {
    name: quantities(GridConfig)[name] for name in ("machines", "semantics")
}


class _TrainedOn(Section):
    jobs: Annotated[GridJobs, Outside()] = GridJobs()


def read_trained_on(path: Path) -> tuple[GridJobs, GridConfig]:
    """Return the jobs and the grid of the training in a policy file; errors as in ``read_about``."""
    config, about = parse_head(path, read_archive(path))
    settings = {"jobs": about.get("config", {}).get("jobs", {})}
    return checked(path, _TrainedOn, settings, "about: config").jobs, config.grid


def read_about(path: Path) -> dict[str, Any]:
    """Return the information about the training in a policy file.

    Raises:
        PolicyFileError: the file or its text is malformed; weights are not checked.
    """
    return parse_head(path, read_archive(path))[1]
