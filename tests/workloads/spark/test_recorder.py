"""The recorder: what it records, and how it starts, stops and fails; with stand-ins for Spark's processes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workloads.spark.logs import small_log
from workloads.spark.eventlog import read_event_log
from workloads.spark.query import matched
from workloads.spark.recorder import cluster as spark_cluster
from workloads.spark.recorder import record as spark_recorder
from workloads.spark.recorder import submission as spark_submission
from workloads.spark.recorder import tpch as spark_tpch
from workloads.spark.recorder.cluster import StandaloneCluster, java_version
from workloads.spark.recorder.record import (
    Manifest,
    main,
    random_mixtures,
    record_mixture,
    record_run,
    single_runs,
)
from workloads.spark.recorder.submission import Application, Layout, slim_event_log
from workloads.spark.recorder.tpch import (
    NUM_QUERIES,
    SCHEMAS,
    RecorderError,
    generate_tables,
    query_text,
    tpchgen_program,
)

LAYOUT = Layout("12m", 16)


def test_queries():
    texts = [query_text(query, 0.5) for query in range(1, NUM_QUERIES + 1)]
    assert len(set(texts)) == 22
    assert not any("{" in text for text in texts)
    assert "0.0002" in texts[10]
    assert all(f"-- TPC-H Q{number}:" in text for number, text in enumerate(texts, 1))


def test_single_runs_come_in_whole_rounds():
    runs = single_runs([1, 22], [0.5, 2.0], [1, 2], [LAYOUT], repetitions=2)
    assert len(runs) == len({run.name for run in runs}) == 16
    assert [run.name for run in runs[:3]] == [
        "q01_sf0.5_12mx16_n1_r1",
        "q22_sf0.5_12mx16_n1_r1",
        "q01_sf0.5_12mx16_n2_r1",
    ]
    assert all(run.name.endswith("_r1") for run in runs[:8])
    assert all(run.wait_for_executors for run in runs)


def draw(count: int, seed: int = 1):
    return random_mixtures(
        count, 4, 10.0, seed, queries=[1, 2, 3], scale_factors=[1.0], layout=LAYOUT, executors=[1, 2]
    )


def test_mixtures_are_drawn_alike_whatever_their_number():
    few, many = draw(2), draw(5)
    assert few == many[:4]
    assert draw(1, seed=2)[0].submit_s != few[0].submit_s
    assert few[0].submit_s[0] == 0.0
    assert list(few[0].submit_s) == sorted(few[0].submit_s)


def test_a_mixture_is_recorded_with_every_number_of_executors():
    one, two = draw(1)
    assert one.submit_s == two.submit_s
    assert [application.query for application in one.applications] == [
        application.query for application in two.applications
    ]
    assert [mixture.applications[0].executors for mixture in (one, two)] == [1, 2]
    assert not one.applications[0].wait_for_executors


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--queries", "0-3"], "the queries are 1 to 22"),
        (["--queries", "x"], "'x' is not a list such as"),
        (["--layouts", "12/16"], "a layout is written as in 12m/16, not '12/16'"),
        (["--scale-factors", "1,-1"], "-1 is not positive"),
        (["--executors", "0"], "0 is not positive"),
    ],
)
def test_a_wrong_command_line(arguments, complaint, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), *arguments])
    assert complaint in capsys.readouterr().err


def test_slimming_keeps_all_that_is_read(tmp_path):
    log = small_log()
    for event in log.events:
        event["Accumulables"] = "a" * 5000
    log.add("Unknown", x=1).write(tmp_path / "whole")
    slim_event_log(
        tmp_path / "whole", tmp_path / "slim.json.gz", {"query": 6, "executors": {"0": {"granted": 9}}}
    )
    [whole] = read_event_log(tmp_path / "whole")
    [slim] = read_event_log(tmp_path / "slim.json.gz")
    assert (tmp_path / "slim.json.gz").stat().st_size < 2000
    assert slim.recording["query"] == 6
    assert slim.executors[0].requested_ms == 9.0
    assert slim.report.ignored_events == {}
    assert slim.queries[0].tasks.equals(whole.queries[0].tasks)
    assert slim.queries[0].stages == whole.queries[0].stages


def test_the_manifest_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("workloads.spark.recorder.record._machine", dict)
    monkeypatch.setattr("workloads.spark.recorder.record._versions", dict)
    first = Manifest(tmp_path / "manifest.json")
    first.begin_campaign(["record", "a b"])
    first.add("runs", "q01", {"wall": 1.0})
    second = Manifest(tmp_path / "manifest.json")
    second.begin_campaign(["record"])
    second.add("mixtures", "mix", {"makespan_s": 2.0})
    assert second.has("runs", "q01")
    assert not second.has("runs", "mix")
    content = json.loads((tmp_path / "manifest.json").read_text())
    assert content["runs"] == {"q01": {"wall": 1.0, "campaign": 0}}
    assert content["mixtures"] == {"mix": {"makespan_s": 2.0, "campaign": 1}}
    assert content["campaigns"][0]["command"] == "record 'a b'"


@pytest.mark.parametrize("content", ["x", "[]", "{}", '{"format": 2}'])
def test_a_file_that_is_no_manifest(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RecorderError, match=r"manifest\.json: not a manifest"):
        Manifest(tmp_path / "manifest.json")


def test_without_java(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == "error: Java is not installed; Spark needs Java 17\n"


@pytest.mark.parametrize(
    ("version", "good"), [("1.8.0_292", False), ("11.0.2", False), ("17.0.15", True), ("21", True)]
)
def test_the_version_of_java(version, good, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if good:
        assert java_version() == version
    else:
        with pytest.raises(RecorderError, match=r"needs Java 17, but .* is .*version"):
            java_version()


def test_without_pyspark(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(spark_recorder, "java_version", lambda: "17")
    monkeypatch.setattr(spark_cluster.importlib.util, "find_spec", lambda _: None)
    assert main(["--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "error: pyspark is not installed: pip install -e '.[spark]'\n"


def test_without_tpchgen(tmp_path, monkeypatch):
    monkeypatch.setattr(spark_tpch.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RecorderError, match="tpchgen-cli is not installed"):
        generate_tables(tmp_path, 1.0)


@pytest.fixture
def fake_spark(tmp_path, monkeypatch):
    """A Spark of shell scripts: processes that say what the real ones say, and stay."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)

    def install(script: str) -> Path:
        program = home / "bin" / "spark-class"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)
        return tmp_path / "cluster"

    monkeypatch.setattr(spark_cluster, "spark_home", lambda: home)
    monkeypatch.setattr(spark_cluster, "java_version", lambda: "17")
    return install


