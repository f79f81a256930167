"""Event logs as a workload; variation between runs of a query, and failures of tasks and executors."""

from dataclasses import replace

import numpy as np
import pytest

from tests.cases import cases
from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from tests.workloads.spark.runs import Stage, measured_run
from workloads import Wave, WorkloadError, read_event_log, read_workload, write_workload
from workloads.imperfections import Imperfections
from workloads.sources.tpch import LEVELS
from workloads.spark.importing import _without_warm_ups, import_event_logs, measure_imperfections, median_startup_ms
from workloads.spark.query import QueryRuns, SparkQuery, alike, matched


def test_runs_of_a_query_are_pooled(tmp_path):
    for number in range(3):
        small_log(app=f"app-{number}").write(tmp_path / "logs" / str(number))
    imported = import_event_logs([tmp_path / "logs"], levels=[4], name="mine")
    [profile] = imported.workload.profiles
    assert (profile.num_tasks, profile.stages[0].durations.levels.tolist()) == (4, [1, 4])
    assert len(profile.stages[1].durations.values) == 3 + 3  # three runs of one task; three waves of the model
    about = imported.workload.about
    assert imported.workload.name == "mine"
    assert (about["applications"], about["queries"], about["spark"]) == (3, 3, ["3.5.1"])
    assert about["measured_levels"] == [1]
    assert about["model"]["first_ms"] > 0


@pytest.mark.parametrize(("tenants", "names"), [("pool", ["bi", "default"]), ("group", ["default", "g"]), (None, [])])
def test_the_tenant_of_a_query_is_its_pool_or_its_job_group(tmp_path, tenants, names):
    log = LogBuilder().executor("0")
    for job, named in enumerate(({"spark.scheduler.pool": "bi"}, {"spark.jobGroup.id": "g"})):
        start = 2000 + 1000 * job
        log.job(job, [stage_info(job, 1)], at=start, **named)
        log.run(job, start, start + 100).job_end(job, start + 100)
    path = log.end().write(tmp_path / "log")
    found = import_event_logs([path], arrivals=True, tenants=tenants).workload
    assert [each.tenant for each in found.sequence.attributes] == names
    write_workload(tmp_path / "w.json", found)
    assert read_workload(tmp_path / "w.json").sequence.attributes == found.sequence.attributes
    for wrong, message in (({}, "tenants need arrivals"), ({"tenants": "queue"}, "tenants must be 'pool' or 'group'")):
        with pytest.raises(WorkloadError, match=message):
            import_event_logs([path], **{"tenants": "pool", **wrong})


@pytest.mark.parametrize("order", [(1, 3), (3, 1), (2, 3, 1)])
def test_of_an_application_that_is_given_twice_the_fuller_log_counts(tmp_path, order):
    """As if a log was copied during the run, and again at its end; in any order."""
    for number, queries in enumerate(order):
        log = LogBuilder(name="nightly").executor("0")
        for job in range(queries):
            log.query(job, f"q{job}", 2)
        log.end().write(tmp_path / "logs" / str(number))
    imported = import_event_logs([tmp_path / "logs"], arrivals=True)
    assert [profile.name for profile in imported.workload.profiles] == ["q0", "q1", "q2"]
    assert (len(imported.applications), imported.measured_ms.tolist()) == (1, [120.0] * 3)
    assert imported.workload.about["queries"] == 3
    assert list(imported.notes) == ["nightly: app-1 is given twice, counted once"] * (len(order) - 1)


def test_names_notes_and_parameters_of_an_import(tmp_path):
    log = LogBuilder().executor("0")
    for job, (tasks, name) in enumerate(((2, "a"), (3, "a"), (2, "a"), (2, "b"), (2, "a (2)"))):
        log.query(job, name, tasks)
    imported = import_event_logs([log.end().write(tmp_path / "log")])
    assert [profile.name for profile in imported.workload.profiles] == ["a", "a (2)", "b", "a (2)'"]
    assert [profile.num_tasks for profile in imported.workload.profiles] == [2, 3, 2, 2]
    log = small_log(name="nightly")
    log.events.insert(-1, {"Event": "SparkListenerUnheardOf"})
    [note] = import_event_logs([log.write(tmp_path / "log")]).notes
    assert note == "nightly: 1 events without information on durations (1 UnheardOf)"
    # By default the parallelism levels of the published profiles.
    found = import_event_logs([small_log().write(tmp_path / "log")])
    assert found.workload.profiles[0].stages[0].durations.levels.tolist() == [1, *LEVELS]
    assert found.workload.name == ""


