"""Figures 11, 12, 19 and 20 on a tiny workload; their pictures as in ``tests.decima.show.test_plots``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from decima.evaluation.conditions import CompareError
from decima.evaluation.intervals import Interval
from decima.evaluation.tuning import GRIDS, HINDSIGHT
from decima.policy.shipped import SHIPPED
from decima.studies import fig11, fig12, fig19, table3
from decima.studies.multi_resource import GRAPHENE_STAR, GROUPS, OURS, TETRIS, experiments, learned, used
from decima.studies.study import Study
from decima.studies.study_report import Outcome, shown, study_notes
from simulator.cluster.config import ClusterConfig, ExecutorClass
from tests.decima.episodes import episode
from tests.decima.show.test_plots import difference
from tests.decima.studies.test_study_report import made_up
from workloads import Workload, WorkloadError, trace_arrivals


@pytest.fixture(autouse=True)
def _few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers are tuned on two settings each, and a rule stands for the policy."""
    for module in (fig11, fig12, fig19):
        monkeypatch.setattr(module, "learned", lambda *_: "drf")
    few = {name: (grid[0], grid[-1]) for name, grid in GRIDS.items()}
    monkeypatch.setattr("decima.evaluation.comparison.GRIDS", few)
    monkeypatch.setattr("decima.studies.study.ALPHAS", (-1.0, 0.0))


@pytest.fixture(scope="module")
def packing(study: Study) -> Study:
    """Two experiments of ten jobs on two executors of each class."""
    return replace(study, executors=8, num_jobs=10)


@pytest.fixture(scope="module")
def trace(packing: Study) -> Study:
    """The same on a trace: 10 windows of 10 s with six jobs each."""
    profiles = packing.workload.profiles
    sequence = trace_arrivals([profiles[job % 3] for job in range(60)], 1667.0 * np.arange(60))
    return replace(packing, workload=Workload(profiles, sequence, "tiny trace"))


def told(outcome: Outcome) -> tuple[list[str], dict[str, str]]:
    """Scheduler names; the paper's words and whether they hold, which the shown table has too."""
    result = shown(outcome, "decima")
    content = json.loads(result.json)
    assert [claim["paper"] for claim in content["claims"]] == [claim.paper for claim in outcome.claims]
    assert len(result.tables) == 2 + len(outcome.tables)
    return list(content["conditions"][0]["schedulers"]), {each.paper: each.here for each in outcome.claims}


def test_fig11b(packing: Study) -> None:
    outcome = fig11.fig11b(packing, interval_s=3.0)
    names, claims = told(outcome)
    assert names == [*fig11.OTHERS, TETRIS, *fig11.HEURISTICS, OURS, "decima"]
    comparison = outcome.comparisons[""]
    conditions = comparison.conditions
    assert conditions.memory_demand == "uniform"
    assert [(kind.count, kind.memory) for kind in conditions.cluster.executor_classes] == [
        (2, 0.25),
        (2, 0.5),
        (2, 0.75),
        (2, 1.0),
    ]
    jct = {name: comparison.runs(name)["mean_jct_s"].mean() for name in names}
    assert outcome.extra["best_heuristic"] == min(fig11.HEURISTICS, key=jct.__getitem__)
    assert jct["tuned-tetris"] <= jct[TETRIS]
    change = jct["decima"] / jct[GRAPHENE_STAR] - 1
    assert f"decima: {change:+.1%} ± " in claims["Decima's average JCT is 43% below that of Graphene*."]
    unused = comparison.runs("decima")["fragmentation"].mean()
    assert claims["Decima's fragmentation is within 4% to 13% of Tetris's."].startswith(f"{unused:.1%} of")
    assert any(note.startswith("A simple rule, packed-srpt: ") for note in study_notes(outcome))


def test_fig11a(trace: Study) -> None:
    outcome = fig11.fig11a(trace, window_s=10.0)
    assert "Windows of 10 s of tiny trace, 8 executors of 4 sizes" in outcome.title
    comparison = outcome.comparisons[""]
    assert [len(comparison.conditions.sequence(seed)) for seed in comparison.finished] == [6, 6]
    assert len(comparison.training_seeds) == 2
    content = json.loads(shown(outcome, "decima").json)["conditions"][0]
    assert (content["arrivals"], content["window_s"], content["jobs"]) == ("exact", 10.0, 6)


