"""Profiles pooled from runs of a query."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.workloads.spark.logs import LogBuilder, stage_info
from tests.workloads.spark.runs import Stage, measured_run
from workloads.job import Wave, WorkloadError
from workloads.spark.application import SparkQuery
from workloads.spark.eventlog import read_event_log
from workloads.spark.profile import match_stages, on_warm_executors, same_dag, to_profile


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


def test_a_stage_of_which_no_task_ended():
    """The first run names the stage, and is named."""
    stages = [Stage(1), Stage(1, parents=(0,))]
    some = [(0, Wave.REST, 1, 10.0, 0.0, 0.0)]
    runs = [measured_run(stages, some), replace(measured_run(stages, some), name="other")]
    with pytest.raises(WorkloadError, match=r"^q: no task of stage 1 ended$"):
        to_profile(runs)
    both = [*some, (1, Wave.FIRST, 2, 5.0, 0.0, 0.0)]
    profile = to_profile([runs[0], measured_run(stages, both)], name="mine")
    assert profile.name == "mine"
    assert profile.stages[1].durations.table(Wave.FIRST)[2].tolist() == [5.0]


def test_warm_executors():
    """Fresh durations go, but where nothing else is known of a level; the mean stays."""
    rows = [(Wave.FRESH, 1, 900.0), (Wave.FIRST, 1, 90.0), (Wave.REST, 1, 60.0), (Wave.FRESH, 2, 800.0)]
    rows += [(Wave.FRESH, 4, 700.0), (Wave.REST, 4, 50.0), (Wave.FRESH, 8, 600.0), (Wave.FIRST, 8, 80.0)]
    tasks = [(0, wave, level, duration, 0.0, 0.0) for wave, level, duration in rows]
    cold = to_profile([measured_run([Stage(8, name="scan")], tasks)])
    [stage] = on_warm_executors(cold).stages
    tables = [stage.durations.table(wave) for wave in Wave]
    found = [{level: each.tolist() for level, each in table.items() if each.size} for table in tables]
    assert found == [{}, {1: [90.0], 2: [800.0], 8: [80.0]}, {1: [60.0], 4: [50.0]}]
    assert stage.durations.mean_ms == cold.stages[0].durations.mean_ms
    assert (stage.name, stage.num_tasks) == ("scan", 8)


def test_stages_are_matched_by_operators_tasks_and_edges():
    def run(*stages: Stage) -> SparkQuery:
        return measured_run(list(stages), [(place, Wave.REST, 1, 1.0, 0, 0) for place in range(len(stages))])

    one = run(Stage(2, name="a"), Stage(3, name="b"), Stage(1, name="c", parents=(0, 1)))
    other = run(Stage(3, name="b"), Stage(2, name="a"), Stage(1, name="c", parents=(0, 1)))
    assert match_stages(one, one) == {0: 0, 1: 1, 2: 2}
    assert match_stages(one, other) == {0: 1, 1: 0, 2: 2}
    more_tasks = run(Stage(2, name="a"), Stage(4, name="b"), Stage(1, name="c", parents=(0, 1)))
    assert not same_dag(one, more_tasks)
    assert match_stages(one, more_tasks, same_tasks=False) == {0: 0, 1: 1, 2: 2}
    assert same_dag(one, more_tasks, same_tasks=False)
    for different in (
        run(Stage(2, name="a"), Stage(3, name="x"), Stage(1, name="c", parents=(0, 1))),
        run(Stage(2, name="a"), Stage(3, name="b"), Stage(1, name="c", parents=(0,))),
        run(Stage(2, name="a"), Stage(3, name="b")),
    ):
        assert not same_dag(one, different, same_tasks=False)
        with pytest.raises(WorkloadError, match="q of app-q has another DAG than q of app-q"):
            match_stages(one, different)
