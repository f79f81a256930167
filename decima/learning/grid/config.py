"""What is trained on a grid, on which jobs, and how: the settings of ``decima deeprm train``.

Files and ``--set`` work as those of ``decima train``; the recipes are named in ``RECIPES``.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import nn

from decima.learning.cluster.sections import Count, Positive, Section, Share, Weight
from decima.learning.grid.rollout import Mask
from decima.policy.grid.networks import build_network
from decima.settings import Recipes
from simulator.grid import DEEPRM, PAPER, GridConfig, Objective, Picture
from workloads import DISTRIBUTIONS, JobDistribution, JobSets, draw_jobs, read_swf, swf_jobs

__all__ = ["RECIPES", "DeepRMConfig", "GridSection", "JobsSection", "NetworkSection"]

RECIPES = Recipes(resources.files("decima.learning.grid") / "recipes")

Whole = Annotated[int, Field(ge=0)]


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
        """The grid."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return GridConfig(**{**values, "semantics": DEEPRM if self.semantics == "deeprm" else PAPER})


class JobsSection(Section):
    """Where jobs come from: DeepRM's distributions, or a log."""

    distribution: Literal["code", "paper", "coarse"] = Field(
        default="code",
        description="DeepRM's jobs: as its code draws them, as its paper says, or nearly so on 10 units",
    )
    log: Path | None = Field(
        default=None, description="draw from this log in Standard Workload Format instead"
    )
    load: Positive | tuple[Positive, ...] | None = Field(
        default=0.7, description="share of each resource that is needed on average; several are taken in turn"
    )
    rate: Share | tuple[Share, ...] | None = Field(
        default=None,
        description="chance that a job enters a step, instead of a load; several are taken in turn",
    )
    steps: Count = Field(default=50, description="steps in which jobs enter")

    @model_validator(mode="after")
    def _check(self) -> JobsSection:
        if (self.load is None) == (self.rate is None):
            raise ValueError("expected either load or rate; the other must be null")
        if self.log is not None and not isinstance(self.load, float):
            raise ValueError("load: a log is drawn from by one load")
        return self

    def draw(self, grid: GridConfig, sets: int, seed: int) -> JobSets:
        """Sets of jobs.

        Raises:
            WorkloadError: the log cannot be read, or the load cannot be had.
        """
        if isinstance(self.load, float) and self.log is not None:
            log, load = read_swf(self.log), self.load * grid.machines
            return swf_jobs(log, load=load, sets=sets, steps=self.steps, slots=grid.units, seed=seed)
        jobs = self.distribution_on(grid)
        return draw_jobs(jobs, load=self.load, rate=self.rate, steps=self.steps, sets=sets, seed=seed)

    def distribution_on(self, grid: GridConfig) -> JobDistribution:
        """What jobs are like; loads are shares of all machines."""
        return replace(DISTRIBUTIONS[self.distribution], slots=grid.machines * grid.units)

    def loads(self, grid: GridConfig) -> tuple[float, ...]:
        """The loads that are taken in turn."""
        if self.load is not None:
            return self.load if isinstance(self.load, tuple) else (self.load,)
        assert self.rate is not None
        rates = self.rate if isinstance(self.rate, tuple) else (self.rate,)
        return tuple(map(self.distribution_on(grid).load, rates))


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
        """A network for the grid's pictures."""
        return build_network(grid, outputs, **self.model_dump())


class EpisodesSection(Section):
    """The episodes of an iteration."""

    sets: Count = Field(default=100, description="sets of jobs to train on")
    per_set: int = Field(default=20, ge=2, description="episodes of each set")
    at_once: Count = Field(
        default=25, description="sets whose episodes run in lock-step, which bounds memory"
    )
    fresh: bool = Field(default=False, description="draw new sets in each iteration")
    mask: Mask = Field(
        default="startable",
        description="possible are all actions; bookable jobs and void; or startable jobs and void",
    )


class UpdateSection(Section):
    """How the network learns from episodes."""

    algorithm: Literal["reinforce", "a2c"] = Field(
        default="reinforce", description="DeepRM's, or A2cScheduler's"
    )
    optimiser: Literal["rmsprop", "adam"] = Field(default="rmsprop", description="with decay 0.9; or Adam")
    learning_rate: Positive = Field(default=0.001, description="at the beginning")
    final_learning_rate: Positive = Field(default=0.001, description="at the end; it decays geometrically")
    baseline: Literal["time", "action", "none"] = Field(
        default="time",
        description="what is subtracted: the mean of a set's episodes at the same time, or after as many actions",
    )
    step: Literal["iteration", "group"] = Field(
        default="iteration",
        description="one gradient step from all sets, or one from each group that runs at once",
    )
    discount: Share = Field(default=1.0, description="of a reward, for each step that it is later")
    entropy: Weight = Field(default=0.0, description="weight of the policy's entropy in the objective")
    normalise: bool = Field(default=False, description="divide advantages by their standard deviation")
    td_steps: Count = Field(
        default=5, description="actions until the critic's value stands in for the rest; a2c only"
    )
    critic_learning_rate: Positive = Field(default=0.001, description="of the critic; a2c only")
    critic_epochs: Count = Field(
        default=1, description="passes of the critic over the states of a group; a2c only"
    )
    critic_minibatch: Count = Field(
        default=1000, description="states per gradient step of the critic; a2c only"
    )


class ImitationSection(Section):
    """A start that imitates a heuristic."""

    heuristic: Literal["sjf", "packer", "tetris"] = Field(default="sjf", description="whom")
    sets: Count = Field(default=500, description="sets of jobs on which it is watched")
    epochs: Count = Field(default=5, description="passes over its choices")
    learning_rate: Positive = Field(default=0.001, description="of Adam")
    minibatch: Count = Field(default=256, description="choices per gradient step")


class ValidationSection(Section):
    """Sets that no training meets, on which the best policy is found."""

    every: Count = Field(default=10, description="iterations from one validation to the next")
    sets: Count = Field(default=100, description="how many")


class DeepRMConfig(Section):
    """A training run on a grid. Everything it does follows from these settings, bit for bit on a CPU."""

    seed: int = Field(
        default=0, ge=0, lt=1_000_000, description="of the first weights, the jobs and the choices"
    )
    iterations: Count = Field(default=300, description="rounds of episodes and update")
    grid: GridSection = GridSection()
    jobs: JobsSection = JobsSection()
    network: NetworkSection = NetworkSection()
    episodes: EpisodesSection = EpisodesSection()
    update: UpdateSection = UpdateSection()
    start: Path | None = Field(
        default=None, description="policy file of a network of the same sizes to begin with"
    )
    imitation: ImitationSection | None = None
    validation: ValidationSection = ValidationSection()
    checkpoint_every: Count = Field(default=10, description="iterations from one checkpoint to the next")

    @model_validator(mode="after")
    def _check(self) -> DeepRMConfig:
        if self.start is not None and self.imitation is not None:
            raise ValueError("start: expected imitation=null beside it")
        return self
