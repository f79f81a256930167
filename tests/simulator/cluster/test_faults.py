"""Lost and returning executors, failing tasks, stragglers and lost outputs, in both engines."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from decima.schedulers import Fair
from simulator import (
    ClusterConfig,
    EpisodeRecord,
    Faults,
    Observation,
    Outcome,
    ReferenceCluster,
    SchedulingError,
    make_cluster,
    run_episode,
)
from simulator.cluster import base, faults
from simulator.cluster.capacity import read_capacity
from simulator.cluster.config import Knowledge
from simulator.cluster.draws import COPY, Purpose, chance, executor_keys, job_key
from simulator.cluster.engine import copies, draws, failures, lost
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.parity import commit
from simulator.cluster.texts import parse_speculation, parse_stragglers
from tests.cases import cases
from tests.refusal import one_line
from tests.simulator.cluster.build import Greedy, chain, finish, job, jobs, stage
from tests.simulator.cluster.driver import Both, Driver
from tests.simulator.cluster.strategies import MANY, faulty_clusters, idleness, seeds
from tests.workloads.strategies import job_sequences
from workloads import JobSequence, StageProfile, batch_arrivals, poisson_arrivals, synthetic_profiles
from workloads.errors import ConfigError

anywhere = st.one_of(faulty_clusters(), faulty_clusters(max_time=True))


@pytest.fixture(autouse=True, scope="module")
def few_losses() -> Iterator[None]:
    """Give up early on jobs that never end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "MOST_LOSSES", 20)
        yield


def drive(config: ClusterConfig, sequence: JobSequence, seed: int, idle: float) -> Driver | None:
    """Run an episode in both engines, until it ends or stalls; ``None`` if it cannot start."""
    driver = Driver(config, sequence, seed, idle, make=Both)
    try:
        driver.begin()
    except SchedulingError as error:
        with pytest.raises(SchedulingError, match=re.escape(str(error))):
            ReferenceCluster(config, sequence)
        return None
    go_on(driver)
    return driver


def go_on(driver: Driver) -> None:
    try:
        driver.go_on()
    except SchedulingError as error:
        if not driver.idle and "cannot complete" not in str(error):
            raise


def check(record: EpisodeRecord) -> None:
    """Check that no task is lost or done twice, and that executors outside of the cluster do nothing."""
    tasks, config = record.tasks(), record.config
    lost, first = len(record.lost_task), len(tasks) - len(record.lost_task)
    assert (tasks["outcome"].iloc[:first] == Outcome.FINISHED).all()
    assert (tasks["outcome"].iloc[first:] != Outcome.FINISHED).all()
    assert (np.diff(record.task_finish_ms[first:][record.lost_outcome != Outcome.OUTPUT_LOST]) >= 0).all()
    assert tasks["start_ms"].iloc[first:].notna().all()
    for number in range(len(record.sequence)):
        if np.isfinite(record.completion_ms[number]):
            mine = tasks[:first][tasks["job"][:first] == number]
            assert mine["finish_ms"].notna().all()
            assert mine["finish_ms"].max() == record.completion_ms[number]
    failures = np.bincount(record.lost_task[record.lost_outcome == Outcome.FAILED], minlength=first)
    assert failures.max(initial=0) <= faults.MOST_FAILURES
    failed = np.unique(record.task_job[:first][failures == faults.MOST_FAILURES])
    assert failed.tolist() == sorted(record.failed_job.tolist())
    assert np.isnan(record.completion_ms[failed]).all()
    # A run of a task follows the run before it, except for copies, and an executor has one run at a time.
    for keys in (["job", "stage", "task"], ["executor"])[config.faults.speculation is not None :]:
        ran = tasks[tasks["executor"] >= 0].sort_values([*keys, "start_ms", "finish_ms"], kind="stable")
        for _, group in ran.groupby(keys):
            assert (group["start_ms"].to_numpy()[1:] >= group["finish_ms"].to_numpy()[:-1]).all()
    for executor in range(config.num_executors):
        mine = tasks[tasks["executor"] == executor]
        changes = record.change_ms[record.change_executor == executor]
        joins = record.change_joins[record.change_executor == executor]
        assert joins.tolist() == [bool(number % 2) for number in range(len(joins))]
        for away_ms, back_ms in zip(changes[::2], np.append(changes[1::2], math.inf), strict=False):
            assert ((mine["finish_ms"] <= away_ms) | (mine["start_ms"] >= back_ms)).all()
    assert lost == 0 or config.faults.active


