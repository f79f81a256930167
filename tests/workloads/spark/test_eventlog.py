"""The reader of Spark's event logs, on small synthetic logs."""

import math

import numpy as np
import pytest

from tests.cases import cases
from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from workloads.job import Wave
from workloads.spark.eventlog import LogReport, SparkApplication, read_event_log
from workloads.spark.importing import import_event_logs, measure_imperfections
from workloads.spark.query import TASK_COLUMNS, SparkQuery


@pytest.fixture
def read(tmp_path):
    def read_log(log: LogBuilder, *, partial: bool = False) -> SparkApplication:
        [application] = read_event_log(log.write(tmp_path / "log"), partial=partial)
        return application

    return read_log


def only_query(application: SparkApplication) -> SparkQuery:
    [query] = application.queries
    return query


def test_a_small_log_and_its_waves(read):
    application = read(small_log(name="tiny", version="4.0.1"))
    query = only_query(application)
    assert (application.name, application.spark_version) == ("tiny", "4.0.1")
    assert (application.start_ms, application.end_ms) == (1000.0, 9000.0)
    assert [stage.num_tasks for stage in query.stages] == [3, 1]
    assert (query.stages[0].name, query.edges.tolist()) == ("Scan parquet > Exchange", [[0, 1]])
    assert query.name == "job 0"
    assert (query.start_ms, query.wall_ms, query.span_ms) == (2000.0, 430.0, 430.0)
    assert (query.submission_lag_ms.tolist(), query.tasks["stage"].tolist()) == ([10.0, 10.0], [0, 0, 0, 1])
    assert query.tasks["launch_ms"].tolist() == [2010.0, 2110.0, 2210.0, 2320.0]
    assert query.tasks["duration_ms"].tolist() == [100.0] * 4
    assert application.report.lines() == []
    log = LogBuilder().executor("0").executor("1")
    log.job(0, [stage_info(0, 4), stage_info(1, 2)], at=2000).submit(0, 2000).submit(1, 2000)
    log.task(0, 0, "0", 2000, 2100).task(0, 1, "1", 2000, 2500)
    log.task(0, 2, "0", 2100, 2200).task(1, 0, "0", 2200, 2300).task(0, 3, "0", 2300, 2400)
    log.task(1, 1, "1", 2500, 2600).complete(0, 2500).complete(1, 2600)
    tasks = only_query(read(log.job_end(0, 2600).end())).tasks
    waves = tasks.set_index(["stage", "partition"])["wave"]
    assert waves[0, 0] == waves[0, 1] == Wave.FRESH
    assert waves[1, 0] == waves[1, 1] == Wave.FIRST
    assert waves[0, 2] == waves[0, 3] == Wave.REST


def slots_of_three(read, *runs: tuple[int, int]) -> list[int]:
    """Return the slots of tasks, (launch, finish), on an executor of three."""
    log = LogBuilder().executor("0", cores=3).job(0, [stage_info(0, len(runs))], at=2000).submit(0, 2000)
    for number, (launch, finish) in enumerate(runs):
        log.task(0, number, "0", launch, finish)
    return only_query(read(log.complete(0, 9000).job_end(0, 9000).end())).tasks["slot"].tolist()


def test_tasks_take_the_slot_that_is_or_will_be_free(read):
    # A slot that never worked comes last.
    assert slots_of_three(read, (2000, 2100), (2100, 2200), (2200, 2300)) == [0, 0, 0]
    together = (2000, 2100), (2000, 2300), (2000, 2200)
    assert slots_of_three(read, *together, (2300, 2400), (2350, 2400), (2390, 2400)) == [0, 1, 2, 1, 2, 0]
    # The clocks of executors and driver differ slightly.
    together = (2000, 2300), (2000, 2200), (2000, 2210)
    assert slots_of_three(read, *together, (2199, 2500), (2205, 2500)) == [0, 1, 2, 1, 2]