def test_the_plan_of_a_query_is_noted(tmp_path):
    """The initial plan, an operator before its children."""
    log = LogBuilder().executor("0").sql(0, 2000)
    log.job(0, [stage_info(0, 2)], at=2000, sql=0).run(0, 2000, 2100).job_end(0, 2110).sql_end(0, 2120).end()
    [start] = [event for event in log.events if event["Event"].endswith("SQLExecutionStart")]
    leaves = [{"nodeName": name, "children": []} for name in ("Scan parquet a", "Scan parquet b")]
    start["sparkPlanInfo"] = {"nodeName": "Join", "children": [{"nodeName": "Sort", "children": leaves[:1]}, leaves[1]]}
    about = import_event_logs([log.write(tmp_path / "log")]).workload.about
    assert list(about["plans"].values()) == [["Join", "Sort", "Scan parquet a", "Scan parquet b"]]
    start["sparkPlanInfo"] = {"children": []}
    with pytest.raises(WorkloadError, match="nodeName"):
        import_event_logs([log.write(tmp_path / "log")])


def test_parameters_by_hand_and_logs_without_queries(tmp_path):
    path = small_log().write(tmp_path / "log")
    imported = import_event_logs([path], parameters={"fresh_ms": 5}, levels=[7])
    assert imported.model.fresh_ms == 5
    with pytest.raises(WorkloadError, match="no parameter 'nonsense'"):
        import_event_logs([path], parameters={"nonsense": 5})
    path = LogBuilder().end().write(tmp_path / "log")
    with pytest.raises(WorkloadError, match="no Spark jobs"):
        import_event_logs([path])
    with pytest.raises(WorkloadError, match="no query with a finished task"):
        import_event_logs([path], partial=True)


def test_complete_and_incomplete_runs_are_kept_apart(tmp_path):
    small_log(app="app-1").write(tmp_path / "logs" / "1")
    text = small_log(app="app-2").text
    (tmp_path / "logs" / "2").write_bytes(text[: text.index(b"SparkListenerJobEnd")])
    imported = import_event_logs([tmp_path / "logs"], partial=True)
    assert [job.name for job in imported.workload.profiles] == ["job 0", "job 0 (incomplete)"]
    assert [job.num_tasks for job in imported.workload.profiles] == [4, 4]
    assert "mid-line" in imported.notes[0]
    with pytest.raises(WorkloadError, match="no query ran to its end"):
        import_event_logs([tmp_path / "logs" / "2"])


def jobs(*spans: tuple[int, int], host: str = "h", **names: str) -> LogBuilder:
    """Return an application whose jobs have one task in given intervals, and one executor each."""
    log = LogBuilder(**names)
    for job, (start, end) in enumerate(spans):
        log.executor(str(job), Host=host).sql(job, start, f"q{job}").job(job, [stage_info(job, 1)], at=start, sql=job)
        log.run(job, start, end, executor=str(job)).job_end(job, end).sql_end(job, end)
    return log.end(10**6)


@cases(
    "spans, warm",
    ([(2000, 3000), (3000, 4000), (5000, 6000), (5500, 7000), (5600, 7000)], 2),
    ([(2000, 3000), (2999, 4000), (5000, 6000)], 0),
    ([(2000, 3000), (3000, 4000), (5000, 6000), (6000, 7000)], 0),  # no two jobs overlap
    ([(2000, 3000), (3000, 4000), (5000, 6000), (5500, 7000)], 2),
    ([(2000, 3000), (3000, 4000), (4000, 5000), (5000, 6000), (5500, 7000)], 0),  # more than half
    ([(2000, 3000)], 0),
)
def test_jobs_that_warm_an_application_up(tmp_path, spans, warm):
    """Warm-up jobs ran one by one before the first two that overlapped."""
    applications = read_event_log(jobs(*spans, name="app").write(tmp_path / "log"))
    [kept], notes = _without_warm_ups(applications)
    assert kept.queries == applications[0].queries[warm:]
    said = f"app: {warm} jobs left out as warm-up: they ran one by one before the first two that ran at once"
    assert notes == ([said] if warm else [])


