"""Episodes for training: many simulators in lock-step, one pass through the network for all of them per step.

Decisions with one legal answer never reach the network and are no samples, nor are those that are not learned from;
their rewards belong to the sample before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decima.learning.cluster.critic import NUM_SUMS, load_of
from decima.policy.errors import NotFiniteError
from decima.policy.features import Featurizer
from decima.policy.graphs import Graphs
from simulator.cluster.base import BaseCluster
from simulator.cluster.episode import make_cluster
from simulator.cluster.observation import Decision, Observation

if TYPE_CHECKING:
    from torch import Tensor

    from decima.learning.cluster.curriculum import EpisodeSpec
    from decima.policy.actor import Actor
    from decima.policy.config import PolicyConfig
    from decima.policy.policy import Policy
    from simulator.cluster.episode import DecidesStages

__all__ = ["Trajectories", "roll_out", "roll_out_scheduler"]


@dataclass(frozen=True, eq=False)
class Trajectories:
    """E episodes with n samples in all, one episode after the other.

    Attributes:
        graphs: what was seen, n observations.
        stage: int32 [n]; the stage chosen, as ``Choices`` has it.
        limit: int32 [n]; the limit chosen.
        log_probability: float32 [n]; with which it was chosen.
        time_ms: float64 [n].
        reward: float64 [n]; from this sample to the next one of the episode, or to its end.
        load: float64 [n, 7]; see ``critic.load_of``.
        arrived: int64 [n]; jobs that had arrived by then.
        first: int64 [E + 1]; the samples of episode e are ``first[e]:first[e + 1]``.
        end_ms: float64 [E]; when the episode was over.
        end_load: float64 [E, 7]; the load that was left then, all 0 if none was.
        num_executors: int64 [E].
        num_decisions: int64 [E]; with those that had only one answer.
        mean_jct_ms: float64 [E]; over the jobs that were completed.
        num_completed: int64 [E].
    """

    graphs: Graphs
    stage: NDArray[np.int32]
    limit: NDArray[np.int32]
    log_probability: NDArray[np.float32]
    time_ms: NDArray[np.float64]
    reward: NDArray[np.float64]
    load: NDArray[np.float64]
    arrived: NDArray[np.int64]
    first: NDArray[np.int64]
    end_ms: NDArray[np.float64]
    end_load: NDArray[np.float64]
    num_executors: NDArray[np.int64]
    num_decisions: NDArray[np.int64]
    mean_jct_ms: NDArray[np.float64]
    num_completed: NDArray[np.int64]

    def __len__(self) -> int:
        return self.stage.size

    @property
    def num_episodes(self) -> int:
        """E."""
        return self.end_ms.size

    def samples(self, episode: int) -> slice:
        """Where an episode's samples are."""
        return slice(int(self.first[episode]), int(self.first[episode + 1]))

    def evaluate(self, policy: Policy, part: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of a policy for some of the samples, float [len(part)]; with gradients."""
        seen = policy(self.graphs.select(part), self.stage[part], self.limit[part])
        return seen.log_probability, seen.entropy

    @staticmethod
    def concatenate(parts: Sequence[Trajectories]) -> Trajectories:
        """All episodes of ``parts``, in order."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.diff(part.first) for part in parts])
        names = [field.name for field in fields(Trajectories) if field.name not in ("graphs", "first")]
        return Trajectories(
            graphs=Graphs.concatenate([part.graphs for part in parts]),
            first=np.concatenate([[0], np.cumsum(lengths)]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        )


class _Episode:
    """A simulator, and the samples taken from it so far."""

    def __init__(self, policy: PolicyConfig, spec: EpisodeSpec) -> None:
        self.spec = spec
        self.cluster = make_cluster(replace(spec.cluster, max_time_ms=spec.end_ms), spec.sequence)
        self.featurizer = Featurizer(policy)
        self.observation: Observation | None = None
        self.graphs: list[Graphs] = []
        self.stage: list[int] = []
        self.limit: list[int] = []
        self.log_probability: list[float] = []
        self.time_ms: list[float] = []
        self.reward: list[float] = []
        self.load: list[NDArray[np.float64]] = []
        self.num_decisions = 0
        self._num_choices = 0

    def advance(self) -> Graphs | None:
        """Go on to the next decision with a choice; what is seen there, or None at the end of the episode."""
        while not self.cluster.done:
            observation = self.cluster.observe()
            graph, num_answers = self.featurizer.graph_and_answers(observation)
            if num_answers > 1:
                self.observation = observation
                return graph
            self.decide(self._only_decision(observation, graph) if num_answers else None)
        return None

    def choose(self, graph: Graphs, stage: int, limit: int, log_probability: float) -> None:
        """Carry out this choice; if its turn has come, it is a sample."""
        assert self.observation is not None
        share, number = self.spec.share, self._num_choices
        self._num_choices += 1
        if math.ceil((number + 1) * share) > math.ceil(number * share):
            self.graphs.append(graph)
            self.stage.append(stage)
            self.limit.append(limit)
            self.log_probability.append(log_probability)
            self.time_ms.append(self.observation.time_ms)
            self.reward.append(0.0)
            self.load.append(load_of(self.observation))
        self.decide(self.featurizer.decision(self.observation, stage, limit))

    def _only_decision(self, observation: Observation, graph: Graphs) -> Decision | None:
        row = int(np.argmax(graph.high > graph.low))
        return self.featurizer.decision(observation, int(graph.place[row]), int(graph.high[row]))

    def decide(self, decision: Decision | None) -> None:
        """Carry out a decision; its reward belongs to the sample before."""
        reward = self.cluster.decide(decision)
        self.num_decisions += 1
        if self.reward:
            self.reward[-1] += reward


def roll_out(policy: Actor | Policy, specs: Sequence[EpisodeSpec]) -> Trajectories:
    """Let a policy run episodes, in lock-step. What happens in one does not depend on which others there are.

    Args:
        policy: decides.
        specs: the episodes; either all of them have random numbers, or none.

    Raises:
        NotFiniteError: the policy gives probabilities that are no numbers.
    """
    episodes = [_Episode(policy.config, spec) for spec in specs]
    waiting = list(episodes)
    while True:
        seen = [(episode, graph) for episode in waiting if (graph := episode.advance()) is not None]
        if not seen:
            return _gather(policy.config, episodes)
        waiting = [episode for episode, _ in seen]
        uniforms = np.zeros((len(seen), 2))
        for row, episode in enumerate(waiting):
            if episode.spec.random is not None:
                uniforms[row] = episode.spec.random.random(2)
        greedy = waiting[0].spec.random is None
        choices = policy.act(Graphs.concatenate([graph for _, graph in seen]), None if greedy else uniforms)
        if not np.isfinite(choices.log_probability).all():
            raise NotFiniteError("the policy gives probabilities that are no numbers")
        for (episode, graph), stage, limit, log_probability in zip(
            seen,
            choices.stage.tolist(),
            choices.limit.tolist(),
            choices.log_probability.tolist(),
            strict=True,
        ):
            episode.choose(graph, stage, limit, log_probability)


def roll_out_scheduler(
    scheduler: DecidesStages, policy: PolicyConfig, specs: Sequence[EpisodeSpec]
) -> Trajectories:
    """Let any scheduler run episodes, and record what it chose as choices of a policy.

    Where it leaves executors idle and the policy cannot, or asks for more than the policy's limits allow, there is no
    such choice: the first is no sample, the second is recorded as the largest limit.
    """
    episodes = [_Episode(policy, spec) for spec in specs]
    for episode in episodes:
        scheduler.reset(episode.spec.cluster)
        while not episode.cluster.done:
            observation = episode.observation = episode.cluster.observe()
            decision = scheduler.decide(observation) if observation.num_schedulable else None
            graph, num_answers = episode.featurizer.graph_and_answers(observation)
            choice = episode.featurizer.choice(observation, graph, decision) if num_answers > 1 else None
            if choice is None:
                episode.decide(decision)
            else:
                episode.choose(graph, *choice, 0.0)
    return _gather(policy, episodes)


def _gather(config: PolicyConfig, episodes: Sequence[_Episode]) -> Trajectories:
    graphs = [graph for episode in episodes for graph in episode.graphs]
    jct = [episode.cluster.record().jct_ms for episode in episodes]
    completed = [each[np.isfinite(each)] for each in jct]

    def joined(name: str, dtype: type) -> NDArray[Any]:
        return np.array([value for episode in episodes for value in getattr(episode, name)], dtype=dtype)

    return Trajectories(
        graphs=Graphs.concatenate(graphs or [_no_graphs(config)]),
        stage=joined("stage", np.int32),
        limit=joined("limit", np.int32),
        log_probability=joined("log_probability", np.float32),
        time_ms=joined("time_ms", np.float64),
        reward=joined("reward", np.float64),
        load=joined("load", np.float64).reshape(-1, NUM_SUMS),
        arrived=np.concatenate(
            [np.searchsorted(each.spec.sequence.arrival_ms, each.time_ms, side="right") for each in episodes]
        ),
        first=np.cumsum([0, *(len(episode.stage) for episode in episodes)]),
        end_ms=np.array([float(episode.cluster.clock.now) for episode in episodes]),
        end_load=np.array([_end_load(episode.cluster) for episode in episodes]),
        num_executors=np.array([episode.spec.cluster.num_executors for episode in episodes]),
        num_decisions=np.array([episode.num_decisions for episode in episodes]),
        mean_jct_ms=np.array([each.mean() if each.size else math.nan for each in completed]),
        num_completed=np.array([each.size for each in completed]),
    )


def _no_graphs(config: PolicyConfig) -> Graphs:
    """What is seen where there is nothing to choose."""
    pointer, numbers = np.zeros(1, np.int64), np.zeros(0, np.int32)
    return Graphs(
        first_stage=pointer,
        first_job=pointer,
        first_message=pointer,
        features=np.zeros((0, len(config.stage_features)), np.float32),
        job_features=np.zeros((0, len(config.job_features)), np.float32),
        stage_job=numbers,
        unfinished=np.zeros(0, np.bool_),
        place=numbers,
        low=numbers,
        high=numbers,
        messages=np.zeros((0, 3), np.int32),
    )


def _end_load(cluster: BaseCluster) -> NDArray[np.float64]:
    """What is left of the load where an episode is truncated; all 0 if it ran to its end."""
    is_complete = cluster.clock.now < cluster.config.max_time_ms
    return np.zeros(NUM_SUMS) if is_complete else load_of(cluster.snapshot())
