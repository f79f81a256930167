"""The recorder's command line, and a whole recording, with stand-ins for the cluster and the applications."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.cases import cases
from workloads.errors import DecimaError
from workloads.spark.recorder import record as recorder
from workloads.spark.recorder.record import Manifest, Mixture, main, random_mixtures, single_runs
from workloads.spark.recorder.submission import Layout
from workloads.spark.recorder.tpch import RecorderError

MIXTURES = (("00", 1), ("00", 2), ("01", 1))


class Cluster:
    """A stand-in for the cluster that records how it was started."""

    started: ClassVar[list[tuple[Path, int, bool]]] = []

    def __init__(self, folder: Path, num_slots: int, *, pin: bool) -> None:
        self.folder, self.num_slots = folder, num_slots
        self.started.append((folder, num_slots, pin))

    def __enter__(self) -> Cluster:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Recordings as (name, tables, logs, timeout); applications of query 13 fail."""
    found: list[tuple[str, Path, Path, float]] = []

    def run(application: Any, cluster: Any, *, tables: Path, logs: Path, timeout_s: float) -> dict[str, Any]:
        found.append((application.name, tables, logs, timeout_s))
        if application.query == 13:
            raise RecorderError("q13 is unlucky")
        return {"wall": 1.25, "rows": 7, "other_cpu_s": 0.5}

    def mixture(mixture: Any, cluster: Any, **common: Any) -> dict[str, Any]:
        found.append((mixture.name, *common.values()))
        return {"makespan_s": 3.0, "applications": list(mixture.applications)[:0]}

    def tables(folder: Path, scale_factor: float) -> Path:
        target = folder / f"sf{scale_factor:g}"
        target.mkdir(parents=True, exist_ok=True)
        (target / "region.parquet").write_bytes(b"x")
        return target

    Cluster.started.clear()
    for name, value in (
        ("_check_programs", lambda: None),
        ("StandaloneCluster", Cluster),
        ("record_run", run),
        ("record_mixture", mixture),
        ("generate_tables", tables),
    ):
        monkeypatch.setattr(recorder, name, value)
    monkeypatch.setattr("workloads.spark.recorder.record._machine", dict)
    monkeypatch.setattr("workloads.spark.recorder.record._versions", dict)
    return found


def test_a_recording(calls, tmp_path, capsys):
    command = ["--out", str(tmp_path / "out"), "--queries", "1,3", "--executors", "1", "--mixtures", "1"]
    command += ["--mixture-executors", "3", "--scale-factors", "0.5,2"]
    assert main(command) == 0
    out = (tmp_path / "out").resolve()
    names = [f"q{query:02d}_sf{size}_12mx16_n1_r1" for size in ("0.5", "2") for query in (1, 3)]
    assert calls == [(name, out / "tables", out / "eventlogs", 900.0) for name in [*names, "mix1.00_12mx16_n3"]]
    assert Cluster.started == [(out / "cluster", 3, True)]
    assert sorted(entry.name for entry in out.iterdir()) == ["eventlogs", "manifest.json", "tables"]
    assert [entry.name for entry in sorted((out / "tables").iterdir())] == ["sf0.5", "sf2"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "5 to record, 0 done before"
    assert lines[1] == f"1/5 {names[0]}: 1.2 s, 7 rows, 0.5 s CPU of other programs"
    assert lines[5] == "5/5 mix1.00_12mx16_n3: 0 applications in 3.0 s"
    content = json.loads((out / "manifest.json").read_text())
    assert (list(content["runs"]), list(content["mixtures"])) == (names, ["mix1.00_12mx16_n3"])
    [campaign] = content["campaigns"]
    assert campaign["command"].startswith("python -m workloads.spark.recorder --out ")
    assert main([*command, "--queries", "1"]) == 0
    assert capsys.readouterr().out == "0 to record, 3 done before\n"
    assert len(Cluster.started) == 1


def test_a_recording_with_failures_says_how_many_and_repeats_them(calls, tmp_path, capsys):
    command = ["--out", str(tmp_path), "--queries", "12-14", "--executors", "2", "--no-pin", "--timeout", "5"]
    command += ["--tables", str(tmp_path / "mine")]
    assert main(command) == 1
    assert Cluster.started == [(tmp_path.resolve() / "cluster", 2, False)]
    assert [call[0][:3] for call in calls] == ["q12", "q13", "q14"]
    assert {call[1:] for call in calls} == {((tmp_path / "mine").resolve(), tmp_path / "eventlogs", 5.0)}
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "2/3 failed: q13 is unlucky",
        "error: 1 of 3 failed; run the command again to repeat them",
    ]
    assert (tmp_path / "cluster").is_dir()  # its logs show the reason
    (tmp_path / "cluster").rmdir()
    calls.clear()
    assert main(command) == 1
    assert [call[0][:3] for call in calls] == ["q13"]
    assert capsys.readouterr().out == "1 to record, 2 done before\n"


