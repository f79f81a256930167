"""Time of a job alone: simulated runs, slowdown and work compared with episodes."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from decima.registry import SCHEDULERS, make_scheduler
from decima.schedulers import Fifo
from simulator import (
    DECIMA_SIM,
    ClusterConfig,
    ConfigError,
    Decision,
    EpisodeRecord,
    ExecutorClass,
    Observation,
    SchedulingError,
    run_episode,
)
from simulator.cluster.alone import useful_executors
from simulator.cluster.config import SEMANTICS
from simulator.cluster.engine.solo import _Simulation, search_all
from simulator.cluster.episode import make_cluster
from simulator.cluster.known import known_profile, work_ms
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.times_alone import time_alone, times_alone
from tests.simulator.cluster.build import chain, job, stage
from tests.simulator.cluster.strategies import clusters
from tests.workloads.strategies import job_profiles
from workloads import (
    JobProfile,
    JobSequence,
    StageProfile,
    TaskDurations,
    batch_arrivals,
    embedded_tpch,
    load_tpch,
    read_alibaba,
    synthetic_profiles,
)
from workloads.spark.importing import import_event_logs

SEEDS = 20
LOGS = Path(__file__).parents[3] / "recordings/first/eventlogs"
SHARED = Path(os.environ.get("DECIMA_SHARED", Path(__file__).parents[4] / "shared"))


class Limited:
    """Runs the only job with a limit, which the job only exceeds if the cluster would stall."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def reset(self, config: ClusterConfig) -> None:
        """Keep no state."""

    def decide(self, observation: Observation) -> Decision | None:
        """Give all executors within the limit to the next stage."""
        stage, held = int(observation.next_stage[0]), observation.held(0)
        if stage < 0 or (held >= self.limit and not observation.last_call):
            return None
        return Decision(stage, held + observation.offered if observation.last_call else self.limit)


def alone(profile: JobProfile, config: ClusterConfig, limit: int | None = None, seed: int = 0) -> EpisodeRecord:
    """Run the job alone with a limit, or under FIFO."""
    scheduler = Fifo() if limit is None else Limited(limit)
    return run_episode(config, JobSequence((profile,), np.zeros(1), seed), scheduler)


def typed(tasks: int, repeats: int = 1) -> StageProfile:
    """Return a stage as in a workload file: the values of a wave, each repeated."""
    fresh, first, rest = [2600.0], [900.0], [400.0, 450.0, 700.0]
    tables = ({1: values * repeats} for values in (fresh, first, rest))
    return StageProfile(tasks, TaskDurations.from_tables(*tables))


def jct_ms(profile: JobProfile, config: ClusterConfig, limit: int, seed: int) -> float:
    """Return the completion time of the job alone, ms; infinite if it stalls."""
    try:
        return float(alone(profile, config, limit, seed).jct_ms[0])
    except SchedulingError:
        return np.inf


@settings(max_examples=30, deadline=None)
@given(
    st.lists(job_profiles(max_tasks=12), min_size=2, max_size=2),
    clusters(),
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
)
def test_compiled_runs_are_episodes_of_the_job_alone(
    profiles: list[JobProfile], config: ClusterConfig, limits: list[int]
) -> None:
    """Whatever ran before in the same state: another job, other limits and seeds."""
    simulation = _Simulation(profiles, config)
    for number in (1, 0, 1):
        found = simulation.times_ms(number, limits, 0, 2)
        expected = [[jct_ms(profiles[number], config, limit, seed) for seed in range(2)] for limit in limits]
        assert found.tolist() == expected


def check_slowdown(profile: JobProfile, executors: int) -> None:
    """Check that with its best limit the mean slowdown alone is 1, and that no limit is much better."""
    config = ClusterConfig(executors)
    found = time_alone(profile, config)
    within = 0.05 + found.error
    assert 1 <= found.limit <= executors
    slowdown = [EpisodeMetrics(alone(profile, config, found.limit, seed)).slowdown[0] for seed in range(SEEDS)]
    assert np.mean(slowdown) == pytest.approx(1, abs=within), (profile.name, executors)
    others = [alone(profile, config, found.limit, seed).jct_ms[0] for seed in range(1000, 1000 + SEEDS)]
    assert np.mean(others) / found.mean_ms == pytest.approx(1, abs=within), (profile.name, executors)
    every_limit = range(1, executors + 1)
    best_ms = _Simulation([profile], config).times_ms(0, every_limit, 0, SEEDS).mean(axis=1).min()
    assert best_ms >= (1 - within) * found.mean_ms, (profile.name, executors)


@pytest.mark.parametrize("executors", [1, 10])
def test_slowdown_is_1_for_a_job_alone_under_its_best_limit(executors: int) -> None:
    for profile in embedded_tpch(sizes=("2g", "10g"))[3::20]:
        check_slowdown(profile, executors)


