"""Training of a second network, which decides with few live jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.learning.cluster.rollout import Episode, Shared, roll_out
from decima.learning.cluster.search import run_pair
from decima.learning.cluster.train import ClusterTraining
from decima.learning.cluster.validation import evaluate_policy, evaluate_weights
from decima.policy import Actor, NeuralScheduler, PolicyFileError, read_trained_on, save_policy
from decima.policy.few_jobs import ManyJobs
from decima.policy.files import load_actor
from decima.policy.presets import SHORTCUT_POLICY
from decima.settings import TrainingError
from simulator import ClusterConfig
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.examples import small
from tests.decima.policy.examples import changed, policy_of
from tests.refusal import one_line
from workloads import poisson_arrivals

#: A stream in which one job is alone at times, and many jobs wait at others; the second network may wait.
STREAM: dict[str, Any] = {
    "workload": {"arrivals": "poisson", "interval": 2.0, "jobs": 6}, "policy": {"overrides": {"wait": True}},
}  # fmt: skip


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A policy that was trained without a second network."""
    config = small(tmp_path, iterations=1, policy={"overrides": {"wait": False}})
    return ClusterTraining(config, tmp_path / "start").run().policy_file


def train(start: Path, name: str, **changes: Any) -> Path:
    changes = {**STREAM, "iterations": 1, "start": str(start), "few_jobs": 2, **changes}
    return ClusterTraining(small(start.parent.parent, **changes), start.parent.parent / name).run().policy_file


def test_the_second_network_alone_learns(start: Path) -> None:
    first, both = load_actor(start), load_actor(train(start, "both"))
    assert both.config == first.config
    assert all(np.array_equal(both.arrays[name], array) for name, array in first.arrays.items())
    assert both.few_jobs is not None
    few = both.few_jobs.policy
    assert (both.few_jobs.at_most, few.config.wait) == (2, True)
    assert read_trained_on(start.parent.parent / "both" / "policy.npz") == read_trained_on(start)
    config = small(start.parent.parent, **STREAM, start=str(start), few_jobs=2)
    with ClusterTraining(config, start.parent.parent / "run").started() as training:
        training.learn(0)
    assert any(not np.array_equal(training.policy.arrays[name], array) for name, array in first.arrays.items())


def test_it_begins_as_a_copy_or_with_the_former_second_network(start: Path) -> None:
    first, again = load_actor(start), start.parent.parent / "again" / "policy.npz"
    second = policy_of(changed(first.config, wait=True), seed=7)
    again.parent.mkdir()
    save_policy(again, ManyJobs(2, Actor(first.config, first.arrays)).and_few(second))
    for path, expected in ((start, first), (again, second)):
        config = small(start.parent.parent, **STREAM, start=str(path), few_jobs=1)
        begun = ClusterTraining(config, start.parent.parent / f"run of {path.parent.name}").policy
        assert all(np.array_equal(begun.arrays[name], array) for name, array in expected.arrays.items())
    config = small(start.parent.parent, **STREAM, start=str(again))
    with pytest.raises(PolicyFileError, match=r"policy\.npz: has a second network .*: expected few_jobs"):
        ClusterTraining(config, start.parent.parent / "one")


def test_decisions_with_many_jobs_are_those_of_the_first_network_and_no_samples() -> None:
    waiting = changed(SHORTCUT_POLICY, wait=True)
    few, first = (Actor(each.config, each.arrays) for each in (policy_of(waiting, seed=3), policy_of(waiting, seed=4)))
    many = ManyJobs(2, first)
    both = many.and_few(few)
    cluster, sequence = ClusterConfig(4), poisson_arrivals(LIBRARY.profiles, 8, 2000.0, seed=1)
    sampled = [
        Episode(few.config, cluster, sequence, random=np.random.default_rng(0), many_jobs=many) for _ in range(2)
    ]
    samples = roll_out(few, sampled)
    live = np.diff(samples.graphs.first_job)
    assert {*live.tolist()} == {1, 2}
    np.testing.assert_array_equal(samples.load[:, 1], live)
    assert len(samples) < len(roll_out(few, [Episode(few.config, cluster, sequence)])) * 2
    greedy = Episode(few.config, cluster, sequence, many_jobs=many)
    roll_out(few, [greedy])
    scheduler = NeuralScheduler(both, guard=False)
    whole = Episode(few.config, cluster, sequence)
    while not whole.cluster.done:
        seen = whole.cluster.observe()
        whole.decide(scheduler.decide(seen))
    np.testing.assert_array_equal(greedy.cluster.record().jct_ms, whole.cluster.record().jct_ms)
    # Each first sample of an episode has the rewards until the next one, those of decisions of the first network, too.
    total = -samples.reward.sum() * cluster.reward_scale_ms
    late = sum(np.nansum(each.cluster.record().jct_ms) for each in sampled)
    assert total == pytest.approx(late, rel=1e-6)


def test_it_is_validated_and_searched_beside_the_first_network(start: Path) -> None:
    config = small(start.parent.parent, **STREAM, start=str(start), few_jobs=2)
    training = ClusterTraining(config, start.parent.parent / "run")
    shared = training._shared()
    weights = training.policy.arrays
    whole = shared.many_jobs.and_few(training.policy)
    expected = evaluate_policy(shared.conditions, whole, [7], guard=False)
    alone = evaluate_policy(shared.conditions, training.policy, [7], guard=False)
    assert expected.tolist() != alone.tolist()
    unchanged = {f"{head}.2.weight": np.zeros((1, 16)) for head in ("stage_head", "limit_head")}
    pair = run_pair(weights, shared, (7, unchanged))
    assert pair.tolist() == [*expected.tolist(), *expected.tolist()]
    assert evaluate_weights(weights, shared, [7]).tolist() == expected.tolist()
    few = Shared(shared.conditions, training.policy.config)
    assert run_pair(weights, few, (7, unchanged)).tolist() == [*alone.tolist(), *alone.tolist()]


def test_an_interrupted_training_gives_the_same_policy(start: Path) -> None:
    folder = start.parent.parent
    whole = load_actor(train(start, "whole", iterations=3)).few_jobs
    changes = {**STREAM, "start": str(start), "few_jobs": 2, "iterations": 3}
    ClusterTraining(small(folder, **changes), folder / "parts").run(until=2)
    result = ClusterTraining(small(folder, **changes), folder / "parts", resume=True, workers=2).run()
    parts = load_actor(result.policy_file).few_jobs
    assert whole is not None
    assert parts is not None
    assert all(np.array_equal(parts.policy.arrays[name], array) for name, array in whole.policy.arrays.items())
    start.unlink()
    with pytest.raises(PolicyFileError, match="is neither a file"):
        ClusterTraining(small(folder, **changes), folder / "parts", resume=True)


def test_a_second_network_needs_a_first(tmp_path: Path) -> None:
    message = one_line(TrainingError, lambda: small(tmp_path, few_jobs=2))
    assert "few_jobs: expected a start, and a policy without custom parts" in message
    encoder = {"policy": {"overrides": {"encoder": "tests.example_parts.network:MeanEncoder"}}}
    message = one_line(TrainingError, lambda: small(tmp_path, few_jobs=2, start="tpch-batch", **encoder))
    assert "few_jobs: expected a start, and a policy without custom parts" in message
    assert "few_jobs: expected" in one_line(TrainingError, lambda: small(tmp_path, few_jobs=0))
