"""The recorder's processes (drivers, master, workers, tpchgen-cli), with stand-ins for Spark's."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cases import cases
from tests.workloads.spark.logs import small_log
from workloads.spark.eventlog import read_event_log
from workloads.spark.logfile import Problems, events, find_event_logs
from workloads.spark.query import matched
from workloads.spark.recorder import cluster as spark_cluster, submission, tpch, tpch as spark_tpch
from workloads.spark.recorder.cluster import StandaloneCluster, java_version, start_process, stop_process
from workloads.spark.recorder.record import main, random_mixtures, record_mixture, record_run
from workloads.spark.recorder.submission import Application, DriverProcess, Layout, slim_event_log

LAYOUT = Layout("12m", 16)
APPLICATION = Application("a", 6, 0.5, 3, LAYOUT, wait_for_executors=True)


def test_queries():
    texts = [tpch.query_text(query, 0.5) for query in range(1, tpch.NUM_QUERIES + 1)]
    assert len(set(texts)) == 22
    assert not any("{" in text for text in texts)
    assert "0.0002" in texts[10]
    assert all(f"-- TPC-H Q{number}:" in text for number, text in enumerate(texts, 1))


class FakeSpark:
    """A stand-in for a Spark session that records its calls; every query has three rows."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("read", "builder", "sparkContext"):
            return self
        if name == "applicationId":
            return "app-7"

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, *arguments, *keywords.values()))
            return [1, 2, 3] if name == "collect" else self

        return call


@pytest.fixture
def fake_pyspark(monkeypatch):
    """A module ``pyspark`` whose sessions are the returned one."""
    spark = FakeSpark()
    conf = types.SimpleNamespace(setAll=lambda settings: dict(settings))
    context = types.SimpleNamespace(_ensure_initialized=lambda conf: spark.calls.append(("jvm", conf)))
    modules = {"pyspark": {"SparkConf": lambda: conf, "SparkContext": context}, "pyspark.sql": {"SparkSession": spark}}
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return spark


@pytest.fixture
def run_driver(fake_pyspark, tmp_path, monkeypatch):
    """Run a driver to its end with some input; return its exit status and its messages."""
    description = tmp_path / "q06.json"
    application = {"conf": {"b": "2", "a": "1"}, "tables": "/t/sf1", "description": "q06", "text": "select 1"}
    description.write_text(json.dumps(application))
    cpu = iter(({"busy_cpu_s": 1.0, "our_cpu_s": 0.5}, {"busy_cpu_s": 4.004, "our_cpu_s": 2.5}))
    monkeypatch.setattr(submission, "_cpu_seconds", lambda _: next(cpu))

    def run(typed: str) -> tuple[int, list[dict[str, Any]]]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        before = os.dup(1)
        channel = tmp_path / "channel"
        try:
            with channel.open("wb") as file:
                os.dup2(file.fileno(), 1)
                status = submission.main([str(description)])
                os.write(1, b"Spark says something")  # which must not reach the recorder
        finally:
            os.dup2(before, 1)
            os.close(before)
        return status, [json.loads(line) for line in channel.read_text().splitlines()]

    return run


def test_a_driver_waits_then_runs_its_query_and_tells_what_it_measured(run_driver, fake_pyspark):
    status, (ready, done) = run_driver("go\n")
    assert (status, ready) == (0, {"state": "ready"})
    assert (done["state"], done["app_id"], done["rows"]) == ("done", "app-7", 3)
    assert (done["busy_cpu_s"], done["our_cpu_s"], done["other_cpu_s"]) == (3.0, 2.0, 1.0)
    assert done["start"] >= done["opened"] > 1e9
    assert 0 <= done["wall"] < 5
    assert 0 <= done["session_up_s"] < 5
    assert done["load1"] >= 0
    conf = {"a": "1", "b": "2"}
    calls = fake_pyspark.calls
    assert calls[:3] == [("jvm", conf), ("config", conf), ("getOrCreate",)]
    views = [call[1] for call in calls if call[0] == "createOrReplaceTempView"]
    assert views == list(tpch.SCHEMAS)
    assert ("schema", tpch.SCHEMAS["nation"]) in calls
    assert ("parquet", "file:///t/sf1/nation.parquet") in calls
    assert calls[-4:] == [("setJobDescription", "q06"), ("sql", "select 1"), ("collect",), ("stop",)]


