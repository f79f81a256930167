"""Vectors of environments, and the picture of a grid."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import matplotlib as mpl
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, VectorEnv

from simulator import ClusterConfig, ClusterEnv, ConfigError, GridEnv
from simulator.cluster.env import ClusterVectorEnv
from simulator.cluster.views import FlatView
from workloads import poisson_arrivals, synthetic_profiles

PROFILES = synthetic_profiles(8)


def few_jobs(seed: int) -> Any:
    """Return up to three jobs, so that episodes end at different times."""
    return poisson_arrivals(PROFILES, 1 + seed % 3, 10_000.0, seed)


CLUSTER = ClusterConfig(num_executors=5, max_time_ms=300_000.0)
#: Vector environment and single environment by name.
KINDS: dict[str, tuple[Callable[[int], VectorEnv[Any, Any, Any]], Callable[[], gymnasium.Env[Any, Any]]]] = {
    "padded cluster": (
        lambda n: ClusterVectorEnv(n, make_sequence=few_jobs, config=CLUSTER, max_jobs=2),
        lambda: ClusterEnv(few_jobs, CLUSTER, max_jobs=2),
    ),
    "flat cluster": (
        lambda n: ClusterVectorEnv(n, make_sequence=few_jobs, config=CLUSTER, view=FlatView),
        lambda: ClusterEnv(few_jobs, CLUSTER, view=FlatView),
    ),
}


def row(values: Any, place: int) -> Any:
    if isinstance(values, dict):
        return {name: each[place] for name, each in values.items()}
    if isinstance(values, tuple):
        return tuple(each[place] for each in values)
    return values[place]


def assert_same_record(one: Any, other: Any) -> None:
    for name in ("completion_ms", "task_executor"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("kind", KINDS)
def test_each_place_is_the_single_environment_step_by_step(kind: str) -> None:
    make_many, make_one = KINDS[kind]
    many, ones = make_many(4), [make_one() for _ in range(4)]
    shown, infos = many.reset(seed=20)
    last = [one.reset(seed=20 + place) for place, one in enumerate(ones)]
    over = np.zeros(4, dtype=bool)
    ended = truncations = 0
    ones[0].action_space.seed(3)
    for _ in range(150):
        for place in range(4):
            assert data_equivalence(row(shown, place), last[place][0], exact=True)
            assert data_equivalence(row(infos["action_mask"], place), last[place][-1]["action_mask"], exact=True)
        actions = np.array([ones[0].action_space.sample(each[-1]["action_mask"]) for each in last])
        shown, rewards, terminated, truncated, infos = many.step(actions)
        for place, one in enumerate(ones):
            if over[place]:  # the action is ignored
                last[place] = one.reset()  # type: ignore[assignment]
                assert (rewards[place], terminated[place], truncated[place]) == (0.0, False, False)
                continue
            step = one.step(actions[place])
            last[place] = step  # type: ignore[call-overload]
            assert step[1:4] == (rewards[place], terminated[place], truncated[place])
            if "outcome" in step[4]:
                assert infos["outcome"][place] == step[4]["outcome"]
            assert ("record" in step[4]) == bool(infos.get("_record", np.zeros(4, dtype=bool))[place])
            if "record" in step[4]:
                assert_same_record(infos["record"][place], step[4]["record"])
        over = terminated | truncated
        ended, truncations = ended + int(over.sum()), truncations + int(truncated.sum())
        assert many.observation_space.contains(shown)
    assert ended > 6
    assert truncations > 0
    masks = many.action_masks()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(masks[1], ones[1].action_masks())  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_keeps_its_memory_and_a_seed_names_all_that_follows(kind: str) -> None:
    many = KINDS[kind][0](3)
    shown, infos = many.reset(seed=[5, 6, 7])
    first = [shown, infos["action_mask"]]
    many.action_space.seed(0)
    actions = many.action_space.sample()
    then = many.step(actions)[:2]
    again = many.reset(seed=5)
    assert data_equivalence(first, [again[0], again[1]["action_mask"]], exact=True)
    assert data_equivalence(then, many.step(actions)[:2], exact=True)
    many.reset()  # other episodes, from the same generators
    assert many.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_calls_are_refused(kind: str) -> None:
    make = KINDS[kind][0]
    with pytest.raises(ConfigError, match="num_envs must be a whole number of at least 1, got 0"):
        make(0)
    many = make(2)
    with pytest.raises(ResetNeeded):
        many.step(many.action_space.sample())
    with pytest.raises(ValueError, match="expected 2 seeds, got 3"):
        many.reset(seed=[1, 2, 3])
    with pytest.raises(ConfigError, match="unknown option 'jobs' of reset"):
        many.reset(options={"jobs": 3})
    many.reset(seed=0)
    for wrong in ([0], [0.5, 0.5], np.full(many.action_space.shape or (), 10**6)):
        with pytest.raises(InvalidAction):
            many.step(np.array(wrong))


@pytest.mark.parametrize("name", ["decima/Cluster-v0", "decima/Grid-v0"])
def test_gymnasium_makes_them(name: str) -> None:
    many = gymnasium.make_vec(name, num_envs=2)
    assert isinstance(many, ClusterVectorEnv) == (name == "decima/Cluster-v0")
    many.reset(seed=1)
    many.step(many.action_space.sample())
    many.close()


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
