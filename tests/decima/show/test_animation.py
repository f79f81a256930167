"""An animation of schedules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from decima.show import animation
from tests.decima.episodes import episode


def test_schedules_grow_until_they_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animation, "FRAMES", 4)
    path = tmp_path / "two.gif"
    animation.write_animation(path, {"fair": episode(), "\x1b[31m": episode()})
    with Image.open(path) as picture:
        # Equal pictures in a row are one that stays.
        assert picture.n_frames == 4
        coloured = []
        for number in range(picture.n_frames):
            picture.seek(number)
            pixels = np.asarray(picture.convert("RGB"), dtype=int)
            coloured.append(int((np.ptp(pixels, axis=2) > 60).sum()))
    assert sorted(coloured) == coloured
    assert coloured[-1] > 5 * coloured[0]
