"""Sections of the settings of a training on clusters, with descriptions of all settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from decima.learning import config
from decima.learning.cluster.attributes import AttributesSection
from decima.policy.config import PRESETS, Feature, PolicyConfig
from decima.policy.parts import PartError, build_part, built_in_or_custom, check_part, is_custom
from decima.policy.scheduler import make_rule
from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from decima.settings import Count, LearningRate, Positive, Section, Share, Weight, first_problem
from simulator.cluster.config import SEMANTICS, ClusterConfig, parse_classes
from simulator.cluster.objectives.named import objective_named
from workloads.job import WorkloadError
from workloads.sources.carbon import open_signal
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

__all__ = [
    "BaselineSection",
    "CloningSection",
    "ClusterSection",
    "CriticSection",
    "CurriculumSection",
    "DCLSection",
    "EpisodesSection",
    "PolicySection",
    "ReturnsSection",
    "UpdateSection",
    "ValidationSection",
    "WorkloadSection",
]


def _check_scheduler(spec: str) -> str:
    try:
        make_scheduler(spec)
    except SchedulerError as error:
        raise ValueError(error) from None
    return spec


SchedulerSpec = Annotated[str, AfterValidator(_check_scheduler)]
#: Factor of decay per iteration.
Decay = Annotated[float, Field(ge=0, lt=1)]


def _share_of(progress: float, part: float) -> float:
    """Return the completed fraction of the first ``part`` of the training."""
    return min(1.0, progress / part) if part > 0 else 1.0


#: Arguments of a custom class.
Options = Annotated[dict[str, Any] | None, Field(description="arguments of a class of your own, by name")]


class _Replaceable(Section):
    """Section that may name a custom class, which receives ``options`` as arguments."""

    #: Key of the class's name.
    KEY: ClassVar[str]
    #: Name of its base class, which is imported only when needed, since some need PyTorch.
    BASE: ClassVar[str]

    @model_validator(mode="after")
    def _check_part(self) -> Self:
        name, options = getattr(self, self.KEY), getattr(self, "options", None)
        if is_custom(name):
            try:
                build_part(name, self.BASE, **(options or {}))
            except PartError as error:
                raise ValueError(f"{self.KEY}: {error}") from None
        elif options is not None:
            raise ValueError(f"options: have no effect without a {self.KEY} of your own, module:Class")
        return self


class PolicySection(Section):
    """Configuration of the policy."""

    preset: Literal["general", "profiled", "packing", "packing-told", "shortcut", "paper", "decima-sim"] = (
        Field(default="shortcut", description="preset, see decima.policy.config.PRESETS")
    )
    overrides: dict[str, Any] = Field(
        default={}, description="fields of decima.policy.config.PolicyConfig that differ from the preset"
    )
    stage_features: tuple[Feature, ...] | None = Field(
        default=None, description="further features of stages; names of your own are module:Class"
    )
    job_features: tuple[Feature, ...] | None = Field(default=None, description="further features of jobs")

    @field_validator("overrides")
    @classmethod
    def _check(cls, overrides: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        try:
            _ = _policy(info.data.get("preset", "shortcut"), overrides).layers
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None
        return overrides

    @model_validator(mode="after")
    def _check_parts(self) -> PolicySection:
        try:
            custom_parts = self.build().custom_parts
            make_rule(self.build())
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None
        for part in custom_parts:
            check_part(part.name, part.key, part.base)
        return self

    def build(self) -> PolicyConfig:
        """Return the configuration of the policy."""
        shape = _policy(self.preset, self.overrides)
        if self.stage_features is None and self.job_features is None:
            return shape
        more = {
            "stage_features": [*shape.stage_features, *(self.stage_features or ())],
            "job_features": [*shape.job_features, *(self.job_features or ())],
        }
        return PolicyConfig.model_validate(shape.model_dump() | more)


def _policy(preset: str, overrides: dict[str, Any]) -> PolicyConfig:
    return PolicyConfig.model_validate({**PRESETS[preset].model_dump(), **overrides})


class ClusterSection(Section):
    """Cluster of the training, and the objective."""

    executors: Count = Field(default=50, description="executors")
    classes: str | None = Field(
        default=None,
        description="executors of several classes instead, in the form of decima compare --classes",
    )
    moving_delay: Weight = Field(
        default=2.0, description="time that an executor needs to move to another job, s"
    )
    reward: str = Field(
        default="jct",
        description="objective: jct or mean, the average job completion time; makespan; weighted; power-mean:K, for "
        "short tails; deadline or deadline:PENALTY, tardiness with a penalty in s for each missed deadline; "
        "misses:BOUND, tardiness up to a bound in s; fairness; carbon:FILE; module:Class; or a sum, jct+0.5*deadline",
    )
    carbon: str | None = Field(
        default=None, description="carbon intensity, FILE[:SCALE]; by default that of a reward carbon:FILE"
    )
    limits: tuple[str, ...] = Field(
        default=(),
        description="limits on further objectives, such as jct<=1.05*priced-srpt: at most 1.05 times what that "
        "scheduler has on the same sequences; kept by Lagrange multipliers",
    )
    semantics: Literal["paper", "decima-sim", "trace"] = Field(
        default="paper",
        description="Spark as modelled by the paper or by its published simulator; trace: no executor waits",
    )

    @field_validator("classes")
    @classmethod
    def _check(cls, classes: str | None) -> str | None:
        if classes is not None:
            parse_classes(classes)
        return classes

    @field_validator("reward")
    @classmethod
    def _check_reward(cls, reward: str) -> str:
        return "jct" if reward == "mean" else reward

    @model_validator(mode="after")
    def _check_size(self) -> ClusterSection:
        self.build()
        return self

    def build(self) -> ClusterConfig:
        """Return the configuration of the simulator."""
        signal = self.carbon or objective_named(self.reward).signal
        return ClusterConfig(
            num_executors=self.executors,
            executor_classes=parse_classes(self.classes) if self.classes else (),
            moving_delay_ms=self.moving_delay * 1000,
            reward=self.reward,
            signal=None if signal is None else open_signal(signal),
            semantics=SEMANTICS[self.semantics],
        )


class WorkloadSection(AttributesSection):
    """Jobs. Without ``profiles`` and ``file``, the embedded TPC-H set."""

    profiles: Path | None = Field(default=None, description="folder of the published TPC-H profiles")
    file: Path | None = Field(
        default=None,
        description="workload file, or synthetic for random DAGs; arrivals in the file are replayed, each time with "
        "other task noise",
    )
    arrivals: Literal["batch", "poisson"] = Field(
        default="batch", description="all jobs at time 0, or a Poisson process"
    )
    jobs: int = Field(default=20, ge=1, le=10_000_000, description="jobs in each sequence")
    memory_demand: Literal["own", "uniform"] = Field(
        default="own", description="memory of tasks: the workload's, or drawn from (0, 1] for each stage"
    )
    interval: Positive | tuple[Positive, ...] = Field(
        default=25.0,
        description="mean time between Poisson arrivals, s; if several, each sequence draws one of them by its seed",
    )
    drift: str | None = Field(
        default=None,
        description="AT:RATE[:WORKLOAD], a change of Poisson arrivals: from AT seconds on, jobs come RATE times as "
        "often, and from another workload if one is given",
    )

    @property
    def intervals(self) -> tuple[float, ...]:
        """Mean times between arrivals, s."""
        return self.interval if isinstance(self.interval, tuple) else (self.interval,)

    @model_validator(mode="after")
    def _check(self) -> WorkloadSection:
        _ = self.attributes  # raises if out of range
        if self.profiles is not None and self.file is not None:
            raise ValueError("profiles and file exclude each other")
        if not self.intervals:
            raise ValueError("interval: expected at least one")
        return self

    def read(self) -> Workload:
        """Read the jobs.

        Raises:
            WorkloadError: the jobs cannot be read.
        """
        if self.profiles is not None and not self.profiles.is_dir():
            raise WorkloadError(f"{self.profiles}: there is no such folder, expected TPC-H profiles")
        return open_workload(self.profiles or (EMBEDDED if self.file is None else str(self.file)))


class EpisodesSection(Section):
    """Episodes of an iteration (Decima, section 5.3; its code has 16 episodes of one sequence)."""

    sequences: Count = Field(default=2, description="job sequences in an iteration")
    per_sequence: Count = Field(default=8, description="episodes of each sequence")
    share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of the decisions that become samples, evenly spaced; fewer take less time and memory, and "
        "neighbours are much alike if jobs have many stages",
    )
    fixed_sequences: bool = Field(
        default=True,
        description="false: every episode draws a sequence of its own, while the baseline still averages over "
        "per_sequence of them (the ablation of Figure 14)",
    )


class CurriculumSection(Section):
    """Curriculum: episodes are truncated at memoryless times, later and later (Decima, section 5.3, challenge 1)."""

    start: Positive = Field(default=500.0, description="mean end at the beginning, s")
    end: Positive = Field(default=5000.0, description="mean end after the growth, s")
    growth: Share = Field(default=1.0, description="share of the training in which the mean grows, linearly")

    def mean_end_s(self, progress: float) -> float:
        """Return the mean end after this fraction of the training, s."""
        return self.start + (self.end - self.start) * _share_of(progress, self.growth)


class ReturnsSection(_Replaceable):
    """Returns: the rewards that a decision is credited with."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.cluster.advantages:Returns"

    kind: Annotated[str, built_in_or_custom("total", "discounted", "differential")] = Field(
        default="total",
        description="all rewards that follow; discounted by time; less the average reward per time; or module:Class",
    )
    options: Options = None
    horizon: Positive = Field(
        default=1000.0, description="discounted: a reward this much later counts 1/e, s"
    )
    window: Count = Field(
        default=100_000, description="differential: samples that the average reward is taken over"
    )
    relative: bool = Field(
        default=False,
        description="horizons (also the critic's) and rewards are in units of the mean time that jobs spend in the "
        "system, over the episodes of a group, instead of s",
    )


