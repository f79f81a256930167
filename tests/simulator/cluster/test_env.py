"""Gymnasium environment of the cluster: its interface, and consistency with the cluster."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import event, given, settings, strategies as st
from numpy.typing import NDArray

from simulator import DECIMA_SIM, ClusterConfig, ClusterEnv, ConfigError, EpisodeRecord, ExecutorClass, run_episode
from simulator.cluster.faults import Faults
from tests.cases import cases
from tests.simulator.cluster.build import Greedy, chain, job, jobs, stage
from tests.simulator.cluster.strategies import clusters
from tests.workloads.strategies import job_sequences
from workloads import JobProfile, JobSequence, batch_arrivals, poisson_arrivals, synthetic_profiles

#: A fork that joins again, and a chain.
DIAMOND = job(stage(6, 100.0), stage(3, 50.0), stage(4, 80.0), stage(2, 30.0), edges=[(0, 1), (0, 2), (1, 3), (2, 3)])
CHAIN = chain(stage(4, 200.0), stage(8, 20.0))
FOUR = ClusterConfig(num_executors=4, moving_delay_ms=10.0)

SYNTHETIC = synthetic_profiles(10)

Dict = dict[str, Any]

#: Functions from environment, observation and info to an action.
Choose = Callable[[ClusterEnv, Dict, Dict], Any]


def environment(*profiles: JobProfile, config: ClusterConfig = FOUR, **room: int) -> ClusterEnv:
    """Return an environment with all jobs at time 0, for any seed."""
    return ClusterEnv(lambda seed: jobs(*profiles, seed=seed), config, **room)


def first_stage(env: ClusterEnv, observation: Dict, info: Dict) -> list[int]:
    """Choose the first valid stage, with all offered executors."""
    return [int(np.argmax(observation["action_mask"])), env.config.num_executors - 1]


def idle(env: ClusterEnv, observation: Dict, info: Dict) -> list[int]:
    return [len(observation["stage_mask"]), 0]


def anything(env: ClusterEnv, observation: Dict, info: Dict) -> NDArray[np.int64]:
    """Choose any action; most actions are invalid."""
    return env.action_space.sample()


def anything_legal(env: ClusterEnv, observation: Dict, info: Dict) -> NDArray[np.int64]:
    return env.action_space.sample(info["action_mask"])


class Episode(NamedTuple):
    record: EpisodeRecord
    rewards: list[float]
    terminated: bool
    truncated: bool
    last: Dict
    """The last observation."""


def play(env: ClusterEnv, choose: Choose, **reset: Any) -> Episode:
    """Run an episode from reset to its end; check all observations."""
    observation, info = env.reset(**reset)
    rewards = []
    while True:
        assert observation in env.observation_space
        assert observation["action_mask"][:-1].any() or env.cluster.done
        observation, reward, terminated, truncated, info = env.step(choose(env, observation, info))
        rewards.append(reward)
        if terminated or truncated:
            assert observation in env.observation_space
            return Episode(info["record"], rewards, terminated, truncated, observation)


@pytest.mark.parametrize("room", [{}, {"max_jobs": 2, "max_stages": 18, "max_edges": 40}])
def test_gymnasiums_checker_finds_nothing(room: dict[str, Any]) -> None:
    check_env(gymnasium.make("decima/Cluster-v0", **room).unwrapped)


def test_the_docstring_names_every_array_with_its_type_and_shape() -> None:
    env = ClusterEnv(max_jobs=3, max_stages=50, max_edges=70)
    shapes = {"max_jobs": 3, "max_stages": 50, "max_stages+1": 51, "max_edges": 70, "K": 1}
    rows = [line.split(None, 2) for line in (ClusterEnv.__doc__ or "").splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[0].isidentifier() and row[2].startswith("[")]
    table = {key: (dtype, rest) for key, dtype, rest in rows}
    space = env.observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    assert table.keys() == space.keys()
    for key, (dtype, rest) in table.items():
        shape = [size.strip() for size in rest[1 : rest.index("]")].split(",") if size]
        assert space[key].dtype == dtype, key
        assert space[key].shape == tuple(shapes.get(size) or int(size) for size in shape), key


def test_vectors_sequences_and_seeds_of_episodes() -> None:
    envs = gymnasium.vector.SyncVectorEnv([ClusterEnv, ClusterEnv])
    observations, _ = envs.reset(seed=[1, 2])
    assert observations["job_mask"].shape == (2, 10)
    envs.step(envs.action_space.sample())
    assert envs.call("action_masks")[1].shape == (251,)
    envs.close()
    env, sequence = ClusterEnv(config=FOUR), jobs(CHAIN)
    env.reset(seed=1, options={"sequence": sequence})
    assert env.cluster.sequence is sequence
    one, other = environment(DIAMOND, CHAIN), environment(DIAMOND, CHAIN)
    steps = trajectory(one, 200, seed=3)
    assert sum(len(step) == 2 for step in steps) > 2, "no second episode"
    assert data_equivalence(steps, trajectory(other, 200, seed=3), exact=True)


def trajectory(env: ClusterEnv, num_steps: int, **reset: Any) -> list[Any]:
    env.action_space.seed(0)
    steps: list[Any] = [env.reset(**reset)]
    for _ in range(num_steps):
        steps.append(env.step(env.action_space.sample()))
        if steps[-1][2] or steps[-1][3]:
            steps[-1][4].pop("record")
            steps.append(env.reset())
    return steps


def test_seeds_name_jobs_and_schedulers_do_the_same() -> None:
    def make_sequence(seed: int) -> JobSequence:
        return batch_arrivals(SYNTHETIC, 3, seed)

    env = ClusterEnv(make_sequence)
    env.reset(seed=5)
    assert (env.cluster.sequence.seed, env.cluster.sequence.profiles) == (5, make_sequence(5).profiles)
    env.reset()
    following = env.cluster.sequence.seed
    env.reset()
    assert len({5, following, env.cluster.sequence.seed}) == 3
    sequence = poisson_arrivals(SYNTHETIC, 8, 10_000.0, seed=2)

    def choose(one_env: ClusterEnv, observation: Dict, info: Dict) -> list[int]:
        decision = Greedy().decide(one_env.cluster.observe())
        return [decision.stage, decision.limit - 1]

    record = play(ClusterEnv(), choose, options={"sequence": sequence}).record
    expected = run_episode(ClusterConfig(), sequence, Greedy())
    np.testing.assert_array_equal(record.completion_ms, expected.completion_ms)
    np.testing.assert_array_equal(record.task_executor, expected.task_executor)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    clusters(max_time=True),
    job_sequences(),
    st.integers(1, 4),
    st.sampled_from((anything, anything_legal, idle)),
    st.integers(0, 2**31),
)
def test_whatever_is_done_episodes_end_and_rewards_add_up(
    config: ClusterConfig, sequence: JobSequence, max_jobs: int, choose: Choose, seed: int
) -> None:
    env = ClusterEnv(config=config, max_jobs=max_jobs, max_stages=12, max_edges=15)
    env.action_space.seed(seed)
    record, rewards, terminated, truncated, _ = play(env, choose, options={"sequence": sequence})
    event(f"truncated: {truncated}")
    lost_ms = record.end_ms
    if config.reward == "jct":
        departure_ms = np.where(np.isnan(record.completion_ms), record.end_ms, record.completion_ms)
        lost_ms = np.maximum(departure_ms - sequence.arrival_ms, 0.0).sum()
    # The published simulator leaves out of its rewards jobs that arrive and complete between two decisions.
    if config.reward == "makespan" or config.semantics.reward_short_jobs:
        assert -sum(rewards) == pytest.approx(lost_ms / config.reward_scale_ms, rel=1e-9, abs=1e-9)
    assert truncated == bool(np.isnan(record.completion_ms).any())
    assert terminated != truncated


@cases(
    "changes, is_cut",
    ({"max_time_ms": 2150.0}, True),
    ({}, False),
    ({"faults": Faults(task_failures=1.0)}, False),  # all jobs fail
)
def test_an_episode_that_is_cut_is_truncated_and_any_other_terminates(changes: dict[str, Any], is_cut: bool) -> None:
    """A learner adds the value of the last observation to the return of a truncated episode only."""
    env = environment(DIAMOND, CHAIN, config=ClusterConfig(num_executors=2, **changes))
    episode = play(env, first_stage, seed=0)
    assert (episode.terminated, episode.truncated) == (not is_cut, is_cut)
    assert bool(episode.last["job_mask"].any()) == is_cut


def test_the_arrays_are_the_observation_padded_with_zeros() -> None:
    rows = {
        "job_arrival_ms": "job_arrival_ms", "job_executors": "job_executors", "stage_job": "stage_job",
        "num_tasks": "num_tasks", "remaining_tasks": "remaining_tasks", "unclaimed_tasks": "unclaimed_tasks",
        "running_executors": "running_executors", "mean_task_ms": "mean_task_ms", "action_mask": "schedulable",
    }  # fmt: skip
    seen = set()

    def choose(env: ClusterEnv, padded: Dict, info: Dict) -> NDArray[np.int64]:
        raw = env.cluster.observe()
        for key, name in rows.items():
            expected = getattr(raw, name)
            np.testing.assert_array_equal(padded[key][: len(expected)], expected, err_msg=key)
            assert not padded[key][len(expected) : -1].any(), key
        assert (padded["time_ms"], padded["offered"]) == (raw.time_ms, raw.offered)
        assert padded["source"] == (raw.source if raw.source >= 0 else 5)
        assert padded["job_mask"].tolist() == [1] * len(raw.jobs) + [0] * (5 - len(raw.jobs))
        assert padded["stage_mask"].sum() == len(raw.stages)
        assert padded["backlog"] == 0
        seen.add((len(raw.jobs), raw.source >= 0))
        return anything_legal(env, padded, info)

    env = ClusterEnv(lambda seed: poisson_arrivals(SYNTHETIC, 5, 10_000.0, seed), max_jobs=5)
    env.action_space.seed(4)
    play(env, choose, seed=4)
    assert len(seen) > 4


def test_classes_of_executors_and_the_end_of_episodes() -> None:
    classes = (ExecutorClass(2, memory=0.5), ExecutorClass(1, cpu=2.0, memory=1.0))
    env = environment(
        job(stage(1, 100.0, memory=0.75), stage(1, 100.0, cpu=0.5)), config=ClusterConfig(executor_classes=classes)
    )
    observation, _ = env.reset(seed=0)
    # First the small executors, which fit one of the stages; all of the large class are still waiting then.
    assert observation["action_mask"][:2].tolist() == [0, 1]
    assert observation["cpu"][:3].tolist() == [1.0, 0.5, 0.0]
    assert observation["memory"][:3].tolist() == [0.75, 0.0, 0.0]
    assert (observation["class_executors"].tolist(), observation["class_free"].tolist()) == ([2, 1], [2, 1])
    assert (observation["class_cpu"].tolist(), observation["class_memory"].tolist()) == ([1.0, 2.0], [0.5, 1.0])
    assert env.observation_space.contains(observation)
    env = environment(DIAMOND, CHAIN, config=ClusterConfig(num_executors=2, max_time_ms=2150.0))
    record, _, _, truncated, last = play(env, first_stage, seed=0)
    assert truncated
    assert record.end_ms == last["time_ms"] == 2150.0
    assert last["job_mask"].sum() == 2
    assert (last["running_executors"][0], last["offered"], last["source"]) == (2, 0, 10)
    assert np.flatnonzero(last["action_mask"]).tolist() == [200]


def test_edges_are_between_places_and_masks_agree() -> None:
    env = environment(DIAMOND, CHAIN, max_edges=8)
    observation, _ = env.reset(seed=0)
    assert observation["edge_parent"].tolist() == [0, 0, 1, 2, 4, 0, 0, 0]
    assert observation["edge_child"].tolist() == [1, 2, 3, 3, 5, 0, 0, 0]
    assert observation["edge_mask"].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    env = environment(DIAMOND, CHAIN)
    observation, info = env.reset(seed=0)
    assert np.flatnonzero(observation["action_mask"]).tolist() == [0, 4, 200]
    np.testing.assert_array_equal(info["action_mask"][0], observation["action_mask"])
    assert info["action_mask"][1].tolist() == [1, 1, 1, 1]
    np.testing.assert_array_equal(env.action_masks(), np.concatenate(info["action_mask"]))


def test_later_jobs_wait_and_a_held_limit_gives_one_executor() -> None:
    env = environment(job(stage(4, 100.0), stage(4, 100.0)), CHAIN)
    env.reset(seed=0)
    env.step([0, 1])
    observation, *_ = env.step([1, 0])
    assert (observation["job_executors"][0], observation["offered"]) == (3, 1)
    env = environment(CHAIN, DIAMOND, CHAIN, max_stages=5, max_edges=9)
    observation, _ = env.reset(seed=0)
    assert observation["backlog"] == 2


def test_forced_decisions_are_passed_over() -> None:
    # The only job arrives late, and its two tasks leave no work for the other executors.
    env = ClusterEnv(
        lambda seed: jobs(job(stage(2, 100.0)), at=[500.0]), ClusterConfig(num_executors=4, reward="makespan")
    )
    observation, _ = env.reset(seed=0)
    assert observation["time_ms"] == 500.0
    _, reward, terminated, truncated, info = env.step([0, 3])
    assert terminated
    assert not truncated
    assert info["record"].num_decisions > 3
    assert reward == pytest.approx(-info["record"].end_ms / 100_000)


@pytest.mark.parametrize("illegal", [2, 3, 5, 100])
def test_a_stage_that_may_not_be_chosen_stands_for_idling(illegal: int) -> None:
    env, other = environment(DIAMOND, CHAIN), environment(DIAMOND, CHAIN)
    for one in (env, other):
        one.reset(seed=0)
        one.step([4, 1])
    assert data_equivalence(env.step([illegal, 2]), other.step([200, 0]), exact=True)


def test_idle_episodes_and_those_that_end_before_a_decision() -> None:
    record = play(environment(DIAMOND, CHAIN), idle, seed=0).record
    assert not np.isnan(record.completion_ms).any()
    # One stage at a time, each on all four executors that it can use.
    table = record.tasks().groupby(["job", "stage"])
    assert (table["start_ms"].min().to_numpy()[1:] >= table["finish_ms"].max().to_numpy()[:-1]).all()
    config = ClusterConfig(num_executors=2, max_time_ms=100.0, reward="makespan")
    env = ClusterEnv(lambda seed: jobs(CHAIN, at=[200.0]), config)
    record, rewards, _, truncated, _ = play(env, idle, seed=0)
    assert truncated
    assert rewards == [-100.0 / 100_000]
    assert record.num_decisions == 1


def test_idling_is_not_allowed_on_the_last_call_or_without_another_offer() -> None:
    env = environment(CHAIN)
    env.reset(seed=0)
    observation, *_ = env.step([200, 0])
    assert (observation["time_ms"], observation["action_mask"][200]) == (0.0, 0)
    observation, *_ = env.step([0, 0])
    assert observation["action_mask"][200] == 1
    config = ClusterConfig(num_executors=4, semantics=DECIMA_SIM)
    env = environment(DIAMOND, CHAIN, config=config)
    observation, _ = env.reset(seed=0)
    assert observation["action_mask"][200] == 0
    assert play(env, idle, seed=0).rewards == play(env, first_stage, seed=0).rewards


@pytest.mark.parametrize("action", [[201, 0], [0, 4], [-1, 0], [0], [0.5, 1.0], "stage"])
def test_what_is_no_action_is_refused(action: Any) -> None:
    env = environment(DIAMOND)
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"expected an action of MultiDiscrete\(\[201   4\]\), got"):
        env.step(action)


@cases("room", {"max_jobs": 1}, {"max_stages": 5, "max_edges": 9}, {"max_edges": 4}, ids=["jobs", "stages", "edges"])
def test_jobs_without_room_wait_in_the_backlog(room: dict[str, Any]) -> None:
    env = environment(DIAMOND, CHAIN, DIAMOND, **room)
    observation, _ = env.reset(seed=0)
    assert observation["backlog"] == 2
    assert observation["job_mask"].sum() == 1
    assert observation["stage_mask"].sum() == 4
    assert observation["edge_mask"].sum() == 4
    record = play(env, first_stage, seed=0).record
    assert (np.diff(record.completion_ms) > 0).all()
    start_ms = record.tasks().groupby("job")["start_ms"].min().to_numpy()
    assert (start_ms[1:] >= record.completion_ms[:-1]).all()


def test_without_idling_the_backlog_gets_what_is_left() -> None:
    # Only the first executor class fits the first job. The second class would never be offered again.
    classes = (ExecutorClass(1, memory=1.0), ExecutorClass(1, memory=0.0))
    config = ClusterConfig(executor_classes=classes, moving_delay_ms=10.0, semantics=DECIMA_SIM)
    env = environment(job(stage(9, 100.0, memory=1.0)), job(stage(9, 10.0)), config=config, max_jobs=1)
    sources = []

    def choose(env: ClusterEnv, observation: Dict, info: Dict) -> list[int]:
        sources.append(int(observation["source"]))
        return first_stage(env, observation, info)

    record = play(env, choose, seed=0).record
    assert record.completion_ms[1] < record.completion_ms[0]
    assert set(sources) == {1}


@cases(
    "room, message",
    ({"max_stages": 3}, r"job 1 \(job\) has 4 stages and 4 edges, .* max_stages=3 and max_edges=6"),
    ({"max_edges": 3}, r"job 1 \(job\) has 4 stages and 4 edges, .* max_stages=200 and max_edges=3"),
)
def test_a_job_that_there_is_never_room_for_is_refused(room: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        environment(CHAIN, DIAMOND, **room).reset(seed=0)


@pytest.mark.parametrize("room", [{"max_jobs": 0}, {"max_stages": 0}, {"max_edges": -1}])
def test_no_room_at_all_is_refused(room: dict[str, Any]) -> None:
    ((name, size),) = room.items()
    with pytest.raises(ConfigError, match=f"{name} must be a whole number of at least 1, got {size}"):
        ClusterEnv(**room)


def test_steps_outside_of_an_episode_are_refused() -> None:
    env = environment(CHAIN)
    with pytest.raises(ResetNeeded, match="there is no episode yet"):
        env.step([0, 0])
    play(env, first_stage, seed=0)
    with pytest.raises(ResetNeeded, match="the episode is over"):
        env.step([0, 0])


@cases(
    "options, message",
    ({"jobs": 3}, "unknown option 'jobs' of reset, expected 'sequence'"),
    ({"sequence": (CHAIN,)}, "expected JobSequence to run, got tuple"),
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        environment(CHAIN).reset(options=options)
