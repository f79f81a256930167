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

from pydantic import AfterValidator, model_validator

from decima.policy.files import checked, read_archive, read_head
from decima.policy.parts import PolicyFileError
from decima.settings import Count, Outside, Positive, Section, Share, Whole
from simulator.grid.config import GridConfig
from workloads.declaration import described
from workloads.grid_jobs import DISTRIBUTIONS, JobDistribution, JobSets, draw_jobs
from workloads.sources.swf import SwfLog, read_swf, swf_jobs

__all__ = [
    "DEFAULT_GRID", "MAX_STEPS", "GridPolicyConfig", "JobsSection", "Mask", "NetworkSection", "StoredGrid",
    "parse_head", "read_about",
]  # fmt: skip

#: Name of the array with the JSON text in a policy file, and format version; see ``decima.policy.files``.
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

    filters: Whole = described(0, "filters of a convolution on the picture; 0 for none")
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


class JobsSection(Section):
    """Jobs: drawn from DeepRM's distributions, or from a log."""

    distribution: Literal["code", "paper", "coarse"] = described(
        "code",
        "distribution of DeepRM's jobs: of its code, of its paper, or of its paper rounded to 10 units",
    )
    log: Path | None = described(
        None, "log in Standard Workload Format (SWF) from which jobs are drawn instead"
    )
    load: Positive | tuple[Positive, ...] | None = described(
        0.7, "average share of each resource that jobs need; sets take loads of a list in turn"
    )
    rate: Share | tuple[Share, ...] | None = described(
        None, "probability that a job arrives in a step, instead of a load; sets take rates of a list in turn"
    )
    steps: Count = described(50, "number of steps in which jobs arrive")

    @model_validator(mode="after")
    def _check(self) -> JobsSection:
        if (self.load is None) == (self.rate is None):
            raise ValueError("expected either load or rate; the other must be null")
        if self.log is not None and not isinstance(self.load, float):
            raise ValueError("load: a log is drawn from by one load")
        return self

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
    config, about = read_head(path, arrays, HEAD, VERSION)
    return checked(path, GridPolicyConfig, config, "config"), about


def read_about(path: Path) -> dict[str, Any]:
    """Return the information about the training in a policy file.

    Raises:
        PolicyFileError: the file or its text is malformed; weights are not checked.
    """
    return parse_head(path, read_archive(path))[1]