class BaselineSection(_Replaceable):
    """Baseline: the expected return, which is subtracted to reduce the variance of the gradient."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.cluster.advantages:Baseline"

    kind: Annotated[str, built_in_or_custom("sequence", "heuristic", "none")] = Field(
        default="sequence",
        description="mean of the other episodes of the sequence; a scheduler's run on it; nothing; or module:Class",
    )
    options: Options = None
    scheduler: SchedulerSpec = Field(
        default="weighted-fair:-1", description="heuristic: the scheduler, by its name in decima compare"
    )


class CriticSection(Section):
    """Advantages by generalised advantage estimation (GAE) in continuous time; see ``cluster.advantages``."""

    RENAMED: ClassVar[Mapping[str, str]] = {"trace": "gae_horizon", "memory": "decay"}

    gae_horizon: Positive = Field(
        default=60.0,
        description="GAE lambda is exp(-dt / gae_horizon): a TD error this much later counts 1/e, s",
    )
    decay: Decay = Field(
        default=0.95, description="weight that an iteration keeps in the next iteration's fit of the critic"
    )


class UpdateSection(_Replaceable):
    """Update of the policy from advantages."""

    RENAMED: ClassVar[Mapping[str, str]] = {"averaging": "ema_decay"}
    KEY: ClassVar[str] = "algorithm"
    BASE: ClassVar[str] = "decima.learning.cluster.reinforce:Reinforce"

    algorithm: Annotated[str, built_in_or_custom("ppo", "reinforce", "dcl")] = Field(
        default="ppo",
        description="ppo; reinforce, Algorithm 1 of the paper; dcl, better decisions found by simulation; or "
        "module:Class",
    )
    options: Options = None
    learning_rate: LearningRate = Field(default=1e-3, description="of Adam, at the beginning")
    final_learning_rate: LearningRate = Field(default=1e-4, description="at the end; linear in between")
    entropy_start: Weight = Field(default=0.02, description="weight of the entropy bonus at the beginning")
    entropy_end: Weight = Field(default=0.0, description="after its decay")
    entropy_decay: Share = Field(
        default=0.8, description="share of the training in which the weight decays, linearly"
    )
    normalise: Literal["std", "sequence", "none"] = Field(
        default="std",
        description="std: advantages of an iteration get mean 0 and standard deviation 1; sequence: those of each "
        "sequence do, so that busy sequences do not dominate",
    )
    max_gradient_norm: Positive = Field(default=0.5, description="longer gradients are clipped")
    ema_decay: Decay = Field(
        default=0.9,
        description="decay of the exponential moving average of the weights, per iteration; it is validated and kept",
    )
    clip: Positive = Field(default=0.2, description="ppo: clipping distance of the probability ratio from 1")
    epochs: Count = Field(default=2, description="ppo, dcl: maximum number of times that each sample is used")
    minibatches: Count = Field(default=6, description="ppo, dcl: gradient steps per epoch")
    limit_rate: Positive = Field(
        default=1.0, description="growth of a limit's multiplier in an iteration, times its relative excess"
    )
    max_kl: Positive = Field(
        default=0.02, description="ppo: no further epoch after one with a larger KL divergence, nats"
    )

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate after this fraction of the training."""
        return self.learning_rate + (self.final_learning_rate - self.learning_rate) * progress

    def entropy_weight_at(self, progress: float) -> float:
        """Return the weight of the entropy bonus after this fraction of the training."""
        decayed = _share_of(progress, self.entropy_decay)
        return self.entropy_start + (self.entropy_end - self.entropy_start) * decayed


