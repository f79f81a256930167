"""Jobs of event logs, simulated under other schedulers."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from decima.evaluation.conditions import CompareError
from decima.evaluation.spark import SPARKS_OWN
from decima.evaluation.spark.logged_jobs import HeldOut, cluster_of_logs, logged_jobs, predict_held_out
from decima.evaluation.spark.what_if import SCHEDULERS, WhatIf, simulate_what_if
from decima.schedulers.spark import SparkFifo
from decima.show.what_if import shown
from simulator import SPARK, ClusterConfig, run_episode
from simulator.cluster.config import Knowledge
from tests.decima.show.test_plots import difference
from tests.workloads.spark.logs import LogBuilder, stage_info
from workloads import JobProfile, JobSequence, SparkImport, StageProfile, TaskDurations, Wave, import_event_logs

#: Schedulers that take no time to tune.
UNTUNED = {**SPARKS_OWN, "srpt": "srpt"}


def night(rounds: int = 1) -> LogBuilder:
    """Return logs of pairs of jobs on two executors: a long job, and a short job that waits for it under FIFO."""
    log = LogBuilder(name="night").executor("0").executor("1")
    for job in range(0, 2 * rounds, 2):
        at, scan = 10_000 + 100_000 * job, 2 * job
        stages = [stage_info(scan, 10), stage_info(scan + 1, 10, (scan,))]
        log.sql(job, at, "long").job(job, stages, at=at, sql=job)
        short = [stage_info(scan + 2, 2)]
        log.sql(job + 1, at + 100, "short").job(job + 1, short, at=at + 100, sql=job + 1)
        _run(log, scan, 10, at)
        _run(log, scan + 1, 10, at + 5000)
        log.job_end(job, at + 10_000).sql_end(job, at + 10_000)
        _run(log, scan + 2, 2, at + 10_000)
        log.job_end(job + 1, at + 11_000).sql_end(job + 1, at + 11_000)
    return log.end(10**7)


def _run(log: LogBuilder, stage: int, tasks: int, at: int) -> None:
    """Return a run with tasks of a second on two executors."""
    log.submit(stage, at)
    for task in range(tasks):
        start = at + task // 2 * 1000
        log.task(stage, task, str(task % 2), start, start + 1000)
    log.complete(stage, at + tasks // 2 * 1000)


def simulated(path: Path, num_draws: int = 3, schedulers: Mapping[str, str] = UNTUNED) -> tuple[SparkImport, WhatIf]:
    imported = import_event_logs([path], warm_ups=False, name="the logs")
    held_out = predict_held_out(imported).with_driver()
    return imported, simulate_what_if(imported, held_out, logged_jobs(imported), schedulers, num_draws)


def test_a_short_job_need_not_wait_for_a_long_one(tmp_path: Path) -> None:
    _, found = simulated(night(2).write(tmp_path / "log"), schedulers=SCHEDULERS)
    [logged] = found.logged
    assert (logged.cluster.num_executors, logged.cluster.moving_delay_ms) == (2, 0.0)
    assert logged.periods() == [slice(0, 2), slice(2, 4)]
    assert found.jobs["query"].tolist() == ["long", "short"] * 2
    assert found.jobs["measured_ms"].tolist() == [10_000, 10_900] * 2
    assert found.jobs["arrival_ms"].tolist() == [0, 100, 200_000, 200_100]
    assert found.jct_ms["Spark FIFO"].shape == (3, 4)
    # At 5 s the executor that is done first finds no stage of the long job open, and runs a task of the short one; the
    # other task waits for the long job's last, which now comes a second later. Or the short one goes first then.
    assert found.mean_jct_ms("Spark FIFO").mean == pytest.approx((11_000 + 10_900) / 2, rel=0.02)
    assert found.mean_jct_ms("srpt").mean == pytest.approx((11_000 + 5_900) / 2, rel=0.02)
    assert found.change("srpt", "Spark FIFO").mean == pytest.approx(8_450 / 10_950 - 1, rel=0.05)
    assert found.change("Spark FIFO", "Spark FIFO") == (0, 0, 0)
    assert found.by_query().index.tolist() == ["long", "short"]  # most time under FAIR
    assert found.by_query().loc["short", "measured_s"] == pytest.approx(10.9)
    document = json.loads(found.to_json(command="x"))
    assert document["jobs"][1]["predicted_s"]["Spark FIFO"] == pytest.approx(10.9, rel=0.05)
    assert document["sparks_own"] == found.sparks_own
    assert simulated(tmp_path / "log", schedulers=SCHEDULERS)[1].to_json(command="x") == found.to_json(command="x")


def one_by_one(*durations_ms: int) -> LogBuilder:
    """Return a log of runs of one query, one after the other: a task on one executor, which is there from the start."""
    log = LogBuilder().executor("0")
    for job, duration_ms in enumerate(durations_ms):
        at = 10_000 + 50_000 * job
        log.sql(job, at, "q").job(job, [stage_info(job, 1)], at=at, sql=job)
        log.run(job, at, at + duration_ms).job_end(job, at + duration_ms).sql_end(job, at + duration_ms)
    return log.end(10**6)


def test_jobs_that_ran_keep_their_own_durations(tmp_path: Path) -> None:
    """A first run that took five times as long changes neither the other jobs nor the mean."""
    _, found = simulated(one_by_one(10_000, *[2000] * 5).write(tmp_path / "log"), num_draws=20)
    for jct_ms in (*found.jct_ms.values(), found.as_it_ran_ms):
        assert jct_ms.tolist() == [[10_000] + [2000] * 5] * 20
    assert found.mean_jct_ms("Spark FIFO") == pytest.approx((20_000 / 6,) * 3)
    assert found.as_it_ran().to_dict("records") == [
        pytest.approx({"jobs": 6, "measured_s": 20 / 6, "simulated_s": 20 / 6, "error": 0})
    ]


def held_out_of(*measured_ms: float) -> HeldOut:
    """Return runs of other queries, each predicted to take a second."""
    rows = pd.DataFrame({"measured_ms": measured_ms, "predicted_ms": 1000.0}, dtype=np.float64)
    return HeldOut(rows.assign(query="other", application="app-1", executors=1, driver_ms=0.0))


def test_errors_apply_where_the_own_run_has_no_durations(tmp_path: Path) -> None:
    """On a number of executors that the log has not, durations are modelled; the errors have mean 1."""
    log = LogBuilder().executor("0")
    for job in range(10):
        at = 10_000 + 50_000 * job
        log.sql(job, at, f"q{job}").job(job, [stage_info(job, 8)], at=at, sql=job)
        log.run(job, at, at + 8000).job_end(job, at + 8000).sql_end(job, at + 8000)
    imported = import_event_logs([log.end(10**7).write(tmp_path / "log")])

    def jct_ms(executors: int | None, *measured_ms: float) -> NDArray[np.float64]:
        logged, held_out = logged_jobs(imported, executors), held_out_of(*measured_ms)
        return simulate_what_if(imported, held_out, logged, {"Spark FIFO": "fifo"}, num_draws=5).jct_ms["Spark FIFO"]

    assert (jct_ms(None, 1000, 3000) == 8000).all()
    assert (jct_ms(1, 1000, 3000) == 8000).all()
    modelled_ms = jct_ms(8).mean()  # a task each
    assert modelled_ms == pytest.approx(1000, rel=0.02)
    drawn = jct_ms(8, 1000, 3000) / modelled_ms  # factors 1 and 3, centred
    assert np.unique(drawn.round(3)).tolist() == pytest.approx([0.5, 1.5], rel=0.02)
    assert drawn.mean() == pytest.approx(1, abs=0.2)
    assert jct_ms(8, 3000, 3000) == pytest.approx(np.full((5, 10), modelled_ms))  # all wrong by the same factor
    # An outlier does not change the others, and is itself limited.
    assert jct_ms(8, 1000, 1010, 990, 1000, 20_000) == pytest.approx(np.full((5, 10), modelled_ms), rel=0.1)


def test_jobs_that_ran_have_no_error_whatever_the_errors_of_others(tmp_path: Path) -> None:
    """Neither on a shared cluster, nor on as many executors as in the log."""
    for app in ("one", "two"):
        batches("FIFO", "spark://host:7077", app=app).write(tmp_path / "shared" / app)
    batches("FIFO").write(tmp_path / "alone")
    for logs, executors in (("shared", None), ("shared", 8), ("alone", None), ("alone", 4)):
        imported = import_event_logs([tmp_path / logs], warm_ups=False)
        logged = logged_jobs(imported, executors)
        found = [
            simulate_what_if(imported, held_out, logged, {"Spark FIFO": "fifo"}, num_draws=2).jct_ms["Spark FIFO"]
            for held_out in (held_out_of(1000), held_out_of(1000, 1000, 9000, 200, 50_000))
        ]
        np.testing.assert_array_equal(*found)


def test_jobs_without_history_are_estimated_from_the_other_queries(tmp_path: Path) -> None:
    """Only schedulers that use estimates change; the jobs take as long as before."""
    log = LogBuilder().executor("0", cores=2)
    for job, tasks in enumerate((2, 4, 6, 8, 10, 12)):
        log.sql(job, 10_000 + job, f"q{job}").job(job, [stage_info(job, tasks)], at=10_000 + job, sql=job)
    now = 10_100
    for job, tasks in enumerate((2, 4, 6, 8, 10, 12)):
        log.run(job, now, now + 500 * tasks).job_end(job, now + 500 * tasks).sql_end(job, now + 500 * tasks)
        now += 500 * tasks
    imported = import_event_logs([log.end(10**6).write(tmp_path / "log")])
    schedulers = {"Spark FIFO": "fifo", "srpt": "srpt"}

    def found(**knowledge: Any) -> WhatIf:
        known = Knowledge(**knowledge)
        return simulate_what_if(imported, held_out_of(), logged_jobs(imported), schedulers, 2, knowledge=known)

    exact, forest, typical = found(), found(unknown=1.0), found(unknown=1.0, estimator="typical")
    for other in (forest, typical):
        np.testing.assert_array_equal(other.jct_ms["Spark FIFO"], exact.jct_ms["Spark FIFO"])
        assert other.as_it_ran().equals(exact.as_it_ran())
    assert json.loads(forest.to_json())["unknown"] == 1
    assert any("100% of jobs unknown" in note for note in shown(forest, "x").notes)
    assert not any("unknown" in note for note in shown(exact, "x").notes)


def late_executors() -> LogBuilder:
    """Return a log of a job of four tasks of 2 s, submitted at 2 s; executors come at 10 s and 11 s."""
    log = LogBuilder().job(0, [stage_info(0, 4)], at=2000).submit(0, 2000)
    for executor, at in (("0", 10_000), ("1", 11_000)):
        log.executor(executor, at=at)
        log.task(0, 2 * int(executor), executor, at, at + 2000)
        log.task(0, 2 * int(executor) + 1, executor, at + 2000, at + 4000)
    return log.complete(0, 15_000).job_end(0, 15_000)


def test_executors_come_when_they_came(tmp_path: Path) -> None:
    _, found = simulated(late_executors().end(20_000).write(tmp_path / "log"))
    assert found.jobs["measured_ms"].tolist() == [13_000]
    for jct_ms in (*found.jct_ms.values(), found.as_it_ran_ms):
        assert jct_ms.tolist() == [[13_000]] * 3
    [logged] = found.logged
    assert logged.waited_ms.tolist() == [8000]
    assert logged.cluster_in(slice(0, 1)).faults.capacity == ((0, 0), (8000, 1), (9000, 2))
    report = shown(found, "x")
    notes = " ".join(report.notes)
    assert "1 of 1 jobs arrived without any executor, and waited 8.0 s on average for the first one" in notes
    assert "jobs take 13.0 s; measured: 13.0 s (+0.0%)" in report.lead[0]


def test_executors_that_were_released_come_again_as_in_the_log(tmp_path: Path) -> None:
    """Both executors leave. Another comes during job 1; one more, which is released during job 2, stays in it."""
    log = late_executors().remove("0", 20_000).remove("1", 20_000)
    log.job(1, [stage_info(1, 1)], at=30_000).submit(1, 30_000).executor("2", at=35_000)
    log.task(1, 0, "2", 35_000, 36_000).complete(1, 36_000).job_end(1, 36_000)
    log.executor("3", at=40_000).job(2, [stage_info(2, 2)], at=41_000).remove("3", 41_500)
    log.run(2, 41_000, 43_000, executor="2").job_end(2, 43_000)
    _, found = simulated(log.end(50_000).write(tmp_path / "log"))
    [logged] = found.logged
    assert logged.waited_ms.tolist() == [8000, 5000, 0]
    assert logged.cluster.num_executors == 2
    assert found.jct_ms["Spark FIFO"].tolist() == [[13_000, 6000, 1000]] * 3
    assert logged.cluster_in(slice(2, 3)) == ClusterConfig(2, moving_delay_ms=0.0, warmup_delay_ms=0.0)
    given = logged_jobs(import_event_logs([tmp_path / "log"]), executors=2)
    assert given[0].cluster_in(slice(0, 1)) == logged.cluster_in(slice(2, 3))
    assert given[0].waited_ms.tolist() == [0, 0, 0]


def test_a_job_keeps_its_cold_starts(tmp_path: Path) -> None:
    """The first task of a JVM took 9 s, all others took 1 s: so in the simulation, whatever ran before."""
    log = LogBuilder().executor("0")
    for job, first_ms in enumerate((9000, 1000, 1000)):
        at = 10_000 + 50_000 * job
        log.sql(job, at, "q").job(job, [stage_info(job, 2)], at=at, sql=job).submit(job, at)
        log.task(job, 0, "0", at, at + first_ms).task(job, 1, "0", at + first_ms, at + first_ms + 1000)
        log.complete(job, at + first_ms + 1000).job_end(job, at + first_ms + 1000).sql_end(job, at + first_ms + 1000)
    _, found = simulated(log.end(10**6).write(tmp_path / "log"))
    assert found.jct_ms["Spark FIFO"].tolist() == [[10_000, 2000, 2000]] * 3
    imported = import_event_logs([tmp_path / "log"])
    [logged] = logged_jobs(imported, executors=3)  # durations are modelled, cold starts are those of the run
    found = simulate_what_if(imported, held_out_of(), [logged], {"Spark FIFO": "fifo"}, num_draws=3)
    assert found.jct_ms["Spark FIFO"].mean(axis=0) == pytest.approx([9000, 1000, 1000], rel=0.1)


def test_a_stage_on_cold_and_warm_executors_has_the_durations_of_both(tmp_path: Path) -> None:
    log = LogBuilder().executor("0").executor("1").job(0, [stage_info(0, 1)], at=2000).run(0, 2000, 3000)
    log.job_end(0, 3000).job(1, [stage_info(1, 2)], at=4000).submit(1, 4000)
    log.task(1, 0, "0", 4000, 5000).task(1, 1, "1", 4000, 13_000).complete(1, 13_000).job_end(1, 13_000)
    [logged] = logged_jobs(import_event_logs([log.end(20_000).write(tmp_path / "log")]))
    durations = logged.profiles[1].stages[0].durations
    assert [durations.table(wave)[2].tolist() for wave in Wave] == [[], [9000, 1000], []]


def overlapping(tasks: int, executors: int, gap_ms: int) -> LogBuilder:
    """Return a log of two jobs with tasks of 1 s, the second one ``gap_ms`` after the first one."""
    log = LogBuilder()
    for executor in range(executors):
        log.executor(str(executor))
    for job in range(2):
        at = 10_000 + gap_ms * job
        log.job(job, [stage_info(job, tasks)], at=at).submit(job, at)
        for task in range(tasks):
            log.task(job, task, str((job * tasks + task) % executors), at, at + 1000)
        log.complete(job, at + 1000).job_end(job, at + 1000)
    return log.end(30_000)


@pytest.mark.parametrize(
    ("tasks", "executors", "gap_ms", "reason"),
    [
        (2, 4, 2000, "jobs never overlap"),
        (8, 4, 2000, "jobs never overlap"),
        (2, 4, 500, "a slot is always free"),
        (2, 3, 500, ""),
    ],
)
def test_the_report_says_when_no_scheduler_matters(
    tasks: int, executors: int, gap_ms: int, reason: str, tmp_path: Path
) -> None:
    _, found = simulated(overlapping(tasks, executors, gap_ms).write(tmp_path / "log"))
    assert [each.why_equal for each in found.logged] == [reason]
    title = str(shown(found, "x").tables[0].title)
    assert title.startswith("2 jobs as they came")
    assert ("no scheduler can change their times" in title) == bool(reason)
    assert title.endswith(reason)
    conclusion = "Under no scheduler, jobs would complete sooner than under Spark FIFO in 95 % of the draws."
    assert not reason or shown(found, "x").notes[0] == conclusion
    sooner = replace(found, jct_ms=found.jct_ms | {"srpt": 0.9 * found.jct_ms[found.sparks_own]})
    assert (
        shown(sooner, "x")
        .notes[0]
        .startswith(f"Under srpt, jobs would complete 10.0% sooner than under {found.sparks_own}")
    )


def test_clusters_in_which_no_scheduler_matters_are_one_row(tmp_path: Path) -> None:
    for app, (executors, gap_ms) in enumerate([(3, 500), (4, 500), (4, 600), (4, 2000)]):
        log = overlapping(2, executors, gap_ms)
        log.events[1] |= {"App Name": f"app-{app}", "App ID": f"app-{app}"}
        log.add("EnvironmentUpdate", **{"Spark Properties": {"spark.master": "local[4]"}})
        log.write(tmp_path / "logs" / str(app))
    _, found = simulated(tmp_path / "logs")
    report = shown(found, "x")
    assert list(report.tables[1].columns[0].cells) == [
        "app-0", "2 clusters in which a slot is always free", "1 cluster in which jobs never overlap",
    ]  # fmt: skip
    assert list(report.tables[1].columns[2].cells) == ["2", "4", "2"]
    assert "The order of jobs matters in 1 of 4 clusters." in report.notes
    assert "no scheduler can change" not in str(report.tables[0].title)


@pytest.mark.parametrize(("idle_ms", "is_wrong"), [(1000, False), (30_000, True)])
def test_the_report_warns_of_a_simulation_that_differs_from_the_log(
    idle_ms: int, is_wrong: bool, tmp_path: Path
) -> None:
    """A task waits although there is an executor, for a reason that is not in the log."""
    log = LogBuilder().executor("0").job(0, [stage_info(0, 1)], at=10_000).submit(0, 10_000)
    log.task(0, 0, "0", 10_000 + idle_ms, 30_000 + idle_ms).complete(0, 30_000 + idle_ms)
    _, found = simulated(log.job_end(0, 30_000 + idle_ms).end(90_000).write(tmp_path / "log"))
    report = shown(found, "x")
    [check] = report.lead
    assert check.startswith("Check: simulated as the logs say that they ran")
    warning = "Do not rely on the predictions below at all: the simulation differs from the measured times by more than"
    assert [line.startswith(warning) for line in report.warnings] == [True] * is_wrong


def test_an_executor_that_left_before_another_came_is_no_slot_of_the_cluster(tmp_path: Path) -> None:
    """Two slots leave at 3 s, when three join, two on one executor; one leaves at 4 s, and another joins at 5 s."""
    log = LogBuilder().executor("0").executor("1").remove("0", 3000).remove("1", 3000)
    log.executor("2", at=3000, cores=2).executor("3", at=3000).remove("3", 4000).executor("4", at=5000)
    log.job(0, [stage_info(0, 2)], at=6000).run(0, 6000, 6200, executor="2").job_end(0, 6200)
    imported = import_event_logs([log.end(9000).write(tmp_path / "log")], arrivals=True)
    assert cluster_of_logs(imported.applications).num_executors == 3


def test_applications_give_executors_away_at_the_price_of_a_start(tmp_path: Path) -> None:
    for app in ("one", "two"):
        log = LogBuilder(app=app, name=app)
        log.executor("0", at=3500, **{"Request Time": 1000, "Registration Time": 3500})
        log.job(0, [stage_info(0, 2)], at=4000).run(0, 4000, 4200).job_end(0, 4200)
        log.end(9000).write(tmp_path / "logs" / app)
    imported = import_event_logs([tmp_path / "logs"], arrivals=True)
    cluster = cluster_of_logs(imported.applications)
    assert (cluster.num_executors, cluster.moving_delay_ms) == (2, 2500.0)
    given = cluster_of_logs(imported.applications, 7, 100.0)
    assert (given.num_executors, given.moving_delay_ms) == (7, 100.0)


def test_what_cannot_be_simulated_is_refused(tmp_path: Path) -> None:
    path = night().write(tmp_path / "log")
    imported = import_event_logs([path])
    held_out, logged = predict_held_out(imported), logged_jobs(imported)
    with pytest.raises(CompareError, match="contain no jobs"):
        simulate_what_if(imported, held_out, [])
    with pytest.raises(CompareError, match="must be Spark FIFO or Spark FAIR"):
        simulate_what_if(imported, held_out, logged, {"decima": "decima"})
    with pytest.raises(CompareError, match="contain no executor"):
        cluster_of_logs([])


def test_the_picture(tmp_path: Path) -> None:
    _, found = simulated(night(6).write(tmp_path / "log"), schedulers=SCHEDULERS)
    [plot] = shown(found, "x").pictures.values()
    assert difference(plot(), "what_if", tmp_path) is None


def batches(
    mode: str, master: str = "local-cluster[2,2,1024]", at: int = 0, app: str = "app-1", warm_ups: int = 2
) -> LogBuilder:
    """Warm-up jobs one after the other; then twice four simultaneous queries on four slots, as Spark runs them.

    A query is a scan of eight tasks of a second, and a stage of one task in a separate Spark job, as under adaptive
    execution. Its driver plans for half a second, takes 0.2 s between stages, and 0.1 s to fetch the result. Under
    FIFO the second stages queue behind all scans.
    """
    log = LogBuilder(app=app, name=f"batches {app}")
    log.events[-1]["Timestamp"] = at + 1000
    properties = {"spark.master": master, "spark.scheduler.mode": mode}
    log.add("EnvironmentUpdate", **{"Spark Properties": properties})
    for executor in ("0", "1"):
        log.executor(executor, at=at + 1000, cores=2)
    number = 0

    def query(start: int, scan_at: int, last_at: int, name: str) -> int:
        nonlocal number
        scan, last, number = 2 * number, 2 * number + 1, number + 1
        pool = {"spark.scheduler.pool": name} if mode == "FAIR" else {}
        log.sql(number, start, "q")
        log.job(scan, [stage_info(scan, 8, rdd=100)], at=start + 500, sql=number, **pool).submit(scan, start + 500)
        for task in range(8):
            begin = scan_at + task // 4 * 1000
            log.task(scan, task, str(task % 2), begin, begin + 1000, kind="ShuffleMapTask")
        log.complete(scan, scan_at + 2000).job_end(scan, scan_at + 2000)
        info = stage_info(last, 1, (scan,), rdd=200)
        log.job(last, [info], at=scan_at + 2200, sql=number, **pool).submit(last, scan_at + 2200)
        log.task(last, 0, "0", last_at, last_at + 1000).complete(last, last_at + 1000)
        log.job_end(last, last_at + 1000).sql_end(number, last_at + 1100)
        return last_at + 1100

    now = at + 2000
    for _ in range(warm_ups):
        now = query(now, now + 500, now + 2700, "") + 300
    for _ in range(2):
        ends = [query(now + each, now + 500 + 2000 * each, now + 8500, f"p{each}") for each in range(4)]
        now = max(ends) + 1000
    return log.end(now)


@pytest.mark.parametrize("mode", ["FIFO", "FAIR"])
def test_one_application_is_predicted_under_what_it_ran_under(mode: str, tmp_path: Path) -> None:
    """The prediction combines queueing, the order of Spark jobs, and the time of the driver."""
    _, found = simulated(batches(mode).write(tmp_path / "log"))
    assert len(found.jobs) == 8  # without the two that warmed up
    assert found.logged[0].ran_under == mode
    assert [len(found.jobs[each]) for each in found.logged[0].periods()] == [4, 4]
    [(jobs, measured_s, predicted_s, error)] = found.as_it_ran().itertuples(index=False)
    assert jobs == 8
    assert measured_s == pytest.approx(9.6, rel=0.01)
    assert error == pytest.approx(predicted_s / measured_s - 1)
    own = found.mean_jct_ms(f"Spark {mode}").mean / 1000
    assert predicted_s == pytest.approx(own)
    if mode == "FIFO":  # the log is what Spark does under FIFO
        assert predicted_s == pytest.approx(9.6, rel=0.02)
    else:
        assert 5 < predicted_s < 9.6


def test_jobs_that_shared_a_pool_are_simulated_as_they_ran(tmp_path: Path) -> None:
    """Spark serves the two jobs of pool a one after the other beside the job of pool b."""
    log = LogBuilder().add("EnvironmentUpdate", **{"Spark Properties": {"spark.scheduler.mode": "FAIR"}})
    log.executor("0").executor("1")
    for job, (pool, tasks, end) in enumerate([("a", 4, 13_000), ("a", 4, 17_000), ("b", 8, 18_000)]):
        at = 10_000 + job
        log.job(job, [stage_info(job, tasks)], at=at, sql=None, **{"spark.scheduler.pool": pool}).submit(job, at)
        for task in range(tasks):
            log.task(job, task, str(job // 2), end - 1000 * (tasks - task), end - 1000 * (tasks - task) + 1000)
        log.complete(job, end).job_end(job, end)
    _, found = simulated(log.end(30_000).write(tmp_path / "log"))
    assert found.as_it_ran_ms.mean(axis=0) == pytest.approx([3000, 7000, 8000], abs=10)
    assert found.jct_ms["Spark FAIR"][:, 1].mean() < 6000  # with a pool of its own


def test_jobs_under_the_plugin_are_not_compared(tmp_path: Path) -> None:
    log = one_by_one(1000, 1000)
    log.add("EnvironmentUpdate", **{"Spark Properties": {"spark.plugins": "decima.spark.DecimaPlugin"}})
    _, found = simulated(log.write(tmp_path / "log"))
    assert np.isnan(found.as_it_ran_ms).all()
    assert found.as_it_ran().empty
    report = shown(found, "x")
    assert report.lead[0].startswith("The simulation cannot be checked: no job ended under Spark's own schedulers")
    assert list(report.tables[0].columns[1].cells)[:2] == ["1.0", "-"]


def test_executors_of_a_shared_cluster_start_while_the_driver_prepares(tmp_path: Path) -> None:
    """Two applications, whose executors need 2.5 s, start at 1 s, and submit their first jobs at 4 s and 2 s."""
    for app, at in (("one", 4000), ("two", 2000)):
        log = LogBuilder(app=app, name=app)
        log.executor("0", at=3500, **{"Request Time": 1000, "Registration Time": 3500})
        log.job(0, [stage_info(0, 1)], at=at).submit(0, at)
        log.task(0, 0, "0", max(at, 3500), 9000).complete(0, 9000).job_end(0, 9000)
        log.job(1, [stage_info(1, 1)], at=9000).run(1, 9000, 9500).job_end(1, 9500)
        log.end(9500).write(tmp_path / "logs" / app)
    _, found = simulated(tmp_path / "logs")
    [logged] = found.logged
    assert [run.application_id for run in logged.runs] == ["two", "one", "one", "two"]
    assert logged.arrival_ms.tolist() == [1000, 1500, 9000, 9000]
    assert logged.submitted_ms.tolist() == [2000, 4000, 9000, 9000]
    assert found.jobs["arrival_ms"].tolist() == [0, 2000, 7000, 7000]
    assert found.as_it_ran_ms[:, :2].tolist() == [[7000, 5000]] * 3
    assert found.jct_ms["Spark FIFO"][:, :2].mean(axis=0) == pytest.approx([7000, 5000], rel=0.1)


def test_jobs_that_warm_up_are_kept_if_wanted(tmp_path: Path) -> None:
    path = batches("FIFO").write(tmp_path / "log")
    without = import_event_logs([path], warm_ups=False)
    assert [len(app.queries) for app in without.applications] == [8]
    assert "2 jobs left out as warm-up: they ran one by one" in "".join(without.notes)
    assert [len(app.queries) for app in import_event_logs([path]).applications] == [10]
    # Where most jobs ran alone they are what the application does.
    path = batches("FIFO", warm_ups=9).write(tmp_path / "other")
    assert [len(app.queries) for app in import_event_logs([path], warm_ups=False).applications] == [17]


def test_applications_on_clusters_of_their_own_are_predicted_one_by_one(tmp_path: Path) -> None:
    """Applications that ran one after the other, or under private masters, are predicted as if alone."""
    alone = simulated(batches("FIFO").write(tmp_path / "alone"))[1]
    for folder, apart, master in (("later", 10**6, "spark://h:7077"), ("own", 0, "local[4]")):
        for app in range(2):
            batches("FIFO", master, at=app * apart, app=f"app-{app}").write(tmp_path / folder / str(app))
        _, found = simulated(tmp_path / folder)
        assert [each.cluster.num_executors for each in found.logged] == [4] * 2
        assert [each.cluster.moving_delay_ms for each in found.logged] == [0] * 2
        for name in found.jct_ms:
            assert found.mean_jct_ms(name).mean == pytest.approx(alone.mean_jct_ms(name).mean, rel=0.03)
        table = found.by_cluster()
        assert table["applications"].tolist() == [f"batches app-{app}" for app in range(2)]
        assert table["measured_s"].tolist() == pytest.approx([9.6] * 2, rel=0.01)
    # At the same time under one master they shared its executors.
    for app in range(2):
        batches("FIFO", "spark://h:7077", app=f"app-{app}").write(tmp_path / "shared" / str(app))
    [shared] = simulated(tmp_path / "shared")[1].logged
    assert (shared.cluster.num_executors, len(shared.applications)) == (8, 2)


def test_an_executor_that_never_came_has_no_slot(tmp_path: Path) -> None:
    log = batches("FIFO")
    for executor in range(2, 50):
        log.remove(str(executor), 3000, "Command exited with code 1")
    [logged] = simulated(log.write(tmp_path / "log"))[1].logged
    assert logged.cluster.num_executors == 4


def test_queries_without_adaptive_execution_keep_their_place() -> None:
    """FIFO, one executor, two jobs of two stages; a job is one Spark job, or one Spark job per stage."""
    stage = StageProfile(2, TaskDurations.constant(1000.0))
    job = JobProfile("q", (stage, stage), np.array([(0, 1)]))
    cluster = ClusterConfig(1, moving_delay_ms=0.0, warmup_delay_ms=0.0, semantics=SPARK)
    jobs = JobSequence((job, job), np.array([0.0, 500.0]))
    one = run_episode(cluster, jobs, SparkFifo([False, False]))
    several = run_episode(cluster, jobs, SparkFifo([True, True]))
    assert one.completion_ms.tolist() == [4000, 8000]
    assert several.completion_ms.tolist() == [6000, 8000]


def test_the_driver_counts_in_full_where_a_job_is_alone(tmp_path: Path) -> None:
    log = batches("FIFO", warm_ups=3)  # three and eight: the first ones are few enough to be left out
    [alone] = [
        simulate_what_if(imported, predict_held_out(imported).with_driver(), logged_jobs(imported), num_draws=1)
        for imported in [import_event_logs([log.write(tmp_path / "log")])]
    ]
    # 0.5 s planning, 2 s scan, 0.2 s to the next stage, 1 s, and 0.1 s for the result.
    assert alone.jct_ms["Spark FIFO"][0, :3] == pytest.approx([3800] * 3, rel=0.02)
