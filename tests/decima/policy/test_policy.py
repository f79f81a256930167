"""Compiled code, tensors and the paper's equations agree for every shape of the policy."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from decima.policy import Featurizer, Graphs, NeuralScheduler, Policy, batches
from decima.policy.config import PolicyConfig
from decima.policy.presets import DECIMA_SIM_POLICY, PAPER_POLICY, PRESETS, RELATIVE_POLICY
from simulator import Cluster, ClusterConfig, run_episode
from tests.cases import cases
from tests.decima.policy.examples import (
    VARIANTS,
    changed,
    episode,
    graphs_of,
    policy_of,
    probabilities,
    random_sequence,
    reordered,
)
from tests.decima.policy.naive import NaiveNetwork
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads import JobSequence, scaled

#: Variants with the equations of the paper.
PLAIN = [name for name, config in VARIANTS.items() if config.graph and config.limit == "input" and name != "activated"]

#: Variants with different choices of stage and limit: kinds of limits, a shortcut, waiting, executor classes.
#: All variants are compared with the paper's equations, and compiled code with tensors.
CHOOSING = (
    "paper", "few-outputs", "stage-limits", "stage-limits-with-shortcut", "no-limits", "no-graph", "no-graph-outputs",
    "packing", "relative",
)  # fmt: skip
#: Variants with different layers and messages.
ENCODING = (
    "decima-sim", "no-aggregate", "no-summary-aggregate", "activated", "finished", "one-layer", "attention",
    "attention-in-published-order",
)  # fmt: skip

seeds = st.integers(0, 2**32 - 1)


def some_graphs(config: PolicyConfig, seed: int, at_most: int = 12) -> list[Graphs]:
    """Return graphs with a choice from an episode of random decisions."""
    random = np.random.default_rng(seed)
    graphs = graphs_of(config, episode(random))
    chosen = random.permutation(len(graphs))[:at_most]
    return [graphs[at] for at in sorted(chosen)]


def test_presets_have_the_sizes_of_their_sources_and_one_seed_one_network() -> None:
    # The paper states 12,736 and shows no biases of some layers; the published code has 4,770.
    assert Policy(PAPER_POLICY).num_parameters == 12_802
    assert Policy(DECIMA_SIM_POLICY).num_parameters == 4_770
    first, again, other = Policy(PAPER_POLICY, 1), Policy(PAPER_POLICY, 1), Policy(PAPER_POLICY, 2)
    assert all(torch.equal(*pair) for pair in zip(first.parameters(), again.parameters(), strict=True))
    assert not all(torch.equal(*pair) for pair in zip(first.parameters(), other.parameters(), strict=True))
    policy = policy_of(PAPER_POLICY)
    one, two, three = some_graphs(PAPER_POLICY, seed=3, at_most=3)
    choices = policy.act(batches.concatenate([one, two._replace(high=two.low), three]))
    assert choices.stage[1] == -1
    assert (choices.stage[[0, 2]] >= 0).all()
    assert np.isfinite(choices.log_probability).all()


@pytest.mark.parametrize("name", [*PLAIN, "activated"])
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_probabilities_are_those_of_the_equations(name: str, seed: int) -> None:
    policy = policy_of(VARIANTS[name], seed % 100).double()
    seen = episode(np.random.default_rng(seed))
    featurizer = Featurizer(policy.config)
    for observation in seen[:: max(1, len(seen) // 4)]:
        graph, naive = featurizer.graph(observation), NaiveNetwork(policy, observation)
        stages, limits = probabilities(policy, graph)
        # Features are single precision, of numbers up to some hundreds.
        expected = [naive.stages.get(place, 0.0) for place in graph.stage_index.tolist()]
        np.testing.assert_allclose(stages, expected, atol=1e-5)
        for ours, theirs in zip(limits, naive.limits.values(), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=2, deadline=None)
@given(seed=seeds, greedy=st.booleans())
def test_compiled_decisions_have_the_probability_of_the_tensors(name: str, seed: int, greedy: bool) -> None:
    policy = policy_of(VARIANTS[name], seed % 100)
    graphs = batches.concatenate(some_graphs(policy.config, seed))
    uniforms = None if greedy else np.random.default_rng(seed).random((graphs.num_graphs, 2))
    choices = policy.act(graphs, uniforms)
    with torch.no_grad():
        evaluation = policy(graphs, choices.stage, choices.limit)
    np.testing.assert_allclose(choices.log_probability, evaluation.log_probability, atol=1e-5)


@cases(
    "config", PAPER_POLICY, DECIMA_SIM_POLICY, VARIANTS["attention"], changed(DECIMA_SIM_POLICY, encoder="attention")
)
def test_compiled_messages_are_those_of_the_tensors_in_deep_dags(config: PolicyConfig) -> None:
    """In the published order a stage may send and receive in the same step."""
    deep = chain(*(stage(number, 50 * number) for number in range(1, 15)))
    bypass = job(*(stage(9, 90) for _ in range(11)), edges=[*((at, at + 1) for at in range(10)), (3, 9), (0, 7)])
    observation = Cluster(ClusterConfig(6), jobs(deep, bypass, chain(stage(3, 10)))).observe()
    policy = policy_of(config, seed=4)
    graph = Featurizer(config).graph(observation)
    graphs = batches.concatenate([graph] * 9)
    choices = policy.act(graphs, np.random.default_rng(0).random((9, 2)))
    assert len(set(choices.stage.tolist())) > 1
    with torch.no_grad():
        evaluation = policy(graphs, choices.stage, choices.limit)
    np.testing.assert_allclose(choices.log_probability, evaluation.log_probability, atol=1e-5)


@pytest.mark.parametrize("name", CHOOSING)
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_likeliest_choices_and_probabilities_that_sum_to_one(name: str, seed: int) -> None:
    policy = policy_of(VARIANTS[name], seed % 100)
    each_graph = some_graphs(policy.config, seed, at_most=6)
    for graph in each_graph:
        stages, limits = probabilities(policy, graph)
        choices = policy.act(graph)
        node = int(batches.rows_of(graph, choices.stage)[0])
        count = int(choices.limit[0] - graph.low[node])
        of_limits = limits[np.flatnonzero(graph.high > graph.low).tolist().index(node)]
        assert stages[node] >= stages.max() - 1e-6
        if policy.config.wait:
            assert of_limits[: count - 1].sum() - 1e-6 <= 0.5 <= of_limits[:count].sum() + 1e-6
        else:
            assert of_limits[count - 1] >= of_limits.max() - 1e-6
        assert np.exp(choices.log_probability[0]) == pytest.approx(stages[node] * of_limits[count - 1], rel=2e-5)
    graphs = batches.concatenate(each_graph)
    stages, limits = probabilities(policy, graphs)
    allowed = graphs.high > graphs.low
    assert (stages[~allowed] == 0).all()
    assert (stages[allowed] > 0).all()
    np.testing.assert_allclose(np.add.reduceat(stages, graphs.first_stage[:-1]), 1, atol=1e-6)
    assert [each.size for each in limits] == (graphs.high - graphs.low)[allowed].tolist()
    np.testing.assert_allclose([each.sum() for each in limits], 1, atol=1e-6)


@pytest.mark.parametrize("name", CHOOSING)
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_entropy_is_that_of_the_stage_and_of_the_chosen_ones_limit(name: str, seed: int) -> None:
    policy = policy_of(VARIANTS[name], seed % 100).double()
    for graph in some_graphs(policy.config, seed, at_most=4):
        stages, limits = probabilities(policy, graph)
        choices = policy.act(graph)
        chosen = np.flatnonzero(graph.high > graph.low).tolist().index(int(batches.rows_of(graph, choices.stage)[0]))
        with torch.no_grad():
            evaluation = policy(graph, choices.stage, choices.limit)
        expected = _entropy(stages) + _entropy(limits[chosen])
        assert float(evaluation.entropy) == pytest.approx(expected, abs=1e-9)


def _entropy(probabilities: np.ndarray) -> float:
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


@pytest.mark.parametrize("name", CHOOSING)
def test_samples_follow_the_probabilities(name: str) -> None:
    """Evenly spaced random numbers hit every choice in exact proportion."""
    policy = policy_of(VARIANTS[name], seed=1)
    graph = max(some_graphs(policy.config, seed=5), key=lambda each: np.count_nonzero(each.high > each.low))
    stages, limits = probabilities(policy, graph)
    size = 4_000
    even, many = (np.arange(size) + 0.5) / size, batches.concatenate([graph] * size)
    choices = policy.act(many, np.stack([even, np.random.default_rng(0).random(size)], axis=1))
    frequencies = np.bincount(np.searchsorted(graph.stage_index, choices.stage), minlength=stages.size) / size
    assert np.count_nonzero(stages) > 1
    np.testing.assert_allclose(frequencies, stages, atol=1.01 / size)
    assert frequencies[stages == 0].sum() == 0
    for node, of_limits in zip(np.flatnonzero(graph.high > graph.low), limits, strict=True):
        # A fixed random number chooses this stage; evenly spaced ones draw its limits.
        begin = stages[:node].sum() + stages[node] / 2
        choices = policy.act(many, np.stack([np.full(size, begin), even], axis=1))
        assert (choices.stage == graph.stage_index[node]).all()
        frequencies = np.bincount(choices.limit - graph.low[node], minlength=of_limits.size + 1)[1:] / size
        np.testing.assert_allclose(frequencies, of_limits, atol=1.01 / size)


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_the_extreme_random_numbers_hit_allowed_choices(uniform: float) -> None:
    policy = policy_of(PAPER_POLICY)
    graphs = batches.concatenate(some_graphs(PAPER_POLICY, seed=3))
    choices = policy.act(graphs, np.full((graphs.num_graphs, 2), uniform))
    nodes = batches.rows_of(graphs, choices.stage)
    assert (graphs.low[nodes] < choices.limit).all()
    assert (choices.limit <= graphs.high[nodes]).all()


@pytest.mark.parametrize("name", ["paper", "relative", "decima-sim", "finished", "attention"])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    small = {"embedding": 2, "hidden": (3,), "head_hidden": (3,)}
    policy = policy_of(changed(VARIANTS[name], **small), seed=2).double()
    graphs = batches.concatenate(some_graphs(policy.config, seed=8, at_most=3))
    choices = policy.act(graphs, np.random.default_rng(0).random((graphs.num_graphs, 2)))
    names = [each for each, _ in policy.named_parameters()]

    def loss(*parameters: torch.Tensor) -> torch.Tensor:
        weights = dict(zip(names, parameters, strict=True))
        evaluation = torch.func.functional_call(policy, weights, (graphs, choices.stage, choices.limit))
        return torch.stack([evaluation.log_probability, evaluation.entropy]).sum(0)

    # Differences along random directions take a few passes, not two per parameter.
    assert torch.autograd.gradcheck(loss, tuple(policy.parameters()), eps=1e-6, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_learns(name: str) -> None:
    policy = policy_of(VARIANTS[name], seed=2)
    graphs = batches.concatenate(some_graphs(policy.config, seed=8, at_most=40))
    choices = policy.act(graphs, np.random.default_rng(0).random((graphs.num_graphs, 2)))
    evaluation = policy(graphs, choices.stage, choices.limit)
    weights = torch.linspace(-1, 1, graphs.num_graphs)
    (evaluation.log_probability @ weights + evaluation.entropy.sum()).backward()
    dead = {each for each, it in policy.named_parameters() if it.grad is None or not it.grad.abs().sum() > 0}
    # A constant that a head adds to all scores changes no probability.
    assert all(name.endswith(".bias") and policy.get_parameter(name).numel() == 1 for name in dead), dead


@pytest.mark.parametrize("name", [*PRESETS, "no-graph", "stage-limits", *ENCODING[4:]])
@settings(max_examples=3, deadline=None)
@given(seed=seeds)
def test_the_order_of_jobs_and_the_numbers_of_stages_mean_nothing(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    policy = policy_of(VARIANTS[name], seed % 100).double()
    seen = episode(random)
    observation = seen[random.integers(len(seen))]
    sizes = [observation.stages_of(place) for place in range(observation.jobs.size)]
    number = [random.permutation(each.stop - each.start) for each in sizes]
    # A job's time alone depends on the order of its stages, which breaks ties.
    if name in ("profiled", "packing", "relative"):
        number = [np.arange(each.size) for each in number]
    other, from_ = reordered(observation, random.permutation(len(sizes)), number)
    graph = Featurizer(policy.config).graph(observation)
    graph_again = Featurizer(policy.config).graph(other)
    by_place, limits = _by_place(policy, graph, np.arange(observation.stages.size))
    by_place_again, limits_again = _by_place(policy, graph_again, from_)
    np.testing.assert_allclose(by_place, by_place_again, atol=1e-6)
    assert limits.keys() == limits_again.keys()
    for place, of_limits in limits.items():
        np.testing.assert_allclose(of_limits, limits_again[place], atol=1e-6)


@settings(max_examples=5, deadline=None)
@given(seed=seeds, factor=st.sampled_from([0.125, 8.0, 10.0]))
def test_with_relative_inputs_only_ratios_of_times_matter(seed: int, factor: float) -> None:
    """All times are multiplied: tasks, arrivals, delays. A power of two changes no rounding."""
    random = np.random.default_rng(seed)
    sequence = random_sequence(random)
    # Durations of whole seconds are far from the bounds of the features.
    long = [scaled(profile, durations=1000.0) for profile in sequence.profiles]
    scheduler = NeuralScheduler(policy_of(RELATIVE_POLICY, seed % 100))
    completion_ms = []
    for times in (1.0, factor):
        profiles = tuple(scaled(profile, durations=times) for profile in long)
        changed_sequence = JobSequence(profiles, 1000.0 * times * sequence.arrival_ms, seed=sequence.seed)
        cluster = ClusterConfig(int(3 + seed % 7), moving_delay_ms=2000.0 * times, warmup_delay_ms=1000.0 * times)
        completion_ms.append(run_episode(cluster, changed_sequence, scheduler).completion_ms)
    np.testing.assert_allclose(completion_ms[1], factor * completion_ms[0], rtol=0 if factor != 10.0 else 1e-9)


def _by_place(policy: Policy, graph: Graphs, places: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    stages, limits = probabilities(policy, graph)
    by_place = np.zeros(places.size)
    by_place[places[graph.stage_index]] = stages
    open_ = places[graph.stage_index[graph.high > graph.low]].tolist()
    return by_place, dict(zip(open_, limits, strict=True))


@pytest.mark.parametrize("name", [*CHOOSING, *ENCODING])
@settings(max_examples=2, deadline=None)
@given(seed=seeds, other=seeds)
def test_whatever_else_is_in_the_batch_changes_nothing(name: str, seed: int, other: int) -> None:
    policy = policy_of(VARIANTS[name], seed % 100).double()  # or sums of other shapes would round differently
    graphs = [*some_graphs(policy.config, seed, 6), *some_graphs(policy.config, other, 6)]
    graphs = [graphs[at] for at in np.random.default_rng(seed).permutation(len(graphs))]
    batch = batches.concatenate(graphs)
    uniforms = np.random.default_rng(other).random((len(graphs), 2))
    together = policy.act(batch, uniforms)
    stages, limits = probabilities(policy, batch)
    for at, graph in enumerate(graphs):
        alone = policy.act(graph, uniforms[at : at + 1])
        assert (alone.stage[0], alone.limit[0]) == (together.stage[at], together.limit[at])
        assert alone.log_probability[0] == together.log_probability[at]
        stages_alone, limits_alone = probabilities(policy, graph)
        first, last = batch.first_stage[at : at + 2]
        np.testing.assert_allclose(stages[first:last], stages_alone, atol=1e-6)
        for of_limits in limits_alone:
            np.testing.assert_allclose(limits.pop(0), of_limits, atol=1e-6)
    selected = batches.select(batch, np.array([len(graphs) - 1, 0]))
    again = policy.act(selected, uniforms[[-1, 0]])
    np.testing.assert_array_equal(again.log_probability, together.log_probability[[-1, 0]])


def test_changed_weights_and_many_executors() -> None:
    # The compiled code keeps a copy of the weights.
    policy, other = policy_of(PAPER_POLICY, seed=1), policy_of(PAPER_POLICY, seed=2)
    graphs = batches.concatenate(some_graphs(PAPER_POLICY, seed=3))
    before = policy.act(graphs).log_probability.copy()
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
    choices = policy.act(graphs)
    policy(graphs, choices.stage, choices.limit).log_probability.sum().backward()
    optimiser.step()
    assert (policy.act(graphs).log_probability != before).any()
    policy.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(policy.act(graphs).log_probability, other.act(graphs).log_probability)
    policy = policy_of(PAPER_POLICY)
    observation = Cluster(ClusterConfig(1000), jobs(chain(stage(5, 100)))).observe()
    graph = Featurizer(PAPER_POLICY).graph(observation)
    (only,), (limits,) = probabilities(policy, graph)
    assert only == 1
    assert limits.size == 1000
    choices = policy.act(graph)
    assert limits[choices.limit[0] - 1] == pytest.approx(limits.max(), abs=1e-6)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_gradients_are_those_of_double_precision(name: str, seed: int) -> None:
    """Compiled code computes gradients in single precision, PyTorch in double precision."""
    policy = policy_of(VARIANTS[name], seed % 100)
    graphs = batches.concatenate(some_graphs(policy.config, seed))
    choices = policy.act(graphs, np.random.default_rng(seed).random((graphs.num_graphs, 2)))

    def gradient(of: Policy) -> torch.Tensor:
        found = of(graphs, choices.stage, choices.limit)
        (found.log_probability.sum() + found.entropy.sum()).backward()
        return torch.cat([weight.grad.double().flatten() for weight in of.parameters() if weight.grad is not None])

    exact, inputs = copy.deepcopy(policy).double(), list[float]()
    for layer in exact.modules():
        if isinstance(layer, torch.nn.LeakyReLU):
            layer.register_forward_hook(lambda _, of, __: inputs.extend(of[0].detach().abs().flatten().tolist()))
    single, double = gradient(policy), gradient(exact)
    assume(min(inputs, default=1.0) > 1e-6)  # at 0, rounding decides the slope of an activation
    assume(double.norm() > 0.5)  # if the gradients of samples cancel, rounding errors of each sample remain
    assert (single - double).norm() < 1e-5 * (1 + double.norm())


@pytest.mark.parametrize("name", ["paper", "attention"])
def test_the_gradient_of_embeddings_is_not_changed(name: str) -> None:
    """Message passing adds gradients in place; a sum hands the same gradient to both of its terms."""
    policy = policy_of(VARIANTS[name])
    batch = policy.tensors(batches.concatenate(some_graphs(policy.config, seed=3)))
    embeddings = policy.encoder.embed_stages(batch)
    other, weight = torch.zeros_like(embeddings, requires_grad=True), torch.randn_like(embeddings)
    ((embeddings + other) * weight).sum().backward()
    torch.testing.assert_close(other.grad, weight)


def test_choices_that_are_impossible_in_single_precision_have_a_logarithm_and_a_gradient() -> None:
    policy = policy_of(PAPER_POLICY)
    graphs = batches.concatenate(some_graphs(PAPER_POLICY, seed=3))
    with torch.no_grad():
        for layer in (policy.networks["stage_head"][-1], policy.networks["limit_head"][-1]):
            layer.weight *= 1e4
    exact = copy.deepcopy(policy).double()
    choices = policy.act(graphs, np.random.default_rng(0).random((graphs.num_graphs, 2)))
    last = np.array([np.flatnonzero((graphs.high > graphs.low)[:end])[-1] for end in graphs.first_stage[1:]])
    for which in ((choices.stage, choices.limit), (graphs.stage_index[last], graphs.high[last])):
        found, expected = (each(graphs, *which).log_probability for each in (policy, exact))
        gradients = [
            torch.autograd.grad(each.sum(), of.parameters()) for each, of in ((found, policy), (expected, exact))
        ]
        torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-2)
        one, other = (torch.cat([each.double().flatten() for each in gradient]) for gradient in gradients)
        assert (one - other).norm() < 1e-3 * (1 + other.norm())
    assert (found < -87).any()


@pytest.mark.parametrize("name", ["paper", "decima-sim", "finished"])
def test_the_edge_index_of_a_batch_has_each_edge_between_its_stages_once(name: str) -> None:
    config = VARIANTS[name]
    seen = episode(np.random.default_rng(5))
    batch = [Featurizer(config).graph(observation) for observation in seen]
    expected, first_row = [], 0
    for observation, graph in zip(seen, batch, strict=True):
        row = {int(place): first_row + at for at, place in enumerate(graph.stage_index)}
        for profile, first in zip(observation.profiles, observation.job_first_stage, strict=True):
            expected += [
                [row[child], row[parent]]
                for parent, child in (profile.edges + first).tolist()
                if parent in row and child in row
            ]
        first_row += len(graph.stage_index)
    tensors = policy_of(config).tensors(batches.concatenate(batch))
    assert len(expected) > 100
    assert tensors.edge_index.dtype == torch.int64
    assert tensors.edge_index.T.tolist() == sorted(expected)
    alone = Featurizer(config).graph(Cluster(ClusterConfig(2), jobs(job(stage(2, 5.0)))).observe())
    assert policy_of(config).tensors(alone).edge_index.shape == (2, 0)
