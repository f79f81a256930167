"""The benchmark: its settings are constant, its seeds are disjoint, and the score is correct."""

import json
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from decima.cli.main import cli
from decima.evaluation.benchmark import FAIR, FINGERPRINTS, SEED, SEQUENCES, SETTINGS, VERSION, score
from decima.evaluation.conditions import TRAINING_OFFSET, Conditions
from decima.learning.cluster.config import RECIPES, read_config
from decima.show.benchmark import benchmark_report
from reproduce.common import LOAD_SEED
from tests.cases import cases
from tests.simulator.cluster.build import job, stage
from workloads import Workload, open_workload, write_workload

#: Hash of all settings of version 1. Another hash requires a new version.
VERSION_1 = "dd4c74e12c5c7c5e"


def described() -> str:
    """Return each setting as JSON, on one workload, with its first sequence."""
    workload = open_workload("tpch")
    usual = Conditions(workload=workload).to_dict()  # settings at their defaults, also new ones, do not count
    settings = []
    for setting in SETTINGS.values():
        conditions = setting.conditions(workload)
        found = {name: value for name, value in conditions.to_dict().items() if value != usual[name]}
        sequence = conditions.sequence(SEED)
        jobs = [[profile.name for profile in sequence.profiles], sequence.arrival_ms.round(3).tolist()]
        settings.append([setting.name, setting.source, found, jobs])
    return json.dumps([settings, FINGERPRINTS, SEED, SEQUENCES])


def test_version_1_stays_and_its_seeds_are_used_by_nothing_else() -> None:
    assert (VERSION, len(SETTINGS)) == (1, 12)
    assert sha256(described().encode()).hexdigest()[:16] == VERSION_1
    mine = range(SEED, SEED + TRAINING_OFFSET)
    assert len(mine) >= SEQUENCES
    assert LOAD_SEED not in mine
    for name in RECIPES.names():
        config = read_config(name)
        for others in (config.training_seeds, config.validation_seeds, config.cloning_seeds):
            assert len(range(max(mine.start, others.start), min(mine.stop, others.stop))) == 0, name
    tuned = SETTINGS["embedded-batch"].conditions(open_workload("tpch")).training_seeds(10)
    assert not set(tuned) & set(mine)


def runs(**jct_s: dict[str, list[float]]) -> pd.DataFrame:
    """Return tidy results from setting -> scheduler -> mean JCT of each seed, s."""
    rows = [
        {"condition": setting.replace("_", "-"), "scheduler": name, "seed": SEED + place, "mean_jct_s": value}
        for setting, schedulers in jct_s.items()
        for name, values in schedulers.items()
        for place, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_scores_and_their_intervals() -> None:
    table = runs(
        tpch_batch={FAIR: [10.0, 30.0], "mine": [5.0, 15.0]}, tpch_busy={FAIR: [4.0, 8.0], "mine": [8.0, 16.0]}
    )
    assert score(table, FAIR) == (1, 0)
    mean, half_width = score(table, "mine")
    assert mean == pytest.approx(1)
    assert half_width == pytest.approx(0)  # the ratio is the same on each seed
    alone = score(table[table["condition"] == "tpch-batch"], "mine")
    assert alone == pytest.approx((0.5, 0))
    table = runs(tpch_batch={FAIR: [10.0, 30.0], "slow": [11.0, 31.0], "quick": [5.0, 15.0]})
    setting = SETTINGS["embedded-batch"].conditions(open_workload("tpch"))
    report = benchmark_report({"tpch-batch": SimpleNamespace(runs=table, conditions=setting)})  # type: ignore[dict-item]
    content = json.loads(report.json)
    assert [each["scheduler"] for each in content["scores"]] == ["quick", FAIR, "slow"]
    assert content["complete"] is False
    assert any("Left out: tpch-stream" in note for note in report.notes)
    random = np.random.default_rng(0)
    inside, true = 0, np.exp(np.mean(np.log([0.8, 0.9])))
    for _ in range(200):
        found = {}
        for setting, ratio in (("tpch_batch", 0.8), ("tpch_busy", 0.9)):
            fair = random.lognormal(3, 0.3, SEQUENCES)
            found[setting] = {FAIR: fair.tolist(), "mine": (ratio * fair * random.normal(1, 0.1, SEQUENCES)).tolist()}
        mean, half_width = score(runs(**found), "mine")
        inside += abs(mean - true) <= half_width
    assert 180 <= inside <= 199


def invoke(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["benchmark", *map(str, words)])
    return result.exit_code, result.output


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    words = ("--seeds", "2", "--settings", "embedded-batch", "--schedulers", "srpt", "--workers", "1")
    code, text = invoke(*words, "--json", file, "--out", tmp_path)
    assert code == 0, text
    content = json.loads(file.read_text())
    assert {row["scheduler"] for row in content["runs"]} == {FAIR, "srpt"}
    assert (content["runs"][0]["seed"], content["settings"][0]["conditions"]["jobs"]) == (SEED, 20)
    assert "embedded-batch" in text
    assert (tmp_path / "benchmark.png").stat().st_size > 1000


@cases(
    "words, message",
    (("--settings", "tpch-bach"),
     f"no setting is named 'tpch-bach' (did you mean 'tpch-batch'?), expected one of {', '.join(SETTINGS)}"),
    (("--settings", "tpch-batch"), "the setting tpch-batch needs --profiles DIR"),
    (("--trace", "{file}"), "not the trace jobs of version 1 of the benchmark, see docs/benchmark.md"),
)  # fmt: skip
def test_bad_input(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    write_workload(file, Workload((job(stage(1, 100.0)),), None, "tiny"))
    code, text = invoke(*(word.format(file=file) for word in words))
    assert code == 2
    assert text.rstrip().endswith(message)
