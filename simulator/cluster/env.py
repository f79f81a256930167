"""The cluster as a Gymnasium environment: arrays of fixed shape, for learners that expect them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from numpy.typing import ArrayLike, NDArray

from simulator.cluster.base import BaseCluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import make_cluster
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.picture import frame
from simulator.errors import ConfigError
from simulator.screen import METADATA, Screen
from workloads.arrivals import JobSequence, batch_arrivals
from workloads.job import JobProfile
from workloads.sources.synthetic import synthetic_profiles

__all__ = ["ENV_ID", "ClusterEnv", "synthetic_batch"]

#: The name under which ``gymnasium.make`` knows the environment once ``simulator`` is imported.
ENV_ID = "decima/Cluster-v0"

#: Bounds that no episode reaches; infinite ones would be warned about.
_MANY = np.iinfo(np.int32).max
_MUCH = np.finfo(np.float64).max


def synthetic_batch(seed: int) -> JobSequence:
    """Ten synthetic jobs, all there at time 0: what the environment runs if nothing else is asked for."""
    return batch_arrivals(_synthetic_profiles(), 10, seed)


@lru_cache(maxsize=1)
def _synthetic_profiles() -> tuple[JobProfile, ...]:
    return synthetic_profiles()


class ClusterEnv(gymnasium.Env[dict[str, Any], NDArray[np.int64]]):
    """A Spark cluster under a scheduler that is asked whenever executors are free.

    A step is one decision: a stage, and how many executors its job may hold. Where no stage can be chosen
    there is nothing to ask; such moments are passed over, and their rewards added up.

    **Observation**: a dict. Live jobs stand in order of arrival, their stages job by job, followed by zeros.

    =================  =======  ===============  ==========================================================
    key                dtype    shape            meaning
    =================  =======  ===============  ==========================================================
    time_ms            float64  [1]              the clock, ms
    offered            int32    [1]              executors to be committed; 0 when the episode is over
    executor_class     int64    []               which class they are of
    source             int64    []               the job whose executors they are; ``max_jobs`` if none
    backlog            int32    [1]              live jobs that there was no room for
    job_mask           int8     [max_jobs]       1 where there is a job
    job_arrival_ms     float64  [max_jobs]       when it arrived, ms
    job_executors      int32    [max_jobs]       executors at it, moving to it or committed from outside
    stage_mask         int8     [max_stages]     1 where there is a stage
    stage_job          int32    [max_stages]     its job, as a place in the job arrays
    num_tasks          int32    [max_stages]     tasks in all
    remaining_tasks    int32    [max_stages]     tasks that have not started
    unclaimed_tasks    int32    [max_stages]     those that no executor is committed or moving to
    running_executors  int32    [max_stages]     executors at work on it
    mean_task_ms       float64  [max_stages]     mean duration of its tasks, ms
    cpu                float64  [max_stages]     cores that a task needs
    memory             float64  [max_stages]     memory that a task needs
    class_executors    int32    [K]              executors of each of the K classes that are in the cluster
    class_free         int32    [K]              those that wait
    class_cpu          float64  [K]              cores of one of them
    class_memory       float64  [K]              memory of one of them
    edge_mask          int8     [max_edges]      1 where there is an edge
    edge_parent        int32    [max_edges]      the stage it begins at, as a place in the stage arrays
    edge_child         int32    [max_edges]      the stage it ends at, which waits for the parent
    action_mask        int8     [max_stages+1]   1 for a stage that may be chosen; the last: idling is allowed
    =================  =======  ===============  ==========================================================

    Room is given in order of arrival. From the first live job on for which jobs, stages or edges do not
    suffice, jobs wait in a backlog: they are not shown and cannot be chosen until jobs before them complete.

    **Action**: int64 [2], ``MultiDiscrete([max_stages + 1, num_executors])``: a stage, and the parallelism
    limit of its job minus 1. Stage ``max_stages`` leaves the offered executors idle, whatever the limit.

    * The stage gets ``min(limit - executors that its job holds without those offered, offered, unclaimed
      tasks)`` executors; one, if its job already holds as many as the limit. So every limit is legal.
    * A stage that may not be chosen stands for idling.
    * Idling is not allowed where it could last for ever: when nothing else is going on, or with semantics
      that do not offer idle executors again (``Semantics.offer_idle_executors``). Then it stands for the
      first schedulable stage, which gets all that it can use, even if it is in the backlog.

    ``info["action_mask"]`` holds two int8 arrays (stage, limit) for ``action_space.sample``;
    :meth:`action_masks` is the same as one bool array, which MaskablePPO of sb3-contrib asks for.

    **Reward**: float. Minus the time that all jobs spent in the system since the last step (``reward="jct"``)
    or minus the time that passed (``"makespan"``), over ``reward_scale_ms``. Unless an episode is truncated,
    its rewards of ``"jct"`` add up to minus the sum of all job completion times.

    **Termination**: all jobs are complete. **Truncation**: ``max_time_ms`` passed before. At the end,
    ``info["record"]`` is the ``EpisodeRecord``, and the observation shows what is left.

    Args:
        make_sequence: the jobs that a seed names; ten synthetic jobs at time 0 if omitted.
        config: the cluster; that of ``ClusterConfig()`` if omitted.
        max_jobs: room for live jobs.
        max_stages: room for their stages, those that are complete included.
        max_edges: room for their edges; twice ``max_stages`` if omitted.
        render_mode: ``"rgb_array"``: ``render`` gives the schedule so far, uint8 [320, 640, 3]; ``"human"``: a window
            shows it after every step.

    Raises:
        ConfigError: no room at all, or another render mode.

    >>> import gymnasium
    >>> from simulator import ClusterConfig
    >>> from workloads import poisson_arrivals, synthetic_profiles
    >>> profiles = synthetic_profiles(20)
    >>> env = gymnasium.make(
    ...     "decima/Cluster-v0",
    ...     make_sequence=lambda seed: poisson_arrivals(profiles, 3, mean_interval_ms=25_000, seed=seed),
    ...     config=ClusterConfig(num_executors=20),
    ... )
    >>> env.action_space
    MultiDiscrete([201  20])
    >>> observation, info = env.reset(seed=1)
    >>> observation["job_mask"].tolist(), observation["offered"].tolist()
    ([1, 0, 0, 0, 0, 0, 0, 0, 0, 0], [20])
    >>> total, over = 0.0, False
    >>> while not over:
    ...     action = env.action_space.sample(info["action_mask"])
    ...     observation, reward, terminated, truncated, info = env.step(action)
    ...     total, over = total + reward, terminated or truncated
    >>> bool(abs(total + info["record"].jct_ms.sum() / 100_000) < 1e-9)
    True
    """

    metadata = METADATA

    def __init__(
        self,
        make_sequence: Callable[[int], JobSequence] = synthetic_batch,
        config: ClusterConfig | None = None,
        *,
        max_jobs: int = 10,
        max_stages: int = 200,
        max_edges: int | None = None,
        render_mode: str | None = None,
    ):
        self.config = ClusterConfig() if config is None else config
        self._make_sequence = make_sequence
        self._room = _Room(max_jobs, max_stages, 2 * max_stages if max_edges is None else max_edges)
        if min(self._room) < 1:
            room = ", ".join(f"max_{name}={size}" for name, size in self._room._asdict().items())
            raise ConfigError(f"there must be room for at least one job, stage and edge, got {room}")
        self.observation_space = self._room.space(self.config)
        self.action_space = spaces.MultiDiscrete([max_stages + 1, self.config.num_executors])
        self.render_mode = render_mode
        self._screen = Screen(render_mode, lambda: frame(self.cluster.record()))
        self._cluster: BaseCluster | None = None
        self._over = True
        self._reward = 0.0
        self._allowed: NDArray[np.bool_] = np.zeros(max_stages + 1, dtype=np.bool_)

    @property
    def cluster(self) -> BaseCluster:
        """The cluster of this episode, to look at; whoever decides there leaves the environment behind.

        Raises:
            ResetNeeded: there has been no episode yet.
        """
        if self._cluster is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._cluster

    def action_masks(self) -> NDArray[np.bool_]:
        """Which stages, then which limits, may be chosen: bool [max_stages + 1 + num_executors]."""
        return np.concatenate([self._allowed, np.ones(self.config.num_executors, dtype=np.bool_)])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: the jobs are ``make_sequence(seed)``, on which schedulers can be compared; it also names the
                seeds of the episodes that follow. Without it, the jobs are those of the next of these seeds.
            options: ``{"sequence": JobSequence}`` runs exactly these jobs.

        Raises:
            ConfigError: a job that there is never room for, a stage that no executor class can run, or an
                unknown option.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        sequence = options.pop("sequence", None)
        if options:
            raise ConfigError(f"unknown option {next(iter(options))!r} of reset, expected 'sequence'")
        if sequence is None:
            sequence = self._make_sequence(int(self.np_random.integers(2**31)) if seed is None else seed)
        if not isinstance(sequence, JobSequence):
            raise ConfigError(f"expected a JobSequence to run, got {type(sequence).__name__}")
        self._room.check(sequence)
        self._cluster = make_cluster(self.config, sequence)
        self._over, self._reward = False, 0.0
        found = self._go_on()
        self._screen.follow()
        return found

    def step(self, action: ArrayLike) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Carry out an action and go on to the next decision.

        Raises:
            ResetNeeded: there is no episode, or it is over.
            InvalidAction: the action is not in the action space.
        """
        cluster = self.cluster
        if self._over:
            raise ResetNeeded("the episode is over: call reset() first")
        if not self.action_space.contains(action):
            raise InvalidAction(f"expected an action of {self.action_space}, got {action!r}")
        if not cluster.done:  # it may have ended before there was anything to decide
            stage, limit = np.asarray(action).tolist()
            self._reward += cluster.decide(self._decision(stage, limit + 1))
        observation, info = self._go_on()
        reward, self._reward = self._reward, 0.0
        terminated = truncated = False
        if cluster.done:
            self._over = True
            info["record"] = cluster.record()
            terminated = not np.isnan(info["record"].completion_ms).any()
            truncated = not terminated
        self._screen.follow()
        return observation, reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The schedule so far, as ``render_mode`` says.

        Raises:
            ResetNeeded: there has been no episode yet.
        """
        return self._screen.render()

    def close(self) -> None:
        """Close the window, if there is one."""
        self._screen.close()

    def _decision(self, stage: int, limit: int) -> Decision | None:
        """What an action means."""
        observation = self.cluster.observe()
        if stage == self._room.stages or not self._allowed[stage]:
            return self._without_choice(observation)
        held = observation.held(int(observation.stage_job[stage]))
        return Decision(stage, max(limit, held + 1))

    def _without_choice(self, observation: Observation) -> Decision | None:
        """Idle; where that is not allowed, give the first schedulable stage all executors offered."""
        if self._may_idle or not observation.num_schedulable:
            return None
        stage = int(np.argmax(observation.schedulable))
        return Decision(stage, observation.held(int(observation.stage_job[stage])) + observation.offered)

    @property
    def _may_idle(self) -> bool:
        return self.config.semantics.offer_idle_executors and not self.cluster.last_call

    def _go_on(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Pass over what leaves no choice; returns observation and info of the next decision or the end."""
        while not self.cluster.done:
            observation = self.cluster.observe()
            padded = self._room.pad(observation)
            if padded["action_mask"].any():
                break
            self._reward += self.cluster.decide(self._without_choice(observation))
        else:
            padded = self._room.pad(self.cluster.snapshot())
        padded["action_mask"][-1] = self.cluster.done or self._may_idle
        self._allowed = padded["action_mask"].astype(np.bool_)
        limits = np.ones(self.config.num_executors, dtype=np.int8)
        return padded, {"action_mask": (padded["action_mask"].copy(), limits)}


