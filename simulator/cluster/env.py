"""Gymnasium environment of the cluster, with arrays of fixed shape: one episode, or many in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, create_empty_array
from numpy.typing import ArrayLike, NDArray

from simulator.cluster.base import BaseCluster
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import make_cluster
from simulator.cluster.picture import frame
from simulator.cluster.views import MakeView, PaddedView, without_choice
from simulator.environments import RenderedEnv, begun
from workloads.arrivals import JobSequence, batch_arrivals
from workloads.errors import ConfigError, check_callable, check_whole
from workloads.sources.synthetic import synthetic_profiles

_cached_profiles = cache(synthetic_profiles)


def synthetic_batch(seed: int) -> JobSequence:
    """Return ten synthetic jobs that arrive at time 0: the default workload of ``ClusterEnv``."""
    return batch_arrivals(_cached_profiles(), 10, seed)


class ClusterEnv(RenderedEnv[Any, NDArray[np.int64]]):
    """A Spark cluster as a Gymnasium environment. A step is one decision: a stage, and its job's parallelism limit.

    Decisions without a schedulable stage are skipped, and their rewards are added to the next one.

    **Observation**: a dict. Live jobs are in order of arrival, stages are ordered by job; zeros pad the arrays.

    =================  =======  ===============  ==========================================================
    key                dtype    shape            meaning
    =================  =======  ===============  ==========================================================
    time_ms            float64  [1]              current time, ms
    offered            int32    [1]              executors to be committed; 0 when the episode is over
    executor_class     int64    []               class of the offered executors
    source             int64    []               job whose executors are offered; ``max_jobs`` if none
    backlog            int32    [1]              live jobs that are left out
    job_mask           int8     [max_jobs]       1 for a job, 0 for padding
    job_arrival_ms     float64  [max_jobs]       arrival time, ms
    job_executors      int32    [max_jobs]       executors at the job, moving to it or committed from outside
    stage_mask         int8     [max_stages]     1 for a stage, 0 for padding
    stage_job          int32    [max_stages]     job of the stage, index in the job arrays
    num_tasks          int32    [max_stages]     number of tasks of the stage
    remaining_tasks    int32    [max_stages]     tasks that have not started
    unclaimed_tasks    int32    [max_stages]     remaining tasks without a committed or moving executor
    running_executors  int32    [max_stages]     executors that run tasks of the stage
    mean_task_ms       float64  [max_stages]     mean duration of a task, ms
    cpu                float64  [max_stages]     cores that a task needs
    memory             float64  [max_stages]     memory that a task needs
    class_executors    int32    [K]              executors of each of the K classes in the cluster now
    class_free         int32    [K]              executors in pools
    class_cpu          float64  [K]              cores of an executor
    class_memory       float64  [K]              memory of an executor
    edge_mask          int8     [max_edges]      1 for an edge, 0 for padding
    edge_parent        int32    [max_edges]      parent, index in the stage arrays
    edge_child         int32    [max_edges]      child, index in the stage arrays
    action_mask        int8     [max_stages+1]   1 for a stage that may be chosen; the last: idling is allowed
    =================  =======  ===============  ==========================================================

    The first live job that does not fit into the arrays, and all jobs after it, are in a backlog: they are left out
    and cannot be chosen until jobs before them complete.

    **Action**: int64 [2], ``MultiDiscrete([max_stages + 1, num_executors])``: a stage, and the parallelism
    limit of its job minus 1. Stage ``max_stages`` leaves the offered executors idle, whatever the limit.

    * The stage gets ``min(limit - executors that its job holds without the offered ones, offered, unclaimed
      tasks)`` executors; one executor if its job already holds as many as the limit. So every limit is legal.
    * A stage that may not be chosen means idling.
    * Idling is not allowed where it could stall the episode: when no event is pending, or with semantics that
      do not offer idle executors again (``Semantics.offer_idle_executors``). Then it means the first
      schedulable stage with all executors that this stage can use, even if it is in the backlog.

    ``info["action_mask"]`` holds two int8 arrays (stage, limit) for ``action_space.sample``;
    ``action_masks`` returns the same as one bool array, for MaskablePPO of sb3-contrib.

    **Reward**: float. Minus the time that all jobs spent in the system since the last step (``reward="jct"``)
    or minus the elapsed time (``"makespan"``), divided by ``reward_scale_ms``. Unless an episode is truncated,
    its rewards of ``"jct"`` add up to minus the sum of all job completion times.

    **Termination**: all jobs have completed or failed. **Truncation**: ``max_time_ms`` passed before. At the end,
    ``info["record"]`` is the ``EpisodeRecord``, and the observation shows the jobs that are still in the system.

    Args:
        make_sequence: function from a seed to jobs; by default ten synthetic jobs at time 0.
        config: the cluster; by default ``ClusterConfig()``.
        max_jobs: length of the arrays of live jobs.
        max_stages: length of the arrays of stages of live jobs, including complete stages.
        max_edges: length of the arrays of edges between these stages; by default twice ``max_stages``.
        view: class with other arrays and actions, such as ``FlatView``, a vector of fixed size, which most learners
            expect. The three lengths then have no effect.
        render_mode: ``"rgb_array"``: ``render`` returns the schedule so far, uint8 [320, 640, 3]; ``"human"``: a window
            shows the schedule after every step.

    Raises:
        ConfigError: a length is below 1, or the render mode is unknown.

    Examples:
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

    def __init__(
        self,
        make_sequence: Callable[[int], JobSequence] = synthetic_batch,
        config: ClusterConfig | None = None,
        *,
        max_jobs: int = 10,
        max_stages: int = 200,
        max_edges: int | None = None,
        view: MakeView | None = None,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode)
        self.config = ClusterConfig() if config is None else config
        check_callable(make_sequence, "make_sequence", ConfigError)
        if view is not None:
            check_callable(view, "view", ConfigError)
        self._make_sequence = make_sequence
        self.view = (
            PaddedView(self.config, max_jobs, max_stages, max_edges) if view is None else view(self.config)
        )
        self.observation_space = self.view.observation_space
        self.action_space = self.view.action_space
        self._cluster: BaseCluster | None = None
        self._over = True
        self._reward = 0.0

    @property
    def cluster(self) -> BaseCluster:
        """The cluster of the current episode, for inspection only.

        Raises:
            ResetNeeded: no episode has begun.
        """
        return begun(self._cluster)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the masks of stages, idling and limits, bool [max_stages + 1 + num_executors].

        Raises:
            ResetNeeded: no episode has begun.
        """
        _ = self.cluster
        return self._seen.action_masks

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode.

        Args:
            seed: the jobs are ``make_sequence(seed)``. The seed also determines the seeds of later episodes that begin
                without this argument.
            options: ``{"sequence": JobSequence}`` runs the given jobs.

        Raises:
            ConfigError: a job is too large for the view or the cluster, or an option is unknown.
        """
        super().reset(seed=seed)

        def make() -> Any:
            return self._make_sequence(int(self.np_random.integers(2**31)) if seed is None else seed)

        sequence = self._to_run(options, "sequence", JobSequence, make)
        self.view.check(sequence)
        self._cluster = make_cluster(self.config, sequence)
        self._over, self._reward = False, 0.0
        reward = self._advance()
        self._show()
        return reward

    def step(self, action: ArrayLike) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out an action and advance to the next decision.

        Raises:
            ResetNeeded: no episode is running.
            InvalidAction: the action is not in the action space.
        """
        cluster = self.cluster
        self._check_action(action, self._over)
        if not cluster.done:  # the episode may have ended before the first decision
            cluster.decide(self.view.decision(cluster.observe(), self._seen, action))
            self._reward += cluster.reward()
        observation, info = self._advance()
        reward, self._reward = self._reward, 0.0
        terminated = truncated = False
        if cluster.done:
            self._over = True
            record = info["record"] = cluster.record()
            left = np.isnan(record.completion_ms)
            left[record.failed_job] = False
            truncated = bool(left.any())
            terminated = not truncated
        self._show()
        return observation, reward, terminated, truncated, info

    def _frame(self) -> NDArray[np.uint8]:
        return frame(self.cluster.record())

    def _advance(self) -> tuple[Any, dict[str, Any]]:
        """Skip decisions without a choice; return observation and info of the next decision, or at the end."""
        while not self.cluster.done:
            observation = self.cluster.observe()
            self._seen = self.view.show(observation)
            if self._seen.has_choice:
                break
            self.cluster.decide(without_choice(observation))
            self._reward += self.cluster.reward()
        else:
            self._seen = self.view.show(self.cluster.snapshot())
        return self._seen.arrays, {"action_mask": self._seen.masks}


class ClusterVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """N environments, each with the same episodes as a ``ClusterEnv`` with its seed.

    ``reset(seed=s)`` gives environment n the seed s + n. The step after the end of an episode begins another episode
    with other jobs (Gymnasium's ``AutoresetMode.NEXT_STEP``): it ignores the action, and its reward is 0.

    Infos hold ``action_mask``, int8 [N, stages + 1] and int8 [N, limits]; and, where ``_record`` is true, ``record``,
    the ``EpisodeRecord`` of an episode that just ended.

    It takes about as long as N environments one after the other, and less than ``SyncVectorEnv``: the environments only
    share arrays.

    Args:
        copy: whether observations are copies; else the next step overwrites them.
        options: arguments of ``ClusterEnv``.

    Raises:
        ConfigError: ``num_envs`` is below 1, or for the reasons of ``ClusterEnv``.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, *, copy: bool = True, **options: Any) -> None:
        self.num_envs, self._copy = check_whole(num_envs, "num_envs", ConfigError, 1), copy
        single = ClusterEnv(**options)
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.envs = [ClusterEnv(**options) for _ in range(num_envs)]
        self._over = np.zeros(num_envs, dtype=np.bool_)
        self._begun = False
        self._arrays: Any = create_empty_array(self.single_observation_space, num_envs)
        sizes = self.envs[0].view.action_space.nvec.tolist()
        self._masks = tuple(np.zeros((num_envs, size), dtype=np.int8) for size in sizes)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes.

        Args:
            seed: seed of the first environment, or a seed for each environment.
            options: must be empty.

        Raises:
            ConfigError: an option is unknown, or for the reasons of ``ClusterEnv.reset``.
        """
        for index, (env, env_seed) in enumerate(zip(self.envs, self._seeds(seed, options), strict=True)):
            self._write_row(index, *env.reset(seed=env_seed))
        self._begun = True
        self._over[:] = False
        return self._observations(), self._results({})

    def step(
        self, actions: ArrayLike
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carry out one action in each episode; begin a new episode where the last one has ended.

        Raises:
            ResetNeeded: no episode has begun.
            InvalidAction: the number of actions is not N, or an action is out of range.
        """
        if not self._begun:
            raise ResetNeeded("there is no episode yet: call reset() first")
        chosen = self._checked(actions)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=np.bool_)
        records: dict[int, Any] = {}
        for index, env in enumerate(self.envs):
            if self._over[index]:
                self._write_row(index, *env.reset())
                continue
            shown, rewards[index], terminated[index], truncated[index], info = env.step(chosen[index])
            self._write_row(index, shown, info)
            if "record" in info:
                records[index] = info["record"]
        self._over = terminated | truncated
        return self._observations(), rewards, terminated, truncated, self._results(records)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the masks of stages, idling and limits, bool [N, stages + 1 + limits]."""
        return np.concatenate(self._masks, axis=1).astype(np.bool_)

    def _checked(self, actions: ArrayLike) -> NDArray[np.integer[Any]]:
        """Return an action for each environment as an array; raise ``InvalidAction`` on another shape or type."""
        chosen, shape = np.asarray(actions), (self.num_envs, *(self.single_action_space.shape or ()))
        if chosen.shape != shape or not np.issubdtype(chosen.dtype, np.integer):
            raise InvalidAction(f"expected actions {shape}, got {chosen.dtype} {chosen.shape}")
        return chosen

    def _seeds(
        self, seed: int | Sequence[int | None] | None, options: dict[str, Any] | None
    ) -> list[int | None]:
        """Return the seed of each environment: ``seed``, ``seed + 1``, .. if ``seed`` is one number."""
        if options:
            raise ConfigError(f"unknown option {next(iter(options))!r} of reset, expected none")
        if seed is None or isinstance(seed, int | np.integer):
            return [None if seed is None else int(seed) + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} seeds, got {len(seed)}")
        return list(seed)

    def _write_row(self, index: int, shown: Any, info: dict[str, Any]) -> None:
        if isinstance(shown, dict):
            for name, values in shown.items():
                self._arrays[name][index] = values
        else:
            self._arrays[index] = shown
        for all_masks, mask in zip(self._masks, info["action_mask"], strict=True):
            all_masks[index] = mask

    def _observations(self) -> Any:
        if not self._copy:
            return self._arrays
        if isinstance(self._arrays, dict):
            return {name: values.copy() for name, values in self._arrays.items()}
        return self._arrays.copy()

    def _results(self, records: Mapping[int, Any]) -> dict[str, Any]:
        """Return the infos: masks of all environments, and records of environments whose episode has just ended."""
        masks = tuple(mask.copy() for mask in self._masks) if self._copy else self._masks
        infos: dict[str, Any] = {"action_mask": masks, "_action_mask": np.ones(self.num_envs, dtype=np.bool_)}
        if records:
            infos["record"] = np.full(self.num_envs, None, dtype=object)
            infos["_record"] = np.zeros(self.num_envs, dtype=np.bool_)
            for index, record in records.items():
                infos["record"][index], infos["_record"][index] = record, True
        return infos
