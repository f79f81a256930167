"""From a stage, a wave and the number of executors to a duration, against a plain implementation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulator import (
    DECIMA_SIM,
    PAPER,
    Cluster,
    ClusterConfig,
    Decision,
    EpisodeRecord,
    Observation,
    Semantics,
    run_episode,
)
from simulator.cluster.durations import duration_ms, task_noise
from tests.simulator.cluster.build import Greedy, chain, finish, give, job, jobs, runs, stage
from tests.simulator.cluster.checks import check_durations
from tests.workloads.strategies import task_durations
from workloads.job import StageProfile, TaskDurations, Wave

LEVELS = (5, 10, 20, 40, 50, 60, 80, 100)


def alone(durations: TaskDurations, num_tasks: int, executors: int, **config: object) -> EpisodeRecord:
    """One stage alone on a cluster without moving delay."""
    settings = {"moving_delay_ms": 0.0, "warmup_delay_ms": 0.0, **config}
    cluster = ClusterConfig(num_executors=executors, **settings)  # type: ignore[arg-type]
    return run_episode(cluster, jobs(job(StageProfile(num_tasks, durations)), seed=1), Greedy())


def level_of_each(record: EpisodeRecord, executors: int) -> NDArray[np.float64]:
    """Durations, which are levels, of the tasks that started while the job held that many executors."""
    here = record.task_parallelism == executors
    return np.round((record.task_finish_ms - record.task_start_ms)[here])


#: Every task at level L takes L ms in all waves.
LEVEL_IS_DURATION = TaskDurations.from_tables({}, {}, {level: [float(level)] for level in LEVELS})


@pytest.mark.parametrize(
    ("semantics", "executors", "low", "high", "chance_of_low"),
    [
        # The published simulator takes the farther level more often.
        (DECIMA_SIM, 39, 20, 40, 0.95),
        (DECIMA_SIM, 21, 20, 40, 0.05),
        (DECIMA_SIM, 7, 5, 10, 0.4),
        (DECIMA_SIM, 30, 20, 40, 0.5),
        (PAPER, 39, 20, 40, 0.05),
        (PAPER, 21, 20, 40, 0.95),
        (PAPER, 7, 5, 10, 0.6),
        (PAPER, 30, 20, 40, 0.5),
    ],
)
def test_between_two_levels_luck_decides(
    semantics: Semantics, executors: int, low: int, high: int, chance_of_low: float
) -> None:
    record = alone(LEVEL_IS_DURATION, 6000, executors, semantics=semantics)
    levels = level_of_each(record, executors)
    assert levels.size > 5000
    assert set(np.unique(levels)) == {low, high}
    tolerance = 4 * np.sqrt(chance_of_low * (1 - chance_of_low) / levels.size)
    assert np.mean(levels == low) == pytest.approx(chance_of_low, abs=tolerance)


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
@pytest.mark.parametrize(
    ("executors", "level"), [(1, 5), (4, 5), (5, 5), (10, 10), (40, 40), (60, 60), (100, 100), (117, 100)]
)
def test_at_a_level_below_the_first_or_above_the_last_there_is_no_choice(
    semantics: Semantics, executors: int, level: int
) -> None:
    record = alone(LEVEL_IS_DURATION, 4 * executors, executors, semantics=semantics)
    assert set(level_of_each(record, executors)) == {level}


def test_executors_count_when_they_are_there_not_when_they_are_on_their_way() -> None:
    record = alone(LEVEL_IS_DURATION, 100, 20)
    # All arrive at 0, one by one; each meets those before it.
    assert record.task_parallelism[:20].tolist() == list(range(1, 21))
    assert (record.task_parallelism[20:] == 20).all()


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        # What is measured -> what fresh, first-wave and rest tasks take; the warm-up takes 7.
        (("fresh", "first", "rest"), (1.0, 2.0, 3.0)),
        (("first", "rest"), (2.0 + 7.0, 2.0, 3.0)),
        (("rest",), (3.0 + 7.0, 3.0, 3.0)),
        (("fresh", "rest"), (1.0, 1.0, 3.0)),
        (("fresh",), (1.0, 1.0, 1.0)),
        (("fresh", "first"), (1.0, 2.0, 2.0)),
        (("first",), (2.0 + 7.0, 2.0, 2.0)),
    ],
)
def test_a_wave_without_measurements_takes_those_of_another(
    tables: tuple[str, ...], expected: tuple[float, float, float]
) -> None:
    value = {"fresh": 1.0, "first": 2.0, "rest": 3.0}
    holes = TaskDurations.from_tables(
        *({4: [value[name]]} if name in tables else {} for name in ("fresh", "first", "rest"))
    )
    # One executor: fresh on the first stage; then first wave and rest on the second.
    config = ClusterConfig(num_executors=1, moving_delay_ms=0.0, warmup_delay_ms=7.0)
    profile = chain(StageProfile(1, holes), StageProfile(2, holes))
    record = run_episode(config, jobs(profile), Greedy())
    assert record.task_wave.tolist() == [Wave.FRESH, Wave.FIRST, Wave.REST]
    assert (record.task_finish_ms - record.task_start_ms).tolist() == list(expected)


def test_a_hole_at_one_level_is_not_filled_from_another() -> None:
    holes = TaskDurations.from_tables({1: [10.0], 2: []}, {1: [20.0], 2: [200.0]}, {})
    record = alone(holes, 2, 2, warmup_delay_ms=5.0)
    assert record.task_parallelism.tolist() == [1, 2]
    assert (record.task_finish_ms - record.task_start_ms).tolist() == [10.0, 205.0]


@settings(deadline=None, max_examples=50, derandomize=True)
@given(task_durations(), st.integers(1, 120), st.booleans(), st.integers(0, 2**40))
def test_durations_agree_with_a_plain_implementation(
    durations: TaskDurations, executors: int, nearest: bool, seed: int
) -> None:
    profile = job(*[StageProfile(executors, durations), StageProfile(40, durations)], edges=[(0, 1)])
    config = ClusterConfig(
        num_executors=executors, moving_delay_ms=0.0, semantics=replace(PAPER, nearest_level=nearest)
    )
    check_durations(run_episode(config, jobs(profile, seed=seed), Greedy()))


def test_the_plain_implementation_knows_the_published_numbers() -> None:
    """Level 20 with probability 0.95 at 39 executors in the published simulator, 0.05 in the paper."""

    def level(executors: int, luck: float, semantics: Semantics) -> float:
        config = ClusterConfig(semantics=semantics)
        return duration_ms(config, LEVEL_IS_DURATION, Wave.REST, executors, luck, 0.0)

    assert [level(39, luck, DECIMA_SIM) for luck in (0.0, 0.94, 0.96)] == [20, 20, 40]
    assert [level(39, luck, PAPER) for luck in (0.04, 0.06, 0.99)] == [20, 40, 40]
    assert [level(executors, 0.5, PAPER) for executors in (1, 5, 100, 500)] == [5, 5, 100, 100]


def test_a_duration_is_drawn_uniformly_from_its_cell() -> None:
    values = [float(value) for value in range(100, 120)]
    record = alone(TaskDurations.sampled(values), 20_000, 5)
    durations = np.round(record.task_finish_ms - record.task_start_ms)
    counts = np.bincount(durations.astype(int) - 100, minlength=20)
    assert counts.sum() == 20_000
    chi_square = ((counts - 1000.0) ** 2 / 1000.0).sum()
    # 19 degrees of freedom: mean 19, and below 45 but for one case in a thousand.
    assert 4 < chi_square < 45


def test_level_and_duration_are_drawn_independently() -> None:
    two = TaskDurations.from_tables({}, {}, {10: [1.0, 2.0], 20: [3.0, 4.0]})
    record = alone(two, 8000, 15)
    drawn = np.round((record.task_finish_ms - record.task_start_ms)[record.task_parallelism == 15])
    counts = np.bincount(drawn.astype(int), minlength=5)[1:]
    assert counts.min() > 0.22 * counts.sum()
    assert counts.max() < 0.28 * counts.sum()


def test_noise_is_uniform_and_different_for_each_task_job_and_seed() -> None:
    noise = task_noise(5, 3, 50_000)
    assert noise.shape == (2, 50_000)
    assert noise.min() >= 0
    assert noise.max() < 1
    assert np.histogram(noise, bins=10, range=(0, 1))[0] == pytest.approx(10_000, rel=0.05)
    assert abs(np.corrcoef(noise)[0, 1]) < 0.02
    assert abs(np.corrcoef(noise[0, 1:], noise[0, :-1])[0, 1]) < 0.02
    for other in (task_noise(6, 3, 50_000), task_noise(5, 4, 50_000)):
        assert abs(np.corrcoef(noise[1], other[1])[0, 1]) < 0.02


# Who is fresh, who is not.


def test_waves_follow_an_executor_from_task_to_task() -> None:
    waves = {"first_ms": 20.0, "fresh_ms": 300.0}
    profile = chain(stage(3, 1.0, **waves), stage(2, 1.0, **waves))
    record = run_episode(ClusterConfig(num_executors=1, moving_delay_ms=5.0), jobs(profile), Greedy())
    assert runs(record) == [
        (0, 0, 0, 0, 5.0, 305.0),
        (0, 0, 1, 0, 305.0, 306.0),
        (0, 0, 2, 0, 306.0, 307.0),
        (0, 1, 0, 0, 307.0, 327.0),
        (0, 1, 1, 0, 327.0, 328.0),
    ]
    assert record.task_wave.tolist() == [Wave.FRESH, Wave.REST, Wave.REST, Wave.FIRST, Wave.REST]


def test_an_executor_is_fresh_again_after_it_worked_for_another_job() -> None:
    waves = {"first_ms": 20.0, "fresh_ms": 300.0}
    first = chain(stage(1, 1.0, **waves), stage(1, 1.0, **waves))
    other = job(stage(1, 1.0, **waves))

    def decide(observation: Observation) -> Decision:
        """To the other job as soon as it may be chosen."""
        return give(observation, int(np.flatnonzero(observation.schedulable)[-1]))

    config = ClusterConfig(num_executors=1, moving_delay_ms=5.0)
    record, _ = finish(Cluster(config, jobs(first, other, at=[0.0, 1.0])), decide)
    assert record.task_wave.tolist() == [Wave.FRESH, Wave.FRESH, Wave.FRESH]
