"""Features of an observation, value by value."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from decima.learning.cluster.demonstrations import choice_of
from decima.policy import Policy
from decima.policy.compiled.features import FEATURES
from decima.policy.config import Feature, PolicyConfig
from decima.policy.messages import message_order
from decima.policy.presets import PAPER_POLICY
from decima.policy.scheduler import LASTING_MOVES, Featurizer
from simulator import Cluster, ClusterConfig, Decision, Observation
from simulator.cluster.observation import CLASS
from tests.cases import cases
from tests.decima.policy.examples import VARIANTS, changed, episode
from tests.decima.policy.naive import NaiveNetwork
from tests.simulator.cluster.build import by_hand, chain, job, jobs, stage

OF_JOBS = [name for name, entry in FEATURES.items() if entry.level != "stage"]
EVERYTHING = PolicyConfig(
    stage_features=tuple(Feature(name=name) for name in FEATURES),
    job_features=tuple(Feature(name=name) for name in OF_JOBS),
)


def in_the_middle() -> Observation:
    """Ten executors, moving delay 100 ms. Two jobs: a chain of stages with 12 and 3 tasks; one stage of 8 tasks.

    Seven executors are sent to the first job. Its first seven tasks run from 100 to 200 ms; at 100 ms the other
    three move to the second job, whose first tasks end at 150 ms. At 200 ms the first seven continue with five
    tasks; the observation offers one of the two executors left over, with the five.
    """
    first = chain(stage(12, 100), stage(3, 40))
    cluster = Cluster(ClusterConfig(10, moving_delay_ms=100), jobs(first, chain(stage(8, 50))))
    cluster.decide(Decision(0, 7))
    cluster.decide(Decision(2, 3))
    while cluster.observe().time_ms < 200:
        cluster.decide(None)
    return cluster.observe()


#: Features that the direct implementation of the network has.
PLAIN = [name for name in FEATURES if name not in ("present_share", "attained_ms", "job_weight", "deadline_left_ms")]
PLAIN = [name for name in PLAIN if not name.endswith("log_sd")]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_features_are_those_of_the_direct_implementation(seed: int) -> None:
    of_stages, of_jobs = ([Feature(name=name) for name in PLAIN if name in names] for names in (FEATURES, OF_JOBS))
    config = PolicyConfig(stage_features=tuple(of_stages), job_features=tuple(of_jobs))
    policy, featurizer = Policy(config), Featurizer(config)
    for seen in episode(np.random.default_rng(seed))[::3]:
        graph, naive = featurizer.graph(seen), NaiveNetwork(policy, seen)
        expected = [naive.stage_features(place) for place in graph.stage_index.tolist()]
        np.testing.assert_allclose(graph.features, expected, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(
            graph.job_features, [*map(naive.job_features, range(seen.jobs.size))], rtol=1e-6, atol=1e-12
        )


def test_features_of_uncertainty_divided_and_compressed() -> None:
    seen = by_hand()
    seen.stages["log_sd"], seen.jobs["log_sd"] = [0.5, 0.25, 2.0], [1.5, 0.75]
    seen.stages["finished_ms"] = [100.0, 20.0, 7.0]
    graph = Featurizer(EVERYTHING).graph(seen)
    columns = dict(zip(FEATURES, graph.features.T.tolist(), strict=True))
    assert (columns["task_log_sd"], columns["job_log_sd"]) == ([0.5, 0.25, 2.0], [1.5, 1.5, 0.75])
    assert columns["attained_ms"] == [120.0, 120.0, 7.0]
    np.testing.assert_allclose(columns["done_share"], [120 / 190, 120 / 190, 7 / 27], rtol=1e-6)
    of_jobs = dict(zip(OF_JOBS, graph.job_features.T.tolist(), strict=True))
    assert (columns["present_share"], of_jobs["present_share"]) == ([1.25] * 3, [1.25] * 2)  # one has joined
    assert (of_jobs["job_log_sd"], of_jobs["attained_ms"]) == ([1.5, 0.75], [120.0, 7.0])
    seen = in_the_middle()
    columns = dict(zip(FEATURES, Featurizer(EVERYTHING).graph(seen).features.T.tolist(), strict=True))
    assert (columns["deadline_left_ms"], columns["present_share"]) == ([1e7] * 3, [1.0] * 3)
    features = (
        Feature(name="mean_task_ms", scale=10.0),
        Feature(name="mean_task_ms", scale=10.0, log=True),
        Feature(name="local", scale=0.5),
    )
    graph = Featurizer(PolicyConfig(stage_features=features)).graph(seen)
    expected = [[value, math.log(1 + value), 2 * at] for value, at in ((10, 1), (4, 1), (5, -1))]
    np.testing.assert_allclose(graph.features, expected, rtol=1e-6)


def test_owners_idleness_and_messages() -> None:
    seen = by_hand()
    seen.time_ms = 200.0
    seen.jobs["weight"], seen.jobs["deadline_ms"] = [16.0, 0.5], [5200.0, 150.0]
    graph = Featurizer(EVERYTHING).graph(seen)
    of_jobs = dict(zip(OF_JOBS, graph.job_features.T.tolist(), strict=True))
    assert of_jobs["job_weight"] == [16.0, 0.5]
    assert of_jobs["deadline_left_ms"] == [5000.0, 0.0]  # the second one has passed
    config = changed(PAPER_POLICY, all_limits=False, wait=True)
    sequence = jobs(job(stage(4, 5)), job(stage(1, 9)), job(stage(9, 5)))
    featurizer, seen = Featurizer(config), Cluster(ClusterConfig(3), sequence).observe()
    assert choice_of(featurizer.config, seen, featurizer.graph(seen), None) == (1, 0)
    bypass = job(*(stage(1, 1) for _ in range(4)), edges=[(3, 0), (0, 1), (3, 1), (1, 2), (3, 2)])
    assert message_order(bypass).tolist() == [[0, 1, 2], [1, 0, 1], [2, 3, 0], [2, 3, 1], [2, 3, 2]]


def test_features_tell_what_fits_which_executors() -> None:
    """Three classes; executors of 1 cpu and 0.5 memory are offered, and the second job's stage needs more."""
    seen = by_hand()
    seen.classes = np.array([(4, 3, 1.0, 0.5), (3, 2, 2.0, 4.0), (3, 1, 4.0, 0.25)], dtype=CLASS)
    seen.stages["cpu"], seen.stages["memory"] = [1.0, 0.5, 2.0], [0.0, 0.25, 1.0]
    graph = Featurizer(EVERYTHING).graph(seen)
    columns = dict(zip(FEATURES, graph.features.T.tolist(), strict=True))
    lasting_ms = LASTING_MOVES * seen.config.moving_delay_ms
    for name, expected in {
        "unused_cpu": [0.0, 0.125, -0.25],
        "unused_memory": [0.125, 0.0625, -0.125],
        "covering_share": [1.0, 1.0, 0.3],
        "larger_share": [0.7] * 3,
        "free_covering_executors": [3.0, 3.0, 2.0],
        "busy_executors": [1.0, 1.0, 0.0],
        "fitting_share": [1.0, 1.0, 0.0],
        "lasting_executors": [70 / lasting_ms, 70 / lasting_ms, 0.0],
    }.items():
        np.testing.assert_allclose(columns[name], expected, rtol=1e-6, err_msg=name)


