"""What is trained on a grid, on which jobs, and how: the settings of ``decima deeprm train``.

Files and ``--set`` work as those of ``decima train``; the recipes are named in ``RECIPES``.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from decima.learning import config
from decima.policy.grid.config import GridPolicyConfig, GridSection, Mask, NetworkSection
from decima.settings import Count, LearningRate, Positive, Recipes, Section, Share, Weight
from workloads.grid_jobs import DISTRIBUTIONS, JobDistribution, JobSets, draw_jobs
from workloads.sources.swf import read_swf, swf_jobs

if TYPE_CHECKING:
    from simulator.grid.config import GridConfig

__all__ = ["RECIPES", "CloningSection", "DeepRMConfig", "JobsSection"]

RECIPES = Recipes(resources.files("decima.learning.grid") / "recipes")


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


class EpisodesSection(Section):
    """The episodes of an iteration."""

    sets: Count = Field(default=100, description="sets of jobs to train on")
    per_set: int = Field(default=20, ge=2, description="episodes of each set")
    at_once: Count = Field(default=25, description="sets that are learned from at once, which bounds memory")
    lockstep: Count | None = Field(
        default=None,
        description="sets of these whose episodes run in lock-step, all if null; workers share out the parts",
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
    learning_rate: LearningRate = Field(default=0.001, description="at the beginning")
    final_learning_rate: LearningRate = Field(
        default=0.001, description="at the end; it decays geometrically"
    )
    baseline: Literal["time", "action", "none"] = Field(
        default="time",
        description="what is subtracted: the mean of a set's episodes at the same time, or after as many actions",
    )
    step: Literal["iteration", "group"] = Field(
        default="iteration",
        description="one gradient step from all sets, or one from each group that runs at once",
    )
    discount: Share = Field(default=1.0, description="of a reward, for each step that it is later")
    entropy: Weight = Field(default=0.0, description="weight of the entropy bonus")
    normalise: bool = Field(default=False, description="divide advantages by their standard deviation")
    td_steps: Count = Field(
        default=5, description="actions until the critic's bootstrap value stands in for the rest; a2c only"
    )
    critic_learning_rate: LearningRate = Field(default=0.001, description="of the critic; a2c only")
    critic_epochs: Count = Field(
        default=1, description="passes of the critic over the states of a group; a2c only"
    )
    critic_minibatch: Count = Field(
        default=1000, description="states per gradient step of the critic; a2c only"
    )


class CloningSection(config.CloningSection):
    """Behaviour cloning: before reinforcement learning, the choices of a heuristic are learned."""

    heuristic: Literal["sjf", "packer", "tetris"] = Field(default="sjf", description="whose choices")
    sets: Count = Field(default=500, description="sets of jobs on which it is watched")
    learning_rate: LearningRate = Field(default=0.001, description="of Adam")


class ValidationSection(config.ValidationSection):
    """Sets that no training meets, on which the best policy is found."""

    sets: Count = Field(default=100, description="how many")


class DeepRMConfig(config.RunConfig):
    """A training run on a grid. Everything it does follows from these settings, bit for bit on a CPU."""

    grid: GridSection = GridSection()
    jobs: JobsSection = JobsSection()
    network: NetworkSection = NetworkSection()
    episodes: EpisodesSection = EpisodesSection()
    update: UpdateSection = UpdateSection()
    start: str | None = Field(
        default=None,
        description="policy file of a network of the same sizes to begin with; without behaviour cloning",
    )
    behaviour_cloning: CloningSection | None = None
    validation: ValidationSection = ValidationSection()

    @property
    def policy(self) -> GridPolicyConfig:
        """What its policy file says of the network."""
        return GridPolicyConfig(grid=self.grid, network=self.network, mask=self.episodes.mask)
