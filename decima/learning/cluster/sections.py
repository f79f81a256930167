"""Sections of the settings of a training on clusters, with a description of each setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from decima import settings
from decima.learning.cluster.settings import AttributesSection
from decima.policy.config import PRESETS, Feature, PolicyConfig
from decima.policy.parts import PartError, build_part, built_in_or_custom, check_part, is_custom
from decima.policy.scheduler import make_rule
from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from decima.settings import Count, LearningRate, Positive, Section, Share, Weight, first_problem
from simulator.cluster.config import SEMANTICS, ClusterConfig, parse_classes
from simulator.cluster.objectives import objective_named
from workloads.job import WorkloadError
from workloads.sources.carbon import open_signal
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

__all__ = [
    "BaselineSection", "CloningSection", "ClusterSection", "CriticSection", "CurriculumSection",
    "DCLSection", "EpisodesSection", "PolicySection", "ReturnsSection", "UpdateSection",
    "ValidationSection", "WorkloadSection",
]  # fmt: skip


def _check_scheduler(spec: str) -> str:
    try:
        make_scheduler(spec)
    except SchedulerError as error:
        raise ValueError(error) from None
    return spec


SchedulerSpec = Annotated[str, AfterValidator(_check_scheduler)]
#: Decay factor per iteration.
Decay = Annotated[float, Field(ge=0, lt=1)]


def _share_of(progress: float, part: float) -> float:
    """Return the completed fraction of the first ``part`` of the training, at ``progress`` in [0, 1]."""
    return min(1.0, progress / part) if part > 0 else 1.0


#: Arguments of a custom class.
Options = Annotated[dict[str, Any] | None, Field(description="keyword arguments of a custom class")]


class _Replaceable(Section):
    """Section that may name a custom class, which receives ``options`` as keyword arguments."""

    #: Setting that names the class.
    KEY: ClassVar[str]
    #: Name of the required base class; a name, since the import may need PyTorch.
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
            raise ValueError(f"options: have no effect without a custom {self.KEY}, module:Class")
        return self


class PolicySection(Section):
    """Configuration of the policy network."""

    preset: Literal["general", "profiled", "packing", "packing-told", "shortcut", "paper", "decima-sim"] = (
        Field(default="shortcut", description="preset, see decima.policy.config.PRESETS")
    )
    overrides: dict[str, Any] = Field(
        default={}, description="fields of decima.policy.config.PolicyConfig that differ from the preset"
    )
    stage_features: tuple[Feature, ...] | None = Field(
        default=None, description="further features of stages; a custom feature is module:Class"
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
        """Return the configuration of the policy network."""
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

    executors: Count = Field(default=50, description="number of executors")
    classes: str | None = Field(
        default=None, description="executors of several classes instead, as in decima compare --classes"
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
        default=None, description="carbon intensity, FILE[:SCALE]; by default that of the reward carbon:FILE"
    )
    limits: tuple[str, ...] = Field(
        default=(),
        description="limits on further objectives, such as jct<=1.05*priced-srpt: at most 1.05 times the value of "
        "that scheduler on the same sequences; kept by Lagrange multipliers",
    )
    semantics: Literal["paper", "decima-sim", "trace"] = Field(
        default="paper",
        description="model of Spark: that of the paper or of its published simulator; trace: executors never wait",
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
    """Jobs; by default the embedded TPC-H set."""

    profiles: Path | None = Field(default=None, description="folder of the published TPC-H profiles")
    file: Path | None = Field(
        default=None,
        description="workload file, or synthetic for random DAGs; arrivals in the file are replayed, with new task "
        "noise for each seed",
    )
    arrivals: Literal["batch", "poisson"] = Field(
        default="batch", description="arrivals: all jobs at time 0, or a Poisson process"
    )
    jobs: int = Field(default=20, ge=1, le=10_000_000, description="number of jobs in each sequence")
    memory_demand: Literal["own", "uniform"] = Field(
        default="own", description="memory of tasks: the workload's, or drawn from (0, 1] for each stage"
    )
    interval: Positive | tuple[Positive, ...] = Field(
        default=25.0,
        description="mean time between Poisson arrivals, s; from a list, each sequence draws one value by its seed",
    )
    drift: str | None = Field(
        default=None,
        description="AT:RATE[:WORKLOAD], a change of Poisson arrivals: from AT seconds on, jobs arrive RATE times as "
        "often, and come from WORKLOAD if given",
    )

    @property
    def intervals(self) -> tuple[float, ...]:
        """Mean times between arrivals from which sequences draw, s."""
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
        """Read the workload.

        Raises:
            WorkloadError: the workload cannot be read.
        """
        if self.profiles is not None and not self.profiles.is_dir():
            raise WorkloadError(f"{self.profiles}: there is no such folder, expected TPC-H profiles")
        return open_workload(self.profiles or (EMBEDDED if self.file is None else str(self.file)))


class EpisodesSection(Section):
    """Episodes of an iteration (Decima, section 5.3; its code has 16 episodes of one sequence)."""

    sequences: Count = Field(default=2, description="number of job sequences in an iteration")
    per_sequence: Count = Field(default=8, description="number of episodes of each sequence")
    share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of the decisions that become samples, evenly spaced; fewer take less time and memory",
    )
    fixed_sequences: bool = Field(
        default=True,
        description="true: per_sequence episodes share a job sequence (input-dependent baseline); false: each episode "
        "draws its own sequence, and the baseline averages over per_sequence of them (the ablation of Figure 14)",
    )
    warm_up: Weight = Field(
        default=0.0,
        description="mean time for which priced-srpt decides first, without samples, so that the cluster is busy, s",
    )


class CurriculumSection(Section):
    """Curriculum: episodes are truncated at memoryless times, whose mean grows (Decima, section 5.3, challenge 1)."""

    start: Positive = Field(default=500.0, description="mean truncation time at the beginning, s")
    end: Positive = Field(default=5000.0, description="mean truncation time after the growth, s")
    growth: Share = Field(default=1.0, description="share of the training in which the mean grows, linearly")

    def mean_end_s(self, progress: float) -> float:
        """Return the mean truncation time after this fraction of the training, s."""
        return self.start + (self.end - self.start) * _share_of(progress, self.growth)


class ReturnsSection(_Replaceable):
    """Returns: the later rewards that a decision is credited with."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.cluster.advantages:Returns"

    kind: Annotated[str, built_in_or_custom("total", "discounted", "differential")] = Field(
        default="total",
        description="total: sum of later rewards; discounted: by time; differential: rewards less the average reward "
        "per time; or module:Class",
    )
    options: Options = None
    horizon: Positive = Field(
        default=1000.0, description="discounted: a reward this much later has weight 1/e, s"
    )
    window: Count = Field(
        default=100_000, description="differential: number of samples in the average reward"
    )
    relative: bool = Field(
        default=False,
        description="whether rewards and horizons (also the critic's) are in units of the mean time that jobs spend in "
        "the system, over the episodes of a group, instead of s",
    )


