"""Jobs that are alike: only one of them is embedded, with the same results."""

import numpy as np
import pytest
import torch

from decima.policy import Graphs, Policy
from decima.policy.compiled.embeddings import LARGE
from simulator import Cluster, ClusterConfig
from tests.decima.policy.examples import VARIANTS, graphs_of, policy_of, random_sequence
from workloads import JobSequence

NAMES = ["paper", "relative", "decima-sim", "finished", "attention", "no-summary-aggregate", "outputs", "odd-widths"]


def many_jobs(name: str, distinct: int) -> tuple[Policy, Graphs]:
    """Return a policy, and the graph of 120 jobs of some profiles, of which one has run tasks."""
    random = np.random.default_rng(distinct)
    some = [random_sequence(random, max_jobs=1).profiles[0] for _ in range(distinct)]
    profiles = tuple(some[number] for number in random.integers(distinct, size=120))
    cluster = Cluster(ClusterConfig(num_executors=5), JobSequence(profiles, np.zeros(120), seed=0))
    policy = policy_of(VARIANTS[name], seed=distinct)
    cluster.observe()
    [graph] = graphs_of(policy.config, [cluster.observe()])
    assert len(graph.features) > LARGE
    return policy, graph


def interleaved(graph: Graphs) -> Graphs:
    """Return the graph with another order of stages, by index in the job, so that jobs are not compared."""
    first = np.searchsorted(graph.stage_job, np.arange(len(graph.job_features)))
    order = np.lexsort((graph.stage_job, np.arange(len(graph.stage_job)) - first[graph.stage_job]))
    row_of = np.argsort(order).astype(np.int32)
    messages = graph.messages.copy()
    messages[:, 1:] = row_of[messages[:, 1:]]
    columns = ("features", "stage_job", "unfinished", "stage_index", "low", "high")
    return graph._replace(messages=messages, **{name: getattr(graph, name)[order] for name in columns})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("distinct", [1, 6, 40, 110])
def test_choices_are_those_of_all_jobs_embedded_on_their_own(name: str, distinct: int) -> None:
    policy, graph = many_jobs(name, distinct)
    ours = policy.act(graph)
    with torch.no_grad():
        evaluation = policy(graph, ours.stage, ours.limit)
    np.testing.assert_allclose(ours.log_probability, evaluation.log_probability, atol=2e-5)
    if not policy.config.root_sums:  # which counts the stages of a job as consecutive rows
        other = policy.act(interleaved(graph))
        np.testing.assert_allclose(ours.log_probability, other.log_probability, atol=2e-6)


def test_a_difference_of_one_stage_or_message_counts() -> None:
    policy, graph = many_jobs("paper", 1)
    for change in ("features", "unfinished", "messages"):
        array = getattr(graph, change).copy()
        if change == "messages":
            array = array[:-1]
            changed = graph._replace(messages=array, first_message=np.array([0, len(array)]))
        else:
            array[-1] = ~array[-1] if change == "unfinished" else array[-1] + 1
            changed = graph._replace(**{change: array})
        choices = policy.act(changed)
        with torch.no_grad():
            evaluation = policy(changed, choices.stage, choices.limit)
        np.testing.assert_allclose(choices.log_probability, evaluation.log_probability, atol=2e-5)
        assert choices.log_probability[0] != policy.act(graph).log_probability[0]