STAY = "echo I have been elected leader, Successfully registered with master; sleep 100 & wait\n"


def is_alive(pid: int) -> bool:
    """Whether a process group still exists; the system may take a moment to forget what has ended."""
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


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="binding processes to cores needs Linux")
def test_slots_are_bound_to_cores(fake_spark):
    cores = sorted(os.sched_getaffinity(0))
    with StandaloneCluster(fake_spark(STAY), num_slots=2) as cluster:
        bound = [os.sched_getaffinity(process.pid) for process in cluster._processes]
    assert bound == [set(cores), {cores[0]}, {cores[1 % len(cores)]}]
    assert sorted(os.sched_getaffinity(0)) == cores


def test_a_cluster_that_does_not_come_up(fake_spark):
    cluster = StandaloneCluster(fake_spark("echo port taken; exit 1\n"), num_slots=1)
    with pytest.raises(RecorderError, match="Spark's master did not come up: port taken"), cluster:
        pass


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
    """A cluster in which drivers are the given script."""
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

        monkeypatch.setattr(spark_submission, "start_process", start)
        monkeypatch.setattr(StandaloneCluster, "environment", lambda _: dict(os.environ))
        return cluster

    yield install
    assert not any(is_alive(process.pid) for process in started)


APPLICATION = Application("a", 6, 1.0, 1, LAYOUT, wait_for_executors=True)


def test_one_run(fake_driver, tmp_path):
    cluster = fake_driver(DRIVER + GOOD)
    record = record_run(APPLICATION, cluster, tables=tmp_path, logs=tmp_path / "eventlogs", timeout_s=600)
    assert record["log"] == "a.json.gz"
    assert (record["query"], record["n"], record["layout"], record["wall"]) == (6, 1, "12m/16", 2.0)
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
    # The driver reports 2 s; times are rounded, and of two clocks.
    assert 1.9 < applications[-1]["done_s"] - applications[-1]["submit_s"] < 62
    assert [log.name for log in sorted((tmp_path / "eventlogs").iterdir())] == [
        application["log"] for application in applications
    ]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("import sys" + BAD, "a: the driver failed: java.lang.OutOfMemoryError: heap"),
        (DRIVER + BAD, "a: the driver failed: java.lang.OutOfMemoryError: heap"),
        (DRIVER + 'print(json.dumps({"state": "ready"}), flush=True)', "a: expected to be done, got"),
    ],
)
def test_a_run_that_fails(script, complaint, fake_driver, tmp_path):
    cluster = fake_driver(script)
    with pytest.raises(RecorderError) as caught:
        record_run(APPLICATION, cluster, tables=tmp_path, logs=tmp_path / "eventlogs", timeout_s=600)
    assert str(caught.value).startswith(complaint)


def test_a_run_that_takes_too_long(fake_driver, tmp_path):
    cluster = fake_driver(DRIVER + "time.sleep(100)")
    with pytest.raises(RecorderError, match=r"a: not done after 0\.5 s"):
        record_run(APPLICATION, cluster, tables=tmp_path, logs=tmp_path / "eventlogs", timeout_s=0.5)


def needs_spark() -> str | None:
    """Why Spark cannot run here; None if it can."""
    missing = [name for name in ("pyspark", "psutil", "zstandard") if importlib.util.find_spec(name) is None]
    if missing:
        return f"needs {', '.join(missing)} of the extra [spark]"
    try:
        java_version()
        tpchgen_program()
    except RecorderError as error:
        return str(error)
    return None


@pytest.mark.slow
@pytest.mark.skipif(needs_spark() is not None, reason=str(needs_spark()))
def test_a_query_on_real_spark(tmp_path):
    command = [sys.executable, "-m", "workloads.spark.recorder", "--out", str(tmp_path / "out")]
    command += ["--queries", "6", "--scale-factors", "0.01", "--executors", "1", "--layouts", "4m/2"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert {table.stem for table in (tmp_path / "out/tables/sf0.01").iterdir()} == set(SCHEMAS)
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
