"""Event logs as a workload."""

from __future__ import annotations

import pytest

from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from workloads.job import WorkloadError
from workloads.spark.importing import import_event_logs


def test_runs_of_a_query_are_pooled(tmp_path):
    for number in range(3):
        small_log(app=f"app-{number}").write(tmp_path / "logs" / str(number))
    imported = import_event_logs([tmp_path / "logs"], levels=[4], name="mine")
    [profile] = imported.workload.profiles
    assert profile.num_tasks == 4
    assert profile.stages[0].durations.levels.tolist() == [1, 4]
    assert (
        len(profile.stages[1].durations.values) == 3 + 3
    )  # three runs of one task; three waves of the model
    about = imported.workload.about
    assert imported.workload.name == "mine"
    assert (about["applications"], about["queries"], about["spark"]) == (3, 3, ["3.5.1"])
    assert about["measured_levels"] == [1]
    assert about["model"]["first_ms"] > 0


@pytest.mark.parametrize("order", [(1, 3), (3, 1), (2, 3, 1)])
def test_of_an_application_that_is_given_twice_the_fuller_log_counts(tmp_path, order):
    """As when a log was copied while the application ran, and again at its end; whichever comes first."""
    for number, queries in enumerate(order):
        log = LogBuilder(name="nightly").executor("0")
        for job in range(queries):
            start = 2000 + 1000 * job
            log.sql(job, start, f"q{job}").job(job, [stage_info(job, 2)], at=start, sql=job)
            log.run(job, start, start + 100).job_end(job, start + 110).sql_end(job, start + 120)
        log.end().write(tmp_path / "logs" / str(number))
    imported = import_event_logs([tmp_path / "logs"], arrivals=True)
    assert [profile.name for profile in imported.workload.profiles] == ["q0", "q1", "q2"]
    assert len(imported.applications) == 1
    assert imported.measured_ms.tolist() == [120.0] * 3
    assert imported.workload.about["queries"] == 3
    assert list(imported.notes) == ["nightly: app-1 is given twice, counted once"] * (len(order) - 1)


def test_queries_of_one_name_and_other_dags_are_kept_apart(tmp_path):
    log = LogBuilder().executor("0")
    for job, (tasks, name) in enumerate(((2, "a"), (3, "a"), (2, "a"), (2, "b"))):
        start = 2000 + 1000 * job
        log.sql(job, start, name).job(job, [stage_info(job, tasks)], at=start, sql=job)
        log.run(job, start, start + 100).job_end(job, start + 110).sql_end(job, start + 120)
    imported = import_event_logs([log.end().write(tmp_path / "log")])
    assert [profile.name for profile in imported.workload.profiles] == ["a", "a (2)", "b"]
    assert [profile.num_tasks for profile in imported.workload.profiles] == [2, 3, 2]


def test_the_plan_of_a_query_is_noted(tmp_path):
    """As it was at the start, an operator before its children."""
    log = LogBuilder().executor("0").sql(0, 2000)
    log.job(0, [stage_info(0, 2)], at=2000, sql=0).run(0, 2000, 2100).job_end(0, 2110).sql_end(0, 2120).end()
    [start] = [event for event in log.events if event["Event"].endswith("SQLExecutionStart")]
    leaves = [{"nodeName": name, "children": []} for name in ("Scan parquet a", "Scan parquet b")]
    start["sparkPlanInfo"] = {
        "nodeName": "Join",
        "children": [{"nodeName": "Sort", "children": leaves[:1]}, leaves[1]],
    }
    about = import_event_logs([log.write(tmp_path / "log")]).workload.about
    assert list(about["plans"].values()) == [["Join", "Sort", "Scan parquet a", "Scan parquet b"]]
    start["sparkPlanInfo"] = {"children": []}
    with pytest.raises(WorkloadError, match="nodeName"):
        import_event_logs([log.write(tmp_path / "log")])


def test_what_was_counted_is_told(tmp_path):
    log = small_log(name="nightly")
    log.events.insert(-1, {"Event": "SparkListenerUnheardOf"})
    [note] = import_event_logs([log.write(tmp_path / "log")]).notes
    assert note == "nightly: 1 events that say nothing of durations (1 UnheardOf)"


def test_parameters_set_by_hand(tmp_path):
    path = small_log().write(tmp_path / "log")
    imported = import_event_logs([path], parameters={"fresh_ms": 5}, levels=[7])
    assert imported.model.fresh_ms == 5
    with pytest.raises(WorkloadError, match="no parameter 'nonsense'"):
        import_event_logs([path], parameters={"nonsense": 5})


def test_a_log_that_was_cut_off(tmp_path):
    text = small_log().text
    (tmp_path / "log").write_bytes(text[: text.index(b"SparkListenerJobEnd")])
    with pytest.raises(WorkloadError, match="no query ran to its end"):
        import_event_logs([tmp_path / "log"])
    imported = import_event_logs([tmp_path / "log"], partial=True)
    [profile] = imported.workload.profiles
    assert profile.name.endswith("(incomplete)")
    assert profile.num_tasks == 4
    assert "mid-line" in imported.notes[0]


def test_complete_and_incomplete_runs_are_kept_apart(tmp_path):
    small_log(app="app-1").write(tmp_path / "logs" / "1")
    text = small_log(app="app-2").text
    (tmp_path / "logs" / "2").write_bytes(text[: text.index(b"SparkListenerJobEnd")])
    names = [job.name for job in import_event_logs([tmp_path / "logs"], partial=True).workload.profiles]
    assert len(names) == 2
    assert names[1] == f"{names[0]} (incomplete)"


def test_a_log_without_queries(tmp_path):
    path = LogBuilder().end().write(tmp_path / "log")
    with pytest.raises(WorkloadError, match="no Spark jobs"):
        import_event_logs([path])
    with pytest.raises(WorkloadError, match="no query of which a task ended"):
        import_event_logs([path], partial=True)
