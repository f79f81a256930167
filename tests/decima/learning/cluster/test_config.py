from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from decima.learning.cluster.config import RECIPES, TrainingConfig, read_config
from decima.policy.config import Feature
from decima.policy.presets import PRESETS
from decima.settings import TrainingError
from simulator.cluster.config import SEMANTICS, ClusterConfig
from simulator.cluster.texts import parse_classes
from tests.cases import cases
from tests.decima.learning.cluster.examples import small
from tests.refusal import one_line, refusal
from workloads import Workload, WorkloadError, poisson_arrivals, trace_arrivals, write_workload
from workloads.drawn_attributes import AttributeDistribution
from workloads.sources.carbon import open_signal
from workloads.sources.open import open_workload


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_recipes_and_files_say_what_differs(tmp_path: Path) -> None:
    config = read_config("general")
    assert config.settings is not None
    assert config.returns.relative
    assert read_config(written(tmp_path, config.to_yaml())) == config
    config = read_config(written(tmp_path, "iterations: 7\ncluster: {executors: 3}\nupdate: {learning_rate: 1e-3}"))
    expected = TrainingConfig()
    assert (config.iterations, config.cluster.num_executors) == (7, 3)
    assert (config.cluster.moving_delay_ms, config.update.learning_rate) == (2000.0, 0.001)
    assert read_config(written(tmp_path, "# nothing")) == expected
    config = read_config("paper", ["policy.overrides.embedding=4", "policy.overrides.hidden=[7]"])
    policy = config.policy.build()
    assert (policy.embedding, policy.hidden, policy.all_limits) == (4, (7,), True)


@pytest.mark.parametrize("name", RECIPES.names())
def test_recipes_describe_a_network(name: str) -> None:
    assert read_config(name).policy.build().layers["stage_head"]


@pytest.mark.parametrize("name", ["batch", "makespan", "paper", "quick", "stream"])
def test_recipes_are_complete_settings(name: str, tmp_path: Path) -> None:
    """Recipes can be read, and imitate no rule; their settings are unchanged when written and read again."""
    assert name in RECIPES.names()
    config = read_config(name)
    assert config.behaviour_cloning is None
    conditions = config.conditions()
    assert conditions.cluster.num_executors == (25 if name == "quick" else 50)
    assert conditions.intervals_ms == config.workload.intervals_ms  # type: ignore[attr-defined]
    assert config.cluster.reward == ("makespan" if name == "makespan" else "jct")
    assert config.workload.arrivals == ("poisson" if name in ("paper", "stream") else "batch")
    assert (config.curriculum is not None) == (name == "paper")
    assert (config.policy.preset == "paper") == (name == "paper")
    config = read_config(name, ["policy.overrides.embedding=4", "workload.profiles=some/where"])
    path = written(tmp_path, config.to_yaml())
    assert read_config(path) == config
    assert set(yaml.safe_load(path.read_text())) == set(TrainingConfig.model_fields)


def test_settings_of_cluster_and_workload_are_those_of_the_conditions() -> None:
    attributes = {"deadlines": [2, 3], "weights": [1, 5], "tenants": 2}
    config = TrainingConfig.model_validate(
        {
            "cluster": {
                "classes": "2x0.5,3x1", "moving_delay": 3.5, "reward": "weighted", "carbon": "synthetic-solar:600",
                "semantics": "trace",
            },
            "workload": {
                "file": "synthetic", "arrivals": "poisson", "jobs": 7, "memory_demand": "uniform", "interval": 9,
                "drift": "100:3", **attributes,
            },
        }
    )  # fmt: skip
    conditions = config.conditions()
    assert conditions.cluster == ClusterConfig(
        executor_classes=parse_classes("2x0.5,3x1"),
        moving_delay_ms=3500.0,
        reward="weighted",
        signal=open_signal("synthetic-solar:600"),
        semantics=SEMANTICS["trace"],
    )
    assert (conditions.workload.name, conditions.arrivals, conditions.num_jobs) == ("random DAGs", "poisson", 7)
    assert conditions.memory_demand == "uniform"
    assert str(conditions.drift) == "3 times the rate from 100 s on"
    assert conditions.attributes == AttributeDistribution((2.0, 3.0), 2, (1.0, 5.0))
    jobs = conditions.sequence(3)
    assert len(jobs) == 7
    expected = poisson_arrivals(conditions.workload.profiles, 7, 9000.0, 3, conditions.drift)
    np.testing.assert_array_equal(jobs.arrival_ms, expected.arrival_ms)


