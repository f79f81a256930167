"""One seed gives one trajectory; task noise is the same for all schedulers (common random numbers)."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from decima.schedulers import Fair, Fifo, RandomChoice, Scheduler, SjfCp
from simulator import DECIMA_SIM, PAPER, ClusterConfig, EpisodeRecord, Semantics, run_episode
from workloads import JobSequence, poisson_arrivals, synthetic_profiles

#: Program for a process of its own that prints the fingerprint of an episode.
PROGRAM = """
from tests.simulator.cluster.test_determinism import Fair, episode, fingerprint
print(fingerprint(episode(Fair())))
"""


def sequence(seed: int) -> JobSequence:
    return poisson_arrivals(synthetic_profiles(10), 5, mean_interval_ms=20_000, seed=seed)


def episode(scheduler: Scheduler, seed: int = 7, semantics: Semantics = PAPER) -> EpisodeRecord:
    return run_episode(ClusterConfig(num_executors=20, semantics=semantics), sequence(seed), scheduler)


def fingerprint(record: EpisodeRecord) -> str:
    """Return a hash of the whole episode, bit for bit."""
    tables = b"".join(table.to_numpy().tobytes() for table in (record.tasks(), record.moves()))
    return hashlib.sha256(tables + record.completion_ms.tobytes()).hexdigest()


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
@pytest.mark.parametrize("scheduler", [Fair, Fifo, SjfCp, RandomChoice])
def test_one_seed_is_one_episode(scheduler: type[Scheduler], semantics: Semantics) -> None:
    same = scheduler()
    assert len({fingerprint(episode(each, semantics=semantics)) for each in (same, scheduler(), same)}) == 1


def test_one_seed_is_one_episode_and_another_another() -> None:
    root = Path(__file__).resolve().parents[3]
    other = subprocess.check_output([sys.executable, "-c", PROGRAM], cwd=root, text=True)
    assert other.strip() == fingerprint(episode(Fair()))
    assert fingerprint(episode(Fair(), seed=7)) != fingerprint(episode(Fair(), seed=8))
    same_jobs = JobSequence(sequence(7).profiles, sequence(7).arrival_ms, seed=8)
    config = ClusterConfig(num_executors=20)
    other = run_episode(config, same_jobs, Fair())
    assert np.mean(episode(Fair()).task_finish_ms == other.task_finish_ms) < 0.1