def test_a_driver_whose_recorder_is_gone_runs_nothing(run_driver, fake_pyspark):
    status, messages = run_driver("")
    assert (status, messages) == (1, [{"state": "ready"}])
    assert [call[0] for call in fake_pyspark.calls] == ["jvm"]


class CpuTimes(NamedTuple):
    user: float
    system: float
    idle: float
    iowait: float = 0.0
    steal: float = 0.0
    guest: float = 0.0
    guest_nice: float = 0.0


class FewCpuTimes(NamedTuple):
    """CPU times as on systems other than Linux."""

    user: float
    idle: float


def test_cpu_time_is_told_apart(monkeypatch):
    """The driver (pid 1), a child (2), an executor by its command line (3), one that ended (4), another program (5)."""

    class Process(types.SimpleNamespace):
        def cpu_times(self) -> CpuTimes:
            if self.pid == 4:
                raise ProcessLookupError
            return CpuTimes(user=self.pid, system=0.5, idle=0)

        def children(self, recursive: bool) -> list[Process]:
            return [Process(pid=2)] if recursive else []

    others = [(2, ["java", "app-7"]), (3, ["java", "app-7"]), (4, ["app-7"]), (5, ["app-77"]), (6, None)]
    fake = types.SimpleNamespace(
        Error=ProcessLookupError,
        Process=lambda: Process(pid=1),
        process_iter=lambda wanted: [Process(pid=pid, info={wanted[0]: line}) for pid, line in others],
        cpu_times=lambda: CpuTimes(50.0, 20.0, 100.0, iowait=7.0, steal=3.0, guest=10.0, guest_nice=1.0),
    )
    monkeypatch.setitem(sys.modules, "psutil", fake)
    busy = 50 + 20 + 3  # the user's time includes the guest's
    assert submission._cpu_seconds("app-7") == {"busy_cpu_s": busy, "our_cpu_s": 1.5 + 2.5 + 3.5, "steal_s": 3}
    fake.cpu_times = lambda: FewCpuTimes(user=5.0, idle=1.0)
    assert submission._cpu_seconds("app-7")["busy_cpu_s"] == 5.0
    assert submission._cpu_seconds("app-7")["steal_s"] == 0.0


STAY = "echo I have been elected leader, Successfully registered with master; sleep 100 & wait\n"
ECHO = 'echo "$@" >&2\nenv | grep SPARK | sort >&2\n' + STAY


@pytest.fixture
def fake_spark(tmp_path, monkeypatch):
    """Make a Spark of shell scripts, whose processes run the given script; return the folder of a cluster."""
    program = tmp_path / "spark" / "bin" / "spark-class"
    program.parent.mkdir(parents=True)

    def install(script: str) -> Path:
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)
        return tmp_path / "cluster"

    monkeypatch.setattr(spark_cluster, "spark_home", lambda: tmp_path / "spark")
    monkeypatch.setattr(spark_cluster, "java_version", lambda: "17")
    return install


def is_alive(pid: int) -> bool:
    """Return whether a process group still exists; the system may need a moment to remove it."""
    for _ in range(1200):
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


def test_a_cluster_is_stopped_with_all_that_it_started(fake_spark):
    cluster = StandaloneCluster(fake_spark(STAY), num_slots=2)
    with pytest.raises(KeyboardInterrupt), cluster:  # noqa: PT012
        pids = [process.pid for process in cluster._processes]
        assert len(pids) == 3
        assert all(process.poll() is None for process in cluster._processes)
        assert cluster.master_url.startswith("spark://127.0.0.1:")
        raise KeyboardInterrupt
    assert not any(is_alive(pid) for pid in pids)


