"""Jobs of event logs that run again under other schedulers."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from decima.evaluation.conditions import CompareError
from decima.studies.held_out import HeldOut, predict_held_out
from decima.studies.what_if import WhatIf, cluster_of_logs, simulate_what_if
from decima.studies.what_if_report import shown
from tests.decima.show.test_plots import difference
from tests.workloads.spark.logs import LogBuilder, stage_info
from workloads.spark.importing import SparkImport, import_event_logs


def night(rounds: int = 1) -> LogBuilder:
    """On two executors, again and again: a long job, and a moment later a short one, which waits for it as in FIFO."""
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
    """Tasks of a second on two executors."""
    log.submit(stage, at)
    for task in range(tasks):
        start = at + task // 2 * 1000
        log.task(stage, task, str(task % 2), start, start + 1000)
    log.complete(stage, at + tasks // 2 * 1000)


def simulated(path: Path, **options: int) -> tuple[SparkImport, WhatIf]:
    imported = import_event_logs([path], arrivals=True, name="the logs")
    cluster = cluster_of_logs(imported.applications)
    return imported, simulate_what_if(imported, predict_held_out(imported), cluster, num_draws=3, **options)


def test_a_short_job_need_not_wait_for_a_long_one(tmp_path: Path) -> None:
    _, found = simulated(night(2).write(tmp_path / "log"))
    assert (found.cluster.num_executors, found.cluster.moving_delay_ms) == (2, 0.0)
    assert found.jobs["query"].tolist() == ["long", "short"] * 2
    assert found.jobs["measured_ms"].tolist() == [10_000, 10_900] * 2
    assert found.jct_ms["Spark FIFO"].shape == (3, 4)
    # At 5 s the executor that is done first finds no stage of the long job open, and runs a task of the short one; the
    # other task waits for the long job's last, which now comes a second later. Or the short one goes first then.
    assert found.mean_jct_ms("Spark FIFO").mean == pytest.approx((11_000 + 10_900) / 2, rel=0.02)
    assert found.mean_jct_ms("priced-srpt").mean == pytest.approx((11_000 + 5_900) / 2, rel=0.02)
    assert found.change("priced-srpt", "Spark FIFO").mean == pytest.approx(8_450 / 10_950 - 1, rel=0.05)
    assert found.change("Spark FIFO", "Spark FIFO") == (0, 0, 0)
    assert found.by_query().index.tolist() == ["long", "short"]  # most time under FAIR
    assert found.by_query().loc["short", "measured_s"] == pytest.approx(10.9)
    document = json.loads(found.to_json(command="x"))
    assert document["jobs"][1]["predicted_s"]["Spark FIFO"] == pytest.approx(10.9, rel=0.05)
    assert document["sparks_own"] == found.sparks_own
    [same] = [simulated(tmp_path / "log")[1].to_json(command="x")]
    assert same == found.to_json(command="x")


def test_what_the_model_is_off_by_shows_in_the_range(tmp_path: Path) -> None:
    """Of the same query, runs that took twice as long as others."""
    log = LogBuilder().executor("0")
    for job, duration in enumerate((1000, 2000, 1000, 2000)):
        at = 10_000 + 50_000 * job
        log.sql(job, at, "q").job(job, [stage_info(job, 1)], at=at, sql=job).submit(job, at)
        log.task(job, 0, "0", at, at + duration).complete(job, at + duration)
        log.job_end(job, at + duration).sql_end(job, at + duration)
    _, found = simulated(log.end(10**6).write(tmp_path / "log"))
    assert found.held_out.error.mean > 0.3
    mean, low, high = found.mean_jct_ms("Spark FIFO")
    assert low < mean < high


@pytest.mark.parametrize(("measured_ms", "factor"), [(3000.0, 3.0), (250.0, 0.25)])
def test_what_was_predicted_too_short_is_simulated_longer(
    tmp_path: Path, measured_ms: float, factor: float
) -> None:
    """The error is what was measured over what was predicted: each job takes so many times as long."""
    log = LogBuilder().executor("0")
    for job in range(3):
        at = 10_000 + 50_000 * job
        log.sql(job, at, "q").job(job, [stage_info(job, 4)], at=at, sql=job)
        log.run(job, at, at + 1000).job_end(job, at + 1000).sql_end(job, at + 1000)
    imported = import_event_logs([log.end(10**6).write(tmp_path / "log")], arrivals=True)
    cluster = cluster_of_logs(imported.applications)
    exact = pd.DataFrame(
        {"query": ["q"], "application": ["app-1"], "executors": [1], "predicted_ms": [1000.0]}
    )
    found = [
        simulate_what_if(
            imported, HeldOut(exact.assign(measured_ms=ms)), cluster, {"Spark FIFO": "fifo"}, num_draws=2
        )
        for ms in (1000.0, measured_ms)
    ]
    right, wrong = (each.mean_jct_ms("Spark FIFO").mean for each in found)
    assert right == pytest.approx(1000, rel=0.05)
    assert wrong == pytest.approx(right * factor, rel=0.05)


def test_an_executor_that_left_before_another_came_is_no_slot_of_the_cluster(tmp_path: Path) -> None:
    """Two slots leave at 3 s, when three come, two on one executor; one leaves at 4 s, and another comes at 5 s."""
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
    plain = import_event_logs([path])
    held_out, cluster = predict_held_out(plain), cluster_of_logs(plain.applications)
    with pytest.raises(CompareError, match="without arrivals"):
        simulate_what_if(plain, held_out, cluster)
    with pytest.raises(CompareError, match="must be Spark FIFO or Spark FAIR"):
        simulate_what_if(import_event_logs([path], arrivals=True), held_out, cluster, {"decima": "decima"})
    with pytest.raises(CompareError, match="tell of no executor"):
        cluster_of_logs([])


def test_the_picture(tmp_path: Path) -> None:
    _, found = simulated(night(6).write(tmp_path / "log"))
    [plot] = shown(found, "x").pictures.values()
    assert difference(plot(), "what_if", tmp_path) is None