def test_failed_tasks_warm_executors_up_and_several_cores_count(read):
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2100, reason="ExceptionFailure").task(0, 0, "0", 2100, 2200, attempt=1)
    application = read(log.complete(0, 2200).job_end(0, 2200).end())
    assert only_query(application).tasks["wave"].tolist() == [Wave.REST]
    assert (application.report.failed_tasks, application.report.retried_tasks) == (1, 1)
    log = LogBuilder().add("EnvironmentUpdate", **{"Spark Properties": {"spark.task.cpus": "2"}})
    log.executor("0", cores=4).job(0, [stage_info(0, 4)], at=2000).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2100).task(0, 1, "0", 2000, 2300)
    log.task(0, 2, "0", 2100, 2250).task(0, 3, "0", 2250, 2400)
    application = read(log.complete(0, 2400).job_end(0, 2400).end())
    tasks = only_query(application).tasks
    assert application.executors[0].slots == 2
    assert tasks["slot"].tolist() == [0, 1, 0, 0]
    assert tasks["wave"].tolist() == [Wave.FRESH, Wave.FRESH, Wave.REST, Wave.REST]
    assert tasks["level"].tolist() == [2] * 4


def test_levels_follow_executors_and_their_start(read):
    log = LogBuilder().executor("0", at=1000).executor("1", at=2150).remove("0", at=2350)
    log.job(0, [stage_info(0, 4)], at=2000).submit(0, 2000)
    for task, executor in enumerate("0011"):
        log.task(0, task, executor, 2000 + 100 * task, 2100 + 100 * task)
    log.job(1, [stage_info(1, 1)], at=2400).run(1, 2400, 2500, executor="1").complete(0, 2400)
    application = read(log.job_end(0, 2400).job_end(1, 2500).end())
    assert [query.tasks["level"].tolist() for query in application.queries] == [[1, 1, 2, 2], [1]]
    assert application.report.lost_executors == 0
    times = {"Request Time": 1200, "Registration Time": 3700}
    log = small_log().executor("1", at=3701, **times).executor("2", at=4000)
    log.events.insert(0, {"Event": "RunMeta", "query": 3, "executors": {"2": {"granted": 1500}}})
    application = read(log)
    delays = {each.name: each.startup_ms for each in application.executors}
    assert (delays["1"], delays["2"]) == (2500.0, 2500.0)
    assert np.isnan(delays["0"])
    assert application.recording["query"] == 3


def test_bytes_and_times_of_tasks(read):
    metrics = {
        "Executor Run Time": 80,
        "Executor CPU Time": 60_000_000,
        "Executor Deserialize CPU Time": 5_000_000,
        "Input Metrics": {"Bytes Read": 100},
        "Shuffle Read Metrics": {"Remote Bytes Read": 20, "Local Bytes Read": 3},
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 7},
    }
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=2000).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2100, metrics=metrics).complete(0, 2100).job_end(0, 2100)
    task = only_query(read(log.end())).tasks.iloc[0]
    assert (task["run_ms"], task["cpu_ms"]) == (80.0, 65.0)
    assert (task["input_bytes"], task["shuffle_read_bytes"], task["shuffle_write_bytes"]) == (100, 23, 7)


def two_job_query(kind: str) -> LogBuilder:
    """Return job 0 with stages 0 -> 1, and job 1 in which stage 3 reads the shuffle of 0 (as the skipped 2), then 4."""
    log = LogBuilder().executor("0").sql(5, 1900, "count it")
    log.job(0, [stage_info(0, 2, rdd=3), stage_info(1, 1, (0,), rdd=8)], at=2000, sql=5)
    log.run(0, 2000, 2200, "ShuffleMapTask").run(1, 2210, 2300, kind).job_end(0, 2310)
    skipped = stage_info(2, 2, rdd=3)
    log.job(1, [skipped, stage_info(3, 2, (2,), rdd=9), stage_info(4, 1, (3,), rdd=12)], at=2400, sql=5)
    log.run(3, 2400, 2500, "ShuffleMapTask").run(4, 2500, 2600).job_end(1, 2600)
    return log.sql_end(5, 2700).end()