@pytest.mark.parametrize("setting", ["batches", "half_size"])
def test_jobs_with_their_own_arrival_times_exclude_other_jobs(setting: str, tmp_path: Path) -> None:
    profiles = open_workload("tpch").profiles[:2]
    write_workload(tmp_path / "jobs.json", Workload(profiles, trace_arrivals(profiles, [0, 1000]), "nightly"))
    config = read_config("batch", [f"workload.file={tmp_path / 'jobs.json'}", f"episodes.{setting}=0.5"])
    message = one_line(WorkloadError, config.conditions)
    assert message == f"episodes.{setting}: has no effect, as the jobs of nightly have their own arrival times"


def test_the_work_of_an_iteration_grows_with_its_jobs_and_episodes(tmp_path: Path) -> None:
    def work(**changes: Any) -> list[float]:
        return small(tmp_path, iterations=4, workload={"jobs": 10}, **changes).work()

    assert work() == [0, 0.25, 0.5, 0.75, 1]
    grows = {"sequences": 1, "final_sequences": 4, "per_sequence": 2}
    assert work(episodes=grows) == pytest.approx([0, 0.1, 0.3, 0.6, 1])
    parts = {"batches": 0.5, "batch_jobs": 5, "half_size": 0.25}  # 2.5, 5, 10 and 10 jobs
    assert work(episodes=parts) == pytest.approx([0, 1 / 11, 3 / 11, 7 / 11, 1])
    curriculum = {"start": 100, "end": 500, "growth": 1.0}  # 100, 200, 300 and 400 s
    assert work(curriculum=curriculum) == pytest.approx([0, 0.1, 0.3, 0.6, 1])


def test_features_beside_those_of_a_preset() -> None:
    preset = PRESETS["relative"]
    config = read_config(
        "batch",
        ["policy.preset=relative", "policy.stage_features=[{name: ready}]", "policy.job_features=[{name: job_weight}]"],
    )
    policy = config.policy.build()
    assert policy.stage_features == (*preset.stage_features, Feature(name="ready"))
    assert policy.job_features == (*preset.job_features, Feature(name="job_weight"))


def test_a_workload_replaces_that_of_the_settings_or_their_sources(tmp_path: Path) -> None:
    file, folder = str(tmp_path / "jobs.json"), str(tmp_path)
    read = [
        read_config("batch", ["workload.file=other.json"], workload=name).workload for name in (file, folder, "tpch")
    ]
    assert [(each.file, each.profiles) for each in read] == [(Path(file), None), (None, Path(folder)), (None, None)]
    assert read_config("mixed", workload=folder).settings.sources == (folder,)
    assert read_config("mixed").settings.sources == ("tpch",)


def test_overrides_win_and_bad_files_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "iterations: 7\nseed: 2")
    overrides = ["iterations=9", "curriculum.start=20", "behaviour_cloning={scheduler: fair, epochs: 2}"]
    config = read_config(path, [*overrides, "workload.file=null"])
    assert (config.iterations, config.seed) == (9, 2)
    assert config.curriculum is not None
    assert config.curriculum.start == 20.0
    assert config.behaviour_cloning is not None
    assert config.behaviour_cloning.scheduler == "fair"
    assert read_config("stream", ["curriculum=null"]).curriculum is None
    with pytest.raises(WorkloadError, match="there is no such folder"):
        TrainingConfig.model_validate({"workload": {"profiles": str(tmp_path / "gone")}}).conditions()
    with pytest.raises(WorkloadError, match="no such workload"):
        TrainingConfig.model_validate({"workload": {"file": str(tmp_path / "gone.json")}}).conditions()


