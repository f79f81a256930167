"""Views of a cluster for reinforcement learning: observations as arrays of fixed shape, and the meaning of actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from workloads.arrivals import JobSequence
from workloads.errors import ConfigError, check_instance, check_whole

#: Bounds of spaces that no episode reaches; infinite bounds would cause warnings.
_MANY = np.iinfo(np.int32).max
_MUCH = np.finfo(np.float64).max


def may_idle(observation: Observation) -> bool:
    """Return whether the offered executors may idle: they will be offered again, and some event is pending."""
    return observation.config.semantics.offer_idle_executors and not observation.last_call


def without_choice(observation: Observation) -> Decision | None:
    """Leave the offered executors idle; where that is not allowed, give them all to the first schedulable stage."""
    if may_idle(observation) or not observation.num_schedulable:
        return None
    stage = int(np.argmax(observation.schedulable))
    return Decision(stage, observation.held(int(observation.stage_job[stage])) + observation.offered)


@dataclass(frozen=True, eq=False)
class Seen:
    """An observation of the cluster as arrays of fixed shape."""

    arrays: Any  # an element of the view's ``observation_space``
    #: Allowed stages and whether idling is allowed, int8 [n + 1]; allowed limits, int8 [limits].
    masks: tuple[NDArray[np.int8], NDArray[np.int8]]
    #: Index of each stage in the observation, int64 [n]; -1 if the stage must not be chosen.
    stages: NDArray[np.int64]

    @property
    def has_choice(self) -> bool:
        """Whether some stage can be chosen."""
        return bool((self.stages >= 0).any())

    @property
    def action_masks(self) -> NDArray[np.bool_]:
        """Both masks in one array, bool [n + 1 + limits], as MaskablePPO of sb3-contrib expects."""
        return np.concatenate(self.masks).astype(np.bool_)


class View(ABC):
    """Base class of views: show a cluster as arrays of fixed shape, and turn actions into decisions.

    An action is one of n stages and a limit: ``MultiDiscrete([n + 1, limits])``. Stage n leaves the offered executors
    idle, whatever the limit.

    Args:
        stages: n, the number of stages in an action.
        limits: number of limits.
    """

    observation_space: spaces.Space[Any]

    def __init__(self, config: ClusterConfig, stages: int, limits: int) -> None:
        self.config = config
        self.action_space = spaces.MultiDiscrete([stages + 1, limits])
        self._all_limits = np.ones(limits, dtype=np.int8)

    def check(self, sequence: JobSequence) -> None:  # noqa: B027
        """Raise a ``ConfigError`` if some job is too large to be shown."""

    @abstractmethod
    def show(self, observation: Observation) -> Seen:
        """Return the observation as arrays."""

    @abstractmethod
    def limit(self, number: int, observation: Observation) -> int:
        """Return the parallelism limit for limit number ``number`` of an action."""

    def decision(self, observation: Observation, seen: Seen, action: ArrayLike) -> Decision | None:
        """Return the decision of an action; a stage that must not be chosen means idling, see ``without_choice``."""
        stage, limit = np.asarray(action).tolist()
        row = int(seen.stages[stage]) if stage < len(seen.stages) else -1
        if row < 0:
            return without_choice(observation)
        held = observation.held(int(observation.stage_job[row]))
        return Decision(row, max(self.limit(limit, observation), held + 1))

    def _seen(self, arrays: Any, allowed: NDArray[np.int8], stages: NDArray[np.int64]) -> Seen:
        return Seen(arrays, (allowed.copy(), self._all_limits.copy()), stages)


#: A class of views, or another function from a cluster configuration to a view.
MakeView = Callable[[ClusterConfig], View]


class PaddedView(View):
    """All live jobs, their stages and edges, padded with zeros; ``ClusterEnv`` describes the arrays.

    Args:
        max_jobs: length of the arrays of live jobs.
        max_stages: length of the arrays of stages.
        max_edges: length of the arrays of edges; by default twice ``max_stages``.
        attributes: add arrays of the jobs' attributes: ``job_weight`` and ``job_deadline_left_ms``, float64 [max_jobs];
            ``job_tenant``, int32 [max_jobs], index in ``Observation.tenants``. Time until the deadline is 0 after the
            deadline, and the largest float without a deadline.

    Raises:
        ConfigError: a length is below 1.
    """

    def __init__(
        self,
        config: ClusterConfig,
        max_jobs: int = 10,
        max_stages: int = 200,
        max_edges: int | None = None,
        attributes: bool = False,
    ) -> None:
        check_instance(config, ClusterConfig, "config", ConfigError)
        self.jobs = check_whole(max_jobs, "max_jobs", ConfigError, 1)
        self.stages = check_whole(max_stages, "max_stages", ConfigError, 1)
        max_edges = 2 * self.stages if max_edges is None else max_edges
        self.edges = check_whole(max_edges, "max_edges", ConfigError, 1)
        self.attributes = attributes
        super().__init__(config, max_stages, config.num_executors)
        self.observation_space = self._space()

    def limit(self, number: int, observation: Observation) -> int:
        """Return ``number + 1``."""
        return number + 1

    def _space(self) -> spaces.Dict:
        def count(length: int, high: int = _MANY) -> spaces.Box:
            return spaces.Box(0, high, (length,), np.int32)

        def amount(length: int) -> spaces.Box:
            return spaces.Box(0.0, _MUCH, (length,), np.float64)

        num_executors, num_classes = self.config.num_executors, len(self.config.executor_classes)
        of_jobs: dict[str, spaces.Space[Any]] = {}
        if self.attributes:
            of_jobs = {name: amount(self.jobs) for name in ("job_weight", "job_deadline_left_ms")}
            of_jobs["job_tenant"] = count(self.jobs)
        return spaces.Dict(
            {
                **of_jobs,
                "time_ms": amount(1),
                "offered": count(1, high=num_executors),
                "executor_class": spaces.Discrete(num_classes),
                "source": spaces.Discrete(self.jobs + 1),
                "backlog": count(1),
                "job_mask": spaces.MultiBinary(self.jobs),
                "job_arrival_ms": amount(self.jobs),
                "job_executors": count(self.jobs, high=num_executors),
                "stage_mask": spaces.MultiBinary(self.stages),
                "stage_job": count(self.stages, high=self.jobs - 1),
                **{name: count(self.stages) for name in ("num_tasks", "remaining_tasks", "unclaimed_tasks")},
                "running_executors": count(self.stages, high=num_executors),
                **{name: amount(self.stages) for name in ("mean_task_ms", "cpu", "memory")},
                "class_executors": count(num_classes, high=num_executors),
                "class_free": count(num_classes, high=num_executors),
                "class_cpu": amount(num_classes),
                "class_memory": amount(num_classes),
                "edge_mask": spaces.MultiBinary(self.edges),
                "edge_parent": count(self.edges, high=self.stages - 1),
                "edge_child": count(self.edges, high=self.stages - 1),
                "action_mask": spaces.MultiBinary(self.stages + 1),
            }
        )

    def check(self, sequence: JobSequence) -> None:
        """Raise a ``ConfigError`` if some job has too many stages or edges."""
        for index, profile in enumerate(sequence.profiles):
            if profile.num_stages > self.stages or len(profile.edges) > self.edges:
                raise ConfigError(
                    f"job {index} ({profile.name}) has {profile.num_stages} stages and {len(profile.edges)}"
                    f" edges, there is only room for max_stages={self.stages} and max_edges={self.edges}"
                )

    def show(self, observation: Observation) -> Seen:
        """Return the observation as padded arrays."""
        jobs, stages, edges = self._fitting(observation)
        source = observation.source if 0 <= observation.source < jobs and observation.offered else self.jobs
        schedulable = observation.schedulable[:stages] & (observation.offered > 0)
        allowed = _padded(schedulable, self.stages + 1, np.int8)
        allowed[-1] = not observation.offered or may_idle(observation)
        classes = observation.classes
        arrays = {
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
            "action_mask": allowed,
        }
        if self.attributes:
            arrays |= {
                "job_weight": _padded(observation.job_weight[:jobs], self.jobs, np.float64),
                "job_deadline_left_ms": _padded(_deadline_left_ms(observation)[:jobs], self.jobs, np.float64),
                "job_tenant": _padded(observation.job_tenant[:jobs], self.jobs, np.int32),
            }
        rows = np.where(allowed[:-1] == 1, np.arange(self.stages), -1)
        return self._seen(arrays, allowed, rows)

    def _fitting(self, observation: Observation) -> tuple[int, int, NDArray[np.int64]]:
        """Return the number of live jobs that fit, the number of their stages, and their edges, int64 [E, 2]."""
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


class FlatView(View):
    """The schedulable stages in one vector, whose length does not depend on the cluster or the workload.

    **Observation**: float32 [5 + 8 n], or [5 + 10 n] with attributes; values from 0 to 4. First of the cluster:
    fraction of executors that are offered; number of live jobs; number of schedulable stages that are left out; work of
    the live jobs; whether idling is allowed. Then of each stage: 1; work of its job; work of the stage; unclaimed tasks
    divided by executors of the cluster, at most 4; mean duration of its tasks; fraction of executors that its job
    holds; whether its job is the source; whether its parents are complete. Zeros pad the vector. Work is mean duration
    times remaining tasks. Work, durations (in s) and numbers x are given as log(1 + x) / 5.

    Stages are sorted by the remaining work of their job, the least first, then in the order of the job's profile.
    Stages after the first n are left out and cannot be chosen.

    **Action**: limit number i is ceil((i + 1) / limits) of the executors; see ``View``.

    Args:
        stages: n, the number of stages in the vector.
        limits: number of limits.
        idle: whether executors may be left idle while some stage can be chosen.
        attributes: give each stage two more values: weight of its job, and time until the job's deadline, in s (0 after
            the deadline, 4 without one), both as log(1 + x) / 5.

    Raises:
        ConfigError: ``stages`` or ``limits`` is below 1.
    """

    GENERAL, EACH, MOST = 5, 8, 4.0

    def __init__(
        self,
        config: ClusterConfig,
        stages: int = 32,
        limits: int = 10,
        idle: bool = True,
        attributes: bool = False,
    ) -> None:
        self.stages = check_whole(stages, "stages", ConfigError, 1)
        self.limits = check_whole(limits, "limits", ConfigError, 1)
        super().__init__(config, stages, limits)
        self.idle, self.attributes = idle, attributes
        self.each = self.EACH + 2 * attributes
        shape = (self.GENERAL + self.each * stages,)
        self.observation_space = spaces.Box(0.0, self.MOST, shape, np.float32)

    def limit(self, number: int, observation: Observation) -> int:
        """Return ceil((number + 1) / limits) of the executors that are in the cluster now."""
        return -(-(number + 1) * observation.num_executors // self.limits)

    def show(self, observation: Observation) -> Seen:
        """Return the observation as a vector."""
        executors = max(1, observation.num_executors)
        work = observation.work_ms(observation.remaining_tasks) / 1000
        places = (
            np.flatnonzero(observation.schedulable) if observation.offered else np.zeros(0, dtype=np.int64)
        )
        jobs = observation.stage_job[places]
        order = np.argsort(work[jobs], kind="stable")[: self.stages]
        left_out = len(places) - len(order)
        places, jobs = places[order], jobs[order]
        allowed = np.zeros(self.stages + 1, dtype=np.int8)
        allowed[: len(places)] = 1
        allowed[-1] = not observation.offered or (self.idle and may_idle(observation))
        arrays = np.zeros(self.observation_space.shape or (), dtype=np.float32)
        arrays[: self.GENERAL] = (
            observation.offered / executors,
            _log_scaled(len(observation.jobs)),
            _log_scaled(left_out),
            _log_scaled(work.sum()),
            allowed[-1],
        )
        rows = arrays[self.GENERAL :].reshape(self.stages, self.each)[: len(places)]
        mean_s = observation.mean_task_ms[places] / 1000
        rows[:, 0] = 1
        rows[:, 1] = _log_scaled(work[jobs])
        rows[:, 2] = _log_scaled(observation.remaining_tasks[places] * mean_s)
        rows[:, 3] = observation.unclaimed_tasks[places] / executors
        rows[:, 4] = _log_scaled(mean_s)
        rows[:, 5] = observation.job_executors[jobs] / executors
        rows[:, 6] = jobs == observation.source
        rows[:, 7] = observation.ready_rank[places] >= 0
        if self.attributes:
            rows[:, 8] = _log_scaled(observation.job_weight[jobs])
            rows[:, 9] = _log_scaled(_deadline_left_ms(observation)[jobs] / 1000)
        np.clip(arrays, 0, self.MOST, out=arrays)
        stages = np.full(self.stages, -1, dtype=np.int64)
        stages[: len(places)] = places
        return self._seen(arrays, allowed, stages)


def _deadline_left_ms(observation: Observation) -> NDArray[np.float64]:
    """Return the time until each job's deadline, float64 [J], ms; the largest float without a deadline."""
    return np.asarray(np.clip(observation.job_deadline_ms - observation.time_ms, 0.0, _MUCH))


def _log_scaled(value: Any) -> Any:
    return np.log1p(value) / 5


def _padded(values: NDArray[Any], length: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Return an array of the given length: the values, then zeros."""
    array = np.zeros(length, dtype=dtype)
    array[: len(values)] = values
    return array
