"""Accuracy of networks on critical paths."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decima.policy import Graphs, GraphTensors
from decima.policy.messages import message_order
from reproduce import critical_path
from workloads import JobProfile, synthetic_profiles

PROFILES = synthetic_profiles(30, seed=4)


def graphs_of(profiles: tuple[JobProfile, ...]) -> GraphTensors:
    """Return graphs of jobs without complete stages; the feature is the work of a stage."""
    messages = [message_order(profile) for profile in profiles]
    work = np.array([stage.work_ms for profile in profiles for stage in profile.stages], np.float32)
    zeros = np.zeros(work.size, np.int32)
    graphs = Graphs(
        first_stage=np.cumsum([0, *(profile.num_stages for profile in profiles)]),
        first_job=np.arange(len(profiles) + 1),
        first_message=np.cumsum([0, *map(len, messages)]),
        features=work[:, None],
        job_features=np.zeros((len(profiles), 0), np.float32),
        stage_job=zeros,
        unfinished=np.ones(work.size, np.bool_),
        stage_index=zeros,
        low=zeros,
        high=zeros,
        messages=np.concatenate(messages),
    )
    return GraphTensors.of(graphs, torch.device("cpu"))


def test_dags_have_the_paths_of_profiles_and_follow_from_the_seed() -> None:
    expected = np.concatenate([profile.critical_path_ms for profile in PROFILES])
    np.testing.assert_allclose(critical_path.critical_paths(graphs_of(PROFILES)).numpy(), expected, rtol=1e-5)
    dags = critical_path.draw_dags(200, (20, 30), np.random.default_rng(5))
    children = torch.cat([torch.bincount(step.edges[1]) for step in dags.graphs.steps])
    assert (children > 1).float().mean() > 0.1
    assert children.max() > 3
    one, other = (critical_path.draw_dags(5, (5, 30), np.random.default_rng(8)).graphs for _ in range(2))
    torch.testing.assert_close(one.features, other.features)
    assert [step.edges.tolist() for step in one.steps] == [step.edges.tolist() for step in other.steps]


def test_frontiers_and_order_of_messages() -> None:
    dags = critical_path.draw_dags(200, (5, 30), np.random.default_rng(3))
    senders = torch.cat([each.senders for each in dags.graphs.steps])
    waiting = torch.zeros(len(dags.graphs.features), dtype=torch.bool)
    waiting[senders] = True
    torch.testing.assert_close(dags.frontier, torch.nonzero(~waiting).squeeze(1))
    stages = torch.bincount(dags.graphs.stage_job)
    frontier = torch.bincount(dags.graphs.stage_job[dags.frontier])
    assert frontier.min() >= 2
    assert stages.max() <= 30
    assert (stages < 5).any(), "some have run for a while"
    dags = critical_path.draw_dags(200, (5, 30), np.random.default_rng(5))
    height = torch.zeros(len(dags.graphs.features), dtype=torch.int64)
    for number, step in enumerate(dags.graphs.steps):
        assert (height[step.receivers] == 0).all(), "every stage hears once"
        assert (height[step.senders] <= number).all()
        height[step.receivers] = number + 1
    later = [set(step.receivers.tolist()) for step in dags.graphs.steps]
    for number, step in enumerate(dags.graphs.steps):
        assert not set(step.senders.tolist()).intersection(*[set().union(*later[number:])])


def test_accuracy_counts_dags() -> None:
    """Two DAGs without edges have stages with work 1, 3, 2 and 5, 4."""
    work = torch.tensor([[1.0], [3.0], [2.0], [5.0], [4.0]])
    nothing = torch.zeros(0, dtype=torch.int64)
    graphs = GraphTensors(
        features=work,
        job_features=torch.zeros(2, 0),
        stage_job=torch.tensor([0, 0, 0, 1, 1]),
        job_graph=torch.arange(2),
        unfinished=nothing,
        steps=(),
        num_graphs=2,
    )
    dags = critical_path.Dags(graphs, torch.arange(5))
    assert critical_path.accuracy(work[:, 0], dags) == 1.0
    assert critical_path.accuracy(torch.tensor([0.0, 9.0, 1.0, 0.0, 1.0]), dags) == 0.5
    assert critical_path.accuracy(-work[:, 0], dags) == 0.0
    assert critical_path.accuracy(-work[:, 0], replace(dags, frontier=torch.tensor([0, 3, 4]))) == 0.5


def test_networks_differ_and_two_levels_find_critical_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both networks have the paper's f (16 x 32 x 16 x 16) and an input layer; only one has g.
    sizes = []
    for aggregate, _ in critical_path.NETWORKS.values():
        encoder = critical_path.StagePaths(aggregate, seed=0).encoder
        parts = (encoder.stage_input, encoder.message, encoder.aggregate)
        sizes.append(sum(parameter.numel() for part in parts for parameter in part.parameters()))
    layer = 16 * 32 + 32 + 32 * 16 + 16 + 16 * 16 + 16
    assert sizes[0] - sizes[1] == layer
    assert sizes[1] == layer + (32 + 32 + 32 * 16 + 16 + 16 * 16 + 16)
    assert critical_path.TEST_STAGES[0] > critical_path.TRAINING_STAGES[1], "tests are larger than the training DAGs"
    monkeypatch.setattr(critical_path, "NUM_BATCHES", 10)
    monkeypatch.setattr(critical_path, "NUM_TESTS", 200)
    two, one, chance = critical_path.run(iterations=300, seeds=1).tables["accuracy"]["mean"]
    assert two >= 0.9
    assert one <= two - 0.04
    assert chance < 0.5


@pytest.mark.slow
def test_no_seed_is_lucky() -> None:
    table = critical_path.run().tables["accuracy"]
    assert table["min"][0] >= 0.95
    assert table["max"][1] <= table["min"][0] - 0.05
