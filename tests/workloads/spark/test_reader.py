"""Fields of Spark's events: parsed values, ranges, and rejected values."""

import math
from typing import Any

import pytest

from tests.cases import cases
from tests.workloads.spark.logs import SQL, LogBuilder, small_log, stage_info
from workloads.job import MOST_TASKS
from workloads.spark import reader
from workloads.spark.reader import EventTables, TaskOutcome

UUID, OTHER = "66d0efdc-7c75-4203-bae3-8cbb009a6ac8", "899f1edd-0147-43f8-b04e-493f4f2ba986"


def tables(log: LogBuilder) -> EventTables:
    """Return tables built from the events of a log."""
    found = EventTables()
    for event in log.events:
        found.add(event["Event"], event)
    return found


def last(log: LogBuilder, name: str) -> dict[str, Any]:
    """Return the last event of the given name, to be changed."""
    return [event for event in log.events if event["Event"].endswith(name)][-1]


@pytest.mark.parametrize("time", [2.5e14, -2.5e14, math.inf, math.nan])
def test_times_that_no_calendar_has(time):
    log = small_log()
    last(log, "ApplicationEnd")["Timestamp"] = time
    with pytest.raises(ValueError, match="time: "):
        tables(log)


@pytest.mark.parametrize("time", [2.5e14 - 1, 0, "1700"])
def test_times_that_a_calendar_has(time):
    log = small_log()
    last(log, "ApplicationEnd")["Timestamp"] = time
    assert tables(log).end_ms == float(time)


def test_tasks_end_and_tell_what_they_took():
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000).task(0, 0, "0", 2000, 2000)
    runs = tables(log).task_runs()
    assert runs[["launch_ms", "finish_ms", "executor", "partition"]].to_numpy().tolist() == [[2000, 2000, 0, 0]]
    with pytest.raises(ValueError, match="Finish Time: it is before the Launch Time"):
        tables(log.task(0, 0, "0", 2000, 1999))
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000)
    outcomes = {
        "Success": TaskOutcome.SUCCESS,
        "TaskKilled": TaskOutcome.KILLED,
        "TaskCommitDenied": TaskOutcome.KILLED,
        "ExceptionFailure": TaskOutcome.FAILED,
        "UnknownReason": TaskOutcome.FAILED,
        "FetchFailed": TaskOutcome.FETCH_FAILED,
        "ExecutorLostFailure": TaskOutcome.LOST,
        "TaskResultLost": TaskOutcome.LOST,
    }
    for reason in (*outcomes, "Resubmitted"):
        log.task(0, 0, "0", 2000, 2100, reason=reason)
    found = tables(log)
    assert found.task_runs()["outcome"].tolist() == list(outcomes.values())
    assert found.tally == {
        "started_tasks": 8, "ended_tasks": 8, "resubmitted_tasks": 1, "speculative_tasks": 0, "retried_tasks": 0,
    }  # fmt: skip
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000).task(0, 3, "0", 2000, 2100)
    info = last(log, "TaskEnd")
    info["Task Metrics"] = None
    del info["Task Info"]["Partition ID"]  # before Spark 3.3
    [row] = tables(log).task_runs().to_dict("records")
    assert (row["partition"], row["run_ms"], row["cpu_ns"]) == (3, 0, 0)
    assert (row["input_bytes"], row["shuffle_read_bytes"], row["shuffle_write_bytes"]) == (0, 0, 0)
    info["Task Metrics"] = {"Input Metrics": {}, "Shuffle Read Metrics": {"Local Bytes Read": 4}}
    [row] = tables(log).task_runs().to_dict("records")
    assert (row["input_bytes"], row["shuffle_read_bytes"]) == (0, 4)
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000)
    log.task(0, 0, "0", 2000, 2100, metrics={"Executor Run Time": 2**63})
    found = EventTables()
    for event in log.events[:-1]:
        found.add(event["Event"], event)
    with pytest.raises(OverflowError):
        found.add("SparkListenerTaskEnd", log.events[-1])
    assert len(found.task_runs()) == 0


