"""Accuracy of networks on critical paths."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from decima.policy import Graphs, GraphTensors
from decima.policy.features import message_order
from decima.studies import critical_path
from tests.decima.show.test_plots import difference
from tests.decima.studies.test_compared import printed
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
        place=zeros,
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


def test_networks_differ_and_two_levels_find_critical_paths() -> None:
    # Both networks have the paper's f (16 x 32 x 16 x 16) and an input layer; only one has g.
    sizes = {}
    for network, aggregate in critical_path.LEVELS.items():
        encoder = critical_path.StagePaths(aggregate, seed=0).encoder
        sizes[network] = sum(
            parameter.numel()
            for part in (encoder.stage_input, encoder.message, encoder.aggregate)
            for parameter in part.parameters()
        )
    layer = 16 * 32 + 32 + 32 * 16 + 16 + 16 * 16 + 16
    assert sizes["two-level"] - sizes["single-level"] == layer
    assert sizes["single-level"] == layer + (32 + 32 + 32 * 16 + 16 + 16 * 16 + 16)
    assert critical_path.TEST_STAGES[0] > critical_path.LEARN_STAGES[1], (
        "the tests are larger than what is learned from"
    )
    curves, chance = critical_path.measure(seeds=(0,), iterations=300, num_measurements=1)
    last = critical_path.final(curves)[0]
    print(f"\n{last}")
    assert last["two-level"] >= 0.9
    assert last["single-level"] <= last["two-level"] - 0.04
    assert chance < 0.5
    assert len(curves) == 2 * 2


@pytest.mark.slow
def test_no_seed_is_lucky() -> None:
    last = critical_path.final(critical_path.measure(seeds=range(5), num_measurements=1)[0])
    print(f"\n{last}")
    assert (last.loc["two-level"] >= 0.95).all()
    assert last.loc["single-level"].max() <= last.loc["two-level"].min() - 0.05


@pytest.fixture
def curves() -> pd.DataFrame:
    """Return synthetic curves."""
    rows = [
        {"iteration": iteration, "accuracy": base + gain * iteration / 100, "network": network, "seed": seed}
        for network, base, gain in (("two-level", 0.4, 0.58), ("single-level", 0.4, 0.4))
        for seed, base in ((0, base), (1, base - 0.1))
        for iteration in (0, 50, 100)
    ]
    return pd.DataFrame(rows)


def test_picture_and_table(curves: pd.DataFrame, tmp_path: Path) -> None:
    assert difference(critical_path.plot_accuracy(curves, 0.35), "critical-path", tmp_path) is None
    lines = printed(critical_path.accuracy_table(curves, 0.35))
    assert [line.split()[-3:] for line in lines if "-level" in line] == [
        ["93.0%", "88.0%", "98.0%"],
        ["75.0%", "70.0%", "80.0%"],
    ]
    assert any("35.0%" in line for line in lines)
