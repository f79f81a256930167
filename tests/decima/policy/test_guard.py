"""The guard: while a ready stage is worth a move, executors neither idle nor wait for a late stage."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.policy import Featurizer, Graphs, NeuralScheduler, Policy
from decima.policy.presets import PACKING_POLICY
from decima.registry import SchedulerError, make_scheduler
from simulator import DECIMA_SIM, PAPER, Cluster, ClusterConfig, Decision, Observation, run_episode
from simulator.cluster.observation import CLASS, JOB, NO_ATTRIBUTES, STAGE
from tests.decima.policy.examples import changed, episode, policy_of, random_sequence
from tests.simulator.cluster.build import chain, job, jobs, stage
from workloads import JobProfile, RandomStream, random_stream

PLAIN, GUARDED = Featurizer(PACKING_POLICY), Featurizer(PACKING_POLICY, guard=True)
#: Longest wait that the guard accepts, with a moving delay of 2 s and a cold start of 1 s, ms.
PATIENCE_MS = 8 * 3000.0


def after(*decisions: Decision, parent_ms: float, other: JobProfile, executors: int = 4) -> Observation:
    """Return the observation after some decisions: a job of two stages, the first running, and another job."""
    first = chain(stage(1, parent_ms), stage(4, 50_000.0))
    cluster = Cluster(ClusterConfig(num_executors=executors), jobs(first, other))
    for decision in (Decision(0, 1), *decisions):
        cluster.decide(decision)
    return cluster.observe()


def masked(featurizer: Featurizer, seen: Observation) -> Graphs:
    """Return the graph with the choices that the guard leaves; all choices without a guard."""
    graph, _, (low, high) = featurizer.build(seen)
    return graph._replace(low=low, high=high) if low.size else graph


def choices(featurizer: Featurizer, seen: Observation) -> list[int]:
    """Return the number of choices at each stage."""
    graph = masked(featurizer, seen)
    return (graph.high - graph.low).tolist()


@pytest.mark.parametrize(("parent_ms", "may_wait"), [(PATIENCE_MS, True), (PATIENCE_MS + 1, False)])
def test_no_executor_waits_for_a_late_stage_beside_work(parent_ms: float, may_wait: bool) -> None:
    seen = after(parent_ms=parent_ms, other=job(stage(8, 50_000.0)))
    assert choices(PLAIN, seen) == [0, 4, 4]
    # Waiting is no choice at any stage: each has limits for one to three executors.
    assert choices(GUARDED, seen) == [0, 3 if may_wait else 0, 3]


def test_nobody_waits_for_what_is_complete_or_where_nothing_is_ready() -> None:
    seen = after(Decision(2, 1), parent_ms=100_000.0, other=job(stage(1, 50_000.0)))
    assert choices(GUARDED, seen) == choices(PLAIN, seen) == [0, 3, 0]
    assert choices(GUARDED, seen_by_hand(DONE, AT_WORK, LATER, READY, executors=0)) == [0, 2, 2]
    long = (*AT_WORK[:8], 90_000.0, 1, 0, 0, 0)
    assert choices(GUARDED, seen_by_hand(DONE, long, LATER, READY, executors=0)) == [0, 0, 2]


@pytest.mark.parametrize(("tasks", "is_worth"), [(4, False), (5, True)])
def test_work_counts_as_far_as_it_is_worth_a_move(tasks: int, is_worth: bool) -> None:
    """The other job has an executor: it is worth another one if more than 6 s, three moves, are left."""
    other = job(stage(1, 1000.0), stage(tasks, 1500.0))
    seen = after(Decision(2, 1), parent_ms=100_000.0, other=other)
    assert (choices(GUARDED, seen) == choices(PLAIN, seen)) == (not is_worth)


@pytest.mark.parametrize("task_ms", [1.0, 0.0])
def test_a_job_without_executors_is_worth_a_move_however_little_is_left_of_it(task_ms: float) -> None:
    seen = after(parent_ms=100_000.0, other=job(stage(1, task_ms)))
    assert choices(GUARDED, seen) == [0, 0, 1]


def seen_by_hand(*stages: tuple[float, ...], executors: int, source: int = -1) -> Observation:
    """Return an observation of a job whose third stage waits for the first two, and another job with some executors."""
    first = job(*(stage(1, 1.0) for _ in range(3)), edges=[(0, 2), (1, 2)])
    return Observation(
        ClusterConfig(num_executors=9),
        time_ms=0.0,
        offered=2,
        executor_class=0,
        source=source,
        num_schedulable=2,
        jobs=np.array(
            [
                (0, 0, 1, 1, 2, 2, 0.0, 0.0, 3.0, *NO_ATTRIBUTES),
                (1, 3, executors, 1, 1, 3, 0.0, 0.0, 1.0, *NO_ATTRIBUTES),
            ],
            dtype=JOB,
        ),
        stages=np.array(list(stages), dtype=STAGE),
        classes=np.array([(9, 2, 1.0, 0.5)], dtype=CLASS),
        profiles=(first, *(job(stage(1, 1.0)) for _ in stages[3:])),
    )


#: Columns of a stage: (job, tasks, remaining, unclaimed, running, finished, rank, schedulable, mean ms, cpu, memory,
#: uncertainty, finished ms).
DONE, AT_WORK = (0, 1, 0, 0, 0, 1, -1, 0, 90_000.0, 1, 0, 0, 0), (0, 1, 0, 0, 1, 0, -1, 0, 9000.0, 1, 0, 0, 0)
LATER, READY = (0, 4, 4, 4, 0, 0, -1, 1, 9000.0, 1, 0, 0, 0), (1, 4, 4, 4, 0, 0, 5, 1, 9000.0, 1, 0, 0, 0)


@pytest.mark.parametrize(("source", "is_worth"), [(-1, False), (1, True)])
def test_a_stage_of_the_job_that_offers_is_no_move_away(source: int, is_worth: bool) -> None:
    little = (1, 2, 2, 2, 0, 0, 5, 1, 10.0, 1, 0, 0, 0)
    seen = seen_by_hand(DONE, AT_WORK, LATER, little, executors=6, source=source)
    assert (choices(GUARDED, seen) == choices(PLAIN, seen)) == (not is_worth)


@pytest.mark.parametrize(("source", "is_worth"), [(-1, True), (1, False)])
def test_executors_of_a_job_leave_for_more_work_than_free_ones(source: int, is_worth: bool) -> None:
    """The first job has an executor and 9 s of work: more than three moves, less than eight."""
    little, much = (0, 1, 1, 1, 0, 0, 5, 1, 10.0, 1, 0, 0, 0), (0, 1, 1, 1, 0, 0, -1, 1, 9000.0, 1, 0, 0, 0)
    not_ready = (1, 4, 4, 4, 0, 0, -1, 1, 9000.0, 1, 0, 0, 0)
    seen = seen_by_hand(little, (*AT_WORK[:8], 90_000.0, 1, 0, 0, 0), much, not_ready, executors=2, source=source)
    assert (choices(GUARDED, seen) == choices(PLAIN, seen)) == (not is_worth)


@pytest.mark.parametrize(("memory", "is_worth"), [(0.5, True), (0.6, False)])
def test_only_work_that_fits_is_worth_a_move(memory: float, is_worth: bool) -> None:
    """Besides the job's ready stage, with little work, a stage with much work needs larger executors."""
    little, much = ((1, 1, 1, 1, 0, 0, 5, 1, 10.0, 1, 0, 0, 0), (1, 90, 90, 90, 0, 0, -1, 0, 9000.0, 1, memory, 0, 0))
    seen = seen_by_hand(DONE, AT_WORK, LATER, little, executors=2)
    seen.stages = np.array([DONE, AT_WORK, LATER, little, much], dtype=STAGE)
    seen.profiles = (seen.profiles[0], job(stage(1, 1.0), stage(1, 1.0)))
    assert (choices(GUARDED, seen) == choices(PLAIN, seen)) == (not is_worth)


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
def test_executors_that_are_not_offered_again_are_not_guarded(semantics: object) -> None:
    """In the published simulator idle executors are not offered again when another stage opens."""
    config = ClusterConfig(num_executors=4, semantics=semantics)  # type: ignore[arg-type]
    cluster = Cluster(config, jobs(chain(stage(1, 100_000.0), stage(4, 10.0)), job(stage(8, 50_000.0))))
    cluster.decide(Decision(0, 1))
    same = choices(GUARDED, cluster.observe()) == choices(PLAIN, cluster.observe())
    assert same == (semantics == DECIMA_SIM)


