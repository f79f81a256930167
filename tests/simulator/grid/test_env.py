"""Gymnasium environment of the grid: its interface, and consistency with the grid."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from numpy.typing import NDArray

from simulator.grid import Grid, GridConfig, GridEnv
from simulator.grid.env import drawn_jobs
from tests.cases import cases
from tests.simulator.grid.build import SMALL, VOID
from tests.simulator.grid.naive import Written
from workloads import JobSets, WorkloadError
from workloads.errors import ConfigError


def environment(*jobs: Written, steps: int = 10, **changes: Any) -> GridEnv:
    """Return the environment of a small grid with the same jobs for any seed; options are changes."""
    return GridEnv(lambda seed: JobSets.of([jobs], steps), GridConfig(**SMALL | changes))


def do(env: GridEnv, *actions: int) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
    """Return the result of the last of some actions."""
    for action in actions:
        step = env.step(np.int64(action % env.config.num_actions))
    return step


@cases(
    "config",
    GridConfig(),
    GridConfig(picture="coloured"),
    GridConfig(arrival_column=True, machines=2, max_steps=9, objective="completion"),
    ids=["default", "coloured", "other"],
)
def test_gymnasiums_checker_finds_nothing(config: GridConfig) -> None:
    check_env(gymnasium.make("decima/Grid-v0", config=config).unwrapped)


def test_vectors_and_seeds_of_episodes() -> None:
    envs = gymnasium.make_vec("decima/Grid-v0", num_envs=2)
    pictures, infos = envs.reset(seed=[1, 2])
    assert pictures.shape == (2, 20, 223)
    assert infos["action_mask"].shape == (2, 11)
    envs.step(envs.action_space.sample())
    envs.close()
    steps = trajectory(GridEnv(), 400, seed=3)
    assert sum(len(step) == 2 for step in steps) > 2, "no second episode"
    assert data_equivalence(steps, trajectory(GridEnv(), 400, seed=3), exact=True)
    assert data_equivalence(steps, trajectory(gymnasium.make("decima/Grid-v0"), 400, seed=3), exact=True)
    seeds: list[int] = []

    def make_jobs(seed: int) -> JobSets:
        seeds.append(seed)
        return drawn_jobs(seed)

    env = GridEnv(make_jobs)
    for reset in ({"seed": 1}, {}, {}, {"seed": 1}, {"seed": 2}):
        env.reset(**reset)
    assert seeds[3] == seeds[0]
    assert len(set(seeds)) == 4
    assert drawn_jobs(5).load(10).tolist() == drawn_jobs(5).load(10).tolist() != drawn_jobs(6).load(10).tolist()


def trajectory(env: gymnasium.Env[Any, Any], num_steps: int, **reset: Any) -> list[Any]:
    env.action_space.seed(0)
    steps: list[Any] = [env.reset(**reset)]
    for _ in range(num_steps):
        steps.append(env.step(env.action_space.sample(steps[-1][-1]["action_mask"])))
        if steps[-1][2] or steps[-1][3]:
            record = steps[-1][4].pop("record")
            steps[-1][4]["start"] = record.start
            steps.append(env.reset())
    return steps


def test_steps_are_those_of_the_grid() -> None:
    jobs = drawn_jobs(1)
    env = GridEnv(lambda seed: jobs)
    env.action_space.seed(1)
    picture, info = env.reset(seed=1)
    grid = Grid(env.config, jobs)
    while not grid.done[0]:
        np.testing.assert_array_equal(picture, grid.pictures[0])
        assert info["action_mask"].tolist() == env.action_masks().tolist() == grid.action_mask()[0].tolist()
        action = env.action_space.sample(info["action_mask"])
        picture, reward, terminated, truncated, info = env.step(action)
        assert reward == grid.step([action])[0]
        assert terminated == bool(grid.done[0])
        assert not truncated
        assert ("record" in info) == terminated
    np.testing.assert_array_equal(info["record"].start, grid.record().start)


def test_outcomes_and_pictures_of_actions() -> None:
    env = environment((0, 3, (3,)), (0, 4, (3,)))
    env.reset(seed=0)
    outcomes = [do(env, action)[4]["outcome"] for action in (0, 0, 1, VOID)]
    assert outcomes == ["booked", "empty", "no room", "void"]
    env = environment((0, 1, (1,)))
    picture, _ = env.reset(seed=0)
    before = picture.copy()
    do(env, 0, VOID)
    np.testing.assert_array_equal(picture, before)
    env = environment((0, 1, (1,)))
    env.reset(seed=0)
    assert env.step(True)[4]["outcome"] == "empty"  # type: ignore[arg-type]  # slot 1


@cases(
    "changes, terminated",
    ({"max_steps": 2}, False), ({"max_steps": 3}, True), ({"drain": False, "max_steps": 2}, True), ({}, True),
)  # fmt: skip
def test_an_episode_is_truncated_when_its_steps_are_over_and_else_terminates(
    changes: dict[str, Any], terminated: bool
) -> None:
    env = environment((1, 2, (1,)), steps=3, **changes)
    env.reset(seed=0)
    assert do(env, VOID, 0, VOID)[2:4] == (False, False)
    *_, info = step = do(env, VOID)
    assert step[2:4] == (terminated, not terminated)
    assert info["record"].start.tolist() == [[1]]
    with pytest.raises(ResetNeeded, match="the episode is over"):
        do(env, VOID)
    env.reset()
    do(env, VOID)


def test_own_jobs_and_steps_before_an_episode() -> None:
    env = environment((0, 1, (1,)))
    own = JobSets.of([[(0, 3, (1,))]], 10)
    env.reset(seed=0, options={"jobs": own})
    assert do(env, 0, VOID, VOID, VOID)[4]["record"].completion.tolist() == [[3]]
    env.reset(seed=0)
    assert do(env, 0, VOID)[4]["record"].completion.tolist() == [[1]]
    env = GridEnv()
    with pytest.raises(ResetNeeded, match="there is no episode yet"):
        env.step(np.int64(0))
    with pytest.raises(ResetNeeded, match="there is no episode yet"):
        env.action_masks()


@pytest.mark.parametrize("action", [4, -1, 0.5, None, "void", np.array([0])])
def test_what_is_no_action_is_refused(action: Any) -> None:
    env = environment((0, 1, (1,)))
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"^expected an action of Discrete\(4\), got"):
        env.step(action)
    assert do(env, 0)[4]["outcome"] == "booked"


@cases(
    "sets, message",
    ([[(0, 1, (1,))]] * 2, "expected one set of jobs, got 2"),
    ([[(0, 9, (1,))]], "job 0 of set 0 lasts 9 steps"),
)
def test_jobs_that_cannot_be_run_are_refused(sets: list[list[Written]], message: str) -> None:
    env = GridEnv(lambda seed: JobSets.of(sets, 1), GridConfig(**SMALL))
    with pytest.raises(WorkloadError, match=message):
        env.reset(seed=0)


@cases(
    "options, message",
    ({"sequence": None}, "unknown option 'sequence' of reset, expected 'jobs'"),
    ({"jobs": [1]}, "expected JobSets to run, got list"),
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        environment((0, 1, (1,))).reset(seed=0, options=options)
