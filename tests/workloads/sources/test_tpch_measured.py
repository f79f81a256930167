"""The embedded TPC-H set: contents, construction, and comparison with the published set."""

import gzip
import json
import runpy
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from workloads import Wave, WorkloadError, embedded_tpch, load_tpch, read_workload
from workloads.sources import tpch_build
from workloads.sources.open import embedded_workload
from workloads.sources.tpch import DEFAULT_SIZES
from workloads.sources.tpch_build import _command, _megabytes, _parser, _provenance, _run, build, main, read_recordings

DATA = Path(str(files("workloads"))) / "data"


def test_queries_files_and_work_of_the_embedded_set():
    names = [f"tpch-q{query}-{size}" for size in DEFAULT_SIZES for query in range(1, 23)]
    assert [profile.name for profile in embedded_tpch()] == names
    [chosen] = embedded_tpch(sizes=["10g"], queries=[7])
    assert chosen.name == "tpch-q7-10g"
    assert chosen is embedded_tpch()[2 * 22 + 6]
    found = [path for path in DATA.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in found) < 2_000_000
    assert {path.suffix for path in found} <= {".sql", ".gz"}
    work = np.array([profile.work_ms for profile in embedded_tpch()]).reshape(6, 22)
    assert (np.diff(work, axis=0) > 0).all()
    assert (work[5] > 2 * work[0]).all()


@pytest.mark.parametrize("wrong", [{"sizes": ["80g"]}, {"queries": [23]}])
def test_what_is_not_there(wrong):
    with pytest.raises(WorkloadError, match="in the embedded set, expected queries 1 to 22 at 2g, 5g, "):
        embedded_tpch(**wrong)


def test_the_embedded_set_says_where_it_comes_from() -> None:
    about = embedded_workload().about
    assert {"measured", "extrapolated", "recordings", "model", "built_by"} <= about.keys()
    for recorded in about["recordings"]:
        assert recorded["spark"]
        assert recorded["dates"]
        assert recorded["executors"]
        assert recorded["runs"] >= 22
    assert about["model"]["shuffle_ms_per_mb"] > 0
    text = json.dumps(about)
    assert "/home" not in text
    assert "/tmp" not in text
    assert "/work" not in text
    options = _parser().parse_args(["one", "other", "--out", "file.json", "--plans", "log"])
    assert " ".join(_command(options)) == about["built_by"]
    defaults = build.__kwdefaults__
    assert options.sizes == list(defaults["sizes_gb"])
    assert (options.split, options.partitions) == (defaults["split"], defaults["shuffle_partitions"])
    assert options.most_executors == defaults["most_executors"]


def test_durations_by_wave_and_level():
    for profile in embedded_tpch(sizes=["2g", "100g"]):
        for stage in profile.stages:
            assert stage.durations.levels.tolist() == [1, 5, 10, 20, 40, 50, 60, 80, 100]
            means = np.array([[cell.mean() for cell in stage.durations.table(wave).values()] for wave in Wave])
            assert (means[Wave.FRESH] >= means[Wave.FIRST]).all()
            assert (means[Wave.FIRST] >= means[Wave.REST] - 1).all()
            assert (np.diff(means[Wave.REST]) >= -1).all()
            assert means[Wave.FRESH].min() > 500


def test_stages_have_operators_and_bytes():
    for profile in embedded_tpch():
        for stage, parents in zip(profile.stages, profile.parents, strict=True):
            assert stage.operators
            assert "WholeStageCodegen" not in stage.operators
            assert stage.input_bytes > 0 or parents
            assert (stage.shuffle_bytes > 0) <= bool(parents)
    small, large = (embedded_tpch([size], [6])[0].stages[0] for size in ("2g", "100g"))
    assert large.input_bytes == pytest.approx(50 * small.input_bytes, rel=0.02)


def ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values))


def test_it_is_like_the_published_set(shared):
    published, ours = load_tpch(shared("tpch")), embedded_tpch()
    assert [profile.name for profile in published] == [profile.name for profile in ours]
    work = np.array([[profile.work_ms for profile in profiles] for profiles in (published, ours)])
    assert np.corrcoef(ranks(work[0]), ranks(work[1]))[0, 1] > 0.6
    stages = np.array([[profile.num_stages for profile in profiles] for profiles in (published, ours)])
    ratio = stages[1, :22] / stages[0, :22]
    assert ((ratio >= 0.5) & (ratio <= 2)).sum() >= 18
    tasks = np.array([[profile.num_tasks for profile in profiles] for profiles in (published, ours)])
    assert tasks[1].mean() == pytest.approx(tasks[0].mean(), rel=0.25)


@pytest.fixture(scope="session")
def few_recordings(shared, tmp_path_factory) -> Path:
    """Return a folder with links to the runs of three queries."""
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "eventlogs").mkdir()
    for query in (1, 9, 22):
        for log in shared("spark/eventlogs").glob(f"q{query:02d}_*.json.gz"):
            (folder / "eventlogs" / log.name).symlink_to(log.resolve())
    return folder