def test_queries_are_merged_from_jobs_and_nested_executions(read):
    query = only_query(read(two_job_query("ResultTask")))
    assert query.name == "count it"
    assert (query.num_jobs, query.num_skipped) == (2, 1)
    assert [stage.stage_id for stage in query.stages] == [0, 1, 3, 4]
    assert (query.dag.shuffle_edges.tolist(), query.dag.reused_edges.tolist()) == ([[0, 1], [2, 3]], [[0, 2]])
    assert query.dag.barrier_edges.tolist() == [[1, 2]]
    assert query.edges.tolist() == [[0, 1], [1, 2], [2, 3]]  # 0 -> 2 is implied by a longer path
    assert (query.start_ms, query.submitted_ms, query.wall_ms, query.span_ms) == (1900, 2000, 800, 600)
    assert query.submission_lag_ms.tolist() == [0, 10, 100, 0]
    log = small_log()
    properties = {"spark.sql.execution.id": "8", "spark.sql.execution.root.id": "7", "spark.jobGroup.id": "g"}
    log.events[3]["Properties"] = properties
    query = only_query(read(log.sql(7, 1990).sql_end(7, 2500)))
    assert (query.name, query.group, query.start_ms, query.end_ms) == ("q", "g", 1990.0, 2500.0)


def test_faster_copies_and_shuffles_of_others_are_counted(read):
    log = LogBuilder().executor("0").executor("1").job(0, [stage_info(0, 1)], at=2000).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2900, reason="TaskKilled")
    log.task(0, 0, "1", 2500, 2600, attempt=1, speculative=True)
    application = read(log.complete(0, 2600).job_end(0, 2600).end())
    assert only_query(application).tasks["duration_ms"].tolist() == [100.0]
    report = application.report
    assert (report.killed_tasks, report.speculative_tasks, report.retried_tasks) == (1, 1, 0)
    assert report.lines() == ["1 killed tasks, 1 speculative tasks"]
    log = LogBuilder().executor("0")
    log.job(0, [stage_info(0, 1, rdd=3), stage_info(1, 1, (0,), rdd=4)], at=2000)
    log.run(0, 2000, 2100, "ShuffleMapTask").run(1, 2100, 2200).job_end(0, 2200)
    log.job(1, [stage_info(2, 1, rdd=3), stage_info(3, 1, (2,), rdd=5)], at=2300)
    application = read(log.run(3, 2300, 2400).job_end(1, 2400).end())
    assert [len(query.stages) for query in application.queries] == [2, 1]
    assert application.report.outside_parents == 1


def test_a_lost_executor_repeats_tasks_in_a_new_attempt_of_the_stage(read):
    """The fetch failure of stage 1 makes Spark run the lost half of stage 0 again, as its task number 0."""
    log = LogBuilder().executor("0").executor("1")
    log.job(0, [stage_info(0, 2), stage_info(1, 1, (0,))], at=2000).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2100, kind="ShuffleMapTask").task(0, 1, "1", 2000, 2120, kind="ShuffleMapTask")
    log.complete(0, 2120).submit(1, 2130).remove("1", 2140, "worker lost")
    log.task(0, 1, "1", 2000, 2120, reason="Resubmitted")
    log.task(1, 0, "0", 2130, 2200, reason="FetchFailed").complete(1, 2200, failure="fetch")
    log.submit(0, 2210, attempt=1)
    log.task(0, 0, "0", 2210, 2300, kind="ShuffleMapTask", partition=1, stage_attempt=1).complete(0, 2300)
    log.submit(1, 2310, attempt=1).task(1, 0, "0", 2310, 2400, stage_attempt=1).complete(1, 2400)
    application = read(log.job_end(0, 2400).end())
    query, report = only_query(application), application.report
    assert [(stage.num_tasks, stage.submitted_ms) for stage in query.stages] == [(2, 2000.0), (1, 2130.0)]
    assert sorted(query.tasks["duration_ms"]) == [90.0, 100.0, 120.0]
    assert (report.failed_tasks, report.fetch_failures, report.repeated_tasks, report.stage_retries) == (0, 1, 1, 2)
    assert (query.num_runs, query.num_failures) == (4, 0)
    assert (report.lost_executors, report.missing_tasks, report.unfinished_tasks) == (1, 0, 0)
    assert [executor.lost for executor in application.executors] == [False, True]


