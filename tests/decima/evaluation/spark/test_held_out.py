"""Cross-validation: runs predicted from the other runs of their query."""

from dataclasses import replace
from pathlib import Path

import pytest

from decima.evaluation.spark.logged_jobs import predict_held_out
from tests.workloads.spark.logs import LogBuilder, stage_info
from workloads.spark.importing import import_event_logs


def night(scale: int, app: str) -> LogBuilder:
    """A query of eight sequential tasks that runs twice, and one that overlaps with another."""
    log = LogBuilder(app=app, name=app).executor("0")
    for number, (name, start) in enumerate((("a", 2000), ("a", 20_000), ("b", 50_000), ("c", 50_010))):
        end = start + 800 * scale
        log.sql(number, start, name).job(number, [stage_info(number, 8)], at=start, sql=number)
        log.run(number, start, end).job_end(number, end).sql_end(number, end)
    return log.end(99_000)


def test_what_takes_the_same_time_at_each_run_is_predicted_exactly(tmp_path: Path) -> None:
    for app in ("one", "two"):
        night(1, app).write(tmp_path / "logs" / app)
    told = predict_held_out(import_event_logs([tmp_path / "logs"]))
    assert told.runs["query"].tolist() == ["a"] * 4  # the other runs shared their executors
    assert (told.runs["executors"].tolist(), told.runs["measured_ms"].tolist()) == ([1] * 4, [800] * 4)
    assert (told.error.mean, told.bias.mean) == (pytest.approx(0, abs=0.02), pytest.approx(0, abs=0.02))


def test_a_run_that_was_slower_than_all_others_is_off_by_as_much(tmp_path: Path) -> None:
    night(1, "one").write(tmp_path / "logs" / "one")
    night(3, "two").write(tmp_path / "logs" / "two")
    steps = []
    told = predict_held_out(import_event_logs([tmp_path / "logs"]), on_step=lambda *step: steps.append(step))
    assert steps == [(done, 4) for done in range(4)]
    by_app = told.runs.groupby("application")[["measured_ms", "predicted_ms"]].mean()
    # From one run of its own kind and two of the other.
    assert by_app.loc["one", "predicted_ms"] == pytest.approx(800 * (1 + 3 + 3) / 3, rel=0.15)
    assert by_app.loc["two", "predicted_ms"] == pytest.approx(800 * (3 + 1 + 1) / 3, rel=0.3)  # few draws
    assert told.error.mean > 0.2


def test_a_machine_that_was_slower_with_so_many_executors_is_told(tmp_path: Path) -> None:
    """The model removes the contention of executors from task durations, and the prediction adds it again."""
    for app in ("one", "two"):
        night(1, app).write(tmp_path / "logs" / app)
    imported = import_event_logs([tmp_path / "logs"])
    predicted = [
        predict_held_out(replace(imported, model=replace(imported.model, contention=contention)), num_seeds=1).runs[
            "predicted_ms"
        ]
        for contention in ({}, {1: 2.0})
    ]
    assert predicted[0].tolist() == pytest.approx([800] * 4, rel=1e-3)
    assert predicted[1].tolist() == pytest.approx([800] * 4, rel=1e-3)


def test_one_run_of_each_query_predicts_nothing(tmp_path: Path) -> None:
    log = LogBuilder().executor("0").sql(0, 2000, "a").job(0, [stage_info(0, 2)], at=2000, sql=0)
    log.run(0, 2000, 2200).job_end(0, 2200).sql_end(0, 2200).end()
    told = predict_held_out(import_event_logs([log.write(tmp_path / "log")]))
    assert told.runs.empty


def test_the_drivers_own_time_is_told_apart(tmp_path: Path) -> None:
    """The driver plans for 0.5 s, waits 0.3 s between stages and fetches the result in 0.2 s; executors are warm."""
    log = LogBuilder().executor("0")
    log.job(90, [stage_info(90, 1)], at=1500).run(90, 1500, 1600).job_end(90, 1600)
    for job in range(3):
        at, scan = 10_000 * (job + 1), 2 * job
        stages = [stage_info(scan, 4, rdd=100), stage_info(scan + 1, 1, (scan,), rdd=200)]
        log.sql(job, at, "q").job(job, stages, at=at + 500, sql=job).run(scan, at + 500, at + 2500)
        log.run(scan + 1, at + 2800, at + 3800).job_end(job, at + 3800).sql_end(job, at + 4000)
    told = predict_held_out(import_event_logs([log.end(99_000).write(tmp_path / "log")]))
    assert (told.runs["measured_ms"].tolist(), told.runs["driver_ms"].tolist()) == ([4000] * 3, [1000] * 3)
    assert told.driver_share == pytest.approx(0.25)
    assert told.runs["predicted_ms"].tolist() == pytest.approx([3000] * 3, rel=0.01)
    assert told.with_driver().bias.mean == pytest.approx(0, abs=0.01)
