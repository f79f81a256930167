import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from decima.evaluation.conditions import TRAINING_OFFSET
from decima.learning.cluster import rollout
from decima.learning.cluster.config import TrainingConfig
from decima.learning.cluster.demonstrations import record_scheduler
from decima.learning.cluster.rollout import (
    Episode,
    EpisodePlan,
    Trajectories,
    load_of,
    plan_iteration,
    roll_out,
    start_episodes,
)
from decima.policy import NeuralScheduler, NotFiniteError, Policy, batches
from decima.policy.presets import SHORTCUT_POLICY
from decima.registry import make_scheduler
from simulator import Cluster, ClusterConfig, run_episode
from tests.cases import cases
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.examples import small
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads import JobSequence, batch_arrivals, poisson_arrivals

CLUSTER = ClusterConfig(num_executors=4)
POLICY = Policy(SHORTCUT_POLICY, seed=3)


def sequence(seed: int, num_jobs: int = 5) -> JobSequence:
    return batch_arrivals(LIBRARY.profiles, num_jobs, seed)


def episode(jobs: JobSequence, end_ms: float = math.inf, seed: int | None = None, share: float = 1.0) -> Episode:
    """An episode; greedy without a seed."""
    random = None if seed is None else np.random.default_rng(seed)
    return Episode(POLICY.config, CLUSTER, jobs, end_ms, random, share)


