"""Compiled code reads and writes inside its arrays for every state of a live cluster.

A simulator completes a job with its last stage. On a live Spark a job may have no unfinished stage for some time,
repeat a complete stage, or lose all its executors.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decima.policy import batches
from decima.policy.compiled.graphs import NO_GUARD
from decima.policy.presets import PACKING_POLICY, PAPER_POLICY, RELATIVE_POLICY
from decima.policy.scheduler import Featurizer, NeuralScheduler
from decima.schedulers.srpt import Srpt, TunedSrpt
from simulator import ClusterConfig, Observation
from simulator.cluster.observation import CLASS, JOB, NO_ATTRIBUTES, STAGE
from tests.cases import cases
from tests.decima.policy.examples import VARIANTS, graphs_of, policy_of, probabilities
from tests.simulator.cluster.build import chain, stage

# Columns of a stage: (job, tasks, remaining, unclaimed, running, finished, rank, schedulable, mean ms, cpu, memory).
COMPLETE, READY, LATER = (2, 0, 0, 0, 2, -1, 0), (4, 4, 4, 0, 0, 5, 1), (3, 3, 3, 0, 0, -1, 0)


def seen(*of_jobs: tuple[tuple[int, ...], ...], executors: int = 2) -> Observation:
    """Return an observation of jobs whose stages form chains."""
    rows = [(place, *numbers, 100.0, 1.0, 0.0, 0.0, 0.0) for place, stages in enumerate(of_jobs) for numbers in stages]
    firsts = np.cumsum([0, *(len(stages) for stages in of_jobs)])
    jobs = []
    for place, (stages, first) in enumerate(zip(of_jobs, firsts, strict=False)):
        may = [first + number for number, numbers in enumerate(stages) if numbers[6]]
        left = sum(numbers != COMPLETE for numbers in stages)
        jobs.append((place, first, 0, left, left, may[0] if may else -1, float(place), 0.0, 100.0, *NO_ATTRIBUTES))
    return Observation(
        ClusterConfig(2, moving_delay_ms=10.0),
        time_ms=9.0,
        offered=2,
        executor_class=0,
        source=-1,
        num_schedulable=sum(row[7] for row in rows),
        jobs=np.array(jobs, dtype=JOB),
        stages=np.array(rows, dtype=STAGE),
        classes=np.array([(executors, 2, 1.0, 1.0)], dtype=CLASS),
        profiles=tuple(chain(*(stage(numbers[0], 100.0) for numbers in stages)) for stages in of_jobs),
    )


#: More jobs than unfinished stages, limits and messages together: the buffers of the network have a row for each.
MOSTLY_COMPLETE = seen(*[(COMPLETE, COMPLETE)] * 40, (READY, LATER))
#: A stage runs again after its child is complete.
AGAIN = seen((READY, COMPLETE), (LATER, READY))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("observation", [MOSTLY_COMPLETE, AGAIN], ids=["complete", "again"])
def test_both_networks_agree_on_jobs_without_unfinished_stages(name: str, observation: Observation) -> None:
    policy = policy_of(VARIANTS[name], seed=3)
    [graph] = graphs_of(policy.config, [observation])
    graphs = batches.concatenate([graph] * 5)
    choices = policy.act(graphs, np.random.default_rng(1).random((5, 2)))
    with torch.no_grad():
        evaluation = policy(graphs, choices.stage, choices.limit)
    np.testing.assert_allclose(choices.log_probability, evaluation.log_probability, atol=1e-5)
    stages, _ = probabilities(policy, graph)
    assert (stages > 0).tolist() == (graph.high > graph.low).tolist()


def test_jobs_without_stages_and_messages_of_finished_ones() -> None:
    graph = Featurizer(PAPER_POLICY).graph(MOSTLY_COMPLETE)
    assert (graph.job_features.shape[0], graph.stage_job.tolist()) == (41, [40, 40])
    assert (graph.stage_index.tolist(), graph.messages.tolist()) == ([80, 81], [[0, 0, 1]])
    finished = Featurizer(VARIANTS["finished"]).graph(MOSTLY_COMPLETE)
    assert np.bincount(finished.stage_job).tolist() == [2] * 41
    assert finished.unfinished.sum() == 2
    # Finished stages are left out, and so are their messages to a parent that runs again.
    graph = Featurizer(PAPER_POLICY).graph(AGAIN)
    assert (graph.stage_index.tolist(), graph.messages.tolist()) == ([0, 2, 3], [[0, 1, 2]])
    assert Featurizer(VARIANTS["finished"]).graph(AGAIN).messages.tolist() == [[0, 0, 1], [0, 2, 3]]


@pytest.mark.parametrize("rule", [Srpt(), TunedSrpt()])
@pytest.mark.parametrize("executors", [2, 0], ids=["here", "all left"])
def test_rules_and_the_guard_pass_over_jobs_without_unfinished_stages(rule: Srpt | TunedSrpt, executors: int) -> None:
    observation = seen(*[(COMPLETE, COMPLETE)] * 40, (READY, LATER), executors=executors)
    asked = rule.ask(observation)
    assert asked.stage in ((80,) if executors else (80, -1))
    assert len(asked.limits) == 41
    for config in (RELATIVE_POLICY, PACKING_POLICY):
        decision = NeuralScheduler(policy_of(config, seed=1)).decide(observation)
        assert decision is None or decision.stage == 80


@cases(
    "name, change",
    ("first_stage", lambda it: it[:-1]),
    ("first_stage", lambda it: it + 1),
    ("first_job", lambda it: it[:-1]),
    ("first_job", lambda it: it[::-1].copy()),
    ("first_message", lambda it: np.append(it, it[-1])),
    ("features", lambda it: it[:, 1:].copy()),
    ("job_features", lambda it: it[1:]),
    ("stage_job", lambda it: it + 40),
    ("stage_job", lambda it: it - 41),
    ("low", lambda it: it[1:]),
    ("stage_index", lambda it: it[1:]),
    ("messages", lambda it: it + np.array([0, 0, 2], np.int32)),
    ("messages", lambda it: it - np.array([0, 1, 0], np.int32)),
)
def test_graphs_that_point_outside_of_their_arrays_are_refused(name: str, change: object) -> None:
    policy = policy_of(PAPER_POLICY)
    [graph] = graphs_of(PAPER_POLICY, [MOSTLY_COMPLETE])
    wrong = graph._replace(**{name: change(getattr(graph, name))})  # type: ignore[operator]
    with pytest.raises(ValueError, match="graph"):
        policy.act(wrong)


def test_inputs_that_do_not_fit_the_graph_are_refused() -> None:
    config = VARIANTS["few-outputs"]
    [graph] = graphs_of(config, [MOSTLY_COMPLETE])
    for wrong in (graph._replace(high=graph.high * 0 + 4), graph._replace(low=graph.low - 1)):
        with pytest.raises(ValueError, match="limit without an output"):
            policy_of(config).act(wrong)
    [graph] = graphs_of(PAPER_POLICY, [MOSTLY_COMPLETE])
    for shape, guard in (((0, 2), NO_GUARD), ((1, 1), NO_GUARD), ((1, 3), (graph.low, graph.high))):
        with pytest.raises(ValueError, match="inconsistent"):
            policy_of(PAPER_POLICY).act(graph, np.zeros(shape), guard)
    low, high = graph.low, graph.high
    for guard in ((low - 1, high), (low, high + 1), (low[1:], high[1:]), (low, high[1:])):
        with pytest.raises(ValueError, match="graph"):
            policy_of(PAPER_POLICY).act(graph, None, guard)


@cases(
    "changes, message",
    ({"executor_class": 1}, "inconsistent"),
    ({"source": 41}, "inconsistent"),
    ({"profiles": MOSTLY_COMPLETE.profiles[1:]}, "inconsistent"),
    ({"stages": MOSTLY_COMPLETE.stages[:-3]}, "stages of an observation"),
    ({"stages": MOSTLY_COMPLETE.stages[::-1].copy()}, "a wrong job"),
    ({"profiles": (*MOSTLY_COMPLETE.profiles[:-1], chain(*[stage(1, 1.0)] * 3))}, "other stages than"),
)
def test_observations_that_do_not_fit_together_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Featurizer(PAPER_POLICY).graph(replace(MOSTLY_COMPLETE, **changes))  # type: ignore[arg-type]
