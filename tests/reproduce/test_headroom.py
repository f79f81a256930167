"""Headroom: the search is better than the rule, lookahead does not know the future, and lower bounds hold."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

import decima
from decima.evaluation import CompareError
from decima.schedulers.srpt import Srpt
from reproduce import headroom
from reproduce.headroom import HINDSIGHT, HINDSIGHT_OTHER, LOOKAHEAD, RULE, RULE_OTHER, FactorSrpt, srpt_flow_ms
from simulator import ClusterConfig, run_episode
from tests.simulator.cluster.build import job, jobs, stage

JOBS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), min_size=1, max_size=6)


def stepwise_flow(arrivals: list[int], sizes: list[int]) -> list[int]:
    """Serve the shortest remaining job in unit steps."""
    left, completion, now = list(sizes), [0] * len(sizes), 0
    while any(left):
        ready = [job for job, size in enumerate(left) if size and arrivals[job] <= now]
        now += 1
        if ready:
            served = min(ready, key=left.__getitem__)
            left[served] -= 1
            completion[served] = now
    return [end - arrival for end, arrival in zip(completion, arrivals, strict=True)]


@given(JOBS)
def test_flow_under_srpt(drawn: list[tuple[int, int]]) -> None:
    arrivals = sorted(arrival for arrival, _ in drawn)
    sizes = [size for _, size in drawn]
    flow = srpt_flow_ms(np.array(arrivals, float), np.array(sizes, float))
    assert flow.sum() == pytest.approx(sum(stepwise_flow(arrivals, sizes)))


def test_factors_change_the_order() -> None:
    sequence, cluster = (jobs(*(job(stage(4, 1000.0 * size)) for size in (1, 2))), ClusterConfig(num_executors=2))
    plain = run_episode(cluster, sequence, Srpt())
    same = run_episode(cluster, sequence, FactorSrpt(np.zeros((2, 2))))
    other = run_episode(cluster, sequence, FactorSrpt(np.array([[5.0, -5.0], [5.0, 5.0]])))
    assert same.completion_ms.tolist() == plain.completion_ms.tolist()
    assert plain.completion_ms[0] < plain.completion_ms[1]
    assert other.completion_ms[1] < other.completion_ms[0]


def means_of(**options: Any) -> "pd.Series[float]":
    small = {"workload": "synthetic", "jobs": 4, "executors": 5, "seeds": 2, "seed": 3, "rules": ("fair", RULE)}
    (table,) = headroom.run(**{"arrivals": ("batches",), **small, **options}).tables.values()
    means: pd.Series[float] = table.set_index("scheduler")["mean_jct_s"]
    return means


def test_searches_have_bounds_and_are_the_same_again() -> None:
    means = means_of(budget=40, noises=2)
    assert means[HINDSIGHT] < means[RULE]
    assert means[RULE_OTHER] != means[RULE]
    assert max(means["each job alone"], means["speed-scaled SRPT"]) < means[HINDSIGHT]
    pd.testing.assert_series_equal(means_of(budget=40, noises=2), means)


def test_lookahead_in_streams() -> None:
    options = {
        "arrivals": ("streams",),
        "stream_jobs": 3,
        "stream_seeds": 2,
        "interval": 20.0,
        "budget": 3,
        "futures": 3,
    }
    means = means_of(**options)
    assert means["each job alone"] < means[LOOKAHEAD]
    pd.testing.assert_series_equal(means_of(**options), means)
    assert LOOKAHEAD not in means_of(budget=3, noises=1)


def test_lookahead_refuses_a_limit_that_delays_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headroom, "FACTORS", ((1.0, 1.0), (1.0, 0.01)))
    sequence = jobs(job(stage(200, 10_000.0)), job(stage(5, 10_000.0)), at=(0.0, 1000.0))
    logs = headroom.lookahead(ClusterConfig(num_executors=8), sequence, 600.0, futures=4)
    assert logs[:, 1].tolist() == [0.0, 0.0]


def test_lookahead_needs_two_futures() -> None:
    with pytest.raises(CompareError, match=r"^--futures must be at least 2, .* got 1$"):
        headroom.run(futures=1)


def test_lookahead_does_not_know_later_jobs() -> None:
    setting = decima.make_conditions(
        workload="synthetic", arrivals="poisson", interval=20.0, executors=5, jobs=5, seeds=1, seed=3
    )
    sequence = setting.sequence(3)
    logs = headroom.lookahead(setting.cluster, sequence, 20.0, futures=4)
    first = replace(sequence, profiles=sequence.profiles[:3], arrival_ms=sequence.arrival_ms[:3])
    assert np.any(logs[:, :3])
    np.testing.assert_array_equal(headroom.lookahead(setting.cluster, first, 20.0, futures=4), logs[:, :3])


def test_where_the_search_finds_nothing_the_rule_stays_under_other_noise_too(monkeypatch: pytest.MonkeyPatch) -> None:
    worse = np.array([[3.0, -3.0, 3.0, -3.0], [-3.0] * 4])
    monkeypatch.setattr(headroom, "search", lambda *_: (worse, np.inf))
    means = means_of(noises=2)
    assert means[HINDSIGHT] == means[RULE]
    assert means[HINDSIGHT_OTHER] == means[RULE_OTHER]
