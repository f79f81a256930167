"""Rollouts: the episodes of an iteration, run by the policy, and their samples.

The run's seed and the iteration determine the episodes. With a curriculum (Decima, section 5.3, challenge 1),
episodes are truncated at a random time, whose mean grows during training. The time is memoryless (exponentially
distributed), so that the policy cannot predict the end of an episode.

A sample is a decision with more than one legal action. Other decisions do not reach the network; their rewards are
added to the previous sample. Worker processes import this module: it needs no PyTorch, whose import takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from decima import policy as policies  # its names are imported on first use
from decima.policy import batches
from decima.policy.compiled.graphs import Graphs
from decima.policy.scheduler import Actor, Featurizer, NetworkChoice, NeuralScheduler
from decima.registry import make_scheduler
from decima.settings import ENDS, RUN_SEEDS, WARM_UPS
from simulator.cluster.episode import make_cluster
from simulator.compiled import compiled
from workloads.arrivals import RandomStream, random_stream
from workloads.errors import NotFiniteError

if TYPE_CHECKING:
    from torch import Tensor

    from decima.evaluation.conditions import Conditions
    from decima.learning.cluster.config import TrainingConditions, TrainingConfig
    from decima.policy.config import PolicyConfig
    from decima.policy.few_jobs import ManyJobs
    from decima.policy.policy import Policy
    from simulator.cluster.base import BaseCluster
    from simulator.cluster.config import ClusterConfig
    from simulator.cluster.observation import Decision, Observation
    from workloads.arrivals import JobSequence

__all__ = [
    "LIVE_JOBS", "NUM_LOADS", "Episode", "EpisodePlan", "Shared", "Trajectories", "gather", "load_of",
    "make_actor", "plan_iteration", "roll_out", "roll_out_plans", "start_episodes",
]  # fmt: skip

#: Number of sums that ``load_of`` returns, and the position of the number of live jobs among them.
NUM_LOADS, LIVE_JOBS = 7, 1
#: Unit of work in ``load_of``, ms.
WORK_UNIT_MS = 100_000.0
#: Maximum number of stages in all samples of an episode; limits memory to about 100 MB.
MOST_SAMPLED = 1_000_000
#: Maximum number of stages that are evaluated with gradients at a time; limits memory to about a gigabyte.
MOST_ROWS = 500_000
#: Scheduler that decides during the warm-up.
WARM_UP = "srpt"


# Plans of episodes.


@dataclass(frozen=True)
class EpisodePlan:
    """Plan of an episode, which a worker process runs.

    Attributes:
        sequence_seed: seed of the job sequence and its task noise.
        end_ms: truncation time, ms.
        run_seed: seed of the run; choices are drawn from the random stream (run_seed, iteration, episode).
        episode: index of the episode in the iteration.
        share: fraction of the choices that become samples, evenly spaced.
        start_ms: end of the warm-up, ms.
        batch_jobs: number of jobs, which all arrive at once; None for the arrivals of the workload.
        half_size: whether the cluster has half of its executors, and the sequence half of its jobs.
    """

    sequence_seed: int
    end_ms: float
    run_seed: int
    iteration: int
    episode: int
    share: float = 1.0
    start_ms: float = 0.0
    batch_jobs: int | None = None
    half_size: bool = False


def plan_iteration(config: TrainingConfig, iteration: int) -> list[list[EpisodePlan]]:
    """Plan the episodes of an iteration, in groups with a common baseline.

    A group has a common truncation time, so that its episodes are comparable (Decima, section 5.3). With a warm-up of
    exponentially distributed duration, that time counts from the end of the warm-up.
    """
    episodes = config.episodes
    before, until = (
        episodes.sequences_before(number, config.iterations) for number in (iteration, iteration + 1)
    )
    first = before * episodes.per_sequence
    batch_jobs = episodes.batch_jobs if iteration < episodes.batches * config.iterations else None
    half_size = iteration < episodes.half_size * config.iterations
    groups = []
    for group in range(until - before):
        start_ms, end_ms = 0.0, math.inf
        if episodes.warm_up:
            stream = random_stream(config.seed, RandomStream.TRAINING, WARM_UPS, iteration, group)
            start_ms = float(stream.exponential(1000 * episodes.warm_up))
        if config.curriculum is not None:
            mean_ms = 1000 * config.curriculum.mean_end_s(iteration / config.iterations)
            stream = random_stream(config.seed, RandomStream.TRAINING, ENDS, iteration, group)
            end_ms = start_ms + max(float(stream.exponential(mean_ms)), 1.0)
        plans = []
        for index in range(episodes.per_sequence):
            episode = group * episodes.per_sequence + index
            seed_index = first + (group * episodes.per_sequence if episodes.fixed_sequences else episode)
            seed = (1 + config.seed) * RUN_SEEDS + seed_index
            plans.append(
                EpisodePlan(
                    seed,
                    end_ms,
                    config.seed,
                    iteration,
                    episode,
                    episodes.share,
                    start_ms,
                    batch_jobs,
                    half_size,
                )
            )
        groups.append(plans)
    return groups


# Episodes and samples.


@dataclass(frozen=True, eq=False)
class _Sample:
    graph: Graphs
    stage: int
    limit: int
    log_probability: float
    time_ms: float
    load: NDArray[np.float64]


class Episode:
    """A running episode with the samples taken so far.

    Args:
        policy: configuration of the policy, which determines graphs and choices.
        end_ms: truncation time, ms; by default the episode ends when all jobs are complete.
        random: generator of the policy's choices; None for greedy choices, see ``Policy.act``.
        share: fraction of the choices that become samples, evenly spaced.
        start_ms: end of the warm-up, in which ``WARM_UP`` decides and no decision becomes a sample, ms.
        many_jobs: policy for states with many live jobs, see ``ManyJobs``; its decisions become no samples.
    """

    def __init__(
        self,
        policy: PolicyConfig,
        cluster: ClusterConfig,
        sequence: JobSequence,
        end_ms: float = math.inf,
        random: np.random.Generator | None = None,
        share: float = 1.0,
        start_ms: float = 0.0,
        many_jobs: ManyJobs | None = None,
    ) -> None:
        self.config, self.sequence = cluster, sequence
        self.random, self.share = random, share
        self.cluster = make_cluster(replace(cluster, max_time_ms=end_ms), sequence)
        self.featurizer = Featurizer(policy)
        self.uniforms: NDArray[np.float64] | None = None
        self.observation: Observation | None = None
        self.samples: list[_Sample] = []
        self.rewards: list[float] = []
        self.num_decisions = 0
        self._num_choices = self._num_rows = 0
        self._few_jobs = math.inf
        if many_jobs is not None:
            self._few_jobs = many_jobs.more_than
            self._of_many = NeuralScheduler(many_jobs.policy, guard=False)
        if start_ms:
            self._warm_up(start_ms)

    def _warm_up(self, start_ms: float) -> None:
        """Run the episode with the scheduler ``WARM_UP`` until this time, without samples."""
        scheduler = make_scheduler(WARM_UP)
        scheduler.reset(self.config)
        while not self.cluster.done:
            observation = self.cluster.observe()
            if observation.time_ms >= start_ms:
                break
            self.decide(scheduler.decide(observation) if observation.num_schedulable else None)

    def run(self, policy: Actor | Policy) -> None:
        """Run to the end with the choices of a policy.

        Raises:
            NotFiniteError: the policy returns probabilities that are not finite.
        """
        self.draw()
        while not self.cluster.done:
            observation = self.cluster.observe()
            if len(observation.jobs) > self._few_jobs:
                self.decide(self._of_many.decide(observation) if observation.num_schedulable else None)
                continue
            choice = self.featurizer.choose(observation, policy, self.uniforms, self.takes_sample)
            self.carry_out(observation, choice)

    def draw(self) -> None:
        """Draw the random numbers ``uniforms`` of the next choice among several answers."""
        self.uniforms = None if self.random is None else self.random.random((1, 2))

    def carry_out(self, observation: Observation, choice: NetworkChoice) -> None:
        """Record a choice of the policy as a sample, unless it was the only one, and carry it out.

        Raises:
            NotFiniteError: the probability of the choice is not finite.
        """
        self.observation = observation
        if choice.num_answers <= 1:
            self.decide(choice.decision)
            return
        if not math.isfinite(choice.log_probability):
            raise NotFiniteError("the policy returns probabilities that are not finite")
        self.record(choice.graph, choice.stage, choice.limit, choice.log_probability)
        self.decide(choice.decision)
        self.draw()

    @property
    def takes_sample(self) -> bool:
        """Whether the next choice becomes a sample."""
        choices = self._num_choices
        return math.ceil((choices + 1) * self.share) > math.ceil(choices * self.share)

    def record(self, graph: Graphs | None, stage: int, limit: int, log_probability: float) -> None:
        """Record a choice as a sample if ``takes_sample``; the decision must follow.

        Args:
            graph: graph of the observation; may be None if the choice becomes no sample.
            stage: chosen stage, index in the observation's stage arrays.
            limit: chosen limit, see ``Choice.limit``.
            log_probability: log-probability of the choice.
        """
        takes_sample = self.takes_sample
        self._num_choices += 1
        if not takes_sample:
            return
        assert self.observation is not None
        assert graph is not None
        load = load_of(self.observation)
        self.samples.append(_Sample(graph, stage, limit, log_probability, self.observation.time_ms, load))
        self.rewards.append(0.0)
        self._num_rows += graph.stage_index.size
        if self._num_rows > MOST_SAMPLED:
            self._halve()

    def _halve(self) -> None:
        """Drop every second sample, now and later; the previous sample receives the reward of a dropped one."""
        self.share /= 2
        pairs = [self.rewards[index : index + 2] for index in range(0, len(self.rewards), 2)]
        self.samples, self.rewards = self.samples[::2], [math.fsum(pair) for pair in pairs]
        self._num_rows = sum(sample.graph.stage_index.size for sample in self.samples)

    def decide(self, decision: Decision | None) -> None:
        """Carry out a decision, and add its reward to the last sample."""
        self.cluster.decide(decision)
        reward = self.cluster.reward()
        self.num_decisions += 1
        if self.rewards:
            self.rewards[-1] += reward


def start_episodes(
    policy: PolicyConfig,
    conditions: Conditions,
    plans: Sequence[EpisodePlan],
    many_jobs: ManyJobs | None = None,
) -> list[Episode]:
    """Start planned episodes; episodes with the same sequence seed share the job sequence."""
    planned: dict[tuple[int | None, bool], Conditions] = {}
    sequences: dict[int, JobSequence] = {}
    episodes = []
    for plan in plans:
        key, seed = (plan.batch_jobs, plan.half_size), plan.sequence_seed
        if key not in planned:
            planned[key] = _planned(conditions, *key)
        if seed not in sequences:
            sequences[seed] = planned[key].sequence(seed)
        random = random_stream(plan.run_seed, RandomStream.POLICY, plan.iteration, plan.episode)
        cluster = planned[key].cluster_of(seed)
        episodes.append(
            Episode(
                policy, cluster, sequences[seed], plan.end_ms, random, plan.share, plan.start_ms, many_jobs
            )
        )
    return episodes


def _planned(conditions: Conditions, batch_jobs: int | None, half_size: bool) -> Conditions:
    """Return cluster and job sequences of planned episodes, see ``EpisodePlan``."""
    if batch_jobs is not None:
        conditions = replace(conditions, arrivals="batch", num_jobs=batch_jobs, drift=None)
    return cast("TrainingConditions", conditions).half_size() if half_size else conditions


def roll_out(policy: Actor | Policy, episodes: Sequence[Episode]) -> Trajectories:
    """Run new episodes with a policy: one after another, or in lock step if a network is custom.

    Raises:
        NotFiniteError: the policy returns probabilities that are not finite.
    """
    if policy.config.is_compiled:
        for episode in episodes:
            episode.run(policy)
        return gather(policy.config, episodes)
    from decima.policy.together import choose_together  # networks that are not compiled

    for episode in episodes:
        episode.draw()
    while running := [episode for episode in episodes if not episode.cluster.done]:
        observations = [episode.cluster.observe() for episode in running]
        uniforms = [episode.uniforms for episode in running if episode.uniforms is not None]
        choices = choose_together(
            [episode.featurizer for episode in running],
            observations,
            policy,
            np.concatenate(uniforms) if uniforms else None,
        )
        for episode, observation, choice in zip(running, observations, choices, strict=True):
            episode.carry_out(observation, choice)
    return gather(policy.config, episodes)


# Trajectories: samples of all episodes as arrays.


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Trajectories of E episodes: n samples in total, episode by episode.

    Attributes:
        graphs: graphs of the n observations.
        stage: int32 [n], chosen stage, index in the observation's stage arrays.
        limit: int32 [n], chosen limit.
        log_probability: float32 [n], log-probability of the choice under the acting policy.
        time_ms: float64 [n], time of the sample, ms.
        load: float64 [n, 7], load at the sample, see ``load_of``.
        arrived: int64 [n], number of jobs that had arrived.
        reward: float64 [n], reward from the sample to the next sample or the end of the episode.
        first: int64 [E + 1]; the samples of episode e are ``first[e]:first[e + 1]``.
        end_ms: float64 [E], end of the episode, ms.
        end_load: float64 [E, 7], load at the end of a truncated episode; 0 for a complete episode.
        num_executors: int64 [E], number of executors.
        num_decisions: int64 [E], number of decisions, including those with one legal action.
        mean_jct_ms: float64 [E], mean JCT of completed jobs, ms; NaN if no job is complete.
        num_completed: int64 [E], number of completed jobs.
    """

    graphs: Graphs
    stage: NDArray[np.int32]
    limit: NDArray[np.int32]
    log_probability: NDArray[np.float32]
    time_ms: NDArray[np.float64]
    load: NDArray[np.float64]
    arrived: NDArray[np.int64]
    reward: NDArray[np.float64]
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
        """Number of episodes, E."""
        return self.end_ms.size

    def samples(self, episode: int) -> slice:
        """Return the slice of an episode's samples."""
        return slice(int(self.first[episode]), int(self.first[episode + 1]))

    def pieces(self, part: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split the samples ``part``, int64 [k], in order, into pieces of about ``MOST_ROWS`` stages."""
        rows = np.diff(self.graphs.first_stage)[part].cumsum()
        return np.split(part, np.flatnonzero(np.diff(rows // MOST_ROWS)) + 1)

    def evaluate(self, policy: Policy, part: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy (nats) of the samples ``part``, int64 [k]: float [k], with gradients."""
        seen = policy(batches.select(self.graphs, part), self.stage[part], self.limit[part])
        return seen.log_probability, seen.entropy

    @staticmethod
    def concatenate(parts: Sequence[Trajectories]) -> Trajectories:
        """Concatenate trajectories of several groups of episodes."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.diff(part.first) for part in parts])
        names = [field.name for field in fields(Trajectories) if field.name not in ("graphs", "first")]
        return Trajectories(
            graphs=batches.concatenate([part.graphs for part in parts]),
            first=np.concatenate([[0], np.cumsum(lengths)]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
        )


def gather(config: PolicyConfig, episodes: Sequence[Episode]) -> Trajectories:
    """Return the trajectories of episodes that have ended."""
    samples = [sample for episode in episodes for sample in episode.samples]
    jct = [episode.cluster.record().jct_ms for episode in episodes]
    completed = [episode_jct[np.isfinite(episode_jct)] for episode_jct in jct]

    def column(name: str, dtype: type) -> NDArray[Any]:
        return np.array([getattr(sample, name) for sample in samples], dtype=dtype)

    times = [[sample.time_ms for sample in episode.samples] for episode in episodes]
    return Trajectories(
        graphs=batches.concatenate([sample.graph for sample in samples] or [_no_graphs(config)]),
        stage=column("stage", np.int32),
        limit=column("limit", np.int32),
        log_probability=column("log_probability", np.float32),
        time_ms=column("time_ms", np.float64),
        load=column("load", np.float64).reshape(-1, NUM_LOADS),
        arrived=np.concatenate(
            [
                np.searchsorted(episode.sequence.arrival_ms, time_ms, side="right")
                for episode, time_ms in zip(episodes, times, strict=True)
            ]
        ),
        reward=np.array([reward for episode in episodes for reward in episode.rewards], dtype=np.float64),
        first=np.cumsum([0, *map(len, times)]),
        end_ms=np.array([episode.cluster.now_ms for episode in episodes]),
        end_load=np.array([_end_load(episode.cluster) for episode in episodes]),
        num_executors=np.array([episode.config.num_executors for episode in episodes]),
        num_decisions=np.array([episode.num_decisions for episode in episodes]),
        mean_jct_ms=np.array(
            [episode_jct.mean() if episode_jct.size else math.nan for episode_jct in completed]
        ),
        num_completed=np.array([episode_jct.size for episode_jct in completed]),
    )


def _no_graphs(config: PolicyConfig) -> Graphs:
    """Return an empty batch of graphs, for episodes without samples."""
    pointer, integers, flags = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_)
    stages, jobs = (np.zeros((0, len(of)), np.float32) for of in (config.stage_features, config.job_features))
    messages = np.zeros((0, 3), np.int32)
    return Graphs(
        pointer, pointer, pointer, stages, jobs, integers, flags, integers, integers, integers, messages
    )


def _end_load(cluster: BaseCluster) -> NDArray[np.float64]:
    is_complete = cluster.now_ms < cluster.config.max_time_ms
    return np.zeros(NUM_LOADS) if is_complete else load_of(cluster.snapshot())


# The critic's inputs.


def load_of(observation: Observation) -> NDArray[np.float64]:
    """Summarise the unfinished work of the live jobs in seven sums, the inputs of the critic.

    Let w be the unfinished work of a job (tasks times mean duration, in units of ``WORK_UNIT_MS``), r the number of
    jobs with at least that much work, itself included, and n the number of executors. The sums are: 1, number of jobs,
    sum of w, sum of r w / n (total time in the system under shortest job first), s = sum of sqrt(w), s² / n, and
    sum of r sqrt(w).

    Returns:
        float64 [7].
    """
    sums: NDArray[np.float64] = _sums(
        observation.stages, len(observation.jobs), float(observation.num_executors)
    )
    return sums


@compiled
def _sums(stages, num_jobs, num_executors):  # type: ignore[no-untyped-def]
    work = np.zeros(num_jobs)
    for stage in stages:
        work[stage.job] += (stage.num_tasks - stage.finished_tasks) * stage.mean_task_ms / WORK_UNIT_MS
    work.sort()
    sums = np.zeros(NUM_LOADS)
    sums[0] = 1.0
    sums[1] = num_jobs
    for rank in range(num_jobs):
        root = np.sqrt(work[rank])
        sums[2] += work[rank]
        sums[3] += (num_jobs - rank) * work[rank] / num_executors
        sums[4] += root
        sums[6] += (num_jobs - rank) * root
    sums[5] = sums[4] ** 2 / num_executors
    return sums


# Work items of worker processes.


@dataclass(frozen=True, eq=False)
class Shared:
    """Data that all work items need.

    Attributes:
        conditions: clusters and job sequences.
        policy: configuration of the policy that learns.
        seed: random seed of schedulers.
        many_jobs: policy for states with many live jobs if the policy that learns is one for few.
    """

    conditions: Conditions
    policy: PolicyConfig
    seed: int = 0
    many_jobs: ManyJobs | None = None


def make_actor(config: PolicyConfig, arrays: Mapping[str, NDArray[np.float32]]) -> Actor | Policy:
    """Build a policy for inference from its configuration and weights.

    Args:
        config: configuration of the policy.
        arrays: float32 weights, with names and shapes as in ``Policy.arrays``.

    Raises:
        PartError: a custom part cannot be loaded.
    """
    if config.is_compiled:
        return Actor(config, arrays)
    network = policies.Policy(config)  # imports PyTorch only now
    network.take({name: array.copy() for name, array in arrays.items()})  # PyTorch refuses read-only arrays
    return network


def roll_out_plans(
    weights: dict[str, NDArray[np.float32]], shared: Shared, plans: Sequence[EpisodePlan]
) -> Trajectories:
    """Run planned episodes with a policy of the given weights."""
    actor = make_actor(shared.policy, weights)
    return roll_out(actor, start_episodes(shared.policy, shared.conditions, plans, shared.many_jobs))
