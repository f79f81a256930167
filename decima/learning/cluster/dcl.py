"""Deep controlled learning (DCL): simulation finds better decisions at the policy's states; the policy clones them.

An iteration runs episodes with sampled choices of the policy. At some states, the policy's greedy choice is compared
with candidates: other likely choices of the policy, and held changes, such as another job first for a minute. Each
candidate is simulated on forks of the cluster with the same sampled futures (common random numbers). Sequential
halving selects one candidate. It becomes the label of the state if it saves more than two standard errors on further
futures; otherwise the label is the policy's greedy choice. The policy then learns all labels by cross-entropy
(``clone_epochs``).

Forks draw new task noise and, where estimates have errors, new mean task times from the posterior. So labels do not
depend on true task times that a scheduler cannot know. Forks have the true arrivals and true numbers of tasks of the
training sequence; with respect to these, labels are right in hindsight.

Source: Temizöz et al., "Deep controlled learning for inventory control", EJOR 2025. Worker processes import this
module: it needs no PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima.learning.cluster.rollout import Episode, Shared, Trajectories, gather, start_episodes
from decima.learning.cluster.values import UNIT_MS, load_of
from decima.policy.compiled.graphs import Graphs
from decima.policy.files import make_actor
from decima.policy.scheduler import NeuralScheduler
from decima.registry import make_scheduler
from decima.settings import FUTURES
from simulator.cluster.observation import Decision
from workloads.arrivals import RandomStream, random_stream

if TYPE_CHECKING:
    from decima.learning.cluster.rollout import EpisodePlan
    from decima.learning.cluster.sections import DCLSection
    from decima.policy.policy import Policy
    from decima.policy.scheduler import Actor, Featurizer
    from decima.schedulers.base import Decide
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.observation import Observation

__all__ = ["POLICY", "Candidate", "Counts", "Labeller", "label_plans", "select"]

#: Value of ``dcl.rollout`` for rollouts by the policy itself.
POLICY = "policy"
#: Number of standard errors that the gain of a label must exceed.
ERRORS = 2.0
#: Number of choices sampled from the policy to find the most likely choices.
DRAWS = 64
#: Factors of a job's limit in held changes.
FACTORS = (0.5, 2.0)
#: Index in ``load_of`` of the total time in the system under shortest job first.
WAITING = 3


class Candidate(NamedTuple):
    """A candidate decision: a choice of the policy, and optionally a change of later decisions, held for a while.

    Attributes:
        stage: chosen stage, index in the observation's stage arrays.
        limit: chosen parallelism limit, see ``Featurizer.decision``.
        job: id of the job that the change favours; -1 without a change.
        factor: factor of the job's limits; 0 if the job is first and gets all offered executors.
    """

    stage: int
    limit: int
    job: int = -1
    factor: float = 0.0


@dataclass
class Counts:
    """Counts of labels and simulations.

    Attributes:
        labels: number of labels that differ from the policy's greedy choice.
        rollouts: number of simulated futures.
        tasks: number of simulated tasks.
        gain_ms: time in the system, over all jobs, that the labels save, ms.
    """

    labels: int = 0
    rollouts: int = 0
    tasks: int = 0
    gain_ms: float = 0.0

    def add(self, other: Counts) -> None:
        """Add other counts to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def label_plans(
    weights: dict[str, NDArray[np.float32]], dcl: DCLSection, shared: Shared, plans: Sequence[EpisodePlan]
) -> tuple[Trajectories, Counts]:
    """Run planned episodes with a policy; return samples, with labels instead of choices, and counts."""
    actor, counts = make_actor(shared.policy, weights), Counts()
    labeller = Labeller(actor, dcl, shared.seed, counts)
    episodes = start_episodes(shared.policy, shared.conditions, plans)
    labels: list[Candidate] = []
    for plan, episode in zip(plans, episodes, strict=True):
        assert episode.random is not None
        while (graph := episode.advance()) is not None:
            if episode.takes_sample:
                key = plan.iteration, plan.episode, len(episode.samples)
                futures = random_stream(plan.run_seed, RandomStream.TRAINING, FUTURES, *key)
                labels.append(labeller.label(episode, graph, futures))
            choice = actor.act(graph, episode.random.random((1, 2)))
            episode.choose(
                graph, int(choice.stage[0]), int(choice.limit[0]), float(choice.log_probability[0])
            )
    samples = gather(shared.policy, episodes)
    stage, limit = (np.array([label[column] for label in labels], np.int32) for column in (0, 1))
    return replace(samples, stage=stage, limit=limit), counts