class DCLSection(Section):
    """Deep controlled learning: search for better decisions by simulation; see ``cluster.dcl``."""

    futures: int = Field(
        default=16,
        ge=2,
        le=1024,
        description="sampled futures of the last round of the selection, and of the test",
    )
    horizon: Positive | None = Field(
        default=None, description="simulated time, s; null for the rest of the episode"
    )
    rollout: Annotated[
        str, AfterValidator(lambda spec: spec if spec == "policy" else _check_scheduler(spec))
    ] = Field(
        default="policy",
        description="what decides in simulations: policy, or a scheduler by its name in decima compare, which "
        "takes less time",
    )
    decisions: int = Field(
        default=3, ge=0, le=64, description="other likely choices of the policy that are tried"
    )
    jobs: int = Field(
        default=3, ge=0, le=64, description="jobs that are tried as the first one, the shortest first"
    )
    hold: float = Field(
        default=60.0,
        ge=0,
        allow_inf_nan=False,
        description="time that another first job, or half or twice a limit, is held, s; 0 to try no such changes",
    )


class CloningSection(config.CloningSection):
    """Behaviour cloning: before reinforcement learning, the choices of a heuristic are learned."""

    scheduler: SchedulerSpec = Field(
        default="weighted-fair:-1", description="the scheduler to clone, by its name in decima compare"
    )
    sequences: Count = Field(default=40, description="job sequences that the scheduler runs")
    jobs: Count | None = Field(
        default=None,
        description="jobs in each of these sequences; null for those of the workload. In longer streams more jobs wait",
    )
    learning_rate: LearningRate = Field(default=2e-3, description="of an Adam of its own")
    entropy: Weight = Field(
        default=0.05, description="weight of the entropy bonus, which keeps the policy exploring"
    )


class ValidationSection(config.ValidationSection):
    """Validation: the best policy is found by greedy decisions on sequences that no training meets."""

    sequences: Count = Field(
        default=20, description="number of sequences, the same in every run; with settings, of each cell"
    )
    cells: Count = Field(
        default=12,
        description="with settings: number of settings, the same in every run; the best policy has the best mean over "
        "them, plus the loss of the worst setting beyond its interval",
    )
    against: SchedulerSpec = Field(
        default="profiled-srpt",
        description="with settings: the reference scheduler, by its name in decima compare",
    )
