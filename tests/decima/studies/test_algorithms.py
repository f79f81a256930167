"""Comparison of training algorithms: settings and learning curves, from synthetic files."""

import json
from pathlib import Path

import numpy as np
import pytest

from decima.studies.algorithms import METRIC, Curve, curve_of_seeds, plot_algorithms, settings_of
from decima.studies.study import Study
from tests.simulator.cluster.build import chain, stage
from workloads import Workload, write_workload
from workloads.imperfections import Imperfections


def test_the_setting_of_the_recordings_has_the_measured_errors(tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    workload = Workload((chain(stage(5, 100.0)),), name="jobs", imperfections=Imperfections(job_error=0.3))
    write_workload(file, workload)
    found = settings_of(Study(workload, {"profiles": "somewhere"}, executors=7, num_jobs=3), file)
    recorded, batches, streams = found.values()
    assert recorded == {"sources": [str(file)], "executors": 10, "job_error": 0.3}
    assert (batches["sources"], batches["executors"], batches["batch_jobs"]) == (["somewhere"], 7, 3)
    assert (streams["batches"], streams["stream_jobs"]) == (0, 3)
    assert list(settings_of(Study(workload), None)) == list(found)[1:]


def test_a_curve_begins_with_the_algorithm(tmp_path: Path) -> None:
    for seed, shift in enumerate((0.0, 2.0)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        rows = [
            {"iteration": -1, METRIC: 9.0, "cpu_s": 1.0},
            {"iteration": 0, METRIC: 0.5, "cpu_s": 10.0 + shift},
            {"iteration": 1, "cpu_s": 20.0},
            {"iteration": 2, METRIC: -0.5 - shift, "cpu_s": 30.0 + 2 * shift},
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        (folder / "config.yaml").write_text("# decima train\nseed: 0\n")
    curve = curve_of_seeds([tmp_path / "0", tmp_path / "1"])
    assert (curve.cpu_s.tolist(), curve.change.tolist()) == ([0, 21], [[0.5, -0.5], [0.5, -2.5]])


def test_the_picture_has_a_panel_for_each_setting_with_the_median_in_percent() -> None:
    curve = Curve(np.array([0.0, 5.0]), np.array([[0.0, -0.01], [0.0, -0.02], [0.0, -0.06]]))
    first, second = plot_algorithms({(name, each): curve for name in "ab" for each in ("ppo", "dcl")}).axes
    assert (first.get_title(), second.get_title()) == ("a", "b")
    assert first.lines[0].get_ydata()[1] == pytest.approx(-2)  # type: ignore[index]
