"""Operators of stages, from plans and from scopes of RDDs."""

from pathlib import Path
from typing import Any

import pytest

from tests.workloads.spark.logs import SQL, LogBuilder
from tests.workloads.spark.test_recorder import needs_spark
from workloads.job import MOST_OPERATORS
from workloads.sources.workload_file import read_workload
from workloads.spark.eventlog import read_event_log
from workloads.spark.plans import compiled_nodes, stage_operators
from workloads.spark.recorder import local
from workloads.spark.recorder.submission import slim_event_log


def node(name: str, *children: dict[str, Any], metrics: tuple[int, ...] = ()) -> dict[str, Any]:
    return {
        "nodeName": name, "children": list(children), "metrics": [{"accumulatorId": number} for number in metrics],
    }  # fmt: skip


def compiled(number: int, *operators: str, child: dict[str, Any], metric: int) -> dict[str, Any]:
    """Return a compiled node of operators, the last of which to run comes first."""
    inner = node("InputAdapter", child)
    for operator in reversed(operators):
        inner = node(operator, inner)
    return node(f"WholeStageCodegen ({number})", inner, metrics=(metric,))


SCAN = node("Scan parquet ")
#: A sum over a scan, with a subquery whose compiled nodes have the same numbers.
PLAN = compiled(
    2, "HashAggregate", "Project",
    child=node(
        "Exchange",
        compiled(1, "Project", "Filter", child=SCAN, metric=10),
        node("Subquery", compiled(1, "HashAggregate", child=SCAN, metric=20)),
    ),
    metric=11,
)  # fmt: skip
READ = ("Scan parquet ", "WholeStageCodegen (1)", "Exchange")


def test_compiled_operators_come_in_order_of_execution():
    nodes = compiled_nodes(PLAN)
    assert stage_operators(("Exchange", "WholeStageCodegen (2)"), nodes, {11}) == (
        "Exchange", "Project", "HashAggregate",
    )  # fmt: skip
    assert compiled_nodes(None) == {}


def test_equal_numbers_are_told_apart_by_accumulators():
    nodes = compiled_nodes(PLAN)
    filtered, summed = ("Scan parquet", "Filter", "Project", "Exchange"), ("Scan parquet", "HashAggregate", "Exchange")
    assert stage_operators(READ, nodes, {3, 10}) == filtered
    assert stage_operators(READ, nodes, {20}) == summed
    assert stage_operators(READ, nodes, ()) == filtered  # the first, without accumulators
    assert stage_operators(READ, {}, {10}) == ("Scan parquet", "WholeStageCodegen", "Exchange")


def test_names_and_numbers_of_operators_are_limited():
    assert stage_operators(("Scan parquet spark_catalog.default.orders", " ", "a\tb\x1b", "c" * 200), {}, ()) == (
        "Scan parquet", "a b", "c" * 100,
    )  # fmt: skip
    assert len(stage_operators(map(str, range(1000)), {}, ())) == MOST_OPERATORS
    deep = SCAN
    for _ in range(20_000):
        deep = node("Project", deep)
    nodes = compiled_nodes(node("WholeStageCodegen (1)", deep))
    assert len(nodes["WholeStageCodegen (1)"][0].operators) == 20_001
    assert len(stage_operators(READ, nodes, ())) == MOST_OPERATORS


def test_a_log_has_the_operators_of_the_plan_that_ran(tmp_path):
    rdds = [{"RDD ID": number, "Scope": scope} for number, scope in enumerate(READ)][::-1]
    info = {"Stage ID": 0, "Number of Tasks": 1, "Parent IDs": [], "RDD Info": rdds}
    changed = compiled(1, "Sort", child=SCAN, metric=30)
    read_all = {"Input Metrics": {"Bytes Read": 500, "Records Read": 9}}
    for update, operators in ((None, ("Filter", "Project")), (changed, ("Sort",))):
        log = LogBuilder().executor("0").sql(3, 1900, plan=PLAN)
        if update:
            event = SQL.replace("SQL", "SQLAdaptive") + "Update"
            log.events.append({"Event": event, "executionId": 3, "sparkPlanInfo": update})
        log.job(0, [info], at=2000, sql=3).submit(0, 2000).task(0, 0, "0", 2000, 2100, metrics=read_all)
        log.complete(0, 2100, updated=(10, 30)).job_end(0, 2100).sql_end(3, 2100)
        [application] = read_event_log(log.end().write(tmp_path / "log"))
        [query] = application.queries
        assert query.stages[0].name == "Scan parquet > WholeStageCodegen (1) > Exchange"
        assert query.stages[0].operators == ("Scan parquet", *operators, "Exchange")
        assert query.tasks[["input_bytes", "input_rows"]].to_numpy().tolist() == [[500, 9]]


