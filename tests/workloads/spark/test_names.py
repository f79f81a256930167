"""Names of queries: which text names a query, and what of it belongs to one run."""

from tests.cases import cases
from workloads.spark.names import LONGEST_DESCRIPTION, query_name, without_run

UUID, OTHER = "66d0efdc-7c75-4203-bae3-8cbb009a6ac8", "899F1EDD-0147-43f8-b04e-493f4f2ba986"
SITE, ANOTHER = "count at etl.py:12", "$anonfun$withThreadLocalCaptured$1 at FutureTask.java:264"
BROADCAST = f"broadcast exchange (runId {UUID})"
LISTING = "Listing leaf files and directories for 43 paths:<br/>file:/a, ..."


@cases(
    "descriptions, site, group, expected",
    (["nightly", "other"], SITE, "g", "nightly"),
    (["", "nightly"], SITE, "g", "nightly"),
    ([SITE, "nightly"], ANOTHER, "g", "nightly"),
    ([SITE, BROADCAST, ANOTHER], ANOTHER, "g", SITE),
    ([BROADCAST, LISTING, "Job group for statement 12"], ANOTHER, "g", ANOTHER),
    ([LISTING, "nightly"], ANOTHER, "g", "nightly"),
    ([], "", "g", "g"),
    ([UUID], "", "g", "g"),
    ([UUID], "", UUID, ""),
    ([""], "", "", ""),
    ([" \n", "nightly"], SITE, "g", "nightly"),
    (["parquet at <unknown>:0", "x"], "", "", "x"),
    (["look at this", SITE], "", "", "look at this"),
)  # fmt: skip
def test_what_names_a_query(descriptions, site, group, expected):
    assert query_name(descriptions, site, group) == expected


@cases(
    "text, expected",
    ("select *\n  from t", "select * from t"),
    (f"orders<br/>id = {UUID}<br/>runId = {OTHER}<br/>batch = 7", "orders"),
    (f"my orders\nid = {UUID}\nrunId = {OTHER}\nbatch = init", "my orders"),
    (f"\nid = {UUID}\nrunId = {OTHER}\nbatch = 12", f"stream {UUID}"),
    (f"id = {UUID}<br/>runId = {OTHER}", f"stream {UUID}"),
    (
        'Streaming job from <a href="/streaming/batch?id=1527065435000">[output operation 1, batch time 16:50:35]</a>',
        "Streaming job, output operation 1",
    ),
    (f"report (run {UUID} of {OTHER})", "report (run * of *)"),
    ("Delta: Compute snapshot for version: 37", "Delta: Compute snapshot for version"),
    ("query 5 of 2024-01-02", "query 5 of 2024-01-02"),
    ("x" * LONGEST_DESCRIPTION + "y", "x" * LONGEST_DESCRIPTION),
    ("select\n" * 1000, "select " * 146 + "se"),
    (f"insert into tmp_{UUID}", "insert into tmp_*"),
    (f"digest 0{UUID}", f"digest 0{UUID}"),
)  # fmt: skip
def test_parts_that_differ_between_runs(text, expected):
    assert without_run(text) == expected
    assert without_run(expected) == expected
