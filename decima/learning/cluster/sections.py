"""The sections of a training's settings, and what each setting means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from decima.learning import config
from decima.policy.config import PRESETS, PolicyConfig
from decima.policy.feature_config import Feature
from decima.policy.parts import PartError, build_part, check_part, is_own, ours_or_own
from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from decima.settings import Count, LearningRate, Positive, Section, Share, Weight, first_problem
from simulator.cluster.config import SEMANTICS, ClusterConfig, parse_classes
from workloads.job import WorkloadError
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

__all__ = [
    "BaselineSection",
    "CloningSection",
    "ClusterSection",
    "CriticSection",
    "CurriculumSection",
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
#: How much of something is left after an iteration.
Decay = Annotated[float, Field(ge=0, lt=1)]


def _share_of(progress: float, part: float) -> float:
    """How much of a first part of the training is over, 0 to 1."""
    return min(1.0, progress / part) if part > 0 else 1.0


#: Of a class of the user's own.
Options = Annotated[
    dict[str, Any] | None,
    Field(description="what a class of your own is built with, by the names of its arguments"),
]


class _Replaceable(Section):
    """A section whose part may be the user's own, built with ``options``."""

    #: The key that names it.
    KEY: ClassVar[str]
    #: Name of what it has to be a subclass of: some of these need PyTorch, which takes seconds.
    BASE: ClassVar[str]

    @model_validator(mode="after")
    def _check_part(self) -> Self:
        name, options = getattr(self, self.KEY), getattr(self, "options", None)
        if is_own(name):
            try:
                build_part(name, self.BASE, **(options or {}))
            except PartError as error:
                raise ValueError(f"{self.KEY}: {error}") from None
        elif options is not None:
            raise ValueError(f"options: have no effect without a {self.KEY} of your own, module:Class")
        return self


class PolicySection(Section):
    """The shape of the policy."""

    preset: Literal["general", "profiled", "packing", "packing-told", "shortcut", "paper", "decima-sim"] = (
        Field(default="shortcut", description="what to begin with; see decima.policy.config.PRESETS")
    )
    overrides: dict[str, Any] = Field(
        default={},
        description="fields of decima.policy.config.PolicyConfig that differ from the preset",
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
            own_parts = self.build().own_parts
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None
        for part in own_parts:
            check_part(part.name, part.key, part.base)
        return self

    def build(self) -> PolicyConfig:
        """The shape with all its fields."""
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
    """The cluster that the policy learns on, and what it is to achieve."""

    executors: Count = Field(default=50, description="executors")
    classes: str | None = Field(
        default=None, description="executors of several classes instead, as decima compare --classes has them"
    )
    moving_delay: Weight = Field(
        default=2.0, description="time that an executor needs to move to another job, s"
    )
    reward: Literal["jct", "makespan"] = Field(
        default="jct", description="what is to be short: the average job completion time, or the makespan"
    )
    semantics: Literal["paper", "decima-sim", "trace"] = Field(
        default="paper",
        description="Spark as the paper or as its published simulator models it; trace: nobody waits for stages",
    )

    @field_validator("classes")
    @classmethod
    def _check(cls, classes: str | None) -> str | None:
        if classes is not None:
            parse_classes(classes)
        return classes

    @model_validator(mode="after")
    def _check_size(self) -> ClusterSection:
        self.build()
        return self

    def build(self) -> ClusterConfig:
        """As the simulator wants it."""
        return ClusterConfig(
            num_executors=self.executors,
            executor_classes=parse_classes(self.classes) if self.classes else (),
            moving_delay_ms=self.moving_delay * 1000,
            reward=self.reward,
            semantics=SEMANTICS[self.semantics],
        )


class WorkloadSection(Section):
    """What runs. Without ``profiles`` and ``file``, the embedded TPC-H set."""

    profiles: Path | None = Field(default=None, description="folder of the published TPC-H profiles")
    file: Path | None = Field(
        default=None,
        description="workload file, or synthetic for random DAGs; if the file says which jobs arrive when, they do, "
        "each time with other task noise",
    )
    arrivals: Literal["batch", "poisson"] = Field(
        default="batch", description="all jobs at time 0, or a Poisson process"
    )
    jobs: int = Field(default=20, ge=1, le=10_000_000, description="jobs in each sequence")
    memory_demand: Literal["own", "uniform"] = Field(
        default="own",
        description="memory that tasks need: the workload's, or for each stage drawn from (0, 1]",
    )
    interval: Positive | tuple[Positive, ...] = Field(
        default=25.0,
        description="mean time between Poisson arrivals, s; of several, each sequence has one, drawn by its seed",
    )

    @property
    def intervals(self) -> tuple[float, ...]:
        """All of them, s."""
        return self.interval if isinstance(self.interval, tuple) else (self.interval,)

    @model_validator(mode="after")
    def _check(self) -> WorkloadSection:
        if self.profiles is not None and self.file is not None:
            raise ValueError("profiles and file exclude each other")
        if not self.intervals:
            raise ValueError("interval: expected at least one")
        return self

    def read(self) -> Workload:
        """The jobs.

        Raises:
            WorkloadError: they cannot be read.
        """
        if self.profiles is not None and not self.profiles.is_dir():
            raise WorkloadError(f"{self.profiles}: there is no such folder, expected TPC-H profiles")
        return open_workload(self.profiles or (EMBEDDED if self.file is None else str(self.file)))


class EpisodesSection(Section):
    """The episodes of an iteration. Source: Decima, section 5.3 (its code: 16 of one sequence)."""

    sequences: Count = Field(default=2, description="job sequences in an iteration")
    per_sequence: Count = Field(default=8, description="episodes of each sequence")
    share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of the decisions that are learned from, evenly spaced. Neighbours are much alike where jobs "
        "have many stages; fewer take less time and memory",
    )
    fixed_sequences: bool = Field(
        default=True,
        description="false: every episode draws a sequence of its own, while the baseline still averages over "
        "per_sequence of them (the ablation of Figure 14)",
    )


