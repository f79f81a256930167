"""Many grids as one Gymnasium vector environment: one call of compiled code steps all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from simulator.errors import ConfigError
from simulator.grid import rules
from simulator.grid.config import GridConfig
from simulator.grid.env import GridEnv, Observation, drawn_jobs
from simulator.grid.grid import action_mask, check_jobs
from simulator.grid.rules import BOOKED, EMPTY, NO_ROOM, OVER, VOID
from simulator.grid.state import GridState, record_of, settings_of, state_of
from simulator.vector import VECTOR_METADATA, each_seed, generators
from workloads.errors import check_whole
from workloads.grid_jobs import JobSets
from workloads.job import WorkloadError

__all__ = ["GridVectorEnv"]

#: Arrays of the state that hold the jobs.
_JOBS = ("enter", "duration", "demand", "num_jobs")
_OUTCOMES = np.empty(5, dtype=object)
_OUTCOMES[[BOOKED, NO_ROOM, EMPTY, VOID, OVER]] = "booked", "no room", "empty", "void", "reset"


class GridVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """N environments, each with the same episodes as a ``GridEnv`` of its seed.

    ``reset(seed=s)`` gives environment n the seed s + n. The step after the end of an episode begins another one with
    other jobs (Gymnasium's ``AutoresetMode.NEXT_STEP``): it ignores the action and has the reward 0.

    Infos hold ``action_mask``, int8 [N, m * M + 1]; ``outcome``, a text for each environment; and, where ``_record``
    is true, ``record``, the ``GridRecord`` of an episode that just ended.

    Args:
        num_envs: number of environments, N.
        make_jobs: seed -> one set of jobs, all with the same number of steps; by default ``drawn_jobs``.
        config: the grid; by default ``GridConfig()``.
        copy: whether observations are copies; else the next step overwrites them.

    Raises:
        ConfigError: ``num_envs`` is below 1.
    """

    metadata = VECTOR_METADATA

    def __init__(
        self,
        num_envs: int,
        make_jobs: Callable[[int], JobSets] = drawn_jobs,
        config: GridConfig | None = None,
        *,
        copy: bool = True,
    ) -> None:
        if check_whole(num_envs, "num_envs", ConfigError) < 1:
            raise ConfigError(f"expected at least one environment, got {num_envs}")
        single = GridEnv(make_jobs, config)
        self.num_envs, self.config, self._make_jobs, self._copy = num_envs, single.config, make_jobs, copy
        self.single_observation_space, self.single_action_space = (
            single.observation_space,
            single.action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._randoms: list[np.random.Generator] = []
        self._jobs: list[JobSets] = []
        self._state: GridState | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin all episodes.

        Args:
            seed: seed of the first environment, or of each.
            options: not used.

        Raises:
            WorkloadError: more or fewer than one set of jobs, jobs too large for the grid, or other numbers of steps.
            ConfigError: an unknown option.
        """
        if options:
            raise ConfigError(f"unknown option {next(iter(options))!r} of reset, expected none")
        self._randoms = generators(each_seed(seed, self.num_envs), self._randoms)
        self._jobs = [self._draw(place) for place in range(self.num_envs)]
        self._settings = settings_of(self.config, self._jobs[0].steps)
        self._make_state(max(jobs.enter.shape[1] for jobs in self._jobs))
        assert self._state is not None
        rules.begin(self._state, self._settings)
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        return self._pictures(), self._infos(np.full(self.num_envs, OVER, dtype=np.int8))

    def step(
        self, actions: ArrayLike
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carry out one action in each episode, or begin it anew.

        Raises:
            ResetNeeded: no episode was begun.
            InvalidAction: the number of actions is not N, or one is out of range.
        """
        state = self._state
        if state is None:
            raise ResetNeeded("no episode is under way")
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,) or not np.issubdtype(chosen.dtype, np.integer):
            raise InvalidAction(f"expected {self.num_envs} actions, got {chosen.dtype} {chosen.shape}")
        if not 0 <= chosen.min() <= chosen.max() < self.config.num_actions:
            raise InvalidAction(f"expected actions of {self.single_action_space}, got {chosen.tolist()}")
        rewards = np.zeros(self.num_envs)
        outcomes = np.empty(self.num_envs, dtype=np.int8)
        rules.act(state, self._settings, chosen.astype(np.int64, copy=False), rewards, outcomes)
        if self._over.any():
            self._begin(np.flatnonzero(self._over))
            state = self._state
            assert state is not None
        self._over = state.done.copy()
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        if self.config.drain and self.config.max_steps is not None:
            truncated = self._over & (state.clock > self.config.max_steps)
        return self._pictures(), rewards, self._over & ~truncated, truncated, self._infos(outcomes)

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the masks of void and the jobs that can be booked, bool [N, m * M + 1].

        Raises:
            ResetNeeded: no episode was begun.
        """
        if self._state is None:
            raise ResetNeeded("no episode is under way")
        return action_mask(self._state, self._settings)

    def _draw(self, place: int) -> JobSets:
        jobs = self._make_jobs(int(self._randoms[place].integers(2**31)))
        if len(jobs) != 1:
            raise WorkloadError(f"expected one set of jobs, got {len(jobs)}")
        if self._jobs and jobs.steps != self._jobs[0].steps:
            raise WorkloadError(f"expected jobs that enter in {self._jobs[0].steps} steps, got {jobs.steps}")
        check_jobs(self.config, jobs)
        return jobs

    def _make_state(self, most: int) -> None:
        """Make empty grids for the jobs, each with room for ``most`` jobs."""
        jobs = _joined(self._jobs, most)
        self._own = {name: getattr(jobs, name).copy() for name in _JOBS}
        shown = {name: values.view() for name, values in self._own.items()}
        for values in shown.values():
            values.flags.writeable = False  # as in a ``Grid``, so that no code is compiled twice
        self._state = state_of(self.config, jobs)._replace(**shown)

    def _begin(self, places: NDArray[np.int64]) -> None:
        """Begin episodes with other jobs."""
        state = self._state
        assert state is not None
        for place in places.tolist():
            self._jobs[place] = self._draw(place)
        most = max(state.enter.shape[1], *(self._jobs[place].enter.shape[1] for place in places.tolist()))
        if most > state.enter.shape[1]:
            before = state
            self._make_state(most)
            state = self._state
            assert state is not None
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
        assert self._state is not None
        pictures: Observation = self._state.picture
        return pictures.copy() if self._copy else pictures

    def _infos(self, outcomes: NDArray[np.int8]) -> dict[str, Any]:
        everywhere = np.ones(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {
            "action_mask": self.action_masks().astype(np.int8),
            "_action_mask": everywhere,
            "outcome": _OUTCOMES[outcomes],
            "_outcome": everywhere,
        }
        if self._over.any():
            assert self._state is not None
            infos["record"] = np.full(self.num_envs, None, dtype=object)
            infos["_record"] = self._over.copy()
            for place in np.flatnonzero(self._over).tolist():
                one = slice(place, place + 1)
                infos["record"][place] = record_of(self.config, self._jobs[place], self._state, one)
        return infos


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