def test_limits_begin_above_what_the_job_holds_without_the_offered() -> None:
    seen = in_the_middle()
    schedulable = seen.schedulable.tolist()
    assert True in schedulable

    def limits(**changes: object) -> list[tuple[int, int] | None]:
        graph = Featurizer(changed(PAPER_POLICY, **changes)).graph(seen)
        pairs = zip(graph.low.tolist(), graph.high.tolist(), strict=True)
        return [(low, high) if high > low else None for low, high in pairs]

    held = [seen.held(place) for place in seen.stage_job.tolist()]
    gets = [min(seen.offered, count) for count in seen.unclaimed_tasks.tolist()]
    running = seen.running_executors.tolist()

    def expected(low: list[int], high: list[int]) -> list[tuple[int, int] | None]:
        rows = zip(schedulable, low, high, strict=True)
        return [(low, high) if may and high > low else None for may, low, high in rows]

    assert limits() == expected(held, [10] * 3)
    able = [have + gets for have, gets in zip(held, gets, strict=True)]
    assert limits(all_limits=False) == expected(held, able)
    assert limits(limit="outputs", num_limits=3) == expected(held, [3] * 3)
    of_stages = [have + gets for have, gets in zip(running, gets, strict=True)]
    assert limits(limit="stage", all_limits=False) == expected(running, of_stages)
    # Waiting is the limit that equals the job's number of executors.
    assert limits(all_limits=False, wait=True) == expected([have - 1 for have in held], able)


