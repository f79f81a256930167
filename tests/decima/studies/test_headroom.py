"""Headroom: the search finds known optima, lower bounds hold, the command reports both."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from decima.cli.main import cli
from decima.evaluation.options import make_conditions
from decima.schedulers.priced_srpt import PricedSrpt
from decima.studies import headroom as study
from decima.studies.headroom import FactorSrpt, headroom, outcome, srpt_flow_ms
from simulator import ClusterConfig, run_episode
from tests.decima.cli.commands import succeeded
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


def test_factors_change_the_order_and_searches_beat_the_best_rule() -> None:
    sequence, cluster = (jobs(*(job(stage(4, 1000.0 * size)) for size in (1, 2))), ClusterConfig(num_executors=2))
    plain = run_episode(cluster, sequence, PricedSrpt())
    same = run_episode(cluster, sequence, FactorSrpt(np.zeros((2, 2))))
    other = run_episode(cluster, sequence, FactorSrpt(np.array([[5.0, -5.0], [5.0, 5.0]])))
    assert same.completion_ms.tolist() == plain.completion_ms.tolist()
    assert plain.completion_ms[0] < plain.completion_ms[1]
    assert other.completion_ms[1] < other.completion_ms[0]
    names = ("slow", "quick", "srpt", "hindsight", "each job alone", "speed-scaled SRPT")
    others = ("other noise: srpt", "other noise: hindsight")
    means = dict(zip((*names, *others), (9.0, 4.0, 5.0, 3.0, 1.0, 2.0, 6.0, 5.4), strict=True))
    rows = [(seed, name, value) for seed in (0, 1) for name, value in means.items()]
    conditions = make_conditions(jobs=2, seeds=2)
    shown = outcome(pd.DataFrame(rows, columns=["seed", "scheduler", "mean_jct_s"]), conditions)
    assert shown.extra["best_rule"] == "quick"
    assert shown.extra["changes"]["hindsight"]["mean"] == pytest.approx(-0.25)
    assert shown.extra["held_under_other_noise"]["mean"] == pytest.approx(-0.1)
    assert any("-10.0% ± 0.0%: so much of -40.0% ± 0.0%" in note for note in shown.notes)


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    conditions = make_conditions(workload="synthetic", jobs=4, executors=5, seeds=2, seed=3)
    return headroom(conditions, ("fair", "srpt"), budget=40, noises=2, workers=1)


def test_searches_have_bounds_and_are_the_same_again(found: pd.DataFrame) -> None:
    jct = found.pivot_table("mean_jct_s", "seed", "scheduler")
    assert len(jct) == 2
    assert (jct["hindsight"] <= jct["srpt"]).all()
    assert (jct["hindsight"] < jct["srpt"]).any()
    for name in ("hindsight", "srpt"):
        assert (jct[f"other noise: {name}"] != jct[name]).all()
    for bound in ("each job alone", "speed-scaled SRPT"):
        assert (jct[bound] < jct["hindsight"]).all()
    conditions = make_conditions(workload="synthetic", jobs=4, executors=5, seeds=1, seed=4)
    again = headroom(conditions, ("fair", "srpt"), budget=40, noises=2, workers=1)
    assert again.to_dict("list") == found[found["seed"] == 4].to_dict("list")


def test_where_the_search_finds_nothing_the_rule_stays_under_other_noise_too(monkeypatch: pytest.MonkeyPatch) -> None:
    worse = np.array([[3.0, -3.0, 3.0, -3.0], [-3.0] * 4])
    monkeypatch.setattr(study, "_search", lambda *_: (worse, np.inf))
    conditions = make_conditions(workload="synthetic", jobs=4, executors=5, seeds=2, seed=3)
    runs = headroom(conditions, ("fair",), noises=2, workers=1)
    jct = runs.pivot_table("mean_jct_s", "seed", "scheduler")
    assert jct["hindsight"].tolist() == jct["srpt"].tolist()
    assert jct["other noise: hindsight"].tolist() == jct["other noise: srpt"].tolist()
    sequence = conditions.sequence(3)
    assert run_episode(conditions.cluster, sequence, FactorSrpt(worse)).mean_jct_ms / 1000 > jct["srpt"][3]


def test_the_command(tmp_path: Path) -> None:
    file, options = (tmp_path / "found.json", "--workload synthetic --jobs 3 --executors 5 --seeds 2 --budget 10")
    rules = "fair, srpt:steepness=1.5,used_well=3"
    words = ["headroom", *options.split(), "--rules", rules, "--workers", "1", "--out", str(tmp_path)]
    result = succeeded(CliRunner().invoke(cli, [*words, "--json", str(file)]))
    content = json.loads(file.read_text())
    assert content["study"] == "headroom"
    names = {row["scheduler"] for row in content["runs"]}
    assert {"fair", "srpt", "srpt:steepness=1.5,used_well=3", "hindsight"} <= names
    assert "used_well=3" not in names
    assert "hindsight" in result.output
    assert (tmp_path / "headroom.png").stat().st_size > 1000
