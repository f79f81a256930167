"""Section 7.3 of the Decima paper: choice of the policy, executors of jobs, claims and pictures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from decima.evaluation import CompareError, Interval
from decima.evaluation.variants import HINDSIGHT
from decima.policy.shipped import SHIPPED
from decima.studies import multi_resource, usage
from decima.studies.compared import GROUPS, jobs_by_work, over_time
from decima.studies.multi_resource import GRAPHENE_STAR, OURS, TETRIS, experiments, fragmentation_claim, learned
from decima.studies.study import Study
from decima.studies.usage import used
from simulator import ClusterConfig, ExecutorClass
from tests.cases import cases
from tests.decima.episodes import episode
from tests.decima.show.test_plots import difference
from tests.decima.studies.test_compared import made_up
from tests.simulator.cluster.build import job, jobs, stage
from workloads import Workload, trace_arrivals


def test_means_and_groups_of_jobs() -> None:
    steps = pd.Series([2.0, 4.0, 0.0], index=[10.0, 20.0, 30.0])
    assert over_time(steps, np.array([0.0, 10.0, 15.0, 25.0, 40.0])).tolist() == [0.0, 2.0, 3.0, 4 / 3]
    sequence = jobs(*(job(stage(tasks, 100.0)) for tasks in (5, 2, 4, 1, 3)))
    assert [group.tolist() for group in jobs_by_work(sequence)] == [[3], [1], [4], [2], [0]]
    with pytest.raises(CompareError, match="seed 0: 1 jobs, expected at least 5"):
        jobs_by_work(jobs(job(stage(1, 100.0))))
    record = episode()
    assert used(record).tolist() == [[6]] * 4  # each runs two tasks on each of them
    two = ClusterConfig(executor_classes=(ExecutorClass(2), ExecutorClass(4)))
    assert used(replace(record, config=two)).tolist() == [[2, 4]] * 4


def test_claims() -> None:
    runs = made_up({"": {TETRIS: 10.0, GRAPHENE_STAR: 5.2, "decima": 5.0}})
    assert multi_resource._lower("", runs, TETRIS, 0.52).holds  # the interval reaches that far
    assert not multi_resource._lower("", runs, TETRIS, 0.7).holds
    assert multi_resource._lower("", runs, GRAPHENE_STAR).holds
    assert not multi_resource._lower("", made_up({"": {TETRIS: 5.0, "decima": 5.0}}), TETRIS).holds


def test_the_policy(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packing = replace(study, executors=8, num_jobs=10)
    profiles = packing.workload.profiles
    sequence = trace_arrivals([profiles[number % 3] for number in range(60)], 1667.0 * np.arange(60))
    trace = replace(packing, workload=Workload(profiles, sequence, "tiny trace"))
    drawn, windows = experiments(packing, trace=False), experiments(trace, trace=True, window_s=10.0)
    mine = replace(packing, checkpoint=tmp_path / "mine.npz")
    assert learned(mine, drawn) == f"decima:{tmp_path / 'mine.npz'}"
    file, other = tmp_path / "shipped.npz", tmp_path / "of-traces.npz"
    file.touch()
    other.touch()
    monkeypatch.setitem(SHIPPED, "packing-tpch", file)
    monkeypatch.setitem(SHIPPED, "packing-trace", other)
    published = replace(packing, source={"profiles": "somewhere"})
    assert learned(published, drawn) == f"decima:{file}"
    assert learned(trace, windows) == f"decima:{other}"
    other.unlink()
    with pytest.raises(CompareError, match="--checkpoint FILE"):
        learned(trace, windows)


@pytest.mark.parametrize(("ours", "holds"), [(0.20, True), (0.225, True), (0.24, False)])
def test_fragmentation_may_be_an_eighth_above_that_of_tetris(ours: float, holds: bool) -> None:
    runs = pd.DataFrame({"scheduler": ["decima", TETRIS], "fragmentation": [ours, 0.2]})
    claim = fragmentation_claim(runs)
    assert claim.holds == holds
    assert claim.here.startswith(f"{ours:.1%} of")


@cases(
    "jct, largest, expected",
    ([-0.5, -0.4, -0.3, -0.2, -0.1], (0.4, 0.1), [True, True, True]),
    ([-0.3, -0.4, -0.3, -0.2, 0.1], (0.1, 0.2), [False, False, False]),
)
def test_claims_of_figure_12(jct: list[float], largest: tuple[float, float], expected: list[bool]) -> None:
    claims = usage._claims([Interval(mean, 0.05) for mean in jct], Interval(*largest))
    assert [claim.holds for claim in claims] == expected


CHANGES = [[Interval(0.3 - 0.1 * group + 0.15 * kind, 0.1) for kind in range(4)] for group in range(GROUPS)]


def test_figures_11_12_19_and_20(tmp_path: Path) -> None:
    means = {"fair": 90.0, TETRIS: 500.0, HINDSIGHT: 80.0, GRAPHENE_STAR: 78.0, OURS: 52.0, "decima": 50.0}
    figure = multi_resource.plot_fig11(made_up({"": means}))
    assert difference(figure, "fig11", tmp_path) is None
    jct = [Interval(-0.5 + 0.1 * group, 0.05) for group in range(GROUPS)]
    assert difference(usage.plot_fig12(jct, CHANGES), "fig12", tmp_path) is None
    assert difference(usage.plot_fig20(CHANGES), "fig20", tmp_path) is None
    four = ClusterConfig(executor_classes=tuple(ExecutorClass(count, 1.0, 2.0) for count in (1, 2, 1, 2)))

    names = (GRAPHENE_STAR, "decima")
    episodes = {name: replace(episode(1 + place / 4), config=four) for place, name in enumerate(names)}
    assert difference(usage.plot_fig19(episodes), "fig19", tmp_path) is None
