"""Settings of a training on a grid (``decima deeprm train``), read from YAML."""

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
    """Jobs: DeepRM's distributions, or a log."""

    distribution: Literal["code", "paper", "coarse"] = Field(
        default="code",
        description="DeepRM's jobs: of its code, of its paper, or about those of its paper on 10 units",
    )
    log: Path | None = Field(
        default=None, description="draw jobs from this log in Standard Workload Format instead"
    )
    load: Positive | tuple[Positive, ...] | None = Field(
        default=0.7,
        description="average share of each resource that jobs need; several loads are taken in turn",
    )
    rate: Share | tuple[Share, ...] | None = Field(
        default=None,
        description="probability that a job enters in a step, instead of a load; several are taken in turn",
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
        """Draw sets of jobs.

        Raises:
            WorkloadError: the log cannot be read, or the load cannot be reached.
        """
        if isinstance(self.load, float) and self.log is not None:
            log, load = read_swf(self.log), self.load * grid.machines
            return swf_jobs(log, load=load, sets=sets, steps=self.steps, slots=grid.units, seed=seed)
        jobs = self.distribution_on(grid)
        return draw_jobs(jobs, load=self.load, rate=self.rate, steps=self.steps, sets=sets, seed=seed)

    def distribution_on(self, grid: GridConfig) -> JobDistribution:
        """Return the distribution of jobs; loads are shares of all machines."""
        return replace(DISTRIBUTIONS[self.distribution], slots=grid.machines * grid.units)

    def loads(self, grid: GridConfig) -> tuple[float, ...]:
        """Return the loads that are used in turn."""
        if self.load is not None:
            return self.load if isinstance(self.load, tuple) else (self.load,)
        assert self.rate is not None
        rates = self.rate if isinstance(self.rate, tuple) else (self.rate,)
        return tuple(map(self.distribution_on(grid).load, rates))


class EpisodesSection(Section):
    """Episodes of an iteration."""

    sets: Count = Field(default=100, description="sets of jobs to train on")
    per_set: int = Field(default=20, ge=2, description="episodes of each set")
    at_once: Count = Field(default=25, description="sets in one pass, which bounds memory")
    lockstep: Count | None = Field(
        default=None,
        description="sets of a pass whose episodes run in lock-step, null for all; workers run one lock-step at a time",
    )
    fresh: bool = Field(default=False, description="draw new sets in each iteration")
    mask: Mask = Field(
        default="startable",
        description="allowed actions: all; bookable jobs and void; or startable jobs and void",
    )


class UpdateSection(Section):
    """Update of the networks from episodes."""

    algorithm: Literal["reinforce", "a2c"] = Field(
        default="reinforce", description="reinforce as in DeepRM, or a2c as in A2cScheduler"
    )
    optimiser: Literal["rmsprop", "adam"] = Field(default="rmsprop", description="with decay 0.9; or Adam")
    learning_rate: LearningRate = Field(default=0.001, description="at the beginning")
    final_learning_rate: LearningRate = Field(
        default=0.001, description="at the end; it decays geometrically"
    )
    baseline: Literal["time", "action", "none"] = Field(
        default="time",
        description="mean of a set's episodes at the same time, or after as many actions, which is subtracted",
    )
    step: Literal["iteration", "group"] = Field(
        default="iteration", description="one gradient step from all sets, or one from each pass"
    )
    discount: Share = Field(default=1.0, description="discount of a reward per step of the clock")
    entropy: Weight = Field(default=0.0, description="weight of the entropy bonus")
    normalise: bool = Field(default=False, description="divide advantages by their standard deviation")
    td_steps: Count = Field(default=5, description="actions before the critic's bootstrap value; a2c only")
    critic_learning_rate: LearningRate = Field(default=0.001, description="of the critic; a2c only")
    critic_epochs: Count = Field(
        default=1, description="epochs of the critic over the states of a pass; a2c only"
    )
    critic_minibatch: Count = Field(
        default=1000, description="states per gradient step of the critic; a2c only"
    )


class CloningSection(config.CloningSection):
    """Behaviour cloning: before reinforcement learning, the choices of a heuristic are learned."""

    heuristic: Literal["sjf", "packer", "tetris"] = Field(default="sjf", description="the heuristic to clone")
    sets: Count = Field(default=500, description="sets of jobs that the heuristic books")
    learning_rate: LearningRate = Field(default=0.001, description="of Adam")


class ValidationSection(config.ValidationSection):
    """Validation on held-out sets."""

    sets: Count = Field(default=100, description="number of sets")


class DeepRMConfig(config.RunConfig):
    """Settings of a training run on a grid. They determine its results, bit for bit on a CPU."""

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
        """Configuration of the network for its policy file."""
        return GridPolicyConfig(grid=self.grid, network=self.network, mask=self.episodes.mask)
