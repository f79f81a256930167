"""Figures of the Decima paper, at sizes that take seconds; trainings are replaced by a rule."""

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decima
from decima.learning.cluster.config import read_config
from decima.settings import TrainingError
from reproduce import common, fig11b, fig12, table3
from reproduce.common import Result, over_time
from simulator import ClusterConfig, ExecutorClass, run_episode
from simulator.cluster.estimator_file import read_estimator
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.predictor import template_keys
from tests.cases import cases
from tests.simulator.cluster.build import job, jobs, stage
from workloads import WorkloadError, poisson_arrivals

pytestmark = pytest.mark.usefixtures("few_settings")

#: Small sizes; jobs that compile and run fast.
SMALL: dict[str, Any] = {"workload": "synthetic", "executors": 5, "jobs": 4, "seeds": 2}
PACK: dict[str, Any] = {"workload": "synthetic", "jobs": 6, "interval": 20.0, "classes": "2x0.25,2x0.5,2x0.75,2x1"}
TUNED, STAR = "tuned-weighted-fair", "tuned-graphene-star"
RULES = ["fifo", "sjf-cp", "fair", "naive-weighted-fair", "weighted-fair", TUNED, "srpt"]
ENCODINGS = ["decima", "an output per limit", "limits of stages", "plain GNN", "attention"]
ABLATIONS = ["no parallelism control", "no graph embedding", "unfixed sequences", "plain GNN", "attention"]


def figure(name: str) -> ModuleType:
    return import_module(f"reproduce.{name}")


