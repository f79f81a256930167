"""Base class of the Gymnasium environments of clusters and grids: options of ``reset``, and rendering."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from numpy.typing import NDArray

from workloads.errors import ConfigError

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
