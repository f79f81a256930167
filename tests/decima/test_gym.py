"""Policies of other RL libraries as schedulers, and registered Gymnasium environments."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from decima.cli.main import cli
from decima.evaluation.conditions import Conditions
from decima.gym import IDS, as_scheduler
from decima.schedulers.base import SchedulerError
from simulator import DECIMA_SIM, ClusterConfig, ClusterEnv, ExecutorClass, run_episode
from simulator.cluster.views import FlatView, MakeView, PaddedView
from tests.cases import cases
from tests.decima.cli.commands import assert_one_line_error
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads import embedded_tpch, open_workload, poisson_arrivals, synthetic_profiles
from workloads.attributes import JobAttributes, Tenant

ROOT = Path(__file__).parents[2]
PROFILES = synthetic_profiles(10)
DIAMOND = job(stage(9, 100.0), stage(3, 50.0), stage(4, 80.0), stage(2, 30.0), edges=[(0, 1), (0, 2), (1, 3), (2, 3)])
FEW = ClusterConfig(num_executors=8)

Choose = Callable[[Any, NDArray[np.bool_]], Any]


def anything(seed: int, stages: int) -> Choose:
    """Sample a valid action."""
    random = np.random.default_rng(seed)

    def choose(observation: Any, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.array([random.choice(np.flatnonzero(each)) for each in np.split(mask, [stages + 1])])

    return choose


class Predicting:
    """A policy with the interface of Stable-Baselines3."""

    def __init__(self, choose: Choose, space: Any = None) -> None:
        self.choose = choose
        self.observation_space = space

    def predict(
        self, observation: Any, state: Any = None, deterministic: bool = False, action_masks: Any = None
    ) -> tuple[Any, None]:
        assert deterministic
        return self.choose(observation, action_masks), None


class Maskless:
    def predict(self, observation: Any, state: Any = None, deterministic: bool = False) -> tuple[Any, None]:
        return np.array([0, 3]), None


@cases("view, stages", (FlatView, 32), (lambda config: FlatView(config, 3, 4), 3), (PaddedView, 200))
@pytest.mark.parametrize("config", [FEW, ClusterConfig(num_executors=8, semantics=DECIMA_SIM)])
def test_a_policy_does_as_a_scheduler_what_it_does_in_the_environment(
    config: ClusterConfig, view: MakeView, stages: int
) -> None:
    sequence = poisson_arrivals(PROFILES, 6, 15_000.0, seed=4)
    env = ClusterEnv(config=config, view=view)
    choose = anything(7, stages)
    observation, _ = env.reset(options={"sequence": sequence})
    over = False
    while not over:
        assert env.observation_space.contains(observation)
        observation, _, over, _, info = env.step(choose(observation, env.action_masks()))
    record = run_episode(config, sequence, as_scheduler(Predicting(anything(7, stages)), view))
    np.testing.assert_array_equal(record.completion_ms, info["record"].completion_ms)
    np.testing.assert_array_equal(record.task_executor, info["record"].task_executor)


def test_views_show_attributes() -> None:
    """Weights, and the time until deadlines 2 and 7 s after the arrival at 0; the third job has none."""
    attributes = (JobAttributes(4.0, 2000.0, tenant="b"), JobAttributes(1.0, 7000.0), JobAttributes(9.0))
    three = jobs(*[job(stage(4, 1000.0 * (each + 1))) for each in range(3)])
    sequence = replace(three, attributes=attributes, tenants=(Tenant("default"), Tenant("b")))
    padded = ClusterEnv(config=FEW, view=lambda config: PaddedView(config, 4, attributes=True))
    observation, _ = padded.reset(options={"sequence": sequence})
    assert padded.observation_space.contains(observation)
    assert observation["job_weight"].tolist() == [4, 1, 9, 0]
    assert observation["job_deadline_left_ms"][:2].tolist() == [2000, 7000]
    assert observation["job_deadline_left_ms"][2] > 1e300
    assert observation["job_tenant"].tolist() == [1, 0, 0, 0]
    assert "job_weight" not in ClusterEnv(config=FEW, view=PaddedView).observation_space.spaces

    flat = ClusterEnv(config=FEW, view=lambda config: FlatView(config, 4, attributes=True))
    observation, _ = flat.reset(options={"sequence": sequence})
    assert flat.observation_space.contains(observation)
    rows = observation[5:].reshape(4, 10)
    np.testing.assert_allclose(rows[:3, 8], np.log1p([4, 1, 9]) / 5, rtol=1e-6)
    np.testing.assert_allclose(rows[:, 9], [*(np.log1p([2, 7]) / 5), 4, 0], rtol=1e-6)


def test_a_policy_without_masks_idles_where_its_choice_is_not_allowed() -> None:
    record = run_episode(FEW, jobs(chain(stage(4, 200.0), stage(8, 20.0))), as_scheduler(Maskless()))
    assert not np.isnan(record.completion_ms).any()


def test_the_flat_view_shows_stages_by_the_work_of_their_job() -> None:
    long = job(stage(8, 3_000.0), stage(2, 1_000.0))
    short = job(stage(4, 1_000.0), stage(1, 500.0), edges=[(0, 1)])
    env = ClusterEnv(lambda seed: jobs(long, short), FEW, view=lambda config: FlatView(config, 2, 4))
    observation, info = env.reset(seed=0)
    graded = [pytest.approx(np.log1p(value) / 5) for value in (2, 1, 4.5 + 26)]
    assert observation[:5].tolist() == [1.0, *graded, 1.0]
    rows = observation[5:].reshape(2, 8)
    work = [pytest.approx(np.log1p(value) / 5) for value in (4.5, 4.0, 26.0, 24.0)]
    mean = [pytest.approx(np.log1p(value) / 5) for value in (1.0, 3.0)]
    assert rows[0].tolist() == [1.0, work[0], work[1], 0.5, mean[0], 0.0, 0.0, 1.0]
    assert rows[1].tolist() == [1.0, work[2], work[3], 1.0, mean[1], 0.0, 0.0, 1.0]
    assert (info["action_mask"][0].tolist(), info["action_mask"][1].tolist()) == ([1, 1, 1], [1, 1, 1, 1])
    observation, *_ = env.step([0, 1])  # at most 4 of 8 executors to the short job
    assert observation[0] == 0.5
    rows = observation[5:].reshape(2, 8)
    assert [row[2] for row in rows.tolist()] == [pytest.approx(np.log1p(0.5) / 5), work[3]]
    env.step([1, 0])  # at most 2 to the long one
    assert env.cluster.observe().job_executors.tolist() == [2, 4]


def test_flat_views_may_leave_idling_out_and_refuse_what_does_not_fit() -> None:
    for idle in (True, False):
        env = ClusterEnv(
            lambda seed: jobs(DIAMOND),
            FEW,
            view=lambda config, idle=idle: FlatView(config, 4, 2, idle),  # type: ignore[misc]
        )
        env.reset(seed=0)
        assert env.action_masks().tolist() == [True, False, False, False, idle, True, True]
    view = FlatView(ClusterConfig(num_executors=25), limits=10)
    env = ClusterEnv(config=ClusterConfig(num_executors=25))
    env.reset(seed=0)
    seen = env.cluster.observe()
    assert [view.limit(number, seen) for number in range(10)] == [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]
    sequence = jobs(chain(stage(4, 200.0)))
    with pytest.raises(SchedulerError, match="expected a policy: a function, or an object with predict, got int"):
        as_scheduler(3)  # type: ignore[arg-type]
    for wrong in ((0, 99), (0.5, 1), (0,), "none"):
        with pytest.raises(SchedulerError, match="expected an action of MultiDiscrete"):
            run_episode(FEW, sequence, as_scheduler(lambda seen, mask, wrong=wrong: wrong))  # type: ignore[misc]
    other = Predicting(anything(0, 32), FlatView(FEW, 5).observation_space)
    with pytest.raises(SchedulerError, match=r"the policy expects Box\(.*\(45,\).*, but observes Box\(.*\(261,\)"):
        run_episode(FEW, sequence, as_scheduler(other))


@cases("config", FEW, ClusterConfig(executor_classes=(ExecutorClass(2, memory=0.5), ExecutorClass(3, memory=1.0))))
def test_gymnasiums_checker_finds_nothing_in_the_flat_view(config: ClusterConfig) -> None:
    check_env(gymnasium.make("decima/Cluster-v0", config=config, view=FlatView).unwrapped)


MINE = """
import numpy as np
from decima.gym import as_scheduler


