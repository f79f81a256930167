"""Commands of all studies that need no Spark, from training to table, on a tiny workload."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from decima.cli.main import cli
from decima.evaluation.variants import GRIDS, HINDSIGHT
from decima.learning.cluster.config import TrainingConfig, read_config
from decima.policy import Featurizer, PolicyConfig
from decima.policy.shipped import SHIPPED
from decima.studies import deep_dive, multi_resource, single_resource, successors
from decima.studies.catalogue import STUDIES
from decima.studies.compared import GROUPS
from decima.studies.critical_path import LEVELS
from decima.studies.deep_dive import ATTENTION, PLAIN
from decima.studies.multi_resource import GRAPHENE_STAR, HEURISTICS, OURS, TETRIS
from decima.studies.outcome import RULE, Outcome
from decima.studies.study import Study, Variant
from simulator import Cluster, ClusterConfig
from tests.cases import cases
from tests.decima.cli.commands import assert_same_again, succeeded
from tests.simulator.cluster.build import chain, jobs, stage
from workloads import DISTRIBUTIONS, draw_jobs

#: Options for the tiny workload; ``{tiny}``, ``{trace}`` and others are files of the fixture ``places``.
TINY = "--workload {tiny} --executors 5 --budget 0.0025 --seeds 2 --jobs 4 --policies {policies} --workers 1"
PACK = "--workload {tiny} --executors 8 --seeds 2 --jobs 10 --interval 3 --checkpoint {general} --workers 1"
TRACE = "--workload {trace} --executors 8 --seeds 2 --window 10 --checkpoint {general} --workers 1"
GRID = "--budget 0.002 --sets 3 --policies {policies}"


class Found(NamedTuple):
    """Output of a command: its text and its JSON."""

    text: str
    content: Any

    @property
    def runs(self) -> pd.DataFrame:
        return pd.DataFrame(self.content["runs"])

    def names(self, place: int = 0) -> list[str]:
        return list(self.content["conditions"][place]["schedulers"])

    def mean(self, scheduler: str, condition: str = "") -> float:
        chosen = self.runs.query("scheduler == @scheduler and condition == @condition")
        return float(chosen["mean_jct_s"].mean())

    def configs(self) -> dict[str, Any]:
        """Scheduler -> settings of its training."""
        return {each["schedulers"][0]: each["config"] for each in self.content["policies"].values()}

    def claims(self) -> dict[str, str]:
        return {claim["paper"]: claim["here"] for claim in self.content["claims"]}


def check_fig9a(found: Found) -> None:
    names = ["fifo", "sjf-cp", "fair", "naive-weighted-fair", HINDSIGHT, RULE, "decima"]
    assert found.names() == names == list(dict.fromkeys(found.runs["scheduler"]))
    assert "Batches of 4 tiny jobs, 5 executors, 2 experiments" in found.text
    assert found.content["conditions"][0]["schedulers"]["decima"]["paper"] == "-21%"
    assert read_config("batch").behaviour_cloning.scheduler in found.text


def check_fig9b(found: Found) -> None:
    assert found.names() == ["fifo", "sjf-cp", "fair", HINDSIGHT, RULE, "decima"]
    assert found.content["interval_s"] == 4
    loads = found.runs.groupby("scheduler")["load"].mean()
    assert found.content["measured_load"] == {name: loads[name] for name in (HINDSIGHT, "decima")}
    assert f"ran {found.content['busy_period_speedup']:.2f} times as fast with decima" in found.text


def check_fig13(found: Found) -> None:
    assert len(found.names(0)) == len(found.names(1)) == 7
    assert "Makespan" in found.text
    for name in (HINDSIGHT, deep_dive.FOR_JCT):  # no scheduler is slower for moves that take no time
        assert found.mean(name, deep_dive.MOVES_FREE) < found.mean(name, deep_dive.MOVES_COST)


def check_anchors(configs: dict[str, Any]) -> None:
    """Check the networks of public re-implementations."""
    plain, attentive = (TrainingConfig.model_validate(configs[name]).policy.build() for name in (PLAIN, ATTENTION))
    assert (plain.limit, plain.num_limits) == ("outputs", 5)
    assert not plain.aggregate
    assert not plain.summary_aggregate
    assert (attentive.encoder, attentive.limit) == ("attention", "input")


def check_fig14(found: Found) -> None:
    assert list(dict.fromkeys(found.runs["condition"])) == ["load 50%", "load 70%"]
    others = [deep_dive.NO_LIMITS, deep_dive.NO_GRAPH, deep_dive.UNFIXED, deep_dive.BATCH, PLAIN, ATTENTION]
    assert found.names() == found.names(1) == [HINDSIGHT, RULE, "decima", *others]
    configs = found.configs()
    assert configs[deep_dive.NO_LIMITS]["policy"]["overrides"] == {"limit": "none", "wait": False}
    assert configs[deep_dive.NO_GRAPH]["policy"]["overrides"] == {"graph": False}
    assert configs[deep_dive.UNFIXED]["episodes"]["fixed_sequences"] is False
    assert configs[deep_dive.BATCH]["workload"]["arrivals"] == "batch"
    check_anchors(configs)


def check_fig15a(found: Found) -> None:
    learned = ["decima", deep_dive.OUTPUTS, deep_dive.STAGES, PLAIN, ATTENTION]
    assert found.names() == [HINDSIGHT, RULE, *learned]
    assert list(found.content["learning_curves"]) == learned
    assert "Training begins" not in found.text
    for curve in found.content["learning_curves"].values():
        assert [row["iteration"] for row in curve] == list(range(len(curve)))
        assert "validation_mean_jct_s" in curve[-1]
    check_anchors(found.configs())
    for config in found.configs().values():
        assert config["curriculum"]["start"] < config["curriculum"]["end"]


def check_fig21(found: Found) -> None:
    assert found.names() == ["fifo", "sjf-cp", "fair", HINDSIGHT, RULE, "decima", single_resource.SEARCH]
    by_seed = found.runs.pivot_table("mean_jct_s", "seed", "scheduler")
    assert (by_seed[single_resource.SEARCH] <= by_seed["sjf-cp"] + 1e-9).all()
    [condition] = found.content["conditions"]
    assert (min(condition["alphas"]), condition["moving_delay_s"]) == (-4, 0)
    assert [len(entry["searches"]) for entry in found.content["order_search"]] == [2, 2]
    assert all(0 <= entry["gap"] < 1 for entry in found.content["order_search"])


def check_fig22(found: Found) -> None:
    assert found.names() == ["fair", HINDSIGHT, "decima", deep_dive.BLIND]
    shape = TrainingConfig.model_validate(found.configs()[deep_dive.BLIND]).policy.build()
    assert "unclaimed_tasks" in {feature.name for feature in shape.stage_features}
    assert not sees_durations(shape)
    assert sees_durations(read_config("batch").policy.build())


def sees_durations(shape: PolicyConfig) -> bool:
    """Return whether features of a job with short tasks differ from those of a job with long tasks."""
    seen = []
    for task_ms in (200.0, 7000.0):
        sequence = jobs(chain(stage(5, task_ms), stage(30, 2 * task_ms)))
        graph = Featurizer(shape).graph(Cluster(ClusterConfig(20), sequence).observe())
        seen.append((graph.features, graph.job_features))
    return not all(np.array_equal(*pair) for pair in zip(*seen, strict=True))


def check_table2(found: Found) -> None:
    assert found.names() == [HINDSIGHT, RULE, deep_dive.HERE, deep_dive.FEWER_ARRIVALS]
    [condition] = found.content["conditions"]
    assert condition["schedulers"][HINDSIGHT]["paper"] == "91.2 ± 23.5"
    here, fewer = (found.configs()[name]["workload"]["interval"] for name in found.names()[2:])
    assert here == condition["interval_s"]
    assert fewer == pytest.approx(here * 75 / 45, rel=0.01)


def check_fig11b(found: Found) -> None:
    assert found.names() == [*multi_resource.OTHERS, TETRIS, *HEURISTICS, OURS, "decima"]
    [condition] = found.content["conditions"]
    assert condition["memory_demand"] == "uniform"
    assert [(kind["count"], kind["memory"]) for kind in condition["executor_classes"]] == [
        (2, memory) for memory in (0.25, 0.5, 0.75, 1.0)
    ]
    assert found.content["best_heuristic"] == min(HEURISTICS, key=found.mean)
    assert found.mean("tuned-tetris") <= found.mean(TETRIS)
    change, claims = found.mean("decima") / found.mean(GRAPHENE_STAR) - 1, found.claims()
    assert f"decima: {change:+.1%} ± " in claims["Decima's average JCT is 43% below that of Graphene*."]
    unused = found.runs.query("scheduler == 'decima'")["fragmentation"].mean()
    assert claims["Decima's fragmentation is within 4% to 13% of Tetris's."].startswith(f"{unused:.1%} of")
    assert "A simple rule, srpt: " in found.text


def check_fig11a(found: Found) -> None:
    assert "Windows of 10 s of trace, 8 executors of 4 sizes" in found.text
    assert "which was best on 2 other sequences" in found.text
    [condition] = found.content["conditions"]
    assert (condition["arrivals"], condition["window_s"], condition["jobs"]) == ("exact", 10.0, 6)


def check_fig12(found: Found) -> None:
    assert found.names() == [TETRIS, GRAPHENE_STAR, "decima"]
    by_work = found.content["by_work"]
    for name in found.names():
        jct_s = np.array(by_work[name]["jct_s"])
        assert jct_s.shape == (2, GROUPS)
        means = found.runs.query("scheduler == @name")["mean_jct_s"]
        np.testing.assert_allclose(jct_s.mean(axis=1), means)  # groups are of one size
    ours, theirs = (np.array(by_work[each]["executors"])[:, 0, 3].mean() for each in ("decima", GRAPHENE_STAR))
    [largest] = [here for paper, here in found.claims().items() if "39% more" in paper]
    assert largest.startswith(f"{ours / theirs - 1:+.1%}")


def check_fig20(found: Found) -> None:
    assert len(found.content["claims"]) == 4
    assert "By work, decima against tuned-graphene-star" in found.text


def check_fig19(found: Found) -> None:
    assert found.names() == [GRAPHENE_STAR, "decima"]
    jobs_there = found.content["jobs_in_system"]["decima"]
    assert found.claims()["Decima has fewer jobs in the system."].startswith(f"{jobs_there:.1f} ")
    busy = found.content["executors_per_job"]["decima"]
    assert found.claims()["It gives each job more executors."].startswith(f"{busy:.1f} ")
    assert [claim["holds"] in (True, False) for claim in found.content["claims"]] == [True] * 3


def check_table3(found: Found) -> None:
    learned = [multi_resource.HERE, multi_resource.FEWER_JOBS, multi_resource.FEWER_EXECUTORS]
    assert found.names() == [HINDSIGHT, GRAPHENE_STAR, OURS, *learned]
    trained = [found.configs()[name] for name in learned]
    assert [each["workload"]["interval"] for each in trained] == [0.5, 7.5, 5.0]
    classes = [each["cluster"]["classes"] for each in trained]
    assert classes == [f"{count}x0.25,{count}x0.5,{count}x0.75,{count}x1" for count in (10, 10, 1)]
    assert f"In pairs: {multi_resource.FEWER_JOBS}, " in found.text


def on_grid(content: Any, part: int = 0) -> dict[str, list[str]]:
    """Return condition -> schedulers."""
    return {name: list(row) for name, row in content["parts"][part]["conditions"].items()}


def check_deeprm_fig4(found: Found) -> None:
    every = ["sjf", "packer", "tetris*", "random", "deeprm"]
    assert on_grid(found.content) == {"130 %": every, "50 %": every}
    assert "SJF performs better than Packer." in found.text
    assert [each["iterations_trained"] for each in found.content["networks"].values()] == [1, 1]
    assert found.content["command"].startswith("decima reproduce deeprm-fig4 --load 130.0 --load 50.0 --budget")


def check_deeprm_fig5(found: Found) -> None:
    assert list(found.content["networks"]) == ["deeprm, for slowdown", "deeprm, for completion"]
    assert len(found.content["claims"]) == 3
    assert on_grid(found.content)[""][:3] == ["sjf", "packer", "tetris*"]


def check_deeprm_fig6(found: Found) -> None:
    assert [row["iteration"] for row in found.content["learning_curve"]] == [0, 1]
    assert list(found.content["validation_slowdown"]) == ["sjf", "packer", "tetris*", "random"]
    assert found.content["claims"][2]["holds"] is None  # too few iterations to tell


def check_deeprm_fig7(found: Found) -> None:
    assert 0 <= found.content["not_work_conserving"] <= 1
    num_jobs = sum(row["jobs"] for row in found.content["by_length"])
    assert num_jobs == draw_jobs(DISTRIBUTIONS["code"], load=1.1, sets=3, seed=0).num_jobs.sum()
    assert all(row["tetris* withheld"] == 0 for row in found.content["by_length"])
    assert "By length of job" in found.text


def check_cnn_fig2(found: Found) -> None:
    assert list(found.content["networks"]) == ["deeprm", "cnn", "cnn, reshaped", "weights 1, 0.5, 2"]
    assert [each["iterations_trained"] for each in found.content["networks"].values()] == [1] * 4
    assert list(found.content["learning_curves"]) == list(found.content["networks"])


def check_cnn_fig3(found: Found) -> None:
    assert on_grid(found.content)[""] == ["sjf", "packer", "tetris*", "random", "cnn"]
    assert "Two machines, load 70 %" in found.text


def check_a2c_tables(found: Found) -> None:
    every = ["random", "packer", "sjf", "tetris*", "a2c"]
    assert on_grid(found.content) == {f"rate 0.{tenths}": every for tenths in (6, 7, 8, 9)}
    assert on_grid(found.content, 1)[""] == ["fully connected", "conv3-16, pooling"]
    assert on_grid(found.content, 2)[""] == every
    assert "dropped 1 with unknown run time" in found.text
    [row] = [line for line in found.text.splitlines() if " random " in line and " 5.5 " in line]
    assert "rate 0.9" in row


def check_critical_path(found: Found) -> None:
    assert {*zip(found.runs["network"], found.runs["seed"], strict=True)} == {
        (network, seed) for network in LEVELS for seed in (0, 1)
    }
    assert 0 < found.content["chance"] < 1


#: Study -> options and checks; those that need a Spark or recordings have tests of their own.
CASES: dict[str, tuple[str, Callable[[Found], None]]] = {
    "fig9a": (TINY, check_fig9a),
    "fig9b": (f"{TINY} --interval 4", check_fig9b),
    "fig13": (TINY, check_fig13),
    "fig14": (f"{TINY} --load 0.7 --load 0.5", check_fig14),
    "fig15a": (f"{TINY} --load 0.7", check_fig15a),
    "fig21": (TINY, check_fig21),
    "fig22": (TINY, check_fig22),
    "table2": (f"{TINY} --load 0.7", check_table2),
    "fig11a": (TRACE, check_fig11a),
    "fig11b": (PACK, check_fig11b),
    "fig12": (PACK, check_fig12),
    "fig20": (TRACE, check_fig20),
    "fig19": (PACK, check_fig19),
    "table3": (f"{TINY} --executors 40 --jobs 6 --interval 0.5", check_table3),
    "deeprm-fig4": (f"{GRID} --load 130 --load 50", check_deeprm_fig4),
    "deeprm-fig5": (GRID, check_deeprm_fig5),
    "deeprm-fig6": (GRID, check_deeprm_fig6),
    "deeprm-fig7": (GRID, check_deeprm_fig7),
    "cnn-fig2": (f"{GRID} --weights 1,0.5,2", check_cnn_fig2),
    "cnn-fig3": (GRID, check_cnn_fig3),
    "a2c-tables": (f"{GRID} --log {{log}}", check_a2c_tables),
    "critical-path": ("--seeds 2 --budget 0.002", check_critical_path),
}
ELSEWHERE = {"benchmark"}
#: Studies that run a second time, by the command in their JSON.
AGAIN = {"fig9a", "deeprm-fig4", "critical-path"}


@pytest.fixture
def places(workload_file: Path, trace_file: Path, policies: Path, policy: Path, log: Path) -> dict[str, Path]:
    general = SHIPPED["general"]
    return {
        "tiny": workload_file, "trace": trace_file, "policies": policies, "general": general, "small": policy,
        "log": log,
    }  # fmt: skip


@pytest.fixture
def _less_work(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reduce work: two settings per tuned scheduler, two architectures, few DAGs."""
    few = {name: (grid[0], grid[-1]) for name, grid in GRIDS.items()}
    monkeypatch.setattr("decima.evaluation.comparison.GRIDS", few)
    shapes = {name: successors.ARCHITECTURES[name] for name in ("fully connected", "conv3-16, pooling")}
    monkeypatch.setattr(successors, "ARCHITECTURES", shapes)
    monkeypatch.setattr("decima.studies.critical_path.NUM_TESTS", 50)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["reproduce", *map(str, words)])


