"""The reader on 88 recorded runs of the TPC-H queries, against a table made from them by another program."""

import gzip

import numpy as np
import pandas as pd
import pytest

from workloads import Wave, WorkloadError, read_event_log
from workloads.spark.profiles import to_profile
from workloads.spark.query import SparkQuery, matched


@pytest.fixture(scope="module")
def recordings(shared):
    """Return the applications by name."""
    applications = read_event_log(shared("spark/eventlogs"))
    return {application.name: application for application in applications}


@pytest.fixture(scope="module")
def summary(shared):
    return pd.read_csv(shared("spark/summary.csv")).set_index("app")


def row_of(query: SparkQuery) -> dict[str, int]:
    return {
        "jobs": query.num_jobs, "stages": len(query.stages), "skipped": query.num_skipped, "edges": len(query.edges),
        "shuffle_edges": len(query.dag.shuffle_edges), "reused_edges": len(query.dag.reused_edges),
        "barrier_edges": len(query.dag.barrier_edges), "tasks": len(query.tasks),
    }  # fmt: skip


def test_stages_edges_and_tasks(recordings, summary):
    rows = {name: row_of(application.queries[0]) for name, application in recordings.items()}
    ours = pd.DataFrame.from_dict(rows, orient="index").loc[summary.index]
    pd.testing.assert_frame_equal(ours, summary[ours.columns], check_names=False)
    assert len(ours) == 88
    assert all(len(application.queries) == 1 for application in recordings.values())


def test_durations_waves_and_start_up(recordings, summary):
    for name, application in recordings.items():
        row, query = summary.loc[name], application.queries[0]
        tasks = query.tasks
        mean = tasks.groupby("wave")["duration_ms"].mean()
        assert tasks["duration_ms"].sum() / 1e3 == pytest.approx(row["task_s"], abs=1e-3)
        assert tasks["run_ms"].sum() / 1e3 == pytest.approx(row["task_run_s"], abs=1e-3)
        assert tasks["cpu_ms"].sum() / 1e3 == pytest.approx(row["task_cpu_s"], abs=1e-3)
        assert query.span_ms / 1e3 == pytest.approx(row["span_s"], abs=1e-3)
        for wave, column in ((Wave.FRESH, "fresh_ms"), (Wave.FIRST, "first_ms"), (Wave.REST, "rest_ms")):
            assert mean[wave] == pytest.approx(row[column], abs=0.051)
        startup = np.mean([executor.startup_ms for executor in application.executors])
        assert startup == pytest.approx(row["jvm_start_ms"], abs=6)
        assert (tasks["level"] == row["n"]).all()
        assert query.span_ms <= query.wall_ms <= 1e3 * row["wall_s"]
        assert application.report.lines() == []


def test_queries_read_the_same_bytes_and_profiles_pool_runs(recordings):
    # Stages of different runs match by index, although Spark numbers them differently.
    sizes = ["input_bytes", "shuffle_read_bytes", "shuffle_write_bytes"]
    for number in range(1, 23):
        runs = [
            application.queries[0] for name, application in recordings.items() if name.startswith(f"q{number:02d}_")
        ]
        assert len(runs) == 4
        totals = np.array([run.tasks.groupby("stage")[sizes].sum().to_numpy() for run in runs])
        np.testing.assert_allclose(totals, totals[:1].repeat(4, axis=0), rtol=0.02, atol=2000)
    runs = [recordings[f"q11_sf1_n{n}"].queries[0] for n in ("1_r1", "2_r2", "2_r3", "4_r1")]
    profile = to_profile(matched(runs), name="q11")
    assert (profile.name, profile.num_stages, profile.num_tasks) == ("q11", 12, 123)
    assert np.array_equal(profile.edges, runs[0].edges)
    scan = profile.stages[0].durations
    assert scan.levels.tolist() == [1, 2, 4]
    pooled = sum(len(scan.table(wave)[2]) for wave in Wave)
    assert pooled == 2 * profile.stages[0].num_tasks


def test_a_recording_cut_off_in_the_middle(shared, tmp_path):
    text = gzip.decompress((shared("spark/eventlogs") / "q09_sf1_n2_r2.json.gz").read_bytes())
    path = tmp_path / "log"
    path.write_bytes(text[: len(text) * 2 // 3])
    with pytest.raises(WorkloadError, match="no query ran to its end"):
        read_event_log(path)
    [application] = read_event_log(path, partial=True)
    [query] = application.queries
    assert not query.complete
    assert 80 < len(query.tasks) < 160
    assert (application.report.unfinished_queries, len(application.report.problems)) == (1, 2)
