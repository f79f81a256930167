"""From an observation to its graph: features of stages and jobs, messages, and the choices that there are.

Features of the library are compiled (``compiled.features``), features of the user's own are classes; both are named in
``PolicyConfig``. ``compiled.graphs`` puts the graph together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.features import CUSTOM, FEATURES, Offer
from decima.policy.compiled.graphs import LIMIT_KINDS, Graphs, GraphSpec, Guard, Profiles, build
from decima.policy.config import Feature, PolicyConfig
from decima.policy.parts import PartError, build_part, is_own
from decima.schedulers.packed_srpt import PackedSrpt
from decima.schedulers.priced_srpt import PricedSrpt
from decima.schedulers.rule import NO_RULE
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["Featurizer", "JobFeature", "StageFeature", "message_order", "published_message_order"]

#: Cost exponents of executors in ``thrifty_executors`` and ``fast_executors``.
COST_EXPONENTS = (2.5, 0.75)
#: Work that lasts for an executor, in moving delays; policies were trained with it.
LASTING_MOVES = 8.0
#: Guard thresholds, in moving delays: how long executors may wait for a stage, and the work that makes a move
#: worthwhile for an executor of another job and for a free one, as in the rule profiled-srpt.
WORTH_WAITING, WORTH_LEAVING, WORTH_MOVING = 8.0, 8.0, 3.0
#: Name -> the rule of that name.
RULES: dict[str, type[PricedSrpt] | type[PackedSrpt]] = {"priced-srpt": PricedSrpt, "packed-srpt": PackedSrpt}
#: Steps of messages in the published code.
PUBLISHED_STEPS = 8

#: Per-profile cache: messages, and useful executors at each of ``COST_EXPONENTS`` (0 if no feature asks for them).
_Known = tuple[NDArray[np.int32], list[int]]


class StageFeature(ABC):
    """A custom feature of stages, built without arguments.

    It must follow from the observation alone, so that training, comparisons and services see the same. Keep what is
    computed from profiles in a ``simulator.cluster.observation.PerJob``.
    """

    @abstractmethod
    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        """Return finite numbers, float [S], one for each stage, before ``Feature.scale`` and ``log``."""


class JobFeature(StageFeature):
    """A custom feature of jobs; it may stand among the features of stages too."""

    @abstractmethod
    def of_jobs(self, observation: Observation) -> NDArray[np.float64]:
        """Return finite numbers, float [J], one for each live job, before ``Feature.scale`` and ``log``."""

    def of_stages(self, observation: Observation) -> NDArray[np.float64]:
        """Return the number of each stage's job, float [S]."""
        return _checked(self.of_jobs(observation), len(observation.jobs), "job")[observation.stage_job]


class _CustomColumn(NamedTuple):
    """A column that a custom feature fills in."""

    key: str
    column: int
    feature: Feature
    part: StageFeature