def test_every_study_has_a_case() -> None:
    assert CASES.keys() | ELSEWHERE | {"fig10"} == STUDIES.keys()
    assert STUDIES["fig10"] is STUDIES["fig9b"]
    shown = run("--help").stdout
    assert all(f"  {name} " in shown for name in STUDIES if name != "benchmark")  # a command of its own


@pytest.mark.usefixtures("_less_work")
@pytest.mark.parametrize("name", CASES)
def test_a_study(name: str, places: dict[str, Path], tmp_path: Path) -> None:
    options, check = CASES[name]
    results, pictures = tmp_path / "r.json", tmp_path / "pictures"
    words = options.format(**places).split()
    result = succeeded(run(name, *words, "--json", results, "--out", pictures))
    assert [path.stat().st_size > 1000 for path in pictures.glob("*.png")]
    assert str(next(pictures.glob("*.png")).name) in result.stdout
    content = json.loads(results.read_text())
    assert content["study"] in (name, "fig9b", "fig12")
    assert content["machine"]["cpus"] >= 1
    assert shlex.split(content["command"])[:3] == ["decima", "reproduce", name]
    assert content["runs"]
    for note in content["notes"]:
        assert note in result.stdout
    assert ("What the paper says" in result.stdout) == bool(content["claims"])
    for condition in content.get("conditions", ()):
        for entry in condition["schedulers"].values():
            assert len(entry["per_seed"]["mean_jct_s"]) == len(condition["seeds"])
            assert entry["mean_jct_s"] > 0
    runs = pd.DataFrame(content["runs"])
    if {"condition", "slowdown", "mean_jct_s"} <= set(runs):  # on a cluster: no job is faster than alone
        assert (runs.groupby(["condition", "scheduler"])["slowdown"].mean().dropna() >= 0.95).all()
    check(Found(result.stdout, content))
    if name in AGAIN:
        aside = ["--out", str(pictures)]
        aside += ["--policies", str(places["policies"])] if "--policies" in options else []
        assert_same_again(results, *aside)