def test_stages_begin_end_and_write_shuffles():
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1), stage_info(1, 1)], at=2000)
    log.task(0, 0, "0", 2000, 2100, kind="ShuffleMapTask").task(1, 0, "0", 2000, 2100)
    assert [each.writes_shuffle for each in tables(log).stages.values()] == [True, False]
    log = LogBuilder().job(0, [stage_info(0, 1)], at=2000).submit(0, 2010).complete(0, 2100, failure="lost")
    stage = tables(log).stages[0]
    assert (stage.attempts, stage.submitted_ms, stage.completed) == (1, 2010.0, False)
    assert math.isnan(stage.completed_ms)
    stage = tables(log.submit(0, 2200, attempt=1).complete(0, 2300)).stages[0]
    assert (stage.attempts, stage.submitted_ms, stage.completed, stage.completed_ms) == (2, 2010.0, True, 2300.0)


@cases("event, name", ("StageSubmitted", "Submission Time"), ("StageCompleted", "Completion Time"))
def test_times_of_stages(event, name):
    log = LogBuilder().job(0, [stage_info(0, 1)], at=2000).submit(0, 2010).complete(0, 2100)
    last(log, event)["Stage Info"][name] = -math.inf
    with pytest.raises(ValueError, match="time: -inf"):
        tables(log)
    del last(log, event)["Stage Info"][name]
    stage = tables(log).stages[0]
    assert math.isnan(stage.submitted_ms if event == "StageSubmitted" else stage.completed_ms)


@pytest.mark.parametrize("count", [0, 1, MOST_TASKS])
def test_numbers_of_tasks(count):
    log = LogBuilder().job(0, [stage_info(0, count)], at=2000)
    assert tables(log).stages[0].num_tasks == count


@pytest.mark.parametrize("count", [-1, MOST_TASKS + 1])
def test_numbers_of_tasks_that_are_refused(count):
    with pytest.raises(ValueError, match=f"Number of Tasks: {count}"):
        tables(LogBuilder().job(0, [stage_info(0, count)], at=2000))


@pytest.mark.parametrize("parent", [3, 4])
def test_a_stage_is_made_after_its_parents(parent):
    assert tables(LogBuilder().job(0, [stage_info(3, 1, (2,))], at=2000)).stages[3].parents == (2,)
    with pytest.raises(ValueError, match="Parent IDs: a stage is made after its parents"):
        tables(LogBuilder().job(0, [stage_info(3, 1, (1, parent))], at=2000))


def test_names_of_stages_and_operators():
    # RDDs get negative numbers, as outputs are distinguished by RDD numbers; the name is Spark's.
    infos = [stage_info(0, 1) | {"RDD Info": [], "Stage Name": "collect"}, stage_info(1, 1), stage_info(2, 1)]
    del infos[2]["RDD Info"]
    stages = tables(LogBuilder().job(0, infos, at=2000)).stages
    assert (stages[0].name, stages[2].name) == ("collect", "")
    assert len({each.rdd for each in stages.values()}) == 3
    assert max(stages[0].rdd, stages[2].rdd) < 0 <= stages[1].rdd == 10
    info = stage_info(0, 1)
    scopes = ['{"id":"2","name":"Sort"}', "", " plain ", '{"id":"1","name":"Sort"}', None]
    info["RDD Info"] = [
        {"RDD ID": str(9 - place), **({} if scope is None else {"Scope": scope})} for place, scope in enumerate(scopes)
    ]
    stage = tables(LogBuilder().job(0, [info], at=2000)).stages[0]
    assert (stage.name, stage.rdd) == ("Sort > plain", 9)


def test_executors_are_numbered_as_they_are_met():
    log = LogBuilder().executor("b", at=1500, cores=3).executor("a")
    log.events.insert(0, {"Event": "RunMeta", "executors": {"c": {}, "b": {"granted": 1200}}})
    found = tables(log).executors
    assert {name: (each.place, each.cores, each.host) for name, each in found.items()} == {
        "c": (0, 1, ""),
        "b": (1, 3, "h"),
        "a": (2, 1, "h"),
    }
    assert (found["b"].requested_ms, found["b"].registered_ms) == (1200.0, 1500.0)
    assert math.isnan(found["c"].requested_ms)
    assert math.isnan(found["a"].removed_ms)


