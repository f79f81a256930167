"""``render_mode`` of both environments."""

import subprocess
import sys

import gymnasium
import matplotlib as mpl
import numpy as np
import pytest

from simulator import ClusterEnv, GridEnv
from workloads.errors import ConfigError

#: Name, shape of a frame, and number of steps after which the frame changes.
ENVIRONMENTS = [("decima/Cluster-v0", (320, 640, 3), 4), ("decima/Grid-v0", (160, 1784, 3), 20)]


@pytest.mark.parametrize(("name", "shape", "steps"), ENVIRONMENTS)
def test_frames_show_how_the_episode_goes_on(name: str, shape: tuple[int, ...], steps: int) -> None:
    env = gymnasium.make(name, render_mode="rgb_array")
    _, info = env.reset(seed=1)
    env.action_space.seed(1)
    frames = [env.render()]
    for _ in range(steps):
        *_, info = env.step(env.action_space.sample(info["action_mask"]))
        frames.append(env.render())
    assert all(isinstance(frame, np.ndarray) for frame in frames)
    assert {frame.shape for frame in frames} == {shape}
    assert {frame.dtype for frame in frames} == {np.dtype(np.uint8)}
    assert len({frame.tobytes() for frame in frames}) > 1
    assert {int(frame.max()) for frame in frames} == {255}
    env.close()


@pytest.mark.parametrize(("name", "shape", "steps"), ENVIRONMENTS)
def test_a_window_follows_and_closes(name: str, shape: tuple[int, ...], steps: int) -> None:
    mpl.use("agg")
    from matplotlib import pyplot

    env = gymnasium.make(name, render_mode="human")
    _, info = env.reset(seed=1)
    [number] = pyplot.get_fignums()
    seen = pyplot.figure(number).axes[0].images[0]
    before = np.asarray(seen.get_array()).copy()
    assert before.shape == shape
    env.action_space.seed(1)
    for _ in range(steps):
        *_, info = env.step(env.action_space.sample(info["action_mask"]))
    assert (np.asarray(seen.get_array()) != before).any()
    assert env.render() is None
    env.close()
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("environment", [ClusterEnv, GridEnv])
def test_other_modes_are_refused(environment: type[ClusterEnv | GridEnv]) -> None:
    with pytest.raises(ConfigError, match="unknown render_mode 'ansi', expected 'human' or 'rgb_array'"):
        environment(render_mode="ansi")


def test_matplotlib_is_imported_only_where_somebody_looks() -> None:
    make = "import sys, gymnasium, simulator; gymnasium.make('decima/Cluster-v0')"
    code = f"{make}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
