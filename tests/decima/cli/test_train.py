import io
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from decima.cli.main import cli
from decima.cli.settings_table import describe_settings
from decima.cli.train import _grid_table, _table
from decima.evaluation.metrics import mean_interval
from decima.learning import DeepRMConfig, TrainingConfig, read_config
from decima.learning.cluster import train as cluster_train
from decima.learning.cluster.clone import clone_epochs
from decima.learning.metrics import CLUSTER_METRICS, GRID_METRICS, TrainingResult
from decima.learning.metrics_file import read_metrics
from decima.policy.about import read_about
from decima.show.tables import interval_text
from tests.cases import cases
from tests.decima.cli.commands import succeeded
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.examples import small
from tests.decima.learning.examples import assert_same_run
from tests.programs import started
from workloads import Workload, trace_arrivals, write_workload

Train = Callable[..., Result]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file in the current folder with the settings of a small training."""
    path = tmp_path / "small.yaml"
    path.write_text(small(tmp_path).to_yaml())
    return path


@pytest.fixture
def train(config: Path) -> Train:
    def train(*options: str) -> Result:
        return CliRunner().invoke(cli, ["train", "--processes", "1", *options])

    return train


def test_train_shows_the_policy_against_the_classic_schedulers(train: Train, tmp_path: Path) -> None:
    result = succeeded(train("--config", "small.yaml", "--set", "iterations=2", "--out", "out"))
    rows = [line.split() for line in result.stdout.splitlines() if line.strip()]
    names = [row[0].split(":")[0] for row in rows]
    place = names.index("fair")
    assert names[place : place + 4] == ["fair", "weighted-fair", "tuned-weighted-fair", "decima"]
    about = read_about(tmp_path / "out" / "policy.npz")
    for row in rows[place : place + 4]:
        assert row[1] == f"{about['validation']['results'][row[0]]['mean JCT']:.1f}"
    *_, size, _, interval, word = rows[place + 2]
    improvement = about["validation"]["improvement"]
    assert float(size.rstrip("%")) / 100 == pytest.approx(abs(improvement), abs=6e-4)
    assert interval.endswith("%")
    assert word == ("shorter" if improvement > 0 else "longer")
    assert (tmp_path / "out" / "learning-curve.png").stat().st_size > 10_000
    command = result.stdout.splitlines()[-1].strip()
    assert command.startswith("decima compare --checkpoint out/policy.npz --workload ")
    assert command.endswith("tiny.json --jobs 4 --executors 4")
    assert about["command"] == "decima train --config small.yaml --set iterations=2 --out DIR"
    lines = result.stderr.splitlines()
    assert lines[0] == "heuristics on the validation sequences: 0 of 2"
    assert lines[1].startswith("0/2; validation JCT ")
    assert lines[-1].startswith("2/2; training JCT ")
    assert re.fullmatch(
        r"2/2; training JCT [\d.]+ s, entropy [\d.]+; validation JCT [\d.]+ s, [\d.]+% (better|worse) than tuned "
        r"weighted fair; best: [\d.]+% (better|worse) than tuned weighted fair",
        lines[-1],
    )


@cases(
    "own, words, reward",
    (272.2, "longer", "jct"), (88.0, "shorter", "makespan"), (120, "higher", "weighted"), (80, "lower", "weighted"),
)  # fmt: skip
def test_the_table_says_in_words_what_is_longer(tmp_path: Path, own: float, words: str, reward: str) -> None:
    theirs, factors = np.array([90_000.0, 110_000.0]), np.array([1.0, 1.01])
    results = {"fair": theirs.tolist(), "decima": (theirs * own / 100 * factors).tolist()}
    config = small(tmp_path, validation={"sequences": 2}, cluster={"reward": reward})
    result = TrainingResult(config, 1, tmp_path / "policy.npz", 1, 0.1, results, False, 1.0)
    change = (theirs * own / 100 * factors - theirs) / 100_000
    size = interval_text(mean_interval(change)._replace(mean=abs(change.mean())), ".1%")
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(_table(result))
    fair, decima = (line for line in console.export_text().splitlines() if " ± " in line)
    assert fair.strip().endswith(f"{size} {words}")
    assert words not in decima


def test_the_table_of_settings_has_seconds_and_changes() -> None:
    few = ["settings.sources=[tpch]", "validation.cells=2", "validation.sequences=2", "validation.against=fair"]
    config = read_config("general", few)
    results = {"fair": [1000.0, 3000.0, 8000.0, 8000.0], "decima": [1000.0, 2000.0, 9000.0, 9000.0]}
    result = TrainingResult(config, 1, Path("policy.npz"), 1, 0.1, results, False, 1.0)
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(_grid_table(result))
    text = console.export_text()
    assert "2 settings, 2 sequences each: mean JCT, s" in text
    cells = [line.split()[-3:] for line in text.splitlines() if line.rstrip().endswith("%")]
    by_cell = [["2.00", "1.50", "-25.0%"], ["8.00", "9.00", "+12.5%"]]
    interleaved = [["4.50", "5.00", "+11.1%"], ["5.50", "5.50", "+0.0%"]]
    assert cells in (by_cell, interleaved)


def test_behaviour_cloning_is_shown_and_ctrl_c_in_it_says_how_to_resume(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloning = "behaviour_cloning={scheduler: fair, sequences: 2, epochs: 3, minibatch: 8}"
    words = ("--config", "small.yaml", "--set", cloning, "--set", "iterations=1")
    whole = succeeded(train(*words, "--out", "whole"))
    lines = whole.stderr.splitlines()
    for start in ("episodes of fair to clone: 0 of 2", "behaviour cloning, gradient steps: 0 of "):
        assert any(line.startswith(start) for line in lines)
    begins = [line.split(";")[0] for line in lines if "validation JCT" in line]
    left = [f"{count} epochs of behaviour cloning left" for count in (3, 2)]
    assert begins == [*left, "1 epoch of behaviour cloning left", "0/1", "1/1"]

    interrupted = []

    def interrupt(*given: Any, **options: Any) -> Any:
        for epoch, metrics in enumerate(clone_epochs(*given, **options)):
            if epoch == 1 and not interrupted:
                interrupted.append(epoch)
                raise KeyboardInterrupt
            yield metrics

    monkeypatch.setattr("decima.learning.cluster.clone.clone_epochs", interrupt)
    result = train(*words, "--out", "out")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == (
        "decima: interrupted before there was a policy; to resume: decima train --resume --out out"
    )
    succeeded(train("--resume", "--out", "out"))
    assert_same_run(tmp_path / "whole", tmp_path / "out")


def test_the_line_of_an_iteration_says_how_long_the_later_ones_take(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.count(0.0, 100.0)
    monkeypatch.setattr("decima.progress.time", SimpleNamespace(monotonic=lambda: next(times)))
    sets = ("--set", "iterations=3", "--set", "validation.every=1")
    lines = succeeded(train("--config", "small.yaml", *sets, "--out", "out")).stderr.splitlines()
    left = {line.split(";")[0]: line.endswith(" left") for line in lines if "validation JCT" in line}
    assert left == {"0/3": False, "1/3": True, "2/3": True, "3/3": False}


def test_a_training_over_settings_shows_the_policy_in_each(train: Train, tmp_path: Path) -> None:
    changes = ("iterations=1", "behaviour_cloning.sequences=1", "behaviour_cloning.epochs=1", "episodes.sequences=1")
    few = ("settings.sources=[tiny.json]", "settings.batch_jobs=3", "settings.stream_jobs=3", "settings.executors=4")
    judged = ("validation.cells=2", "validation.sequences=1", "validation.against=fair", "episodes.per_sequence=2")
    sets = [word for change in (*changes, *few, *judged) for word in ("--set", change)]
    result = succeeded(train("--config", "general", *sets, "--out", "out"))
    assert "2 settings, 1 sequences each: mean JCT, s" in result.stdout
    assert "jobs of" in result.stdout
    assert result.stdout.splitlines()[-1].strip() == "decima compare --checkpoint out/policy.npz"
    assert "than fair over the settings" in result.stderr.splitlines()[-1]
    sets += ["--set", "settings.sources=[other.json]", "--workload", "tiny.json"]
    succeeded(train("--config", "general", *sets, "--out", "same"))
    assert_same_run(tmp_path / "out", tmp_path / "same")


def test_the_command_that_a_policy_file_keeps_makes_the_same_policy(train: Train, tmp_path: Path) -> None:
    train("--config", "small.yaml", "--set", "seed=3", "--set", "iterations=1", "--out", "out")
    command = read_about(tmp_path / "out" / "policy.npz")["command"]
    assert command == "decima train --config small.yaml --set seed=3 --set iterations=1 --out DIR"
    succeeded(train(*command.split()[2:-1], "again"))
    assert_same_run(tmp_path / "out", tmp_path / "again")
    train("--resume", "--set", "iterations=2", "--out", "out")
    command = read_about(tmp_path / "out" / "policy.npz")["command"]
    begun = "decima train --config small.yaml --set seed=3 --set iterations=1 --out DIR"
    assert command == f"{begun} && decima train --set iterations=2 --out DIR --resume"
    for line in command.split(" && "):
        succeeded(train(*line.replace("DIR", "third").split()[2:]))
    assert_same_run(tmp_path / "out", tmp_path / "third")
    train("--resume", "--out", "out")
    assert read_about(tmp_path / "out" / "policy.npz")["command"] == command


@cases(
    "options, profiles, file",
    ((), None, "tiny.json"), (("--workload", "tpch"), None, None), (("--workload", "folder"), "folder", None),
    (("--profiles", "folder"), "folder", None), (("--workload", "other.json"), None, "other.json"),
)  # fmt: skip
def test_a_workload_that_is_named_wins_over_the_settings(
    train: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    profiles: str | None,
    file: str | None,
) -> None:
    configs: list[TrainingConfig] = []

    def begin(config: TrainingConfig, *_: object, **__: object) -> None:
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_train, "ClusterTraining", begin)
    (tmp_path / "folder").mkdir()
    assert train("--config", "small.yaml", *options, "--out", "out").exit_code == 130
    workload = configs[0].workload
    assert workload.profiles == (None if profiles is None else Path(profiles))
    assert (workload.file and workload.file.name) == file


def test_the_command_that_is_shown_at_the_end_works(train: Train, tmp_path: Path) -> None:
    write_workload(
        tmp_path / "exact.json",
        Workload(LIBRARY.profiles, trace_arrivals(LIBRARY.profiles[:3], [0.0, 500.0, 900.0]), "exact"),
    )
    changes = ("iterations=1", "cluster.moving_delay=0.5", "workload.arrivals=poisson", "workload.interval=3")
    sets = [word for change in changes for word in ("--set", change)]
    drift = ("--set", "workload.drift=2:0.5")
    attributes = [
        word
        for change in ("workload.deadlines=[2,3]", "workload.weights=[1,4]", "workload.tenants=2")
        for word in ("--set", change)
    ]
    asked = "--deadlines 2,3 --tenants 2 --weights 1,4"
    for workload, more in (("tiny.json", drift), ("exact.json", attributes)):
        out = f"out-{workload}"
        shown = train("--config", "small.yaml", *sets, *more, "--workload", workload, "--out", out).stdout
        command = shown.splitlines()[-1]
        words = shlex.split(command)
        assert words[0] == "decima"
        assert (asked in command) == (more == attributes)
        assert ("--drift 2:0.5" in command) == (more == drift)
        few = ("--seeds", "1", "--processes", "1", "--schedulers", "fair,decima")
        result = succeeded(CliRunner().invoke(cli, [*words[1:], *few]))
        assert "decima" in result.stdout


def test_a_run_is_gone_on_with_its_own_settings(train: Train, tmp_path: Path) -> None:
    train("--config", "small.yaml", "--out", "whole")
    train("--config", "small.yaml", "--set", "iterations=2", "--out", "out")
    result = succeeded(train("--resume", "--out", "out"))
    assert "after" in result.stdout
    succeeded(train("--resume", "--out", "whole"))
    assert read_metrics(tmp_path / "whole" / "metrics.jsonl")[-1]["iteration"] == 3
    succeeded(train("--resume", "--out", "out", "--set", "iterations=3"))
    assert read_metrics(tmp_path / "out" / "metrics.jsonl")[-1]["iteration"] == 3


@cases(
    "words, config, metrics",
    (["train"], TrainingConfig, CLUSTER_METRICS),
    (["deeprm", "train"], DeepRMConfig, GRID_METRICS),
)
def test_every_setting_and_metric_is_explained(words: list[str], config: Any, metrics: dict[str, str]) -> None:
    result = succeeded(CliRunner().invoke(cli, [*words, "--explain"]))
    named = CliRunner().invoke(cli, [*words, "--explain", "--set", "seed=77"]).stdout
    assert next(line for line in named.splitlines() if line.startswith("seed ")).split()[1] == "77"
    shown = {line.split()[0] for line in result.stdout.splitlines() if line and not line.startswith(" ")}
    assert sum(not line.strip() for line in result.stdout.splitlines()) == 2, "one below each table"
    settings = describe_settings(config)
    assert shown >= {*metrics, *(key for key, _, _ in settings)}
    assert {"seed", "validation", "validation.every"} <= {key for key, _, _ in settings}
    for key, meaning in [*((key, meaning) for key, _, meaning in settings), *metrics.items()]:
        assert len(meaning) > 3, key


def test_every_metric_stands_in_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    for name, meaning in (*CLUSTER_METRICS.items(), *GRID_METRICS.items()):
        assert f"| `{name}` | {meaning} |\n" in guide


def start(*options: str, **variables: str) -> AbstractContextManager[subprocess.Popen[str]]:
    train = ["-m", "decima", "train", "--workers", "1", "--config", "small.yaml", "--out", "out"]
    environment = {**os.environ, **variables}
    return started((sys.executable, *train, *options), stdout=subprocess.DEVNULL, env=environment)


def wait_for_rows(process: subprocess.Popen[str], count: int) -> None:
    """Wait until this number of iterations is in the metrics."""
    log = Path("out/metrics.jsonl")
    while not log.exists() or log.read_text().count("\n") < count:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.002)


@pytest.mark.slow
def test_a_training_may_be_killed_at_any_moment(config: Path, tmp_path: Path) -> None:
    """A training killed after some rows and seconds gives the same bits after resuming as an uninterrupted one."""
    settings = small(tmp_path, iterations=40, checkpoint_every=3, critic={}, validation={"every": 7})
    config.write_text(settings.to_yaml())
    cluster_train.ClusterTraining(settings, tmp_path / "whole").run()
    moments = [(0, 0.0), (1, 0.0), (2, 0.003), (5, 0.02), (12, 0.01), (13, 0.04), (23, 0.0), (33, 0.03)]
    for rows, more in moments:
        with start(*(["--resume"] if Path("out/config.yaml").exists() else [])) as process:
            wait_for_rows(process, rows)
            time.sleep(more)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    cluster_train.ClusterTraining(settings, tmp_path / "out", resume=True).run()
    assert_same_run(tmp_path / "whole", tmp_path / "out")


def test_ctrl_c_ends_in_one_line_and_keeps_the_policy(config: Path, tmp_path: Path) -> None:
    """All commands handle SIGTERM in the same way, see ``test_compare``. No temporary file of PyG remains."""
    config.write_text(small(tmp_path, iterations=100_000, validation={"every": 50_000}).to_yaml())
    (tmp_path / "temporary").mkdir()
    with start(TMPDIR=str(tmp_path / "temporary")) as process:
        wait_for_rows(process, 4)
        process.send_signal(signal.SIGINT)
        errors = process.communicate()[1].splitlines()
        assert process.returncode == 130
    assert "Traceback" not in "\n".join(errors)
    assert errors[-1].startswith("decima: interrupted after ")
    assert errors[-1].endswith(" of 100000 iterations; to resume: decima train --resume --out out")
    done = int(errors[-1].split()[3])
    assert done >= 3
    about = read_about(tmp_path / "out" / "policy.npz")
    assert about["iterations_trained"] == done
    assert read_metrics(tmp_path / "out" / "metrics.jsonl")[-1]["iteration"] == done
    assert not list((tmp_path / "temporary").glob("*propagate*"))
