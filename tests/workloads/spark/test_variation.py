"""How far runs of a query differ, and how often tasks and executors fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.workloads.spark.logs import LogBuilder, small_log, stage_info
from tests.workloads.spark.runs import Stage, measured_run
from workloads.imperfections import Imperfections
from workloads.job import Wave
from workloads.sources.workload_file import read_workload, write_workload
from workloads.spark.importing import import_event_logs, measure_imperfections
from workloads.spark.query import QueryRuns, SparkQuery, alike, matched

NO_RUNS = "errors of estimates are unknown: no query ran twice on the same number of executors"


def run_of(
    durations: list[list[float]], level: int = 1, wave: Wave = Wave.REST, **changes: object
) -> SparkQuery:
    """One run of independent stages, of which each has tasks of these durations."""
    rows = [(stage, wave, level, ms, 0.0, 0.0) for stage, each in enumerate(durations) for ms in each]
    return replace(measured_run([Stage(len(each)) for each in durations], rows), **changes)


def errors(*queries: QueryRuns) -> list[float | None]:
    found, _ = measure_imperfections(queries, [])
    return [found.job_error, found.stage_error, found.task_error, found.task_count_error]


def drawn(
    seed: int, job: float, stage: float, task: float, runs: int = 4, queries: int = 40
) -> list[QueryRuns]:
    """Queries of five stages whose tasks differ a lot, and whose runs have errors of these sizes."""
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


def test_errors_by_hand():
    """One of two stages takes four times as long in the second run, and has 5/7 of the time."""
    runs = [run_of([[100.0] * 3, [100.0] * 3]), run_of([[400.0] * 3, [100.0] * 3])]
    job, stage, task, count = errors(matched(runs))
    half, weights = np.log(4) / 2, np.array([5 / 7, 2 / 7])
    of_run = half * weights[0]
    of_stages = 2 * (weights * (np.array([half, 0.0]) - of_run) ** 2).sum()
    variance = of_stages / (1 - (weights**2).sum())
    assert (stage, task, count) == (pytest.approx(np.sqrt(variance), abs=1e-3), 0.0, 0.0)
    assert job == pytest.approx(np.sqrt(max(2 * of_run**2 - variance * (weights**2).sum(), 0.0)), abs=1e-3)


def test_only_a_job_error_if_all_stages_take_longer():
    runs = [run_of([[100.0, 300.0], [50.0]]), run_of([[200.0, 600.0], [100.0]])]
    assert errors(matched(runs)) == [pytest.approx(np.log(2) / np.sqrt(2), abs=1e-3), 0.0, 0.0, 0.0]


@pytest.mark.parametrize("change", [{"level": 2}, {"complete": False}, {"name": "other"}])
def test_runs_are_compared_on_as_many_executors_if_they_ended(change):
    runs = [run_of([[100.0]], **change), run_of([[200.0]], **({} if "level" in change else change))]
    groups = [matched(runs)] if "name" not in change else [matched(runs[:1]), matched([run_of([[200.0]])])]
    measured, [line, _] = measure_imperfections(groups, [])
    assert (measured, line) == (Imperfections(), NO_RUNS)


def test_tasks_that_ended_in_one_run_only_are_left_out():
    stage = [Stage(3)]
    rows = [
        [(0, Wave.REST, 1, ms, 0.0, 0.0) for ms in each] for each in ((100.0, 100.0, 900.0), (200.0, 200.0))
    ]
    found = errors(matched([measured_run(stage, each) for each in rows]))
    assert found[:2] == [pytest.approx(np.log(2) / np.sqrt(2), abs=1e-3), 0.0]


def test_waves_and_tasks_of_one_run_do_not_count_as_errors():
    """The second run began on warm executors, and lost a task."""
    first = [(0, Wave.FRESH, 1, 900.0, 0, 0), *[(0, Wave.REST, 1, 100.0, 0, 0)] * 2]
    second = [*[(0, Wave.REST, 1, 100.0, 0, 0)] * 2]
    runs = [measured_run([Stage(3)], rows) for rows in (first, second)]
    assert errors(matched(runs)) == [0.0, 0.0, 0.0, 0.0]


def test_numbers_of_tasks_differ_between_runs_of_a_name():
    """As its data grows: 4, 4 and 16 tasks in one of two stages."""
    runs = [run_of([[100.0] * count, [100.0] * 2]) for count in (4, 4, 16)]
    deviations = np.log([4, 4, 16]) - np.log([4, 4, 16]).mean()
    expected = np.sqrt((deviations**2).sum() / (2 * 2))
    assert errors(*alike(runs))[3] == pytest.approx(expected, abs=1e-3)
    others = [runs[0], runs[1], replace(runs[2], name="other")]
    assert (
        errors(
            *[group for name in ("q", "other") for group in alike(run for run in others if run.name == name)]
        )[3]
        == 0.0
    )


def failing(tmp_path, **options):
    """Executor 0 lives 8 s, and 1 is lost after 2 s; two of five runs of tasks fail, and one is killed."""
    log = (
        LogBuilder()
        .executor("0")
        .executor("1", at=2000)
        .remove("1", 4000, "worker lost")
        .remove("7", 4000, "lost")
    )
    log.job(0, [stage_info(0, 2)], at=2000).submit(0, 2000)
    for number, reason in enumerate(("ExceptionFailure", "FetchFailed", "TaskKilled", "Success")):
        log.task(0, 0, "0", 2000 + 100 * number, 2100 + 100 * number, attempt=number, reason=reason)
    log.task(0, 1, "1", 2000, 2100).complete(0, 2500).job_end(0, 2500).end()
    return import_event_logs([log.write(tmp_path / "log")], levels=[1], **options)


def test_failures_are_counted(tmp_path):
    found = failing(tmp_path)
    assert found.workload.imperfections == Imperfections(task_failures=0.4, executor_lifetime_s=10.0)
    said = "2 of 5 runs of tasks failed, 1 executors were lost in 0.00278 executor hours"
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