def test_what_master_and_workers_are_started_with(fake_spark, tmp_path):
    cluster_folder = fake_spark(ECHO)
    (cluster_folder / "events").mkdir(parents=True)
    (cluster_folder / "events" / "old").touch()
    with StandaloneCluster(
        cluster_folder, num_slots=6, slot_memory_mb=100, pin=False, workers=2, settings={"spark.x": "y"}
    ) as cluster:
        assert len(cluster._processes) == 3
        logs = {log.stem: log.read_text().splitlines() for log in (cluster_folder / "logs").iterdir()}
    assert sorted(logs) == ["master", "worker0", "worker1"]
    port = cluster.master_url.rpartition(":")[2]
    master = f"org.apache.spark.deploy.master.Master --host 127.0.0.1 --port {port} --webui-port 0"
    assert logs["master"][0] == master
    assert logs["worker1"][0] == (
        "org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 --cores 3 --memory 300m "
        f"--work-dir {cluster_folder / 'work'} {cluster.master_url}"
    )
    assert set(logs["worker0"]) >= {
        f"PYSPARK_PYTHON={sys.executable}", f"SPARK_CONF_DIR={cluster_folder / 'conf'}", "SPARK_DAEMON_MEMORY=512m",
        f"SPARK_HOME={tmp_path / 'spark'}", f"SPARK_LOCAL_DIRS={cluster_folder / 'local'}",
        "SPARK_LOCAL_HOSTNAME=127.0.0.1", "SPARK_LOCAL_IP=127.0.0.1",
    }  # fmt: skip
    assert (cluster_folder / "conf" / "spark-defaults.conf").read_text() == (
        f"spark.master {cluster.master_url}\nspark.x y\n"
    )
    assert "pattern = %d{UNIX_MILLIS} %p %c{1}: %m%n%ex" in (cluster_folder / "conf" / "log4j2.properties").read_text()
    assert cluster.events_folder == cluster_folder / "events"
    assert not list(cluster.events_folder.iterdir())
    assert cluster._processes == []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="binding processes to cores needs Linux")
def test_each_slot_has_a_worker_that_is_bound_to_a_core(fake_spark):
    cores = sorted(os.sched_getaffinity(0))
    with StandaloneCluster(fake_spark(ECHO), num_slots=2) as cluster:
        bound = [os.sched_getaffinity(process.pid) for process in cluster._processes]
        workers = [(cluster.folder / "logs" / f"worker{number}.log").read_text() for number in (0, 1)]
    assert bound == [set(cores), {cores[0]}, {cores[1 % len(cores)]}]
    assert sorted(os.sched_getaffinity(0)) == cores
    for text in workers:
        assert "--cores 1 --memory 2048m" in text


@cases("script, last", ("echo port taken; exit 1\n", "port taken"), ("exec sleep 100\n", "no output"))
def test_a_cluster_that_does_not_come_up(fake_spark, monkeypatch, script, last):
    monkeypatch.setattr(spark_cluster, "_START_TIMEOUT_S", 0.3 if "sleep" in script else 600.0)
    cluster, started = StandaloneCluster(fake_spark(script), num_slots=1), time.monotonic()
    with pytest.raises(tpch.RecorderError, match=f"Spark's master did not start: {last}"), cluster:
        pass
    assert time.monotonic() - started < 500