class _Room(NamedTuple):
    """The fixed shapes into which the live jobs are fitted."""

    jobs: int
    stages: int
    edges: int

    def space(self, config: ClusterConfig) -> spaces.Dict:
        """Observations of these shapes."""

        def count(length: int, high: int = _MANY) -> spaces.Box:
            return spaces.Box(0, high, (length,), np.int32)

        def amount(length: int) -> spaces.Box:
            return spaces.Box(0.0, _MUCH, (length,), np.float64)

        num_classes = len(config.executor_classes)
        return spaces.Dict(
            {
                "time_ms": amount(1),
                "offered": count(1, high=config.num_executors),
                "executor_class": spaces.Discrete(len(config.executor_classes)),
                "source": spaces.Discrete(self.jobs + 1),
                "backlog": count(1),
                "job_mask": spaces.MultiBinary(self.jobs),
                "job_arrival_ms": amount(self.jobs),
                "job_executors": count(self.jobs, high=config.num_executors),
                "stage_mask": spaces.MultiBinary(self.stages),
                "stage_job": count(self.stages, high=self.jobs - 1),
                "num_tasks": count(self.stages),
                "remaining_tasks": count(self.stages),
                "unclaimed_tasks": count(self.stages),
                "running_executors": count(self.stages, high=config.num_executors),
                "mean_task_ms": amount(self.stages),
                "cpu": amount(self.stages),
                "memory": amount(self.stages),
                "class_executors": count(num_classes, high=config.num_executors),
                "class_free": count(num_classes, high=config.num_executors),
                "class_cpu": amount(num_classes),
                "class_memory": amount(num_classes),
                "edge_mask": spaces.MultiBinary(self.edges),
                "edge_parent": count(self.edges, high=self.stages - 1),
                "edge_child": count(self.edges, high=self.stages - 1),
                "action_mask": spaces.MultiBinary(self.stages + 1),
            }
        )

    def check(self, sequence: JobSequence) -> None:
        """Refuse jobs that would never be shown."""
        for number, profile in enumerate(sequence.profiles):
            if profile.num_stages > self.stages or len(profile.edges) > self.edges:
                raise ConfigError(
                    f"job {number} ({profile.name}) has {profile.num_stages} stages and {len(profile.edges)}"
                    f" edges, there is only room for max_stages={self.stages} and max_edges={self.edges}"
                )

    def pad(self, observation: Observation) -> dict[str, Any]:
        """The observation in these shapes; whether idling is allowed is left open."""
        jobs, stages, edges = self._fitting(observation)
        source = observation.source if 0 <= observation.source < jobs and observation.offered else self.jobs
        schedulable = observation.schedulable[:stages] & (observation.offered > 0)
        classes = observation.classes
        return {
            "time_ms": np.array([observation.time_ms]),
            "offered": np.array([observation.offered], dtype=np.int32),
            "executor_class": np.int64(observation.executor_class),
            "source": np.int64(source),
            "backlog": np.array([len(observation.jobs) - jobs], dtype=np.int32),
            "job_mask": _padded(np.ones(jobs), self.jobs, np.int8),
            "job_arrival_ms": _padded(observation.job_arrival_ms[:jobs], self.jobs, np.float64),
            "job_executors": _padded(observation.job_executors[:jobs], self.jobs, np.int32),
            "stage_mask": _padded(np.ones(stages), self.stages, np.int8),
            "stage_job": _padded(observation.stage_job[:stages], self.stages, np.int32),
            "num_tasks": _padded(observation.num_tasks[:stages], self.stages, np.int32),
            "remaining_tasks": _padded(observation.remaining_tasks[:stages], self.stages, np.int32),
            "unclaimed_tasks": _padded(observation.unclaimed_tasks[:stages], self.stages, np.int32),
            "running_executors": _padded(observation.running_executors[:stages], self.stages, np.int32),
            "mean_task_ms": _padded(observation.mean_task_ms[:stages], self.stages, np.float64),
            "cpu": _padded(observation.stages["cpu"][:stages], self.stages, np.float64),
            "memory": _padded(observation.stages["memory"][:stages], self.stages, np.float64),
            "class_executors": classes["executors"].astype(np.int32),
            "class_free": classes["free"].astype(np.int32),
            "class_cpu": classes["cpu"].copy(),
            "class_memory": classes["memory"].copy(),
            "edge_mask": _padded(np.ones(len(edges)), self.edges, np.int8),
            "edge_parent": _padded(edges[:, 0], self.edges, np.int32),
            "edge_child": _padded(edges[:, 1], self.edges, np.int32),
            "action_mask": _padded(schedulable, self.stages + 1, np.int8),
        }

    def _fitting(self, observation: Observation) -> tuple[int, int, NDArray[np.int64]]:
        """For how many live jobs there is room, how many stages they have, and their edges, int64 [E, 2]."""
        jobs = stages = num_edges = 0
        edges = [np.zeros((0, 2), dtype=np.int64)]
        for profile in observation.profiles[: self.jobs]:
            num_edges += len(profile.edges)
            if stages + profile.num_stages > self.stages or num_edges > self.edges:
                break
            edges.append(profile.edges + stages)
            stages += profile.num_stages
            jobs += 1
        return jobs, stages, np.concatenate(edges)


def _padded(values: NDArray[Any], length: int, dtype: type[np.generic]) -> NDArray[Any]:
    """``values``, followed by zeros."""
    array = np.zeros(length, dtype=dtype)
    array[: len(values)] = values
    return array


if ENV_ID not in gymnasium.registry:  # a module that is loaded again would be warned about
    gymnasium.register(ENV_ID, entry_point="simulator.cluster.env:ClusterEnv")
