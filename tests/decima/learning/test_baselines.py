from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decima.learning.baselines import ActionBaseline, Curve, HeuristicBaseline, NoBaseline, SequenceBaseline
from decima.learning.returns import returns_to_go
from tests.decima.learning.grid.examples import mean_of_others, run


def curve(seed: int, size: int = 12) -> Curve:
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(50.0, size))
    return Curve(times, -random.random(size).cumsum()[::-1], float(times[-1] + 30.0), np.ones(size, np.int64))


def at(time: float, known: Curve) -> float:
    """A curve at a time, by hand."""
    points = [*zip(known.time_ms.tolist(), known.value.tolist(), strict=True), (known.end_ms, 0.0)]
    if time <= points[0][0]:
        return float(points[0][1])
    for (before, low), (after, high) in pairwise(points):
        if before <= time <= after:
            return float(low + (high - low) * (time - before) / (after - before))
    return 0.0


def test_the_baseline_is_the_mean_of_the_others_at_the_same_time() -> None:
    curves = [curve(seed) for seed in range(5)]
    for own, baseline in enumerate(SequenceBaseline()(curves)):
        others = [other for place, other in enumerate(curves) if place != own]
        expected = [np.mean([at(time, other) for other in others]) for time in curves[own].time_ms]
        np.testing.assert_allclose(baseline, expected)


def test_nothing_is_expected_after_the_end() -> None:
    early = Curve(np.array([0.0, 10.0]), np.array([-4.0, -2.0]), 20.0, np.ones(2, np.int64))
    late = Curve(np.array([15.0, 20.0, 900.0]), np.full(3, -1.0), 1000.0, np.ones(3, np.int64))
    np.testing.assert_allclose(SequenceBaseline()([early, late])[1], [-1.0, 0.0, 0.0])


@pytest.mark.parametrize("baseline", [NoBaseline(), SequenceBaseline()])
def test_a_single_episode_is_compared_with_nothing(baseline: NoBaseline) -> None:
    np.testing.assert_array_equal(baseline([curve(1)])[0], np.zeros(12))


def test_an_episode_without_samples_expects_nothing() -> None:
    empty = Curve(np.zeros(0), np.zeros(0), 40.0, np.zeros(0, np.int64))
    other = curve(2)
    mine, theirs = SequenceBaseline()([empty, other])
    assert mine.shape == (0,)
    np.testing.assert_array_equal(theirs, np.zeros(12))


def test_the_run_of_a_heuristic_is_expected_of_its_episode() -> None:
    runs = [curve(9), curve(8)]
    for own, known, baseline in zip(
        [curve(1), curve(2)], runs, HeuristicBaseline(runs)([curve(1), curve(2)]), strict=True
    ):
        np.testing.assert_allclose(baseline, [at(time, known) for time in own.time_ms])


def stepped(times: list[float], arrived: list[int], rise: float = 0.0) -> Curve:
    """It jumps from -10 to -100 when the second job arrives."""
    value = np.where(np.array(arrived) < 2, -10.0, -100.0) + rise
    return Curve(np.array(times), value, 1000.0, np.array(arrived))


def test_what_an_arrival_does_to_all_is_not_smeared_over_time() -> None:
    """Samples lie at different times before and after it; the jump is there in between for each."""
    one, other = stepped([0, 40, 60, 99], [1, 1, 2, 2]), stepped([1, 49, 51, 90], [1, 1, 2, 2], rise=1.0)
    of_one, of_other = SequenceBaseline()([one, other])
    np.testing.assert_allclose(of_one[:3], [-9, -9, -99], atol=0.01)
    np.testing.assert_allclose(of_other[:3], [-10, -10, -100], atol=0.01)


def test_only_who_was_asked_between_the_same_arrivals_is_counted() -> None:
    one, other = stepped([0, 60], [1, 2]), stepped([0, 70], [1, 3], rise=3.0)
    third = stepped([0, 55, 65], [1, 2, 2], rise=-20.0)
    np.testing.assert_allclose(SequenceBaseline()([one, other, third])[0], [-18.5, -120], atol=0.01)


def test_several_values_are_averaged_at_once() -> None:
    curves = [curve(seed) for seed in range(4)]
    doubled = [each._replace(value=np.column_stack([each.value, 2 * each.value])) for each in curves]
    for single, both in zip(SequenceBaseline()(curves), SequenceBaseline()(doubled), strict=True):
        np.testing.assert_allclose(both, np.column_stack([single, 2 * single]))


def test_the_baseline_after_as_many_actions_is_the_mean_of_a_set() -> None:
    returns = np.array([[1.0, 3.0, 10.0, 20.0], [0.0, 2.0, 8.0, 0.0]])
    clock = np.zeros((3, 4), np.int32)
    np.testing.assert_array_equal(
        ActionBaseline().lockstep(returns, clock, 2), [[2, 2, 15, 15], [1, 1, 4, 4]]
    )
    np.testing.assert_array_equal(ActionBaseline().lockstep(returns, clock, 4), [[8.5] * 4, [2.5] * 4])
    np.testing.assert_array_equal(NoBaseline().lockstep(returns, clock, 4), 0 * returns)


def test_the_baseline_at_the_same_time_is_the_first_return_then() -> None:
    """Episode 0 books before a step passes, episode 1 ends after one step: nothing follows there."""
    clock = np.array([[0, 0], [0, 1], [1, 1], [2, 1], [3, 1]])
    returns = np.array([[-7.0, -3.0], [-8.0, 0.0], [-4.0, 0.0], [-1.0, 0.0]])
    expected = [[-3, -7], [-3, -4], [0, -4], [0, -4]]
    np.testing.assert_array_equal(SequenceBaseline().lockstep(returns, clock, 2), expected)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 99), st.sampled_from([2, 3, 5]))
def test_the_baseline_at_the_same_time_is_of_the_others(seed: int, per_set: int) -> None:
    episodes = run(seed, sets=2, per_set=per_set)
    returns = returns_to_go(episodes.rewards, episodes.clock)
    baseline = SequenceBaseline().lockstep(returns, episodes.clock, per_set)
    np.testing.assert_allclose(baseline, mean_of_others(returns, episodes.clock, per_set))
