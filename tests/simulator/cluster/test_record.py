"""Metrics of a record, computed by hand on small episodes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from simulator import ClusterConfig, EpisodeRecord, ExecutorClass
from simulator.cluster.costs import cost_ms
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.tables import resources
from workloads import JobAttributes, JobProfile, JobSequence, StageProfile, TaskDurations
from workloads.sources.carbon import open_signal

NAN = float("nan")


def job(name: str, *stages: tuple[int, float], edges: list[tuple[int, int]] | None = None) -> JobProfile:
    profiles = tuple(StageProfile(tasks, TaskDurations.constant(mean)) for tasks, mean in stages)
    return JobProfile(name, profiles, np.array(edges or np.zeros((0, 2), int)))


CHAIN = job("chain", (2, 100.0), (1, 50.0), edges=[(0, 1)])
SINGLE = job("single", (1, 100.0))


def record(**changes: object) -> EpisodeRecord:
    """Return a record on two executors. The chain arrives at 10 and runs 30..130, 30..150 | 150..200.

    The single job arrives at 40, moves executor 1 at 150 and runs 170..290.
    """
    fields: dict[str, object] = {
        "config": ClusterConfig(num_executors=2, moving_delay_ms=20.0),
        "sequence": JobSequence((CHAIN, SINGLE), np.array([10.0, 40.0])),
        "task_start_ms": np.array([30.0, 30.0, 150.0, 170.0]),
        "task_finish_ms": np.array([130.0, 150.0, 200.0, 290.0]),
        "task_executor": np.array([0, 1, 0, 1], np.int32),
        "task_wave": np.array([0, 0, 1, 0], np.int8),
        "task_parallelism": np.array([2, 2, 1, 1], np.int32),
        "completion_ms": np.array([200.0, 290.0]),
        "move_executor": np.array([0, 1, 1], np.int32),
        "move_job": np.array([0, 0, 1]),
        "move_depart_ms": np.array([10.0, 10.0, 150.0]),
        "end_ms": 290.0,
        "num_decisions": 3,
    }
    return EpisodeRecord(**{**fields, **changes})  # type: ignore[arg-type]


def unfinished() -> EpisodeRecord:
    """Return the same episode truncated at 200: the single job's task is running until 290."""
    return record(completion_ms=np.array([200.0, NAN]), end_ms=200.0)


def test_jobs_have_completion_work_and_slowdown() -> None:
    jobs = record().jobs()
    assert (jobs["name"].tolist(), jobs["jct_ms"].tolist()) == (["chain", "single"], [190.0, 250.0])
    assert (jobs["work_ms"].tolist(), jobs["busy_ms"].tolist()) == ([250.0, 100.0], [270.0, 120.0])
    assert jobs["moving_ms"].tolist() == [40.0, 20.0]
    assert jobs["work_inflation"].tolist() == [270 / 250, 120 / 100]
    # The moving delay is 20 ms; the chain takes 100 + 50 on two executors, and three tasks two waves.
    assert EpisodeMetrics(record()).slowdown.tolist() == [190 / 170, 250 / 120]
    wide = record(sequence=JobSequence((job("wide", (3, 100.0)), SINGLE), np.array([10.0, 40.0])))
    assert EpisodeMetrics(wide).slowdown.tolist() == [190 / 220, 250 / 120]
    sequence = JobSequence((CHAIN, job("empty", (1, 0.0))), np.array([10.0, 40.0]))
    assert np.isnan(EpisodeMetrics(record(sequence=sequence)).work_inflation[1])
    assert EpisodeMetrics(record(sequence=sequence)).slowdown[1] == 250 / 20
    assert np.isnan(EpisodeMetrics(record(sequence=sequence, config=ClusterConfig(2, moving_delay_ms=0.0))).slowdown[1])