def episodes(count: int, end_ms: float = math.inf, share: float = 1.0) -> list[Episode]:
    """Return two episodes of each sequence, all with different random numbers."""
    sequences = [sequence(number) for number in range((count + 1) // 2)]
    return [episode(sequences[number // 2], end_ms, number, share) for number in range(count)]


def assert_same(one: Trajectories, other: Trajectories) -> None:
    for field in fields(Trajectories):
        if field.name == "graphs":
            for ours, theirs in zip(one.graphs, other.graphs, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_episodes_do_not_depend_on_others_and_wrong_probabilities_are_noticed() -> None:
    together = roll_out(POLICY, episodes(6))
    alone = Trajectories.concatenate([roll_out(POLICY, [each]) for each in episodes(6)])
    assert_same(together, alone)
    policy = Policy(SHORTCUT_POLICY)
    for parameter in policy.parameters():
        parameter.data.fill_(float("nan"))
    with pytest.raises(NotFiniteError):
        roll_out(policy, episodes(2))


def test_samples_are_decisions_with_a_choice_and_all_rewards() -> None:
    samples = roll_out(POLICY, episodes(4))
    graphs = samples.graphs
    answers = np.add.reduceat(graphs.high - graphs.low, graphs.first_stage[:-1])
    assert answers.min() > 1
    assert samples.num_decisions.sum() > len(samples)
    for number in range(4):
        assert samples.time_ms[samples.samples(number)][0] == 0
        total = samples.reward[samples.samples(number)].sum() * CLUSTER.reward_scale_ms
        assert total == pytest.approx(-samples.mean_jct_ms[number] * samples.num_completed[number])
    seen = POLICY(samples.graphs, samples.stage, samples.limit)
    np.testing.assert_allclose(seen.log_probability.detach().numpy(), samples.log_probability, rtol=1e-3, atol=1e-4)
    stream = poisson_arrivals(LIBRARY.profiles, 12, 2_000.0, seed=1)
    samples = roll_out(POLICY, [episode(stream, seed=0)])
    assert samples.arrived[0] < samples.arrived[-1] <= 12
    expected = [sum(arrival <= time for arrival in stream.arrival_ms) for time in samples.time_ms]
    np.testing.assert_array_equal(samples.arrived, expected)


def test_samples_are_a_share_and_no_reward_is_lost() -> None:
    # Episodes are the same; every third choice is a sample, with the rewards up to the next sample.
    every, third = (roll_out(POLICY, episodes(2, share=share)) for share in (1, 1 / 3))
    np.testing.assert_array_equal(third.num_decisions, every.num_decisions)
    for number in range(2):
        all_of_it, kept = every.samples(number), third.samples(number)
        np.testing.assert_array_equal(third.time_ms[kept], every.time_ms[all_of_it][::3])
        np.testing.assert_array_equal(third.stage[kept], every.stage[all_of_it][::3])
        rewards = np.add.reduceat(every.reward[all_of_it], np.arange(0, all_of_it.stop - all_of_it.start, 3))
        np.testing.assert_allclose(third.reward[kept], rewards)
    whole = roll_out(POLICY, episodes(2))
    cut = roll_out(POLICY, episodes(2, end_ms=float(whole.end_ms.min()) / 2))
    assert (cut.end_ms == whole.end_ms.min() / 2).all()
    assert (cut.num_completed < whole.num_completed).all()
    assert (cut.end_load[:, 1] == 5 - cut.num_completed).all()
    assert (whole.end_load == 0).all()
    for number in range(2):  # the same episode, but shorter
        times = cut.time_ms[cut.samples(number)]
        np.testing.assert_array_equal(times, whole.time_ms[whole.samples(number)][: times.size])


def test_a_long_episode_keeps_every_second_sample_and_all_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = roll_out(POLICY, episodes(1))
    sizes = np.diff(whole.graphs.first_stage)
    monkeypatch.setattr(rollout, "MOST_SAMPLED", int(sizes.sum()) // 3)
    [long] = episodes(1)
    fewer = roll_out(POLICY, [long])
    assert np.diff(fewer.graphs.first_stage).sum() <= sizes.sum() // 3
    np.testing.assert_array_equal(fewer.num_decisions, whole.num_decisions)
    assert fewer.reward.sum() == pytest.approx(whole.reward.sum())
    step = round(1 / long.share)
    assert step in (4, 8)
    np.testing.assert_array_equal(fewer.time_ms, whole.time_ms[::step])
    rewards = np.add.reduceat(whole.reward, np.arange(0, len(whole), step))
    np.testing.assert_allclose(fewer.reward, rewards)


def test_a_warm_up_is_decided_by_the_rule_and_gives_no_samples() -> None:
    jobs, expected = sequence(2, 8), run_episode(CLUSTER, sequence(2, 8), make_scheduler("srpt"))
    middle_ms = float(np.median(expected.jct_ms))
    warm, whole = (
        Episode(POLICY.config, CLUSTER, jobs, random=np.random.default_rng(0), start_ms=start_ms)
        for start_ms in (middle_ms, math.inf)
    )
    samples = roll_out(POLICY, [warm])
    assert samples.time_ms[0] >= middle_ms
    jct_ms = warm.cluster.record().jct_ms
    early = expected.jct_ms < middle_ms
    np.testing.assert_array_equal(jct_ms[early], expected.jct_ms[early])
    left_ms = np.clip(jct_ms - samples.time_ms[0], 0, None)
    np.testing.assert_allclose(-samples.reward.sum() * CLUSTER.reward_scale_ms, left_ms.sum())
    assert len(roll_out(POLICY, [whole])) == 0
    np.testing.assert_array_equal(whole.cluster.record().jct_ms, expected.jct_ms)


def test_greedy_episodes_and_episodes_without_choice() -> None:
    sequences = [poisson_arrivals(LIBRARY.profiles, 6, 2000.0, seed) for seed in range(3)]
    samples = roll_out(POLICY, [episode(each) for each in sequences])
    alone = [run_episode(CLUSTER, each, NeuralScheduler(POLICY)).mean_jct_ms for each in sequences]
    np.testing.assert_array_equal(samples.mean_jct_ms, alone)
    alone = jobs(chain(stage(3, 100.0), stage(2, 50.0)))
    samples = roll_out(POLICY, [Episode(POLICY.config, ClusterConfig(num_executors=1), alone)])
    assert len(samples) == 0
    assert samples.num_completed.tolist() == [1]
    both = Trajectories.concatenate([samples, roll_out(POLICY, episodes(1))])
    assert both.num_episodes == 2
    assert both.samples(0) == slice(0, 0)


@pytest.mark.parametrize("name", ["fair", "weighted-fair:-1", "sjf-cp"])
def test_a_scheduler_does_the_same_whether_it_is_recorded_or_not(name: str) -> None:
    samples = record_scheduler(make_scheduler(name), episodes(3))
    for number, each in enumerate(episodes(3)):
        alone = run_episode(CLUSTER, each.sequence, make_scheduler(name))
        assert samples.mean_jct_ms[number] == pytest.approx(alone.mean_jct_ms)
    graphs = samples.graphs
    chosen = batches.rows_of(graphs, samples.stage)
    assert (samples.limit > graphs.low[chosen]).all()
    assert (samples.limit <= graphs.high[chosen]).all()


def test_the_load_is_sums_over_the_live_jobs() -> None:
    work = np.array([100_000.0, 400_000.0, 900_000.0])
    sequence = jobs(*(job(stage(10, each / 10), name=str(each)) for each in (work[2], work[0], work[1])))
    load = load_of(Cluster(ClusterConfig(num_executors=5), sequence).observe())
    w = work / 100_000.0
    waits = (3 * w[0] + 2 * w[1] + w[2]) / 5
    roots = np.sqrt(w)
    expected = [1, 3, w.sum(), waits, roots.sum(), roots.sum() ** 2 / 5, 3 * 1 + 2 * 2 + 3]
    np.testing.assert_allclose(load, expected)


def config(**changes: object) -> TrainingConfig:
    document: dict[str, object] = {"iterations": 100, "episodes": {"sequences": 3, "per_sequence": 4}}
    return TrainingConfig.model_validate({**document, **changes})


CURRICULUM = {"start": 10.0, "end": 1000.0, "growth": 0.5}


def ends(iteration: int, **changes: object) -> list[set[float]]:
    """Return the truncation times in each group."""
    groups = plan_iteration(config(curriculum=CURRICULUM, **changes), iteration)
    return [{plan.end_ms for plan in group} for group in groups]


def test_plans_share_jobs_and_ends_and_follow_from_the_seed() -> None:
    for plans in plan_iteration(config(curriculum=CURRICULUM), 7):
        assert len({(plan.sequence_seed, plan.end_ms) for plan in plans}) == 1
        assert len({plan.episode for plan in plans}) == 4
    assert len(set.union(*ends(7))) == 3
    unfixed = config(curriculum=CURRICULUM, episodes={"sequences": 3, "per_sequence": 4, "fixed_sequences": False})
    for plans in plan_iteration(unfixed, 7):
        assert len({plan.sequence_seed for plan in plans}) == 4
        assert len({plan.end_ms for plan in plans}) == 1
    assert {plan.end_ms for group in plan_iteration(config(), 3) for plan in group} == {math.inf}
    # In an exponential distribution the standard deviation equals the mean.
    for iteration, mean_s in ((0, 10.0), (25, 505.0), (50, 1000.0), (99, 1000.0)):
        drawn = [next(iter(group)) for seed in range(300) for group in ends(iteration, seed=seed)]
        assert abs(np.mean(drawn) / 1000 / mean_s - 1) < 0.15
        assert abs(np.std(drawn) / 1000 / mean_s - 1) < 0.2
    assert plan_iteration(config(curriculum=CURRICULUM), 7) == plan_iteration(config(curriculum=CURRICULUM), 7)
    seeds = [
        plan_iteration(config(seed=seed), number)[0][0].sequence_seed for seed in range(3) for number in range(100)
    ]
    assert len(set(seeds)) == 300


def test_warm_ups_are_memoryless_and_common_to_a_group() -> None:
    episodes = {"sequences": 3, "per_sequence": 4, "warm_up": 20.0}
    drawn = []
    for seed in range(300):
        for cold, group in zip(
            plan_iteration(config(curriculum=CURRICULUM, seed=seed), 50),
            plan_iteration(config(curriculum=CURRICULUM, seed=seed, episodes=episodes), 50),
            strict=True,
        ):
            [start_ms] = {plan.start_ms for plan in group}
            drawn.append(start_ms)
            assert [plan.end_ms - start_ms for plan in group] == pytest.approx([plan.end_ms for plan in cold])
    assert abs(np.mean(drawn) / 20_000 - 1) < 0.15
    assert abs(np.std(drawn) / 20_000 - 1) < 0.2


@cases("final, expected", (None, [4] * 6), (12, [4, 5, 7, 9, 11, 12]), (1, [4, 3, 3, 2, 2, 1]))
def test_the_number_of_sequences_changes_linearly(final: int | None, expected: list[int]) -> None:
    settings = config(iterations=6, episodes={"sequences": 4, "per_sequence": 2, "final_sequences": final})
    assert [len(plan_iteration(settings, k)) for k in range(6)] == expected


def test_all_jobs_arrive_at_once_at_the_beginning_of_a_training(tmp_path: Path) -> None:
    settings = small(
        tmp_path,
        iterations=4,
        workload={"arrivals": "poisson", "jobs": 5, "interval": 3.0},
        episodes={"sequences": 1, "per_sequence": 2, "batches": 0.5, "batch_jobs": 3},
    )
    plans = [plan for k in range(4) for plan in plan_iteration(settings, k)[0]]
    arrivals = [episode.sequence.arrival_ms for episode in start_episodes(POLICY.config, settings.conditions(), plans)]
    assert [len(arrival_ms) for arrival_ms in arrivals] == [3] * 4 + [5] * 4
    assert [bool(arrival_ms.any()) for arrival_ms in arrivals] == [False] * 4 + [True] * 4


def test_the_cluster_has_half_its_size_at_the_beginning_of_a_training(tmp_path: Path) -> None:
    """The load stays the same: half of the executors, and jobs that arrive half as often."""
    settings = small(
        tmp_path,
        iterations=4,
        cluster={"executors": 7},
        workload={"arrivals": "poisson", "jobs": 41, "interval": 3.0},
        episodes={"sequences": 1, "per_sequence": 2, "batches": 0.25, "batch_jobs": 5, "half_size": 0.75},
    )
    plans = [plan_iteration(settings, k)[0][0] for k in range(4)]
    conditions = settings.conditions()
    episodes = start_episodes(POLICY.config, conditions, plans)
    assert [episode.config.num_executors for episode in episodes] == [4, 4, 4, 7]
    assert [len(episode.sequence) for episode in episodes] == [3, 21, 21, 41]
    batch, stream, _, full = (episode.sequence.arrival_ms for episode in episodes)
    assert not batch.any()
    half_as_often = poisson_arrivals(conditions.workload.profiles, 21, 6000.0, plans[1].sequence_seed)
    np.testing.assert_array_equal(stream, half_as_often.arrival_ms)
    np.testing.assert_array_equal(full, conditions.sequence(plans[3].sequence_seed).arrival_ms)


def test_every_executor_class_has_half_its_executors(tmp_path: Path) -> None:
    settings = small(tmp_path, cluster={"executors": 2, "classes": "3x0.5,4x1"}, episodes={"half_size": 1.0})
    [episode, *_] = start_episodes(POLICY.config, settings.conditions(), plan_iteration(settings, 0)[0])
    assert [kind.count for kind in episode.config.executor_classes] == [2, 2]


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("final", [None, 7])
def test_the_seeds_of_a_training_are_those_of_its_episodes(fixed: bool, final: int | None) -> None:
    episodes = {"sequences": 3, "per_sequence": 4, "fixed_sequences": fixed, "final_sequences": final}
    settings = config(iterations=5, seed=2, episodes=episodes)
    met = [plan.sequence_seed for k in range(5) for group in plan_iteration(settings, k) for plan in group]
    assert list(settings.training_seeds) == list(dict.fromkeys(met))


def test_no_two_purposes_share_a_sequence() -> None:
    """Seeds of experiments and their tuning are up to twice the offset."""
    used: set[int] = set()
    for seed in (0, 1):
        each = config(seed=seed, behaviour_cloning={"sequences": 30})
        used |= set(each.cloning_seeds)
        for iteration in range(100):
            used |= {plan.sequence_seed for group in plan_iteration(each, iteration) for plan in group}
    assert len(used) == 2 * (100 * 3 + 30)
    validation = set(config().validation_seeds)
    assert not used & validation
    assert min(used | validation) > 2 * TRAINING_OFFSET
    assert validation == set(config(seed=5).validation_seeds)


def test_episodes_draw_from_streams_of_their_own(tmp_path: Path) -> None:
    conditions = small(tmp_path).conditions()
    plans = [
        EpisodePlan(9, 50.0, seed, iteration, number) for seed in (0, 1) for iteration in (0, 1) for number in (0, 1)
    ]
    started = start_episodes(POLICY.config, conditions, plans)
    assert len({id(each.sequence) for each in started}) == 1
    assert {each.cluster.config.max_time_ms for each in started} == {50.0}
    drawn = {float(each.random.random()) for each in started if each.random is not None}
    assert len(drawn) == 8
    again = start_episodes(POLICY.config, conditions, plans)[3].random
    assert again is not None
    assert float(again.random()) in drawn