def test_the_same_recordings_give_the_same_file(few_recordings, tmp_path, capsys):
    arguments = [str(few_recordings), "--sizes", "2,50", "--set", "fresh_ms=900", "--note", "a test"]
    for name in ("one.json.gz", "other.json.gz"):
        assert main([*arguments, "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "other.json.gz").read_bytes()
    assert "6 profiles" in capsys.readouterr().out
    built = read_workload(tmp_path / "one.json.gz")
    assert [profile.name for profile in built.profiles[:2]] == ["tpch-q1-2g", "tpch-q9-2g"]
    assert built.name == "tpch (extrapolated from Spark at 1 and 2 GB)"
    assert [profile.num_tasks for profile in built.profiles] == [418, 1625, 617, 751, 2125, 770]
    assert (built.about["model"]["fresh_ms"], built.about["notes"]) == (900, ["a test"])
    assert "with 1 executor(s)" in built.about["measured"]
    assert built.about["recordings"] == [
        {
            "runs": 12, "scale_factors": [1.0], "executors": [1, 2, 4], "layouts": ["12m/16"],
            "dates": ["2026-11-20"], "spark": ["3.5.9"], "executor_startup_ms": 2889,
        }
    ]  # fmt: skip
    assert built.about["built_by"] == (
        "python -m workloads.sources.tpch_build DIR --out FILE --sizes 2,50 --split 32m --partitions 200 "
        "--most-executors 1 --set fresh_ms=900"
    )


def test_plans_only_add_operators(few_recordings, tmp_path):
    plans = Path(__file__).parents[3] / "recordings" / "plans" / "tpch-sf0.02.json.gz"
    entries = []
    for name, more in (("without", []), ("with", ["--plans", str(plans)])):
        assert main([str(few_recordings), "--sizes", "2", *more, "--out", str(tmp_path / f"{name}.json")]) == 0
        file = json.loads((tmp_path / f"{name}.json").read_text())
        entries.append([stage for profile in file["profiles"].values() for stage in profile["stages"]])
    operators = [[stage.pop("operators") for stage in stages] for stages in entries]
    assert entries[0] == entries[1]
    embedded = embedded_tpch(["2g"], [1, 9, 22])
    assert operators[1] == [list(stage.operators) for profile in embedded for stage in profile.stages]
    assert operators[0] != operators[1]  # compiled operators are only known from plans


def test_the_program_takes_its_arguments_and_ends_with_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tpch_build", str(tmp_path / "none"), "--out", str(tmp_path / "o.json")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(tpch_build.__file__, run_name="__main__")
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'none'}")


@pytest.mark.parametrize(("size", "megabytes"), [("32m", 33.554432), ("3k", 0.003072), ("2g", 2147.483648), ("0m", 0)])
def test_sizes_are_written_as_spark_does(size: str, megabytes: float) -> None:
    assert _megabytes(size) == pytest.approx(megabytes)


@pytest.mark.parametrize("size", ["32", "m", "32M", "1.5m", "32mb", ""])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(WorkloadError, match=f"^a size is written as in 32m, not {size!r}$"):
        _megabytes(size)


def test_mixtures_are_left_out_and_more_executors_tell_of_inflation(few_recordings, tmp_path):
    (tmp_path / "eventlogs").symlink_to(few_recordings / "eventlogs")
    mixed = {"mixtures": {"m": {"applications": [{"name": "q01_sf1_n1_r1"}]}}}
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "campaigns": [], "runs": {}, **mixed}))
    names = [application.name for application in read_recordings(tmp_path)]
    assert len(names) == 11
    assert "q01_sf1_n1_r1" not in names
    applications = read_recordings(few_recordings)
    workload, model = build(applications, sizes_gb=[2], most_executors=1)
    assert set(model.contention) == {1, 2, 4}
    assert len(workload.profiles) == 3
    with pytest.raises(WorkloadError, match="no run with at most 0 executors"):
        build(applications, sizes_gb=[2], most_executors=0)


def test_what_the_manifest_tells_of_campaigns_is_kept_without_places(few_recordings, tmp_path):
    (tmp_path / "eventlogs").symlink_to(few_recordings / "eventlogs")
    command = "recorder --out=/home/me/x --tables /srv/y --runs 1 --outer z"
    campaigns = [{"command": command, "date": "2026-11-20"}]
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "campaigns": campaigns}))
    [one, *_] = read_recordings(tmp_path)
    assert _provenance(tmp_path, [one])["campaigns"] == [
        {"command": "recorder --out=DIR --tables DIR --runs 1 --outer z", "date": "2026-11-20"}
    ]
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(WorkloadError, match=r"manifest.json: not a manifest of recordings"):
        read_recordings(tmp_path)


def test_a_recording_tells_its_query_or_that_of_its_only_run(few_recordings):
    application = read_recordings(few_recordings)[0]
    listed = application.recording
    flat = {"query": 5, "sf": 1.0, "layout": "12m/16"}
    for recording, expected in ((listed, int(listed["runs"][0]["query"])), (flat, 5)):
        query, run = _run(replace(application, recording=recording))
        assert query == expected
        assert (run.size_gb, run.shuffle_partitions) == (1.0, 16)
        assert run.split_mb == pytest.approx(12 * 1.048576)
    for wrong in ({}, {"runs": []}, {**flat, "layout": "12m"}, {**flat, "sf": None}, {**flat, "query": "q5"}):
        with pytest.raises(WorkloadError, match="not a recording of one TPC-H query"):
            _run(replace(application, recording=wrong))
    with pytest.raises(WorkloadError, match="not a recording of one TPC-H query"):
        _run(replace(application, queries=application.queries * 2))


def test_logs_that_are_no_recordings(shared, tmp_path, capsys):
    lines = gzip.decompress((shared("spark/eventlogs") / "q06_sf1_n1_r1.json.gz").read_bytes()).split(b"\n")
    (tmp_path / "log").write_bytes(b"\n".join(lines[1:]))
    assert main([str(tmp_path), "--out", str(tmp_path / "out.json")]) == 1
    assert "not a recording of one TPC-H query" in capsys.readouterr().err
    assert main([str(tmp_path / "missing"), "--out", str(tmp_path / "out.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "manifest.json").write_text("{}")
    assert main([str(tmp_path), "--out", str(tmp_path / "out.json")]) == 1
    assert "not a manifest" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