@cases("text, message",
        ("iteration: 3", "iteration: unknown key"),
        ("cluster: {executers: 3}", "cluster.executers: unknown key (did you mean 'executors'?)"),
        ("cluster: {executors: 0}", "cluster.executors: expected a number of at least 1, got 0"),
        ("cluster: 5", "cluster: expected"),
        ("update: {learning_rate: .nan}", "update.learning_rate: "),
        ("update: {algorithm: a2c}", "update.algorithm: expected 'ppo', 'reinforce' or module:Class"),
        ("returns: {horizon: -1}", "returns.horizon: "),
        ("policy: {overrides: {embeding: 3}}", "policy.overrides: embeding: unknown key"),
        ("policy: {overrides: {hidden: [0]}}", "policy.overrides: hidden[0]: expected greater than or equal to 1"),
        ("baseline: {kind: heuristic, scheduler: nobody}", "baseline.scheduler: unknown scheduler 'nobody'"),
        ("behaviour_cloning: {scheduler: 'weighted-fair:x'}", "behaviour_cloning.scheduler: "),
        ("workload: {profiles: a, file: b}", "workload: profiles and file exclude each other"),
        ("workload: {interval: []}", "workload.interval: expected at least 1 value"),
        ("workload: {interval: [3, 0]}", "workload.interval"),
        ("workload: {deadlines: [4, 2]}", "workload: deadlines: expected ascending slacks, got 4,2"),
        ("workload: {deadlines: [1, 2, 3]}",
         "workload.deadlines: expected at most 2 values, got [1, 2, 3]"),
        ("workload: {deadlines: soon}", "workload.deadlines: expected numbers separated by commas, got 'soon'"),
        ("settings: {deadlines: [4, 2]}", "settings: deadlines: expected ascending slacks, got 4,2"),
        ("workload: {deadlines: 0}", "workload.deadlines"),
        ("workload: {weights: [1, 0]}", "workload.weights[1]: expected a number of at least 1e-09, got 0"),
        ("workload: {tenants: 2000}", "workload.tenants: expected a number of at most 1,000, got 2000"),
        ("cluster: {reward: weightd}", "cluster: reward 'weightd': unknown objective 'weightd' (did you"),
        ("cluster: {reward: 'deadline:-1'}", "cluster: reward 'deadline:-1': expected a number of at "),
        ("settings: {sources: []}", "settings.sources: expected at least one"),
        ("settings: {lod: 2}", "settings.lod: unknown key (did you mean 'load'?), got 2"),
        ("settings: true", "settings: must not be a Boolean, got true"),
        ("settings: many", "settings: expected an object, got 'many'"),
        ("settings: {load: {normal: [1, 2]}}", "settings.load: expected a number, or exactly one of uniform, "),
        ("settings: {executors: {uniform: [5, 2]}}", "settings.executors: uniform: expected two ascending numbers"),
        ("settings: {executors: {uniform: 5}}", "settings.executors: uniform: expected numbers in a list"),
        ("settings: {unknown: {one_of: [0, 2]}}", "settings.unknown: expected a number of at most 1, got 2"),
        ("settings: {task_failures: 1.5}", "settings.task_failures: expected a number of at most 1, got 1.5"),
        ("settings: {straggler_factor: 0.5}", "settings.straggler_factor: expected a number of at least 1, got 0.5"),
        ("settings: {job_error: -1}", "settings.job_error: expected a number of at least 0, got -1"),
        ("settings: {executors: 0}", "settings.executors: expected a number of at least 1, got 0"),
        ("settings: {moving_delay: {log_uniform: [0, 2]}}",
         "settings.moving_delay: log_uniform: expected positive numbers, got [0, 2]"),
        ("settings: {durations: {one_of: [1, 0]}}", "settings.durations: expected a number greater than 0, got 0"),
        ("settings: {batches: 2}", "settings.batches: "),
        ("settings: {}\ncluster: {executors: 3}", "cluster.executors: has no effect beside settings"),
        ("settings: {}\ncluster: {moving_delay: 3}", "cluster.moving_delay: has no effect beside settings"),
        ("settings: {}\nworkload: {jobs: 3}", "workload: has no effect beside settings"),
        ("settings: {}\nbehaviour_cloning: {jobs: 3}", "behaviour_cloning.jobs: has no effect beside settings"),
        ("settings: {}\nepisodes: {fixed_sequences: false}", "episodes.fixed_sequences: expected true beside settings"),
        ("settings: {}\nepisodes: {batches: 0.5}", "episodes.batches: has no effect beside settings"),
        ("settings: {}\nepisodes: {half_size: 0.5}", "episodes.half_size: has no effect beside settings"),
        ("returns: {relative: true}\ncluster: {reward: makespan}", "returns.relative: expected the reward jct"),
        ("restarts: {seeds: 1}", "restarts.seeds: expected greater than or equal to 2, got 1"),
        ("restarts: {share: 1}", "restarts.share: expected less than 1, got 1"),
        ("search: {pairs: 0}", "search.pairs: expected greater than or equal to 1, got 0"),
        ("search: {pairs: 1000000000}", "iterations: there are seeds for 800000000 episodes only"),
        ("search: {}\nepisodes: {sequences: 3}", "episodes: has no effect beside search"),
        ("search: {}\ncritic: {}", "critic: has no effect beside search"),
        ("search: {}\nupdate: {ema_decay: 0.5}", "update: has no effect beside search"),
        ("search: {}\npolicy: {overrides: {limit: outputs}}", "search: expected built-in heads, and not"),
        ("validation: {against: nobody}", "validation.against: unknown scheduler 'nobody'"),
        ("curriculum: {start: 5}\ncluster: {semantics: decima-sim}", "curriculum: no episode ends early"),
        ("start: tpch-batch\nbehaviour_cloning: {}", "start: expected behaviour_cloning=null beside it"),
        ("imitation: {epochs: 3}", "imitation is called behaviour_cloning now"),
        ("critic: {trace: 3}", "critic: trace is called gae_horizon now"),
        ("critic: {memory: 0.5}", "critic: memory is called decay now"),
        ("update: {averaging: 0.5}", "update: averaging is called ema_decay now"),
        ("iterations: 900000000", "iterations: there are seeds for "),
        ("seed: -1", "seed: "),
        ("- 1\n- 2", "expected keys and values"),
        ("a: [1,\nb: 2", "line 2, column 5: expected ',' or ']'"),
        ("seed: 1\nseed: 2", "line 2, column 1: the key 'seed' is given more than once"),
        ("seed: !!python/object/apply:os.system ['true']", "line 1, column 7: could not determine a constructor"),
)  # fmt: skip
def test_a_bad_file_is_refused_in_one_line_that_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(read_config, TrainingError, written(tmp_path, text)).startswith(message)


