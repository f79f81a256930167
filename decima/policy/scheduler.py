"""Decima's neural scheduler: observation -> graph -> choice of stage and limit by the network -> decision.

All steps are compiled code and need no PyTorch. Source: Decima (SIGCOMM 2019), section 5.2. ``decima.policy.policy``
is the same network with gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decima import policy as policies  # its names are imported on first use
from decima.policy.compiled import layers
from decima.policy.compiled.features import FEATURES, make_columns
from decima.policy.compiled.graphs import (
    LIMIT_KINDS,
    NO_GUARD,
    ClusterConstants,
    Graphs,
    GraphSpec,
    Guard,
    Profiles,
    build,
)
from decima.policy.compiled.network import decide
from decima.policy.config import PolicyConfig
from decima.policy.messages import message_order
from decima.schedulers.base import Kind, Scheduler
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation, PerJob
from workloads.arrivals import RandomStream, random_stream
from workloads.custom import is_custom
from workloads.job import JobProfile

if TYPE_CHECKING:
    from decima.policy.compiled.choices import Choices
    from decima.policy.few_jobs import FewJobs
    from decima.policy.policy import Policy

__all__ = ["Actor", "Featurizer", "NetworkChoice", "NeuralScheduler"]

#: Cost exponents of executors in the features ``thrifty_executors`` and ``fast_executors``.
COST_EXPONENTS = (2.5, 0.75)
#: Work per executor in the feature ``lasting_executors``, in moving delays; shipped policies were trained with this.
LASTING_MOVES = 8.0
#: Guard thresholds, in moving delays: longest wait for a stage; work per executor that is worth a move of another job's
#: executor; and of a free executor, as in the rule srpt.
WORTH_WAITING, WORTH_LEAVING, WORTH_MOVING = 8.0, 8.0, 3.0
#: Random numbers of greedy choices, which are not used.
NO_UNIFORMS = np.zeros((1, 4))
#: Per-profile cache: messages, useful parallelism at each of ``COST_EXPONENTS`` (0 if no feature needs that), and
#: heights of the stages (none if no feature needs them).
_Known = tuple[NDArray[np.int32], tuple[int, ...], NDArray[np.float64]]


class NetworkChoice(NamedTuple):
    """Choice of a network in one observation.

    Attributes:
        num_answers: number of different decisions that the observation allows.
        stage: chosen stage, index in the observation's stage arrays; -1 if no stage may be chosen.
        limit: chosen parallelism limit, above ``Graphs.low`` and at most ``Graphs.high`` of the stage.
        job_limit: parallelism limit of the stage's job that follows; 0 to leave the executors idle.
        log_probability: joint log-probability of stage and limit.
        guarded: whether the guard masked the network's first choice.
        graph: graph of the observation; None if it was not asked for.
    """

    num_answers: int
    stage: int
    limit: int
    job_limit: int
    log_probability: float
    guarded: bool
    graph: Graphs | None

    @property
    def decision(self) -> Decision | None:
        """The decision; None leaves the executors idle."""
        return Decision(self.stage, self.job_limit) if self.job_limit else None


class NeuralScheduler(Scheduler):
    """Decima: scheduler in which a graph neural network (GNN) chooses a stage and its job's parallelism limit.

    Args:
        policy: network that chooses.
        sample_seed: random seed to sample decisions; every episode uses the same random numbers. By default decisions
            are greedy, see ``Actor.act``.
        guard: whether to mask choices that leave executors idle, or let them wait for a late stage, although a ready
            stage is worth a move. Without a guard, a policy out of its training distribution may never use executors.

    Attributes:
        num_guarded: number of decisions in this episode that the guard changed.
        probability: joint probability of stage and limit of the last decision; NaN if there was no choice.
    """

    policy: Actor | Policy
    kind = Kind.NETWORK
    sample_seed: int | None
    num_guarded: int
    probability: float

    def __init__(self, policy: Actor | Policy, sample_seed: int | None = None, guard: bool = True) -> None:
        self.policy = policy
        self.sample_seed = sample_seed
        self._featurizer = Featurizer(policy.config, guard=guard)
        if policy.few_jobs is not None:
            self._for_few = Featurizer(policy.few_jobs.policy.config, guard=guard)
        self._begin()

    @cached_property
    def network(self) -> Policy:
        """The policy as a PyTorch module (``torch.nn.Module``) that this scheduler alone has.

        From the first use on, the scheduler decides with the weights of this module, so that changes of the weights
        have an effect. It takes the graphs that ``graph`` returns; of two networks (``few_jobs``) it is the first.
        """
        network = policies.Policy(self.policy.config)
        network.take({name: array.copy() for name, array in self.policy.arrays.items()})
        network.few_jobs = self.policy.few_jobs
        self.policy = network
        return network

    def graph(self, observation: Observation) -> Graphs:
        """Return the graph of an observation, the input of the network."""
        return self.deciding(observation)[0].graph(observation)

    def deciding(self, observation: Observation) -> tuple[Featurizer, Actor | Policy]:
        """Return the network that decides in an observation, and the featurizer of its inputs."""
        few = self.policy.few_jobs
        if few is not None and len(observation.jobs) <= few.at_most:
            return self._for_few, few.policy
        return self._featurizer, self.policy

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode."""
        self._begin()

    def _begin(self) -> None:
        self.num_guarded = 0
        self.probability = math.nan
        self._random = (
            None if self.sample_seed is None else random_stream(self.sample_seed, RandomStream.POLICY)
        )
        self._uniforms = np.zeros(0)

    def decide(self, observation: Observation) -> Decision | None:
        """Return the network's decision; None if no stage may be chosen, or the executors are left idle."""
        uniforms = self._next_uniforms()
        featurizer, network = self.deciding(observation)
        choice = featurizer.choose(observation, network, uniforms)
        if uniforms is not None:
            self._uniforms = uniforms[0, 4 if choice.guarded else 2 :]
        self.num_guarded += choice.guarded
        self.probability = math.exp(choice.log_probability) if choice.stage >= 0 else math.nan
        return choice.decision

    def _next_uniforms(self) -> NDArray[np.float64] | None:
        """Return the next four random numbers, float64 [1, 4]; a decision uses two or four."""
        if self._random is None:
            return None
        drawn = self._random.random(4 - self._uniforms.size)
        return np.concatenate([self._uniforms, drawn])[None]


