"""CPU time of the slowdown: times of jobs alone, relative to the episodes of the same jobs in the same run.

Run alone: ``pytest -n 0 -m benchmark -s tests/benchmarks/test_time_alone_speed.py``.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from decima.evaluation.options import make_conditions
from decima.registry import make_scheduler
from simulator import ClusterConfig, run_episode
from simulator.cluster.times_alone import times_alone
from workloads import JobSequence, batch_arrivals, read_alibaba, synthetic_profiles

pytestmark = pytest.mark.benchmark


def share_of_episodes(sequences: list[JobSequence], cluster: ClusterConfig) -> float:
    """Return the CPU time of times alone, relative to episodes of fair sharing.

    Code is compiled before; the jobs of ``sequences`` have no known times.
    """
    small = synthetic_profiles(40)[30:]
    times_alone(small, cluster)
    run_episode(cluster, batch_arrivals(small, 5, 0), make_scheduler("fair"))
    times_s = [time.process_time()]
    for sequence in sequences:
        run_episode(cluster, sequence, make_scheduler("fair"))
    times_s.append(time.process_time())
    profiles = [profile for sequence in sequences for profile in sequence.profiles]
    times_alone(profiles, cluster)
    times_s.append(time.process_time())
    episodes_s, alone_s = times_s[1] - times_s[0], times_s[2] - times_s[1]
    per_job_ms = 1000 * alone_s / len(set(profiles))
    print(f"\n{alone_s:.2f} s for times alone, {episodes_s:.2f} s for episodes, {per_job_ms:.2f} ms a job")
    return alone_s / episodes_s


def test_a_comparison_of_the_embedded_jobs_spends_little_on_the_slowdown() -> None:
    """Their times ship, so that only the content of the jobs is compared."""
    conditions = make_conditions(seeds=20)
    sequences = [conditions.sequence(seed) for seed in conditions.seeds]
    assert share_of_episodes(sequences, conditions.cluster) < 0.2


def test_a_trace_spends_at_most_half_of_its_episode_on_the_slowdown(shared: Callable[[str], Path]) -> None:
    sequence = read_alibaba(shared("traces/alibaba2018_dag_tasks/selected_DAGs.csv.gz")).sequence
    assert sequence is not None
    assert share_of_episodes([sequence], ClusterConfig(3000)) < 0.5


def test_thousands_of_different_jobs_with_random_durations_spend_at_most_half_of_their_episode() -> None:
    sequence = batch_arrivals(synthetic_profiles(3000), 3000, 0)
    assert share_of_episodes([sequence], ClusterConfig(30_000)) < 0.5
