"""Settings of a training on DeepRM's grid (``decima deeprm train``), read from YAML."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from decima import settings
from decima.policy.grid import GridPolicyConfig, GridSection, Mask, NetworkSection
from decima.settings import Count, LearningRate, Positive, Recipes, Section, Share, Weight, described
from workloads.grid_jobs import DISTRIBUTIONS, JobDistribution, JobSets, draw_jobs
from workloads.sources.swf import read_swf, swf_jobs

if TYPE_CHECKING:
    from simulator.grid.config import GridConfig

__all__ = ["RECIPES", "CloningSection", "DeepRMConfig", "JobsSection"]

RECIPES = Recipes(resources.files("decima.learning.grid") / "recipes")


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
        """Return the distribution of jobs, scaled so that loads are shares of all machines."""
        return replace(DISTRIBUTIONS[self.distribution], slots=grid.machines * grid.units)

    def loads(self, grid: GridConfig) -> tuple[float, ...]:
        """Return the loads that sets take in turn."""
        if self.load is not None:
            return self.load if isinstance(self.load, tuple) else (self.load,)
        assert self.rate is not None
        rates = self.rate if isinstance(self.rate, tuple) else (self.rate,)
        return tuple(map(self.distribution_on(grid).load, rates))


class EpisodesSection(Section):
    """Episodes of an iteration."""

    sets: Count = described(100, "number of training sets of jobs")
    per_set: int = described(20, "number of episodes of each set", ge=2)
    at_once: Count = described(25, "sets in one pass; limits memory")
    lockstep: Count | None = described(
        None,
        "sets whose episodes run in lock-step, in one work item of a worker; null for all sets of a pass",
    )
    fresh: bool = described(False, "whether each iteration draws new sets")
    mask: Mask = described(
        "startable",
        "allowed actions: all; bookable, jobs that can be booked, and void; startable, jobs that can start "
        "at once, and void",
    )


class UpdateSection(Section):
    """Update of the networks from episodes."""

    algorithm: Literal["reinforce", "a2c"] = described(
        "reinforce", "REINFORCE as in DeepRM, or A2C (actor-critic) as in A2cScheduler"
    )
    optimiser: Literal["rmsprop", "adam"] = described("rmsprop", "RMSprop, decay 0.9; or Adam")
    learning_rate: LearningRate = described(0.001, "learning rate at the beginning")
    final_learning_rate: LearningRate = described(0.001, "learning rate at the end; decays geometrically")
    baseline: Literal["time", "action", "none"] = described(
        "time",
        "baseline: mean of a set's episodes at the same time, or after the same number of actions; or none",
    )
    step: Literal["iteration", "group"] = described(
        "iteration", "one gradient step from all sets, or one from the sets of each pass"
    )
    discount: Share = described(1.0, "discount of a reward per step of the clock")
    entropy: Weight = described(0.0, "weight of the entropy bonus")
    normalise: bool = described(False, "whether advantages get standard deviation 1")
    td_steps: Count = described(5, "n of n-step returns; a2c only")
    critic_learning_rate: LearningRate = described(0.001, "critic's learning rate; a2c only")
    critic_epochs: Count = described(1, "epochs of the critic over the states of a pass; a2c only")
    critic_minibatch: Count = described(1000, "states per gradient step of the critic; a2c only")


class CloningSection(settings.CloningSection):
    """Behaviour cloning: before reinforcement learning, the policy learns the choices of a heuristic."""

    heuristic: Literal["sjf", "packer", "tetris"] = described("sjf", "heuristic to clone")
    sets: Count = described(500, "number of sets of jobs that the heuristic schedules")
    learning_rate: LearningRate = described(0.001, "learning rate of a separate Adam")


class ValidationSection(settings.ValidationSection):
    """Validation on held-out sets of jobs."""

    sets: Count = described(100, "number of validation sets")


class DeepRMConfig(settings.RunConfig):
    """Settings of a training run on DeepRM's grid. They determine its results, bit for bit on a CPU."""

    grid: GridSection = GridSection()
    jobs: JobsSection = JobsSection()
    network: NetworkSection = NetworkSection()
    episodes: EpisodesSection = EpisodesSection()
    update: UpdateSection = UpdateSection()
    start: str | None = described(
        None,
        "initial policy (warm start): a file, with a network of the same sizes; excludes behaviour cloning",
    )
    behaviour_cloning: CloningSection | None = None
    validation: ValidationSection = ValidationSection()

    @property
    def policy(self) -> GridPolicyConfig:
        """Configuration of the policy for its policy file."""
        return GridPolicyConfig(grid=self.grid, network=self.network, mask=self.episodes.mask)
