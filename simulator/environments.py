"""Base classes of the Gymnasium environments of clusters and grids: rendering, and vector environments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from workloads.errors import ConfigError, check_whole

_Kind = TypeVar("_Kind")
_Observation = TypeVar("_Observation")
_Action = TypeVar("_Action")


def begun(episode: _Kind | None) -> _Kind:
    """Return the current episode; raise ``ResetNeeded`` if there is none."""
    if episode is None:
        raise ResetNeeded("there is no episode yet: call reset() first")
    return episode


class RenderedEnv(gymnasium.Env[_Observation, _Action]):
    """Environment that renders frames as arrays or in a window. Matplotlib is imported for the first window.

    Args:
        render_mode: ``"human"``: a window, updated by ``_show``; ``"rgb_array"``: arrays; None: no frames.

    Raises:
        ConfigError: the mode is unknown.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            expected = " or ".join(map(repr, self.metadata["render_modes"]))
            raise ConfigError(f"unknown render_mode {render_mode!r}, expected {expected}")
        self.render_mode = render_mode
        self._figure: Any = None
        self._image: Any = None

    def _to_run(
        self, options: dict[str, Any] | None, name: str, kind: type[_Kind], make: Callable[[], Any]
    ) -> _Kind:
        """Return the jobs to run: the option ``name`` of ``reset``, the only one that is known, else ``make()``."""
        given = dict(options or {})
        jobs = given.pop(name, None)
        if given:
            raise ConfigError(f"unknown option {next(iter(given))!r} of reset, expected {name!r}")
        if not isinstance(jobs := make() if jobs is None else jobs, kind):
            raise ConfigError(f"expected {kind.__name__} to run, got {type(jobs).__name__}")
        return jobs

    def _check_action(self, action: Any, over: bool) -> None:
        """Raise if an action is not in the action space, or the episode is over."""
        if over:
            raise ResetNeeded("the episode is over: call reset() first")
        if not self.action_space.contains(action):
            raise InvalidAction(f"expected an action of {self.action_space}, got {action!r}")

    @abstractmethod
    def _frame(self) -> NDArray[np.uint8]:
        """Return the current frame, uint8 [H, W, 3]."""

    def render(self) -> NDArray[np.uint8] | None:
        """Return the current frame; None if a window shows the frame, or without a ``render_mode``.

        Raises:
            ResetNeeded: no episode has begun.
        """
        if self.render_mode == "rgb_array":
            return self._frame()
        self._show()
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._figure is not None:
            from matplotlib import pyplot

            pyplot.close(self._figure)
            self._figure = self._image = None

    def _show(self) -> None:
        """Show the current frame in the window, if ``render_mode`` is ``"human"``."""
        if self.render_mode != "human":
            return
        from matplotlib import pyplot

        frame = self._frame()
        if self._figure is None:
            height, width = frame.shape[:2]
            self._figure = pyplot.figure(figsize=(width / 80, height / 80), dpi=80)
            self._image = self._figure.add_axes((0, 0, 1, 1)).imshow(frame, aspect="auto")
            self._image.axes.set_axis_off()
            self._figure.show(warn=False)
        self._image.set_data(frame)
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()


class SeededVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """N environments with one seed each. The step after the end of an episode begins the next episode.

    Args:
        copy: whether observations are copies; else the next step overwrites them.
        single: an environment with the same spaces.

    Raises:
        ConfigError: ``num_envs`` is below 1.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, copy: bool, single: gymnasium.Env[Any, Any]) -> None:
        self.num_envs, self._copy = check_whole(num_envs, "num_envs", ConfigError, 1), copy

        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

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

    def _infos(self, of_all: Mapping[str, Any], records: Mapping[int, Any]) -> dict[str, Any]:
        """Return the infos: values of all environments, and records of environments whose episode has just ended."""
        everywhere = np.ones(self.num_envs, dtype=np.bool_)
        infos = dict(of_all) | {f"_{name}": everywhere for name in of_all}
        if records:
            infos["record"] = np.full(self.num_envs, None, dtype=object)
            infos["_record"] = np.zeros(self.num_envs, dtype=np.bool_)
            for index, record in records.items():
                infos["record"][index], infos["_record"][index] = record, True
        return infos