def test_fig12_and_fig20(packing: Study, trace: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = fig12.fig12(packing, interval_s=3.0)
    names, claims = told(outcome)
    assert names == [TETRIS, GRAPHENE_STAR, "decima"]
    by_work = outcome.extra["by_work"]
    for name in names:
        jct_s = np.array(by_work[name]["jct_s"])
        assert jct_s.shape == (2, GROUPS)
        runs = outcome.comparisons[""].runs(name)
        np.testing.assert_allclose(jct_s.mean(axis=1), runs["mean_jct_s"])  # groups are of one size
    executors = {name: np.array(by_work[name]["executors"])[:, 0, 3].mean() for name in names}
    more = executors["decima"] / executors[GRAPHENE_STAR] - 1
    [largest] = [here for paper, here in claims.items() if "39% more" in paper]
    assert largest.startswith(f"{more:+.1%}")
    assert set(outcome.pictures) == {"fig12", "fig20"}
    assert len(fig12.fig12(trace, window_s=10.0).claims) == 4
    with pytest.raises(CompareError, match="3 jobs, expected at least 5"):
        fig12.fig12(trace, window_s=4.0)


def test_fig19(packing: Study) -> None:
    outcome = fig19.fig19(packing, interval_s=3.0)
    names, claims = told(outcome)
    assert names == [GRAPHENE_STAR, "decima"]
    record = outcome.comparisons[""].episodes["decima"]
    assert claims["Decima has fewer jobs in the system."].startswith(f"{record.mean_jobs_in_system:.1f} ")
    busy = record.busy_ms.sum() / record.jct_ms.sum()
    assert claims["It gives each job more executors."].startswith(f"{busy:.1f} ")
    assert len(fig19.plot_fig19(outcome).axes) == 7


def test_table3(packing: Study, tmp_path: Path) -> None:
    outcome = table3.table3(replace(packing, executors=40, policies=tmp_path), interval_s=0.5)
    content = json.loads(shown(outcome, "decima").json)
    learned = [table3.HERE, table3.FEWER_JOBS, table3.FEWER_EXECUTORS]
    assert list(content["conditions"][0]["schedulers"]) == [HINDSIGHT, GRAPHENE_STAR, OURS, *learned]
    assert [policy["schedulers"] for policy in content["policies"].values()] == [[name] for name in learned]
    trained = [policy["config"] for policy in content["policies"].values()]
    assert [each["workload"]["interval"] for each in trained] == [0.5, 7.5, 5.0]
    classes = [each["cluster"]["classes"] for each in trained]
    assert classes == [f"{count}x0.25,{count}x0.5,{count}x0.75,{count}x1" for count in (10, 10, 1)]
    assert outcome.notes[0].startswith(f"In pairs: {table3.FEWER_JOBS}, ")


def test_a_tenth_of_the_executors_has_all_sizes_too(packing: Study) -> None:
    with pytest.raises(CompareError, match="1 executors: expected a multiple of 4"):
        table3.table3(packing)


def test_means_of_a_step_function() -> None:
    steps = pd.Series([2.0, 4.0, 0.0], index=[10.0, 20.0, 30.0])
    assert fig19.over_time(steps, np.array([0.0, 10.0, 15.0, 25.0, 40.0])).tolist() == [0.0, 2.0, 3.0, 4 / 3]


def test_executors_that_a_job_used_are_counted_once() -> None:
    record = episode()
    assert used(record).tolist() == [[6]] * 4  # each runs two tasks on each of them
    two = ClusterConfig(executor_classes=(ExecutorClass(2), ExecutorClass(4)))
    assert used(replace(record, config=two)).tolist() == [[2, 4]] * 4


def test_the_policy(packing: Study, trace: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = experiments(packing, trace=False)
    assert (
        learned(replace(packing, checkpoint=tmp_path / "mine.npz"), drawn)
        == f"decima:{tmp_path / 'mine.npz'}"
    )
    file = tmp_path / "shipped.npz"
    file.touch()
    other = tmp_path / "of-traces.npz"
    other.touch()
    monkeypatch.setitem(SHIPPED, "packing-tpch", file)
    monkeypatch.setitem(SHIPPED, "packing-trace", other)
    published = replace(packing, source={"profiles": "somewhere"})
    assert learned(published, drawn) == f"decima:{file}"
    assert learned(trace, experiments(trace, trace=True, window_s=10.0)) == f"decima:{other}"
    other.unlink()
    with pytest.raises(CompareError, match="--checkpoint FILE"):
        learned(trace, experiments(trace, trace=True, window_s=10.0))


@pytest.mark.parametrize(("executors", "error"), [(8, WorkloadError), (6, CompareError)])
def test_what_cannot_be_compared(
    make_study: Callable[..., Study], tmp_path: Path, executors: int, error: type[Exception]
) -> None:
    with pytest.raises(
        error, match=r"does not say which jobs arrive when|6 executors: expected a multiple of 4"
    ):
        fig11.fig11a(make_study(tmp_path, executors=executors))


# ---- pictures ----------------------------------------------------------------------------------------------

CHANGES = [[Interval(0.3 - 0.1 * group + 0.15 * kind, 0.1) for kind in range(4)] for group in range(GROUPS)]


def test_figure_11(tmp_path: Path) -> None:
    means = {"fair": 90.0, TETRIS: 500.0, HINDSIGHT: 80.0, GRAPHENE_STAR: 78.0, OURS: 52.0, "decima": 50.0}
    figure = fig11.plot_fig11(Outcome("fig11b", "", made_up({"": means})))
    assert difference(figure, "fig11", tmp_path) is None


def test_figures_12_and_20(tmp_path: Path) -> None:
    jct = [Interval(-0.5 + 0.1 * group, 0.05) for group in range(GROUPS)]
    outcome = Outcome("fig12", "", {}, extra={"change_of_jct": jct, "change_of_executors": CHANGES})
    assert difference(fig12.plot_fig12(outcome), "fig12", tmp_path) is None
    assert difference(fig12.plot_fig20(outcome), "fig20", tmp_path) is None


def test_figure_19(tmp_path: Path) -> None:
    four = ClusterConfig(executor_classes=tuple(ExecutorClass(count, 1.0, 2.0) for count in (1, 2, 1, 2)))

    names = (GRAPHENE_STAR, "decima")
    episodes = {name: replace(episode(1 + place / 4), config=four) for place, name in enumerate(names)}
    outcome = Outcome("fig19", "", {"": SimpleNamespace(episodes=episodes)})  # type: ignore[dict-item]
    assert difference(fig19.plot_fig19(outcome), "fig19", tmp_path) is None
