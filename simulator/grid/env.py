"""Gymnasium environments of the grid: one episode, or many that one call of compiled code steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction
from gymnasium.utils import seeding
from numpy.typing import ArrayLike, NDArray

from simulator.environments import RenderedEnv, SeededVectorEnv, begun
from simulator.grid import rules
from simulator.grid.config import GridConfig
from simulator.grid.grid import Grid, GridState, action_mask, check_jobs, record_of, settings_of, state_of
from simulator.grid.rules import BOOKED, EMPTY, NO_ROOM, OVER, VOID
from workloads.errors import ConfigError, check_callable, check_instance
from workloads.grid_jobs import DISTRIBUTIONS, JobSets, draw_jobs
from workloads.job import WorkloadError

#: Pixels of a frame for one cell of the picture, in each direction.
ENLARGED = 8
_OUTCOMES = {BOOKED: "booked", NO_ROOM: "no room", EMPTY: "empty", VOID: "void", OVER: "reset"}
#: Fields of the state that hold the jobs.
_JOBS = ("enter", "duration", "demand", "num_jobs")

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


class GridVectorEnv(SeededVectorEnv):
    """N environments, each with the same episodes as a ``GridEnv`` with its seed.

    ``reset(seed=s)`` gives environment n the seed s + n. The step after the end of an episode begins another episode
    with other jobs (Gymnasium's ``AutoresetMode.NEXT_STEP``): it ignores the action, and its reward is 0.

    Infos hold ``action_mask``, int8 [N, m * M + 1]; ``outcome``, a text for each environment; and, where ``_record``
    is true, ``record``, the ``GridRecord`` of an episode that just ended.

    Args:
        make_jobs: function from a seed to one set of jobs, always with the same number of steps; by default
            ``drawn_jobs``.
        config: the grid; by default ``GridConfig()``.
        copy: whether observations are copies; else the next step overwrites them.

    Raises:
        ConfigError: ``num_envs`` is below 1.
    """

    def __init__(
        self,
        num_envs: int,
        make_jobs: Callable[[int], JobSets] = drawn_jobs,
        config: GridConfig | None = None,
        *,
        copy: bool = True,
    ) -> None:
        single = GridEnv(make_jobs, config)
        super().__init__(num_envs, copy, single)
        self.config, self._make_jobs = single.config, make_jobs
        self._randoms: list[np.random.Generator] = []
        self._jobs: list[JobSets] = []
        self._begun: GridState | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin all episodes.

        Args:
            seed: seed of the first environment, or a seed for each environment.
            options: must be empty.

        Raises:
            WorkloadError: a set of jobs is too large for the grid, or differs in its number of steps.
            ConfigError: an option is given; none is known.
        """
        seeds = self._seeds(seed, options)
        self._randoms = [
            self._randoms[place] if each is None and self._randoms else seeding.np_random(each)[0]
            for place, each in enumerate(seeds)
        ]
        self._jobs = [self._draw(place) for place in range(self.num_envs)]
        self._settings = settings_of(self.config, self._jobs[0].steps)
        self._make_state(max(jobs.enter.shape[1] for jobs in self._jobs))
        rules.begin(self._state, self._settings)
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        return self._pictures(), self._results(np.full(self.num_envs, OVER, dtype=np.int8))

    def step(
        self, actions: ArrayLike
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carry out one action in each episode; begin a new episode where the last one has ended.

        Raises:
            ResetNeeded: no episode has begun.
            InvalidAction: the number of actions is not N, or an action is out of range.
        """
        state = self._state
        chosen = self._checked(actions)
        if not 0 <= chosen.min() <= chosen.max() < self.config.num_actions:
            raise InvalidAction(f"expected actions of {self.single_action_space}, got {chosen.tolist()}")
        rewards = np.zeros(self.num_envs)
        outcomes = np.empty(self.num_envs, dtype=np.int8)
        rules.act(state, self._settings, chosen.astype(np.int64, copy=False), rewards, outcomes)
        if self._over.any():
            self._begin(np.flatnonzero(self._over))
            state = self._state
        self._over = state.done.copy()
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        if self.config.drain and self.config.max_steps is not None:
            truncated = self._over & (state.clock > self.config.max_steps)
        return self._pictures(), rewards, self._over & ~truncated, truncated, self._results(outcomes)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the masks of allowed actions, bool [N, m * M + 1]: jobs that can be booked, and void.

        Raises:
            ResetNeeded: no episode has begun.
        """
        return action_mask(self._state, self._settings)

    @property
    def _state(self) -> GridState:
        return begun(self._begun)

    def _draw(self, place: int) -> JobSets:
        jobs = self._make_jobs(int(self._randoms[place].integers(2**31)))
        if len(jobs) != 1:
            raise WorkloadError(f"expected one set of jobs, got {len(jobs)}")
        if self._jobs and jobs.steps != self._jobs[0].steps:
            raise WorkloadError(f"expected jobs that enter in {self._jobs[0].steps} steps, got {jobs.steps}")
        check_jobs(self.config, jobs)
        return jobs

    def _make_state(self, most: int) -> None:
        """Create empty grids for the drawn jobs, with arrays for ``most`` jobs."""
        jobs = _joined(self._jobs, most)
        self._own = {name: getattr(jobs, name).copy() for name in _JOBS}
        shown = {name: values.view() for name, values in self._own.items()}
        for values in shown.values():
            values.flags.writeable = False  # as in a ``Grid``, so that no code is compiled twice
        self._begun = state_of(self.config, jobs)._replace(**shown)

    def _begin(self, places: NDArray[np.int64]) -> None:
        """Begin episodes with new jobs in the environments ``places``."""
        state = self._state
        for place in places.tolist():
            self._jobs[place] = self._draw(place)
        most = max(state.enter.shape[1], *(self._jobs[place].enter.shape[1] for place in places.tolist()))
        if most > state.enter.shape[1]:
            before = state
            self._make_state(most)
            state = self._state
            for name, old in before._asdict().items():
                if name not in (*_JOBS, "machine_weights"):
                    getattr(state, name)[tuple(map(slice, old.shape))] = old
        jobs = _joined([self._jobs[place] for place in places.tolist()], most)
        fresh = state_of(self.config, jobs)
        rules.begin(fresh, self._settings)
        for name, values in fresh._asdict().items():
            if name in _JOBS:
                self._own[name][places] = values
            elif name != "machine_weights":
                getattr(state, name)[places] = values

    def _pictures(self) -> Observation:
        pictures: Observation = self._state.picture
        return pictures.copy() if self._copy else pictures

    def _results(self, outcomes: NDArray[np.int8]) -> dict[str, Any]:
        records = {
            place: record_of(self.config, self._jobs[place], self._state, slice(place, place + 1))
            for place in np.flatnonzero(self._over).tolist()
        }
        names = np.array([_OUTCOMES[each] for each in outcomes.tolist()], dtype=object)
        return self._infos({"action_mask": self.action_masks().astype(np.int8), "outcome": names}, records)


def _joined(sets: Sequence[JobSets], most: int) -> JobSets:
    """Join sets of jobs, each padded to ``most`` jobs."""
    steps, resources = sets[0].steps, sets[0].num_resources
    enter = np.full((len(sets), most), steps, dtype=np.int32)
    duration = np.zeros((len(sets), most), dtype=np.int32)
    demand = np.zeros((len(sets), most, resources), dtype=np.int32)
    for place, jobs in enumerate(sets):
        room = jobs.enter.shape[1]
        enter[place, :room], duration[place, :room] = jobs.enter[0], jobs.duration[0]
        demand[place, :room] = jobs.demand[0]
    return JobSets(enter, duration, demand, np.concatenate([jobs.num_jobs for jobs in sets]), steps)