#: Values that YAML reads as another type than intended.
ODD = (
    "iterations: 2001-13-45", "iterations: !!timestamp x", "? [a]\n: b", "? {a: 1}\n: b", "iterations: 1_0",
    "iterations: !!int ''", "iterations: " + "9" * 5000, "iterations: &a [*a]", "iterations: true", "a: *b",
    "iterations: 1.5", "iterations: '\u0663'", "iterations: '2'", "iterations: 1:30", "iterations: 010",
    "iterations: 0x10", "cluster: {moving_delay: '2'}", "cluster: {moving_delay: 1:30}",
    "workload: {intervals: ['25', 30]}", "workload: {arrivals: poisson, interval: ['25', 30]}",
    "episodes: {fixed_sequences: 'yes'}", "policy: {overrides: {embedding: '8'}}",
    "policy: {stage_features: [{name: price, scale: '2'}]}", "a: " + "[" * 3000, "\titerations: 1",
    "---\niterations: 1\n---\niterations: 2", "%YAML 9.9\n---\niterations: 1", "iterations: 1\x1b[31m",
    "cluster: {moving_delay: .inf}", "cluster: {moving_delay: 1e300}", "network: {activation: '\u202egnp'}",
)  # fmt: skip


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:30])
def test_whatever_yaml_could_take_it_for_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    assert refusal(read_config, TrainingError, written(tmp_path, text))


