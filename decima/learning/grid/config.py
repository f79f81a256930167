"""Settings of a training on DeepRM's grid (``decima deeprm train``), read from YAML."""

from __future__ import annotations

from importlib import resources
from typing import Annotated, Literal

from decima import settings
from decima.policy.grid_config import (
    DEFAULT_GRID,
    GridJobs,
    GridPolicyConfig,
    Mask,
    NetworkSection,
    StoredGrid,
)
from decima.settings import Count, LearningRate, Outside, Recipes, Section, Share, Weight
from workloads.declaration import described

__all__ = ["RECIPES", "DeepRMConfig", "GridCloningSection"]

RECIPES = Recipes(resources.files("decima.learning.grid") / "recipes")


class GridEpisodesSection(Section):
    """Episodes of an iteration."""

    sets: Count = described(100, "number of training sets of jobs")
    per_set: int = described(20, "number of episodes of each set", ge=2)
    at_once: Count = described(25, "sets whose episodes run in lock-step, and form one pass; limits memory")
    fresh: bool = described(False, "whether each iteration draws new sets")
    mask: Mask = described(
        "startable",
        "allowed actions: all; bookable, jobs that can be booked, and void; startable, jobs that can start "
        "at once, and void",
    )


class GridUpdateSection(Section):
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


class GridCloningSection(settings.CommonCloningSection):
    """Behaviour cloning: before reinforcement learning, the policy learns the choices of a heuristic."""

    heuristic: Literal["sjf", "packer", "tetris"] = described("sjf", "heuristic to clone")
    sets: Count = described(500, "number of sets of jobs that the heuristic schedules")
    learning_rate: LearningRate = described(0.001, "learning rate of a separate Adam")


class GridValidationSection(settings.CommonValidationSection):
    """Validation on held-out sets of jobs."""

    sets: Count = described(100, "number of validation sets")


class DeepRMConfig(settings.RunConfig):
    """Settings of a training run on DeepRM's grid. They determine its results, bit for bit on a CPU."""

    grid: StoredGrid = DEFAULT_GRID
    jobs: Annotated[GridJobs, Outside()] = GridJobs()
    network: NetworkSection = NetworkSection()
    episodes: GridEpisodesSection = GridEpisodesSection()
    update: GridUpdateSection = GridUpdateSection()
    start: str | None = described(
        None,
        "initial policy (warm start): a file, with a network of the same sizes; excludes behaviour cloning",
    )
    behaviour_cloning: GridCloningSection | None = None
    validation: GridValidationSection = GridValidationSection()

    @property
    def policy(self) -> GridPolicyConfig:
        """Configuration of the policy for its policy file."""
        return GridPolicyConfig(grid=self.grid, network=self.network, mask=self.episodes.mask)
