from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from decima.training.baselines import Curve, NoBaseline, SequenceBaseline, curve_baseline


def curve(seed: int, size: int = 12) -> Curve:
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(50.0, size))
    return times, -random.random(size).cumsum()[::-1], float(times[-1] + 30.0)


def at(time: float, known: Curve) -> float:
    """A curve at a time, by hand."""
    times, returns, end_ms = known
    points = [*zip(times.tolist(), returns.tolist(), strict=True), (end_ms, 0.0)]
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
        expected = [np.mean([at(time, other) for other in others]) for time in curves[own][0]]
        np.testing.assert_allclose(baseline, expected)


def test_an_episode_does_not_change_its_own_baseline() -> None:
    """Else what is learned from it would be biased."""
    curves = [curve(seed) for seed in range(3)]
    before = SequenceBaseline()(curves)[1]
    times, returns, end_ms = curves[1]
    after = SequenceBaseline()([curves[0], (times, returns - 7.0, end_ms), curves[2]])[1]
    np.testing.assert_array_equal(before, after)


def test_identical_episodes_leave_nothing_to_learn() -> None:
    same = curve(3)
    for baseline in SequenceBaseline()([same] * 4):
        np.testing.assert_allclose(baseline, same[1])


def test_nothing_is_expected_after_the_end() -> None:
    early: Curve = (np.array([0.0, 10.0]), np.array([-4.0, -2.0]), 20.0)
    late: Curve = (np.array([15.0, 20.0, 900.0]), np.array([-1.0, -1.0, -1.0]), 1000.0)
    np.testing.assert_allclose(SequenceBaseline()([early, late])[1], [-1.0, 0.0, 0.0])


@pytest.mark.parametrize("baseline", [NoBaseline(), SequenceBaseline()])
def test_a_single_episode_is_compared_with_nothing(baseline: NoBaseline) -> None:
    np.testing.assert_array_equal(baseline([curve(1)])[0], np.zeros(12))


def test_an_episode_without_samples_expects_nothing() -> None:
    empty: Curve = (np.zeros(0), np.zeros(0), 40.0)
    other = curve(2)
    mine, theirs = SequenceBaseline()([empty, other])
    assert mine.shape == (0,)
    np.testing.assert_array_equal(theirs, np.zeros(12))


def test_a_run_of_another_scheduler_is_expected_of_all() -> None:
    expected = curve(9)
    for own, baseline in zip(
        [curve(1), curve(2)], curve_baseline([curve(1), curve(2)], expected), strict=True
    ):
        np.testing.assert_allclose(baseline, [at(time, expected) for time in own[0]])