def test_jobs_and_executions():
    infos = [stage_info(3, 1) | {"Stage Name": "count at a.py:3"}, stage_info(1, 1) | {"Stage Name": "map at a.py:1"}]
    named = {"spark.jobGroup.id": "g", "spark.job.description": "d", "spark.scheduler.pool": "p"}
    log = LogBuilder().job(4, infos, at=2000, **named)
    log.job(5, [], at=2100, **{"spark.sql.execution.id": "7", "spark.sql.execution.root.id": "6"})
    log.job_end(4, 2500, "JobFailed").job_end(9, 2600)
    found = tables(log).jobs
    assert list(found) == [4, 5]
    assert (found[4].description, found[4].group, found[4].pool, found[4].call_site) == (
        "d",
        "g",
        "p",
        "count at a.py:3",
    )
    assert (found[4].stage_ids, found[4].execution) == ((1, 3), None)
    assert (found[4].submitted_ms, found[4].ended_ms, found[4].failed) == (2000.0, 2500.0, True)
    assert (found[5].execution, found[5].description, found[5].call_site, found[5].failed) == (6, "", "", False)
    assert math.isnan(found[5].ended_ms)
    last(log, "JobStart")["Properties"] = None
    assert tables(log).jobs[5].execution is None
    log = LogBuilder().sql(3, 1900, "count").sql_end(3, 2000, error="boom").sql_end(8, 2000).sql(4, 1950)
    last(log, "SQLExecutionStart")["rootExecutionId"] = 3
    found = tables(log).executions
    assert list(found) == [3]
    assert (found[3].description, found[3].started_ms, found[3].ended_ms, found[3].failed) == (
        "count", 1900.0, 2000.0, True,
    )  # fmt: skip
    nameless = {"Event": SQL + "Start", "executionId": 5, "time": 1}
    log.events.append(nameless)
    execution = tables(log).executions[5]
    assert (execution.description, execution.plan, execution.failed) == ("", (), False)


def test_nested_executions_belong_to_their_root():
    """The root is known from the execution's start or from the properties of its jobs; 4 names a cycle."""
    log = LogBuilder().sql(5, 1900).sql(7, 1950).sql(8, 1960).sql(3, 1970).sql(4, 1980)
    starts = [event for event in log.events if event["Event"] == SQL + "Start"]
    for start, root in zip(starts, (5, 5, 7, 4, 3), strict=True):
        start["rootExecutionId"] = root
    log.job(0, [], at=2000, **{"spark.sql.execution.id": "9", "spark.sql.execution.root.id": "8"})
    found = tables(log)
    assert [found.root_of(number) for number in (5, 7, 8, 9, 10)] == [5, 5, 5, 5, 10]
    assert {found.root_of(3), found.root_of(4)} <= {3, 4}
    assert list(found.executions) == [5]


@cases(
    "description, group, expected",
    ("nightly", "reports", "reports"),
    ("broadcast exchange (runId r-1)", "r-1", ""),  # Spark 3.0 to 3.4
    ("broadcast exchange (runId r-1)", "reports", "reports"),  # Spark 3.5
    (f"orders\nid = {UUID}\nrunId = {OTHER}\nbatch = 7", OTHER, "orders"),
    (f"id = {UUID}<br/>runId = {OTHER}<br/>batch = init", OTHER, f"stream {UUID}"),
    ("select 1", OTHER, ""),  # Thrift server
    ("", f"reports {OTHER}", f"reports {OTHER}"),
    ("nightly", "", ""),
)  # fmt: skip
def test_groups_that_spark_sets_are_no_groups_of_the_application(description, group, expected):
    named = {"spark.job.description": description, "spark.jobGroup.id": group}
    assert tables(LogBuilder().job(0, [], at=2000, **named)).jobs[0].group == expected


def test_the_first_removal_of_an_executor_counts():
    """Standalone: the driver gives an executor up, and later learns how the process ended."""
    log = LogBuilder().executor("0").executor("1")
    log.remove("0", 3000, "Executor killed by driver.").remove("0", 3100, "Command exited with code 143")
    log.remove("1", 4000, "Executor heartbeat timed out after 130 s").remove("1", 4100, "Command exited with code 0")
    found = tables(log).executors
    assert [(each.removed_ms, each.lost) for each in found.values()] == [(3000.0, False), (4000.0, True)]


def restored(log: LogBuilder, *, keep: int = 1) -> tuple[EventTables, int]:
    """Return tables of a log without its starts of jobs, except for the first ones, and the number of restored jobs."""
    dropped = [event for event in log.events if event["Event"].endswith("JobStart")][keep:]
    log.events = [event for event in log.events if event not in dropped]
    found = tables(log)
    return found, found.restore_jobs()


