"""One seed is one trajectory; schedulers meet the same luck."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from decima.schedulers import Fair, Fifo, RandomChoice, Scheduler, SjfCp
from simulator import DECIMA_SIM, PAPER, ClusterConfig, EpisodeRecord, Semantics, run_episode
from tests.simulator.cluster.build import chain, jobs, stage
from workloads import poisson_arrivals, synthetic_profiles
from workloads.arrivals import JobSequence
from workloads.job import JobProfile, StageProfile, TaskDurations

#: Prints the fingerprint of an episode, for a process of its own.
PROGRAM = """
from tests.simulator.cluster.test_determinism import Fair, episode, fingerprint
print(fingerprint(episode(Fair())))
"""


def sequence(seed: int = 7) -> JobSequence:
    return poisson_arrivals(synthetic_profiles(10), 5, mean_interval_ms=20_000, seed=seed)


def episode(scheduler: Scheduler, seed: int = 7, semantics: Semantics = PAPER) -> EpisodeRecord:
    return run_episode(ClusterConfig(num_executors=20, semantics=semantics), sequence(seed), scheduler)


def fingerprint(record: EpisodeRecord) -> str:
    """Of all that happened, bit for bit."""
    tables = b"".join(table.to_numpy().tobytes() for table in (record.tasks(), record.moves()))
    return hashlib.sha256(tables + record.completion_ms.tobytes()).hexdigest()


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
@pytest.mark.parametrize("scheduler", [Fair, Fifo, SjfCp, RandomChoice])
def test_one_seed_is_one_episode(scheduler: type[Scheduler], semantics: Semantics) -> None:
    same = scheduler()
    one, other = episode(same, semantics=semantics), episode(scheduler(), semantics=semantics)
    pd.testing.assert_frame_equal(one.tasks(), other.tasks(), check_exact=True)
    pd.testing.assert_frame_equal(one.moves(), other.moves(), check_exact=True)
    again = episode(same, semantics=semantics)
    assert fingerprint(one) == fingerprint(other) == fingerprint(again)


def test_one_seed_is_one_episode_in_every_process() -> None:
    root = Path(__file__).resolve().parents[3]
    others = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert others == [fingerprint(episode(Fair()))] * 2


def test_another_seed_is_another_episode() -> None:
    assert fingerprint(episode(Fair(), seed=7)) != fingerprint(episode(Fair(), seed=8))
    same_jobs = JobSequence(sequence().profiles, sequence().arrival_ms, seed=8)
    config = ClusterConfig(num_executors=20)
    other = run_episode(config, same_jobs, Fair())
    assert np.mean(episode(Fair()).task_finish_ms == other.task_finish_ms) < 0.1


def durations(record: EpisodeRecord) -> pd.Series[float]:
    tasks = record.tasks().set_index(["job", "stage", "task"])
    return tasks["finish_ms"] - tasks["start_ms"]


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
def test_schedulers_meet_the_same_luck(semantics: Semantics) -> None:
    """A task that runs in the same wave, while its job holds as many executors, takes the same time."""
    records = [
        episode(scheduler, semantics=semantics) for scheduler in (Fair(), Fifo(), SjfCp(), RandomChoice())
    ]
    same, all_tasks = 0, 0
    for other in records[1:]:
        alike = (records[0].task_wave == other.task_wave) & (
            records[0].task_parallelism == other.task_parallelism
        )
        one, two = durations(records[0])[alike], durations(other)[alike]
        assert one.to_numpy() == pytest.approx(two.to_numpy(), rel=1e-9)
        same, all_tasks = same + alike.sum(), all_tasks + alike.size
    assert 0 < same < all_tasks


def test_where_wave_and_parallelism_do_not_matter_every_task_takes_the_same_time_under_all_schedulers() -> (
    None
):
    random = np.random.default_rng(3)
    profile = chain(
        *(
            StageProfile(20, TaskDurations.sampled(random.integers(1, 5000, 30).astype(float)))
            for _ in range(3)
        )
    )
    sequence = jobs(*[profile] * 6, at=[0.0, 0.0, 100.0, 200.0, 5000.0, 9000.0], seed=11)
    config = ClusterConfig(num_executors=7, moving_delay_ms=500.0)
    records = [run_episode(config, sequence, s) for s in (Fair(), Fifo(), SjfCp(), RandomChoice())]
    for other in records[1:]:
        assert durations(records[0]).to_numpy() == pytest.approx(durations(other).to_numpy(), rel=1e-9)
        assert not (records[0].task_start_ms == other.task_start_ms).all()


def test_the_luck_of_a_job_does_not_depend_on_other_jobs() -> None:
    random = np.random.default_rng(4)

    def profile(tasks: int) -> JobProfile:
        return chain(StageProfile(tasks, TaskDurations.sampled(random.integers(1, 5000, 30).astype(float))))

    first, second, third = profile(20), profile(15), profile(30)
    config = ClusterConfig(num_executors=5, moving_delay_ms=500.0)
    alone = durations(run_episode(config, jobs(first, second, seed=2), Fair()))
    for companion in (first, third, chain(stage(100, 1.0), stage(2, 1.0))):
        together = durations(run_episode(config, jobs(first, second, companion, seed=2), Fair()))
        assert together[:35].to_numpy() == pytest.approx(alone.to_numpy(), rel=1e-9)
    replaced = durations(run_episode(config, jobs(third, second, seed=2), Fair()))
    assert replaced[30:].to_numpy() == pytest.approx(alone[20:].to_numpy(), rel=1e-9)


def test_twins_have_luck_of_their_own() -> None:
    twin = chain(StageProfile(50, TaskDurations.sampled(np.arange(1.0, 1001.0))))
    record = run_episode(ClusterConfig(num_executors=5, moving_delay_ms=0.0), jobs(twin, twin), Fifo())
    one, two = durations(record)[:50].to_numpy(), durations(record)[50:].to_numpy()
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.5
