"""Operators of stages, from plans and from scopes of RDDs."""

from typing import Any

from tests.workloads.spark.logs import SQL, LogBuilder
from workloads.job import MOST_OPERATORS
from workloads.spark.eventlog import read_event_log
from workloads.spark.plans import compiled_nodes, stage_operators


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
