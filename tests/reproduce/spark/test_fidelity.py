"""Predictions of the simulator against runs on real Spark."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduce.spark.fidelity import ALL, measure_fidelity
from reproduce.spark.recordings import (
    Effects,
    QueryKey,
    RecordedMixture,
    Recordings,
    Source,
    load_recordings,
    predict_mixture,
    predict_run,
    replay,
    replay_mixture,
)
from tests.cases import cases
from tests.refusal import one_line
from tests.workloads.spark.recordings import WALL_MS, recording, write_recordings
from workloads import WorkloadError

KEY = QueryKey(1, 2.0, "12m/16")
#: Time of the query in all recordings of this module, from the submission of its job, ms.
SPAN_MS = 480.0


def mixture(executors: int, *submit_s: float) -> dict[str, Any]:
    """Return the manifest entry of applications that all run the same query; each takes 2 s."""
    same = {"query": 1, "sf": 2.0, "n": executors, "layout": "12m/16"}
    applications = [
        {**same, "name": f"mix_n{executors}_a{place}", "submit_s": at, "done_s": at + 2.0}
        for place, at in enumerate(submit_s)
    ]
    return {"executors": 2, "makespan_s": 0, "applications": applications}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


def write_folder(tmp_path: Path) -> Path:
    """Write a folder as the recorder does: runs on one and two executors, and two mixtures."""
    manifest = {"mixtures": {"mix_n1": mixture(1, 0.5, 0.6), "mix_n2": mixture(2, 0.5, 0.6)}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    shared = [recording(f"mix_n{count}_a{place}", count) for count in (1, 2) for place in (0, 1)]
    single = [recording("q01_n2_r1"), recording("q01_n2_r2", rest=200), recording("q01_n1_r1", 1, rest=50)]
    write_recordings(tmp_path / "eventlogs", *single, *shared)
    return tmp_path


@pytest.fixture
def recordings(folder: Path) -> Recordings:
    return load_recordings([folder])


def test_recordings(recordings: Recordings) -> None:
    assert [run.name for run in recordings.runs] == ["q01_n1_r1", "q01_n2_r1", "q01_n2_r2"]
    run = recordings.runs[1]
    assert (run.key, run.executors, run.query.wall_ms) == (KEY, 2, WALL_MS)
    assert (run.registration_ms, run.startup_ms, run.preparation_ms) == (500.0, 500.0, 500.0)
    assert run.busy_cores == 1.5
    fair, fifo = recordings.mixtures
    assert (fair.sharing, fair.executors_max, fair.slots, fair.keys) == ("FAIR", 1, 2, (KEY, KEY))
    assert fifo.sharing == "FIFO"
    np.testing.assert_allclose(fifo.submit_ms, [0, 100])
    np.testing.assert_allclose(fifo.jct_ms, [2000, 2000])


def test_replaying_a_run_gives_its_wall_time(recordings: Recordings) -> None:
    assert [replay(run) for run in recordings.runs] == [run.query.wall_ms for run in recordings.runs]


def test_a_run_is_predicted_from_another(recordings: Recordings) -> None:
    alone, run, _ = recordings.runs

    def predicted(**left_out: bool) -> float:
        return predict_run(Source([run], [alone]), 2, Effects(**left_out), num_seeds=4)

    assert predicted() == WALL_MS
    assert predicted(driver=False) == WALL_MS - 100 - 20
    assert 120 + 100 + 100 + 60 <= predicted(waves=False) <= 120 + 300 + 300 + 60
    # the runs on one executor had faster tasks
    assert WALL_MS - 50 <= predicted(parallelism=False) < WALL_MS


def test_mixtures_are_predicted_from_single_runs(recordings: Recordings) -> None:
    """Registration and moving take 500 ms each; the driver is ready no later than the executors."""
    alone, run, _ = recordings.runs
    fair, fifo = recordings.mixtures

    def predicted(mixture: RecordedMixture, **left_out: bool) -> list[float]:
        sources = [Source([run], [alone])] * 2
        return predict_mixture(mixture, sources, Effects(**left_out), num_seeds=2, alone=True).tolist()

    one_after_the_other = [1000 + SPAN_MS, 1000 + SPAN_MS + 500 + SPAN_MS - 100]
    assert predicted(fifo) == one_after_the_other
    on_one = 300 + 3 * 100 + 20 + 60 + 60
    assert predicted(fair) == [1000 + on_one] * 2
    assert predicted(fifo, moving=False) == [1000 + SPAN_MS, 1000 + SPAN_MS + SPAN_MS - 100]


def test_where_no_run_tells_what_executors_took_to_start_they_take_no_time(recordings: Recordings) -> None:
    """The preparation time of the driver is unknown, too; applications register after 500 ms."""
    alone, run, _ = recordings.runs
    sources = [Source([replace(run, startup_ms=float("nan"))], [alone])] * 2
    predicted = predict_mixture(recordings.mixtures[1], sources, Effects(), num_seeds=2, alone=True)
    assert predicted.tolist() == [500 + SPAN_MS, 500 + SPAN_MS + SPAN_MS - 100]


def test_mixtures_are_predicted_from_other_recordings_of_them(recordings: Recordings) -> None:
    """In these recordings, drivers were ready 500 ms after the executors."""
    _, fifo = recordings.mixtures
    sources = [Source([run], ()) for run in fifo.runs]
    predicted = predict_mixture(fifo, sources, Effects(), num_seeds=2, alone=False)
    assert predicted.tolist() == replay_mixture(fifo).tolist()


def test_replaying_a_mixture(recordings: Recordings) -> None:
    """Applications have their own task durations; their drivers are ready 500 ms after the executors."""
    fair, fifo = recordings.mixtures
    on_one = 300 + 3 * 100 + 20 + 60 + 100
    assert replay_mixture(fair).tolist() == [1500 + on_one] * 2
    # the second one's driver has planned when its executors come
    assert replay_mixture(fifo).tolist() == [1500 + SPAN_MS, 1500 + SPAN_MS + 500 + SPAN_MS - 100]


def test_halves_predict_each_other(recordings: Recordings) -> None:
    fidelity = measure_fidelity(recordings, num_seeds=2)
    runs = fidelity.runs.set_index("run")
    assert runs.loc["q01_n2_r1", ["real", "replay", "rerun"]].tolist() == [580, 580, 680]
    assert runs.loc["q01_n2_r2", ["real", "predicted", "rerun"]].tolist() == [680, 580, 580]
    assert list(fidelity.replays["replay"]) == [680, 580, 680]
    assert list(fidelity.applications["mixture"]) == ["mix_n1", "mix_n1", "mix_n2", "mix_n2"]
    [query] = fidelity.queries().to_dict("records")
    assert (query["runs"], query["real"], query["replay error"]) == (2, 630, 0)
    assert query["predicted error"] == pytest.approx((100 / 680 + 100 / 580) / 2)
    summary = fidelity.summary()
    assert summary.loc[("alone", ALL), "max"] == pytest.approx(100 / 580)
    assert ("alone", "no moving") not in summary.index
    assert set(fidelity.mixtures().index) == {"mix_n1", "mix_n2"}


def test_recordings_of_a_mixture_predict_each_other(folder: Path) -> None:
    again = Path(shutil.copytree(folder, folder / "again"))
    once, twice = load_recordings([folder]), load_recordings([folder, again])
    alone = measure_fidelity(once, num_seeds=1).applications
    assert (alone["predicted"] == alone["from alone"]).all()
    assert "rerun" not in alone
    both = measure_fidelity(twice, num_seeds=1).applications
    assert len(both) == 2 * len(alone)
    assert (both["rerun"] == both["real"]).all()
    np.testing.assert_allclose(both["predicted"], both["replay"])
    assert (both["predicted"] != both["from alone"]).all()


def test_recordings_that_cannot_be_used(recordings: Recordings, folder: Path) -> None:
    with pytest.raises(WorkloadError, match="expected two runs of a query with 1 executors among the 3"):
        measure_fidelity(Recordings(recordings.runs, ()), executors=1)
    other = KEY._replace(query=2)
    runs = tuple(replace(run, key=other) for run in recordings.runs)
    with pytest.raises(WorkloadError, match="mix_n1: expected a single run of each of its queries with 2"):
        measure_fidelity(Recordings(runs, recordings.mixtures))
    with pytest.raises(WorkloadError, match="given twice; a run cannot predict itself"):
        load_recordings([folder, folder / ".." / folder.name])
    (folder / "eventlogs" / "mix_n2_a1.json").unlink()
    with pytest.raises(WorkloadError, match="mix_n2: there is no event log of mix_n2_a1"):
        load_recordings([folder])


def test_without_a_query_that_ran_twice_there_are_mixtures(folder: Path, tmp_path: Path) -> None:
    """The recordings of the repository are such a case."""
    again = Path(shutil.copytree(folder, folder / "again"))
    both = load_recordings([folder, again])
    fidelity = measure_fidelity(both, executors=7, num_seeds=1)
    assert fidelity.runs.empty
    assert len(fidelity.applications) == 8
    assert fidelity.queries().empty
    assert list(fidelity.mixtures()["runs"]) == [4, 4]


def test_a_log_that_is_no_recording(tmp_path: Path) -> None:
    log = recording("q01_n2_r1")
    del log.events[0]["sf"]
    with pytest.raises(WorkloadError, match=r"q01_n2_r1 was not recorded by workloads.spark.recorder"):
        load_recordings([write_recordings(tmp_path, log)])


@cases(
    "text, message",
    ("{", "line 1, column 2: Expecting property name"),
    ("[]", "not a usable manifest"),
    ('{"mixtures": {"m": {}}}', "not a usable manifest"),
    ('{"mixtures": {"m": []}}', "not a usable manifest"),
    ("[" * 100_000, "too many levels of brackets"),
)
def test_an_unusable_manifest(folder: Path, text: str, message: str) -> None:
    (folder / "manifest.json").write_text(text)
    assert one_line(WorkloadError, load_recordings, [folder]).startswith(f"{folder / 'manifest.json'}: {message}")


@pytest.mark.parametrize("number", ["-1e400", "1e400", "NaN", "-1", '"1_0"', '"\u0663"', "null", "true", "1e308"])
def test_times_of_a_manifest_that_are_no_times(folder: Path, number: str) -> None:
    manifest = folder / "manifest.json"
    noted = json.loads(manifest.read_text())
    next(iter(noted["mixtures"].values()))["applications"][1]["submit_s"] = "HERE"
    manifest.write_text(json.dumps(noted).replace('"HERE"', number))
    assert one_line(WorkloadError, load_recordings, [folder]).startswith(f"{manifest}: submit_s must be ")


@pytest.fixture(scope="module")
def real(shared: Callable[[str], Path]) -> Recordings:
    return load_recordings([shared("spark/eventlogs")])


def test_every_run_is_replayed_and_predicted_as_well_as_by_another_run(real: Recordings) -> None:
    errors = {run.name: replay(run) / run.query.wall_ms - 1 for run in real.runs}
    assert len(errors) == 88
    assert max(map(abs, errors.values())) < 0.035
    assert np.mean(np.abs(list(errors.values()))) < 0.01
    fidelity = measure_fidelity(real, num_seeds=2)
    mean = fidelity.summary()["mean"].to_dict()
    assert len(fidelity.runs) == 44
    assert mean["alone", ALL] < 0.065
    assert mean["alone", ALL] < 1.2 * mean["alone", "rerun"]
    assert min(mean["alone", name] for name in ("no waves", "no parallelism", "no driver")) > 0.07