def test_a_recording_can_be_stopped(calls, tmp_path, monkeypatch, capsys):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "record_run", stop)
    assert main(["--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "stopped; run the command again to continue\n"


def test_defaults_of_the_command_line():
    options = vars(recorder._parser().parse_args(["--out", "x"]))
    assert options == {
        "out": Path("x"), "tables": None, "queries": list(range(1, 23)), "scale_factors": [1.0], "executors": [1, 2],
        "runs": 1, "layouts": [Layout("12m", 16)], "mixtures": 0, "applications": 5, "mean_interval": 10.0, "seed": 1,
        "mixture_executors": [1, 2], "timeout": 900.0, "pin": True,
    }  # fmt: skip


@pytest.mark.parametrize(("text", "queries"), [("1", [1]), ("1-3,22", [1, 2, 3, 22]), ("5,2", [5, 2]), ("7-7", [7])])
def test_queries_are_numbers_and_ranges(text, queries):
    assert recorder._parser().parse_args(["--out", "x", "--queries", text]).queries == queries


def test_settings_and_mixtures_of_runs():
    for text in ("12m/16", "1k/1", "3g/200"):
        assert str(Layout.parse(text)) == text
    one, two = draw(1)
    assert [one, two] == draw(3)[:2]
    assert draw(1, seed=2)[0].submit_s != one.submit_s == two.submit_s
    assert [each.query for each in one.applications] == [each.query for each in two.applications]
    assert [{each.executors for each in mixture.applications} for mixture in (one, two)] == [{1}, {2}]
    layouts = [Layout("12m", 16), Layout("3m", 4)]
    runs = single_runs([4, 5], [0.5], [2, 3], layouts, repetitions=2)
    settings = [(run.query, run.executors, run.layout, run.name[-1]) for run in runs]
    assert settings == [
        (query, executors, layout, repetition)
        for repetition in "12"
        for layout in layouts
        for executors in (2, 3)
        for query in (4, 5)
    ]
    assert runs[-1].name == "q05_sf0.5_3mx4_n3_r2"
    assert all(run.wait_for_executors for run in runs)
    mixtures = draw(30, seed=7)
    assert [mixture.name for mixture in mixtures[:3]] == [f"mix7.{n}_12mx16_n{k}" for n, k in MIXTURES]
    assert {len(mixture.applications) for mixture in mixtures} == {len(mixtures[0].submit_s)} == {6}
    assert {mixture.submit_s[0] for mixture in mixtures} == {0.0}
    gaps = [gap for mixture in mixtures for gap in np.diff(mixture.submit_s)]
    assert min(gaps) >= 0
    assert sum(gaps) / len(gaps) == pytest.approx(4.0, rel=0.25)
    applications = [application for mixture in mixtures for application in mixture.applications]
    assert [application.name[-4:] for application in applications[:3]] == ["_a00", "_a01", "_a02"]
    assert {application.query for application in applications} == {1, 2, 3}
    assert {application.scale_factor for application in applications} == {1.0, 2.0}
    assert not any(application.wait_for_executors for application in applications)


@cases(
    "option, texts, complaint",
    ("--queries", ("", "1,,2", "a-3", "x"), "is not a list such as 1,3,5-9"),
    ("--queries", ("0", "23", "3-1", "1-23", "0-1"), "the queries are 1 to 22"),
    ("--layouts", ("12m/0", "12/16", "12m", "12m/16/3", "m/1", "12t/1", "12m/x"),
     "a layout is written as in 12m/16, not '{}'"),
    ("--scale-factors", ("0", "-1", "1,-1", "nan"), "is not a number above 0"),
    ("--scale-factors", ("x",), "'x' is not a number above 0"),
    ("--executors", ("0", "2,-1"), "is not a whole number above 0"),
)  # fmt: skip
def test_a_wrong_command_line(option, texts, complaint, capsys):
    for text in texts:
        with pytest.raises(SystemExit):
            main(["--out", "x", f"{option}={text}"])
        assert complaint.format(text) in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
    assert "required: --out" in capsys.readouterr().err


def draw(count: int, seed: int = 1) -> list[Mixture]:
    settings: dict[str, Any] = {"queries": [1, 2, 3], "scale_factors": [1.0, 2.0], "executors": [1, 2]}
    return random_mixtures(count, 6, 4.0, seed, layout=Layout("12m", 16), **settings)


def test_the_manifest_goes_on_and_is_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("workloads.spark.recorder.record._machine", lambda: {"cores": 2})
    monkeypatch.setattr("workloads.spark.recorder.record._versions", lambda: {"java": "17"})
    first = Manifest(tmp_path / "manifest.json")
    assert first.content == {"format": 1, "campaigns": [], "runs": {}, "mixtures": {}}
    first.begin_campaign(["record", "a b"])
    first.add("runs", "q01", {"wall": 1.0})
    second = Manifest(tmp_path / "manifest.json")
    second.begin_campaign(["record"])
    second.add("mixtures", "mix", {"makespan_s": 2.0})
    assert second.has("runs", "q01")
    assert not second.has("runs", "mix")
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]
    content = json.loads((tmp_path / "manifest.json").read_text())
    assert content == second.content
    assert content["runs"] == {"q01": {"wall": 1.0, "campaign": 0}}
    assert content["mixtures"] == {"mix": {"makespan_s": 2.0, "campaign": 1}}
    campaign, _ = content["campaigns"]
    assert (campaign["command"], campaign["machine"]) == ("record 'a b'", {"cores": 2})
    assert campaign["versions"] == {"java": "17"}
    assert campaign["date"].endswith("+00:00")
    assert len(campaign["date"]) == len("2024-01-01T00:00:00+00:00")


@cases(
    "content, message",
    ("x", "line 1, column 1: Expecting value"),
    ("[]", "not a manifest"),
    ("{}", "not a manifest"),
    ('{"format": 2}', "not a manifest"),
)
def test_a_file_that_is_no_manifest(tmp_path, content, message):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DecimaError, match=rf"manifest\.json: {message}"):
        Manifest(tmp_path / "manifest.json")


def test_the_manifest_tells_of_the_machine(monkeypatch):
    psutil = pytest.importorskip("psutil", reason="needs the extra [spark]")
    machine = recorder._machine()
    assert list(machine) == ["cpu", "cores", "memory_bytes", "system"]
    assert (machine["cores"], machine["memory_bytes"]) == (os.cpu_count(), psutil.virtual_memory().total)
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and "model name" in cpu.read_text():
        assert f": {machine['cpu']}\n" in cpu.read_text()
    monkeypatch.setattr(recorder, "java_version", lambda: "17.1")
    monkeypatch.setattr(recorder.importlib.metadata, "version", lambda name: f"{name} 1")
    versions = recorder._versions()
    assert (versions["java"], versions["pyspark"], versions["decima"]) == ("17.1", "pyspark 1", "decima-scheduler 1")
    assert list(versions) == ["java", "python", "pyspark", "tpchgen-cli", "decima"]
