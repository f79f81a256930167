"""Representations of objects: one line of text."""

from typing import Any

import numpy as np

from decima.evaluation.comparison import Comparison
from simulator import DECIMA_SIM, ClusterConfig, ExecutorClass, make_cluster
from tests.cases import cases
from tests.decima.episodes import episode
from tests.decima.evaluation.examples import finished, profile
from workloads import JobProfile, JobSequence, Workload, embedded_tpch

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
    assert repr(JobProfile("\ud800'\"", JOB.stages)).startswith("JobProfile(")