def test_a_retried_partition_keeps_its_number_in_a_later_attempt_of_its_stage(read):
    """Executor 1 is lost with the output of partition 2 of stage 1; then partition 1 fails for lack of input.

    The second attempt of stage 1 repeats these two, as its tasks 0 and 1.
    """
    log = LogBuilder().executor("0").executor("1")
    log.job(0, [stage_info(0, 1), stage_info(1, 3, (0,))], at=2000)
    log.run(0, 2000, 2050, "ShuffleMapTask", executor="1").submit(1, 2050)
    log.task(1, 0, "0", 2050, 2150).task(1, 2, "1", 2050, 2170).remove("1", 2180, "worker lost")
    log.task(0, 0, "1", 2000, 2050, reason="Resubmitted").task(1, 2, "1", 2050, 2170, reason="Resubmitted")
    log.task(1, 1, "0", 2150, 2200, reason="FetchFailed").complete(1, 2200, failure="fetch")
    log.submit(0, 2210, attempt=1).task(0, 0, "0", 2210, 2250, stage_attempt=1).complete(0, 2250)
    log.submit(1, 2250, attempt=1)
    log.task(1, 0, "0", 2250, 2320, partition=1, stage_attempt=1)
    log.task(1, 1, "0", 2320, 2400, partition=2, stage_attempt=1)
    application = read(log.complete(1, 2400).job_end(0, 2400).end())
    tasks = only_query(application).tasks.set_index(["stage", "partition"])["duration_ms"]
    assert tasks.to_dict() == {(0, 0): 50.0, (1, 0): 100.0, (1, 1): 70.0, (1, 2): 120.0}
    assert (application.report.repeated_tasks, application.report.missing_tasks) == (2, 0)


def test_dropped_events_and_cancelled_jobs(read):
    log = small_log()
    dropped = [event for event in log.events if event["Event"].endswith("TaskEnd")][1]
    log.events.remove(dropped)
    report = read(log).report
    assert (report.missing_tasks, report.unfinished_tasks) == (1, 1)
    log = LogBuilder().executor("0").sql(0, 1900)
    log.job(0, [stage_info(0, 2)], at=2000, sql=0).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2100).task(0, 1, "0", 2100, 2150, reason="TaskKilled")
    log.job_end(0, 2150, "JobFailed").job(1, [stage_info(1, 1)], at=2200, sql=0).run(1, 2200, 2300)
    query = only_query(read(log.job_end(1, 2300).sql_end(0, 2400).end()))
    assert [stage.stage_id for stage in query.stages] == [1]
    assert query.complete


def test_failed_queries_and_executors_are_left_out(read):
    log = LogBuilder().executor("0")
    log.job(0, [stage_info(0, 1)], at=2000).run(0, 2000, 2100).job_end(0, 2100)
    log.sql(0, 2200).job(1, [stage_info(1, 1), stage_info(2, 1, (1,))], at=2200, sql=0)
    log.run(1, 2200, 2300).submit(2, 2300).task(2, 0, "0", 2300, 2400, reason="ExceptionFailure")
    log.job_end(1, 2400, "JobFailed").sql_end(0, 2500, error="boom").end()
    application = read(log)
    assert [query.name for query in application.queries] == ["job 0"]
    assert application.report.failed_queries == 1
    kept = read(log, partial=True).queries[1]
    assert not kept.complete
    assert [stage.stage_id for stage in kept.stages] == [1]
    # Spark only reports their removal; they ran no task. An executor that runs tasks exists without an event, too.
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


def test_a_report_counts_in_words_the_most_frequent_kinds():
    report = LogReport(failed_tasks=3, lost_executors=1, outside_parents=2, problems=("log:1: bad",))
    assert report.lines() == ["log:1: bad", "3 failed tasks, 1 lost executors, 2 outside parents"]
    assert LogReport().lines() == []
    assert {value for value in vars(LogReport()).values() if isinstance(value, int)} == {0}
    ignored = {"SparkListenerA": 1, "org.x.SparkListenerB": 5, "C": 4, "D": 3, "E": 2, "F": 1}
    kinds = "5 B, 4 C, 3 D, 2 E and 2 other kinds"
    assert LogReport(ignored_events=ignored).lines() == [f"16 events without information on durations ({kinds})"]
    four = dict.fromkeys("abcd", 1)
    line = "1 failed tasks, 4 events without information on durations (1 a, 1 b, 1 c, 1 d)"
    assert LogReport(failed_tasks=1, ignored_events=four).lines() == [line]


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