def first():
    return as_scheduler(lambda observation, mask: (int(mask.argmax()), 9))


def wrong():
    return as_scheduler(lambda observation, mask: 7)
"""


def test_a_policy_takes_part_in_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gym_policy.py").write_text(MINE)
    few = ("--seeds", "2", "--jobs", "3", "--executors", "10", "--training", "1", "--processes", "1")
    words = ("compare", "--schedulers", "fair,gym_policy:first", *few)
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.stderr
    assert "gym_policy:first" in result.stdout
    refused = CliRunner().invoke(cli, ("compare", "--schedulers", "fair,gym_policy:wrong", *few))
    assert_one_line_error(refused, "expected an action of MultiDiscrete")


def test_a_name_is_enough_and_what_is_behind_it_is_imported_late() -> None:
    code = (
        "import sys, warnings, decima.gym\n"
        "assert not {'pandas', 'torch', 'numba'} & set(sys.modules), 'it is to be quick'\n"
        "import gymnasium\n"
        "warnings.simplefilter('error')\n"
        "env = gymnasium.make('decima.gym:decima/TPCHBatch-v0')\n"
        "env.reset(seed=1)\n"
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr


#: Number of choices and sum of rewards of the first episode, which must not change while the id is the same.
PINNED = {
    "decima/TPCHBatch-v0": (375, -15.51034),
    "decima/TPCHStream-v0": (3260, -26.64767577085396),
    "decima/DeepRM-v0": (64, -29.333333333333325),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "Stream" in name else name for name in PINNED]
)
def test_an_episode_that_a_name_and_a_seed_stand_for_is_always_the_same(name: str) -> None:
    """Choose the first valid stage with all executors, or the first bookable job."""
    env: Any = gymnasium.make(name).unwrapped
    _, info = env.reset(seed=0)
    steps, total, over = 0, 0.0, False
    while not over:
        masks = info["action_mask"]
        action = np.array([masks[0].argmax(), len(masks[1]) - 1]) if isinstance(masks, tuple) else masks.argmax()
        _, reward, over, _, info = env.step(action)
        steps, total = steps + 1, total + reward
    assert (steps, total) == (PINNED[name][0], pytest.approx(PINNED[name][1], rel=1e-12))


@pytest.mark.parametrize(("name", "arrivals", "num_jobs"), [("Batch", "batch", 20), ("Stream", "poisson", 200)])
def test_seeds_are_those_of_comparisons(name: str, arrivals: Any, num_jobs: int) -> None:
    conditions = Conditions(open_workload(), arrivals=arrivals, num_jobs=num_jobs)
    env: Any = gymnasium.make(f"decima/TPCH{name}-v0").unwrapped
    env.reset(seed=7)
    expected = conditions.sequence(7)
    assert (env.config, env.cluster.sequence.profiles) == (conditions.cluster, expected.profiles)
    assert env.cluster.sequence.seed == expected.seed == 7
    np.testing.assert_array_equal(env.cluster.sequence.arrival_ms, expected.arrival_ms)
    assert set(env.cluster.sequence.profiles) <= set(embedded_tpch())


@pytest.mark.parametrize("name", IDS)
def test_every_name_makes_one_and_many(name: str) -> None:
    one = gymnasium.make(name)
    many = gymnasium.make_vec(name, num_envs=2)
    shown, _ = many.reset(seed=3)
    first, _ = one.reset(seed=4)
    if isinstance(first, dict):
        first, shown = first["mean_task_ms"], shown["mean_task_ms"]
    np.testing.assert_array_equal(shown[1], first)


@pytest.mark.slow
def test_a_policy_of_sb3_is_trained_and_compared(tmp_path: Path) -> None:
    """The guide's example, for about a minute."""
    pytest.importorskip("sb3_contrib", reason="needs the extra 'sb3'")
    guide = (ROOT / "docs" / "guides" / "environments.md").read_text()
    code = guide.split("```python sb3_policy.py\n")[1].split("```")[0]
    (tmp_path / "sb3_policy.py").write_text(code)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    for words in (
        ["sb3_policy.py"],
        ["-m", "decima", "compare", "--schedulers", "random,fifo,fair,sb3_policy:scheduler", "--seeds", "4"],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stderr
    rows = {row[0]: row for line in done.stdout.splitlines() if (row := line.split())}
    assert float(rows["sb3_policy:scheduler"][1]) < float(rows["fifo"][1])
