"""Configuration of a policy network: input features, graph neural network (GNN), parallelism limits.

A policy file stores the configuration with the weights, so that the policy runs on any cluster without settings.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from decima.policy.compiled.features import FEATURES
from workloads.custom import is_custom

__all__ = ["Feature", "PolicyConfig", "built_in_or_custom"]


def built_in_or_custom(*names: str) -> AfterValidator:
    """Return a pydantic validator that accepts these names or ``module:Class``, without loading the class."""

    def check(name: str) -> str:
        if name in names or is_custom(name):
            return name
        raise ValueError(f"expected {', '.join(map(repr, names))} or module:Class, got {name!r:.60}")

    return AfterValidator(check)


FeatureName = Annotated[str, built_in_or_custom(*FEATURES)]
EncoderName = Annotated[str, built_in_or_custom("sums", "attention")]
HeadName = Annotated[str, built_in_or_custom("layers")]


class Feature(BaseModel):
    """An input feature of a stage or a job: ``value / scale``, or ``log(1 + value / scale)``.

    Attributes:
        name: one of ``decima.policy.compiled.features.FEATURES``, or ``module:Class``, a custom ``StageFeature``.
        scale: divisor, in the unit of the feature.
        log: whether to compress the feature by the logarithm.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    name: FeatureName
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False, strict=True)
    log: bool = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_bare_names(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"expected an object such as {{name: {value:.60}}}, got {value!r:.60}")
        return value

    @model_validator(mode="after")
    def _check(self) -> Feature:
        if self.log and self.name in FEATURES and FEATURES[self.name].signed:
            raise ValueError(f"the feature {self.name} can be negative: it has no logarithm")
        return self


#: Number of units of a layer; the bound limits the memory that a policy file can allocate.
_Width = Annotated[int, Field(ge=1, le=1024, strict=True)]