def with_plan(name: str) -> LogBuilder:
    """Return a log of a query of one stage with a plan, whose task took 100 ms and 40 ms of CPU time."""
    rdds = [{"RDD ID": number, "Scope": scope} for number, scope in enumerate(READ)][::-1]
    info = {"Stage ID": 0, "Number of Tasks": 1, "Parent IDs": [], "RDD Info": rdds}
    log = (
        LogBuilder(app=name).executor("0").sql(3, 1900, name, plan=PLAN).job(0, [info], at=2000, sql=3).submit(0, 2000)
    )
    used = {"Executor CPU Time": 30_000_000, "Executor Deserialize CPU Time": 9_500_000}
    used |= {"Input Metrics": {"Bytes Read": 500, "Records Read": 9}}
    log.task(0, 0, "0", 2000, 2100, metrics=used).complete(0, 2100, updated=(20,)).job_end(0, 2100)
    return log.sql_end(3, 2100).end()


def test_a_slim_log_has_the_same_operators(tmp_path):
    log = with_plan("q")
    log.events[3]["sparkPlanInfo"]["simpleString"] = "a long text"
    slim_event_log(log.write(tmp_path / "log"), tmp_path / "slim.gz", {})
    [[whole], [slim]] = map(read_event_log, (tmp_path / "log", tmp_path / "slim.gz"))
    assert slim.queries[0].stages == whole.queries[0].stages
    assert slim.queries[0].stages[0].operators == ("Scan parquet", "HashAggregate", "Exchange")
    assert slim.queries[0].plan == whole.queries[0].plan


def test_cpu_times_replace_durations(tmp_path):
    local.use_cpu_times(with_plan("q").write(tmp_path / "log"))
    [application] = read_event_log(tmp_path / "log")
    assert application.queries[0].tasks["duration_ms"].tolist() == [40.0]


def test_local_recordings_become_a_workload(tmp_path, monkeypatch, capsys):
    recorded = []

    def record(jobs: Any, scale_factor: float, settings: Any, tables: Path, target: Path, runs: int, **_: Any) -> None:
        recorded.append((scale_factor, len(jobs), settings["spark.sql.adaptive.enabled"], runs))
        slim_event_log(with_plan(f"q-{scale_factor:g}g").write(tmp_path / "log"), target, {})

    for name, value in (("record", record), ("java_version", str), ("spark_home", str)):
        monkeypatch.setattr(local, name, value)
    command = [
        "--out",
        str(tmp_path / "out"),
        "--scale-factors",
        "0.5,2",
        "--no-adaptive",
        "--tpch-only",
        "--runs",
        "3",
    ]
    assert local.main(command) == 0
    assert local.main(command) == 0  # what is recorded is not repeated
    assert recorded == [(0.5, 22, "false", 3), (2.0, 22, "false", 3)]
    jobs = read_workload(tmp_path / "out" / "jobs.json.gz")
    assert [profile.name for profile in jobs.profiles] == ["q-0.5g", "q-2g"]
    [stage] = jobs.profiles[0].stages
    assert (stage.input_bytes, stage.input_rows, stage.shuffle_bytes) == (500, 9, 0)
    assert stage.operators == ("Scan parquet", "HashAggregate", "Exchange")
    assert "2 profiles" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        local.main(["--out", str(tmp_path), "--scale-factors", "-1"])
    (tmp_path / "file").write_text("")
    assert local.main(["--out", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")


@pytest.mark.slow
@pytest.mark.skipif(needs_spark() is not None, reason=str(needs_spark()))
def test_jobs_on_a_real_local_spark(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "JOBS", {name: local.JOBS[name] for name in ("window-rank", "etl-csv", "ml-kmeans")})
    monkeypatch.setattr(local, "NUM_QUERIES", 1)
    assert local.main(["--out", str(tmp_path), "--scale-factors", "0.01", "--runs", "1", "--cpu-time"]) == 0
    jobs = read_workload(tmp_path / "jobs.json.gz")
    operators = {
        name: {operator for stage in job.stages for operator in stage.operators}
        for job in jobs.profiles
        for name in [job.name]
    }
    assert {"Window", "Sort", "Exchange"} <= operators["window-rank-0.01g"]
    assert {"Scan parquet", "HashAggregate"} <= operators["tpch-q1-0.01g"]
    assert any(name.startswith("ml-kmeans-0.01g") for name in operators)