def test_jobs_that_warm_an_application_up_are_left_out_if_that_is_asked_for(tmp_path):
    path = jobs((2000, 3000), (4000, 5000), (4500, 6000), (5000, 6000), name="app").write(tmp_path / "log")
    for warm_ups, names in ((True, ["q0", "q1", "q2", "q3"]), (False, ["q1", "q2", "q3"])):
        found = import_event_logs([path], warm_ups=warm_ups, levels=[1])
        assert [profile.name for profile in found.workload.profiles] == names
        assert len(found.notes) == (not warm_ups)


@cases(
    "first_ms, cold_runs, mean_ms, noted",
    (300, False, 100, True), (300, True, 166.7, False), (110, False, 103.3, False),
)  # fmt: skip
def test_the_cold_first_run_of_a_query_is_left_out_if_it_is_much_slower(tmp_path, first_ms, cold_runs, mean_ms, noted):
    log = LogBuilder(name="app").executor("0")
    spans = [("other", 500), ("q", first_ms), ("q", 100), ("q", 100)]
    for number, (name, lasts_ms) in enumerate(spans):
        at = 2000 + 1000 * number
        log.sql(number, at, name).job(number, [stage_info(number, 1)], at=at, sql=number)
        log.run(number, at, at + lasts_ms).job_end(number, at + 600).sql_end(number, at + 600)
    path = log.end().write(tmp_path / "log")
    found = import_event_logs([path], cold_runs=cold_runs, levels=[1], arrivals=True)
    other, query = found.workload.profiles
    assert other.stages[0].durations.mean_ms == pytest.approx(500)  # the only run, on a new executor
    assert query.stages[0].durations.mean_ms == pytest.approx(mean_ms, abs=0.1)
    notes = [
        "1 cold run left out, the first of its query in an application: tasks took 3 times as long as in later runs"
    ]
    assert [note for note in found.notes if "cold" in note] == (notes if noted else [])
    assert found.workload.sequence is not None
    assert len(found.workload.sequence) == len(found.queries["other"].runs) + len(found.queries["q"].runs) == 4


def shared_machine(*host_of: str, at_two: int = 90) -> LogBuilder:
    """Return a scan on one executor, of 50 ms per task, and one on two, which takes longer."""
    log = LogBuilder(name="night").executor("0", Host=host_of[0])
    for job, (executors, duration) in enumerate(((1, 50), (2, at_two))):
        if job:
            log.executor("1", at=15_000, Host=host_of[-1])
        at = 10_000 * (job + 1)
        log.sql(job, at, "q").job(job, [stage_info(job, 8, rdd=5)], at=at, sql=job).submit(job, at)
        for task in range(8):
            start = at + task // executors * duration
            log.task(job, task, str(task % executors), start, start + duration)
        log.complete(job, at + 1000).job_end(job, at + 1000).sql_end(job, at + 1000)
    return log.end(10**6)


def test_executors_of_one_machine_slow_each_other_down(tmp_path):
    path = shared_machine("h", at_two=90).write(tmp_path / "log")
    found = import_event_logs([path], levels=[2])
    assert dict(found.model.contention) == pytest.approx({1: 1.0, 2: 1.8})
    [note] = [note for note in found.notes if "machine" in note]
    assert note == (
        "all executors were on one machine, where scans took 1.8 times as long on 2 executors as on the fewest: "
        "removed from all durations"
    )
    assert import_event_logs([path], shared_machine=False).model.contention == {}
    asked = import_event_logs([path], shared_machine=True)
    assert dict(asked.model.contention) == pytest.approx({1: 1.0, 2: 1.8})
    assert [note for note in asked.notes if "machine" in note] == []


@cases("hosts, at_two, seen", (("h",), 61, True), (("h",), 59, False), (("h", "g"), 90, False), (("",), 90, False))
def test_which_executors_share_a_machine(tmp_path, hosts, at_two, seen):
    found = import_event_logs([shared_machine(*hosts, at_two=at_two).write(tmp_path / "log")], levels=[1])
    assert bool(found.model.contention) == seen
    assert any("one machine" in note for note in found.notes) == seen


def test_jobs_come_as_they_came(tmp_path):
    jobs((5000, 5200), (2000, 2100), (2050, 9000), name="b").write(tmp_path / "logs" / "b")
    found = import_event_logs([tmp_path / "logs"], arrivals=True, levels=[1])
    sequence = found.workload.sequence
    assert sequence is not None
    assert [profile.name for profile in sequence.profiles] == ["q1", "q2", "q0"]
    assert sequence.arrival_ms.tolist() == [0.0, 50.0, 3000.0]
    assert found.measured_ms.tolist() == [100.0, 6950.0, 200.0]
    without = import_event_logs([tmp_path / "logs"], levels=[1])
    assert without.workload.sequence is None
    assert without.measured_ms.tolist() == []