def means(result: Result) -> dict[str, float]:
    """Return the mean JCT of each scheduler in the main table, s."""
    table = next(iter(result.tables.values()))
    return dict(zip(table["scheduler"], table["mean_jct_s"], strict=True))


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace trainings by fair sharing; return their settings by the name of the folder."""
    configs: dict[str, Any] = {}

    def train(folder: Path, recipe: str, settings: Sequence[str], workload: str, workers: int) -> str:
        configs[folder.name] = read_config(recipe, settings)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            {"iteration": step, "validation_mean_jct_s": 20.0, "improvement": -1.0, "cpu_s": 60.0} for step in range(2)
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return "fair"

    for name in ("fig13", "fig14", "fig15a", "fig21", "fig22", "paper", "table2", "table3", "unseen"):
        monkeypatch.setattr(figure(name), "train", train)
    return configs


@cases(
    "name, options, schedulers",
    (
        "fig9a",
        SMALL,
        ["fifo", "sjf-cp", "fair", "naive-weighted-fair", "weighted-fair", TUNED, "srpt", "srpt-tuned", "decima"],
    ),
    ("fig9b", SMALL | {"interval": 9.0}, ["fifo", "sjf-cp", "fair", TUNED, "srpt", "srpt-tuned", "decima"]),
    ("streams", SMALL, ["fifo", "sjf-cp", "fair", "weighted-fair", TUNED, "srpt", "srpt-tuned", "decima"]),
    ("fig11b", PACK | {"seeds": 2}, fig11b.SCHEDULERS),
)
def test_a_table_has_the_means_of_all_schedulers(name: str, options: dict[str, Any], schedulers: list[str]) -> None:
    result = figure(name).run(**options)
    found = means(result)
    assert list(found) == schedulers
    assert result.pictures[name].axes
    setting = {key: value for key, value in options.items() if key != "interval"}
    setting |= {} if name == "fig9a" else {"arrivals": "poisson", "interval": options.get("interval", 25.0)}
    setting |= {"memory_demand": "uniform"} if name == "fig11b" else {}
    assert found["fair"] == pytest.approx(decima.compare("fair", **setting)["mean_jct_s"].mean())
    changes = next(iter(result.tables.values())).set_index("scheduler")[f"vs {TUNED}"]
    assert changes["fair"] == pytest.approx(found["fair"] / found[TUNED] - 1)
    assert np.isnan(changes[TUNED])


def test_episodes_in_detail_have_the_means_of_their_comparison() -> None:
    stream = figure("fig10").run(workload="synthetic", executors=5, jobs=12)
    assert list(means(stream)) == [TUNED, "decima"]
    assert [axes.get_title()[:3] for axes in stream.pictures["fig10"].axes] == ["(a)", "(b)", "(c)", "(d)", "(e)"]
    packed = figure("fig19").run(**PACK)
    assert list(means(packed)) == [STAR, "decima"]
    assert len(packed.pictures["fig19"].axes) == 7
    by_work = figure("fig12").run(**PACK, seeds=2)
    assert set(by_work.pictures) == {"fig12", "fig20"}
    assert by_work.tables["by work"]["Fifth of the jobs by work"].tolist() == fig12.FIFTHS
    assert by_work.tables["streams"]["mean_jct_s"].iloc[0] > 0


def test_fifths_of_jobs_and_the_executors_that_they_use() -> None:
    sequence = jobs(*(job(stage(tasks, 100.0)) for tasks in (5, 2, 4, 1, 3)))
    cluster = ClusterConfig(executor_classes=tuple(ExecutorClass(1) for _ in range(4)))
    record = run_episode(cluster, sequence, decima.make_scheduler("fair"))
    rows = fig12.by_fifth(record)
    by_work = [3, 1, 4, 2, 0]
    assert [row[0] for row in rows] == record.jct_ms[by_work].tolist()
    used = [set(record.task_executor[record.task_job == each].tolist()) for each in by_work]
    assert [row[1:] for row in rows] == [[float(executor in each) for executor in range(4)] for each in used]
    with pytest.raises(WorkloadError, match="4 jobs: expected at least 5"):
        fig12.run(**PACK | {"jobs": 4})


def test_claims_of_figure_11_compare_with_the_best_heuristic() -> None:
    jct_s = dict.fromkeys(fig11b.SCHEDULERS, 20.0) | {"tuned-graphene": 10.0, "decima": 8.0}
    rows = [
        {
            "scheduler": name,
            "seed": seed,
            "mean_jct_s": value * (1 + seed),
            "fragmentation": 0.22 if name == "decima" else 0.2,
        }
        for name, value in jct_s.items()
        for seed in range(3)
    ]
    here = fig11b.claims(pd.DataFrame(rows), 0.43)["Here"].tolist()
    assert here[0].startswith("-60.0%")
    assert here[1].startswith("-20.0%")
    assert here[1].endswith("against tuned-graphene")
    assert here[-1] == "+10%"


def test_figure_11a_replays_windows_of_a_trace(tmp_path: Path) -> None:
    names = list(range(3))
    stages = {f"job {size}": {"stages": [{"tasks": 3 + size, "duration_ms": 1000}]} for size in names}
    jobs = [{"profile": f"job {number % 3}", "arrival_ms": 1667 * number} for number in range(60)]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"format": "decima-workload", "version": 1, "profiles": stages, "jobs": jobs}))
    result = figure("fig11a").run(workload=str(file), classes=PACK["classes"], window=10.0, seeds=2)
    assert list(means(result)) == [name for name in fig11b.SCHEDULERS if name != "decima"]


# ---- figures with trainings --------------------------------------------------------------------------------


@cases(
    "name, options, schedulers, folders",
    ("fig13", {}, ["fair", TUNED, "weighted fair for makespan", "srpt", "decima for JCT",
     "decima for JCT, free moves", "decima for makespan"], ["batch", "batch-free-moves", "makespan"]),
    ("fig14", {"load": (0.4, 0.6)}, [TUNED, "srpt", "decima", *ABLATIONS, "trained on batches"],
     ["stream-9s-decima", *(f"stream-9s-{name.replace(' ', '-')}" for name in ABLATIONS), "batch"]),
    ("fig15a", {}, [TUNED, "srpt", *ENCODINGS],
     [f"scratch-9s-{name.replace(' ', '-')}" for name in ENCODINGS]),
    ("fig22", {}, ["fair", TUNED, "decima", "without durations"], ["batch-no-durations"]),
    ("table2", {}, [TUNED, "srpt", "decima trained there", "decima trained with fewer arrivals"],
     ["stream-9s-decima", "stream-15s-decima"]),
    ("fig21", {"orders": 20}, ["fifo", "sjf-cp", "fair", TUNED, "srpt", "decima", "best order"], ["simplified"]),
)  # fmt: skip
def test_variants_are_trained_and_compared(
    name: str,
    options: dict[str, Any],
    schedulers: list[str],
    folders: list[str],
    trainings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = figure(name)
    if hasattr(module, "interval_for_load"):
        monkeypatch.setattr(module, "interval_for_load", lambda load, *_: 9.0)
    result = module.run(**SMALL, policies=tmp_path, training=("iterations=3",), **options)
    assert list(means(result)) == schedulers
    assert list(trainings) == folders
    assert {config.iterations for config in trainings.values()} == {3}
    assert {config.cluster.num_executors for config in trainings.values()} == {5}
    assert result.pictures[name].axes


def test_the_training_of_the_paper_knows_no_rule(
    trainings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = figure("paper")
    few = {"jobs": 2, "seeds": 2}
    short = {name: kind._replace(conditions=kind.conditions | few) for name, kind in module.ARRIVALS.items()}
    monkeypatch.setattr(module, "ARRIVALS", short)
    monkeypatch.setattr(module, "LONG", {"jobs": 3})
    train = module.train
    monkeypatch.setattr(module, "train", lambda *given: train(*given) and "decima:embedded-batch")
    compared, compare = [], decima.compare

    def remember(schedulers: dict[str, Any], **conditions: Any) -> pd.DataFrame:
        compared.extend(schedulers.values())
        return compare(schedulers, **conditions)

    monkeypatch.setattr(decima, "compare", remember)
    options = {"workload": "synthetic", "executors": 5, "iterations": 3, "ppo_iterations": 2, "policies": tmp_path}
    kinds = ("batches", "streams", "busy-streams", "embedded", "embedded-streams")
    result = module.run(arrivals=kinds, training_seeds=(0, 4), **options)
    for name in kinds:
        schedulers = ["fair", TUNED, "srpt", "srpt-tuned", "paper", "ppo", "ppo, sampled"]
        if name == "embedded-streams":
            schedulers.remove("paper")
        assert result.tables[name]["scheduler"].tolist() == schedulers
    stages = ("mixed", "search", "few-batches", "few")
    in_streams = [f"ppo-{recipe}-{seed}" for seed in (0, 4) for recipe in stages]
    in_embedded_streams = [f"ppo-embedded-{recipe}-{seed}" for seed in (0, 4) for recipe in ("mixed", "search")]
    assert list(trainings) == [
        *("paper-batches-0", "ppo-batches-0", "ppo-batches-4", "paper-streams-0", *in_streams),
        *("paper-embedded-0", "ppo-embedded-0", "ppo-embedded-4", *in_embedded_streams),
    ]
    for name, config in trainings.items():
        assert config.iterations == (3 if name.startswith("paper") else 2)
        assert config.seed == int(name[-1])
        assert config.behaviour_cloning is None
        assert (config.start is not None) == (name in in_streams + in_embedded_streams)
    networks = {each for each in compared if isinstance(each, str) and each.startswith("decima")}
    assert networks == {"decima:embedded-batch,guard=off"}
    values = result._asdict()["values"]
    assert values["minutes of ppo, batches"] == "1"
    table = result.tables["trainings"]
    gains = table[(table["training"] == "ppo") & (table["arrivals"] == "streams")]["vs srpt-tuned"]
    assert values["ppo vs srpt-tuned, streams"].startswith(f"{gains.mean():+.1%} ± ")
    # Both trainings give the same policy here: the interval is that over trainings, not over sequences.
    assert values["ppo vs srpt-tuned, streams"].endswith(" ± 0.0%")
    assert not values["paper vs srpt-tuned, streams"].endswith(" ± 0.0%")
    assert table.groupby("arrivals")["CPU minutes"].max().to_dict() == {
        "batches": 1,
        "embedded": 1,
        "streams": 5,
        "busy-streams": 5,
        "embedded-streams": 3,
    }
    titles = [axes.get_title() for axes in result.pictures["paper"].axes]
    assert titles == ["Batches", "Streams", "Embedded", "Embedded streams"], (
        "both kinds of streams have the same trainings"
    )
    lines = [line for axes in result.pictures["paper"].axes for line in axes.lines]
    colours = {(line.get_label(), line.get_color()) for line in lines if line.get_label().startswith("p")}
    assert sorted(label for label, _ in colours) == ["paper", "ppo", "ppo, seed 4"], "one colour in all panels"
    assert "paper" not in result.tables["embedded"], "the paper has other jobs"
    embedded, others = (result.tables[kind]["mean_jct_s"].iloc[0] for kind in ("embedded", "batches"))
    assert embedded != others


def test_networks_and_estimators_have_not_seen_the_queries_of_their_fold(
    trainings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, train = {}, figure("unseen").train

    def remember(folder: Path, recipe: str, settings: Sequence[str], workload: str, workers: int) -> str:
        files[folder.name] = Path(workload).name
        return str(train(folder, recipe, settings, workload, workers))

    monkeypatch.setattr(figure("unseen"), "train", remember)
    result = figure("unseen").run(executors=5, batch_jobs=2, stream_jobs=2, seeds=2, iterations=3, policies=tmp_path)
    assert files == {
        f"{name}-{index}": f"others-{index}.json.gz" for index in range(3) for name in ("training", "search")
    }
    assert {config.start for name, config in trainings.items() if name.startswith("search")} == {"fair"}
    assert list(result.tables) == ["batches", "streams", "folds"]
    assert list(trainings) == [f"{name}-{index}" for index in range(3) for name in ("training", "search")]
    assert {config.iterations for name, config in trainings.items() if name.startswith("training")} == {3}
    everything = decima.open_workload("tpch").profiles
    found = []
    for index in range(3):
        unseen, seen = (
            decima.open_workload(str(tmp_path / "unseen" / f"{name}-{index}.json.gz")).profiles
            for name in ("fold", "others")
        )
        names, dags = map(set, zip(*map(template_keys, unseen), strict=True))
        for name, dag in map(template_keys, seen):
            assert name not in names
            assert dag not in dags, "nor another query of the same DAG"
        assert read_estimator(tmp_path / "unseen" / f"estimator-{index}.npz").jobs == len(seen)
        assert len(unseen) + len(seen) == len(everything)
        found += [job.name for job in unseen]
    assert sorted(found) == sorted(job.name for job in everything)
    table = result.tables["batches"].set_index(["task times", "fold"])
    assert table.index.tolist() == [(known, fold) for known in ("forest", "exact") for fold in ("0", "1", "2", "all")]
    network = table["network"].loc["exact"]
    assert network["all"] == pytest.approx(network[["0", "1", "2"]].mean())


def test_each_fold_needs_a_query() -> None:
    with pytest.raises(WorkloadError, match="22 queries: expected at least 23, one for each fold"):
        figure("unseen").run(folds=23)


@pytest.mark.usefixtures("trainings")
def test_no_order_is_better_than_the_best_one_found(tmp_path: Path) -> None:
    found = means(figure("fig21").run(**SMALL, policies=tmp_path, orders=100))
    assert found["best order"] <= min(found["fifo"], found["sjf-cp"])


def test_a_policy_without_durations_sees_none(trainings: dict[str, Any], tmp_path: Path) -> None:
    figure("fig22").run(**SMALL, policies=tmp_path)
    policy = trainings["batch-no-durations"].policy.build()
    names = {feature.name for feature in (*policy.stage_features, *policy.job_features)}
    assert not names & set(figure("fig22").DURATIONS)
    assert names


def test_table_3_has_executors_of_four_sizes(trainings: dict[str, Any], tmp_path: Path) -> None:
    assert table3.four_sizes(200) == fig11b.CLASSES
    result = table3.run(**SMALL | {"executors": 8}, policies=tmp_path, interval=20.0)
    assert list(means(result))[3:] == [table3.HERE, table3.FEWER_JOBS, table3.FEWER_EXECUTORS]
    assert list(trainings) == ["trace-20s-8-executors", "trace-300s-8-executors", "trace-200s-4-executors"]


# ---- common parts ------------------------------------------------------------------------------------------


def test_a_step_function_is_averaged_over_windows() -> None:
    steps = pd.Series([2.0, 4.0, 0.0], index=[10.0, 20.0, 30.0])
    assert over_time(steps, np.array([0.0, 10.0, 15.0, 25.0, 40.0])).tolist() == [0.0, 2.0, 3.0, 4 / 3]
    ends_late = pd.Series([2.0], index=[10.0])
    assert over_time(ends_late, np.array([0.0, 20.0, 30.0])).tolist() == [1.0, 2.0]


def test_arrivals_for_a_load() -> None:
    interval = common.interval_for_load(0.6, "synthetic", 5)
    sequence = poisson_arrivals(decima.open_workload("synthetic").profiles, 3000, 1000 * interval, seed=77)
    record = run_episode(ClusterConfig(num_executors=5), sequence, decima.make_scheduler("fair"))
    assert EpisodeMetrics(record).busy_ms.sum() / (5 * sequence.arrival_ms[-1]) == pytest.approx(0.6, rel=0.1)


def test_horizons_of_a_stream_scale_with_its_arrivals() -> None:
    recipe, config = read_config("stream"), read_config("stream", common.stream_settings(9.5))
    assert config.workload.interval_ms == 9500
    assert sum(recipe.workload.intervals_ms) / len(recipe.workload.intervals_ms) == 19_000
    assert config.returns.horizon == recipe.returns.horizon / 2
    assert config.critic.gae_horizon == recipe.critic.gae_horizon / 2


def test_a_training_is_continued_and_not_repeated(tmp_path: Path) -> None:
    settings = ["iterations=1", "behaviour_cloning=null", "validation.sequences=2", "cluster.executors=4",
                "workload.jobs=2", "episodes.sequences=1", "episodes.per_sequence=2"]  # fmt: skip
    folder = tmp_path / "policy"
    name = common.train(folder, "batch", settings, "synthetic", 1)
    assert name == f"decima:{folder / 'policy.npz'}"
    before = (folder / "policy.npz").read_bytes()
    assert common.train(folder, "batch", settings, "synthetic", 1) == name
    assert (folder / "policy.npz").read_bytes() == before
    with pytest.raises(TrainingError, match=r"another workload\.jobs"):
        common.train(folder, "batch", [*settings, "workload.jobs=3"], "synthetic", 1)