def test_what_is_not_in_the_log_is_known_otherwise(read):
    log = small_log().add("EnvironmentUpdate", **{"Spark Properties": {"spark.task.cpus": "4"}})
    assert read(log).executors[0].slots == 1
    log = LogBuilder().executor("0")
    for job, end in ((0, 2400), (1, 2300)):
        log.job(job, [stage_info(job, 1)], at=2000 + job, sql=5).run(job, 2010 + job, 2100).job_end(job, end)
    [found] = read(log.end()).queries
    assert (found.name, found.start_ms, found.end_ms, found.plan) == ("execution 5", 2000.0, 2400.0, ())
    log = small_log()
    log.events = [event for event in log.events if not event["Event"].endswith("StageCompleted")]
    [found] = read(log).queries
    assert [stage.num_tasks for stage in found.stages] == [3, 1]
    assert np.isnan([stage.completed_ms for stage in found.stages]).all()


def test_names_and_pools_of_queries(read):
    log = LogBuilder().executor("0").sql(0, 1900)
    for job, pool in enumerate(("night", "day")):
        start = 2000 + 1000 * job
        log.job(job, [stage_info(job, 1)], at=start, sql=0, **{"spark.scheduler.pool": pool})
        log.run(job, start, start + 100).job_end(job, start + 100)
    [found] = read(log.sql_end(0, 4000).end()).queries
    assert (found.pool, found.num_jobs, found.last_job_end_ms, found.end_ms) == ("night", 2, 3100.0, 4000.0)
    assert read(small_log()).queries[0].pool == ""


REPORT, SITE = {"spark.job.description": "report"}, "collect at a.py:3"
BROADCAST = {"spark.job.description": "broadcast exchange (runId r-1)", "spark.jobGroup.id": "r-1"}


@cases(
    "description, jobs, site, expected",
    ("nightly", [REPORT], SITE, "nightly"),
    (SITE, [REPORT], SITE, "report"),  # Spark 2 knows no description of a SQL execution
    (SITE, [BROADCAST, REPORT], SITE, "report"),
    (SITE, [BROADCAST, {}], "count at b.py:1", SITE),
    ("", [{}, {}], SITE, SITE),
    ("", [BROADCAST, {"spark.jobGroup.id": "g"}], "", "g"),
    ("", [BROADCAST], "", "execution 0"),
    (None, [REPORT], SITE, "report"),
    (None, [{"spark.jobGroup.id": "g"}], SITE, SITE),
    (None, [{"spark.jobGroup.id": "g"}], "", "g"),
    (None, [{}], "", "job 0"),
)  # fmt: skip
def test_names_of_queries(read, description, jobs, site, expected):
    """A SQL execution with a description (None: outside of SQL) runs jobs; the last has the call site."""
    log, sql = LogBuilder().executor("0"), None if description is None else 0
    if description is not None:
        log.sql(0, 1900, description)
    for job, named in enumerate(jobs):
        info, start = stage_info(job, 1), 2000 + 1000 * job
        named_info = info | {"Stage Name": site if job == len(jobs) - 1 else "run at Thread.java:1"}
        log.job(job, [named_info], at=start, sql=sql, **named)
        log.run(job, start, start + 100).job_end(job, start + 100)
    if description is not None:
        log.sql_end(0, 9000)
    assert only_query(read(log.end())).name == expected


def test_the_call_site_is_that_of_the_result_and_pools_repeated_jobs(tmp_path):
    for app, file in (("a", "a.py"), ("b", "b.py")):
        log = LogBuilder(app=app, name=app).executor("0")
        for job in range(3):
            infos = [stage_info(2 * job, 2), stage_info(2 * job + 1, 1, parents=(2 * job,))]
            for info, method in zip(infos, ("map", "count"), strict=True):
                info["Stage Name"] = f"{method} at {file}:3"
            start = 2000 + 1000 * job
            log.job(job, infos, at=start).run(2 * job, start, start + 100, "ShuffleMapTask")
            log.run(2 * job + 1, start + 100, start + 200).job_end(job, start + 200)
        log.end(9000).write(tmp_path / app)
    found = import_event_logs([tmp_path], levels=[1]).queries
    assert {name: len(group.runs) for name, group in found.items()} == {"count at a.py:3": 3, "count at b.py:3": 3}


