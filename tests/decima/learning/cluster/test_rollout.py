from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from decima.learning.cluster.curriculum import EpisodeSpec
from decima.learning.cluster.rollout import Trajectories, roll_out, roll_out_scheduler
from decima.policy.config import SHORTCUT_POLICY
from decima.policy.errors import NotFiniteError
from decima.policy.policy import Policy
from decima.policy.scheduler import NeuralScheduler
from decima.registry import make_scheduler
from simulator import ClusterConfig, run_episode
from tests.decima.evaluation.examples import LIBRARY
from tests.simulator.cluster.build import chain, jobs, stage
from workloads import JobSequence, batch_arrivals, poisson_arrivals

CLUSTER = ClusterConfig(num_executors=4)
POLICY = Policy(SHORTCUT_POLICY, seed=3)


def sequence(seed: int, num_jobs: int = 5) -> JobSequence:
    return batch_arrivals(LIBRARY.profiles, num_jobs, seed)


def specs(count: int, end_ms: float = np.inf) -> list[EpisodeSpec]:
    """Episodes, two of each sequence, which all draw differently."""
    sequences = [sequence(number) for number in range((count + 1) // 2)]
    return [
        EpisodeSpec(sequences[number // 2], CLUSTER, end_ms, np.random.default_rng(number))
        for number in range(count)
    ]


def assert_same(one: Trajectories, other: Trajectories) -> None:
    for field in fields(Trajectories):
        if field.name == "graphs":
            for ours, theirs in zip(one.graphs, other.graphs, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_episodes_do_not_depend_on_which_others_there_are() -> None:
    together = roll_out(POLICY, specs(6))
    alone = Trajectories.concatenate([roll_out(POLICY, [spec]) for spec in specs(6)])
    assert_same(together, alone)


def test_decisions_with_one_answer_are_not_samples() -> None:
    samples = roll_out(POLICY, specs(4))
    graphs = samples.graphs
    answers = np.add.reduceat(graphs.high - graphs.low, graphs.first_stage[:-1])
    assert answers.min() > 1
    assert samples.num_decisions.sum() > len(samples)


def test_the_rewards_of_an_episode_are_the_jobs_time_in_the_system() -> None:
    samples = roll_out(POLICY, specs(4))
    for episode in range(4):
        assert samples.time_ms[samples.samples(episode)][0] == 0
        total = samples.reward[samples.samples(episode)].sum() * CLUSTER.reward_scale_ms
        assert total == pytest.approx(-samples.mean_jct_ms[episode] * samples.num_completed[episode])


def test_a_share_of_the_decisions_are_samples_and_no_reward_is_lost() -> None:
    """The episodes are the same; what is learned from is every third sample, with the rewards of all until the next."""
    every, third = (
        roll_out(POLICY, [replace(each, share=share) for each in specs(2)]) for share in (1, 1 / 3)
    )
    np.testing.assert_array_equal(third.num_decisions, every.num_decisions)
    for episode in range(2):
        all_of_it, kept = every.samples(episode), third.samples(episode)
        np.testing.assert_array_equal(third.time_ms[kept], every.time_ms[all_of_it][::3])
        np.testing.assert_array_equal(third.stage[kept], every.stage[all_of_it][::3])
        rewards = np.add.reduceat(every.reward[all_of_it], np.arange(0, all_of_it.stop - all_of_it.start, 3))
        np.testing.assert_allclose(third.reward[kept], rewards)


def test_a_sample_knows_how_many_jobs_had_arrived() -> None:
    stream = poisson_arrivals(LIBRARY.profiles, 12, 2_000.0, seed=1)
    samples = roll_out(POLICY, [EpisodeSpec(stream, CLUSTER, random=np.random.default_rng(0))])
    assert samples.arrived[0] < samples.arrived[-1] <= 12
    expected = [sum(arrival <= time for arrival in stream.arrival_ms) for time in samples.time_ms]
    np.testing.assert_array_equal(samples.arrived, expected)


def test_samples_are_drawn_with_the_probabilities_they_state() -> None:
    samples = roll_out(POLICY, specs(4))
    seen = POLICY(samples.graphs, samples.stage, samples.limit)
    np.testing.assert_allclose(
        seen.log_probability.detach().numpy(), samples.log_probability, rtol=1e-3, atol=1e-4
    )


def test_greedy_choices_are_those_of_the_scheduler() -> None:
    sequences = [poisson_arrivals(LIBRARY.profiles, 6, 2000.0, seed) for seed in range(3)]
    samples = roll_out(POLICY, [EpisodeSpec(each, CLUSTER) for each in sequences])
    alone = [run_episode(CLUSTER, each, NeuralScheduler(POLICY)).mean_jct_ms for each in sequences]
    np.testing.assert_array_equal(samples.mean_jct_ms, alone)


@pytest.mark.parametrize("name", ["fair", "weighted-fair:-1", "sjf-cp"])
def test_a_scheduler_does_the_same_whether_it_is_recorded_or_not(name: str) -> None:
    samples = roll_out_scheduler(make_scheduler(name), POLICY.config, specs(3))
    for episode, spec in enumerate(specs(3)):
        alone = run_episode(CLUSTER, spec.sequence, make_scheduler(name))
        assert samples.mean_jct_ms[episode] == pytest.approx(alone.mean_jct_ms)
    graphs = samples.graphs
    chosen = graphs.rows_of(samples.stage)
    assert (samples.limit > graphs.low[chosen]).all()
    assert (samples.limit <= graphs.high[chosen]).all()


def test_episodes_end_in_time_and_say_what_was_left() -> None:
    whole = roll_out(POLICY, specs(2))
    cut = roll_out(POLICY, specs(2, end_ms=float(whole.end_ms.min()) / 2))
    assert (cut.end_ms == whole.end_ms.min() / 2).all()
    assert (cut.num_completed < whole.num_completed).all()
    assert (cut.end_load[:, 1] == 5 - cut.num_completed).all()
    assert (whole.end_load == 0).all()
    for episode in range(2):  # it is the same episode, only shorter
        times = cut.time_ms[cut.samples(episode)]
        np.testing.assert_array_equal(times, whole.time_ms[whole.samples(episode)][: times.size])


def test_where_there_is_nothing_to_choose_there_are_no_samples() -> None:
    alone = jobs(chain(stage(3, 100.0), stage(2, 50.0)))
    samples = roll_out(POLICY, [EpisodeSpec(alone, ClusterConfig(num_executors=1))])
    assert len(samples) == 0
    assert samples.num_completed.tolist() == [1]
    both = Trajectories.concatenate([samples, roll_out(POLICY, specs(1))])
    assert both.num_episodes == 2
    assert both.samples(0) == slice(0, 0)


def test_probabilities_that_are_no_numbers_are_noticed() -> None:
    policy = Policy(SHORTCUT_POLICY)
    for parameter in policy.parameters():
        parameter.data.fill_(float("nan"))
    with pytest.raises(NotFiniteError):
        roll_out(policy, specs(2))