@cases(
    "override, message",
    ("iterations", "'iterations' is not of the form section.key=value"),
    ("=3", "'=3' is not of the form"),
    ("cluster..executors=3", "is not of the form"),
    ("iterations.more=3", "'iterations.more=3': iterations has no keys"),
    ("cluster.executors=[", "'cluster.executors=[': line 1"),
    ("imitation.epochs=3", "batch with imitation.epochs=3: imitation is called behaviour_cloning now"),
    ("cluster.executors=x", "batch with cluster.executors=x: cluster.executors: expected a whole number, got 'x'"),
)
def test_a_bad_override_is_refused_in_one_line(override: str, message: str) -> None:
    assert message in one_line(TrainingError, read_config, "batch", [override])


def test_missing_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"nowhere\.yaml: No such file or directory"):
        read_config(tmp_path / "nowhere.yaml")
    with pytest.raises(
        TrainingError,
        match=r"unknown recipe 'bach' \(did you mean 'batch'\?\): expected one of batch, deadlines, errors, ",
    ):
        read_config("bach")
    with pytest.raises(TrainingError, match="Is a directory"):
        read_config(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"seed: \xff")
    with pytest.raises(TrainingError, match=r"b\.yaml: byte 6: expected UTF-8"):
        read_config(tmp_path / "b.yaml")


def test_rates_and_intervals_of_a_training() -> None:
    rates = "learning_rate: 3.0, final_learning_rate: 1.0"
    update = f"update={{{rates}, entropy_start: 8, entropy_end: 4, entropy_decay: 0.8}}"
    config = read_config("stream", ["curriculum={start: 100, end: 300, growth: 0.5}", update])
    assert config.curriculum is not None
    assert [config.curriculum.mean_end_s(each) for each in (0, 0.25, 0.5, 0.9)] == [100, 200, 300, 300]
    assert [config.update.learning_rate_at(each) for each in (0, 0.5, 1)] == [3, 2, 1]
    assert [config.update.entropy_weight_at(each) for each in (0, 0.4, 0.8, 1)] == pytest.approx([8, 6, 4, 4])
    config = read_config("stream", ["curriculum.growth=0", "update.entropy_decay=0", "update.entropy_end=0.5"])
    assert config.curriculum is not None
    assert config.curriculum.mean_end_s(0.0) == config.curriculum.end
    assert config.update.entropy_weight_at(0.0) == 0.5
    # Seeds of an iteration draw all intervals, at any distance; a seed always draws the same interval.
    several = read_config("stream", ["workload.interval=[2, 20, 200]", "workload.jobs=400"]).conditions()
    found = {2.0: 0, 20.0: 0, 200.0: 0}
    for seed in range(0, 240, 4):
        sequence = several.sequence(seed)
        mean_s = float(np.diff(sequence.arrival_ms).mean()) / 1000
        [interval] = [each for each in found if abs(mean_s / each - 1) < 0.3]
        found[interval] += 1
        one = read_config("stream", [f"workload.interval={interval}", "workload.jobs=400"]).conditions()
        np.testing.assert_array_equal(sequence.arrival_ms, one.sequence(seed).arrival_ms)
    assert min(found.values()) > 8