class BaselineSection(_Replaceable):
    """Baseline: the expected return, which is subtracted to reduce the variance of the gradient."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.cluster.advantages:Baseline"

    kind: Annotated[str, built_in_or_custom("sequence", "heuristic", "none")] = Field(
        default="sequence",
        description="sequence: mean of the other episodes of the job sequence (input-dependent); heuristic: a "
        "scheduler's run on the sequence; none; or module:Class",
    )
    options: Options = None
    scheduler: SchedulerSpec = Field(
        default="weighted-fair:-1", description="heuristic: name of the scheduler, as in decima compare"
    )


class CriticSection(Section):
    """Critic, and generalised advantage estimation (GAE) in continuous time; see ``cluster.advantages``."""

    RENAMED: ClassVar[Mapping[str, str]] = {"trace": "gae_horizon", "memory": "decay"}

    gae_horizon: Positive = Field(
        default=60.0,
        description="GAE lambda is exp(-dt / gae_horizon): a TD error this much later has weight 1/e, s",
    )
    decay: Decay = Field(
        default=0.95, description="decay per iteration of the weight of older iterations in the critic's fit"
    )


class UpdateSection(_Replaceable):
    """Update of the policy from advantages."""

    RENAMED: ClassVar[Mapping[str, str]] = {"averaging": "ema_decay"}
    KEY: ClassVar[str] = "algorithm"
    BASE: ClassVar[str] = "decima.learning.cluster.updates:Reinforce"

    algorithm: Annotated[str, built_in_or_custom("ppo", "reinforce", "dcl")] = Field(
        default="ppo",
        description="ppo; reinforce, Algorithm 1 of the paper; dcl, behaviour cloning of better decisions that "
        "simulation finds; or module:Class",
    )
    options: Options = None
    learning_rate: LearningRate = Field(default=1e-3, description="learning rate of Adam at the beginning")
    final_learning_rate: LearningRate = Field(
        default=1e-4, description="learning rate at the end; linear in between"
    )
    entropy_start: Weight = Field(default=0.02, description="weight of the entropy bonus at the beginning")
    entropy_end: Weight = Field(default=0.0, description="weight of the entropy bonus after the decay")
    entropy_decay: Share = Field(
        default=0.8, description="share of the training in which the entropy bonus decays, linearly"
    )
    normalise: Literal["std", "sequence", "none"] = Field(
        default="std",
        description="normalisation of advantages to mean 0 and standard deviation 1: std, over an iteration; sequence, "
        "over each sequence, so that sequences with many samples do not dominate; none",
    )
    max_gradient_norm: Positive = Field(default=0.5, description="gradient clipping: largest norm")
    ema_decay: Decay = Field(
        default=0.9,
        description="decay per iteration of the exponential moving average of the weights, which is validated",
    )
    clip: Positive = Field(default=0.2, description="ppo: clipping distance of the probability ratio from 1")
    epochs: Count = Field(default=2, description="ppo, dcl: maximum number of times that each sample is used")
    minibatches: Count = Field(default=6, description="ppo, dcl: gradient steps per epoch")
    limit_rate: Positive = Field(
        default=1.0, description="growth of a limit's multiplier per iteration and relative excess"
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
        description="sampled futures in the last round of the selection, and in the test",
    )
    horizon: Positive | None = Field(
        default=None, description="simulated time, s; null for the rest of the episode"
    )
    rollout: Annotated[
        str, AfterValidator(lambda spec: spec if spec == "policy" else _check_scheduler(spec))
    ] = Field(
        default="policy",
        description="scheduler in simulations: policy, or a name as in decima compare, which is faster",
    )
    decisions: int = Field(
        default=3, ge=0, le=64, description="number of candidates: other likely choices of the policy"
    )
    jobs: int = Field(
        default=3, ge=0, le=64, description="number of candidates: other first jobs, the shortest jobs first"
    )
    hold: float = Field(
        default=60.0,
        ge=0,
        allow_inf_nan=False,
        description="time for which another first job, or half or twice a limit, is held, s; 0 for no such candidates",
    )


class CloningSection(settings.CloningSection):
    """Behaviour cloning: before reinforcement learning, the policy learns the choices of a heuristic."""

    scheduler: SchedulerSpec = Field(
        default="weighted-fair:-1", description="scheduler to clone, a name as in decima compare"
    )
    sequences: Count = Field(default=40, description="number of job sequences that the scheduler runs")
    jobs: Count | None = Field(
        default=None,
        description="number of jobs in these sequences; null for workload.jobs. In longer streams more jobs wait",
    )
    learning_rate: LearningRate = Field(default=2e-3, description="learning rate of a separate Adam")
    entropy: Weight = Field(
        default=0.05, description="weight of the entropy bonus, so that the policy keeps exploring"
    )


class ValidationSection(settings.ValidationSection):
    """Validation: the best policy is selected by greedy decisions on held-out job sequences."""

    sequences: Count = Field(
        default=20, description="number of sequences, the same in every run; with settings, per cell"
    )
    cells: Count = Field(
        default=12,
        description="with settings: number of validation settings, the same in every run; the best policy has the best "
        "mean over cells, plus the loss of the worst cell beyond its interval",
    )
    against: SchedulerSpec = Field(
        default="profiled-srpt",
        description="with settings: reference scheduler, a name as in decima compare",
    )