def test_means_and_resources_of_an_episode() -> None:
    metrics = record().metrics()
    assert (metrics["mean_jct_ms"], metrics["p50_jct_ms"]) == (220.0, 220.0)
    assert (metrics["p95_jct_ms"], metrics["makespan_ms"]) == (pytest.approx(247.0), 280.0)
    assert (metrics["utilisation"], metrics["moving_ms"]) == (pytest.approx(390 / (2 * 280)), 60.0)
    assert metrics["completed_jobs"] == 2
    steps = resources(sized())
    assert steps.index.tolist() == [30.0, 130.0, 150.0, 170.0, 200.0, 290.0]
    assert (steps["class_0"].tolist(), steps["class_1"].tolist()) == ([1, 0, 1, 1, 0, 0], [1, 1, 0, 1, 1, 0])
    assert steps["memory_held"].tolist() == [1.5, 1.0, 0.5, 1.5, 1.0, 0.0]
    assert steps["memory_demanded"].tolist() == [0.5, 0.25, 0.5, 1.5, 1.0, 0.0]
    spans = np.diff(steps.index.to_numpy())
    held, demanded = (spans @ steps[f"memory_{what}"].to_numpy()[:-1] for what in ("held", "demanded"))
    assert 1 - demanded / held == pytest.approx(EpisodeMetrics(sized()).fragmentation["memory"])
    assert resources(sized(end_ms=200.0)).index.tolist() == [30.0, 130.0, 150.0, 170.0, 200.0]
    held, needed = 150 * 0.5 + 240 * 1.0, (100 + 120) * 0.25 + 50 * 0.5 + 120 * 1.0
    assert EpisodeMetrics(sized()).fragmentation == pytest.approx({"cpu": 0.5, "memory": 1 - needed / held})
    without_memory = ClusterConfig(executor_classes=(ExecutorClass(2, 1.0, 0.0),))
    assert math.isnan(EpisodeMetrics(record(config=without_memory)).fragmentation["memory"])
    cut = EpisodeMetrics(sized(completion_ms=np.array([200.0, NAN]), end_ms=200.0)).fragmentation
    assert cut["cpu"] == pytest.approx(0.5)


def test_tasks_moves_and_jobs_in_system() -> None:
    tasks = record().tasks()
    assert (tasks["job"].tolist(), tasks["stage"].tolist()) == ([0, 0, 0, 1], [0, 0, 1, 0])
    assert (tasks["task"].tolist(), tasks["finish_ms"].tolist()) == ([0, 1, 0, 0], [130.0, 150.0, 200.0, 290.0])
    assert record().moves()["arrive_ms"].tolist() == [30.0, 30.0, 170.0]
    steps = record().jobs_in_system()
    assert steps.to_dict() == {10.0: 1, 40.0: 2, 200.0: 1, 290.0: 0}
    # Arrivals and completions at the same time make one step.
    together = record(sequence=JobSequence((CHAIN, SINGLE), np.array([10.0, 200.0])))
    assert together.jobs_in_system().to_dict() == {10.0: 1, 200.0: 1, 290.0: 0}
    assert "executor_class" not in record().tasks()
    executors = np.array([0, 1, 0, -1], np.int32)
    assert sized(task_executor=executors).tasks()["executor_class"].tolist() == [0, 1, 0, -1]


def test_unfinished_jobs_tasks_and_moves_count_until_the_end() -> None:
    episode = unfinished()
    metrics = EpisodeMetrics(episode)
    np.testing.assert_array_equal(episode.jct_ms, [190.0, NAN])
    np.testing.assert_array_equal(metrics.work_inflation, [270 / 250, NAN])
    np.testing.assert_array_equal(metrics.slowdown, [190 / 170, NAN])
    assert episode.mean_jct_ms == 190.0
    assert np.isnan(episode.makespan_ms)
    assert (metrics.busy_ms.tolist(), metrics.utilisation) == ([270.0, 30.0], pytest.approx(300 / (2 * 190)))
    assert metrics.mean_jobs_in_system == (190 + 160) / 190
    assert episode.jobs_in_system().to_dict() == {10.0: 1, 40.0: 2, 200.0: 1}
    episode = record(
        task_start_ms=np.array([30.0, 30.0, NAN, NAN]),
        task_finish_ms=np.array([130.0, 150.0, NAN, NAN]),
        completion_ms=np.array([NAN, NAN]),
        end_ms=160.0,
    )
    metrics = EpisodeMetrics(episode)
    assert (metrics.busy_ms.tolist(), metrics.moving_ms.tolist()) == ([220.0, 0.0], [40.0, 10.0])
    assert np.isnan(episode.mean_jct_ms)
    assert np.isnan(metrics.jct_percentile_ms(95))