@pytest.mark.parametrize("engine", ["compiled", "simpy"])
def test_a_stage_that_lost_outputs_has_no_more_tasks_to_start_than_are_left(engine: str) -> None:
    """Also where task times are estimated: the number of tasks is known since the stage became ready."""
    lossy = Faults(executor_lifetime_ms=1500.0, executor_return_ms=500.0, lost_output=True)
    config = ClusterConfig(
        5,
        moving_delay_ms=0.0,
        knowledge=Knowledge(job_error=0.5),
        faults=lossy,
        engine=engine,  # type: ignore[arg-type]
    )
    waited = 0
    for seed in range(4):
        cluster = make_cluster(config, batch_arrivals([chain(stage(6, 300.0), stage(9, 300.0))], 3, seed))
        while not cluster.done:
            seen = cluster.observe()
            left = seen.num_tasks - seen.finished_tasks
            assert (seen.unclaimed_tasks <= left).all()
            waited += int(((seen.ready_rank < 0) & (seen.finished_tasks > 0) & (left > 0)).sum())
            places = np.flatnonzero(seen.schedulable)
            cluster.decide((int(places[-1]), 5) if places.size else None)
    assert waited > 0, "a stage that had begun waited for its parent"


@MANY
@given(anywhere, job_sequences(), seeds, idleness)
def test_both_engines_agree_event_by_event(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    for number in range(2):
        driver = drive(config, sequence, seed + number, idle)
        if driver:
            record = driver.cluster.record()
            if config.faults.active:
                check(record)


@pytest.mark.slow
@settings(MANY, max_examples=1000, derandomize=False)
@given(anywhere, job_sequences(), seeds, idleness)
def test_both_engines_agree_on_a_thousand_episodes(
    config: ClusterConfig, sequence: JobSequence, seed: int, idle: float
) -> None:
    if driver := drive(config, sequence, seed, idle):
        driver.cluster.record()


@settings(MANY, max_examples=15)
@given(faulty_clusters(), job_sequences(), seeds, st.integers(0, 12), seeds, st.booleans())
def test_both_engines_fork_to_the_same_other_future(
    config: ClusterConfig, sequence: JobSequence, seed: int, moment: int, futures: int, arrivals: bool
) -> None:
    driver = Driver(config, sequence, seed, 0.0, make=Both)
    try:
        driver.begin()
        driver.go_on(moment)
    except SchedulingError:
        return
    same, other = driver.fork(), driver.fork(futures, arrivals=arrivals)
    for each in (other, same, driver):
        go_on(each)
        each.cluster.record()
    assert same.cluster.completion_ms.tobytes() == driver.cluster.completion_ms.tobytes()


def test_random_numbers_are_uniform_and_outages_the_same_for_all() -> None:
    key = job_key(1, 2)
    drawn = np.array([[chance(key, task, 1, purpose) for purpose in range(4)] for task in range(5000)])
    assert 0 <= drawn.min() < drawn.max() < 1
    for column in drawn.T:
        assert (np.abs(np.histogram(column, 10, (0, 1))[0] - 500) < 100).all()
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.06
    assert np.abs(np.corrcoef(drawn[1:, 0], drawn[:-1, 0])[0, 1]) < 0.06
    assert executor_keys(3, 5) == executor_keys(3, 50)[:5]
    assert len({job_key(seed, number) for seed in range(10) for number in range(10)}) == 100
    config = ClusterConfig(8, faults=Faults(executor_lifetime_ms=60_000, executor_return_ms=20_000))
    sequence = poisson_arrivals(synthetic_profiles(5), 5, 10_000, seed=3)
    records = [run_episode(config, sequence, scheduler) for scheduler in (Fair(), Greedy())]
    changes = [list(zip(record.change_executor.tolist(), record.change_ms.tolist(), strict=True)) for record in records]
    shorter = min(map(len, changes))
    assert shorter > 20
    assert changes[0][:shorter] == changes[1][:shorter]


def test_engines_agree_on_constants() -> None:
    assert failures.MOST_FAILURES == faults.MOST_FAILURES
    assert (copies.MIN_LATE_MS, COPY) == (faults.MIN_LATE_MS, draws.COPY)
    for outcome in list(Outcome)[1:]:
        assert getattr(lost, f"RUN_{outcome.name}") == outcome


def test_a_lost_executor_gives_its_task_back() -> None:
    """Two executors, one of which leaves in the middle of its second task and returns at 400 ms."""
    config = ClusterConfig(2, moving_delay_ms=0.0, faults=Faults(capacity=((150.0, 1), (400.0, 2))))
    both = Both(config, jobs(job(stage(6, 100.0))))
    commit(both, 0, 0, 2)
    assert both.observe().time_ms == 400.0
    assert both.observe().classes["executors"].tolist() == [2]
    assert both.observe().remaining_tasks.tolist() == [1]
    commit(both, 0, 0, 1)
    while not both.done:
        both.decide(None)
    record = both.record()
    assert (record.completion_ms.tolist(), record.lost_task.tolist()) == ([500.0], [3])
    assert record.task_finish_ms[-1] - record.task_start_ms[-1] == 50.0
    assert (EpisodeMetrics(record).busy_ms.tolist(), EpisodeMetrics(record).capacity_ms) == ([650.0], 750.0)
    assert EpisodeMetrics(record).utilisation == pytest.approx(650 / 750)


@pytest.mark.parametrize(("lost_output", "completion_ms"), [(False, 600.0), (True, 700.0)])
def test_lost_outputs_run_again_where_a_child_needs_them(lost_output: bool, completion_ms: float) -> None:
    """The second executor leaves when both tasks of the parent are done; one of the two outputs is lost with it."""
    config = ClusterConfig(2, moving_delay_ms=0.0, faults=Faults(capacity=((150.0, 1),), lost_output=lost_output))
    first = jobs(chain(stage(2, 100.0), stage(5, 100.0)))
    record, _ = finish(Both(config, first))
    assert record.completion_ms.tolist() == [completion_ms]
    expected = [Outcome.EXECUTOR_LOST, Outcome.OUTPUT_LOST] if lost_output else [Outcome.EXECUTOR_LOST]
    assert record.lost_outcome.tolist() == expected


def first_copied(seed: int, *stages: StageProfile) -> JobSequence | None:
    """Return a job of five tasks of which only the first attempt of task 0 is slow, and its copy is not."""
    key = job_key(seed, 0)
    slow = [chance(key, task, 0, Purpose.STRAGGLES) < 0.2 for task in range(9)]
    quick = chance(key, 0, 0, Purpose.STRAGGLES + COPY) >= 0.2
    return jobs(chain(*stages), seed=seed) if quick and slow == [True] + [False] * 8 else None


def test_a_task_that_runs_long_is_copied_and_the_slower_run_killed() -> None:
    """Five executors, four tasks of 100 ms and one of 1,000 ms; idle executors wait for the next stage."""
    stages = stage(5, 100.0), stage(4, 100.0)
    sequence = next(filter(None, (first_copied(seed, *stages) for seed in range(1000))))
    found = {}
    for speculation in (None, (0.75, 1.5), (0.75, 3.0), (0.9, 1.5)):
        slow = Faults(stragglers=(0.2, 10.0), speculation=speculation)
        config = ClusterConfig(5, moving_delay_ms=0.0, faults=slow)
        found[speculation], _ = finish(Both(config, sequence))
    assert {each: record.completion_ms[0] for each, record in found.items()} == {
        None: 1100.0,
        (0.75, 1.5): 150.0 + 100.0 + 100.0,
        (0.75, 3.0): 300.0 + 100.0 + 100.0,
        (0.9, 1.5): 150.0 + 100.0 + 100.0,
    }
    record = found[0.75, 1.5]
    assert (record.lost_outcome.tolist(), record.lost_task.tolist()) == ([Outcome.KILLED], [0])
    assert (record.task_start_ms[0], record.task_finish_ms[0]) == (150.0, 250.0)
    assert (record.task_start_ms[-1], record.task_finish_ms[-1]) == (0.0, 250.0)
    assert record.task_executor[0] != record.task_executor[-1]
    assert record.metrics()["lost_ms"] == 250.0
    assert EpisodeMetrics(record).busy_ms[0] == 9 * 100.0 + 250.0


def test_copies_and_failures_end_as_they_should() -> None:
    sequence = jobs(chain(stage(20, 300.0), stage(7, 200.0)), chain(stage(3, 500.0), stage(4, 100.0)))
    records = [
        run_episode(ClusterConfig(4, faults=Faults(speculation=each)), sequence, Greedy())
        for each in (None, (0.5, 1.01))
    ]
    assert records[0].task_start_ms.tobytes() == records[1].task_start_ms.tobytes()
    assert not records[1].lost_task.size
    config = ClusterConfig(3, faults=Faults(task_failures=1.0))
    two = jobs(chain(stage(5, 10.0), stage(2, 10.0)), job(stage(1, 5.0), name="other"))
    record, _ = finish(Both(config, two))
    assert record.failed_job.tolist() == [0, 1]
    assert np.isnan(record.completion_ms).all()
    assert np.bincount(record.lost_task[record.lost_outcome == Outcome.FAILED]).max() == 4
    assert (record.lost_outcome == Outcome.JOB_FAILED).sum() == 2


def test_jobs_that_never_end_are_named_and_idle_schedulers_not_asked() -> None:
    slow = jobs(job(stage(3, 10_000.0), name="slow"))
    lost = Faults(executor_lifetime_ms=100.0, executor_return_ms=10.0)
    for engine in ("compiled", "simpy"):
        config = ClusterConfig(3, engine=engine, faults=lost)
        with pytest.raises(SchedulingError, match=r"job 0 \(slow\) cannot complete: executors were lost 61 times"):
            run_episode(config, slow, Greedy())
        config = replace(config, faults=replace(lost, executor_return_ms=math.inf))
        with pytest.raises(SchedulingError, match=r"job 0 \(slow\) cannot complete: 3 executors are lost"):
            run_episode(config, slow, Greedy())
        config = replace(config, faults=Faults(capacity=((0.0, 0),)))
        with pytest.raises(SchedulingError, match=r"job 0 \(slow\) cannot complete: 3 executors are lost"):
            make_cluster(config, slow)

    class Idle(Greedy):
        def decide(self, observation: Observation) -> None:  # type: ignore[override]
            return None

    config = ClusterConfig(3, faults=Faults(executor_lifetime_ms=1000.0, executor_return_ms=1000.0))
    with pytest.raises(SchedulingError, match=r"all executors are idle|cannot complete"):
        run_episode(config, jobs(job(stage(3, 10.0))), Idle())


@cases(
    "text, place",
    ("0 5\n1_0 3", "line 2: expected a time in seconds and a number of executors, such as 3600,20: got '1_0 3'"),
    ("1_0 \u0663", "line 1: expected a time in seconds and a number of executors, such as 3600,20: got '1_0 \u0663'"),
    ("0 \u0663", "line 1: expected a time in seconds"),
    ("0 1_0", "line 1: expected a time in seconds"),
    ("0 1.0", "line 1: expected a time in seconds"),
    ("0 nan", "line 1: expected a time in seconds"),
    ("nan 1", "line 1: expected a time in seconds"),
    ("0 -1", "line 1: expected a time in seconds"),
    ("0 " + "9" * 5000, "line 1: expected a time in seconds"),
    ("-1 5", "line 1: expected a time in seconds"),
    ("-1e400 5", "line 1: expected a time in seconds"),
    ("1e305 5", "line 1: expected a time in seconds"),
    ("0 5 1", "line 1: expected a time in seconds"),
    ("5 5\n5 4", "line 2: expected a time in seconds"),
)
def test_a_malformed_capacity_schedule_names_its_line(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "capacity.txt"
    path.write_text(text, encoding="utf-8")
    assert one_line(ConfigError, read_capacity, path).startswith(f"capacity schedule {path}, {place}")


def test_a_capacity_schedule_is_read_from_a_regular_file_only(tmp_path: Path) -> None:
    path = tmp_path / "capacity.txt"
    path.write_text("\ufeff# executors\n0, 5\n\n60 3\n")
    assert read_capacity(path) == ((0.0, 5), (60_000.0, 3))
    os.truncate(path, 2**40)
    assert one_line(ConfigError, read_capacity, path) == f"capacity schedule {path}: more than 1 MiB"
    os.mkfifo(tmp_path / "pipe")
    assert one_line(ConfigError, read_capacity, tmp_path / "pipe").endswith("pipe: a pipe, socket or device")


@pytest.mark.parametrize("text", ["1_0:2", "\u0663:2", "0.5", "0.5:2:3", "x:2", " 0.5:2", "0.5:nan"])
def test_two_numbers_are_plain_numbers(text: str) -> None:
    for parse in (parse_stragglers, parse_speculation):
        assert "expected " in one_line(ConfigError, parse, text)
