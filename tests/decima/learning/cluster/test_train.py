"""Training on clusters; ``test_loop`` has the tests common with grids."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import decima
from decima.evaluation.fit import evaluation_setting, misfits
from decima.learning.cluster.advantages import Advantages
from decima.learning.cluster.config import TrainingConfig, read_config
from decima.learning.cluster.demonstrations import record_scheduler, record_sequence
from decima.learning.cluster.ppo import PPO
from decima.learning.cluster.reinforce import Reinforce
from decima.learning.cluster.rollout import Episode, Trajectories, plan_iteration, roll_out, start_episodes
from decima.learning.cluster.train import ClusterTraining, train_policy
from decima.learning.cluster.validation import evaluate_policy
from decima.learning.loop import CARD, CHECKPOINT, POLICY
from decima.learning.metrics import IterationReport, TrainingResult
from decima.learning.metrics_file import read_metrics
from decima.learning.resume import load_checkpoint
from decima.policy import NeuralScheduler, Policy, PolicyFileError, load_policy, read_trained_on
from decima.settings import TrainingError, silent
from simulator import ClusterConfig, run_episode
from simulator.cluster.metrics import EpisodeMetrics
from tests.cases import cases
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.examples import small
from tests.simulator.cluster.build import job, stage
from workloads import Workload, WorkloadError, trace_arrivals, write_workload


def train(config: TrainingConfig, out: Path, **options: Any) -> TrainingResult[TrainingConfig]:
    return ClusterTraining(config, out, **options).run()


def clone(config: TrainingConfig, out: Path) -> None:
    """Return settings of behaviour cloning without reinforcement learning."""
    with ClusterTraining(config, out).started() as training:
        assert list(training._clone(0))


def test_settings_are_keywords(tmp_path: Path) -> None:
    sections = {"cluster": {"executors": 3, "moving_delay": 0.5}, "workload": {"jobs": 2}, "behaviour_cloning": None}
    (tmp_path / "small.yaml").write_text(small(tmp_path, seed=3).to_yaml())
    config = train_policy(tmp_path / "small.yaml", tmp_path / "out", iterations=1, **sections).config
    cluster = ClusterConfig(num_executors=3, moving_delay_ms=500.0)
    assert (config.iterations, config.seed, config.behaviour_cloning) == (1, 3, None)
    assert config.cluster == cluster
    assert (config.workload.num_jobs, config.workload.file) == (2, tmp_path / "tiny.json")
    for settings, message in (
        ({"iteration": 1}, "iteration: unknown key .did you mean 'iterations'"),
        ({"cluster": {"executors": 0}}, "cluster.executors: expected a number of at least 1, got 0"),
    ):
        with pytest.raises(TrainingError, match=message):
            train_policy("quick", tmp_path / "other", **settings)
    with pytest.raises(TrainingError, match="need the name of a recipe or a file"):
        train_policy(config, tmp_path / "other", iterations=1)


def test_a_training_without_a_folder_makes_one_and_shows_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.yaml").write_text(small(tmp_path, iterations=1).to_yaml())
    monkeypatch.chdir(tmp_path)
    reports: list[IterationReport] = []
    for folder in ("short-policy", "short-policy-2"):
        result = decima.train("short.yaml", behaviour_cloning=None, on_iteration=reports.append)
        assert result.policy_file == Path(folder, "policy.npz")
        assert f"TrainingResult({folder}" in repr(result)
        assert "1/1; training JCT" in capsys.readouterr().err
    assert [report.iteration for report in reports] == [0, 1, 0, 1]
    decima.train("short.yaml", "silent", behaviour_cloning=None, on_progress=silent)
    assert capsys.readouterr().err == ""
    with pytest.raises(TrainingError, match="resume needs the folder of the run, out"):
        decima.train("short.yaml", resume=True)


def test_metrics_of_an_iteration_are_those_of_its_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(tmp_path, curriculum={"start": 20, "end": 50}, validation={"every": 3})
    seen: list[tuple[Trajectories, float]] = []

    class Noted(Advantages):
        def __call__(self, policy: Policy, samples: Trajectories, groups: Any) -> np.ndarray:
            advantage = super().__call__(policy, samples, groups)
            seen.append((samples, float(advantage.std())))
            return advantage

    monkeypatch.setattr("decima.learning.cluster.train.Advantages", Noted)
    train(config, tmp_path / "out")
    rows = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert [row["mean_end_s"] for row in rows[1:]] == [20, 30, 40]
    assert len({int(samples.num_completed.sum()) for samples, _ in seen}) > 1
    for before, row, (samples, advantage_std) in zip(rows, rows[1:], seen, strict=False):
        completed = samples.num_completed > 0
        assert row["mean_jct_s"] == pytest.approx(samples.mean_jct_ms[completed].mean() / 1000)
        assert row["return"] == pytest.approx(samples.reward.sum() / samples.end_ms.size)
        assert row["advantage_std"] == pytest.approx(advantage_std)
        counts = len(samples), samples.num_decisions.sum(), samples.num_completed.sum()
        assert (row["samples"], row["decisions"], row["completed_jobs"]) == counts
        assert row["rollout_ms_per_decision"] * row["decisions"] == pytest.approx(1000 * row["rollout_cpu_s"])
        assert row["rollout_cpu_s"] + row["update_cpu_s"] <= row["cpu_s"] - before["cpu_s"]


#: Settings of updates that all differ from their defaults.
UPDATE = {
    "clip": 0.3, "epochs": 3, "minibatches": 5, "max_kl": 0.5, "max_gradient_norm": 0.75,
    "learning_rate": 0.4, "final_learning_rate": 0.1, "entropy_start": 8, "entropy_end": 2, "entropy_decay": 0.5,
}  # fmt: skip
#: Learning rates and entropy weights of three iterations: the weight is at its end after half of the training.
SCHEDULE = [(0.4, 8.0), (0.3, 4.0), (0.2, 2.0)]


@pytest.mark.parametrize("algorithm", ["ppo", "reinforce"])
def test_each_update_has_its_settings_and_the_rates_of_its_iteration(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path, update={**UPDATE, "algorithm": algorithm}, validation={"every": 3})
    used: list[tuple[float, float]] = []

    def update(
        own: Reinforce,
        policy: Policy,
        optimiser: torch.optim.Optimizer,
        *_: Any,
        entropy_weight: float,
        max_gradient_norm: float,
        **__: Any,
    ) -> dict[str, float]:
        assert (type(own).__name__.lower(), max_gradient_norm) == (algorithm, 0.75)
        if isinstance(own, PPO):
            assert (own.clip, own.epochs, own.minibatches, own.max_kl) == (0.3, 3, 5, 0.5)
        used.append((optimiser.param_groups[0]["lr"], entropy_weight))
        return {}

    for each in (PPO, Reinforce):
        monkeypatch.setattr(each, "update", update)
    train(config, tmp_path / "out")
    np.testing.assert_allclose(used, SCHEDULE)
    rows = read_metrics(tmp_path / "out" / "metrics.jsonl")[1:]
    np.testing.assert_allclose([[row["learning_rate"], row["entropy_weight"]] for row in rows], SCHEDULE)


def samples_of(config: TrainingConfig) -> Trajectories:
    """Return the samples of one episode of a training."""
    [[plan, *_], *_] = plan_iteration(config, 0)
    policy = Policy(config.policy.build())
    return roll_out(policy, start_episodes(policy.config, config.conditions(), [plan]))


@pytest.mark.parametrize("normalise", ["std", "sequence", "none"])
def test_what_is_normalised(normalise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(tmp_path, iterations=1, update={"normalise": normalise}, episodes={"sequences": 3})
    seen = []

    def update(
        own: PPO, policy: Policy, optimiser: Any, samples: Trajectories, advantage: np.ndarray, **_: Any
    ) -> dict[str, float]:
        each = samples.first[:: config.episodes.per_sequence]
        seen.append([advantage, *np.split(advantage, each[1:-1])])
        return {}

    monkeypatch.setattr(PPO, "update", update)
    train(config, tmp_path / "run")
    [[whole, *parts]] = seen
    assert len(parts) == 3
    normal = [abs(part.mean()) < 1e-6 and abs(part.std() - 1) < 1e-6 for part in (whole, *parts)]
    assert normal == {"std": [True] + 3 * [False], "sequence": 4 * [True], "none": 4 * [False]}[normalise]


def test_the_policy_says_what_it_was_trained_on(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=1)
    result = train(config, tmp_path / "out")
    trained, conditions = read_trained_on(result.policy_file), config.conditions()
    assert trained is not None
    assert trained == evaluation_setting(conditions, config.training_seeds)
    assert (trained.executors.middle, trained.stages.middle, trained.load) == (4, 2, None)
    assert misfits(result.policy_file, conditions) == []
    assert misfits(result.policy_file, replace(conditions, cluster=ClusterConfig(400)))
    assert "## Trained on" in (tmp_path / "out" / CARD).read_text()


def test_seconds_of_training_beat_the_untrained_policy_by_far(tmp_path: Path) -> None:
    """The policy improves on 50 held-out sequences (paired t above 8), and comes close to the tuned heuristic."""
    config = small(
        tmp_path,
        iterations=20,
        workload={"jobs": 6},
        episodes={"sequences": 4, "per_sequence": 4},
        update={"minibatches": 4, "learning_rate": 3e-3},
        validation={"every": 5, "sequences": 8},
    )
    result = train(config, tmp_path / "out")
    conditions = config.conditions()
    untrained = evaluate_policy(conditions, Policy(config.policy.build(), seed=config.seed), range(50))[:, 0]
    trained = evaluate_policy(conditions, load_policy(result.policy_file), range(50))[:, 0]
    gained = untrained - trained
    assert gained.mean() / (gained.std(ddof=1) / np.sqrt(50)) > 8
    assert trained.mean() < 0.9 * untrained.mean()
    assert result.improvement > -0.05
    jct_s = [row["mean_jct_s"] for row in read_metrics(tmp_path / "out" / "metrics.jsonl") if row["iteration"] > 0]
    assert np.mean(jct_s[-5:]) < np.mean(jct_s[:5])


def test_the_weights_that_are_judged_are_a_moving_average(tmp_path: Path) -> None:
    """The average equals one computed by hand from the weights of each iteration."""
    config = small(tmp_path, iterations=3, checkpoint_every=1, update={"ema_decay": 0.75})
    expected = Policy(config.policy.build(), seed=config.seed).state_dict()

    def follow(report: IterationReport) -> None:
        if report.iteration:
            learned = load_checkpoint(tmp_path / "out" / CHECKPOINT).learner["networks"]
            for name, weight in expected.items():
                expected[name] = 0.75 * weight + 0.25 * learned[f"policy.{name}"]

    ClusterTraining(config, tmp_path / "out").run(follow)
    found = load_checkpoint(tmp_path / "out" / CHECKPOINT).learner["networks"]
    for name, weight in expected.items():
        torch.testing.assert_close(found[f"average.{name}"], weight)


def test_where_makespan_is_rewarded_it_is_compared(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=1, cluster={"reward": "makespan"})
    result = train(config, tmp_path / "out")
    judged = evaluate_policy(config.conditions(), load_policy(result.policy_file), range(5_000_000, 5_000_002))
    np.testing.assert_allclose(result.results["decima"], judged[:, 1])
    expected = 1 - judged[:, 1].mean() / np.mean(result.results["tuned-weighted-fair"])
    assert result.improvement == pytest.approx(expected)


def test_a_policy_is_trained_and_kept_for_its_objective(tmp_path: Path) -> None:
    """Weights and deadlines are drawn; costs are computed by hand from the episodes."""
    config = small(
        tmp_path,
        iterations=2,
        cluster={"reward": "weighted+2*deadline:5"},
        workload={"weights": [1, 16], "deadlines": [1, 3], "tenants": 2},
        policy={"job_features": [{"name": "job_weight"}, {"name": "deadline_left_ms", "scale": 1000, "log": True}]},
        validation={"every": 1},
    )
    result, conditions = train(config, tmp_path / "out"), config.conditions()
    scheduler, costs_s = NeuralScheduler(load_policy(result.policy_file)), []
    for seed in config.validation_seeds:
        record = run_episode(conditions.cluster, conditions.sequence(seed), scheduler)
        late_s = np.maximum(record.completion_ms - EpisodeMetrics(record).deadline_ms, 0) / 1000
        jobs_s = record.sequence.weight * record.jct_ms / 1000 + 2 * (late_s + 5 * EpisodeMetrics(record).missed)
        costs_s.append(float(jobs_s.mean()))
        assert {each.tenant for each in record.sequence.attributes} <= {"tenant-1", "tenant-2"}
    np.testing.assert_allclose(np.divide(result.results["decima"], 1000), costs_s)
    rows = [row for row in read_metrics(tmp_path / "out" / "metrics.jsonl") if "validation_cost_s" in row]
    assert min(row["validation_cost_s"] for row in rows) == pytest.approx(np.mean(costs_s))
    assert all(row["validation_mean_jct_s"] < row["validation_cost_s"] for row in rows)

    trained = read_trained_on(result.policy_file)
    assert trained is not None
    assert trained.objective == "weighted+2*deadline:5"
    assert misfits(result.policy_file, conditions) == []
    assert misfits(result.policy_file, replace(conditions, cluster=ClusterConfig(4))) == [
        "the objective is jct, trained for weighted+2*deadline:5"
    ]
    card = (tmp_path / "out" / CARD).read_text()
    assert "It was trained for the objective `weighted+2*deadline:5`, not for the mean JCT." in card
    assert "| cost per job by weighted+2*deadline:5 |" in card


def test_a_policy_is_trained_for_carbon(tmp_path: Path) -> None:
    reward = "jct+5*carbon:synthetic-solar:600"
    config = small(tmp_path, iterations=1, cluster={"reward": reward}, validation={"every": 1})
    result, conditions = train(config, tmp_path / "out"), config.conditions()
    scheduler, costs_s = NeuralScheduler(load_policy(result.policy_file)), []
    for seed in config.validation_seeds:
        record = run_episode(conditions.cluster_of(seed), conditions.sequence(seed), scheduler)
        costs_s.append(record.mean_jct_ms / 1000 + 5 * EpisodeMetrics(record).carbon / len(record.sequence))
    np.testing.assert_allclose(np.divide(result.results["decima"], 1000), costs_s)
    signal = {"cluster": {"reward": "carbon", "carbon": "synthetic-solar:600"}}
    assert small(tmp_path, **signal).conditions().cluster.signal == conditions.cluster.signal
    assert misfits(result.policy_file, conditions) == []


def test_rewards_of_another_objective_make_another_policy(tmp_path: Path) -> None:
    workload = {"weights": [1, 16]}
    learned = {}
    for reward in ("jct", "weighted"):
        config = small(tmp_path, iterations=1, cluster={"reward": reward}, workload=workload)
        train(config, tmp_path / reward)
        networks = load_checkpoint(tmp_path / reward / CHECKPOINT).learner["networks"]
        learned[reward] = torch.cat([each.flatten() for each in networks.values()])
    assert not torch.equal(*learned.values())
    file, elsewhere = tmp_path / "weighted" / POLICY, replace(config.conditions(), cluster=ClusterConfig(4))
    assert misfits(file, elsewhere, "mean") == ["the objective is jct, trained for weighted"]
    assert misfits(file, elsewhere, "weighted") == []


def test_deadlines_that_all_schedulers_meet_are_no_gain(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=1, cluster={"reward": "deadline"}, workload={"deadlines": 1000})
    result = train(config, tmp_path / "out")
    assert result.improvement == 0
    assert set(result.results["decima"]) == {0}
    assert result.best_iteration == 0, "no later policy is better"


@cases(
    "reward, workload, message",
    ("jct+deadline", {"weights": [2]},
     "cluster.reward 'jct+deadline': no job has a deadline, expected workload.deadlines"),
    ("weighted", {"deadlines": 3}, "cluster.reward 'weighted': all jobs have the weight 1, expected workload.weights"),
)  # fmt: skip
def test_an_objective_needs_the_attributes_that_it_is_about(
    reward: str, workload: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = small(tmp_path, cluster={"reward": reward}, workload=workload)
    with pytest.raises(WorkloadError) as caught:
        train(config, tmp_path / "out")
    assert str(caught.value) == message


def test_settings_draw_attributes_and_nothing_else_changes(tmp_path: Path) -> None:
    given = {"sources": ["synthetic"], "batch_jobs": 4, "executors": 4}
    more = {"deadlines": [2, 3], "weights": [1, 9], "tenants": 2}
    plain, drawn = (
        read_config("general", [f"settings={json.dumps(each)}"]).conditions() for each in (given, given | more)
    )
    for seed in range(3):
        jobs, same = drawn.sequence(seed), plain.sequence(seed)
        assert (jobs.profiles, jobs.arrival_ms.tolist()) == (same.profiles, same.arrival_ms.tolist())
        assert {each.weight for each in jobs.attributes} <= {1, 9}
        assert all(2 <= each.slack <= 3 for each in jobs.attributes)
        assert not same.attributes
    overrides = [f"settings={json.dumps(given)}", "cluster.reward=fairness", "returns.relative=false"]
    with pytest.raises(WorkloadError, match=r"all jobs have one tenant, expected settings\.tenants"):
        read_config("general", overrides).conditions()


def test_behaviour_cloning_of_longer_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloning = {"scheduler": "fair", "sequences": 2, "epochs": 1}
    lengths: dict[int | None, list[int]] = {}
    for jobs in (None, 5):
        config = small(tmp_path, behaviour_cloning={**cloning, "jobs": jobs})
        lengths[jobs] = []

        def noted(scheduler: Any, episodes: list[Episode], seen: list[int] = lengths[jobs]) -> Trajectories:
            seen += [len(each.sequence) for each in episodes]
            return record_scheduler(scheduler, episodes)

        monkeypatch.setattr("decima.learning.cluster.demonstrations.record_scheduler", noted)
        clone(config, tmp_path / str(jobs))
    assert lengths == {None: 2 * [config.workload.num_jobs], 5: [5, 5]}
    assert config.workload.num_jobs != 5


def test_behaviour_cloning_has_settings_of_its_own_and_its_rate_falls_to_a_tenth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloning = {
        "scheduler": "fair", "sequences": 3, "epochs": 4, "minibatch": 7, "learning_rate": 0.5, "entropy": 0.25,
    }  # fmt: skip
    config = small(tmp_path, behaviour_cloning=cloning, episodes={"share": 0.5}, update={"max_gradient_norm": 0.75})

    def noted(
        evaluate: Any,
        policy: Policy,
        optimiser: Any,
        draw_minibatches: Callable[[], list[np.ndarray]],
        rates: list[float],
        *_: Any,
        entropy_weight: float,
        max_gradient_norm: float,
    ) -> list[dict[str, float]]:
        np.testing.assert_allclose(rates, [0.5, 0.35, 0.2, 0.05])
        assert (entropy_weight, max_gradient_norm) == (0.25, 0.75)
        sizes = [part.size for part in draw_minibatches()]
        choices = [len(record_sequence("fair", None, 1.0, training._shared(), seed)) for seed in config.cloning_seeds]
        assert len(choices) == 3
        assert sum(sizes) == sum(-(-each // 2) for each in choices), "half of the choices are samples"
        assert len(sizes) == -(-sum(sizes) // 7)
        for weight in policy.parameters():
            weight.data += 1
        return [{}]

    monkeypatch.setattr("decima.learning.cluster.clone.clone_epochs", noted)
    with ClusterTraining(config, tmp_path / "out").started() as training:
        assert len(list(training._clone(0))) == 1
        networks = training.networks.state_dict()
    for name in networks:
        if name.startswith("average."):  # the average begins with the policy after cloning
            torch.testing.assert_close(networks[name], networks[name.replace("average.", "policy.", 1)])


def test_a_policy_of_other_sizes_is_no_beginning(tmp_path: Path) -> None:
    train(small(tmp_path, iterations=1), tmp_path / "first")
    start = str(tmp_path / "first" / "policy.npz")
    for changes, message in (
        (
            {"start": start, "policy": {"overrides": {"graph": False}}},
            r"policy\.npz: a policy of other settings: graph",
        ),
        ({"start": "tpch-batch"}, r"tpch-batch\.npz: a policy of other settings: stage_features"),
    ):
        with pytest.raises(PolicyFileError, match=message):
            ClusterTraining(small(tmp_path, behaviour_cloning=None, **changes), tmp_path / "run")


def test_a_policy_that_cannot_wait_is_a_beginning_of_one_that_can(tmp_path: Path) -> None:
    first = train(small(tmp_path, iterations=1, policy={"overrides": {"wait": False}}), tmp_path / "first")
    config = small(tmp_path, start=str(first.policy_file), behaviour_cloning=None, policy={"overrides": {"wait": True}})
    started = ClusterTraining(config, tmp_path / "run").policy
    assert started.config.wait
    before = load_policy(first.policy_file).state_dict()
    assert all(torch.equal(weight, before[name]) for name, weight in started.state_dict().items())


def test_a_workload_that_has_changed_since_is_noticed(tmp_path: Path) -> None:
    train(small(tmp_path, iterations=1), tmp_path / "out")
    library = Workload((job(stage(3, 200.0), name="other"),), None, "other")
    write_workload(tmp_path / "tiny.json", library)
    with pytest.raises(TrainingError, match="belongs to a run on another workload"):
        ClusterTraining(small(tmp_path, iterations=1), tmp_path / "out", resume=True)


def test_one_job_of_one_stage_can_be_trained_on(tmp_path: Path) -> None:
    """With one executor there is no choice, so there are no samples."""
    library = Workload((job(stage(3, 200.0), name="only"),), None, "one")
    for executors in (1, 3):
        config = small(tmp_path, library=library, iterations=2, workload={"jobs": 1}, cluster={"executors": executors})
        result = train(config, tmp_path / str(executors))
        assert (result.iteration, len(result.results["decima"])) == (2, 2)
        rows = read_metrics(tmp_path / str(executors) / "metrics.jsonl")
        assert (rows[1]["samples"] == 0) == (executors == 1)


def test_trainings_end_without_decisions_jobs_or_devices(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=2, curriculum={"start": 0.001, "end": 0.001})
    train(config, tmp_path / "out")
    rows = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert "mean_jct_s" not in rows[1]
    assert rows[1]["completed_jobs"] == 0
    for device in ("tpu", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(TrainingError, match=f"there is no device {device} here"):
            ClusterTraining(small(tmp_path), tmp_path / "out", device=device)


def test_exact_arrivals_are_replayed_with_other_noise(tmp_path: Path) -> None:
    arrivals = trace_arrivals(LIBRARY.profiles[:3], [0.0, 500.0, 900.0])
    config = small(tmp_path, library=Workload(LIBRARY.profiles, arrivals, "trace"), iterations=1)
    result = train(config, tmp_path / "out")
    assert len(set(result.results["fair"])) == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_updates_can_be_computed_on_a_gpu(tmp_path: Path) -> None:
    config = small(tmp_path)
    train(config, tmp_path / "cpu")
    train(config, tmp_path / "gpu", device="cuda")
    one, other = (load_policy(tmp_path / name / POLICY).state_dict() for name in ("cpu", "gpu"))
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=0.01, rtol=0)
