"""Policies with Gymnasium's interface, learned by whatever library, as schedulers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from decima.schedulers.base import Scheduler, SchedulerError
from simulator.cluster.config import ClusterConfig
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.views import FlatView, MakeView, View, without_choice
from simulator.grid.grid import Grid

__all__ = ["GridPolicyScheduler", "Policy", "PolicyScheduler", "as_grid_scheduler", "as_scheduler"]

#: Observation and masks -> action.
Choose = Callable[[Any, NDArray[np.bool_]], ArrayLike]


class Predicts(Protocol):
    """A policy of Stable-Baselines3."""

    def predict(self, observation: Any, *, deterministic: bool) -> tuple[ArrayLike, Any]:
        """The action, and a state that is not kept; ``action_masks`` are given to who takes them."""


Policy = Predicts | Choose


def as_scheduler(policy: Policy, view: MakeView = FlatView) -> PolicyScheduler:
    """A scheduler that does what a policy says.

    The policy is either an object with ``predict(observation, action_masks=.., deterministic=True)``, such as
    MaskablePPO of sb3-contrib, which gives an action or a tuple that begins with one; or a function of observation and
    masks, bool [stages + 1 + limits], that gives an action. Without ``action_masks`` among its parameters, ``predict``
    is called without; what is not allowed then stands for idling.

    Args:
        policy: it.
        view: what it sees, and what its actions mean; as in the environment that it was trained in.

    Returns:
        A scheduler, for ``run_episode``; on the command line, a function ``name`` of a file ``mine.py`` that returns it
        is called ``mine:name``.

    Raises:
        SchedulerError: later, when an episode begins or an action is asked for: the policy is for other shapes.

    >>> from simulator import ClusterConfig, run_episode
    >>> from workloads import batch_arrivals, synthetic_profiles
    >>> first = as_scheduler(lambda observation, mask: (mask.argmax(), 9))  # the job with the least work, all executors
    >>> jobs = batch_arrivals(synthetic_profiles(5), 4, seed=1)
    >>> int(run_episode(ClusterConfig(num_executors=10), jobs, first).metrics()["completed_jobs"])
    4
    """
    return PolicyScheduler(_choice(policy), view, getattr(policy, "observation_space", None))


def as_grid_scheduler(policy: Policy) -> GridPolicyScheduler:
    """A scheduler of grids that does what a policy says, asked about many episodes at once.

    Args:
        policy: as in ``as_scheduler``; its observations are pictures [n, H, W] and its masks bool [n, m * M + 1], of n
            episodes in which a job can be booked, its actions whole numbers [n].

    Returns:
        A scheduler, for ``decima.evaluation.grid.evaluate`` and ``decima.schedulers.grid.play``.
    """
    return GridPolicyScheduler(_choice(policy))


def _choice(policy: Policy) -> Choose:
    """The policy as a function."""
    predict = getattr(policy, "predict", None)
    if predict is None:
        if not callable(policy):
            raise SchedulerError(
                f"expected a policy, a function or what can predict, got {type(policy).__name__}"
            )
        return policy
    parameters = inspect.signature(predict).parameters
    named = {"deterministic": True} if "deterministic" in parameters else {}
    masked = "action_masks" in parameters

    def choose(observation: Any, masks: NDArray[np.bool_]) -> ArrayLike:
        found = predict(observation, **named, **({"action_masks": masks} if masked else {}))
        return cast(ArrayLike, found[0] if isinstance(found, tuple) else found)

    return choose


class PolicyScheduler(Scheduler):
    """Asks a policy; see ``as_scheduler``.

    Args:
        choose: the policy.
        view: what it sees.
        expected: the observation space that it was trained in, if it is known.
    """

    learned = True

    def __init__(self, choose: Choose, view: MakeView, expected: Any = None) -> None:
        self._choose = choose
        self._make_view = view
        self._expected = expected
        self._view: View | None = None

    def reset(self, config: ClusterConfig) -> None:
        """An episode on this cluster begins.

        Raises:
            SchedulerError: the policy was trained on observations of other shapes.
        """
        self._view = self._make_view(config)
        shown = self._view.observation_space
        if self._expected is not None and self._expected != shown:
            raise SchedulerError(f"the policy expects {_short(self._expected)}, it is shown {_short(shown)}")

    def decide(self, observation: Observation) -> Decision | None:
        """What the policy says.

        Raises:
            SchedulerError: it says what is no action.
        """
        view = self._view
        if view is None:
            view = self._view = self._make_view(observation.config)
        seen = view.show(observation)
        if not seen.has_choice:
            return without_choice(observation)
        action = np.asarray(self._choose(seen.arrays, seen.action_masks))
        if not view.action_space.contains(action):
            raise SchedulerError(f"the policy gave {action!r}, expected an action of {view.action_space}")
        return view.decision(observation, seen, action)


class GridPolicyScheduler:
    """Asks a policy about many grids at once; see ``as_grid_scheduler``."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose

    def __call__(self, grid: Grid) -> NDArray[np.int64]:
        """The actions, int64 [N]; void where nothing can be booked.

        Raises:
            SchedulerError: the policy says what are no actions.
        """
        masks = grid.action_mask()
        asked = np.flatnonzero(masks[:, :-1].any(axis=1) & ~grid.done)
        actions = np.full(len(grid), grid.config.num_actions - 1, dtype=np.int64)
        if not asked.size:
            return actions
        chosen = np.asarray(self._choose(grid.pictures[asked], masks[asked]))
        right = chosen.shape == asked.shape and np.issubdtype(chosen.dtype, np.integer)
        if not right or chosen.min() < 0 or chosen.max() >= grid.config.num_actions:
            raise SchedulerError(
                f"the policy gave {chosen.dtype} {chosen.shape}, expected {len(asked)} whole numbers below "
                f"{grid.config.num_actions}"
            )
        actions[asked] = chosen
        return actions


def _short(space: Any) -> str:
    """One line about a space."""
    text = " ".join(str(space).split())
    return text if len(text) < 100 else f"{text[:97]}.."