class Labeller:
    """Finds better decisions at states of an episode by simulation.

    Args:
        dcl: settings: number of futures, horizon, candidates, rollout scheduler.
        seed: random seed of the rollout scheduler.
    """

    def __init__(self, actor: Actor | Policy, dcl: DCLSection, seed: int, counts: Counts) -> None:
        self._actor, self._dcl, self._counts = actor, dcl, counts
        self._scheduler = (
            NeuralScheduler(actor, guard=False)
            if dcl.rollout == POLICY
            else make_scheduler(dcl.rollout, seed)
        )

    def label(self, episode: Episode, graph: Graphs, random: np.random.Generator) -> Candidate:
        """Return the label of a state: the best candidate, or the policy's greedy choice."""
        own, others = self._candidates(episode, graph, random)
        seeds = random.integers(2**31, size=2 * self._dcl.futures).tolist()

        def cost_ms(candidate: Candidate, future: int) -> float:
            return self.cost_ms(episode, candidate, seeds[future])

        best, gain_ms = select(own, others, self._dcl.futures, cost_ms)
        if best is not own:
            self._counts.labels += 1
            self._counts.gain_ms += gain_ms
        return best

    def _candidates(
        self, episode: Episode, graph: Graphs, random: np.random.Generator
    ) -> tuple[Candidate, list[Candidate]]:
        """Return the policy's greedy choice, and candidates that may be better."""
        observation, featurizer = episode.observation, episode.featurizer
        assert observation is not None
        greedy = self._actor.act(graph)
        own = Candidate(int(greedy.stage[0]), int(greedy.limit[0]))
        drawn = self._actor.act(Graphs.concatenate([graph] * DRAWS), random.random((DRAWS, 2)))
        order = np.argsort(-drawn.log_probability, kind="stable")
        likely = dict.fromkeys(Candidate(int(drawn.stage[row]), int(drawn.limit[row])) for row in order)
        likely.pop(own, None)
        others = list(likely)[: self._dcl.decisions]

        own_job = int(observation.stage_job[own.stage])
        work, next_stage = (observation.work_ms(observation.remaining_tasks), observation.jobs["next_stage"])
        jobs = [job for job in np.argsort(work, kind="stable").tolist() if job != own_job]
        changes = [(job, 0.0) for job in jobs if next_stage[job] >= 0][: self._dcl.jobs]
        changes += [(own_job, factor) for factor in FACTORS]
        proposed = featurizer.decision(observation, own.stage, own.limit)
        for job, factor in changes if self._dcl.hold > 0 else ():
            number = int(observation.job_id[job])
            decision = changed(observation, proposed, number, factor)
            choice = _choice(featurizer, observation, graph, decision)
            if choice is not None and choice != own[:2]:
                others.append(Candidate(*choice, number, factor))
        return own, others

    def cost_ms(self, episode: Episode, candidate: Candidate, future: int) -> float:
        """Return the time that all jobs spend in the system from now on under a candidate, in one future, ms.

        Beyond the horizon, time is estimated as shortest job first with perfect parallelism.
        """
        observation, sequence = episode.observation, episode.sequence
        assert observation is not None
        scheduler = self._scheduler
        scheduler.reset(episode.config)
        fork = episode.cluster.fork(futures=future, log=False)
        fork.keeps_executors = candidate.job < 0 and getattr(scheduler, "keeps_executors", False)
        begin_ms = observation.time_ms
        hold_ms = begin_ms + 1000 * self._dcl.hold if candidate.job >= 0 else begin_ms
        horizon = math.inf if self._dcl.horizon is None else 1000 * self._dcl.horizon
        fork.decide(episode.featurizer.decision(observation, candidate.stage, candidate.limit))
        _run(fork, scheduler.decide, candidate, hold_ms, begin_ms + horizon)

        end_ms = float(fork.clock.now)  # first decision after the horizon; later time is estimated
        arrival_ms = sequence.arrival_ms
        completion_ms = np.nan_to_num(fork.completion_ms, nan=np.inf)
        times_ms = np.minimum(completion_ms, end_ms) - np.maximum(arrival_ms, begin_ms)
        cost_ms = float(np.maximum(times_ms, 0.0).sum())
        left = 0
        if not fork.done:
            seen = fork.snapshot()
            left = int(seen.remaining_tasks.sum())
            cost_ms += UNIT_MS * float(load_of(seen)[WAITING])
        arrived = np.flatnonzero((arrival_ms > begin_ms) & (arrival_ms <= end_ms))
        new = sum(sequence.profiles[job].num_tasks for job in arrived.tolist())
        self._counts.rollouts += 1
        self._counts.tasks += max(int(observation.remaining_tasks.sum()) + new - left, 0)
        return cost_ms


