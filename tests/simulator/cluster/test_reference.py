"""The compiled engine agrees with the reference, event by event."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from decima.schedulers import Fair
from decima.schedulers.fair import WeightedFair
from simulator import (
    DECIMA_SIM,
    PAPER,
    Cluster,
    ClusterConfig,
    ClusterEnv,
    ConfigError,
    Decision,
    ExecutorClass,
    Observation,
    ReferenceCluster,
    SchedulingError,
    Semantics,
    make_cluster,
    run_episode,
)
from simulator.cluster.engine.rule import CompiledRule, compiled_rule
from simulator.cluster.parity import commit, differences
from simulator.parity import read_recording
from tests.cases import cases
from tests.simulator.cluster.build import chain, finish, job, jobs, stage
from tests.simulator.cluster.driver import Both, Driver, assert_same, run
from tests.simulator.cluster.strategies import MANY, clusters, faulty_clusters, idleness, seeds
from tests.workloads.strategies import job_sequences
from workloads import JobSequence, poisson_arrivals, synthetic_profiles

anywhere = st.one_of(clusters(), clusters(max_time=True), clusters(errors=True))


def compare(config: ClusterConfig, sequence: JobSequence, seed: int, idle: float) -> None:
    """Compare episodes with four series of decisions, as drawing jobs takes much longer than running them."""
    for number in range(4):
        driver = Driver(config, sequence, seed + number, idle, make=Both)
        run(driver)
        driver.cluster.record()


@MANY
@given(anywhere, job_sequences(), seeds, idleness)
def test_both_engines_agree_event_by_event(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    compare(config, sequence, seed, idle)


class AskedAlways(Fair):
    """Decides like its base class, without declaring that executors stay with their job, and not in compiled code."""

    keeps_executors = False
    engine_rule = None


@MANY
@given(anywhere, job_sequences(), st.booleans())
def test_schedulers_that_keep_executors_need_not_be_asked(
    config: ClusterConfig, sequence: JobSequence, last_first: bool
) -> None:
    """Executors of jobs with chains of equal stages wait for stages that are not ready."""
    profiles = sequence.profiles[::-1] if last_first else sequence.profiles
    sequence = replace(sequence, profiles=profiles)
    assert Fair.keeps_executors
    records = []
    for scheduler in (Fair(), AskedAlways()):
        try:
            records.append(run_episode(config, sequence, scheduler))
        except SchedulingError as error:
            records.append(str(error))  # type: ignore[arg-type]
    if isinstance(records[0], str):
        assert records[0] == records[1]
    else:
        assert_same(*records)


@MANY
@given(st.one_of(anywhere, faulty_clusters()), job_sequences(), st.floats(-3.0, 3.0), st.booleans())
def test_a_rule_decides_in_compiled_code_as_its_scheduler_does(
    config: ClusterConfig, sequence: JobSequence, alpha: float, keeps: bool
) -> None:
    """Also where the jobs arrive together, and where the last call needs Python."""
    asked = []

    class Counts(WeightedFair):
        keeps_executors = keeps
        engine_rule = WeightedFair.engine_rule

        def decide(self, observation: Observation) -> Decision | None:
            asked.append(observation.time_ms)
            assume(len(asked) < 5000)  # tasks are lost all the time
            return super().decide(observation)

    class Asked(Counts):
        engine_rule = None

    records, calls = [], []
    for scheduler in (Counts(alpha), Asked(alpha)):
        asked.clear()
        try:
            records.append(run_episode(config, sequence, scheduler))
        except SchedulingError as error:
            records.append(str(error))  # type: ignore[arg-type]
        calls.append(len(asked))
    if isinstance(records[0], str):
        assert records[0] == records[1]
    else:
        assert_same(*records)
    assert calls[0] <= calls[1]
    is_plain = config.knowledge.is_exact and config.semantics == PAPER and not config.faults.active
    if is_plain and not numba.config.DISABLE_JIT:
        assert calls[0] <= 2 * len(sequence)


def test_a_decision_of_a_rule_that_is_not_valid_is_left_to_the_scheduler() -> None:
    @numba.njit
    def wrong(jobs, stages, source, offered, num_executors, constants):  # type: ignore[no-untyped-def]
        return int(constants[0]), int(constants[1])

    config, sequence = ClusterConfig(3), jobs(chain(stage(4, 10.0), stage(2, 10.0)), job(stage(3, 10.0)))
    expected = run_episode(config, sequence, AskedAlways())
    for row, limit in ((-2, 5), (99, 5), (1, 5), (0, 0)):

        class Wrong(AskedAlways):
            def engine_rule(self, chosen: tuple[int, int] = (row, limit)) -> CompiledRule:
                return compiled_rule(wrong, np.array(chosen, dtype=np.float64))

        record = run_episode(config, sequence, Wrong())
        if limit:
            assert_same(record, expected)
        else:
            assert np.isfinite(record.completion_ms).all()

    class Idle(AskedAlways):
        def engine_rule(self) -> CompiledRule:
            return compiled_rule(wrong, np.array([-1.0, 0.0]))

    assert np.isfinite(run_episode(config, sequence, Idle()).completion_ms).all()  # the last calls are not left idle

    @numba.njit
    def other(jobs, stages, source, offered, num_executors, constants):  # type: ignore[no-untyped-def]
        return 0.5

    if not numba.config.DISABLE_JIT:
        with pytest.raises(TypeError, match="a rule must return a stage and a limit, got float64"):
            compiled_rule(other, np.zeros(1))


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
def test_executors_that_stay_are_settled_without_asking(semantics: Semantics) -> None:
    """Wide stages follow narrow ones: most executors wait in their job, event after event."""
    config = ClusterConfig(executor_classes=(ExecutorClass(15, memory=0.5), ExecutorClass(25)), semantics=semantics)
    deep = [chain(*(stage(tasks, 10.0 + tasks, memory=0.5) for tasks in (30, 2, 1, 20, 3, 25))) for _ in range(3)]
    sequence = jobs(*deep, *deep, at=[0.0, 0.0, 5.0, 40.0, 900.0, 2000.0])
    asked = []

    class Counts(Fair):
        keeps_executors = True  # and no engine_rule, as it overrides decide

        def decide(self, observation: Observation) -> Decision | None:
            asked.append(observation.source)
            assert observation.source < 0 or observation.next_stage[observation.source] < 0
            return super().decide(observation)

    record = run_episode(config, sequence, Counts())
    assert_same(record, run_episode(config, sequence, AskedAlways()))
    assert len(asked) < record.num_decisions / 2


def test_schedulers_keep_executors_only_if_they_say_so_and_environments_run_on_either_engine() -> None:
    class Own(Fair):
        def decide(self, observation: Observation) -> Decision | None:
            return None

    assert not Own.keeps_executors
    steps = []
    for engine in ("compiled", "simpy"):
        env = ClusterEnv(config=ClusterConfig(5, engine=engine))  # type: ignore[arg-type]
        env.reset(seed=2)
        env.action_space.seed(3)
        steps.append([env.step(env.action_space.sample())[1:3] for _ in range(20)])
    assert steps[0] == steps[1]


@pytest.mark.slow
@settings(MANY, max_examples=1000, derandomize=False)
@given(anywhere, job_sequences(), seeds, idleness)
def test_both_engines_agree_on_a_thousand_episodes(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    compare(config, sequence, seed, idle)


@pytest.mark.parametrize("semantics", [PAPER, DECIMA_SIM])
def test_both_engines_agree_on_a_larger_cluster(semantics: Semantics) -> None:
    config = ClusterConfig(num_executors=40, semantics=semantics)
    sequence = poisson_arrivals(synthetic_profiles(6), 6, 10_000, seed=3)
    scheduler, both = Fair(), Both(config, sequence)
    scheduler.reset(config)
    record, _ = finish(both, scheduler.decide)
    assert record.num_decisions > 50


def test_events_keep_their_order_and_settings_choose_the_engine() -> None:
    # At 15 ms executors 0 and 2 depart, and between them 1 starts a task; at 20 ms all three arrive or finish.
    first, second = chain(stage(4, 10.0), stage(1, 5.0)), job(stage(9, 10.0), stage(9, 10.0))
    both = Both(ClusterConfig(4, moving_delay_ms=5.0, semantics=DECIMA_SIM), jobs(first, second))
    commit(both, 0, 0, 4)
    commit(both, 0, 1, 1)
    both.decide(None)  # all four wait inside the job until its second stage opens
    assert both.acting == [0, 1, 2, 3]
    for target in ((1, 0), (0, 1), (1, 1)):
        commit(both, *target, 1)
    both.decide(None)
    assert both.source == (0, None)
    assert both.observe().time_ms == 20.0
    assert both.observe().running_executors.tolist() == [1, 0]
    finish(both)
    sequence = poisson_arrivals(synthetic_profiles(3), 3, 10_000, seed=3)
    compiled, simpy = ClusterConfig(5), ClusterConfig(5, engine="simpy")
    assert isinstance(make_cluster(compiled, sequence), Cluster)
    assert isinstance(make_cluster(simpy, sequence), ReferenceCluster)
    records = [run_episode(config, sequence, Fair()) for config in (compiled, simpy)]
    assert_same(*(replace(record, config=compiled) for record in records))
    with pytest.raises(ConfigError, match="engine: expected 'compiled' or 'simpy', got 'fast'"):
        ClusterConfig(engine="fast")  # type: ignore[arg-type]


def test_the_reference_replays_the_recorded_episodes(shared: Callable[[str], Path]) -> None:
    folder = shared("parity/decima-sim")
    paths = sorted(folder.glob("*.json.gz"))
    assert len(paths) == len(json.loads((folder / "index.json").read_text())) == 97
    for path in paths:
        assert list(differences(read_recording(path), engine="simpy")) == [], path.name


@cases(
    "kind, field, place",
    ("stages", "claimed", 1), ("jobs", "attached", 0), ("stages", "open_parents", 1), ("jobs", "unsaturated", 0),
)  # fmt: skip
def test_a_difference_is_noticed(kind: str, field: str, place: int) -> None:
    """The test changes a counter of the compiled state directly."""
    config, sequence = ClusterConfig(2), jobs(chain(stage(2, 10.0), stage(2, 10.0)))
    finish(Both(config, sequence))
    both = Both(config, sequence)
    getattr(both.engine._state, kind)[field][place] += 1
    with pytest.raises(AssertionError):
        finish(both)
