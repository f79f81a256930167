"""A policy schedules one application: order, limits, observations, shadow mode."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from decima.service.protocol import Answer, JobMessage, StageMessage, StateMessage
from tests.spark.eventlog import Task, launches, most_at_once
from tests.spark.harness import Sleeper, application, until, why_not
from tests.spark.policy import PolicyServer, ordered

pytestmark = [pytest.mark.spark, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
SLOTS = 4
RETRY_MS = 1500
#: However busy the machine is, the policy's answer is waited for.
PATIENT = {"retryMs": RETRY_MS, "timeoutMs": 30_000}


#: Executors are threads, or processes; there are two ways to ask.
WAYS = {
    "local": ("local[4]", {}),
    "cluster": ("local-cluster[4,1,1024]", {}),
    "sync": ("local-cluster[4,1,1024]", {"mode": "sync", "ask": "offer"}),
}
SLOW = [pytest.param(way, marks=pytest.mark.slow) for way in ("cluster", "sync")]


@pytest.fixture(scope="module", params=["local", *SLOW])
def way(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def server(way: str, tmp_path_factory) -> Iterator[PolicyServer]:
    """A policy server on a port, or at a path for the other mode."""
    path = tmp_path_factory.mktemp("socket") / "policy" if way == "sync" else None
    server = PolicyServer(ordered(), path=path)
    yield server
    server.close()


@pytest.fixture(scope="module")
def sleeper(way: str, tmp_path_factory, server: PolicyServer) -> Iterator[Sleeper]:
    """One application for all tests, since a JVM starts slowly."""
    master, settings = WAYS[way]
    conf = {f"spark__decima__{key}": value for key, value in {**PATIENT, **settings}.items()}
    with application(tmp_path_factory.mktemp("spark") / "app", server.address, master, **conf) as sleeper:
        until(lambda: server.hellos)
        print(f"Spark {server.hellos[0].spark}")
        yield sleeper
    assert not server.problems, "what the driver says is not of the protocol"


def forget(server: PolicyServer) -> None:
    """Clear all observations after the last job has ended, which may be reported after its result."""
    until(lambda: not server.states or not server.states[-1].jobs)
    server.states.clear()


@pytest.fixture(autouse=True)
def _forget(server: PolicyServer) -> None:
    forget(server)
    server.policy = ordered()


def run_behind_another(sleeper: Sleeper, names: str) -> str:
    """Start jobs one after the other while a first one holds all slots; return the launches."""
    for hold_ms in (1500, 6000, 24000):  # a busy machine may be slow to start them
        known = len(sleeper.tasks())
        first = sleeper.start(f"before {names}", (SLOTS, hold_ms))
        threads = [first]
        until(lambda: sleeper.running() == SLOTS)
        for count, name in enumerate(names, 1):
            threads.append(sleeper.start(name, (2 * SLOTS, 50)))
            until(lambda count=count, first=first: sleeper.active() > count or not first.is_alive())
        in_time = sleeper.running() == SLOTS and sleeper.active() == len(threads)
        for thread in threads:
            thread.join()
        if in_time:
            return launches(task for task in sleeper.tasks()[known:] if task.job in tuple(names))
    raise AssertionError("the first job was always over before the others were there")


def tasks_of(sleeper: Sleeper, *names: str) -> list[Task]:
    return [task for task in sleeper.tasks() if task.job in names]


def seen(server: PolicyServer, name: str) -> list[JobMessage]:
    """Return the observations of a job over time."""
    return [job for state in server.states for job in state.jobs if job.name == name]


def test_a_healthy_start_only_names_the_policy(sleeper: Sleeper, server: PolicyServer) -> None:
    """First, since the log grows."""
    [line] = [line for line in sleeper.log().splitlines() if " spark: " in line]
    assert f"INFO spark: policy at {server.address}" in line


def test_jobs_run_in_the_order_that_the_policy_says(sleeper: Sleeper, server: PolicyServer) -> None:
    server.policy = ordered("before ABC", "C", "A", "B")
    assert run_behind_another(sleeper, "ABC") == "C" * 8 + "A" * 8 + "B" * 8


def test_a_policy_in_the_shadow_is_asked_and_not_obeyed(sleeper: Sleeper, server: PolicyServer) -> None:
    server.policy = ordered("before DEF", "F", "D", "E", limits={"D": 1, "E": 1, "F": 1})
    server.shadow = True
    connections = len(server.hellos)
    server.hang_up()
    try:
        until(lambda: len(server.hellos) > connections)
        assert run_behind_another(sleeper, "DEF") == "D" * 8 + "E" * 8 + "F" * 8
        assert {"D", "E", "F"} <= {job.name for state in server.states for job in state.jobs}
    finally:
        server.shadow = False
        connections = len(server.hellos)
        server.hang_up()
        until(lambda: len(server.hellos) > connections)


def test_the_next_question_says_what_the_driver_has_missed(sleeper: Sleeper, server: PolicyServer) -> None:
    """Without a connection it stays in its own order for ``retryMs``, as tasks wait."""
    job = sleeper.start("without", (8 * SLOTS, 500))
    until(lambda: server.states)
    server.hang_up()
    job.join()
    until(lambda: not server.states[-1].jobs)
    missed = [state.missed for state in server.states]
    assert all(each is not None for each in missed)
    fallback_ms = [each.fallback_ms for each in missed if each and each.fallback_ms]
    assert sum(fallback_ms) > RETRY_MS / 2
    assert any(each.reason.startswith("the policy closed the connection") for each in missed if each)
    assert not server.states[-1].missed.fallback_ms, "it is reported once"


def test_spark_s_metrics_system_has_the_plugin_s_figures(sleeper: Sleeper, server: PolicyServer) -> None:
    if sleeper.spark.version.startswith("4.3."):
        pytest.skip("Py4J cannot look into SparkEnv, since classes of protobuf are missing in the wheel")
    env = sleeper.spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()
    gauges = (
        env.metricsSystem().getSourcesByName("plugin.decima.spark.DecimaPlugin").head().metricRegistry().getGauges()
    )

    def value(name: str) -> int:
        return int(gauges.get(name).getValue())

    server.policy = ordered(limits={"held": 1})
    before = value("answers")
    thread = sleeper.start("held", (SLOTS, 1500))
    until(lambda: sleeper.running() == 1 and server.states and value("heldTasks") == SLOTS - 1)
    assert value("answers") > before
    assert 0 <= value("lastAnswerAgeMs") < 600_000
    server.policy = ordered()
    thread.join()
    assert value("heldTasks") == 0
    assert value("timeouts") == 0
    assert value("fallbackRounds") >= 0


def test_a_limit_holds_for_a_job_that_is_alone(sleeper: Sleeper, server: PolicyServer) -> None:
    server.policy = ordered(limits={"L": 2})
    sleeper.start("L", (8, 100)).join()
    assert most_at_once(tasks_of(sleeper, "L")) == 2


def test_jobs_that_name_a_pool_are_under_control_too(sleeper: Sleeper, server: PolicyServer) -> None:
    server.policy = ordered(limits={"P": 1})
    sleeper.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    try:
        sleeper.start("P", (3, 100)).join()
    finally:
        sleeper.spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)
    assert most_at_once(tasks_of(sleeper, "P")) == 1
    assert {job.pool for job in seen(server, "P") if job.stages} == {"mine"}


def test_a_limit_holds_for_all_stages_of_a_job_together(sleeper: Sleeper, server: PolicyServer) -> None:
    server.policy = ordered(limits={"T": 3})
    sleeper.start("T", frame=sleeper.tree([(4, 100), (5, 120), (6, 140)], (2, 20))).join()
    tasks = tasks_of(sleeper, "T")
    assert most_at_once(tasks) == 3
    [waiting] = {len(job.stages) for job in seen(server, "T")}
    assert waiting == 4, "the stages to come are known from the start"
    *leaves, last = seen(server, "T")[0].stages
    assert last.parents == tuple(leaf.id for leaf in leaves)
    assert any(one.stage != two.stage and two.launched < one.ended for one, two in pairwise(tasks))


def test_slots_bind_executors_to_stages(sleeper: Sleeper, server: PolicyServer) -> None:
    server.policy = ordered(slots=1)
    sleeper.start("S", frame=sleeper.tree([(3, 100), (4, 100)], (1, 20))).join()
    tasks = tasks_of(sleeper, "S")
    stages = {task.stage for task in tasks}
    assert [most_at_once(task for task in tasks if task.stage == stage) for stage in stages] == [1, 1, 1]
    assert most_at_once(tasks) == 2
    last = [stage for job in seen(server, "S") for stage in job.stages if stage.running and not stage.pending]
    sizes = set(Counter(task.stage for task in tasks).values())  # newer Sparks make one partition of a union of singles
    assert {3, 4} < sizes
    assert {stage.tasks for stage in last} == sizes, "it is asked when a stage has launched its last task"


def test_a_policy_may_wait_for_the_next_stage(sleeper: Sleeper, server: PolicyServer) -> None:
    """Nothing runs between two stages, and still no other job may."""

    def policy(state: StateMessage) -> Answer:
        first = any(job.name == "I" for job in state.jobs)
        return ordered("I", "J", limits={"J": 0} if first else None)(state)

    server.policy = policy
    threads = [sleeper.start("I", *[(SLOTS, 60)] * 4)]
    until(lambda: seen(server, "I"))
    threads.append(sleeper.start("J", (SLOTS, 20)))
    for thread in threads:
        thread.join()
    assert launches(tasks_of(sleeper, "I", "J")) == "I" * 4 * SLOTS + "J" * SLOTS


def test_what_is_held_back_waits(sleeper: Sleeper, server: PolicyServer) -> None:
    """While something else runs."""
    server.policy = ordered(limits={"H": 0})
    threads = [sleeper.start("G", (2, 800))]
    until(lambda: sleeper.running() == 2)
    threads.append(sleeper.start("H", (2, 20)))
    for thread in threads:
        thread.join()
    tasks = tasks_of(sleeper, "G", "H")
    assert min(task.launched for task in tasks if task.job == "H") >= min(
        task.ended for task in tasks if task.job == "G"
    )
    assert "holds everything back" in sleeper.log()
    time.sleep(RETRY_MS / 1e3)  # until it is obeyed again


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_query_is_one_job_with_its_plan(sleeper: Sleeper, server: PolicyServer, adaptive: bool) -> None:
    name = f"query, adaptive {adaptive}"
    spark = sleeper.spark
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", -1)
    try:
        keyed = [sleeper.source(tasks, 30).selectExpr("id", "id % 50 k", "s") for tasks in (3, 2)]
        small = spark.range(0, 50, 1, 2).selectExpr("id as k").hint("broadcast")
        frame = keyed[0].join(keyed[1].select("k", "s"), "k").join(small, "k").groupBy("k").count()
        sleeper.start(name, frame=frame).join()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", False)
    jobs = seen(server, name)
    assert len({job.id for job in jobs}) == 1
    first, last = next(job for job in jobs if job.plan is not None), jobs[-1]
    assert first.plan is not None
    assert first.plan[0].startswith("OverwriteByExpression")
    kinds = [exchange.kind for exchange in first.exchanges]
    assert kinds.count("Exchange") == 2
    assert kinds.count("BroadcastExchange") == 1
    assert [exchange.partitions for exchange in first.exchanges if exchange.kind == "Exchange"] == [4, 4]
    # Without adaptive execution the driver submits the scans when the broadcast has ended; with it, at once, and what
    # joins waits for all three. The broadcast is a Spark job of its own: nothing but the order of events tells of it.
    broadcast, *scans = sorted((stage for stage in last.stages if stage.tasks in (2, 3)), key=lambda stage: stage.id)
    if adaptive:
        assert [stage.parents for stage in last.stages].count(()) == 3
    else:
        assert [stage.parents for stage in scans] == [(broadcast.id,)] * 2
    ids = {stage.id for stage in last.stages}
    waited_for = {parent for stage in last.stages for parent in stage.parents}
    assert len(ids - waited_for) == 1, "all stages come before the last"
    known = [len(job.stages) for job in jobs]
    assert known == sorted(known)


def check_sums(states: list[StateMessage]) -> None:
    for state in states:
        assert [job.submitted_time_ms for job in state.jobs] == sorted(job.submitted_time_ms for job in state.jobs)
        ids = {job.id for job in state.jobs}
        assert all(executor.job is None or executor.job in ids for executor in state.executors)
        for job in state.jobs:
            known: set[int] = set()
            for stage in job.stages:
                assert stage.tasks == stage.done + stage.running + stage.pending
                assert known.issuperset(stage.parents), "parents come first"
                known.add(stage.id)


def test_operators_and_sizes_of_files_are_reported(sleeper: Sleeper, server: PolicyServer, tmp_path: Path) -> None:
    """Each stage has those of its own tasks, before they run."""
    (tmp_path / "lines").write_text("a line\n" * 1000)
    lines = sleeper.spark.read.text(str(tmp_path / "lines"))
    sleeper.start("lines", frame=lines.filter("length(value) > 1").repartition(3)).join()
    first, last = next(job for job in seen(server, "lines") if len(job.stages) == 2).stages
    assert (first.input_bytes, last.input_bytes) == (7000, 0)
    assert first.operators[0].startswith("Scan text")
    assert {"Filter", "Exchange"} <= set(first.operators)
    assert "Exchange" in last.operators
    assert not {"Filter", "Scan text"} & set(last.operators)


def test_states_add_up(sleeper: Sleeper, server: PolicyServer) -> None:
    """The questions about two jobs with two stages, from arrival to end."""
    threads = [sleeper.start(name, (6, 60), (3, 30)) for name in ("U", "V")]
    for thread in threads:
        thread.join()
    assert server.states
    check_sums(server.states)
    for state in server.states:
        assert sum(executor.slots for executor in state.executors) <= SLOTS  # some may still be starting
        assert sum(executor.running for executor in state.executors) == sum(job.running for job in state.jobs)
    assert any(executor.job is not None for state in server.states for executor in state.executors)
    means = [stage.mean_ms for job in seen(server, "U") for stage in job.stages if stage.mean_ms is not None]
    assert means
    assert all(mean >= 30 for mean in means)
    assert [state.seq for state in server.states] == sorted(state.seq for state in server.states)
    for name in ("U", "V"):
        pending: dict[int, list[int]] = {}  # a query may be there before its stages are
        for stage in (stage for job in seen(server, name) for stage in job.stages):
            pending.setdefault(stage.id, []).append(stage.pending)
        for counts in pending.values():
            assert counts == sorted(counts, reverse=True), "what has started is pending no more"
    until(lambda: not server.states[-1].jobs)  # it hears that even the last one is gone


def test_it_is_told_how_long_running_tasks_have_run(sleeper: Sleeper, server: PolicyServer) -> None:
    """To the millisecond, by the event log; another job triggers questions in the meantime."""
    thread = sleeper.start("Y", (SLOTS - 1, 4000))
    until(lambda: sleeper.running() == SLOTS - 1)
    sleeper.start("Z", (1, 200)).join()
    thread.join()
    launched = [task.launched for task in tasks_of(sleeper, "Y")]
    told = [
        (state.time_ms, stage)
        for state in server.states
        for job in state.jobs
        if job.name == "Y"
        for stage in job.stages
    ]
    at_work = [(time_ms, stage.running_ms) for time_ms, stage in told if stage.running == len(launched)]
    assert max(running_ms for _, running_ms in at_work) >= len(launched) * 200
    for time_ms, running_ms in at_work:
        assert running_ms == len(launched) * time_ms - sum(launched)
    assert all(stage.running_ms == 0 for _, stage in told if not stage.running)


def test_a_job_is_gone_when_it_is_complete(sleeper: Sleeper, server: PolicyServer) -> None:
    sleeper.start("W", (2, 20)).join()
    forget(server)
    sleeper.start("X", (2, 20)).join()
    names: set[str | None] = {job.name for state in server.states for job in state.jobs}
    assert names == {"X"}


def test_spark_jobs_of_a_group_belong_together(sleeper: Sleeper, server: PolicyServer) -> None:
    context = sleeper.spark.sparkContext
    context.setJobGroup("my group", "by hand")
    try:
        jvm = context._jvm
        numbers = jvm.org.apache.spark.api.java.JavaSparkContext(context._jsc.sc()).parallelize([1, 2, 3], 3)
        assert numbers.count() == 3
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
    states: list[StateMessage] = server.states
    [job] = {(job.id.split("@")[0], job.name) for state in states for job in state.jobs}
    assert job == ("group-my group", "by hand")


def test_a_stage_that_loses_what_it_wrote_comes_again(sleeper: Sleeper, server: PolicyServer, way: str) -> None:
    """As another attempt, in which retained output stays done. Last, since executors are others afterwards."""
    if way == "local":
        pytest.skip("needs executors that are processes")
    job = sleeper.start("R", (8, 100), (8, 500))
    until(lambda: any(stage.state == "ready" for stage in last_stages(server, "R")[1:]))
    until(lambda: sleeper.running() == SLOTS)
    victim = min(executor.id for executor in server.states[-1].executors)
    assert sleeper.spark.sparkContext._jsc.sc().killExecutor(victim)
    job.join()
    check_sums(server.states)
    again = [stage for job in seen(server, "R") for stage in job.stages if stage.attempt > 0 and stage.tasks == 8]
    assert any(0 < stage.done < 8 and stage.state == "ready" for stage in again)
    restore(sleeper)
    until(lambda: len(known_executors(sleeper, server, "as many")) == SLOTS)


def last_stages(server: PolicyServer, name: str) -> tuple[StageMessage, ...]:
    jobs = seen(server, name)
    return jobs[-1].stages if jobs else ()


def known_executors(sleeper: Sleeper, server: PolicyServer, name: str) -> set[str]:
    """Return the executors in the question of a running job."""
    sleeper.start(name, (SLOTS, 20)).join()
    return {executor.id for executor in server.states[-1].executors}


def restore(sleeper: Sleeper) -> None:
    """Request the initial number of executors."""
    context, jvm = sleeper.spark.sparkContext._jsc.sc(), sleeper.spark.sparkContext._jvm
    nowhere = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    assert context.requestTotalExecutors(SLOTS, 0, nowhere)


def test_executors_leave_and_join(sleeper: Sleeper, server: PolicyServer, way: str) -> None:
    if way == "local":
        pytest.skip("needs executors that are processes")
    before = known_executors(sleeper, server, "before")
    assert len(before) == SLOTS
    victim = min(before)
    assert sleeper.spark.sparkContext._jsc.sc().killExecutor(victim)
    until(lambda: victim not in known_executors(sleeper, server, "one less"))
    assert known_executors(sleeper, server, "one less") == before - {victim}
    restore(sleeper)
    until(lambda: len(known_executors(sleeper, server, "as many")) == SLOTS)
    assert known_executors(sleeper, server, "as many") > before - {victim}


def test_a_barrier_stage_starts_whole(sleeper: Sleeper, server: PolicyServer, way: str) -> None:
    """With any limit."""
    if way == "local":
        pytest.skip("needs Python in the executors, which takes its time")
    if sleeper.spark.version.startswith("3.3.") and sys.version_info >= (3, 11):
        pytest.skip("this Spark does not know this Python")
    server.policy = ordered(limits={"barrier": 1})
    context = sleeper.spark.sparkContext
    context.setJobGroup("barrier", "barrier")
    try:
        assert context.parallelize([1, 2], 2).barrier().mapPartitions(lambda numbers: numbers).collect() == [1, 2]
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
