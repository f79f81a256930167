"""From observations to what the network sees: the features of stages and jobs, and who sends messages to whom.

A graph leaves finished stages out (Decima, section 5.1, embeds what is left to do): messages go from children to
parents, so that no other stage's embedding depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import LIMIT_KINDS, Jobs, Recipe, Seen, build
from decima.policy.compiled.guard import Patience
from decima.policy.config import PolicyConfig
from decima.policy.feature_config import FEATURE_NAMES
from decima.policy.graphs import Graphs, Guard
from decima.policy.own_features import Columns
from decima.schedulers.packed_srpt import PackedSrpt
from decima.schedulers.priced_srpt import PricedSrpt
from decima.schedulers.rule import NO_RULE
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.job import JobProfile

__all__ = ["Featurizer", "message_order", "published_message_order"]

#: How much occupied executors count beside time in ``thrifty_executors`` and ``fast_executors``.
THRIFT = (2.5, 0.75)
#: Work that lasts for an executor, in moving delays; policies have learned with it.
LASTING_MOVES = 8.0
#: A guard's measures, in the time that a move takes: to wait for a stage; and as the rule profiled-srpt has them, work
#: that must be left for an executor of another job, and for a free one.
WORTH_WAITING, WORTH_LEAVING, WORTH_MOVING = 8.0, 8.0, 3.0
#: Those that a rule says.
RULE_FEATURES = {"rule", "rule_executors", "price"}
#: Name -> the rule of that name.
RULES: dict[str, type[PricedSrpt] | type[PackedSrpt]] = {"priced-srpt": PricedSrpt, "packed-srpt": PackedSrpt}
#: How often the published code passes messages.
PUBLISHED_STEPS = 8

#: Of a profile: its messages, and how many executors it uses well by each of ``THRIFT``, 0 if nobody asks.
_Known = tuple[NDArray[np.int32], list[int]]


class Featurizer:
    """Turns the observations of a cluster into graphs. What it works out of profiles it keeps in a ``PerJob``.

    Args:
        config: which features.
        messages: those of a job, as :func:`message_order` gives them; by default in the order that ``config`` names.
        guard: whether to tell, too, what a guard leaves of the choices of a policy that was not trained with it.
    """

    def __init__(
        self,
        config: PolicyConfig,
        messages: Callable[[JobProfile], NDArray[np.int32]] | None = None,
        guard: bool = False,
    ) -> None:
        self.config = config
        self.guard = guard or config.guard
        published = config.message_order == "decima-sim"
        self._order = messages or (published_message_order if published else message_order)
        self._known = PerJob(self._of_profile, _joined)
        self._of_stages = Columns("stage_features", config.stage_features)
        self._of_jobs = Columns("job_features", config.job_features)
        features = (*self._of_stages.known, *self._of_jobs.known)
        self._recipe = Recipe(
            np.array([FEATURE_NAMES.index(feature.name) for feature in features], dtype=np.int64),
            np.array([feature.scale for feature in features], dtype=np.float64),
            np.array([feature.log for feature in features], dtype=np.bool_),
            len(self._of_stages.known),
            config.finished_stages,
            config.guard,
            LIMIT_KINDS[config.limit],
            config.all_limits,
            config.num_limits,
        )
        asks_rule = bool(RULE_FEATURES & {feature.name for feature in features})
        self._rule = RULES[config.rule]() if asks_rule else None
        self._asks_useful = bool((self._recipe.names >= FEATURE_NAMES.index("thrifty_executors")).any())

    def _of_profile(self, profile: JobProfile, cluster: ClusterConfig) -> _Known:
        if not self._asks_useful:
            return self._order(profile), [0] * len(THRIFT)
        return self._order(profile), [useful_executors(profile, cluster, each) for each in THRIFT]

    def _seen(self, observation: Observation) -> Seen:
        """What is read of an observation."""
        config = observation.config
        rule = NO_RULE if self._rule is None else self._rule.ask(observation)
        rule_rests = self._rule is not None and rule.stage < 0
        asked_again = config.semantics.offer_idle_executors and not observation.last_call
        worth = WORTH_LEAVING if observation.source >= 0 else WORTH_MOVING
        patience = Patience(
            WORTH_WAITING * (config.moving_delay_ms + config.warmup_delay_ms), worth * config.moving_delay_ms
        )
        return Seen(
            observation.jobs,
            observation.stages,
            observation.classes,
            observation.offered,
            observation.executor_class,
            observation.source,
            observation.num_executors,
            self.config.wait and asked_again,
            config.moving_delay_ms,
            LASTING_MOVES * config.moving_delay_ms,
            rule.stage,
            rule.limits,
            rule.away,
            rule.price,
            # What the rule does is no mistake, even where the guard's measures are a little different.
            self.guard and asked_again and not rule_rests,
            patience,
        )

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
        rows, messages, num_answers, *guard = build(
            self._seen(observation), self._known(observation), self._recipe
        )
        rows = rows._replace(
            features=self._of_stages.filled(rows.features, observation, rows.place),
            job_features=self._of_jobs.filled(rows.job_features, observation),
        )
        graph = Graphs(
            np.array([0, rows.place.size]),
            np.array([0, observation.job_id.size]),
            np.array([0, len(messages)]),
            *(*rows, messages),
        )
        return graph, num_answers, (guard[0], guard[1])


def _of_shortest(observation: Observation) -> int:
    """A stage of the job with the least work left, of those that may be chosen."""
    work = observation.work_ms(observation.remaining_tasks)
    stages = np.flatnonzero(observation.schedulable)
    return int(stages[np.argmin(work[observation.stage_job[stages]])])


def _joined(jobs: list[_Known]) -> Jobs:
    messages = [np.zeros((0, 3), dtype=np.int32), *(each for each, _ in jobs)]
    useful = np.array([each for _, each in jobs], dtype=np.float64).reshape(-1, len(THRIFT))
    return Jobs(useful, np.cumsum([len(each) for each in messages]), np.concatenate(messages))


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
