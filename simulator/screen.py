"""What Gymnasium's ``render_mode`` asks of an environment: frames as arrays, or a window that follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import ConfigError

__all__ = ["METADATA", "Screen"]

METADATA: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 10}


class Screen:
    """Shows an environment as it was told to. Matplotlib is imported for the first window.

    Args:
        mode: ``"human"``: a window, which ``follow`` brings up to date; ``"rgb_array"``: frames; none: nothing.
        frame: what is to be seen now, uint8 [H, W, 3].

    Raises:
        ConfigError: another mode.
    """

    def __init__(self, mode: str | None, frame: Callable[[], NDArray[np.uint8]]) -> None:
        if mode is not None and mode not in METADATA["render_modes"]:
            expected = " or ".join(map(repr, METADATA["render_modes"]))
            raise ConfigError(f"unknown render_mode {mode!r}, expected {expected}")
        self._mode, self._frame = mode, frame
        self._figure: Any = None
        self._image: Any = None

    def render(self) -> NDArray[np.uint8] | None:
        """A frame, or nothing where a window shows it, or where nothing is shown."""
        if self._mode == "rgb_array":
            return self._frame()
        self.follow()
        return None

    def follow(self) -> None:
        """Bring the window up to date, if there is to be one."""
        if self._mode != "human":
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

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._figure is not None:
            from matplotlib import pyplot

            pyplot.close(self._figure)
            self._figure = self._image = None