def test_deeprm_fig5_uses_the_network_of_fig4(policies: Path, tmp_path: Path) -> None:
    words = GRID.format(policies=policies).split()
    succeeded(run("deeprm-fig4", *words, "--load", "130", "--out", tmp_path))
    before = (policies / "deeprm-130" / "policy.npz").stat().st_mtime_ns
    succeeded(run("deeprm-fig5", *words, "--out", tmp_path))
    assert (policies / "deeprm-130" / "policy.npz").stat().st_mtime_ns == before


@cases(
    "words, told",
    ("fig9a --budget 0", "0"),
    ("fig9b --interval -1", "--interval"),
    ("fig10 --interval 25 --load 0.5", "exclude each other"),
    ("fig15a --checkpoint {tiny}", "No such option '--checkpoint'"),
    ("fig9a --workload {tiny} --profiles {folder}", "exclude each other"),
    ("fig9a --workload {trace}", "trace: has arrival times"),
    ("fig11b --workload {trace}", "trace: has arrival times"),
    ("fig11a --workload {tiny}", "has no arrival times"),
    ("fig11a --workload {trace} --executors 6", "6 executors: expected a multiple of 4"),
    ("fig12 --workload {trace} --seeds 20", "windows with jobs, expected at least 20"),
    ("fig19 --executors 10", "10 executors: expected a multiple of 4"),
    ("table3 --workload {tiny} --executors 8", "1 executors: expected a multiple of 4"),
    ("fig9a --json {folder}", "it is a folder"),
    ("deeprm-fig4 --load 190", "a load of 190 %"),
    ("deeprm-fig4 --budget 0", "--budget"),
    ("deeprm-fig6 --sets 1", "--sets"),
    ("cnn-fig2 --weights 1,2", "'1,2': expected three numbers"),
    ("a2c-tables --log none.swf", "none.swf"),
    ("critical-path --out {tiny}", "tiny.json"),
)
def test_bad_input(
    words: str, told: str, places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words.format(**places, folder=tmp_path).split())
    assert result.exit_code not in (0, 130)
    assert result.stderr.count("\n") == 1, result.stderr
    assert told in result.stderr


def test_a_command_that_is_interrupted(workload_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(study: Study) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(single_resource, "fig9a", interrupted)
    result = run("fig9a", "--workload", workload_file, "--out", tmp_path)
    assert result.exit_code == 130
    assert result.stderr == "decima: interrupted; the same command resumes the training\n"


def test_fig14_does_not_train_what_a_specialist_stands_for(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []

    def train(_: Study, variants: Mapping[str, Variant]) -> dict[str, str]:
        trained.extend(variant.name for variant in variants.values())
        return dict.fromkeys(variants, "fair")

    monkeypatch.setattr(Study, "train", train)
    monkeypatch.setattr(Study, "specialist", lambda *_: "sjf-cp")
    outcome = deep_dive.fig14(study, loads=(0.5,))
    schedulers = outcome.extra["conditions"][0]["schedulers"]
    assert schedulers[deep_dive.BATCH]["scheduler"] == "sjf-cp"
    assert schedulers[deep_dive.UNFIXED]["scheduler"] == "fair"
    assert len(trained) == 6
    assert not any(name.startswith("batch") for name in trained)
    assert any("the shipped policy " in note for note in outcome.notes)
