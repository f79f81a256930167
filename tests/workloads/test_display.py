"""Representations of objects: one line of text, a table in notebooks, and data that is never markup."""

from typing import Any

import numpy as np

from decima.evaluation.comparison import Comparison
from decima.schedulers import Fifo
from simulator import DECIMA_SIM, ClusterConfig, ExecutorClass, make_cluster, run_episode
from tests.cases import cases
from tests.decima.episodes import episode
from tests.decima.evaluation.examples import conditions, finished, profile
from workloads import JobProfile, JobSequence, Workload, batch_arrivals, embedded_tpch
from workloads.display import MOST_ROWS, html_table

JOB = profile("map\u202e <b>&\n" + 200 * "x", 5)
LONG = JobSequence((JOB,) * 500, np.zeros(500), seed=3)


def comparison() -> Comparison:
    return finished({"fair": [5.0, 6.0], "fifo": [7.0, 8.0]})


@cases(
    "thing, text",
    (profile("etl", 5), "JobProfile('etl', 2 stages, 10 tasks, 7.3 s of work)"),
    (embedded_tpch()[0].stages[0].durations, "TaskDurations("),
    (profile("etl", 1).stages[0], "StageProfile('map', 1 task of 0.73 s)"),
    (LONG, "JobSequence(500 jobs, 5,000 tasks, arrivals 0 to 0.0 s, seed 3)"),
    (Workload((profile("etl", 5),), None, "mine"), "Workload('mine', 1 profile)"),
    (Workload((JOB,), LONG), "Workload('', 1 profile, 500 jobs)"),
    (episode(), "EpisodeRecord("),
    (make_cluster(ClusterConfig(3), LONG).observe(), "Observation(at 0.0 s, 3 executors offered, "),
    (comparison(), "Comparison(2 schedulers, 2 of 2 experiments finished, best heuristic fair)"),
    (ClusterConfig(), "ClusterConfig(num_executors=50)"),
    (ClusterConfig(9, moving_delay_ms=3.0), "ClusterConfig(num_executors=9, moving_delay_ms=3.0)"),
    ids=lambda each: type(each).__name__,
)
def test_repr_is_one_short_line(thing: Any, text: str) -> None:
    shown = repr(thing)
    assert shown.startswith(text)
    assert len(shown) < 160
    assert "\n" not in shown


def test_what_is_shown() -> None:
    for config in (
        ClusterConfig(executor_classes=(ExecutorClass(2, memory=0.5), ExecutorClass(3))),
        ClusterConfig(executor_classes=(ExecutorClass(2, memory=0.5),), reward="makespan"),
        ClusterConfig(7, semantics=DECIMA_SIM),
    ):
        names = {"ClusterConfig": ClusterConfig, "ExecutorClass": ExecutorClass, "Semantics": type(DECIMA_SIM)}
        assert eval(repr(config), names) == config
    assert "and 488 more" in LONG._repr_html_()
    assert "more" not in html_table("title", ["a"], [[1]], 1)
    assert repr(JobProfile("\ud800'\"", JOB.stages)).startswith("JobProfile(")


@cases(
    "thing",
    JOB,
    LONG,
    Workload((JOB,), LONG, "<script>"),
    run_episode(ClusterConfig(3), batch_arrivals([JOB], 2, seed=0), Fifo()),
    make_cluster(ClusterConfig(3), LONG).observe(),
    Comparison(conditions(), {"<script>alert(1)</script>": "fair"}),
    ids=lambda each: type(each).__name__,
)
def test_a_notebook_shows_a_table_in_which_names_are_data(thing: Any) -> None:
    shown = thing._repr_html_()
    assert shown.count("<table>") == 1
    assert shown.count("<tr>") <= MOST_ROWS + 1
    for evil in ("<b>", "<script", "\u202e", "\n", 100 * "x"):
        assert evil not in shown
