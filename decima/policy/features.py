"""What the network sees: graphs of the live jobs' stages, as flat arrays over any number of observations.

What depends on a job alone, who sends messages to whom and when, is computed once per profile. A graph leaves
finished stages out (Decima, section 5.1, embeds what is left to do): messages go from children to parents, so that
no other stage's embedding depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from decima.policy.compiled.graphs import LIMIT_KINDS, Jobs, Recipe, Seen, build, select
from decima.policy.config import FEATURE_NAMES, PolicyConfig
from decima.schedulers.srpt import WORTH_LEAVING, best_parallelism
from simulator import ClusterConfig, Decision, Observation
from workloads import JobProfile, JobSequence

__all__ = ["Featurizer", "Graphs", "message_order", "published_message_order"]

#: How much occupied executors count beside time in ``thrifty_executors`` and ``fast_executors``.
THRIFT = (2.5, 0.75)
#: How often the published code passes messages.
PUBLISHED_STEPS = 8


class Graphs(NamedTuple):
    """B observations with S stages, J live jobs and M messages in all, one after the other.

    Numbers of stages and jobs count from 0 in each observation.

    Attributes:
        first_stage: int64 [B + 1]; the stages of observation b are ``first_stage[b]:first_stage[b + 1]``.
        first_job: int64 [B + 1].
        first_message: int64 [B + 1].
        features: float32 [S, F], normalised.
        job_features: float32 [J, F_job], normalised.
        stage_job: int32 [S]; the stage's job.
        unfinished: bool [S].
        place: int32 [S]; where the stage stands in the observation's arrays.
        low: int32 [S]; limits begin above it: the executors that its job (or the stage, where limits are those of
            stages) holds, or one less where waiting is a choice.
        high: int32 [S]; the largest limit; above ``low`` if and only if the stage may be chosen.
        messages: int32 [M, 3]; step, receiver, sender; in each observation ascending by step, those of a
            receiver together.
    """

    first_stage: NDArray[np.int64]
    first_job: NDArray[np.int64]
    first_message: NDArray[np.int64]
    features: NDArray[np.float32]
    job_features: NDArray[np.float32]
    stage_job: NDArray[np.int32]
    unfinished: NDArray[np.bool_]
    place: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    messages: NDArray[np.int32]

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.first_stage.size - 1

    @staticmethod
    def concatenate(parts: Sequence[Graphs]) -> Graphs:
        """All observations of ``parts``, which are not empty, in order."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, NDArray[Any]] = {}
        lengths = [part.num_graphs for part in parts]
        for name in _POINTERS:
            pieces = [getattr(part, name) for part in parts]
            starts = np.cumsum([0, *(piece[-1] for piece in pieces[:-1])])
            arrays[name] = np.concatenate([pieces[0][:1], *(piece[1:] for piece in pieces)])
            arrays[name][1:] += np.repeat(starts, lengths)
        for name in _ROWS:
            arrays[name] = np.concatenate([getattr(part, name) for part in parts])
        return Graphs(**arrays)

    def select(self, chosen: NDArray[np.int64]) -> Graphs:
        """The observations of these numbers, in this order."""
        arrays: dict[str, NDArray[Any]] = {}
        for pointer, names in _POINTERS.items():
            first = getattr(self, pointer)
            new = np.zeros(chosen.size + 1, dtype=np.int64)
            np.cumsum(first[chosen + 1] - first[chosen], out=new[1:])
            arrays[pointer] = new
            for name in names:
                rows = getattr(self, name)
                out = np.empty((int(new[-1]), *rows.shape[1:]), dtype=rows.dtype)
                select(chosen, first, new, rows, out)
                arrays[name] = out
        return Graphs(**arrays)


_POINTERS = {
    "first_stage": ("features", "stage_job", "unfinished", "place", "low", "high"),
    "first_job": ("job_features",),
    "first_message": ("messages",),
}
_ROWS = tuple(name for name in Graphs._fields if name not in _POINTERS)