def test_applications_of_another_time_or_name_are_others(tmp_path):
    small_log(app="", name="a").write(tmp_path / "1")
    small_log(app="", name="b").write(tmp_path / "2")
    later = small_log(app="", name="a")
    later.events[1]["Timestamp"] = 1001
    found = import_event_logs([tmp_path / "1", tmp_path / "2", later.write(tmp_path / "3")])
    assert (len(found.applications), found.notes) == (3, ())
    again = import_event_logs([tmp_path / "1", tmp_path / "1"])
    assert again.notes == ("a: the same application is given twice, counted once",)


def test_where_a_workload_comes_from(tmp_path):
    times = {"Request Time": 1000, "Registration Time": 3460}
    for number, (day, version) in enumerate(((20_000, "3.5.1"), (20_003, "4.0.0"), (20_001, "3.5.1"))):
        log = small_log(app=f"app-{number}", name=f"n{number}", version=version)
        log.events[1]["Timestamp"] = day * 86_400_000
        log.executor("1", at=3461, **times).executor("2", at=3461, **times).write(tmp_path / str(number))
    about = import_event_logs([tmp_path]).workload.about
    model = about.pop("model")
    assert about == {
        "source": "Spark event logs", "spark": ["3.5.1", "4.0.0"], "recorded": ["2024-10-04", "2024-10-07"],
        "applications": 3, "queries": 3, "executor_startup_ms": 2460, "measured_levels": [1],
    }  # fmt: skip
    assert model["contention"] == {}
    notes = import_event_logs([tmp_path / "0"]).notes
    assert notes == ("an executor took 2.5 s to start (median): the cluster's moving delay",)
    assert np.isnan(median_startup_ms([]))
    known = import_event_logs([small_log().write(tmp_path / "plain")])
    assert (known.workload.about["executor_startup_ms"], known.notes) == (None, ())


NO_RUNS = "errors of estimates are unknown: no query ran twice on the same number of executors"


def run_of(durations: list[list[float]], level: int = 1, wave: Wave = Wave.REST, **changes: object) -> SparkQuery:
    """Return one run of independent stages with these task durations."""
    rows = [(stage, wave, level, ms, 0.0, 0.0) for stage, each in enumerate(durations) for ms in each]
    return replace(measured_run([Stage(len(each)) for each in durations], rows), **changes)


def errors(*queries: QueryRuns) -> list[float | None]:
    found, _ = measure_imperfections(queries, [])
    return [found.job_error, found.stage_error, found.task_error, found.task_count_error]


def drawn(seed: int, job: float, stage: float, task: float, runs: int = 4, queries: int = 40) -> list[QueryRuns]:
    """Draw queries of five stages whose tasks differ a lot, and whose runs have errors of the given sizes."""
    random, groups = np.random.default_rng(seed), []
    for _ in range(queries):
        means = random.uniform(500, 1000, (5, 1)) * np.exp(random.normal(0, 0.5, (5, 20)))
        factors = [
            np.exp(random.normal(0, job) + random.normal(0, stage, (5, 1)) + random.normal(0, task, (5, 20)))
            for _ in range(runs)
        ]
        groups.append(matched(run_of((means * each).tolist()) for each in factors))
    return groups


@pytest.mark.parametrize("sigmas", [(0.0, 0.0, 0.3), (0.5, 0.0, 0.1), (0.0, 0.4, 0.2), (0.3, 0.2, 0.3)])
def test_errors_that_runs_were_drawn_with_are_found(sigmas):
    assert errors(*drawn(1, *sigmas))[:3] == pytest.approx(sigmas, abs=0.1)