def test_jobs_and_groups_of_nested_executions_and_broadcasts(read):
    """Execution 7 is started by 5, and its job does not name the root; the broadcast has a group of Spark's."""
    log = LogBuilder().executor("0").sql(5, 1900, "create table").sql(7, 2150, "create table")
    log.events[-1]["rootExecutionId"] = 5
    own = {"spark.jobGroup.id": "reports"}
    for job, (sql, named) in enumerate(((5, BROADCAST), (7, own), (5, own))):
        start = 2000 + 100 * job
        log.job(job, [stage_info(job, job + 1)], at=start, sql=sql, **named)
        log.run(job, start, start + 50).job_end(job, start + 60)
    query = only_query(read(log.sql_end(7, 2170).sql_end(5, 2400).end()))
    assert [stage.num_tasks for stage in query.stages] == [1, 2, 3]
    assert query.edges.tolist() == [[0, 1], [1, 2]]
    assert (query.name, query.group, query.num_jobs, query.end_ms) == ("create table", "reports", 3, 2400.0)


def test_stages_outside_of_jobs_are_restored_or_noted(read):
    def log(end: int | None) -> LogBuilder:
        """Return a log in which the start of job 1 is missing, and job 1 ends at a time, or never."""
        found = small_log().job(1, [stage_info(2, 3), stage_info(3, 2, (2,))], at=3000)
        del found.events[-1]
        found.run(2, 3000, 3300, "ShuffleMapTask").run(3, 3300, 3400)
        return found if end is None else found.job_end(1, end)

    whole = read(log(3401))
    assert [query.dag.stage_ids for query in whole.queries] == [(0, 1), (2, 3)]
    assert [query.edges.tolist() for query in whole.queries] == [[[0, 1]], [[0, 1]]]
    assert whole.report.lines() == ["1 restored jobs"]
    cut = read(log(None))
    assert [query.dag.stage_ids for query in cut.queries] == [(0, 1)]
    [line] = cut.report.lines()
    assert line.endswith(
        "2 stages with 5 tasks left out: the start of their jobs is not in the log (Spark drops events under load)"
    )
    # Of a stage without any event of its own, only its tasks are known.
    unknown = log(None)
    unknown.events = [event for event in unknown.events if event.get("Stage Info", {}).get("Stage ID") not in (2, 3)]
    assert "2 stages with 5 tasks left out" in read(unknown).report.lines()[0]
    # Only the ends of the tasks were dropped; a stage without tasks is no work.
    taskless = log(None)
    taskless.events = [event for event in taskless.events if event.get("Stage ID") not in (2, 3)]
    taskless.job(2, [stage_info(4, 0)], at=3500)
    del taskless.events[-1]
    taskless.submit(4, 3500).complete(4, 3500)
    assert "2 stages with 5 tasks left out" in read(taskless).report.lines()[0]
    # A skipped stage is no work.
    assert read(small_log().job(1, [stage_info(2, 3)], at=3000).job_end(1, 3100)).report.lines() == []


