"""Observations: rows from any source, and values derived from the profiles of live jobs."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from simulator import Cluster, ClusterConfig, Decision, ExecutorClass, PerJob
from simulator.cluster.pyg import CLUSTER_FEATURES, JOB_FEATURES, STAGE_FEATURES
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


def test_a_graph_of_pytorch_geometric_has_the_observation() -> None:
    seen = by_hand()
    seen.jobs["deadline_ms"][1] = 2000.0
    seen = replace(seen, source=0)
    data = seen.to_pyg()
    data.validate()
    assert data["stage"].x.dtype == data["job"].x.dtype == data.cluster.dtype == torch.float32
    assert data["stage"].x.tolist() == [
        [3, 2, 2, 1, 0, 0, 20, 0, 1, 0, 1, 1],
        [1, 1, 1, 0, 0, 0, 30, 0, 1, 0.5, 0, 0],
        [4, 4, 4, 0, 0, 0, 5, 0, 1, 0, 1, 1],
    ]
    assert len(STAGE_FEATURES) == 12
    assert STAGE_FEATURES[6:8] == ("mean_task_ms", "log_sd")
    assert data["stage"].schedulable.tolist() == [True, False, True]
    assert data["job"].x.tolist() == [[1, 2, 2, 70, 0, 1, 1400, 1], [0, 1, 1, 20, 0, 1, 0, 0]]
    assert len(JOB_FEATURES) == 8
    assert JOB_FEATURES[6:] == ("age_ms", "is_source")
    assert data["job"].held.tolist() == [seen.held(0), seen.held(1)] == [-2, 0]
    assert data["job"].deadline_left_ms.tolist() == [math.inf, 500.0]
    assert data["stage", "before", "stage"].edge_index.tolist() == [[0], [1]]
    assert data["stage", "of", "job"].edge_index.tolist() == [[0, 1, 2], [0, 0, 1]]
    assert (data.cluster.tolist(), len(CLUSTER_FEATURES)) == ([[3, 5, 3, 1.0, 0.5]], 5)
    from torch_geometric.data import Batch  # takes 2 s

    batch = Batch.from_data_list([data, data])
    assert batch.cluster.shape == (2, 5)
    assert batch["stage", "before", "stage"].edge_index.tolist() == [[0, 3], [1, 4]]
    assert batch["stage", "of", "job"].edge_index[1].tolist() == [0, 0, 1, 2, 2, 3]


def test_copies_and_graphs_of_an_observation_stay_as_they_were() -> None:
    sequence = jobs(*(chain(stage(3, 10.0), stage(2, 10.0), stage(1, 5.0)) for _ in range(3)), at=[0.0, 5.0, 40.0])
    cluster = Cluster(ClusterConfig(2, moving_delay_ms=1.0), sequence)
    kept, shown, changed = [], [], 0
    while not cluster.done:
        observation = cluster.observe()
        kept.append((observation, observation.copy(), observation.to_pyg()))
        shown.append((observation.stages.tolist(), observation.jobs.tolist(), observation.schedulable.tolist()))
        cluster.decide(greedy(observation) if observation.num_schedulable else None)
    for (observation, copied, graph), (stages, live_jobs, schedulable) in zip(kept, shown, strict=True):
        assert (copied.stages.tolist(), copied.jobs.tolist()) == (stages, live_jobs)
        assert copied.schedulable.tolist() == graph["stage"].schedulable.tolist() == schedulable
        again = copied.to_pyg()
        for one, other in zip(graph.stores, again.stores, strict=True):
            assert all(torch.equal(one[name], other[name]) for name in one)
        changed += observation.stages.tolist() != stages
    assert changed > 0  # what is not copied does not stay


def test_edges_of_a_graph_are_those_of_the_live_jobs() -> None:
    diamond = job(*(stage(1, 10.0) for _ in range(4)), edges=[(0, 1), (0, 2), (1, 3), (2, 3)])
    cluster = Cluster(ClusterConfig(2), jobs(job(stage(2, 1.0)), diamond, diamond))
    graph = cluster.observe().to_pyg()
    edges = np.concatenate([diamond.edges + 1, diamond.edges + 5])
    assert graph["stage", "before", "stage"].edge_index.T.tolist() == edges.tolist()
    assert graph["stage", "of", "job"].edge_index[1].tolist() == [0] + [1] * 4 + [2] * 4


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
