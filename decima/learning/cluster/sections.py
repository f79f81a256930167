"""Sections of the settings of a training on clusters, with a description of each setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from decima import settings
from decima.evaluation.conditions import Sampling
from decima.policy.config import Feature, PolicyConfig, built_in_or_custom
from decima.policy.presets import PRESETS
from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from decima.settings import (
    Count,
    LearningRate,
    Positive,
    Section,
    Share,
    TrainingError,
    Weight,
)
from workloads.custom import is_custom
from workloads.declaration import Number, declared, described
from workloads.errors import LONGEST_MS, PartError
from workloads.job import WorkloadError
from workloads.sources.open import EMBEDDED, open_workload
from workloads.sources.workload_file import Workload

__all__ = [
    "BaselineSection", "CloningSection", "CriticSection", "CurriculumSection",
    "EpisodesSection", "PolicySection", "RestartsSection", "ReturnsSection", "UpdateSection",
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
            from decima.policy.parts import build_part

            try:
                build_part(name, self.BASE, **(options or {}))
            except PartError as error:
                raise ValueError(f"{self.KEY}: {error}") from None
        elif options is not None:
            raise ValueError(f"options: have no effect without a custom {self.KEY}, module:Class")
        return self


class PolicySection(Section):
    """Configuration of the policy network."""

    FREE: ClassVar[Mapping[str, type[BaseModel]]] = {"overrides": PolicyConfig}

    preset: Literal["relative", "profiled", "packing", "shortcut", "paper", "decima-sim"] = described(
        "shortcut", "preset, see decima.policy.PRESETS"
    )
    overrides: dict[str, Any] = described(
        {}, "fields of decima.policy.config.PolicyConfig that differ from the preset"
    )
    stage_features: tuple[Feature, ...] | None = described(
        None, "further features of stages; a custom feature is module:Class"
    )
    job_features: tuple[Feature, ...] | None = described(None, "further features of jobs")

    @field_validator("overrides")
    @classmethod
    def _check(cls, overrides: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        _policy(info.data.get("preset", "shortcut"), overrides)
        return overrides

    @model_validator(mode="after")
    def _check_parts(self) -> PolicySection:
        policy = self.build()
        if policy.has_custom_parts:
            from decima.policy.parts import check_part, custom_parts

            for part in custom_parts(policy):
                check_part(part.name, part.key, part.base)
        return self

    def build(self) -> PolicyConfig:
        """Return the configuration of the policy network."""
        shape = _policy(self.preset, self.overrides)
        stage_features = [*shape.stage_features, *(self.stage_features or ())]
        job_features = [*shape.job_features, *(self.job_features or ())]
        more = {"stage_features": stage_features, "job_features": job_features}
        return _policy(self.preset, self.overrides | more)


def _policy(preset: str, overrides: dict[str, Any]) -> PolicyConfig:
    try:
        return PolicyConfig.model_validate(PRESETS[preset].model_dump() | overrides)
    except ValidationError as error:
        from workloads.validation import first_error

        raise ValueError(first_error(error)) from None


_Interval = Annotated[Number, Field(gt=0, le=LONGEST_MS)]
_Intervals = Annotated[
    Annotated[_Interval, Tag("<number>")]
    | Annotated[tuple[_Interval, ...], Field(min_length=1), Tag("<list>")],
    Discriminator(lambda value: "<list>" if isinstance(value, list | tuple) else "<number>"),
]


@declared(error=TrainingError, kw_only=True)
class WorkloadSection(Sampling):
    """Jobs; by default the embedded TPC-H set."""

    profiles: Path | None = described(None, "folder of the published TPC-H profiles")
    file: Path | None = described(
        None,
        "workload file, or synthetic for random DAGs; arrivals in the file are replayed, with new task "
        "noise for each seed",
    )
    interval_ms: _Intervals = described(  # type: ignore[assignment]
        25_000.0,
        "mean time between Poisson arrivals, s; from a list, each sequence draws one value by its seed",
    )

    @property
    def intervals_ms(self) -> tuple[float, ...]:
        """Mean times between arrivals from which sequences draw, ms."""
        return self.interval_ms if isinstance(self.interval_ms, tuple) else (self.interval_ms,)

    def __post_init__(self) -> None:
        if self.profiles is not None and self.file is not None:
            raise TrainingError("profiles and file exclude each other")

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

    sequences: Count = described(2, "number of job sequences in an iteration")
    final_sequences: Count | None = described(
        None,
        "number of job sequences in the last iteration, linear in between: the gradient of a better policy is "
        "smaller, and needs more episodes; null for the same number throughout",
    )
    per_sequence: Count = described(8, "number of episodes of each sequence")
    share: float = described(
        1.0,
        "share of the decisions that become samples, evenly spaced; fewer take less time and memory",
        gt=0,
        le=1,
    )
    fixed_sequences: bool = described(
        True,
        "true: per_sequence episodes share a job sequence (input-dependent baseline); false: each episode "
        "draws its own sequence, and the baseline averages over per_sequence of them (the ablation of Figure 14)",
    )
    batches: Share = described(
        0.0,
        "share of the training, at its beginning, in which all jobs of a sequence arrive at once: an untrained policy "
        "learns more from batches than from a stream, in which it lets the queue grow",
    )
    batch_jobs: Count = described(20, "number of jobs in these batches")
    half_size: Share = described(
        0.0,
        "share of the training, at its beginning, with half of the executors and jobs, at the same load: episodes "
        "have fewer decisions, so that each has a larger effect on the return",
    )
    warm_up: Weight = described(
        0.0, "mean time for which srpt decides first, without samples, so that the cluster is busy, s"
    )

    def sequences_before(self, iteration: int, iterations: int) -> int:
        """Return the number of job sequences in the iterations before this one of a training."""
        last = self.sequences if self.final_sequences is None else self.final_sequences
        growth = (last - self.sequences) * iteration * (iteration - 1)
        return self.sequences * iteration + growth // (2 * max(iterations - 1, 1))


class RestartsSection(Section):
    """Random restarts: trainings with different seeds begin, and the best one on the validation set continues."""

    seeds: int = described(4, "number of trainings: some seeds stop exploring too early", ge=2, le=100)
    share: float = described(0.25, "share of the training before the best one continues", gt=0, lt=1)


class CurriculumSection(Section):
    """Curriculum: episodes are truncated at memoryless times, whose mean grows (Decima, section 5.3, challenge 1)."""

    start: Positive = described(500.0, "mean truncation time at the beginning, s")
    end: Positive = described(5000.0, "mean truncation time after the growth, s")
    growth: Share = described(1.0, "share of the training in which the mean grows, linearly")

    def mean_end_s(self, progress: float) -> float:
        """Return the mean truncation time after this fraction of the training, s."""
        return self.start + (self.end - self.start) * _share_of(progress, self.growth)


class ReturnsSection(_Replaceable):
    """Returns: the later rewards that a decision is credited with."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.cluster.advantages:Returns"

    kind: Annotated[str, built_in_or_custom("total", "discounted", "differential")] = described(
        "total",
        "total: sum of later rewards; discounted: by time; differential: rewards less the average reward "
        "per time; or module:Class",
    )
    options: Options = None
    horizon: Positive = described(1000.0, "discounted: a reward this much later has weight 1/e, s")
    window: Count = described(100_000, "differential: number of samples in the average reward")
    relative: bool = described(
        False,
        "whether rewards and horizons (also the critic's) are in units of the mean time that jobs spend in "
        "the system, over the episodes of a group, instead of s",
    )