@pytest.mark.slow
@pytest.mark.parametrize("executors", [1, 10, 50])
@pytest.mark.parametrize("source", ["embedded", "published"])
def test_slowdown_is_1_for_every_job_alone_under_its_best_limit(source: str, executors: int) -> None:
    if source == "published" and not (SHARED / "tpch").exists():
        pytest.skip("needs the published profiles")
    for profile in embedded_tpch() if source == "embedded" else load_tpch(SHARED / "tpch"):
        check_slowdown(profile, executors)


def test_times_alone_count_delays_and_cost_little() -> None:
    # Eight tasks of a second each: two executors are best if moves and fresh JVMs are expensive, else all.
    short, long = job(stage(8, 10, fresh_ms=900, first_ms=900)), job(stage(8, 1000))
    assert time_alone(long, ClusterConfig(8)) == (8, 3000.0, 0.0)
    assert time_alone(short, ClusterConfig(8)) == (8, 2900.0, 0.0)
    # Executors that join for the second stage are fresh.
    pair = chain(stage(2, 100, fresh_ms=100), stage(20, 1, first_ms=1, fresh_ms=5000))
    assert time_alone(pair, ClusterConfig(20)) == (2, 2110.0, 0.0)
    assert time_alone(chain(*[stage(1, 7)] * 1500), ClusterConfig(50)).mean_ms == 2000 + 7 * 1500
    wide = job(StageProfile(5_000_000, TaskDurations.sampled([1.0, 2.0])))
    assert time_alone(wide, ClusterConfig(50)).mean_ms == pytest.approx(2000 + 150_000, rel=0.01)


@pytest.mark.parametrize("tasks", [2, 20_000])
def test_a_job_that_no_executor_can_run_has_no_time_alone(tasks: int) -> None:
    with pytest.raises(ConfigError, match="no executor class can run stage 1 of job 0"):
        time_alone(chain(stage(2, 10), stage(tasks, 10, cpu=4)), ClusterConfig(executor_classes=(ExecutorClass(9),)))


@pytest.mark.parametrize("name", SEMANTICS)
@pytest.mark.parametrize("moving_ms", [0.0, 2000.0])
def test_all_semantics_have_a_time_alone(name: str, moving_ms: float) -> None:
    config = ClusterConfig(5, semantics=SEMANTICS[name], moving_delay_ms=moving_ms)
    assert time_alone(job(stage(1, 50)), config) == (1, moving_ms + 50, 0.0)
    wide = time_alone(job(typed(40)), config)
    assert wide.mean_ms == pytest.approx(moving_ms + 2600 + 7 * 517, rel=0.1)
    assert time_alone(job(typed(40)), config) == wide


#: Cases that take a minute each, mostly for compiling or planning.
COSTLY = ("graphene",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in COSTLY else []) for name in SCHEDULERS]
)
def test_no_scheduler_beats_the_job_alone(name: str) -> None:
    for config in (ClusterConfig(10), ClusterConfig(10, semantics=DECIMA_SIM)):
        for profiles in (embedded_tpch(sizes=("2g", "5g")), synthetic_profiles(12)):
            record = run_episode(config, batch_arrivals(profiles, 4, 1), make_scheduler(name, 0))
            assert EpisodeMetrics(record).slowdown.mean() >= 0.95