def test_failures_count_by_query(read):
    """Query 0 succeeds after one failure of its own, a fetch failure, a lost and a killed attempt; query 1 fails."""
    log = LogBuilder().executor("0").sql(0, 1900).job(0, [stage_info(0, 2)], at=2000, sql=0).submit(0, 2000)
    reasons = ("ExceptionFailure", "FetchFailed", "ExecutorLostFailure", "TaskKilled", "TaskCommitDenied", "Success")
    for attempt, reason in enumerate(reasons):
        log.task(0, 0, "0", 2000 + 10 * attempt, 2010 + 10 * attempt, reason=reason, attempt=attempt)
    log.task(0, 1, "0", 2100, 2110).complete(0, 2110).job_end(0, 2110).sql_end(0, 2200)
    log.sql(1, 2900).job(1, [stage_info(1, 1)], at=3000, sql=1).submit(1, 3000)
    for attempt in range(4):
        log.task(1, 0, "0", 3000 + 10 * attempt, 3010 + 10 * attempt, reason="ExceptionFailure", attempt=attempt)
    log.complete(1, 3100, failure="boom").job_end(1, 3100, "JobFailed").sql_end(1, 3200, error="boom")
    found = read(log.end())
    [query], report = found.queries, found.report
    assert (query.num_runs, query.num_failures) == (3, 1)
    assert (report.failed_tasks, report.fetch_failures, report.lost_tasks, report.killed_tasks) == (5, 1, 1, 2)
    assert measure_imperfections([], [found])[0].task_failures == pytest.approx(1 / 3)
    # The stage of a job that was cancelled is not in the profile of its query.
    log = LogBuilder().executor("0").sql(0, 1900).job(0, [stage_info(0, 1)], at=2000, sql=0).submit(0, 2000)
    log.task(0, 0, "0", 2000, 2010, reason="ExceptionFailure").job_end(0, 2020, "JobFailed")
    log.job(1, [stage_info(1, 1)], at=2100, sql=0).run(1, 2100, 2200).job_end(1, 2200).sql_end(0, 2300)
    query = only_query(read(log.end()))
    assert (query.num_runs, query.num_failures) == (1, 0)


@cases("first_fails", True, False)
def test_a_stage_that_jobs_share_belongs_to_the_first_that_is_kept(read, first_fails):
    """Jobs that run at once share the running stage of an RDD, with its number."""
    log = LogBuilder().executor("0")
    shared = stage_info(0, 2)
    log.job(0, [shared, stage_info(1, 1, (0,))], at=2000).job(1, [shared, stage_info(2, 1, (0,))], at=2001)
    log.run(0, 2000, 2100, "ShuffleMapTask").run(2, 2100, 2200).job_end(1, 2200)
    if first_fails:
        log.submit(1, 2200).complete(1, 2300, failure="boom").job_end(0, 2300, "JobFailed")
    else:
        log.run(1, 2200, 2300).job_end(0, 2300)
    found = read(log.end())
    assert [query.dag.stage_ids for query in found.queries] == ([(0, 2)] if first_fails else [(0, 1), (2,)])
    assert found.report.outside_parents == (not first_fails)


def test_executors_that_leave_at_the_end_are_not_lost(read):
    log = small_log().executor("1").remove("1", 8999, "worker lost").remove("0", 9000, "worker lost")
    assert [each.lost for each in read(log).executors] == [False, True]


@cases(
    "result, error, failed",
    ("JobSucceeded", "", 0), ("JobFailed", "", 1), ("JobSucceeded", "boom", 1), ("JobFailed", "boom", 1),
)  # fmt: skip
def test_a_query_fails_by_its_error_or_its_last_job(read, result, error, failed):
    log = LogBuilder().executor("0").sql(0, 1900)
    log.job(0, [stage_info(0, 1)], at=2000, sql=0).run(0, 2000, 2100).job_end(0, 2100, result)
    found = read(log.sql_end(0, 2200, error=error).end(), partial=True)
    assert found.report.failed_queries == failed
    assert [each.complete for each in found.queries] == [not failed]


def test_stages_of_a_query_that_succeeded_count_if_they_completed(read):
    """One of two tasks of stage 1 ended, and then the query had enough rows (a limit)."""
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


def test_tasks_are_in_order_of_launch_then_stage_then_partition(read):
    log = LogBuilder().executor("0", cores=4).job(0, [stage_info(0, 2), stage_info(1, 2)], at=2000)
    log.submit(0, 2000).submit(1, 2000)
    for stage, task, start in ((1, 1, 2000), (1, 0, 2000), (0, 1, 2000), (0, 0, 2001)):
        log.task(stage, task, "0", start, 2100)
    [found] = read(log.complete(0, 2100).complete(1, 2100).job_end(0, 2100).end()).queries
    assert found.tasks[["stage", "partition"]].to_numpy().tolist() == [[0, 1], [1, 0], [1, 1], [0, 0]]
    assert (list(found.tasks.columns), found.tasks.index.tolist()) == (list(TASK_COLUMNS), [0, 1, 2, 3])