class BaselineSection(_Replaceable):
    """Baseline: the expected return, which is subtracted to reduce the variance of the gradient."""

    KEY: ClassVar[str] = "kind"
    BASE: ClassVar[str] = "decima.learning.cluster.advantages:Baseline"

    kind: Annotated[str, built_in_or_custom("sequence", "heuristic", "none")] = described(
        "sequence",
        "sequence: mean of the other episodes of the job sequence (input-dependent); heuristic: a "
        "scheduler's run on the sequence; none; or module:Class",
    )
    options: Options = None
    scheduler: SchedulerSpec = described(
        "weighted-fair:-1", "heuristic: name of the scheduler, as in decima compare"
    )


class CriticSection(Section):
    """Critic, and generalised advantage estimation (GAE) in continuous time; see ``cluster.advantages``."""

    RENAMED: ClassVar[Mapping[str, str]] = {"trace": "gae_horizon", "memory": "decay"}

    gae_horizon: Positive = described(
        60.0, "GAE lambda is exp(-dt / gae_horizon): a TD error this much later has weight 1/e, s"
    )
    decay: Decay = described(
        0.95, "decay per iteration of the weight of older iterations in the critic's fit"
    )


class UpdateSection(_Replaceable):
    """Update of the policy from advantages."""

    RENAMED: ClassVar[Mapping[str, str]] = {"averaging": "ema_decay"}
    KEY: ClassVar[str] = "algorithm"
    BASE: ClassVar[str] = "decima.learning.cluster.reinforce:Reinforce"

    algorithm: Annotated[str, built_in_or_custom("ppo", "reinforce")] = described(
        "ppo", "ppo; reinforce, Algorithm 1 of the paper; or module:Class"
    )
    options: Options = None
    learning_rate: LearningRate = described(1e-3, "learning rate of Adam at the beginning")
    final_learning_rate: LearningRate = described(1e-4, "learning rate at the end; linear in between")
    entropy_start: Weight = described(0.02, "weight of the entropy bonus at the beginning")
    entropy_end: Weight = described(0.0, "weight of the entropy bonus after the decay")
    entropy_decay: Share = described(0.8, "share of the training in which the entropy bonus decays, linearly")
    normalise: Literal["std", "sequence", "none"] = described(
        "std",
        "normalisation of advantages to mean 0 and standard deviation 1: std, over an iteration; sequence, "
        "over each sequence, so that sequences with many samples do not dominate; none",
    )
    max_gradient_norm: Positive = described(0.5, "gradient clipping: largest norm")
    ema_decay: Decay = described(
        0.9, "decay per iteration of the exponential moving average of the weights, which is validated"
    )
    clip: Positive = described(0.2, "ppo: clipping distance of the probability ratio from 1")
    epochs: Count = described(2, "ppo: maximum number of times that each sample is used")
    minibatches: Count = described(6, "ppo: gradient steps per epoch")
    max_kl: Positive = described(0.02, "ppo: no further epoch after one with a larger KL divergence, nats")

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate after this fraction of the training."""
        return self.learning_rate + (self.final_learning_rate - self.learning_rate) * progress

    def entropy_weight_at(self, progress: float) -> float:
        """Return the weight of the entropy bonus after this fraction of the training."""
        decayed = _share_of(progress, self.entropy_decay)
        return self.entropy_start + (self.entropy_end - self.entropy_start) * decayed


class CloningSection(settings.CommonCloningSection):
    """Behaviour cloning: before reinforcement learning, the policy learns the choices of a heuristic."""

    scheduler: SchedulerSpec = described(
        "weighted-fair:-1", "scheduler to clone, a name as in decima compare"
    )
    sequences: Count = described(40, "number of job sequences that the scheduler runs")
    jobs: Count | None = described(
        None, "number of jobs in these sequences; null for workload.jobs. In longer streams more jobs wait"
    )
    learning_rate: LearningRate = described(2e-3, "learning rate of a separate Adam")
    entropy: Weight = described(0.05, "weight of the entropy bonus, so that the policy keeps exploring")


class ValidationSection(settings.CommonValidationSection):
    """Validation: the best policy is selected by greedy decisions on held-out job sequences."""

    sequences: Count = described(20, "number of sequences, the same in every run; with settings, per cell")
    cells: Count = described(
        12,
        "with settings: number of validation settings, the same in every run; the best policy has the best "
        "mean over cells, plus the loss of the worst cell beyond its interval",
    )
    against: SchedulerSpec = described(
        "srpt", "with settings: reference scheduler, a name as in decima compare"
    )