@st.composite
def typed_jobs(draw: st.DrawFn) -> JobProfile:
    """Draw a job as in a workload file: waves of one level, fresh tasks the slowest."""
    stages = []
    for _ in range(draw(st.integers(1, 5))):
        rest_ms = draw(st.floats(100, 3000))
        first_ms = rest_ms * draw(st.floats(1, 2))
        fresh_ms = first_ms + draw(st.floats(0, 3000))
        times = [[mean * factor for factor in (0.9, 1.0, 1.1)] for mean in (fresh_ms, first_ms, rest_ms)]
        stages.append(
            StageProfile(draw(st.integers(1, 200)), TaskDurations.from_tables(*({1: each} for each in times)))
        )
    pairs = [(parent, child) for child in range(len(stages)) for parent in range(child)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return job(*stages, edges=edges)


def check_work(profile: JobProfile, config: ClusterConfig, limit: int | None = None) -> None:
    records = [alone(profile, config, limit, seed) for seed in range(6)]
    expected = work_ms(profile, config).sum()
    assert expected == pytest.approx(np.mean([EpisodeMetrics(record).busy_ms[0] for record in records]), rel=0.15)
    assert np.mean([EpisodeMetrics(record).work_inflation[0] for record in records]) == pytest.approx(1, abs=0.15)
    assert records[0].jobs()["work_ms"][0] == pytest.approx(expected)


@settings(max_examples=15, deadline=None)
@given(typed_jobs(), st.sampled_from([1, 10, 25]))
def test_work_is_what_executors_are_busy_for(profile: JobProfile, executors: int) -> None:
    check_work(profile, ClusterConfig(executors))


@pytest.mark.parametrize("executors", [1, 10, 25])
def test_work_and_slowdown_do_not_depend_on_how_often_values_are_typed(executors: int) -> None:
    config = ClusterConfig(executors)
    once, often = (job(typed(400, repeats), typed(7, repeats), edges=[(0, 1)]) for repeats in (1, 6))
    check_work(once, config)
    np.testing.assert_allclose(work_ms(once, config), work_ms(often, config), rtol=1e-12)
    assert once.work_ms == pytest.approx(often.work_ms)
    assert time_alone(once, config).mean_ms == pytest.approx(time_alone(often, config).mean_ms, rel=0.02)
    assert known_profile(once, config).work_ms == pytest.approx(work_ms(often, config).sum())


def test_schedulers_see_the_means_of_the_cluster_unless_the_profile_gives_them() -> None:
    """On both engines, in rows and profiles; a given mean is kept, and so is the profile."""
    profile, given_ms = job(typed(40)), embedded_tpch()[0]
    assert known_profile(given_ms, ClusterConfig(10)) is given_ms
    seen = []
    for engine in ("compiled", "simpy"):
        for executors in (1, 10):
            cluster = make_cluster(ClusterConfig(executors, engine=engine), JobSequence((profile,), np.zeros(1)))
            observation = cluster.observe()
            mean_ms = observation.mean_task_ms[0]
            assert observation.profiles[0].stages[0].durations.mean_ms == mean_ms
            assert observation.profiles[0] is known_profile(profile, cluster.config)
            seen.append(mean_ms)
    alone_ms, shared_ms = (2600 + 39 * 1550 / 3) / 40, (10 * 2600 + 30 * 1550 / 3) / 40
    assert seen == pytest.approx([alone_ms, shared_ms] * 2)


def test_work_of_an_imported_log_is_that_at_its_useful_parallelism() -> None:
    profiles = import_event_logs([LOGS / "mix1.00_12mx16_n1_a00.json.gz"]).workload.profiles
    config = ClusterConfig(10)
    for profile in profiles[::4]:
        check_work(profile, config, useful_executors(profile, config, 0.0))


def certain_jobs(number: int) -> tuple[JobProfile, ...]:
    """Return jobs as in a trace: all tasks of a stage take the same time."""
    rng = np.random.default_rng(0)
    profiles = []
    for _ in range(number):
        stages = [stage(int(rng.integers(1, 60)), 1000.0 * rng.integers(1, 90)) for _ in range(rng.integers(2, 12))]
        edges = [(int(rng.integers(child)), child) for child in range(1, len(stages)) if rng.random() < 0.8]
        profiles.append(job(*stages, edges=edges))
    return tuple(profiles)


def errors(profiles: Sequence[JobProfile], config: ClusterConfig) -> NDArray[np.float64]:
    """Return the errors of times alone, relative to a full search and to the stated error, float64 [jobs]."""
    found, right = times_alone(profiles, config), search_all(profiles, config)
    for one, other in zip(found, right, strict=True):
        assert one.error or one == other
    return np.array(
        [abs(one.mean_ms / other.mean_ms - 1) / (one.error or 1) for one, other in zip(found, right, strict=True)]
    )


@pytest.mark.parametrize(
    ("profiles", "config"),
    [
        (embedded_tpch()[::6], ClusterConfig(7)),
        (synthetic_profiles(30), ClusterConfig(20)),
        (synthetic_profiles(60)[40:], ClusterConfig(300, moving_delay_ms=0.0)),
        (certain_jobs(60), ClusterConfig(50)),
    ],
)
def test_estimates_are_within_the_stated_error(profiles: tuple[JobProfile, ...], config: ClusterConfig) -> None:
    found = errors(profiles, config)
    assert any(each.error for each in times_alone(profiles, config))
    assert np.mean(found <= 1) >= 0.9, "a sample of jobs, 95 % of which are within it"


def test_estimates_of_a_trace_are_within_the_stated_error(shared: Callable[[str], Path]) -> None:
    table = shared("traces/alibaba2018_dag_tasks/selected_DAGs.csv.gz")
    sequence = read_alibaba(table).sequence
    assert sequence is not None
    profiles = [each for each in sequence.profiles if each.num_tasks < 1000][::60]
    for executors in (20, 300, 3000):
        found = errors(profiles, ClusterConfig(executors))
        assert np.mean(found <= 1) >= 0.95, executors