def allows(graph: Graphs, seen: Observation, decision: Decision | None) -> bool:
    """Return whether a decision is a choice of a graph whose limits are per job."""
    if decision is None:
        held = [seen.held(job) for job in graph.stage_job.tolist()]
        return bool((graph.low < held)[graph.high > graph.low].any())
    return bool((graph.high > graph.low)[graph.stage_index == decision.stage].any())


def guarded_decision(
    policy: Policy, plain: Featurizer, guarded: Featurizer, seen: Observation, random: np.random.Generator | None
) -> tuple[Decision | None, bool]:
    """Decide in two passes: among all choices and, if the guard masks the result, among those of its own graph."""
    found: list[Decision | None] = []
    for featurizer in (plain, guarded):
        graph = masked(featurizer, seen)
        if found and allows(graph, seen, found[0]):
            return found[0], False
        choices = policy.act(graph, None if random is None else random.random((1, 2)))
        found.append(featurizer.decision(seen, int(choices.stage[0]), int(choices.limit[0])))
    return found[1], True


@pytest.mark.parametrize("is_compiled", [True, False])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), waits=st.booleans(), draws=st.booleans())
def test_one_pass_decides_as_two_would(is_compiled: bool, seed: int, waits: bool, draws: bool) -> None:
    """Sampled decisions are equal, too, with the same random numbers, two for each pass."""
    own = {} if is_compiled else {"stage_head": "tests.example_parts.network:LayersHead"}
    policy = policy_of(changed(PACKING_POLICY, wait=waits, **own), seed % 100)
    plain, guarded = (Featurizer(policy.config, guard=guard) for guard in (False, True))
    scheduler = NeuralScheduler(policy, seed if draws else None)
    random = random_stream(seed, RandomStream.POLICY) if draws else None
    acted = 0
    for seen in episode(np.random.default_rng(seed)):
        expected, is_guarded = guarded_decision(policy, plain, guarded, seen, random)
        assert scheduler.decide(seen) == expected
        acted += is_guarded
        assert scheduler.num_guarded == acted


def test_guards_are_counted_and_turned_off() -> None:
    policy = policy_of(PACKING_POLICY, seed=1)
    sequence = random_sequence(np.random.default_rng(5), max_jobs=9)
    config = ClusterConfig(num_executors=8, moving_delay_ms=10.0, warmup_delay_ms=0.0)
    scheduler = NeuralScheduler(policy)
    record = run_episode(config, sequence, scheduler)
    assert record.num_guarded == scheduler.num_guarded > 0
    assert run_episode(config, sequence, NeuralScheduler(policy, guard=False)).num_guarded == 0
    scheduler.reset(config)
    assert scheduler.num_guarded == 0
    sequence = random_sequence(np.random.default_rng(5), max_jobs=9)
    config = ClusterConfig(num_executors=8, moving_delay_ms=10.0, warmup_delay_ms=0.0)
    assert run_episode(config, sequence, make_scheduler("decima:packing-tpch,guard=off")).num_guarded == 0
    for spec in ("fifo,guard=off", "weighted-fair:-1,guard=off", "decima:nowhere.npz,guard=off"):
        with pytest.raises(SchedulerError, match="guard=off"):
            make_scheduler(spec)