def test_errors_of_runs_by_hand():
    # One of two stages takes four times as long in the second run, and has 5/7 of the time.
    runs = [run_of([[100.0] * 3, [100.0] * 3]), run_of([[400.0] * 3, [100.0] * 3])]
    job, stage, task, count = errors(matched(runs))
    half, weights = np.log(4) / 2, np.array([5 / 7, 2 / 7])
    of_run = half * weights[0]
    of_stages = 2 * (weights * (np.array([half, 0.0]) - of_run) ** 2).sum()
    variance = of_stages / (1 - (weights**2).sum())
    assert (stage, task, count) == (pytest.approx(np.sqrt(variance), abs=1e-3), 0.0, 0.0)
    assert job == pytest.approx(np.sqrt(max(2 * of_run**2 - variance * (weights**2).sum(), 0.0)), abs=1e-3)
    runs = [run_of([[100.0, 300.0], [50.0]]), run_of([[200.0, 600.0], [100.0]])]
    assert errors(matched(runs)) == [pytest.approx(np.log(2) / np.sqrt(2), abs=1e-3), 0.0, 0.0, 0.0]
    # The second run started on warm executors, and lost a task.
    first = [(0, Wave.FRESH, 1, 900.0, 0, 0), *[(0, Wave.REST, 1, 100.0, 0, 0)] * 2]
    second = [*[(0, Wave.REST, 1, 100.0, 0, 0)] * 2]
    runs = [measured_run([Stage(3)], rows) for rows in (first, second)]
    assert errors(matched(runs)) == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("change", [{"level": 2}, {"complete": False}, {"name": "other"}])
def test_runs_are_compared_on_as_many_executors_if_they_ended(change):
    runs = [run_of([[100.0]], **change), run_of([[200.0]], **({} if "level" in change else change))]
    groups = [matched(runs)] if "name" not in change else [matched(runs[:1]), matched([run_of([[200.0]])])]
    measured, [line, _] = measure_imperfections(groups, [])
    assert (measured, line) == (Imperfections(), NO_RUNS)


def test_numbers_of_tasks_differ_and_tasks_that_ended_once_are_left_out():
    # With growing data: 4, 4 and 16 tasks in one of two stages.
    runs = [run_of([[100.0] * count, [100.0] * 2]) for count in (4, 4, 16)]
    deviations = np.log([4, 4, 16]) - np.log([4, 4, 16]).mean()
    expected = np.sqrt((deviations**2).sum() / (2 * 2))
    assert errors(*alike(runs))[3] == pytest.approx(expected, abs=1e-3)
    others = [runs[0], runs[1], replace(runs[2], name="other")]
    assert (
        errors(*[group for name in ("q", "other") for group in alike(run for run in others if run.name == name)])[3]
        == 0.0
    )
    stage = [Stage(3)]
    rows = [[(0, Wave.REST, 1, ms, 0.0, 0.0) for ms in each] for each in ((100.0, 100.0, 900.0), (200.0, 200.0))]
    found = errors(matched([measured_run(stage, each) for each in rows]))
    assert found[:2] == [pytest.approx(np.log(2) / np.sqrt(2), abs=1e-3), 0.0]


def failing(tmp_path, **options):
    """Return an application: executor 0 lives 8 s, 1 is lost after 2 s; one of three attempts fails by itself."""
    log = LogBuilder().executor("0").executor("1", at=2000).remove("1", 4000, "worker lost").remove("7", 4000, "lost")
    log.job(0, [stage_info(0, 2)], at=2000).submit(0, 2000)
    for number, reason in enumerate(("ExceptionFailure", "FetchFailed", "TaskKilled", "Success")):
        log.task(0, 0, "0", 2000 + 100 * number, 2100 + 100 * number, attempt=number, reason=reason)
    log.task(0, 1, "1", 2000, 2100).complete(0, 2500).job_end(0, 2500).end()
    return import_event_logs([log.write(tmp_path / "log")], levels=[1], **options)


def test_failures_are_counted(tmp_path):
    found = failing(tmp_path)
    assert found.workload.imperfections == Imperfections(task_failures=1 / 3, executor_lifetime_s=10.0)
    said = "1 of 3 runs of tasks failed, 1 executors were lost in 0.00278 executor hours"
    assert found.variation == (NO_RUNS, said)


def test_an_import_writes_them_into_the_workload_file(tmp_path):
    for number in range(2):
        small_log(app=f"app-{number}").write(tmp_path / "logs" / str(number))
    found = import_event_logs([tmp_path / "logs"], levels=[1])
    expected = Imperfections(0.0, 0.0, 0.0, 0.0, task_failures=0.0)
    assert found.workload.imperfections == expected
    assert found.variation[0] == (
        "runs of the same query differ, standard deviation of the logarithm: job 0, stage 0, task 0, task count 0"
    )
    write_workload(tmp_path / "it.json", found.workload)
    assert read_workload(tmp_path / "it.json").imperfections == expected