def overlapping() -> LogBuilder:
    """Return a log of three jobs; the second and third run at once, and end in reverse order."""
    log = LogBuilder().executor("0", cores=4).job(0, [stage_info(0, 1)], at=2000).run(0, 2000, 2100).job_end(0, 2100)
    names = {"spark.job.description": "report", "spark.jobGroup.id": "g", "spark.scheduler.pool": "p"}
    infos = [stage_info(stage, 2, parents) for stage, parents in ((1, ()), (2, (1,)), (3, ()), (4, (3,)))]
    log.job(1, infos[:2], at=3000, sql=7, **names).job(2, infos[2:], at=3010)
    log.submit(1, 3000).submit(3, 3010)
    properties = names | {"spark.sql.execution.id": "7"}
    log.events[-2]["Properties"] = properties
    for stage, end in ((1, 3100), (3, 3200), (4, 3300), (2, 3400)):
        if stage in (2, 4):
            log.submit(stage, end - 50)
            log.events[-1]["Properties"] = properties if stage == 2 else {}
        for task in range(2):
            log.task(stage, task, "0", end - 50, end, kind="ShuffleMapTask" if stage in (1, 3) else "ResultTask")
        log.complete(stage, end)
        if stage in (2, 4):
            log.job_end(1 if stage == 2 else 2, end + 3)
    return log.end()


def test_jobs_without_a_start_are_restored():
    found, count = restored(overlapping())
    assert count == 2
    jobs = found.jobs
    assert {number: job.stage_ids for number, job in jobs.items()} == {0: (0,), 1: (1, 2), 2: (3, 4)}
    assert [(job.submitted_ms, job.ended_ms) for job in jobs.values()] == [(2000, 2100), (3010, 3303), (3000, 3403)]
    assert (jobs[1].execution, jobs[1].description, jobs[1].group, jobs[1].pool) == (7, "report", "g", "p")
    assert (jobs[2].execution, jobs[2].description) == (None, "")
    assert restored(overlapping(), keep=3)[1] == 0
    # The completion of stage 1 was dropped, too.
    log = overlapping()
    log.events.remove(
        next(
            event
            for event in log.events
            if event["Event"].endswith("StageCompleted") and event["Stage Info"]["Stage ID"] == 1
        )
    )
    assert restored(log)[0].jobs[1].stage_ids == (1, 2)
    # Spark has dropped the submission, too; the completion repeats its time.
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000).run(0, 2000, 2100).job_end(0, 2100)
    last(log, "StageCompleted")["Stage Info"]["Submission Time"] = 2000
    log.events = [event for event in log.events if not event["Event"].endswith("StageSubmitted")]
    assert restored(log, keep=0)[0].jobs[0].submitted_ms == 2000.0


@cases("properties", {"spark.sql.execution.id": "x"}, {"spark.sql.execution.id": "1" * 5000}, [1], "x")
def test_properties_of_a_stage_without_a_job_are_checked(properties):
    log = overlapping()
    log.events = [event for event in log.events if not event["Event"].endswith("JobStart")]
    last(log, "StageSubmitted")["Properties"] = properties
    with pytest.raises((AttributeError, ValueError)):
        tables(log)


def test_jobs_of_which_too_little_is_known_are_not_restored():
    log = overlapping()
    log.events = [event for event in log.events if not event["Event"].endswith("JobEnd")]
    assert restored(log)[1] == 0
    failed = overlapping()
    for event in failed.events:
        if event["Event"].endswith("JobEnd"):
            event["Job Result"] = {"Result": "JobFailed"}
    assert restored(failed)[1] == 0
    late = overlapping()
    for event in late.events:
        if event["Event"].endswith("JobEnd"):
            event["Completion Time"] += 5000
    assert restored(late)[1] == 0
    assert restored(overlapping().job_end(9, 3410))[1] == 2
    open_stage = LogBuilder().job(0, [stage_info(0, 1)], at=2000).submit(0, 2000).job_end(0, 2100)
    assert restored(open_stage, keep=0)[1] == 0


def test_long_names_of_operators_are_cut(monkeypatch):
    monkeypatch.setattr(reader, "LONGEST_OPERATOR", 5)
    log = LogBuilder().sql(3, 1900)
    last(log, "SQLExecutionStart")["sparkPlanInfo"] = {"nodeName": "abcdefg", "children": []}
    assert tables(log).executions[3].plan == ("abcde",)
    assert reader._plan(None) == ()