class PolicyConfig(BaseModel):
    """Configuration of a policy network.

    Source: Decima (SIGCOMM 2019), sections 5.1 and 5.2, and its appendix on the network.

    Attributes:
        stage_features: the F input features of a stage.
        job_features: input features of a job; the heads read them if ``shortcut``.
        embedding: width D of stage, job and global embeddings.
        hidden: hidden widths of the six embedding networks and of the network that lifts stage features.
        head_hidden: hidden widths of the two heads.
        activate_embeddings: whether embedding networks end in an activation.
        encoder: message passing: ``sums``, the sum over the messages of children, as in the paper; ``attention``, their
            mean with attention weights (GATv2; Brody et al., 2022); or ``module:Class``, a custom ``Encoder``.
        stage_head: ``layers`` of widths ``head_hidden``, or ``module:Class``, a custom ``StageHead``.
        limit_head: ``layers`` of widths ``head_hidden``, or ``module:Class``, a custom ``LimitHead``.
        message_order: ``height``: each stage receives messages once, after all its children have received theirs;
            ``decima-sim``: order of the published code, which differs in DAGs with paths of more than 8 edges.
        aggregate: whether a non-linear ``g`` follows the sum over children (equation 1 of the paper).
        summary_aggregate: whether a non-linear ``g`` follows the sums over stages and over jobs.
        root_sums: whether sums over children, stages and jobs are divided by the root of the number of their terms, so
            that embeddings do not grow with the size of DAGs and clusters.
        shortcut: whether job summary and heads receive raw features in addition to embeddings.
        graph: whether there is a graph neural network; without it the heads receive raw features only.
        finished_stages: whether finished stages are in the graph; they do not change other stages' embeddings.
        limit: ``input``: the limit is an input of the limit head (section 5.2); ``outputs``: the limit head has one
            output for each limit; ``stage``: limits apply to single stages instead of jobs; ``none``: a stage gets
            all offered executors.
        limit_scale: divisor of the limit as an input, executors.
        log_limits: whether the limit as an input is the logarithm of 1 + limit / ``limit_scale``.
        num_limits: number of outputs with ``limit="outputs"``, and so the largest limit.
        all_limits: offer all limits up to the number of executors, not only limits with different effects now, which
            end at the executors that the job holds plus those that the chosen stage can use.
        wait: offer the job's current number of executors as a limit, too; it leaves the executors idle until they are
            offered again. In the paper all offered executors are committed.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    stage_features: tuple[Feature, ...] = Field(min_length=1, max_length=64)
    job_features: tuple[Feature, ...] = Field(default=(), max_length=64)
    embedding: _Width = 16
    hidden: tuple[_Width, ...] = Field(default=(32, 16), max_length=8)
    head_hidden: tuple[_Width, ...] = Field(default=(32, 16), max_length=8)
    activate_embeddings: bool = False
    encoder: EncoderName = "sums"
    stage_head: HeadName = "layers"
    limit_head: HeadName = "layers"
    message_order: Literal["height", "decima-sim"] = "height"
    aggregate: bool = True
    summary_aggregate: bool = True
    root_sums: bool = False
    shortcut: bool = False
    graph: bool = True
    finished_stages: bool = False
    limit: Literal["input", "outputs", "stage", "none"] = "input"
    limit_scale: float = Field(default=50.0, gt=0, allow_inf_nan=False, strict=True)
    log_limits: bool = False
    num_limits: int = Field(default=50, ge=1, le=10_000, strict=True)
    all_limits: bool = False
    wait: bool = False

    @model_validator(mode="after")
    def _check(self) -> PolicyConfig:
        of_stages = {entry.name for entry in FEATURES.values() if entry.level == "stage"}
        wrong = [feature.name for feature in self.job_features if feature.name in of_stages]
        if wrong:
            raise ValueError(f"{wrong[0]} is a feature of stages, not of jobs")
        if self.message_order == "decima-sim" and not self.finished_stages:
            raise ValueError("message_order decima-sim needs finished_stages")
        if self.limit == "stage" and self.all_limits:
            raise ValueError("limit stage excludes all_limits")
        if self.wait and self.limit != "input":
            raise ValueError("wait needs limits that are an input")
        if self.log_limits and self.limit in ("outputs", "none"):
            raise ValueError("log_limits needs limits that are an input")
        if self.encoder != "sums" and not self.graph:
            raise ValueError("without a graph, the encoder has no effect")
        if self.limit == "none" and is_custom(self.limit_head):
            raise ValueError("without limits, the limit_head has no effect")
        if self.limit == "outputs" and not self.head_inputs["limit_head"]:
            raise ValueError("without a graph, the limits need job_features")
        return self

    @property
    def has_custom_parts(self) -> bool:
        """Whether a network or a feature is a custom class; ``decima.policy.parts.custom_parts`` lists these."""
        features = (*self.stage_features, *self.job_features)
        return not self.is_compiled or any(is_custom(feature.name) for feature in features)

    @property
    def is_compiled(self) -> bool:
        """Whether compiled code can evaluate the policy, which needs networks that are all built in."""
        return not any(map(is_custom, (self.encoder, self.stage_head, self.limit_head)))

    @property
    def head_inputs(self) -> dict[str, int]:
        """Number of inputs of each head (for one stage or job), not counting the limit."""
        embedded = self.embedding if self.graph else 0
        sees_raw = self.shortcut or not self.graph
        of_stage = (len(self.stage_features) if sees_raw else 0) + 3 * embedded
        of_job = (len(self.job_features) if sees_raw else 0) + 2 * embedded
        return {"stage_head": of_stage, "limit_head": of_stage if self.limit == "stage" else of_job}

    @property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """Widths of the layers of each network by name, input first. Custom parts are left out.

        ``stage_input`` lifts the features. Then come the paper's f and g of each level (``message`` and
        ``aggregate`` for stages, with ``attention`` between them, ``job_summary``, ``job_aggregate``,
        ``global_summary``, ``global_aggregate``) and the two heads, q (``stage_head``) and w (``limit_head``).
        """
        width, raw = self.embedding, len(self.stage_features)
        nets: dict[str, tuple[int, ...]] = {}
        if self.graph and not is_custom(self.encoder):
            nets["stage_input"] = (raw, *self.hidden, width)
            nets["message"] = (width, *self.hidden, width)
            if self.encoder == "attention":
                nets["attention"] = (2 * width, width, 1)
            if self.aggregate:
                nets["aggregate"] = (width, *self.hidden, width)
            nets["job_summary"] = (width + (raw if self.shortcut else 0), *self.hidden, width)
            if self.summary_aggregate:
                nets["job_aggregate"] = (width, *self.hidden, width)
            nets["global_summary"] = (width, *self.hidden, width)
            if self.summary_aggregate:
                nets["global_aggregate"] = (width, *self.hidden, width)
        seen = self.head_inputs
        if not is_custom(self.stage_head):
            nets["stage_head"] = (seen["stage_head"], *self.head_hidden, 1)
        if self.limit != "none" and not is_custom(self.limit_head):
            is_input = self.limit != "outputs"
            outputs = 1 if is_input else self.num_limits
            nets["limit_head"] = (seen["limit_head"] + is_input, *self.head_hidden, outputs)
        return nets

    @property
    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights: ``NETWORK.LAYER.weight`` (outputs x inputs) and ``NETWORK.LAYER.bias``."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, widths in self.layers.items():
            for layer, (inputs, outputs) in enumerate(pairwise(widths)):
                shapes[f"{name}.{layer}.weight"] = (outputs, inputs)
                shapes[f"{name}.{layer}.bias"] = (outputs,)
        return shapes