class CurriculumSection(Section):
    """Episodes end early, at exponentially distributed times, later and later as training goes on (section 5.3, 1)."""

    start: Positive = Field(default=500.0, description="mean end at the beginning, s")
    end: Positive = Field(default=5000.0, description="mean end after the growth, s")
    growth: Share = Field(default=1.0, description="share of the training in which the mean grows, linearly")

    def mean_end_s(self, progress: float) -> float:
        """Mean end when this share of the training is over, s."""
        return self.start + (self.end - self.start) * _share_of(progress, self.growth)


class ReturnsSection(_Replaceable):
    """What a decision is held to account for."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.returns:Returns"

    kind: Annotated[str, ours_or_own("total", "discounted", "differential")] = Field(
        default="total",
        description="all rewards that follow; discounted by time; or less the average reward per time; or module:Class",
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
        description="horizons, also that of the critic, are in units of the mean time that jobs spend in the system, "
        "over the episodes of a group, instead of s; so are rewards",
    )


class BaselineSection(_Replaceable):
    """What is expected, so that only what a decision changed is learned from."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.baselines:Baseline"

    kind: Annotated[str, ours_or_own("sequence", "heuristic", "none")] = Field(
        default="sequence",
        description="the mean of the other episodes of the sequence; a scheduler's run on it; nothing; or module:Class",
    )
    options: Options = None
    scheduler: SchedulerSpec = Field(
        default="weighted-fair:-1", description="heuristic: the scheduler, as decima compare names it"
    )


class CriticSection(Section):
    """Advantages by generalised advantage estimation (GAE) in continuous time; see ``learning.cluster.critic``."""

    RENAMED: ClassVar[Mapping[str, str]] = {"trace": "gae_horizon", "memory": "decay"}

    gae_horizon: Positive = Field(
        default=60.0,
        description="GAE lambda is exp(-dt / gae_horizon): a TD error this much later counts 1/e, s",
    )
    decay: Decay = Field(
        default=0.95, description="how much an iteration still counts in the next one's fit of the critic"
    )


class UpdateSection(_Replaceable):
    """How the policy follows the advantages."""

    RENAMED: ClassVar[Mapping[str, str]] = {"averaging": "ema_decay"}
    KEY: ClassVar[str] = "algorithm"
    BASE: ClassVar[str] = "decima.learning.algorithms:Algorithm"

    algorithm: Annotated[str, ours_or_own("ppo", "reinforce")] = Field(
        default="ppo", description="or reinforce, Algorithm 1 of the paper; or module:Class"
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
        "sequence do, so that busy ones do not drown the others",
    )
    max_gradient_norm: Positive = Field(default=0.5, description="longer gradients are clipped")
    ema_decay: Decay = Field(
        default=0.9,
        description="the policy that is judged and kept is the exponential moving average of the weights; how much of "
        "it remains in each iteration",
    )
    clip: Positive = Field(default=0.2, description="ppo: how far the ratio of probabilities may leave 1")
    epochs: Count = Field(default=2, description="ppo: how often each sample is used at most")
    minibatches: Count = Field(default=6, description="ppo: gradient steps per epoch")
    max_kl: Positive = Field(default=0.02, description="ppo: no further epoch beyond this divergence, nats")

    def learning_rate_at(self, progress: float) -> float:
        """The learning rate when this share of the training is over."""
        return self.learning_rate + (self.final_learning_rate - self.learning_rate) * progress

    def entropy_weight_at(self, progress: float) -> float:
        """The weight of the entropy when this share of the training is over."""
        decayed = _share_of(progress, self.entropy_decay)
        return self.entropy_start + (self.entropy_end - self.entropy_start) * decayed


class CloningSection(config.CloningSection):
    """Behaviour cloning: before reinforcement learning, the choices of a classic scheduler are learned."""

    scheduler: SchedulerSpec = Field(
        default="weighted-fair:-1", description="whose choices, as decima compare names it"
    )
    sequences: Count = Field(default=40, description="job sequences that it runs")
    jobs: Count | None = Field(
        default=None,
        description="jobs in each of them; those of the workload if not given. In longer streams more jobs wait",
    )
    learning_rate: LearningRate = Field(default=2e-3, description="of an Adam of its own")
    entropy: Weight = Field(
        default=0.05, description="weight of the entropy bonus, so that the policy stays curious"
    )


class ValidationSection(config.ValidationSection):
    """How the best policy is found: by its greedy decisions on sequences that no training meets."""

    sequences: Count = Field(
        default=20, description="number of sequences, always the same; with settings, of each cell"
    )
    cells: Count = Field(
        default=12,
        description="with settings: how many of them, always the same; the best policy is the one with the best mean "
        "over them, to which is added what the worst of them loses beyond its interval",
    )
    against: SchedulerSpec = Field(
        default="profiled-srpt",
        description="with settings: the scheduler that policies are compared with, as decima compare names it",
    )
