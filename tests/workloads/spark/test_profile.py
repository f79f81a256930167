"""Profiles pooled from runs of a query."""

from __future__ import annotations

import pytest

from tests.workloads.spark.logs import LogBuilder, stage_info
from workloads.job import Wave, WorkloadError
from workloads.spark.application import SparkQuery
from workloads.spark.eventlog import read_event_log
from workloads.spark.profile import to_profile


@pytest.fixture
def run(tmp_path):
    """A query of three jobs, each one stage: two that may run at once, and one after both."""

    def run_query(
        starts: tuple[int, ...] = (2000, 2010, 2400),
        duration: int = 100,
        tasks: tuple[int, ...] = (1, 2, 1),
        rdds: tuple[int, ...] = (1, 5, 9),
        executors: int = 1,
    ) -> SparkQuery:
        log = LogBuilder().sql(0, 1900, "q")
        for executor in range(executors):
            log.executor(str(executor))
        for job, start in enumerate(starts):
            log.job(job, [stage_info(job, tasks[job], rdd=rdds[job])], at=start, sql=0)
            log.run(job, start, start + duration * tasks[job]).job_end(job, start + duration * tasks[job])
        [application] = read_event_log(log.sql_end(0, 9000).end().write(tmp_path / "log"))
        return application.queries[0]

    return run_query


def test_durations_by_wave_and_level(run):
    profile = to_profile([run(), run(duration=80), run(duration=50, executors=2)])
    assert profile.name == "q"
    assert [stage.num_tasks for stage in profile.stages] == [1, 2, 1]
    middle = profile.stages[1].durations
    assert middle.levels.tolist() == [1, 2]
    assert middle.table(Wave.FIRST)[1].tolist() == [100.0, 80.0]
    assert middle.table(Wave.REST)[2].tolist() == [50.0]
    assert profile.stages[0].durations.table(Wave.FRESH)[2].tolist() == [50.0]
    assert profile.edges.tolist() == [[0, 2], [1, 2]]


def test_a_barrier_by_chance_is_dropped(run):
    """In one run the second job happened to start after the first had ended."""
    by_chance = run(starts=(2000, 2150, 2400))
    assert by_chance.edges.tolist() == [[0, 1], [1, 2]]
    assert to_profile([by_chance, run()]).edges.tolist() == [[0, 2], [1, 2]]
    assert to_profile([run(), by_chance]).edges.tolist() == [[0, 2], [1, 2]]


def test_stages_that_were_numbered_otherwise_are_matched(run):
    other = run(tasks=(2, 1, 1), duration=50)
    profile = to_profile([run(), other])
    assert [stage.num_tasks for stage in profile.stages] == [1, 2, 1]
    assert sorted(profile.stages[1].durations.values.tolist()) == [50.0, 50.0, 100.0, 100.0]


def test_runs_that_do_not_match(run):
    with pytest.raises(WorkloadError, match="q of app-1 has another DAG than q of app-1"):
        to_profile([run(), run(tasks=(1, 3, 1))])


def test_no_runs():
    with pytest.raises(WorkloadError, match="at least one run"):
        to_profile([])