class Featurizer:
    """Turns the observations of a cluster into graphs. Results that follow from profiles are cached.

    Args:
        config: the policy's features and limits.
        messages: messages of a job, as :func:`message_order` has them; by default in the order that ``config`` names.
        guard: whether to return what a guard leaves of the choices of a policy that was not trained with it.

    Raises:
        PartError: a custom feature cannot be loaded.
    """

    def __init__(
        self,
        config: PolicyConfig,
        messages: Callable[[JobProfile], NDArray[np.int32]] | None = None,
        guard: bool = False,
    ) -> None:
        self.config = config
        self._guards = guard or config.guard
        published = config.message_order == "decima-sim"
        self._order = messages or (published_message_order if published else message_order)
        self._profiles = PerJob(self._of_profile, _joined)
        features = (*config.stage_features, *config.job_features)
        numbers = {name: number for number, name in enumerate(FEATURES)}
        self._custom = _custom_columns("stage_features", config) + _custom_columns("job_features", config)
        self._spec = GraphSpec(
            np.array([numbers.get(feature.name, CUSTOM) for feature in features], dtype=np.int64),
            np.array([feature.scale for feature in features], dtype=np.float64),
            np.array([feature.log for feature in features], dtype=np.bool_),
            len(config.stage_features),
            config.finished_stages,
            config.guard,
            LIMIT_KINDS[config.limit],
            config.all_limits,
            config.num_limits,
        )
        entries = [FEATURES[feature.name] for feature in features if feature.name in FEATURES]
        self._rule = RULES[config.rule]() if any(entry.asks_rule for entry in entries) else None
        self._asks_useful = any("useful" in entry.arguments for entry in entries)

    def _of_profile(self, profile: JobProfile, cluster: ClusterConfig) -> _Known:
        if not self._asks_useful:
            return self._order(profile), [0] * len(COST_EXPONENTS)
        return self._order(profile), [useful_executors(profile, cluster, each) for each in COST_EXPONENTS]

    def decision(self, observation: Observation, stage: int, limit: int) -> Decision | None:
        """Return the decision that a choice of the policy stands for; None leaves the executors idle.

        Args:
            observation: where it was made.
            stage: place in the observation's stage arrays.
            limit: of the stage's job, or of the stage where the policy's limits are those of stages.
        """
        held = observation.held(int(observation.stage_job[stage]))
        if self.config.limit == "stage":
            limit += held - int(observation.running_executors[stage])
        return Decision(stage, limit) if limit > held else None

    def choice(
        self, observation: Observation, graph: Graphs, decision: Decision | None
    ) -> tuple[int, int] | None:
        """Return the choice of the policy that stands for a decision; None if there is none. See :meth:`decision`.

        Leaving the executors idle is a choice at every stage; the one of the job with the least work left is taken.
        The largest limit stands for all above it.
        """
        stage = _of_shortest(observation) if decision is None else decision.stage
        row = int(np.searchsorted(graph.place, stage))
        low, high = int(graph.low[row]), int(graph.high[row])
        held = observation.held(int(observation.stage_job[stage]))
        limit = held if decision is None else decision.limit
        if self.config.limit == "stage":
            limit += int(observation.running_executors[stage]) - held
        return (stage, min(limit, high)) if low < limit and low < high else None

    def graph(self, observation: Observation) -> Graphs:
        """Return the graph of an observation."""
        return self.graph_and_answers(observation)[0]

    def graph_and_answers(self, observation: Observation) -> tuple[Graphs, int]:
        """Return the graph of an observation, and the number of different decisions that the policy has there."""
        graph, num_answers, _ = self._build(observation)
        return graph, num_answers

    def graph_and_guard(self, observation: Observation) -> tuple[Graphs, Guard]:
        """Return the graph of an observation, and what a guard leaves of its choices; see ``Actor.act``."""
        graph, _, guard = self._build(observation)
        return graph, guard

    def _build(self, observation: Observation) -> tuple[Graphs, int, Guard]:
        config = observation.config
        delay_ms = float(config.moving_delay_ms)  # of one type, so that the code is compiled once
        rule = NO_RULE if self._rule is None else self._rule.ask(observation)
        rule_rests = self._rule is not None and rule.stage < 0
        asked_again = config.semantics.offer_idle_executors and not observation.last_call
        worth = WORTH_LEAVING if observation.source >= 0 else WORTH_MOVING
        offer = Offer(
            observation.offered,
            observation.executor_class,
            observation.source,
            observation.num_executors,
            can_wait=self.config.wait and asked_again,
            # What the rule does is no mistake, even where the guard's thresholds are a little different.
            can_guard=self._guards and asked_again and not rule_rests,
            guard_wait_ms=WORTH_WAITING * (delay_ms + config.warmup_delay_ms),
            guard_work_ms=worth * delay_ms,
            moving_delay_ms=delay_ms,
            lasting_ms=LASTING_MOVES * delay_ms,
            rule_stage=rule.stage,
        )
        graph, num_answers, *guard = build(
            observation.jobs,
            observation.stages,
            observation.classes,
            offer,
            rule.price,
            rule.limits,
            rule.away,
            self._profiles(observation),
            self._spec,
        )
        for key, column, feature, part in self._custom:
            try:
                if key == "stage_features":
                    values = _scaled(feature, part.of_stages(observation), len(observation.stages), "stage")
                    graph.features[:, column] = values[graph.place]
                else:
                    assert isinstance(part, JobFeature)
                    values = _scaled(feature, part.of_jobs(observation), len(observation.jobs), "job")
                    graph.job_features[:, column] = values
            except PartError as error:
                raise PartError(f"{key}: {feature.name!r}: {error}") from None
        return graph, num_answers, (guard[0], guard[1])


