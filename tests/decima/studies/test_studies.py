"""Each study from training to table, on a tiny workload; and their commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from decima.cli.main import cli
from decima.evaluation.tuning import HINDSIGHT
from decima.learning.cluster.config import TrainingConfig, read_config
from decima.policy.config import PolicyConfig
from decima.policy.features import Featurizer
from decima.studies import fig9, fig13, fig14, fig15, fig21, fig22, table2
from decima.studies.anchors import ATTENTION, PLAIN
from decima.studies.study import Study, Variant
from decima.studies.study_report import RULE, Outcome, plot_bars, study_json, study_notes, study_table
from simulator import Cluster, ClusterConfig
from tests.decima.cli.commands import assert_same_again
from tests.simulator.cluster.build import chain, jobs, stage

#: Whom the policy for batches clones first.
TEACHER = read_config("batch").behaviour_cloning.scheduler


def rows(outcome: Outcome) -> list[tuple[str, str]]:
    """Condition and scheduler of each row; the table, the notes and the JSON must have them too."""
    console = Console(width=200, record=True)
    console.print(study_table(outcome))
    text = console.export_text() + "\n".join(study_notes(outcome))
    content = json.loads(study_json(outcome, command="decima"))
    found = []
    for condition in content["conditions"]:
        for scheduler, entry in condition["schedulers"].items():
            assert f" {scheduler} " in text
            assert len(entry["per_seed"]["mean_jct_s"]) == len(condition["seeds"]) == 2
            assert entry["mean_jct_s"] > 0
            found.append((condition["condition"], scheduler))
    assert content["machine"]["cpus"] >= 1
    for policy in content["policies"].values():
        assert policy["config"]["cluster"]["executors"] >= 1
    return found


def names(outcome: Outcome) -> list[str]:
    return [scheduler for _, scheduler in rows(outcome)]


def test_fig9a(study: Study) -> None:
    outcome = fig9.fig9a(study)
    assert names(outcome) == ["fifo", "sjf-cp", "fair", "naive-weighted-fair", HINDSIGHT, RULE, "decima"]
    assert outcome.paper["", "decima"] == "-21%"
    assert len(fig9.plot_fig9(outcome).axes[0].lines) == 7
    assert any(TEACHER in note for note in study_notes(outcome))


def test_fig9b_and_fig10(study: Study) -> None:
    outcome = fig9.fig9b(study, interval_s=4.0)
    assert names(outcome)[:4] == ["fifo", "sjf-cp", "fair", HINDSIGHT]
    assert names(outcome)[-1] == "decima"
    heuristic, learned = (outcome.comparisons[""].episodes[name] for name in (HINDSIGHT, "decima"))
    assert fig9.busy_speedup(heuristic, heuristic) == 1
    assert outcome.extra["busy_period_speedup"] == fig9.busy_speedup(heuristic, learned)
    assert outcome.extra["measured_load"]["decima"] > 0
    assert len(fig9.plot_fig10(outcome).axes) == 5


def test_fig13(study: Study) -> None:
    outcome = fig13.fig13(study)
    assert len(rows(outcome)) == 14
    console = Console(width=200, record=True)
    console.print(study_table(outcome))
    assert "Makespan" in console.export_text()
    for name in (HINDSIGHT, fig13.FOR_JCT):  # nobody is slower for moves that take no time
        runs = [outcome.comparisons[where].runs(name) for where in (fig13.MOVES_FREE, fig13.MOVES_COST)]
        assert runs[0]["mean_jct_s"].mean() < runs[1]["mean_jct_s"].mean()
    assert len(fig13.plot_fig13(outcome).axes) == 3


#: Networks of public re-implementations.
ANCHORS = [PLAIN, ATTENTION]


def assert_anchors(configs: dict[str, Any]) -> None:
    """What the settings of their trainings make of their networks."""
    shapes = {name: TrainingConfig.model_validate(config).policy.build() for name, config in configs.items()}
    plain, attentive = shapes[PLAIN], shapes[ATTENTION]
    assert (plain.limit, plain.num_limits, plain.aggregate, plain.summary_aggregate) == (
        "outputs",
        5,
        False,
        False,
    )
    assert (attentive.encoder, attentive.limit) == ("attention", "input")


def test_fig14(study: Study) -> None:
    outcome = fig14.fig14(study, loads=(0.7, 0.5))
    assert [condition for condition, name in rows(outcome) if name == "decima"] == ["load 50%", "load 70%"]
    others = [fig14.NO_LIMITS, fig14.NO_GRAPH, fig14.UNFIXED, fig14.BATCH]
    assert names(outcome)[:9] == [HINDSIGHT, RULE, "decima", *others, *ANCHORS]
    policies = {
        entry["schedulers"][0]: entry["config"]
        for entry in json.loads(study_json(outcome))["policies"].values()
    }
    assert policies[fig14.NO_LIMITS]["policy"]["overrides"] == {"limit": "none", "wait": False}
    assert policies[fig14.NO_GRAPH]["policy"]["overrides"] == {"graph": False}
    assert policies[fig14.UNFIXED]["episodes"]["fixed_sequences"] is False
    assert policies[fig14.BATCH]["workload"]["arrivals"] == "batch"
    assert_anchors({name: policies[name] for name in ANCHORS})
    assert len(fig14.plot_fig14(outcome).axes[0].lines) == 9


def test_fig14_does_not_train_what_a_specialist_stands_for(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def train(_: Study, *variants: Variant) -> dict[str, str]:
        trained.extend(variant.name for variant in variants)
        return dict.fromkeys(trained, "fair")

    monkeypatch.setattr(Study, "train", train)
    monkeypatch.setattr(Study, "specialist", lambda *_: "sjf-cp")
    outcome = fig14.fig14(study, loads=(0.5,))
    schedulers = outcome.comparisons["load 50%"].schedulers
    assert schedulers[fig14.BATCH] == "sjf-cp"
    assert schedulers[fig14.UNFIXED] == "fair"
    assert len(trained) == 6
    assert not any(name.startswith("batch") for name in trained)
    assert "it comes with the project, " in outcome.notes[0]


def test_fig15a(study: Study) -> None:
    outcome = fig15.fig15a(study, load=0.7)
    learned = ["decima", fig15.OUTPUTS, fig15.STAGES, *ANCHORS]
    assert names(outcome) == [HINDSIGHT, RULE, *learned]
    assert list(outcome.curves) == learned
    assert not any(note.startswith("Training begins") for note in study_notes(outcome))
    for curve in outcome.curves.values():
        assert [row["iteration"] for row in curve] == list(range(len(curve)))
        assert "validation_mean_jct_s" in curve[-1]
    entries = json.loads(study_json(outcome))["policies"].values()
    configs = {entry["schedulers"][0]: entry["config"] for entry in entries}
    assert_anchors({name: configs[name] for name in ANCHORS})
    assert all(config["curriculum"]["start"] < config["curriculum"]["end"] for config in configs.values())
    assert len(fig15.plot_fig15a(outcome).axes[0].lines) == 6


def test_fig21(study: Study) -> None:
    outcome = fig21.fig21(study)
    assert names(outcome) == ["fifo", "sjf-cp", "fair", HINDSIGHT, RULE, "decima", fig21.SEARCH]
    comparison = outcome.comparisons[""]
    best = comparison.runs(fig21.SEARCH)["mean_jct_s"]
    assert (best <= comparison.runs("sjf-cp")["mean_jct_s"] + 1e-9).all()
    assert min(comparison.alphas) == -4
    cluster = comparison.conditions.cluster
    assert cluster.moving_delay_ms == 0
    searches = json.loads(study_json(outcome))["order_search"]
    assert [len(entry["searches"]) for entry in searches] == [2, 2]
    assert all(0 <= entry["gap"] < 1 for entry in searches)
    assert plot_bars(outcome).axes[0].containers


def test_fig22(study: Study) -> None:
    outcome = fig22.fig22(study)
    assert names(outcome) == ["fair", HINDSIGHT, "decima", fig22.BLIND]
    blind = json.loads(study_json(outcome))["policies"]
    [config] = [entry["config"] for entry in blind.values() if fig22.BLIND in entry["schedulers"]]
    shape = TrainingConfig.model_validate(config).policy.build()
    assert "unclaimed_tasks" in {feature.name for feature in shape.stage_features}
    assert not sees_durations(shape)
    assert sees_durations(read_config("batch").policy.build())


def sees_durations(shape: PolicyConfig) -> bool:
    """Whether a job of quick tasks looks any different from one of slow tasks."""
    seen = []
    for task_ms in (200.0, 7000.0):
        sequence = jobs(chain(stage(5, task_ms), stage(30, 2 * task_ms)))
        graph = Featurizer(shape).graph(Cluster(ClusterConfig(20), sequence).observe())
        seen.append((graph.features, graph.job_features))
    return not all(np.array_equal(*pair) for pair in zip(*seen, strict=True))


def test_table2(study: Study) -> None:
    outcome = table2.table2(study, load=0.7)
    assert names(outcome) == [HINDSIGHT, RULE, table2.HERE, table2.FEWER_ARRIVALS]
    assert outcome.paper["", HINDSIGHT] == "91.2 ± 23.5"
    content = json.loads(study_json(outcome, command="decima"))
    here, fewer = (policy["config"]["workload"]["interval"] for policy in content["policies"].values())
    assert fewer == pytest.approx(here * 75 / 45, rel=0.01)
    [conditions] = (each.conditions for each in outcome.comparisons.values())
    assert here == conditions.interval_ms / 1000


# ---- commands ----------------------------------------------------------------------------------------------


def run(*words: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["reproduce", *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command(study: Study, workload_file: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "results.json", tmp_path / "pictures"
    size = ["--executors", "5", "--budget", "0.005", "--seeds", "2", "--jobs", "4"]
    where = ["--policies", study.policies, "--processes", "1", "--json", results, "--out", out]
    status, shown, told = run("fig9a", "--workload", workload_file, *size, *where)
    assert status == 0, told
    assert "Batches of 4 tiny jobs, 5 executors, 2 experiments" in shown
    assert f"picture: {out / 'fig9a.png'}" in shown
    assert (out / "fig9a.png").stat().st_size > 1000
    assert "comparing schedulers: 1 of 14" in told
    content = json.loads(results.read_text())
    expected = ["decima", "reproduce", "fig9a", "--workload", str(workload_file), *size, "--seed", "0"]
    assert shlex.split(content["command"]) == expected
    assert_same_again(results, *map(str, where[:4]), "--out", str(out))
    [condition] = content["conditions"]
    assert condition["seeds"] == [0, 1]
    again = fig9.fig9a(study).comparisons[""].runs("decima")
    assert again["mean_jct_s"].mean() == condition["schedulers"]["decima"]["mean_jct_s"]


def test_all_studies_have_a_command() -> None:
    status, shown, _ = run("--help")
    assert status == 0
    numbers = ("9a", "9b", "10", "11a", "11b", "12", "13", "14", "15a", "18", "19", "20", "21", "22")
    for name in (*(f"fig{number}" for number in numbers), "table2", "table3", "grid"):
        assert f"  {name} " in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fig9a", "--budget", "0"], "0"),
        (["fig9b", "--load", "1"], "--load"),
        (["fig9b", "--interval", "-1"], "--interval"),
        (["fig10", "--interval", "25", "--load", "0.5"], "exclude each other"),
        (["fig15a", "--checkpoint", "{file}"], "No such option '--checkpoint'"),
        (["fig9a", "--workload", "{file}", "--profiles", "{folder}"], "exclude each other"),
        (["fig9a", "--workload", "{exact}"], "says which jobs arrive when"),
        (["fig11b", "--workload", "{exact}"], "says which jobs arrive when"),
        (["fig11a", "--workload", "{file}"], "does not say which jobs arrive when"),
        (["fig12", "--workload", "{exact}", "--seeds", "20"], "windows with jobs, expected at least 20"),
        (["fig19", "--executors", "10"], "10 executors: expected a multiple of 4"),
        (["fig9a", "--json", "{folder}"], "it is a folder"),
    ],
)
def test_bad_input(
    words: list[str], told: str, workload_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(workload_file.read_text())
    exact = tmp_path / "exact.json"
    exact.write_text(json.dumps(content | {"jobs": [{"profile": "small", "arrival_ms": 0}]}))
    places = {"file": workload_file, "folder": tmp_path, "exact": exact}
    monkeypatch.chdir(tmp_path)
    status, _, error = run(*[word.format(**places) for word in words])
    assert status != 0
    assert error.count("\n") == 1, error
    assert told in error


def test_a_command_of_section_7_3(workload_file: Path, tmp_path: Path) -> None:
    policy = Path(__file__).parents[3] / "decima" / "policy" / "shipped" / "general.npz"
    size = ["--executors", "4", "--seeds", "2", "--jobs", "6", "--interval", "3", "--checkpoint", policy]
    status, shown, told = run(
        "fig19",
        "--workload",
        workload_file,
        *size,
        "--processes",
        "1",
        "--out",
        tmp_path,
        "--json",
        tmp_path / "r.json",
    )
    assert status == 0, told
    assert "Decima has fewer jobs in the system." in shown
    assert (tmp_path / "fig19.png").stat().st_size > 1000
    content = json.loads((tmp_path / "r.json").read_text())
    assert [claim["holds"] in (True, False) for claim in content["claims"]] == [True] * 3
    [condition] = content["conditions"]
    assert (condition["memory_demand"], condition["executor_classes"][0]["memory"]) == ("uniform", 0.25)


def test_a_command_that_is_interrupted(
    make_study: Callable[..., Study], workload_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(study: Study) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(fig9, "fig9a", interrupted)
    status, _, error = run("fig9a", "--workload", workload_file, "--out", tmp_path)
    assert status == 130
    assert error == "decima: interrupted; the same command goes on with the training\n"
