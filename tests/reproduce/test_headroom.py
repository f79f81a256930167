"""Headroom: the search is better than the rule, and lower bounds hold."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from decima.schedulers.srpt import Srpt
from reproduce import headroom
from reproduce.headroom import HINDSIGHT, HINDSIGHT_OTHER, RULE, RULE_OTHER, FactorSrpt, srpt_flow_ms
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


def means_of(**options: int) -> "pd.Series[float]":
    result = headroom.run(workload="synthetic", jobs=4, executors=5, seeds=2, seed=3, rules=("fair", RULE), **options)
    means: pd.Series[float] = result.tables["headroom"].set_index("scheduler")["mean_jct_s"]
    return means


def test_searches_have_bounds_and_are_the_same_again() -> None:
    means = means_of(budget=40, noises=2)
    assert means[HINDSIGHT] < means[RULE]
    assert means[RULE_OTHER] != means[RULE]
    assert max(means["each job alone"], means["speed-scaled SRPT"]) < means[HINDSIGHT]
    pd.testing.assert_series_equal(means_of(budget=40, noises=2), means)


def test_where_the_search_finds_nothing_the_rule_stays_under_other_noise_too(monkeypatch: pytest.MonkeyPatch) -> None:
    worse = np.array([[3.0, -3.0, 3.0, -3.0], [-3.0] * 4])
    monkeypatch.setattr(headroom, "search", lambda *_: (worse, np.inf))
    means = means_of(noises=2)
    assert means[HINDSIGHT] == means[RULE]
    assert means[HINDSIGHT_OTHER] == means[RULE_OTHER]
