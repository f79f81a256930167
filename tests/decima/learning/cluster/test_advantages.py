import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from decima.learning.cluster.advantages import (
    Advantages,
    Baseline,
    Curve,
    LinearCritic,
    Returns,
    SequenceBaseline,
    accumulate,
    gae,
    mean_at,
)
from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.demonstrations import record_scheduler
from decima.learning.cluster.returns import DifferentialReturns, DiscountedReturns
from decima.learning.cluster.rollout import NUM_LOADS, Trajectories, plan_iteration, roll_out, start_episodes
from decima.policy import Featurizer, Policy, batches
from decima.schedulers import Fair
from simulator import Cluster
from tests.cases import cases
from tests.decima.learning.cluster.examples import small

NUM_SAMPLES = 40
SEQUENCES, PER_SEQUENCE = 5, 3

# ---- returns -------------------------------------------------------------------------------------------------


def returns_of(
    returns: Returns,
    reward: NDArray[np.float64],
    time_ms: NDArray[np.float64],
    end_ms: float,
    bootstrap_value: float = 0.0,
) -> NDArray[np.float64]:
    return accumulate(*returns.steps(reward, time_ms, end_ms), bootstrap_value)


def episode(seed: int, steps: int = 30, instant: float = 0.3) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return random rewards and times; some steps take no time."""
    random = np.random.default_rng(seed)
    durations = random.exponential(700.0, steps) * (random.random(steps) >= instant)
    time_ms = 100.0 + np.cumsum(durations) - durations
    return -random.random(steps), time_ms, float(time_ms[-1] + durations[-1])


@pytest.mark.parametrize("seed", range(3))
def test_total_returns_are_sums_of_what_follows(seed: int) -> None:
    reward, time_ms, end_ms = episode(seed)
    expected = [sum(reward[place:]) for place in range(reward.size)]
    np.testing.assert_allclose(returns_of(Returns(), reward, time_ms, end_ms), expected)


@pytest.mark.parametrize("horizon_ms", [50.0, 900.0, 1e7])
def test_discounted_returns_are_an_integral_over_time(horizon_ms: float) -> None:
    """Rewards are spread evenly between samples; a reward of zero duration counts at once."""
    reward, time_ms, end_ms = episode(4)
    ends = np.append(time_ms[1:], end_ms)
    pieces = 4000
    expected = np.zeros(reward.size)
    for now in range(reward.size):
        for step in range(now, reward.size):
            middles = time_ms[step] + (np.arange(pieces) + 0.5) / pieces * (ends[step] - time_ms[step])
            expected[now] += reward[step] * np.exp(-(middles - time_ms[now]) / horizon_ms).mean()
    np.testing.assert_allclose(returns_of(DiscountedReturns(horizon_ms), reward, time_ms, end_ms), expected, rtol=1e-4)


def test_differential_returns_subtract_a_recent_average() -> None:
    reward, time_ms, end_ms = episode(7)
    durations = np.diff(time_ms, append=end_ms)
    returns = DifferentialReturns(window=10_000)
    returns.observe(reward, time_ms, end_ms)
    rate = reward[durations > 0].sum() / durations.sum()
    expected = [
        sum(reward[later] - rate * durations[later] for later in range(place, reward.size))
        for place in range(reward.size)
    ]
    np.testing.assert_allclose(returns_of(returns, reward, time_ms, end_ms), expected, atol=1e-12)
    returns = DifferentialReturns(window=5)
    assert returns.rate == 0.0
    returns.observe(np.full(20, -9.0), np.arange(20.0), 20.0)
    returns.observe(np.full(5, -1.0), 2.0 * np.arange(5.0), 10.0)
    assert (returns.rate, len(returns.recent)) == (pytest.approx(-0.5), 5)


@cases(
    "returns, factor",
    (Returns(), lambda delay: 1.0),
    (DifferentialReturns(window=3), lambda delay: 1.0),
    (DiscountedReturns(500.0), lambda delay: np.exp(-delay / 500.0)),
)
def test_a_bootstrap_value_counts_as_much_as_its_time(returns: Returns, factor: object) -> None:
    reward, time_ms, end_ms = episode(8)
    without = returns_of(returns, reward, time_ms, end_ms)
    gained = returns_of(returns, reward, time_ms, end_ms, bootstrap_value=-3.0) - without
    assert callable(factor)
    np.testing.assert_allclose(gained, -3.0 * np.array([factor(end_ms - time) for time in time_ms]))


@pytest.mark.parametrize("returns", [Returns(), DiscountedReturns(5.0), DifferentialReturns(3)])
def test_an_episode_without_samples_has_no_returns(returns: Returns) -> None:
    nothing = np.zeros(0)
    assert returns_of(returns, nothing, nothing, 5.0).shape == (0,)


def curve(seed: int, size: int = 12) -> Curve:
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(50.0, size))
    return Curve(times, -random.random(size).cumsum()[::-1], float(times[-1] + 30.0), np.ones(size, np.int64))


def at(time: float, known: Curve) -> float:
    """Return the value of a curve at a time, by hand."""
    points = [*zip(known.time_ms.tolist(), known.value.tolist(), strict=True), (known.end_ms, 0.0)]
    if time <= points[0][0]:
        return float(points[0][1])
    for (before, low), (after, high) in pairwise(points):
        if before <= time <= after:
            return float(low + (high - low) * (time - before) / (after - before))
    return 0.0


def test_baselines_are_means_of_the_others_at_the_same_time() -> None:
    curves = [curve(seed) for seed in range(5)]
    for own, baseline in enumerate(SequenceBaseline()(curves)):
        others = [each for place, each in enumerate(curves) if place != own]
        expected = [np.mean([at(time, each) for each in others]) for time in curves[own].time_ms]
        np.testing.assert_allclose(baseline, expected)
    early = Curve(np.array([0.0, 10.0]), np.array([-4.0, -2.0]), 20.0, np.ones(2, np.int64))
    late = Curve(np.array([15.0, 20.0, 900.0]), np.full(3, -1.0), 1000.0, np.ones(3, np.int64))
    np.testing.assert_allclose(SequenceBaseline()([early, late])[1], [-1.0, 0.0, 0.0])
    empty = Curve(np.zeros(0), np.zeros(0), 40.0, np.zeros(0, np.int64))
    other = curve(2)
    mine, theirs = SequenceBaseline()([empty, other])
    assert mine.shape == (0,)
    np.testing.assert_array_equal(theirs, np.zeros(12))
    own, run = curve(1), curve(9)
    np.testing.assert_allclose(mean_at(own, [run]), [at(time, run) for time in own.time_ms])
    curves = [curve(seed) for seed in range(4)]
    doubled = [each._replace(value=np.column_stack([each.value, 2 * each.value])) for each in curves]
    for single, both in zip(SequenceBaseline()(curves), SequenceBaseline()(doubled), strict=True):
        np.testing.assert_allclose(both, np.column_stack([single, 2 * single]))


@pytest.mark.parametrize("baseline", [Baseline(), SequenceBaseline()])
def test_a_single_episode_is_compared_with_nothing(baseline: Baseline) -> None:
    np.testing.assert_array_equal(baseline([curve(1)])[0], np.zeros(12))


def stepped(times: list[float], arrived: list[int], rise: float = 0.0) -> Curve:
    """Return a curve that jumps from -10 to -100 at the second arrival."""
    value = np.where(np.array(arrived) < 2, -10.0, -100.0) + rise
    return Curve(np.array(times), value, 1000.0, np.array(arrived))


def test_arrivals_bound_the_baseline() -> None:
    # Samples lie at different times before and after an arrival; each curve jumps between its own samples.
    one, other = stepped([0, 40, 60, 99], [1, 1, 2, 2]), stepped([1, 49, 51, 90], [1, 1, 2, 2], rise=1.0)
    of_one, of_other = SequenceBaseline()([one, other])
    np.testing.assert_allclose(of_one[:3], [-9, -9, -99], atol=0.01)
    np.testing.assert_allclose(of_other[:3], [-10, -10, -100], atol=0.01)
    one, other = stepped([0, 60], [1, 2]), stepped([0, 70], [1, 3], rise=3.0)
    third = stepped([0, 55, 65], [1, 2, 2], rise=-20.0)
    np.testing.assert_allclose(SequenceBaseline()([one, other, third])[0], [-18.5, -120], atol=0.01)


def critic_of(weights: np.ndarray) -> tuple[LinearCritic, np.random.Generator]:
    """Return a critic fitted to returns that are linear in the load."""
    random = np.random.default_rng(0)
    load = np.column_stack([np.ones(500), random.random((500, NUM_LOADS - 1))])
    critic = LinearCritic()
    critic.observe(load, load @ weights)
    return critic, random


def test_critics_and_horizons() -> None:
    weights = np.linspace(-3, 2, NUM_LOADS)
    critic, random = critic_of(weights)
    load = random.random((9, NUM_LOADS))
    np.testing.assert_allclose(critic.expect(load), load @ weights, rtol=1e-3, atol=1e-3)
    assert LinearCritic().expect(np.ones(NUM_LOADS)) == pytest.approx(0.0), "before it has seen anything"
    load = np.eye(NUM_LOADS)
    critic = LinearCritic(decay=0.5)
    critic.observe(load, np.full(NUM_LOADS, 4.0))
    critic.observe(load, np.full(NUM_LOADS, 1.0))
    np.testing.assert_allclose(critic.expect(load), (0.5 * 4 + 1) / 1.5, rtol=1e-4)
    random = np.random.default_rng(0)
    reward, values = -random.random(6), np.append(random.random(6), -2.0)
    time_ms = np.cumsum(random.random(6) * 100)
    for returns in (Returns(), DiscountedReturns(150.0)):
        expected = returns_of(returns, reward, time_ms, 700.0, bootstrap_value=-2.0) - values[:-1]
        found = gae_of(returns, reward, values, time_ms, 700.0, math.inf)
        np.testing.assert_allclose(found, expected, atol=1e-9)
    found = gae_of(Returns(), reward, values, np.arange(6) * 100.0, 600.0, 1e-3)
    np.testing.assert_allclose(found, reward + values[1:] - values[:-1], atol=1e-9)


def gae_of(
    returns: Returns, reward: np.ndarray, values: np.ndarray, time_ms: np.ndarray, end_ms: float, horizon_ms: float
) -> np.ndarray:
    return gae(*returns.steps(reward, time_ms, end_ms), values, time_ms, end_ms, horizon_ms)


@pytest.mark.parametrize("returns", [Returns(), DiscountedReturns(250.0)])
def test_a_td_error_counts_by_a_factor_of_e_less_a_horizon_later(returns: Returns) -> None:
    """All values are 0, and the only reward comes between the last sample, at 300 ms, and the end."""
    time_ms, reward = np.array([0.0, 100.0, 250.0, 300.0]), np.array([0.0, 0.0, 0.0, -2.0])
    earned = returns_of(returns, reward, time_ms, 400.0)
    found = gae_of(returns, reward, np.zeros(5), time_ms, 400.0, 100.0)
    np.testing.assert_allclose(found / earned, np.exp([-3.0, -2.0, -0.5, 0.0]))


def made_up(
    config: TrainingConfig, policy: Policy, value_of_load: NDArray[np.float64], of_sequence: float
) -> Trajectories:
    """Return episodes whose returns are a linear function of the load plus a term common to all episodes of a sequence.

    The common term is larger where the load is higher, as in a busy period.
    """
    random = np.random.default_rng(1)
    episodes = SEQUENCES * PER_SEQUENCE
    size = episodes * NUM_SAMPLES
    shared = np.repeat(np.arange(SEQUENCES), PER_SEQUENCE * NUM_SAMPLES)
    load = random.random((size, NUM_LOADS)) + shared[:, None]
    load[:, 0] = 1.0
    left = np.tile(np.arange(NUM_SAMPLES, 0, -1.0), episodes)
    returns = load @ value_of_load + of_sequence * shared * left
    following = np.append(returns[1:], 0.0)
    following[left == 1] = 0.0
    sequence = config.conditions().sequence(0)
    graph = Featurizer(policy.config).graph(Cluster(config.cluster, sequence).observe())
    numbers = np.zeros(size, np.int32)
    return Trajectories(
        graphs=batches.concatenate([graph] * size),
        stage=numbers,
        limit=numbers,
        log_probability=numbers.astype(np.float32),
        time_ms=np.tile(10.0 * np.arange(NUM_SAMPLES), episodes),
        reward=returns - following,
        load=load,
        arrived=np.ones(size, np.int64),
        first=np.arange(episodes + 1) * NUM_SAMPLES,
        end_ms=np.full(episodes, 10.0 * NUM_SAMPLES),
        end_load=np.zeros((episodes, NUM_LOADS)),
        num_executors=np.full(episodes, 4),
        num_decisions=np.full(episodes, NUM_SAMPLES),
        mean_jct_ms=np.ones(episodes),
        num_completed=np.ones(episodes, np.int64),
    )


@pytest.mark.parametrize("of_sequence", [0.0, 50.0])
def test_a_critic_knows_what_the_load_is_worth_whatever_its_sequences_had_to_come(
    tmp_path: Path, of_sequence: float
) -> None:
    """Advantages are 0 if episodes of a sequence differ only by their load, not by the quality of decisions."""
    config = small(
        tmp_path, critic={"gae_horizon": 1e9}, episodes={"sequences": SEQUENCES, "per_sequence": PER_SEQUENCE}
    )
    policy = Policy(config.policy.build())
    worth = np.array([0.0, -1.0, 0.5, -3.0, 0.25, -0.5, 2.0])
    samples = made_up(config, policy, worth, of_sequence)
    advantage = Advantages(config, config.conditions())(policy, samples, plan_iteration(config, 0))
    np.testing.assert_allclose(advantage, 0.0, atol=0.02)
    plain = Advantages(config.model_copy(update={"critic": None}), config.conditions())
    assert np.std(plain(policy, samples, plan_iteration(config, 0))) > 0.5


def test_the_average_reward_is_that_of_all_samples_so_far(tmp_path: Path) -> None:
    """Differential returns of constant rewards are 0."""
    config = small(
        tmp_path,
        returns={"kind": "differential"},
        baseline={"kind": "none"},
        episodes={"sequences": SEQUENCES, "per_sequence": PER_SEQUENCE},
    )
    policy = Policy(config.policy.build())
    samples = made_up(config, policy, np.zeros(NUM_LOADS), of_sequence=1.0)
    samples = replace(samples, reward=np.full(len(samples), -2.0))
    advantages = Advantages(config, config.conditions())
    np.testing.assert_allclose(advantages(policy, samples, plan_iteration(config, 0)), 0.0, atol=1e-9)
    assert len(advantages.state()["window"]) == len(samples)
    recent = config.model_copy(update={"returns": config.returns.model_copy(update={"window": 50})})
    advantages = Advantages(recent, config.conditions())
    _ = advantages(policy, samples, plan_iteration(config, 0))
    assert len(advantages.state()["window"]) == 50


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("critic", [None, {"gae_horizon": 3}])
def test_a_heuristic_earns_exactly_what_is_expected_of_itself(
    tmp_path: Path, critic: dict[str, Any] | None, fixed: bool
) -> None:
    config = small(
        tmp_path,
        baseline={"kind": "heuristic", "scheduler": "fair"},
        critic=critic,
        curriculum={"start": 2, "end": 6},
        episodes={"fixed_sequences": fixed},
    )
    policy, conditions = Policy(config.policy.build()), config.conditions()
    groups = plan_iteration(config, 0)
    plans = [plan for group in groups for plan in group]
    advantages = Advantages(config, conditions)
    sampled = roll_out(policy, start_episodes(policy.config, conditions, plans))
    assert np.std(advantages(policy, sampled, groups)) > 0.001
    its_own = record_scheduler(Fair(), start_episodes(policy.config, conditions, plans))
    np.testing.assert_allclose(advantages(policy, its_own, groups), 0.0, atol=1e-12)


@pytest.mark.parametrize("fixed", [True, False])
def test_arrivals_bound_the_baseline_only_if_all_episodes_have_the_same(tmp_path: Path, fixed: bool) -> None:
    """Numbers of arrived jobs mean the same only in episodes of one job sequence."""
    config = small(
        tmp_path,
        workload={"jobs": 8, "arrivals": "poisson", "interval": 2},
        episodes={"sequences": 2, "per_sequence": 3, "fixed_sequences": fixed},
    )
    policy, conditions, groups = Policy(config.policy.build()), config.conditions(), plan_iteration(config, 0)
    plans = [plan for group in groups for plan in group]
    samples = roll_out(policy, start_episodes(policy.config, conditions, plans))
    expected: dict[bool, list[NDArray[np.float64]]] = {True: [], False: []}
    for group in groups:
        assert (len({plan.sequence_seed for plan in group}) == 1) == fixed
        curves = []
        for plan in group:
            own = samples.samples(plan.episode)
            value = np.cumsum(samples.reward[own][::-1])[::-1]
            curves.append(Curve(samples.time_ms[own], value, float(samples.end_ms[plan.episode]), samples.arrived[own]))
        for bounded, found in expected.items():
            same = curves if bounded else [each._replace(arrived=0 * each.arrived) for each in curves]
            baselines = SequenceBaseline()(same)
            found += [each.value - baseline for each, baseline in zip(same, baselines, strict=True)]
    advantage = Advantages(config, conditions)(policy, samples, groups)
    np.testing.assert_allclose(advantage, np.concatenate(expected[fixed]), atol=1e-9)
    assert np.abs(advantage - np.concatenate(expected[not fixed])).max() > 0.01