def test_a_policy_may_wait_but_not_for_ever() -> None:
    """The last call offers executors that were left idle when no event is pending."""
    config = changed(PAPER_POLICY, all_limits=False, wait=True)
    cluster = Cluster(ClusterConfig(2), jobs(job(stage(2, 5))))
    featurizer = Featurizer(config)
    seen = cluster.observe()
    assert not seen.last_call
    assert featurizer.graph_and_answers(seen)[1] == 3
    assert featurizer.decision(seen, 0, 0) is None
    assert choice_of(featurizer.config, seen, featurizer.graph(seen), None) == (0, 0)
    cluster.decide(None)
    seen = cluster.observe()
    assert seen.last_call
    assert featurizer.graph_and_answers(seen)[1] == 2
    assert featurizer.graph(seen).low.tolist() == [0]
    assert featurizer.decision(seen, 0, 1) == Decision(0, 1)
    assert choice_of(featurizer.config, seen, featurizer.graph(seen), None) is None


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(VARIANTS)))
def test_a_choice_and_its_decision_are_the_same(seed: int, name: str) -> None:
    seen = episode(np.random.default_rng(seed))
    featurizer = Featurizer(VARIANTS[name])
    for observation in seen:
        graph = featurizer.graph(observation)
        for node in np.flatnonzero(graph.high > graph.low).tolist():
            stage = int(graph.stage_index[node])
            for limit in range(int(graph.low[node]) + 1, int(graph.high[node]) + 1):
                decision = featurizer.decision(observation, stage, limit)
                if decision is None:
                    assert limit == graph.low[node] + 1 == observation.held(int(graph.stage_job[node]))
                else:
                    assert choice_of(featurizer.config, observation, graph, decision) == (stage, limit)


def test_every_decision_counts_as_an_answer() -> None:
    seen = in_the_middle()
    for name, config in VARIANTS.items():
        graph, num_answers = Featurizer(config).graph_and_answers(seen)
        span = graph.high - graph.low
        assert num_answers == (np.count_nonzero(span) if config.limit == "none" else span.sum()), name


@cases(
    "changes, message",
    ({"stage_features": []}, "at least 1 item"),
    ({"stage_features": [{"name": "colour"}]}, "expected 'unclaimed_tasks'"),
    ({"stage_features": [{"name": "local", "scale": 0}]}, "greater than 0"),
    ({"stage_features": [{"name": "local", "scale": math.inf}]}, "finite"),
    ({"stage_features": [{"name": "local", "log": True}]}, "it has no logarithm"),
    ({"stage_features": [{"name": "unused_cpu", "log": True}]}, "it has no logarithm"),
    ({"stage_features": [{"name": "local", "unit": "ms"}]}, "Extra inputs are not permitted"),
    ({"job_features": [{"name": "mean_task_ms"}]}, "mean_task_ms is a feature of stages, not of jobs"),
    ({"embedding": 0}, "greater than or equal to 1"),
    ({"embedding": 10**9}, "less than or equal to 1024"),
    ({"hidden": (4, 0)}, "greater than or equal to 1"),
    ({"head_hidden": (0,)}, "greater than or equal to 1"),
    ({"limit": "some"}, "Input should be 'input', 'outputs', 'stage' or 'none'"),
    ({"limit": "stage"}, "limit stage excludes all_limits"),
    ({"limit": "outputs", "wait": True}, "wait needs limits that are an input"),
    ({"limit_scale": -1.0}, "greater than 0"),
    ({"message_order": "decima-sim"}, "needs finished_stages"),
    ({"graph": False, "limit": "outputs"}, "without a graph, the limits need job_features"),
    ({"depth": 3}, "Extra inputs are not permitted"),
)
def test_policies_that_cannot_be_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        changed(PAPER_POLICY, **changes)


def test_the_guide_has_all_features_and_they_compute_something() -> None:
    # In the order of the entries; after a change, copy the expected table.
    expected = [
        f"| `{feature}` | {each.level} | {each.unit} | {each.scale:g}{', log' if each.log else ''} | {each.meaning} |"
        for feature, each in FEATURES.items()
    ]
    guide = Path(__file__).parents[3] / "docs" / "reference" / "features.md"
    rows = [line for line in guide.read_text().splitlines() if line.split(" | ")[0][3:-1] in FEATURES]
    assert rows == expected, "\n".join(expected)
    # Features of a job are the same for all its stages, features of the cluster for all stages.
    graph = Featurizer(EVERYTHING).graph(in_the_middle())
    for (name, entry), column in zip(FEATURES.items(), graph.features.T, strict=True):
        if entry.level == "job":
            assert column[0] == column[1], name
        if entry.level == "cluster":
            assert len(set(column.tolist())) == 1, name
    assert {entry.level for entry in FEATURES.values()} == {"stage", "job", "cluster"}
