"""Task durations by stage, wave and number of executors, compared with a plain implementation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simulator import DECIMA_SIM, PAPER, ClusterConfig, EpisodeRecord, Semantics, run_episode
from simulator.cluster.draws import duration_ms
from tests.cases import cases
from tests.simulator.cluster.build import Greedy, chain, job, jobs
from tests.simulator.cluster.checks import check_durations
from tests.workloads.strategies import task_durations
from workloads.arrivals import task_noise
from workloads.job import StageProfile, TaskDurations, Wave

LEVELS = (5, 10, 20, 40, 50, 60, 80, 100)


def alone(durations: TaskDurations, num_tasks: int, executors: int, **config: object) -> EpisodeRecord:
    """Return a cluster without moving delay with one stage."""
    settings = {"moving_delay_ms": 0.0, "warmup_delay_ms": 0.0, **config}
    cluster = ClusterConfig(num_executors=executors, **settings)  # type: ignore[arg-type]
    return run_episode(cluster, jobs(job(StageProfile(num_tasks, durations)), seed=1), Greedy())


#: Every task at level L takes L ms in all waves.
LEVEL_IS_DURATION = TaskDurations.from_tables({}, {}, {level: [float(level)] for level in LEVELS})


def test_executors_count_when_they_are_there_and_holes_stay() -> None:
    record = alone(LEVEL_IS_DURATION, 100, 20)
    # All executors arrive at 0, one by one; each one meets the executors before it.
    assert record.task_parallelism[:20].tolist() == list(range(1, 21))
    assert (record.task_parallelism[20:] == 20).all()
    holes = TaskDurations.from_tables({1: [10.0], 2: []}, {1: [20.0], 2: [200.0]}, {})
    record = alone(holes, 2, 2, warmup_delay_ms=5.0)
    assert record.task_parallelism.tolist() == [1, 2]
    assert (record.task_finish_ms - record.task_start_ms).tolist() == [10.0, 205.0]


@cases(
    "tables, expected",
    # Measured waves -> durations of fresh, first-wave and rest tasks; the warm-up delay is 7.
    (("fresh", "first", "rest"), (1.0, 2.0, 3.0)),
    (("first", "rest"), (2.0 + 7.0, 2.0, 3.0)),
    (("rest",), (3.0 + 7.0, 3.0, 3.0)),
    (("fresh", "rest"), (1.0, 1.0, 3.0)),
    (("fresh",), (1.0, 1.0, 1.0)),
    (("fresh", "first"), (1.0, 2.0, 2.0)),
    (("first",), (2.0 + 7.0, 2.0, 2.0)),
)
def test_a_wave_without_measurements_takes_those_of_another(
    tables: tuple[str, ...], expected: tuple[float, float, float]
) -> None:
    value = {"fresh": 1.0, "first": 2.0, "rest": 3.0}
    holes = TaskDurations.from_tables(
        *({4: [value[name]]} if name in tables else {} for name in ("fresh", "first", "rest"))
    )
    # One executor: a fresh task on the first stage; then first wave and rest on the second.
    config = ClusterConfig(num_executors=1, moving_delay_ms=0.0, warmup_delay_ms=7.0)
    profile = chain(StageProfile(1, holes), StageProfile(2, holes))
    record = run_episode(config, jobs(profile), Greedy())
    assert record.task_wave.tolist() == [Wave.FRESH, Wave.FIRST, Wave.REST]
    assert (record.task_finish_ms - record.task_start_ms).tolist() == list(expected)


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


def test_published_numbers_and_noise() -> None:
    # Level 20 with probability 0.95 at 39 executors in the published simulator, 0.05 in the paper.
    def level(executors: int, luck: float, semantics: Semantics) -> float:
        config = ClusterConfig(semantics=semantics)
        return duration_ms(config, LEVEL_IS_DURATION, Wave.REST, executors, luck, 0.0)

    assert [level(39, luck, DECIMA_SIM) for luck in (0.0, 0.94, 0.96)] == [20, 20, 40]
    assert [level(39, luck, PAPER) for luck in (0.04, 0.06, 0.99)] == [20, 40, 40]
    assert [level(each, 0.5, PAPER) for each in (1, 5, 10, 60, 100, 500)] == [5, 5, 10, 60, 100, 100]
    four = TaskDurations.sampled([1.0, 2.0, 3.0, 4.0])
    drawn = [duration_ms(ClusterConfig(), four, Wave.REST, 1, 0.0, luck) for luck in (0.0, 0.26, 0.74, 0.99)]
    assert drawn == [1, 2, 3, 4]
    noise = task_noise(5, 3, 50_000)
    assert noise.shape == (2, 50_000)
    assert noise.min() >= 0
    assert noise.max() < 1
    assert np.histogram(noise, bins=10, range=(0, 1))[0] == pytest.approx(10_000, rel=0.05)
    assert abs(np.corrcoef(noise)[0, 1]) < 0.02
    assert abs(np.corrcoef(noise[0, 1:], noise[0, :-1])[0, 1]) < 0.02
    for other in (task_noise(6, 3, 50_000), task_noise(5, 4, 50_000)):
        assert abs(np.corrcoef(noise[1], other[1])[0, 1]) < 0.02