@pytest.mark.parametrize("idle_watts", [0.0, 50.0])
def test_a_move_after_the_last_job_uses_energy_but_is_not_observed(idle_watts: float) -> None:
    """Executor 0 moves from 280 to 300; the last job ends at 290."""
    signal = open_signal("synthetic-solar:60000")
    episode = record(
        config=ClusterConfig(2, moving_delay_ms=20.0, signal=signal, executor_watts=100.0, idle_watts=idle_watts),
        move_executor=np.array([0, 1, 1, 0], np.int32),
        move_job=np.array([0, 0, 1, 1]),
        move_depart_ms=np.array([10.0, 10.0, 150.0, 280.0]),
        end_ms=300.0,
    )
    metrics = EpisodeMetrics(episode)
    assert (metrics.observed_ms, metrics.utilisation) == (280, pytest.approx(390 / (2 * 280)))
    assert metrics.mean_jobs_in_system == (190 + 250) / 280
    assert episode.metrics()["moving_ms"] == 80
    assert metrics.executor_hours == pytest.approx((390 + 80) / 3_600_000)
    idle_ms = 2 * 280 - 390 - 80
    assert metrics.energy_kwh == pytest.approx((100 * 470 + idle_watts * idle_ms) / 1000 / 3_600_000)
    assert cost_ms(episode, "carbon") == pytest.approx(1000 * metrics.carbon)
    # Idle executors are not of a job; the signal hardly changes in 300 ms.
    assert metrics.job_carbon.sum() == pytest.approx(0.1 * metrics.executor_hours * signal.at(150.0), rel=0.01)


def test_means_are_weighted_by_the_weights_of_completed_jobs() -> None:
    weights = JobAttributes(weight=3.0), JobAttributes(weight=1.0)
    assert EpisodeMetrics(with_deadlines(*weights)).weighted_mean_jct_ms == (3 * 190 + 250) / 4
    cut = with_deadlines(*weights, completion_ms=np.array([NAN, 290.0]))
    assert EpisodeMetrics(cut).weighted_mean_jct_ms == 250


def sized(**changes: object) -> EpisodeRecord:
    """Return a record: executor 0, of memory 0.5, is busy for 100 + 50 ms; executor 1, of memory 1, for 120 + 120."""
    needs = (0.25, 0.5), (1.0,)
    profiles = tuple(
        replace(
            profile, stages=tuple(replace(stage, memory=m) for stage, m in zip(profile.stages, memory, strict=True))
        )
        for profile, memory in zip((CHAIN, SINGLE), needs, strict=True)
    )
    config = ClusterConfig(executor_classes=(ExecutorClass(1, 2.0, 0.5), ExecutorClass(1, 2.0, 1.0)))
    return record(**{"config": config, "sequence": JobSequence(profiles, np.array([10.0, 40.0])), **changes})


def with_deadlines(*attributes: JobAttributes, **changes: object) -> EpisodeRecord:
    sequence = JobSequence((CHAIN, SINGLE), np.array([10.0, 40.0]), attributes=attributes)
    return record(sequence=sequence, **changes)


def test_deadlines_are_met_or_missed() -> None:
    # Alone, the chain takes 170 ms and the single job 120.
    found = EpisodeMetrics(with_deadlines(JobAttributes(deadline_ms=150), JobAttributes(slack=2)))
    assert (found.deadline_ms.tolist(), found.tardiness_ms.tolist()) == ([150, 40 + 2 * 120], [50, 10])
    assert found.missed.tolist() == [True, True]
    found = EpisodeMetrics(with_deadlines(JobAttributes(deadline_ms=200), JobAttributes(weight=2)))
    assert found.tardiness_ms[0] == 0
    assert np.isnan(found.tardiness_ms[1])
    assert found.missed.tolist() == [False, False]
    assert EpisodeMetrics(record()).deadline_ms.tolist() == [math.inf, math.inf]
    both = JobAttributes(deadline_ms=199), JobAttributes(deadline_ms=199)
    unfinished = {"completion_ms": np.array([NAN, NAN]), "end_ms": 200.0}
    assert EpisodeMetrics(with_deadlines(*both, **unfinished)).missed.tolist() == [True, True]
    later = JobAttributes(deadline_ms=201), JobAttributes(deadline_ms=201)
    assert EpisodeMetrics(with_deadlines(*later, **unfinished)).missed.tolist() == [False, False]
    failed = {"failed_job": np.array([1]), "failed_ms": np.array([100.0])}
    assert EpisodeMetrics(with_deadlines(*later, **unfinished, **failed)).missed.tolist() == [False, True]