class Featurizer:
    """Converts observations to graphs, the network's inputs. Caches values that depend on a job's profile only.

    Args:
        config: features and limits of the policy.
        messages: function from a profile to its messages, as ``message_order``; by default that of ``config``.
        guard: whether to compute the guard's mask.

    Raises:
        PartError: a custom feature cannot be loaded.
    """

    config: PolicyConfig

    def __init__(
        self,
        config: PolicyConfig,
        messages: Callable[[JobProfile], NDArray[np.int32]] | None = None,
        guard: bool = False,
    ) -> None:
        self.config = config
        self._guards = guard
        self._order = messages or message_order
        if messages is None and config.message_order == "decima-sim":
            from decima.policy.published_messages import published_message_order

            self._order = published_message_order
        self._profiles = PerJob(self._of_profile, _joined)
        self._custom: CustomFeatures | None = None
        if any(is_custom(feature.name) for feature in (*config.stage_features, *config.job_features)):
            from decima.policy.features import CustomFeatures

            self._custom = CustomFeatures(config)
        self._spec = tuple(
            GraphSpec(
                tuple(make_columns(config.stage_features, config.job_features)),
                config.finished_stages,
                LIMIT_KINDS[config.limit],
                config.all_limits,
                config.num_limits,
            )
        )
        features = (*config.stage_features, *config.job_features)
        entries = [FEATURES[feature.name] for feature in features if feature.name in FEATURES]
        self._asks_useful = any("useful" in entry.arguments for entry in entries)
        self._asks_heights = any({"height_ms", "path_ms"} & {*entry.arguments} for entry in entries)
        self._cluster: ClusterConfig | None = None
        self._constants: tuple[Any, ...]

    def _of_profile(self, profile: JobProfile, cluster: ClusterConfig) -> _Known:
        useful = (0,) * len(COST_EXPONENTS)
        if self._asks_useful:
            from simulator.cluster.alone import useful_parallelism  # estimates each job alone

            useful = useful_parallelism(profile, cluster, COST_EXPONENTS)
        return self._order(profile), useful, profile.height_ms if self._asks_heights else np.zeros(0)

    def choose(
        self,
        observation: Observation,
        policy: Actor | Policy,
        uniforms: NDArray[np.float64] | None = None,
        keeps_graph: bool = False,
    ) -> NetworkChoice:
        """Return the choice of a policy in an observation.

        Args:
            observation: state of the cluster.
            policy: network that chooses.
            uniforms: float64 [1, 2], or [1, 4] with a guard, as for ``Actor.act``; None for greedy choices.
            keeps_graph: whether the choice has the graph.
        """
        packed = None if self._custom else policy.packed
        if packed is not None:
            greedy = uniforms is None
            chosen = decide(
                *self._arguments(observation),
                packed,
                NO_UNIFORMS if greedy else uniforms,
                greedy,
                keeps_graph,
            )
            return NetworkChoice(*chosen)
        from decima.policy.together import choose_together  # networks that are not compiled

        return choose_together([self], [observation], policy, uniforms)[0]

    def decision(self, observation: Observation, stage: int, limit: int) -> Decision | None:
        """Convert a choice of the network to a decision; None leaves the executors idle.

        Args:
            observation: observation in which the network chose.
            stage: chosen stage, index in the observation's stage arrays.
            limit: chosen parallelism limit of the job, or of the stage if limits are per stage.
        """
        held = observation.held(int(observation.stage_job[stage]))
        if self.config.limit == "stage":
            limit += held - int(observation.running_executors[stage])
        return Decision(stage, limit) if limit > held else None

    def graph(self, observation: Observation) -> Graphs:
        """Return the graph of an observation."""
        return self.graph_and_answers(observation)[0]

    def graph_and_answers(self, observation: Observation) -> tuple[Graphs, int]:
        """Return the graph of an observation, and the number of different decisions that it allows."""
        return self.build(observation)[:2]

    def build(self, observation: Observation) -> tuple[Graphs, int, Guard]:
        """Return ``graph_and_answers``, and the limits that the guard's mask leaves (empty without a mask)."""
        graph, num_answers, *guard = build(*self._arguments(observation))
        if self._custom is not None:
            self._custom.fill(observation, graph)
        return graph, num_answers, (guard[0], guard[1])

    def _arguments(self, observation: Observation) -> tuple[tuple[Any, ...], ...]:
        """Return the arguments of ``compiled.graphs.build``."""
        if observation.config is not self._cluster:
            self._cluster = observation.config
            self._constants = self._constants_of(observation.config)
        return (
            (observation.jobs, observation.stages, observation.classes),
            (
                observation.offered,
                observation.executor_class,
                observation.source,
                float(observation.time_ms),  # always float, so that the code is compiled once
                observation.last_call,
            ),
            self._profiles(observation),
            self._constants,
            self._spec,
        )

    def _constants_of(self, config: ClusterConfig) -> tuple[Any, ...]:
        delay_ms = float(config.moving_delay_ms)
        return tuple(
            ClusterConstants(
                offers_again=config.semantics.offer_idle_executors,
                worth_leaving_ms=WORTH_LEAVING * delay_ms,
                worth_moving_ms=WORTH_MOVING * delay_ms,
                can_wait=self.config.wait,
                can_guard=self._guards,
                configured=config.num_executors,
                guard_wait_ms=WORTH_WAITING * (delay_ms + config.warmup_delay_ms),
                moving_delay_ms=delay_ms,
                lasting_ms=LASTING_MOVES * delay_ms,
            )
        )


