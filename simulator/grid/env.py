"""Gymnasium environment of the grid. ``simulator.grid.grid.Grid`` steps many episodes in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from simulator.environments import RenderedEnv, begun
from simulator.grid.config import GridConfig
from simulator.grid.grid import Grid
from simulator.grid.rules import BOOKED, EMPTY, NO_ROOM, OVER, VOID
from workloads.errors import ConfigError, check_callable, check_instance
from workloads.grid_jobs import DISTRIBUTIONS, JobSets, draw_jobs
from workloads.job import WorkloadError

#: Pixels of a frame for one cell of the picture, in each direction.
ENLARGED = 8
_OUTCOMES = {BOOKED: "booked", NO_ROOM: "no room", EMPTY: "empty", VOID: "void", OVER: "reset"}

Observation = NDArray[np.uint8] | NDArray[np.float32]


def drawn_jobs(seed: int) -> JobSets:
    """Draw one set of jobs that enter in 50 steps at 70 % load, like the public code."""
    return draw_jobs(DISTRIBUTIONS["code"], load=0.7, steps=50, sets=1, seed=seed)


class GridEnv(RenderedEnv[Observation, np.int64]):
    """One episode of a ``Grid`` as a Gymnasium environment.

    **Observation**: the picture, [H, W], see ``GridConfig``; uint8 of 0 and 1, or float32 in 0 .. 1 if coloured.

    **Action**: ``Discrete(m * M + 1)``: ``i * M + j`` books job j on machine i; the last action is void (a step
    passes). ``info["action_mask"]`` (int8) and ``action_masks`` (bool) mark void and jobs that can be booked.

    **Reward**: see ``GridConfig.objective``.

    **Termination**: all jobs are finished (without ``drain``: no more jobs can enter). **Truncation**: the clock
    exceeds ``max_steps``. At the end, ``info["record"]`` is the ``GridRecord``.

    Args:
        make_jobs: function from a seed to one set of jobs; by default ``drawn_jobs``.
        config: the grid; by default ``GridConfig()``.
        render_mode: ``"rgb_array"``: ``render`` returns the picture, dark on white and enlarged, uint8 [8 H, 8 W, 3];
            ``"human"``: a window shows the picture after every step.

    Raises:
        ConfigError: an argument has a wrong type, or the render mode is unknown.

    Examples:
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

    def __init__(
        self,
        make_jobs: Callable[[int], JobSets] = drawn_jobs,
        config: GridConfig | None = None,
        *,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        check_callable(make_jobs, "make_jobs", ConfigError)
        config = GridConfig() if config is None else config
        self.config = check_instance(config, GridConfig, "config", ConfigError)
        self._make_jobs = make_jobs
        dtype: Any = np.uint8 if self.config.picture == "binary" else np.float32
        self.observation_space = spaces.Box(0, 1, self.config.picture_shape, dtype)
        self.action_space = spaces.Discrete(self.config.num_actions)
        self._begun: Grid | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new episode.

        Args:
            seed: seed of the jobs of this and later episodes; by default random.
            options: ``{"jobs": JobSets}`` runs the given jobs.

        Raises:
            WorkloadError: there is not exactly one set of jobs, or a job is too large for the grid.
            ConfigError: an option is unknown, or the jobs are not ``JobSets``.
        """
        super().reset(seed=seed)
        jobs = self._to_run(
            options, "jobs", JobSets, lambda: self._make_jobs(int(self.np_random.integers(2**31)))
        )
        if len(jobs) != 1:
            raise WorkloadError(f"expected one set of jobs, got {len(jobs)}")
        self._begun = Grid(self.config, jobs)
        self._show()
        return self._picture(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Carry out one action.

        Raises:
            ResetNeeded: no episode is running.
            InvalidAction: the action is not in the action space.
        """
        self._check_action(action, bool(self._grid.done[0]))
        reward = float(self._grid.step(np.array([int(action)]))[0])
        done = bool(self._grid.done[0])
        most = self.config.max_steps
        truncated = done and self.config.drain and most is not None and int(self._grid.clock[0]) > most
        info = self._info()
        info["outcome"] = _OUTCOMES[int(self._grid.outcomes[0])]
        if done:
            info["record"] = self._grid.record()
        self._show()
        return self._picture(), reward, done and not truncated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of allowed actions, bool [m * M + 1]: jobs that can be booked, and void.

        Raises:
            ResetNeeded: no episode has begun.
        """
        return np.asarray(self._grid.action_mask()[0])

    @property
    def _grid(self) -> Grid:
        return begun(self._begun)

    def _frame(self) -> NDArray[np.uint8]:
        grey = np.rint(255 * (1 - self._picture().astype(np.float64))).astype(np.uint8)
        return np.repeat(grey.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)[..., None], 3, axis=2)

    def _picture(self) -> Observation:
        picture: Observation = self._grid.pictures[0].copy()
        return picture

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks().astype(np.int8)}
