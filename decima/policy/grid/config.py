"""Configuration of a policy for grids: grid, network and action mask."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from decima.policy.grid.networks import build_network
from decima.settings import Count, Section, Whole
from simulator.grid.config import DEEPRM, PAPER, GridConfig, Objective, Picture

__all__ = ["GridPolicyConfig", "GridSection", "Mask", "NetworkSection"]

#: Actions that are not masked; see ``decima.policy.grid.scheduler.Actor``.
Mask = Literal["all", "bookable", "startable"]


class GridSection(Section):
    """Machines, queue, picture and reward; see ``simulator.grid.GridConfig``."""

    machines: Count = Field(
        default=1, description="how many there are; action i * visible_jobs + j is job j to i"
    )
    units: Count = Field(default=10, description="of each resource on each machine")
    visible_jobs: Count = Field(default=10, description="jobs of the queue that can be seen and chosen")
    slot_width: Count = Field(
        default=10, description="columns of a job's picture: the most units it may need"
    )
    horizon: Count = Field(
        default=20, description="steps that can be booked ahead: the longest that a job may last"
    )
    backlog: Whole = Field(default=60, description="jobs that wait behind the visible ones; more are dropped")
    max_steps: Count = Field(default=1000, description="an episode ends when the clock passes this")
    objective: Objective = Field(default="slowdown", description="what rewards add up to")
    machine_weights: tuple[float, ...] = Field(
        default=(), description="alpha: of jobs on each machine; 1 if empty"
    )
    queue_weight: float = Field(default=1.0, description="beta: of visible jobs")
    backlog_weight: float = Field(default=1.0, description="gamma: of jobs in the backlog")
    picture: Picture = Field(default="binary", description="whether each running job has a shade of its own")
    arrival_column: bool = Field(
        default=False, description="whether the picture tells steps since the last arrival"
    )
    semantics: Literal["paper", "deeprm"] = Field(
        default="paper", description="the paper's, or its public code's"
    )

    def build(self) -> GridConfig:
        """Return the grid."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return GridConfig(**{**values, "semantics": DEEPRM if self.semantics == "deeprm" else PAPER})


class NetworkSection(Section):
    """The network; the critic has another of the same shape."""

    filters: Whole = Field(default=0, description="of a convolution before all else; 0 for none")
    kernel: Count = Field(default=2, description="rows and columns of a filter")
    pooling: bool = Field(default=False, description="halve rows and columns after the convolution")
    reshape: bool = Field(
        default=False, description="put resources behind one another; with a convolution only"
    )
    hidden: tuple[Count, ...] = Field(default=(20,), min_length=1, description="units of the hidden layers")

    def build(self, grid: GridConfig, outputs: int) -> nn.Module:
        """Return a network for the grid's pictures."""
        return build_network(grid, outputs, **self.model_dump())


class GridPolicyConfig(Section):
    """Configuration of an actor."""

    grid: GridSection = GridSection()
    network: NetworkSection = NetworkSection()
    mask: Mask = "startable"

    def build(self) -> nn.Module:
        """Return the actor's network."""
        grid = self.grid.build()
        return self.network.build(grid, grid.num_actions)

    @property
    def sizes(self) -> str:
        """One-line description of the sizes of input, output and layers."""
        grid = self.grid.build()
        rows, columns = grid.picture_shape
        layers = ", ".join(f"{name} {value}" for name, value in self.network.model_dump().items())
        return f"pictures of {rows} x {columns} and {grid.num_actions} actions ({layers})"