def _custom_columns(key: str, config: PolicyConfig) -> list[_CustomColumn]:
    """Load the custom features that a key of the configuration names."""
    base = JobFeature if key == "job_features" else StageFeature
    found = []
    for column, feature in enumerate(getattr(config, key)):
        if is_own(feature.name):
            try:
                found.append(_CustomColumn(key, column, feature, build_part(feature.name, base)))
            except PartError as error:
                raise PartError(f"{key}: {error}") from None
    return found


def _scaled(feature: Feature, numbers: object, count: int, of: str) -> NDArray[np.float64]:
    values = _checked(numbers, count, of) / feature.scale
    if feature.log and values.size and values.min() <= -1:
        raise PartError(
            f"{values.min() * feature.scale:g} has no logarithm: expected more than {-feature.scale:g}"
        )
    return np.log1p(values) if feature.log else values


def _checked(values: object, count: int, of: str) -> NDArray[np.float64]:
    array = np.asarray(values)
    expected = f"expected {count} finite numbers, one for each {of}"
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise PartError(f"{expected}, got {array.dtype} of shape {list(array.shape)}")
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise PartError(f"{expected}, got {numbers[~np.isfinite(numbers)][0]}")
    return numbers


def _of_shortest(observation: Observation) -> int:
    """A stage of the job with the least work left, of those that may be chosen."""
    work = observation.work_ms(observation.remaining_tasks)
    stages = np.flatnonzero(observation.schedulable)
    return int(stages[np.argmin(work[observation.stage_job[stages]])])


def _joined(jobs: list[_Known]) -> Profiles:
    messages = [np.zeros((0, 3), dtype=np.int32), *(each for each, _ in jobs)]
    useful = np.array([each for _, each in jobs], dtype=np.float64).reshape(-1, len(COST_EXPONENTS))
    return Profiles(useful, np.cumsum([len(each) for each in messages]), np.concatenate(messages))


@lru_cache(maxsize=10_000)
def message_order(profile: JobProfile) -> NDArray[np.int32]:
    """Every stage hears from all its children at once, in the step of its height above the leaves.

    A stage at the end of a long and a short path waits for the long one.

    Returns:
        int32 [number of edges, 3]: step, receiver (parent), sender (child).
    """
    height = np.zeros(profile.num_stages, dtype=np.int64)
    for stage in _children_first(profile):
        height[stage] = max((height[child] + 1 for child in profile.children[stage]), default=0)
    messages = [
        (height[stage] - 1, stage, child)
        for stage in range(profile.num_stages)
        for child in profile.children[stage]
    ]
    return _sorted(messages)


@lru_cache(maxsize=10_000)
def published_message_order(profile: JobProfile) -> NDArray[np.int32]:
    """The order of the published code, which passes messages 8 times at most.

    In a DAG of paths of at most 8 edges it is that of :func:`message_order`. In a deeper one the first senders are
    the stages that 8 moves along child edges lead to, where leaves stay put. In a step, a stage whose children
    are all among the senders hears from them if its level (1 + the highest of theirs) rises. The next senders are
    those, and of the old ones those with a parent that has no level yet. A level may count those that rose in the
    same step: here children go first; the published code takes stages as they happen to lie in memory, so that its
    order in deep DAGs is not reproducible.

    Returns:
        As :func:`message_order`.
    """
    children, parents = profile.children, profile.parents
    upwards = _children_first(profile)
    senders = set(upwards)
    for _ in range(PUBLISHED_STEPS):
        senders = {child for stage in senders for child in (children[stage] or (stage,))}
    level = dict.fromkeys(senders, 0)
    messages = []
    for step in range(PUBLISHED_STEPS):
        risen = set()
        for stage in upwards:
            if children[stage] and all(child in senders for child in children[stage]):
                new = 1 + max(level[child] for child in children[stage])
                if new > level.get(stage, 0):
                    level[stage] = new
                    risen.add(stage)
        messages += [(step, stage, child) for stage in risen for child in children[stage]]
        waiting = {sender for sender in senders if any(parent not in level for parent in parents[sender])}
        senders = risen | waiting
    return _sorted(messages)


def _children_first(profile: JobProfile) -> list[int]:
    """The stages, every one behind its children."""
    return list(reversed(list(nx.topological_sort(profile.graph()))))


def _sorted(messages: list[tuple[int, int, int]]) -> NDArray[np.int32]:
    return np.array(sorted(messages), dtype=np.int32).reshape(-1, 3)
