"""Properties of a measured query, and the lines of a report."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from tests.workloads.spark.runs import Stage, measured_run
from workloads.job import Wave
from workloads.spark import eventlog, importing, logfile, model, query, reader
from workloads.spark.eventlog import LogReport, SparkApplication, read_event_log
from workloads.spark.query import TASK_COLUMNS, SparkQuery
from workloads.spark.reader import SparkExecutor, SparkStage


def a_query(**changes: float) -> SparkQuery:
    """Stages 0 -> 1 and 2 -> 3; the first job is submitted at 1000, the last ends at 5000."""
    stages = [Stage(1), Stage(1, parents=(0,)), Stage(1), Stage(1, parents=(1, 2))]
    run = measured_run(stages, [(place, Wave.REST, 1, 10.0, 0.0, 0.0) for place in range(4)])
    times = [(1005.0, 1100.0), (1130.0, 1200.0), (1000.0, 1900.0), (1960.0, 2000.0)]
    return dataclasses.replace(
        run,
        stages=tuple(SparkStage(n, "", 1, *each) for n, each in enumerate(times)),
        tasks=run.tasks.assign(launch_ms=[1010.0, 1140.0, 1001.0, 1970.0]),
        **(
            {"start_ms": 400.0, "submitted_ms": 1000.0, "last_job_end_ms": 5000.0, "end_ms": 5300.0} | changes
        ),
    )


def test_times_of_a_query():
    run = a_query()
    assert (run.wall_ms, run.span_ms, run.planning_ms, run.result_ms) == (4900.0, 4000.0, 600.0, 300.0)
    assert run.ended_ms == 5300.0
    assert run.edges.tolist() == [[0, 1], [1, 3], [2, 3]]


def test_times_of_a_query_that_did_not_end():
    run = a_query(end_ms=math.nan, last_job_end_ms=math.nan)
    assert run.ended_ms == 1980.0
    assert run.result_ms == 0.0
    assert math.isnan(run.wall_ms)


def test_times_are_not_negative():
    early = a_query(start_ms=1001.0, end_ms=4999.0)
    assert (early.planning_ms, early.result_ms) == (0.0, 0.0)


def test_lags_of_the_driver():
    run = a_query()
    assert run.submission_lag_ms.tolist() == [5.0, 30.0, 0.0, 60.0]
    assert run.driver_lag_ms == 5 + 30 + 60
    late = dataclasses.replace(run, submitted_ms=2000.0)
    assert late.submission_lag_ms.tolist() == [0.0] * 4
    assert late.driver_lag_ms == 0.0


def test_lags_that_the_log_does_not_tell_do_not_count():
    run = a_query()
    first = dataclasses.replace(run.stages[0], submitted_ms=math.nan)
    assert dataclasses.replace(run, stages=(first, *run.stages[1:])).driver_lag_ms == 30 + 60
    unknown = tuple(dataclasses.replace(stage, submitted_ms=math.nan) for stage in run.stages)
    assert dataclasses.replace(run, stages=unknown).driver_lag_ms == 0.0


def test_how_long_an_executor_took_to_start():
    executor = SparkExecutor("0", requested_ms=1000.0, registered_ms=3500.0)
    assert (executor.startup_ms, executor.host) == (2500.0, "")


def test_a_report_counts_in_words():
    report = LogReport(failed_tasks=3, lost_executors=1, outside_parents=2, problems=("log:1: bad",))
    assert report.lines() == ["log:1: bad", "3 failed tasks, 1 lost executors, 2 outside parents"]
    assert LogReport().lines() == []
    assert {value for value in vars(LogReport()).values() if isinstance(value, int)} == {0}


def test_a_report_names_the_most_frequent_kinds_of_ignored_events():
    ignored = {"SparkListenerA": 1, "org.x.SparkListenerB": 5, "C": 4, "D": 3, "E": 2, "F": 1}
    kinds = "5 B, 4 C, 3 D, 2 E and 2 other kinds"
    assert LogReport(ignored_events=ignored).lines() == [f"16 events that say nothing of durations ({kinds})"]
    four = dict.fromkeys("abcd", 1)
    line = "1 failed tasks, 4 events that say nothing of durations (1 a, 1 b, 1 c, 1 d)"
    assert LogReport(failed_tasks=1, ignored_events=four).lines() == [line]


@pytest.mark.parametrize(
    "kind",
    [
        reader.SparkExecutor, reader.SparkStage, reader.Job, reader.Execution, query.SparkQuery, query.StageDag,
        query.QueryRuns, eventlog.LogReport, eventlog.SparkApplication, logfile.EventLog, importing.SparkImport,
        model.SparkModel,
    ],
)  # fmt: skip
def test_what_was_read_does_not_change(kind):
    """Nor are records with tables and arrays compared by them."""
    record = object.__new__(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "x"
    holds_arrays = kind not in (
        reader.SparkExecutor, reader.SparkStage, reader.Job, reader.Execution, eventlog.LogReport, logfile.EventLog,
        model.SparkModel,
    )  # fmt: skip
    assert (kind.__eq__ is object.__eq__) == holds_arrays


@pytest.fixture
def read(tmp_path):
    def read_log(log: LogBuilder, *, partial: bool = False) -> SparkApplication:
        [found] = read_event_log(log.write(tmp_path / "log"), partial=partial)
        return found

    return read_log


def test_executors_that_failed_to_start_were_never_there(read):
    """Spark tells that they left; nothing ran on them. One that runs tasks was there, even if it was not introduced."""
    log = small_log().remove("7", 3000, "worker lost").remove("0", 3000, "worker lost")
    log.job(1, [stage_info(2, 1)], at=4000).run(2, 4000, 4100, executor="5").job_end(1, 4100)
    found = read(log)
    assert {each.name: (each.slots, each.lost, each.removed_ms) for each in found.executors} == {
        "0": (1, True, 3000.0),
        "7": (0, True, 3000.0),
        "5": (1, False, pytest.approx(math.nan, nan_ok=True)),
    }
    assert found.report.lost_executors == 1
    assert [each.host for each in found.executors] == ["h", "", ""]


@pytest.mark.parametrize(
    ("reason", "lost"),
    [
        ("Executor killed by driver.", False),
        ("worker decommissioned: x", False),
        ("Executor Decommission", False),
        ("worker lost", True),
        ("", True),
    ],
)
def test_which_executors_are_lost(read, reason, lost):
    assert read(small_log().remove("0", 5000, reason)).executors[0].lost == lost


def test_the_settings_of_an_application(read):
    settings = {"spark.master": "spark://h:1", "spark.scheduler.mode": "fair", "spark.plugins": "x.Other"}
    found = read(small_log().add("EnvironmentUpdate", **{"Spark Properties": settings}))
    assert (found.master, found.scheduler) == ("spark://h:1", "FAIR")
    plugin = {"spark.plugins": "x.DecimaPlugin"}
    assert read(small_log().add("EnvironmentUpdate", **{"Spark Properties": plugin})).scheduler == "decima"
    plain = read(small_log().add("EnvironmentUpdate"))
    assert (plain.master, plain.scheduler, plain.executors[0].slots) == ("", "FIFO", 1)
    nothing = read(small_log())
    assert (nothing.master, nothing.scheduler, nothing.recording) == ("", "", {})


def test_an_executor_with_too_few_cores_for_a_task_runs_one(read):
    log = small_log().add("EnvironmentUpdate", **{"Spark Properties": {"spark.task.cpus": "4"}})
    assert read(log).executors[0].slots == 1


def test_the_pool_of_a_query_is_that_of_its_first_job(read):
    log = LogBuilder().executor("0").sql(0, 1900)
    for job, pool in enumerate(("night", "day")):
        start = 2000 + 1000 * job
        log.job(job, [stage_info(job, 1)], at=start, sql=0, **{"spark.scheduler.pool": pool})
        log.run(job, start, start + 100).job_end(job, start + 100)
    [found] = read(log.sql_end(0, 4000).end()).queries
    assert (found.pool, found.num_jobs, found.last_job_end_ms, found.end_ms) == ("night", 2, 3100.0, 4000.0)
    assert read(small_log()).queries[0].pool == ""


def test_names_of_queries(read):
    """The job's description, else its group, else the execution's description, else its number."""
    log = LogBuilder().executor("0")
    names = [{"spark.job.description": "a", "spark.jobGroup.id": "g"}, {"spark.jobGroup.id": "g"}, {}, {}]
    for job, named in enumerate(names):
        start = 2000 + 1000 * job
        log.sql(job, start, "sql" if job < 3 else "").job(
            job, [stage_info(job, 1)], at=start, sql=job, **named
        )
        log.run(job, start, start + 100).job_end(job, start + 100).sql_end(job, start + 150)
    log.job(4, [stage_info(4, 1)], at=8000, **{"spark.job.description": "plain"}).run(4, 8000, 8100)
    found = read(log.job_end(4, 8100).end()).queries
    assert [each.name for each in found] == ["a", "g", "sql", "execution 3", "plain"]
    assert [each.start_ms for each in found] == [2000.0, 3000.0, 4000.0, 5000.0, 8000.0]


def test_an_execution_whose_start_is_not_in_the_log_is_its_jobs(read):
    log = LogBuilder().executor("0")
    for job, end in ((0, 2400), (1, 2300)):
        log.job(job, [stage_info(job, 1)], at=2000 + job, sql=5).run(job, 2010 + job, 2100).job_end(job, end)
    [found] = read(log.end()).queries
    assert (found.name, found.start_ms, found.end_ms, found.plan) == ("execution 5", 2000.0, 2400.0, ())


@pytest.mark.parametrize(
    ("result", "error", "failed"),
    [("JobSucceeded", "", 0), ("JobFailed", "", 1), ("JobSucceeded", "boom", 1), ("JobFailed", "boom", 1)],
)
def test_a_query_fails_by_its_error_or_its_last_job(read, result, error, failed):
    log = LogBuilder().executor("0").sql(0, 1900)
    log.job(0, [stage_info(0, 1)], at=2000, sql=0).run(0, 2000, 2100).job_end(0, 2100, result)
    found = read(log.sql_end(0, 2200, error=error).end(), partial=True)
    assert found.report.failed_queries == failed
    assert [each.complete for each in found.queries] == [not failed]


def test_stages_of_a_query_that_succeeded_count_if_they_completed(read):
    """One of two tasks of stage 1 ended, and then the query had what it needed (a limit)."""
    log = LogBuilder().executor("0").sql(0, 1900)
    log.job(0, [stage_info(0, 1), stage_info(1, 2)], at=2000, sql=0).run(0, 2000, 2100)
    log.submit(1, 2100).task(1, 0, "0", 2100, 2200).job_end(0, 2200)
    whole = read(log.sql_end(0, 2300).end())
    assert [stage.stage_id for stage in whole.queries[0].stages] == [0]
    assert (whole.queries[0].num_skipped, whole.report.missing_tasks) == (1, 0)
    log.events = [event for event in log.events if not event["Event"].endswith("SQLExecutionEnd")]
    broken = read(log, partial=True)
    assert [stage.stage_id for stage in broken.queries[0].stages] == [0, 1]
    assert (broken.report.missing_tasks, broken.report.unfinished_queries) == (0, 1)


def test_a_stage_whose_completion_was_dropped_is_known_by_its_tasks(read):
    log = small_log()
    log.events = [event for event in log.events if not event["Event"].endswith("StageCompleted")]
    [found] = read(log).queries
    assert [stage.num_tasks for stage in found.stages] == [3, 1]
    assert np.isnan([stage.completed_ms for stage in found.stages]).all()


def test_tasks_are_in_order_of_launch_then_stage_then_partition(read):
    log = LogBuilder().executor("0", cores=4).job(0, [stage_info(0, 2), stage_info(1, 2)], at=2000)
    log.submit(0, 2000).submit(1, 2000)
    for stage, task, start in ((1, 1, 2000), (1, 0, 2000), (0, 1, 2000), (0, 0, 2001)):
        log.task(stage, task, "0", start, 2100)
    [found] = read(log.complete(0, 2100).complete(1, 2100).job_end(0, 2100).end()).queries
    assert found.tasks[["stage", "partition"]].to_numpy().tolist() == [[0, 1], [1, 0], [1, 1], [0, 0]]
    assert list(found.tasks.columns) == list(TASK_COLUMNS)
    assert found.tasks.index.tolist() == [0, 1, 2, 3]
