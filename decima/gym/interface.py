"""Registered Gymnasium environments with fixed settings, and schedulers that wrap policies of other RL libraries.

The settings of an environment id never change; a change that alters trajectories gets a new version. Seeds are those
of ``decima compare``: ``reset(seed=7)`` of a cluster environment has the same jobs and task noise as its seed 7.
Wrapped policies are those of Stable-Baselines3, or any function of observations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from decima.schedulers.base import Kind, Scheduler, SchedulerError
from simulator.cluster.config import ClusterConfig
from simulator.cluster.env import ClusterEnv, ClusterVectorEnv
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.views import FlatView, MakeView, View, without_choice
from simulator.grid.config import GridConfig
from simulator.grid.env import GridEnv
from workloads.arrivals import JobSequence, batch_arrivals, poisson_arrivals
from workloads.grid_jobs import DISTRIBUTIONS, JobSets, draw_jobs
from workloads.sources.tpch import embedded_tpch

__all__ = [
    "Policy", "PolicyScheduler", "as_scheduler", "deeprm",
    "tpch_batch", "tpch_batch_vector", "tpch_stream", "tpch_stream_vector",
]  # fmt: skip

CLUSTER = ClusterConfig(num_executors=50, moving_delay_ms=2_000.0)
BATCH_JOBS, STREAM_JOBS, INTERVAL_MS = 20, 200, 25_000.0
LOAD, STEPS = 0.7, 50


def _batch(seed: int) -> JobSequence:
    return batch_arrivals(embedded_tpch(), BATCH_JOBS, seed)


def _stream(seed: int) -> JobSequence:
    return poisson_arrivals(embedded_tpch(), STREAM_JOBS, INTERVAL_MS, seed)


def _grid_jobs(seed: int) -> JobSets:
    return draw_jobs(DISTRIBUTIONS["code"], load=LOAD, steps=STEPS, sets=1, seed=seed)


def tpch_batch(**options: Any) -> ClusterEnv:
    """``decima/TPCHBatch-v0``: 20 measured TPC-H jobs at time 0 on 50 executors, moving delay 2 s; ``FlatView``.

    Args:
        options: ``view`` and ``render_mode`` of ``ClusterEnv``.
    """
    return ClusterEnv(_batch, CLUSTER, **{"view": FlatView, **options})


def tpch_batch_vector(num_envs: int, **options: Any) -> ClusterVectorEnv:
    """Vector environment of ``decima/TPCHBatch-v0``."""
    return ClusterVectorEnv(num_envs, make_sequence=_batch, config=CLUSTER, **{"view": FlatView, **options})


def tpch_stream(**options: Any) -> ClusterEnv:
    """``decima/TPCHStream-v0``: as ``TPCHBatch-v0``, but 200 jobs in a Poisson process, on average 25 s apart."""
    return ClusterEnv(_stream, CLUSTER, **{"view": FlatView, **options})


def tpch_stream_vector(num_envs: int, **options: Any) -> ClusterVectorEnv:
    """Vector environment of ``decima/TPCHStream-v0``."""
    return ClusterVectorEnv(num_envs, make_sequence=_stream, config=CLUSTER, **{"view": FlatView, **options})


def deeprm(**options: Any) -> GridEnv:
    """``decima/DeepRM-v0``: DeepRM's grid of 2 x 10 units; jobs of its published code arrive in 50 steps at 70 % load.

    Args:
        options: ``render_mode`` of ``GridEnv``.
    """
    return GridEnv(_grid_jobs, GridConfig(), **options)


#: Function that maps an observation and an action mask to an action.
Choose = Callable[[Any, NDArray[np.bool_]], ArrayLike]


class Predicts(Protocol):
    """Interface of policies of Stable-Baselines3."""

    def predict(self, observation: Any, *, deterministic: bool) -> tuple[ArrayLike, Any]:
        """Return an action, and a state, which is ignored. Takes the keyword ``action_masks`` if declared."""


Policy = Predicts | Choose


def as_scheduler(policy: Policy, view: MakeView = FlatView) -> PolicyScheduler:
    """Wrap a policy of another RL library as a scheduler.

    Args:
        policy: an object with ``predict(observation, action_masks=.., deterministic=True)``, such as MaskablePPO of
            sb3-contrib, that returns an action or a tuple whose first element is the action; or a function that maps
            an observation and an action mask, bool [stages + 1 + limits], to an action. If ``predict`` has no
            parameter ``action_masks``, an invalid action leaves the executors idle.
        view: view of the environment in which the policy was trained.

    Returns:
        A scheduler for ``run_episode``. On the command line, a function ``name`` of the file ``mine.py`` that
        returns it is called ``mine:name``.

    Raises:
        SchedulerError: the policy expects another observation space; raised at the start of an episode.

    Examples:
        >>> from simulator import ClusterConfig, run_episode
        >>> from workloads import batch_arrivals, synthetic_profiles
        >>> first = as_scheduler(lambda observation, mask: (mask.argmax(), 9))  # the job with the least work
        >>> jobs = batch_arrivals(synthetic_profiles(5), 4, seed=1)
        >>> int(run_episode(ClusterConfig(num_executors=10), jobs, first).metrics()["completed_jobs"])
        4
    """
    return PolicyScheduler(_choice(policy), view, getattr(policy, "observation_space", None))


def _choice(policy: Policy) -> Choose:
    """Return a policy as a function."""
    predict = getattr(policy, "predict", None)
    if predict is None:
        if not callable(policy):
            raise SchedulerError(
                f"expected a policy: a function, or an object with predict, got {type(policy).__name__}"
            )
        return policy
    parameters = inspect.signature(predict).parameters
    named = {"deterministic": True} if "deterministic" in parameters else {}
    masked = "action_masks" in parameters

    def choose(observation: Any, masks: NDArray[np.bool_]) -> ArrayLike:
        prediction = predict(observation, **named, **({"action_masks": masks} if masked else {}))
        return cast(ArrayLike, prediction[0] if isinstance(prediction, tuple) else prediction)

    return choose


class PolicyScheduler(Scheduler):
    """Scheduler that follows a policy; see ``as_scheduler``.

    Args:
        choose: the policy as a function.
        view: view of the environment in which it was trained.
        expected: observation space of the policy, if known.
    """

    kind = Kind.NETWORK

    def __init__(self, choose: Choose, view: MakeView, expected: Any = None) -> None:
        self._choose = choose
        self._make_view = view
        self._expected = expected
        self._view: View | None = None

    def reset(self, config: ClusterConfig) -> None:
        """Start an episode.

        Raises:
            SchedulerError: the policy expects another observation space.
        """
        self._view = self._make_view(config)
        shown = self._view.observation_space
        if self._expected is not None and self._expected != shown:
            raise SchedulerError(f"the policy expects {_short(self._expected)}, but observes {_short(shown)}")

    def decide(self, observation: Observation) -> Decision | None:
        """Return the policy's decision.

        Raises:
            SchedulerError: the policy returned an action outside the view's action space.
        """
        view = self._view
        if view is None:
            view = self._view = self._make_view(observation.config)
        seen = view.show(observation)
        if not seen.has_choice:
            return without_choice(observation)
        action = np.asarray(self._choose(seen.arrays, seen.action_masks))
        if not view.action_space.contains(action):
            raise SchedulerError(f"the policy returned {action!r}, expected an action of {view.action_space}")
        return view.decision(observation, seen, action)


def _short(space: Any) -> str:
    """Describe an observation space in one short line."""
    text = " ".join(str(space).split())
    return text if len(text) < 100 else f"{text[:97]}.."
