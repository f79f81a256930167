"""Observations: rows from any source, and values derived from the profiles of live jobs."""

from itertools import pairwise

import pytest

from simulator import Cluster, ClusterConfig, Decision, ExecutorClass, PerJob
from tests.simulator.cluster.build import by_hand, chain, greedy, job, jobs, stage
from workloads.job import JobProfile


def test_observations_need_no_simulator_and_waiting_executors_are_free() -> None:
    seen = by_hand()
    assert (seen.num_executors, seen.job_id.tolist()) == (5, [7, 12])
    assert (seen.job_arrival_ms.tolist(), seen.num_tasks.tolist()) == ([100.0, 1500.0], [3, 1, 4])
    assert seen.schedulable.tolist() == [True, False, True]
    assert [seen.stages_of(place) for place in (0, 1)] == [slice(0, 2), slice(2, 3)]
    assert [seen.held(place) for place in (0, 1)] == [1, 0]
    assert seen.work_ms(seen.remaining_tasks).tolist() == [70.0, 20.0]
    assert (seen.stages[1].memory, seen.classes["free"].tolist()) == (0.5, [3, 1])
    # At 15 ms one of two executors has finished its task, and waits for the second stage, to which it is committed.
    config = ClusterConfig(executor_classes=(ExecutorClass(3), ExecutorClass(1)), moving_delay_ms=5.0)
    cluster = Cluster(config, jobs(chain(stage(3, 10.0), stage(1, 10.0))))
    seen = [cluster.observe()]
    for decision in (Decision(0, 2), None, None, Decision(1, 2), None):
        cluster.decide(decision)
        seen.append(cluster.observe())
    assert [each.time_ms for each in seen] == [0.0, 0.0, 0.0, 15.0, 15.0, 15.0]
    free = [each.classes["free"].tolist() for each in seen]
    assert free == [[3, 1], [3, 1], [1, 1], [1, 1], [1, 1], [2, 1]]


def test_rows_and_profiles_are_written_when_jobs_change() -> None:
    sequence = jobs(*(chain(stage(3, 10.0), stage(2, 10.0)) for _ in range(3)))
    cluster = Cluster(ClusterConfig(4), sequence)
    seen = cluster.observe()
    seen.stages["finished_tasks"] = 77
    seen.jobs["arrival_ms"] = 88.0
    cluster.decide(Decision(2, 1))  # a stage of the second job
    after = cluster.observe()
    assert after.finished_tasks.tolist() == [77, 77, 0, 0, 77, 77]
    assert after.job_arrival_ms.tolist() == [88.0, 0.0, 88.0]
    sequence = jobs(*(chain(stage(3, 10.0), stage(2, 10.0)) for _ in range(4)), at=[0.0, 0.0, 25.0, 400.0])
    cluster = Cluster(ClusterConfig(2, moving_delay_ms=1.0), sequence)
    seen: list[tuple[tuple[int, ...], tuple[JobProfile, ...]]] = []
    while not cluster.done:
        observation = cluster.observe()
        seen.append((tuple(observation.job_id.tolist()), observation.profiles))
        cluster.decide(greedy(observation) if observation.num_schedulable else None)
    assert len({live for live, _ in seen}) > 4
    for (before, old), (live, profiles) in pairwise(seen):
        assert profiles == tuple(sequence.profiles[number] for number in live)
        assert (profiles is old) == (before == live)


def test_what_follows_from_profiles_is_worked_out_once_each() -> None:
    short, long = job(stage(1, 10.0)), job(stage(1, 1000.0))
    cluster = Cluster(ClusterConfig(2), jobs(short, long, short, at=[0.0, 0.0, 500.0]))
    worked_out: list[JobProfile] = []
    joined = 0

    def work(profile: JobProfile, config: ClusterConfig) -> float:
        assert config is cluster.config
        worked_out.append(profile)
        return profile.work_ms

    def join(values: list[float]) -> list[float]:
        nonlocal joined
        joined += 1
        return values

    per_job = PerJob(work, join)
    live = []
    while not cluster.done:
        observation = cluster.observe()
        assert per_job(observation) == [profile.work_ms for profile in observation.profiles]
        assert per_job(observation) is per_job(observation)
        live.append(tuple(observation.job_id.tolist()))
        cluster.decide(greedy(observation) if observation.num_schedulable else None)
    assert worked_out == [short, long]
    assert joined == 1 + sum(before != after for before, after in pairwise(live))


def test_on_another_cluster_it_is_worked_out_anew() -> None:
    per_job = PerJob(lambda profile, config: profile.work_ms / config.num_executors, list)
    sequence = jobs(job(stage(6, 10.0)))
    for executors, expected in ((2, 30.0), (3, 20.0), (2, 30.0)):
        assert per_job(Cluster(ClusterConfig(executors), sequence).observe()) == [expected]


def test_profiles_that_are_gone_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.cluster.observation.MOST_PROFILES", 2)
    counts: dict[JobProfile, int] = {}

    def count(profile: JobProfile, _: ClusterConfig) -> int:
        counts[profile] = counts.get(profile, 0) + 1
        return counts[profile]

    per_job, config = PerJob(count, list), ClusterConfig(2)
    profiles = [job(stage(1, 10.0)) for _ in range(4)]
    for profile in [*profiles, profiles[0]]:
        per_job(Cluster(config, jobs(profile)).observe())
    assert list(counts.values()) == [2, 1, 1, 1]