def _joined(jobs: list[_Known]) -> tuple[NDArray[Any], ...]:
    messages = [np.zeros((0, 3), dtype=np.int32), *(of_job for of_job, _, _ in jobs)]
    useful = np.array([of_job for _, of_job, _ in jobs], dtype=np.float64).reshape(-1, len(COST_EXPONENTS))
    height_ms = np.concatenate([np.zeros(0), *(of_job for _, _, of_job in jobs)])
    first_message = np.cumsum([len(of_job) for of_job in messages])
    return tuple(Profiles(useful, height_ms, first_message, np.concatenate(messages)))


class Actor:
    """Policy network for inference, in compiled code and without gradients.

    Args:
        config: configuration of the policy.
        arrays: float32 weights, with names and shapes as in ``PolicyConfig.array_shapes``.

    Attributes:
        few_jobs: network for states with few live jobs, with which ``NeuralScheduler`` decides there; None without one.
    """

    config: PolicyConfig
    arrays: dict[str, NDArray[np.float32]]
    few_jobs: FewJobs | None = None
    network: layers.NetworkArrays
    packed: tuple[Any, ...]

    def __init__(self, config: PolicyConfig, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        self.config = config
        self.arrays = dict(arrays)
        weights: list[NDArray[np.float32]] = []
        shapes: list[tuple[int, int, int]] = []
        num_layers = [0] * len(layers.PARTS)
        offset = 0
        for name, widths in config.layers.items():
            num_layers[layers.PARTS.index(name)] = len(widths) - 1
            for layer in range(len(widths) - 1):
                weight, bias = self.arrays[f"{name}.{layer}.weight"], self.arrays[f"{name}.{layer}.bias"]
                shapes.append((weight.shape[1], weight.shape[0], offset))
                weights += [weight.T.reshape(-1), bias]
                offset += weight.size + bias.size
        self.network = layers.NetworkArrays(
            weights=np.concatenate(weights),
            layers=np.array(shapes),
            first_layer=np.cumsum([0, *num_layers]),
            width=config.embedding if config.graph else 0,
            slope=np.float32(layers.SLOPE),
            embedding_slope=np.float32(layers.SLOPE if config.activate_embeddings else 1.0),
            shortcut=config.shortcut or not config.graph,
            limit_kind=LIMIT_KINDS[config.limit],
            limit_scale=np.float32(config.limit_scale),
            log_limits=config.log_limits,
            root_sums=config.root_sums,
            median_limit=config.wait,
        )
        self.packed = tuple(self.network)

    def act(
        self, graphs: Graphs, uniforms: NDArray[np.float64] | None = None, guard: Guard = NO_GUARD
    ) -> Choices:
        """Choose a stage and a limit in each observation.

        Args:
            graphs: B observations.
            uniforms: random numbers in [0, 1) to sample stage and limit, float64 [B, 2], or [B, 4] with a guard. If
                None, choices are greedy: the most likely stage, then the most likely limit, or the median limit if
                waiting is a choice, since many limits with nearly the same effect share their probability.
            guard: ``low`` and ``high`` after the guard's mask. If the mask excludes the choice, the network chooses
                again among the rest, with the second pair of random numbers.
        """
        from decima.policy.compiled.choices import (  # a scheduler chooses in one observation
            Choices,
            choose_in_all,
        )

        greedy = uniforms is None
        if uniforms is None:
            uniforms = np.empty((graphs.num_graphs, 4))
        return Choices(*choose_in_all(tuple(graphs), self.packed, uniforms, greedy, *guard))
