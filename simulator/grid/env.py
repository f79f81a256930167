"""One grid as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction, ResetNeeded
from numpy.typing import NDArray

from simulator.errors import ConfigError
from simulator.grid.config import GridConfig
from simulator.grid.grid import Grid
from simulator.grid.rules import BOOKED, EMPTY, NO_ROOM, VOID
from simulator.screen import METADATA, Screen
from workloads.errors import check_callable, check_instance
from workloads.grid_jobs import DISTRIBUTIONS, JobSets, draw_jobs
from workloads.job import WorkloadError

__all__ = ["GridEnv", "drawn_jobs"]


#: Pixels of a frame for one cell of the picture, each way.
ENLARGED = 8

_OUTCOMES = {BOOKED: "booked", NO_ROOM: "no room", EMPTY: "empty", VOID: "void"}

Observation = NDArray[np.uint8] | NDArray[np.float32]


def drawn_jobs(seed: int) -> JobSets:
    """Draw one set of jobs that enter in 50 steps at 70 % load, as the public code does."""
    return draw_jobs(DISTRIBUTIONS["code"], load=0.7, steps=50, sets=1, seed=seed)


class GridEnv(gymnasium.Env[Observation, np.int64]):
    """One episode of a ``Grid``.

    **Observation**: the picture, [H, W], see ``GridConfig``; uint8 of 0 and 1, or float32 in 0 .. 1 if coloured.

    **Action**: ``Discrete(m * M + 1)``: ``i * M + j`` books job j on machine i; the last is void.
    ``info["action_mask"]`` (int8) and :meth:`action_masks` (bool) mark void and the jobs that can be booked.

    **Reward**: see ``GridConfig.objective``.

    **Termination**: all jobs are finished (or, without ``drain``, no more can enter). **Truncation**: the clock
    passed ``max_steps``. At the end, ``info["record"]`` is the ``GridRecord``.

    Args:
        make_jobs: seed -> one set of jobs; by default ``drawn_jobs``.
        config: the grid; by default ``GridConfig()``.
        render_mode: ``"rgb_array"``: ``render`` returns the picture, dark on white and enlarged, uint8 [8 H, 8 W, 3];
            ``"human"``: a window shows it after every step.

    Raises:
        ConfigError: unknown render mode.

    >>> import gymnasium
    >>> import simulator
    >>> env = gymnasium.make("decima/Grid-v0")
    >>> observation, info = env.reset(seed=1)
    >>> observation.shape, env.action_space
    ((20, 223), Discrete(11))
    >>> total, over = 0.0, False
    >>> while not over:
    ...     action = env.action_space.sample(info["action_mask"])
    ...     observation, reward, terminated, truncated, info = env.step(action)
    ...     total, over = total + reward, terminated or truncated
    >>> bool(abs(total + np.nansum(info["record"].slowdown())) < 1e-9)
    True
    """

    metadata = METADATA

    def __init__(
        self,
        make_jobs: Callable[[int], JobSets] = drawn_jobs,
        config: GridConfig | None = None,
        *,
        render_mode: str | None = None,
    ) -> None:
        check_callable(make_jobs, "make_jobs", ConfigError)
        self.config = (
            GridConfig() if config is None else check_instance(config, GridConfig, "config", ConfigError)
        )
        self._make_jobs = make_jobs
        dtype: Any = np.uint8 if self.config.picture == "binary" else np.float32
        self.observation_space = spaces.Box(0, 1, self.config.picture_shape, dtype)
        self.action_space = spaces.Discrete(self.config.num_actions)
        self._grid: Grid | None = None
        self.render_mode = render_mode
        self._screen = Screen(render_mode, self._frame)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: seed of the jobs of this and the following episodes; by default random.
            options: ``{"jobs": JobSets}`` runs these jobs.

        Raises:
            WorkloadError: more or fewer than one set of jobs, or jobs too large for the grid.
            ConfigError: an unknown option, or jobs that are not ``JobSets``.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        jobs = options.pop("jobs", None)
        if options:
            raise ConfigError(f"unknown option {next(iter(options))!r} of reset, expected 'jobs'")
        if jobs is None:
            jobs = self._make_jobs(int(self.np_random.integers(2**31)))
        if not isinstance(jobs, JobSets):
            raise ConfigError(f"expected JobSets to run, got {type(jobs).__name__}")
        if len(jobs) != 1:
            raise WorkloadError(f"expected one set of jobs, got {len(jobs)}")
        self._grid = Grid(self.config, jobs)
        self._screen.follow()
        return self._picture(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out one action.

        Raises:
            ResetNeeded: no episode is under way.
            InvalidAction: the action is not in the action space.
        """
        if self._grid is None or bool(self._grid.done[0]):
            raise ResetNeeded("no episode is under way")
        if not self.action_space.contains(action):
            raise InvalidAction(f"expected an action of {self.action_space}, got {action!r}")
        reward = float(self._grid.step(np.array([int(action)]))[0])
        done = bool(self._grid.done[0])
        most = self.config.max_steps
        truncated = done and self.config.drain and most is not None and int(self._grid.clock[0]) > most
        info = self._info()
        info["outcome"] = _OUTCOMES[int(self._grid.outcomes[0])]
        if done:
            info["record"] = self._grid.record()
        self._screen.follow()
        return self._picture(), reward, done and not truncated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of void and the jobs that can be booked, bool [m * M + 1].

        Raises:
            ResetNeeded: no episode was begun.
        """
        if self._grid is None:
            raise ResetNeeded("no episode is under way")
        mask: NDArray[np.bool_] = self._grid.action_mask()[0]
        return mask

    def render(self) -> NDArray[np.uint8] | None:
        """Return the picture, see ``render_mode``.

        Raises:
            ResetNeeded: no episode was begun.
        """
        return self._screen.render()

    def close(self) -> None:
        """Close the window, if there is one."""
        self._screen.close()

    def _frame(self) -> NDArray[np.uint8]:
        if self._grid is None:
            raise ResetNeeded("no episode is under way")
        grey = np.rint(255 * (1 - self._picture().astype(np.float64))).astype(np.uint8)
        return np.repeat(grey.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)[..., None], 3, axis=2)

    def _picture(self) -> Observation:
        assert self._grid is not None
        picture: Observation = self._grid.pictures[0].copy()
        return picture

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks().astype(np.int8)}