class Featurizer:
    """Turns the observations of one job sequence into graphs.

    Args:
        config: which features.
        sequence: the jobs.
        messages: of each job, as :func:`message_order` has them; by default in the order that ``config`` names.
    """

    def __init__(
        self, config: PolicyConfig, sequence: JobSequence, messages: Sequence[NDArray[np.int32]] | None = None
    ) -> None:
        self.config = config
        self.sequence = sequence
        if messages is None:
            order = published_message_order if config.message_order == "decima-sim" else message_order
            messages = [order(profile) for profile in sequence.profiles]
        self._first_message = np.zeros(len(messages) + 1, dtype=np.int64)
        np.cumsum([len(each) for each in messages], out=self._first_message[1:])
        self._messages = np.concatenate([*messages, np.zeros((0, 3), dtype=np.int32)])
        features = (*config.stage_features, *config.job_features)
        self._recipe = Recipe(
            np.array([FEATURE_NAMES.index(feature.name) for feature in features]),
            np.array([feature.scale for feature in features]),
            np.array([feature.log for feature in features]),
            len(config.stage_features),
            config.finished_stages,
            LIMIT_KINDS[config.limit],
            config.all_limits,
            config.num_limits,
        )
        self._useful_executors: NDArray[np.float64] | None = None

    def _useful(self, cluster: ClusterConfig) -> NDArray[np.float64]:
        """Executors that each job of the sequence uses well, by ``THRIFT``, if the policy wants to know."""
        if self._useful_executors is None:
            asked = self._recipe.names >= FEATURE_NAMES.index("thrifty_executors")
            jobs = self.sequence.profiles if asked.any() else ()
            alone = replace(cluster, max_time_ms=math.inf)
            self._useful_executors = np.zeros((len(self.sequence.profiles), len(THRIFT)))
            for number, profile in enumerate(jobs):
                self._useful_executors[number] = [best_parallelism(profile, alone, each) for each in THRIFT]
        return self._useful_executors

    def _can_wait(self, observation: Observation) -> bool:
        asked_again = observation.config.semantics.offer_idle_executors and not observation.last_call
        return self.config.wait and asked_again

    def decision(self, observation: Observation, place: int, count: int) -> Decision | None:
        """What a choice does, as ``policy.Choices`` has it: a stage's place, and its limit less ``Graphs.low``."""
        more = count - self._can_wait(observation)
        held = observation.held(int(observation.stage_job[place]))
        return Decision(place, held + more) if more else None

    def choice(self, observation: Observation, decision: Decision | None) -> tuple[int, int] | None:
        """The choice that does what a decision does: a stage's place, its limit less ``Graphs.low``; if there is one.

        To wait is a choice at every stage; it is taken to be one of the job with the least work left.
        """
        can_wait = self._can_wait(observation)
        if decision is not None:
            held = observation.held(int(observation.stage_job[decision.stage]))
            return decision.stage, decision.limit - held + can_wait
        if not can_wait or not observation.num_schedulable:
            return None
        work = observation.work_ms(observation.remaining_tasks)
        stages = np.flatnonzero(observation.schedulable)
        return int(stages[np.argmin(work[observation.stage_job[stages]])]), 1

    def graph(self, observation: Observation) -> Graphs:
        """The one graph of an observation."""
        return self.graph_and_answers(observation)[0]

    def graph_and_answers(self, observation: Observation) -> tuple[Graphs, int]:
        """The one graph of an observation, and how many different decisions the policy has there."""
        seen = Seen(
            observation.jobs,
            observation.stages,
            observation.sequence_task_ms,
            observation.offered,
            observation.source,
            observation.num_executors,
            self._can_wait(observation),
            WORTH_LEAVING * observation.config.moving_delay_ms,
        )
        known = Jobs(self._useful(observation.config), self._first_message, self._messages)
        rows, messages, num_answers = build(seen, known, self._recipe)
        graph = Graphs(
            np.array([0, rows.place.size]),
            np.array([0, observation.job_id.size]),
            np.array([0, len(messages)]),
            *rows,
            messages,
        )
        return graph, num_answers


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
