"""Learning curves of several runs."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from decima.learning.curves import curve_of, find_runs, objective_metric, read_run, same_but_seed
from decima.learning.metrics_file import read_metrics
from decima.settings import TrainingError
from tests.cases import cases
from tests.refusal import one_line

SETTINGS = {"seed": 0, "cluster": {"reward": "jct", "executors": 5}, "update": {"learning_rate": 0.1}}


def run(folder: Path, values: list[float | None], name: str = "validation_mean_jct_s", **settings: Any) -> Path:
    """Return the folder of a training run."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(SETTINGS | settings))
    rows = [{"iteration": k} | ({} if value is None else {name: value}) for k, value in enumerate(values)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_runs_that_differ_only_by_seed_are_one_curve_with_an_interval(tmp_path: Path) -> None:
    run(tmp_path / "a" / "0", [9.0, None, 5.0, 4.0])
    run(tmp_path / "a" / "1", [9.0, None, 7.0], seed=1)
    run(tmp_path / "b", [3.0, 2.0], update={"learning_rate": 0.2})
    runs = [read_run(folder) for folder in find_runs(tmp_path)]
    groups = same_but_seed(runs)
    assert list(groups) == ["update.learning_rate=0.1", "update.learning_rate=0.2"]
    curve = curve_of(groups["update.learning_rate=0.1"], "validation_mean_jct_s")
    assert (curve.runs, curve.iterations.tolist(), curve.mean.tolist()) == (2, [0, 2], [9.0, 6.0])
    assert curve.half_width == pytest.approx([0.0, 12.706], rel=1e-4)  # t of one degree of freedom
    single = curve_of(groups["update.learning_rate=0.2"], "validation_mean_jct_s")
    assert single.mean.tolist() == [3.0, 2.0]
    assert np.isnan(single.half_width).all()


def test_groups_and_names_of_metrics(tmp_path: Path) -> None:
    run(tmp_path / "a", [1.0])
    run(tmp_path / "b", [1.0], seed=4)
    assert list(same_but_seed([read_run(tmp_path / "a"), read_run(tmp_path / "b")])) == [str(tmp_path / "a")]
    before, now = tmp_path / "before.jsonl", tmp_path / "now.jsonl"
    before.write_text('{"iteration": 0, "jct_s": 30.0, "validation_jct_s": 29.0}\n')
    now.write_text('{"iteration": 0, "mean_jct_s": 30.0, "validation_mean_jct_s": 29.0}\n')
    assert read_metrics(before) == read_metrics(now)


@cases(
    "settings, metric",
    ({}, "validation_mean_jct_s"),
    ({"cluster": {"reward": "makespan"}}, "validation_makespan_s"),
    ({"settings": {"executors": 5}}, "validation_change_mean"),
    ({"grid": {"objective": "slowdown"}}, "validation_slowdown"),
)
def test_the_metric_is_what_the_run_was_to_make_small(tmp_path: Path, settings: dict[str, Any], metric: str) -> None:
    assert objective_metric(read_run(run(tmp_path / "a", [1.0], **settings))) == metric


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no training run"):
        find_runs(tmp_path)
    good = read_run(run(tmp_path / "a", [1.0]))
    with pytest.raises(TrainingError, match="has no metric entropy; it has validation_mean_jct_s"):
        curve_of([good], "entropy")
    wrong = (
        ("config.yaml", "- 1", "expected keys and values"),
        ("config.yaml", "{", "line 1, column 2: expected the node content"),
        ("config.yaml", "!!python/object/apply:os.getcwd []", "line 1, column 1: could not determine a constructor"),
        ("config.yaml", "a: &a [1, *a]", "more than 100,000 values, or a value that contains itself"),
        ("config.yaml", "a: &a {b: *a}", "more than 100,000 values, or a value that contains itself"),
        ("config.yaml", "a: &a {<<: *a}", "more than 100,000 values, or a value that contains itself"),
        ("config.yaml", "a: " + "9" * 5000, "line 1, column 4: this value is invalid"),
        ("config.yaml", "a: 2001-13-45", "line 1, column 4: this value is invalid"),
        ("config.yaml", "a: " + "[" * 5000, "too many levels of brackets"),
        ("config.yaml", "? [a]\n: 1", "line 1, column 3: expected a name as key"),
        (
            "metrics.jsonl",
            '{"iteration": 0}\n{"iteration"\n{"iteration": 1}\n',
            "line 2: expected metrics of an iteration",
        ),
        ("metrics.jsonl", '{"iteration": 9999999999}\n', "line 1: expected metrics of an iteration"),
        ("metrics.jsonl", '{"iteration": 1, "x": NaN}\n', "line 1: expected finite numbers by name"),
        ("metrics.jsonl", '{"iteration": 1, "x": 1e400}\n', "line 1: expected finite numbers by name"),
        ("metrics.jsonl", '{"iteration": 1, "x": 1' + "0" * 400 + "}\n", "line 1: expected finite numbers by name"),
        ("metrics.jsonl", "[1]\n", "line 1: expected metrics of an iteration"),
        ("metrics.jsonl", '{"iteration": 1, "x": "1"}\n', "line 1: expected finite numbers by name"),
        ("metrics.jsonl", '{"x": 1}\n', "line 1: expected metrics of an iteration"),
    )
    for number, (name, text, message) in enumerate(wrong):
        folder = run(tmp_path / f"bad-{number}", [1.0])
        (folder / name).write_text(text)
        assert re.search(message, one_line(TrainingError, read_run, folder))
    (folder / "config.yaml").unlink()
    with pytest.raises(TrainingError, match=r"config\.yaml: No such file"):
        read_run(folder)
