"""Fields of Spark's events: parsed values, ranges, and rejected values."""

import math
from typing import Any

import pytest

from tests.workloads.spark.logs import SQL, LogBuilder, small_log, stage_info
from workloads.job import MOST_TASKS
from workloads.spark import reader
from workloads.spark.reader import EventTables, TaskOutcome


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
    for reason in ("Success", "TaskKilled", "ExceptionFailure", "Resubmitted", "FetchFailed"):
        log.task(0, 0, "0", 2000, 2100, reason=reason)
    found = tables(log)
    S, F, K = TaskOutcome
    assert found.task_runs()["outcome"].tolist() == [S, K, F, F]
    assert found.tally == {
        "started_tasks": 4, "ended_tasks": 4, "resubmitted_tasks": 1, "speculative_tasks": 0, "retried_tasks": 0,
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
    log = LogBuilder().job(4, [stage_info(3, 1), stage_info(1, 1)], at=2000, **{"spark.jobGroup.id": "g"})
    log.job(5, [], at=2100, **{"spark.sql.execution.id": "7", "spark.sql.execution.root.id": "6"})
    log.job_end(4, 2500, "JobFailed").job_end(9, 2600)
    last(log, "JobStart")["Properties"]["spark.scheduler.pool"] = "p"
    found = tables(log).jobs
    assert list(found) == [4, 5]
    assert (found[4].name, found[4].stage_ids, found[4].execution, found[4].pool) == ("g", (1, 3), None, "")
    assert (found[4].submitted_ms, found[4].ended_ms, found[4].failed) == (2000.0, 2500.0, True)
    assert (found[5].execution, found[5].pool, found[5].failed) == (6, "p", False)
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


def test_long_names_of_operators_are_cut(monkeypatch):
    monkeypatch.setattr(reader, "LONGEST_OPERATOR", 5)
    log = LogBuilder().sql(3, 1900)
    last(log, "SQLExecutionStart")["sparkPlanInfo"] = {"nodeName": "abcdefg", "children": []}
    assert tables(log).executions[3].plan == ("abcde",)
    assert reader._plan(None) == ()