def test_processes_say_what_they_say_in_their_log(tmp_path):
    command = ["sh", "-c", "echo out; echo error >&2; cat; echo $A"]
    process = start_process(command, tmp_path / "log", {**os.environ, "A": "b"})
    assert process.wait(600) == 0
    assert (process.stdin, process.stdout) == (None, None)
    assert sorted((tmp_path / "log").read_text().split()) == ["b", "error", "out"]
    piped = start_process(command, tmp_path / "log", {**os.environ, "A": "b"}, piped=True)
    assert piped.communicate(b"in\n") == (b"out\nin\nb\n", None)
    assert (tmp_path / "log").read_text() == "error\n"
    assert os.getpgid(0) != piped.pid


def test_a_process_that_does_not_obey_is_stopped_with_force(tmp_path):
    script = "trap '' TERM; echo ready; while true; do sleep 0.1; done"
    process = start_process(["sh", "-c", script], tmp_path / "log", dict(os.environ), piped=True)
    assert process.stdout
    assert process.stdin
    assert process.stdout.readline() == b"ready\n"
    assert os.getpgid(process.pid) == process.pid
    stop_process(process, patience_s=0.3)
    assert process.returncode == -signal.SIGKILL
    assert process.stdin.closed
    assert process.stdout.closed
    obeys = start_process(["sleep", "100"], tmp_path / "log", dict(os.environ))
    stop_process(obeys)
    assert obeys.returncode == -signal.SIGTERM


@cases(
    "version, told",
    ('openjdk version "17.0.15" 2025', "17.0.15"), ('openjdk version "21" 2025', "21"),
    ('openjdk version "11.0.2" 2025', None), ('java version "1.8.0_292"', None), ("nothing", None),
)  # fmt: skip
def test_java_is_looked_for_in_its_home_or_on_the_path(version, told, tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent), prepend=os.pathsep)
    for home in (tmp_path, None):
        monkeypatch.setenv("JAVA_HOME", str(home)) if home else monkeypatch.delenv("JAVA_HOME")
        if told:
            assert java_version() == told
        else:
            with pytest.raises(tpch.RecorderError, match=rf"Spark needs Java 17, but {java} is \['{version}'\]"):
                java_version()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(tpch.RecorderError, match="Java is not installed; Spark needs Java 17"):
        java_version()


