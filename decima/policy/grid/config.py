"""Configuration of a policy for DeepRM's grid: grid, network and action mask."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import nn

from decima.policy.grid.networks import build_network
from decima.settings import Count, Section, Whole
from simulator.grid.config import DEEPRM, PAPER, GridConfig, Objective, Picture

__all__ = ["GridPolicyConfig", "GridSection", "Mask", "NetworkSection"]

#: Kind of action mask, see ``decima.policy.grid.scheduler.Actor``.
Mask = Literal["all", "bookable", "startable"]


class GridSection(Section):
    """Machines, queue, picture and reward; see ``simulator.grid.GridConfig``."""

    machines: Count = Field(
        default=1, description="number of machines; action i * visible_jobs + j books job j on machine i"
    )
    units: Count = Field(default=10, description="units of each resource on each machine")
    visible_jobs: Count = Field(default=10, description="jobs of the queue that can be seen and chosen")
    slot_width: Count = Field(default=10, description="columns of a job's picture: most units that it needs")
    horizon: Count = Field(default=20, description="steps that can be booked ahead: the longest job")
    backlog: Whole = Field(default=60, description="jobs that wait behind the visible ones; more are dropped")
    max_steps: Count = Field(default=1000, description="step after which an episode ends")
    objective: Objective = Field(default="slowdown", description="quantity that the rewards add up to")
    machine_weights: tuple[float, ...] = Field(
        default=(), description="alpha: weight of jobs on each machine; 1 if empty"
    )
    queue_weight: float = Field(default=1.0, description="beta: weight of visible jobs")
    backlog_weight: float = Field(default=1.0, description="gamma: weight of jobs in the backlog")
    picture: Picture = Field(default="binary", description="running jobs: binary cells, or a shade per job")
    arrival_column: bool = Field(
        default=False, description="whether the picture shows the number of steps since the last arrival"
    )
    semantics: Literal["paper", "deeprm"] = Field(
        default="paper", description="semantics of the paper, or of its published code"
    )

    def build(self) -> GridConfig:
        """Return the grid's configuration."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return GridConfig(**{**values, "semantics": DEEPRM if self.semantics == "deeprm" else PAPER})


class NetworkSection(Section):
    """Network of the actor; a critic has a network of the same shape."""

    filters: Whole = Field(default=0, description="filters of a convolution on the picture; 0 for none")
    kernel: Count = Field(default=2, description="rows and columns of a filter")
    pooling: bool = Field(default=False, description="whether 2 x 2 max pooling follows the convolution")
    reshape: bool = Field(default=False, description="one channel per resource; with a convolution only")
    hidden: tuple[Count, ...] = Field(default=(20,), min_length=1, description="units of each hidden layer")

    def build(self, grid: GridConfig, outputs: int) -> nn.Module:
        """Return a network from the grid's pictures to a number of outputs."""
        return build_network(grid, outputs, **self.model_dump())


class GridPolicyConfig(Section):
    """Configuration of an actor for DeepRM's grid."""

    grid: GridSection = GridSection()
    network: NetworkSection = NetworkSection()
    mask: Mask = "startable"

    def build(self) -> nn.Module:
        """Return the actor's network."""
        grid = self.grid.build()
        return self.network.build(grid, grid.num_actions)

    @property
    def sizes(self) -> str:
        """Sizes of input, output and layers, described in one line."""
        grid = self.grid.build()
        rows, columns = grid.picture_shape
        layers = ", ".join(f"{name} {value}" for name, value in self.network.model_dump().items())
        return f"pictures of {rows} x {columns} and {grid.num_actions} actions ({layers})"
