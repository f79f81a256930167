"""Profiles with the driver's delays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workloads.spark.recordings import recording
from workloads.job import Wave
from workloads.spark.eventlog import read_event_log
from workloads.spark.profiles import DRIVER_THREADS, replay_profile, to_profile, with_driver
from workloads.spark.query import SparkQuery, matched


@pytest.fixture
def run(tmp_path):
    """One run of the query, with other delays and durations if wanted."""

    def read(name: str = "q01_r1", **changes: int) -> SparkQuery:
        [application] = read_event_log(recording(name, **changes).write(tmp_path / name))
        return application.queries[0]

    return read


def demands(profile):
    return [(stage.num_tasks, stage.cpu, stage.memory) for stage in profile.stages]


def test_a_replay_holds_every_task_and_delay_once(run):
    profile = replay_profile(run())
    durations = [100.0, *[0.0, 300.0, 300.0, 100.0, 100.0], *[20.0, 60.0, 60.0]]
    assert [stage.durations.spread for stage in profile.stages] == [(each, each) for each in durations]
    first, wait, task = (DRIVER_THREADS, 0.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 0.0)
    assert demands(profile) == [first, wait, task, task, task, task, wait, task, task]
    assert profile.parents == ((), (0,), *(((1,),) * 4), (2, 3, 4, 5), (6,), (6,))


def test_a_replay_may_begin_after_another_time_of_planning(run):
    planned, asked = replay_profile(run()), replay_profile(run(), planning_ms=7.0)
    assert [profile.stages[0].durations.spread for profile in (planned, asked)] == [(100.0,) * 2, (7.0,) * 2]
    assert [stage.durations.spread for stage in planned.stages[1:]] == [
        stage.durations.spread for stage in asked.stages[1:]
    ]


def test_delays_are_drawn_from_those_of_the_runs(run):
    runs = [run(), run("q01_r2", lag=30)]
    profile = with_driver(to_profile(matched(runs)), runs)
    planning, scan, lag, last = profile.stages
    assert planning.durations.values.tolist() == [100.0, 100.0]
    assert sorted(lag.durations.values.tolist()) == [20.0, 30.0]
    assert scan.durations.table(Wave.FRESH)[2].tolist() == [300.0] * 4
    assert profile.parents == ((), (0,), (1,), (2,))
    assert (last.num_tasks, last.cpu, last.memory) == (2, 1.0, 0.0)


def test_a_stage_that_never_waited_has_no_delay(run):
    first = run(lag=0)
    profile = with_driver(to_profile(matched([first])), [first], planning_ms=[7.0])
    assert demands(profile) == [(DRIVER_THREADS, 0.0, 1.0), (4, 1.0, 0.0), (2, 1.0, 0.0)]
    assert profile.stages[0].durations.values.tolist() == [7.0]


def test_the_tasks_alone(run):
    profile = with_driver(to_profile(matched([run()])), [run()], driver=False)
    assert demands(profile) == [(4, 1.0, 0.0), (2, 1.0, 0.0)]
    assert profile.edges.tolist() == [[0, 1]]


def test_stages_come_in_the_order_of_their_submission(shared):
    """Spark serves the ready stage with the lowest number, which is not the order of the profile."""
    [application] = read_event_log(shared("spark/eventlogs") / "q02_sf1_n2_r2.json.gz")
    run = application.queries[0]
    numbers = [stage.stage_id for stage in run.stages]
    assert numbers != sorted(numbers)
    profile = with_driver(to_profile(matched([run])), [run], driver=False)
    by_number = [run.stages[place] for place in np.argsort(numbers)]
    assert [stage.name for stage in profile.stages] == [stage.name for stage in by_number]
    assert [stage.num_tasks for stage in profile.stages] == [stage.num_tasks for stage in by_number]