def test_programs_that_are_missing_are_told_before_anything_is_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("workloads.spark.recorder.record.java_version", lambda: "17")
    monkeypatch.setattr(spark_tpch.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    there = {"pyspark": types.SimpleNamespace(origin="/p/__init__.py"), "psutil": None}
    monkeypatch.setattr(spark_cluster.importlib.util, "find_spec", there.get)
    for complaint in ("tpchgen-cli", "psutil", "pyspark"):
        if complaint == "psutil":
            (tmp_path / "tpchgen-cli").touch()
        if complaint == "pyspark":
            there.clear()
        assert main(["--out", str(tmp_path / "out")]) == 1
        assert capsys.readouterr().err == f"error: {complaint} is not installed: pip install -e '.[spark]'\n"
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tpchgen(tmp_path, monkeypatch):
    """A stand-in for tpchgen-cli that records its arguments and runs shell lines in the folder."""
    program = tmp_path / "bin" / "tpchgen-cli"
    program.parent.mkdir()
    monkeypatch.setattr(spark_tpch.sys, "executable", str(program.with_name("python")))

    def install(*lines: str) -> Path:
        text = "\n".join(("#!/bin/sh", f'echo "$@" >> {tmp_path}/arguments', 'cd "$5"', *lines))
        program.write_text(text + "\n")
        program.chmod(0o755)
        return tmp_path

    return install


ALL_TABLES = "touch " + " ".join(f"{table}.parquet" for table in tpch.SCHEMAS)


def test_tables_are_made_once(tpchgen):
    folder = tpchgen(ALL_TABLES, "ls .. >&2") / "out" / "tables"
    (folder / "sf0.5.part").mkdir(parents=True)
    (folder / "sf0.5.part" / "half").touch()
    target = tpch.generate_tables(folder, 0.5)
    assert target == tpch.tables_folder(folder, 0.5) == folder / "sf0.5"
    assert {file.stem for file in target.iterdir()} == set(tpch.SCHEMAS)
    assert tpch.generate_tables(folder, 0.5) == target
    arguments = folder.parents[1] / "arguments"
    assert arguments.read_text() == f"parquet -s 0.5 -o {folder}/sf0.5.part --quiet\n"
    assert not (folder / "sf0.5.part").exists()
    assert tpch.generate_tables(folder / "new", 1.0) == folder / "new" / "sf1"


@cases(
    "lines, reason",
    ((ALL_TABLES, "echo first >&2", "echo no space left >&2", "exit 3"), "no space left"),
    ((ALL_TABLES, "rm nation.parquet region.parquet"), "no region, nation"),
)
def test_tables_that_cannot_be_made(tpchgen, lines, reason):
    folder = tpchgen(*lines)
    with pytest.raises(tpch.RecorderError) as caught:
        tpch.generate_tables(folder, 1.0)
    assert str(caught.value) == f"tpchgen-cli failed: {reason}"
    assert not (folder / "sf1").exists()


def test_the_settings_of_an_application(tmp_path):
    cluster = StandaloneCluster(tmp_path, num_slots=1)
    cluster.master_url = "spark://h:1"
    conf = APPLICATION.conf(cluster)
    assert (
        conf.items()
        >= {
            "spark.master": "spark://h:1", "spark.app.name": "a", "spark.executor.cores": "1", "spark.cores.max": "3",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (tmp_path / "events").as_uri(), "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false", "spark.sql.adaptive.enabled": "false",
            "spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.files.maxPartitionBytes": "12m",
            "spark.sql.files.minPartitionNum": "1", "spark.sql.shuffle.partitions": "16",
            "spark.default.parallelism": "16", "spark.sql.leafNodeDefaultParallelism": "16",
        }.items()
    )  # fmt: skip
    at_once = Application("a", 6, 0.5, 3, LAYOUT, wait_for_executors=False).conf(cluster)
    assert at_once == conf | {"spark.scheduler.minRegisteredResourcesRatio": "0.0"}


def test_what_a_driver_is_told(tmp_path, monkeypatch):
    cluster = StandaloneCluster(tmp_path, num_slots=1)
    (tmp_path / "logs").mkdir()
    commands = []
    monkeypatch.setattr(
        "workloads.spark.recorder.submission.start_process", lambda *call, piped: commands.append((*call, piped))
    )
    monkeypatch.setattr(StandaloneCluster, "environment", lambda _: {"a": "b"})
    DriverProcess(APPLICATION, cluster, tmp_path / "tables")
    description = tmp_path / "logs" / "a.json"
    command = [sys.executable, "-m", "workloads.spark.recorder.submission", str(description)]
    assert commands == [(command, tmp_path / "logs" / "a.log", {"a": "b"}, True)]
    told = json.loads(description.read_text())
    assert told["conf"] == APPLICATION.conf(cluster)
    assert (told["tables"], told["description"]) == (str(tmp_path / "tables" / "sf0.5"), "q06")
    assert told["text"].startswith("-- TPC-H Q6:")


@cases(
    "log, error",
    ("", "no output"),
    ("a\n  b  \n\n", "b"),
    ("x.FirstException: 1\nSecondError: 2\nat z\n", "SecondError: 2"),
    ("no Error here\nthe end\n", "the end"),
)
def test_the_last_error_of_a_driver(tmp_path, log, error):
    driver = DriverProcess.__new__(DriverProcess)
    driver._log = tmp_path / "log"
    driver._log.write_text(log)
    assert driver._last_error() == error


DRIVER = """
import json, pathlib, shutil, sys, time
name = pathlib.Path(sys.argv[1]).stem
print(json.dumps({"state": "ready"}), flush=True)
sys.stdin.readline()
"""
GOOD = """
shutil.copy(sys.argv[2], pathlib.Path(sys.argv[1]).parents[1] / "events" / name)
print("1700 INFO StandaloneSchedulerBackend: Granted executor ID app-1/0 on h", file=sys.stderr, flush=True)
print(json.dumps({"state": "done", "app_id": name, "start": time.time(), "wall": 2.0}), flush=True)
"""
BAD = """
print("org.x.Cause: no\\nat y\\njava.lang.OutOfMemoryError: heap\\nat z", file=sys.stderr)
sys.exit(1)
"""


@pytest.fixture
def fake_driver(tmp_path, monkeypatch):
    """Return a cluster in which drivers are the given script."""
    cluster = StandaloneCluster(tmp_path / "cluster", num_slots=2)
    for folder in (cluster.folder / "logs", cluster.events_folder, tmp_path / "eventlogs"):
        folder.mkdir(parents=True)
    log = small_log().write(tmp_path / "app-1")
    started = []

    def install(script: str) -> StandaloneCluster:
        def start(command, *arguments, piped):
            command = [sys.executable, "-c", script, command[-1], str(log)]
            started.append(spark_cluster.start_process(command, *arguments, piped=piped))
            return started[-1]

        monkeypatch.setattr(submission, "start_process", start)
        monkeypatch.setattr(StandaloneCluster, "environment", lambda _: dict(os.environ))
        return cluster

    yield install
    assert not any(is_alive(process.pid) for process in started)


def test_one_run(fake_driver, tmp_path):
    cluster = fake_driver(DRIVER + GOOD)
    record = record_run(APPLICATION, cluster, tables=tmp_path, logs=tmp_path / "eventlogs", timeout_s=600)
    assert record["log"] == "a.json.gz"
    assert (record["query"], record["n"], record["layout"], record["wall"]) == (6, 3, "12m/16", 2.0)
    [application] = read_event_log(tmp_path / "eventlogs")
    assert application.executors[0].requested_ms == 1700.0
    assert not list(cluster.events_folder.iterdir())


def test_a_mixture(fake_driver, tmp_path):
    [mixture] = random_mixtures(1, 3, 0.1, 1, queries=[6], scale_factors=[1.0], layout=LAYOUT, executors=[1])
    cluster = fake_driver(DRIVER + GOOD)
    record = record_mixture(mixture, cluster, tables=tmp_path, logs=tmp_path / "eventlogs", timeout_s=600)
    applications = record["applications"]
    assert record["executors"] == 2
    for application, planned in zip(applications, mixture.submit_s, strict=True):
        assert planned <= application["submit_s"] < planned + 60
    assert record["makespan_s"] == applications[-1]["done_s"]
    # The driver reports 2 s; times are rounded, and from two clocks.
    assert 1.9 < applications[-1]["done_s"] - applications[-1]["submit_s"] < 62
    assert [log.name for log in sorted((tmp_path / "eventlogs").iterdir())] == [
        application["log"] for application in applications
    ]


@cases(
    "script, complaint",
    ("import sys" + BAD, "a: the driver failed: java.lang.OutOfMemoryError: heap"),
    (DRIVER + BAD, "a: the driver failed: java.lang.OutOfMemoryError: heap"),
    (DRIVER + 'print(json.dumps({"state": "ready"}), flush=True)', "a: expected to be done, got"),
)
def test_a_run_that_fails(script, complaint, fake_driver, tmp_path):
    cluster = fake_driver(script)
    with pytest.raises(tpch.RecorderError) as caught:
        record_run(APPLICATION, cluster, tables=tmp_path, logs=tmp_path / "eventlogs", timeout_s=600)
    assert str(caught.value).startswith(complaint)


def test_a_run_that_takes_too_long(fake_driver, tmp_path):
    cluster = fake_driver(DRIVER + "time.sleep(100)")
    with pytest.raises(tpch.RecorderError, match=r"a: not done after 0\.5 s"):
        record_run(APPLICATION, cluster, tables=tmp_path, logs=tmp_path / "eventlogs", timeout_s=0.5)


def test_slimming_leaves_out_only_what_is_bulky(tmp_path):
    log = small_log(name="slim")
    [job] = [event for event in log.events if event["Event"].endswith("JobStart")]
    kept = {"spark.sql.execution.id": "0", "spark.job.description": "q", "spark.scheduler.pool": "p"}
    job["Properties"] = kept | {"spark.app.name": "x"}
    job["Stage Infos"][0]["RDD Info"][0]["Storage Level"] = {"Use Disk": False}
    job["Stage Infos"][0]["Details"] = "at x"
    noted = {"query": 6, "executors": {"0": {"granted": 9}}}
    for target in ("slim.gz", "again.gz"):
        slim_event_log(log.write(tmp_path / "log"), tmp_path / target, noted)
    assert (tmp_path / "slim.gz").read_bytes() == (tmp_path / "again.gz").read_bytes()
    assert (tmp_path / "slim.gz").read_bytes()[4:8] == bytes(4)  # no time stamp
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.gz", "log", "slim.gz"]
    [slim] = find_event_logs(tmp_path / "slim.gz")
    names = frozenset({"RunMeta", *(event["Event"] for event in log.events)})
    found = [event for _, _, event in events(slim, names, Problems(partial=False))]
    assert found[0] == {"Event": "RunMeta", **noted}
    assert len(found) == len(log.events) + 1
    [start] = [event for event in found if event["Event"].endswith("JobStart")]
    assert start["Properties"] == kept
    assert set(start["Stage Infos"][0]) == set(job["Stage Infos"][0]) - {"Details"}
    assert start["Stage Infos"][0]["RDD Info"][1] == job["Stage Infos"][0]["RDD Info"][1]
    assert "Storage Level" not in start["Stage Infos"][0]["RDD Info"][0]
    slim_event_log(log.add("Unknown", x=1).write(tmp_path / "log"), tmp_path / "slim.gz", noted)
    [[whole], [small]] = map(read_event_log, (tmp_path / "log", tmp_path / "slim.gz"))
    assert small.report.ignored_events == {}
    assert small.queries[0].tasks.equals(whole.queries[0].tasks)
    assert small.queries[0].stages == whole.queries[0].stages


def needs_spark() -> str | None:
    """Return the reason why Spark cannot run here; None if it can."""
    missing = [name for name in ("pyspark", "psutil", "zstandard") if importlib.util.find_spec(name) is None]
    if missing:
        return f"needs {', '.join(missing)} of the extra [spark]"
    try:
        java_version()
        tpch.tpchgen_program()
    except tpch.RecorderError as error:
        return str(error)
    return None


@pytest.mark.slow
@pytest.mark.skipif(needs_spark() is not None, reason=str(needs_spark()))
def test_a_query_on_real_spark(tmp_path):
    command = [sys.executable, "-m", "workloads.spark.recorder", "--out", str(tmp_path / "out")]
    command += ["--queries", "6", "--scale-factors", "0.01", "--executors", "1", "--layouts", "4m/2"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert {table.stem for table in (tmp_path / "out/tables/sf0.01").iterdir()} == set(tpch.SCHEMAS)
    content = json.loads((tmp_path / "out" / "manifest.json").read_text())
    [(name, run)] = content["runs"].items()
    assert name == "q06_sf0.01_4mx2_n1_r1"
    assert run["rows"] == 1
    assert content["campaigns"][0]["machine"]["cores"] == os.cpu_count()
    [application] = read_event_log(tmp_path / "out" / "eventlogs")
    [query] = application.queries
    assert query.name == "q06"
    assert query.wall_ms / 1e3 <= run["wall"]
    assert 100 < application.executors[0].startup_ms < 60_000
    assert matched([query]).edges.tolist() == [[0, 1]]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.stdout == "0 to record, 1 done before\n"