def _run(fork: BaseCluster, decide: Decide, held: Candidate, hold_ms: float, end_ms: float) -> None:
    """Run a fork until ``end_ms``, with a candidate's change until ``hold_ms``."""
    while not fork.done and fork.clock.now < end_ms:
        seen = fork.observe()
        decision = decide(seen) if seen.num_schedulable else None
        if seen.time_ms < hold_ms:
            decision = changed(seen, decision, held.job, held.factor)
        fork.decide(decision)


def changed(
    observation: Observation, decision: Decision | None, job_id: int, factor: float
) -> Decision | None:
    """Apply a held change (see ``Candidate``) to a decision; return the decision if the change does not apply."""
    found = np.flatnonzero(observation.job_id == job_id)
    if not found.size:
        return decision
    job = int(found[0])
    held = observation.held(job)
    if factor:
        if decision is None or observation.stage_job[decision.stage] != job:
            return decision
        limit = min(round(decision.limit * factor), held + observation.offered)
        return Decision(decision.stage, max(limit, held + 1))
    stage = int(observation.jobs["next_stage"][job])
    if stage < 0 or not observation.schedulable[stage]:
        return decision
    return Decision(stage, held + observation.offered)


def _choice(
    featurizer: Featurizer, observation: Observation, graph: Graphs, decision: Decision | None
) -> tuple[int, int] | None:
    """Return the policy's choice that corresponds to a decision; None if it has no such choice."""
    if decision is None or decision.stage not in graph.place:
        return None
    return featurizer.choice(observation, graph, decision)


def select(
    own: Candidate, others: Sequence[Candidate], futures: int, cost_ms: Callable[[Candidate, int], float]
) -> tuple[Candidate, float]:
    """Select a candidate by sequential halving, and test its gain on further futures.

    In each round the better half of the candidates stays, and the number of futures doubles. Gains are paired: all
    candidates have the same futures. Source: Karnin et al., "Almost optimal exploration in multi-armed bandits", 2013.

    Args:
        own: the policy's greedy choice.
        futures: number of futures in the last round (indices from 0), and in the test (the indices after these).
        cost_ms: maps a candidate and the index of a future to a cost, ms.

    Returns:
        The selected candidate and its mean gain in the test, ms; ``own`` and 0 if the gain does not exceed two
        standard errors.
    """
    left, costs = list(others), {each: list[float]() for each in (own, *others)}
    rounds = max(1, math.ceil(math.log2(max(len(left), 1))))
    for number in range(rounds):
        many = max(1, futures >> (rounds - 1 - number))
        for each in (own, *left):
            costs[each] += [cost_ms(each, future) for future in range(len(costs[each]), many)]
        left.sort(key=lambda each: sum(costs[each]))
        left = left[: (len(left) + 1) // 2]
    if not left or sum(costs[left[0]]) >= sum(costs[own]):
        return own, 0.0
    test = range(futures, 2 * futures)
    gains = np.array([cost_ms(own, future) - cost_ms(left[0], future) for future in test])
    mean, error = float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(futures)
    return (left[0], mean) if mean > ERRORS * error else (own, 0.0)
