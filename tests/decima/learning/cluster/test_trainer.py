from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decima.learning.cluster import learner
from decima.learning.cluster.checkpoint import load_checkpoint
from decima.learning.cluster.config import TrainingConfig, TrainingError, read_config
from decima.learning.cluster.metrics import METRICS, read_metrics
from decima.learning.cluster.rollout import NotFiniteError, roll_out_scheduler
from decima.learning.cluster.trainer import CHECKPOINT, IterationReport, Trainer, TrainingResult
from decima.learning.cluster.validation import judge
from decima.learning.updates import ppo
from decima.policy.files import PolicyFileError, load_policy, read_about
from decima.policy.policy import Policy
from tests.decima.learning.cluster.examples import small
from tests.simulator.cluster.build import job, stage
from workloads import Workload, write_workload


def weights(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files if name != "policy"}


def assert_same_policy(one: Path, other: Path) -> None:
    left, right = weights(one / "policy.npz"), weights(other / "policy.npz")
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])


def train(config: TrainingConfig, out: Path, **options: Any) -> TrainingResult:
    return Trainer(config, out, **options).run()


class Stopped(Exception):
    """Stands for whatever may end a program."""


def stop_after(iteration: int, error: type[BaseException]) -> Any:
    def on_iteration(report: IterationReport) -> None:
        if report.iteration == iteration:
            raise error

    return on_iteration


#: Every setting that takes another way through the code.
WAYS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "reinforce": {"update": {"algorithm": "reinforce", "normalise": "none"}},
    "critic": {"critic": {"trace": 3}, "curriculum": {"start": 2, "end": 6}},
    "differential": {
        "returns": {"kind": "differential", "window": 50},
        "curriculum": {"start": 2, "end": 6},
        "workload": {"arrivals": "poisson", "interval": 2},
    },
    "discounted": {"returns": {"kind": "discounted", "horizon": 5}},
    "heuristic": {"baseline": {"kind": "heuristic", "scheduler": "fair"}},
    "heuristic, critic, unfixed": {
        "baseline": {"kind": "heuristic"},
        "critic": {},
        "episodes": {"fixed_sequences": False},
    },
    "no baseline": {"baseline": {"kind": "none"}},
    "unfixed": {"episodes": {"fixed_sequences": False}},
    "imitation": {"imitation": {"scheduler": "fair", "sequences": 2, "epochs": 1}},
    "makespan": {"cluster": {"reward": "makespan"}},
    "no average": {"update": {"averaging": 0.0}},
    "decima-sim": {"policy": {"preset": "decima-sim"}, "cluster": {"semantics": "decima-sim"}},
    "no graph": {"policy": {"overrides": {"graph": False, "limit": "none"}}},
    "waiting": {
        "policy": {"preset": "profiled"},
        "imitation": {"scheduler": "profiled-srpt:2.5", "sequences": 2, "epochs": 1},
    },
    "each sequence normalised": {"update": {"normalise": "sequence"}},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_training_learns_something_and_goes_on(way: str, tmp_path: Path) -> None:
    config = small(tmp_path, **WAYS[way])
    result = train(config, tmp_path / "whole")
    assert result.iteration == 3
    assert not result.interrupted
    rows = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    assert [row["iteration"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert row.keys() <= METRICS.keys()
    for row in rows[1:]:
        assert row["steps"] >= 1
        assert row["gradient_norm"] > 0
    initial = Policy(config.policy.build(), seed=config.seed).state_dict()
    learned = load_checkpoint(tmp_path / "whole" / CHECKPOINT).policy
    assert any(not torch.equal(initial[name], learned[name]) for name in initial)

    with pytest.raises(Stopped):
        Trainer(config, tmp_path / "parts").run(stop_after(1, Stopped))
    train(config, tmp_path / "parts", resume=True)
    assert_same_policy(tmp_path / "whole", tmp_path / "parts")
    one, other = (load_checkpoint(tmp_path / name / CHECKPOINT) for name in ("whole", "parts"))
    assert all(torch.equal(one.policy[name], other.policy[name]) for name in one.policy)
    assert one.curve == other.curve


@pytest.mark.parametrize("normalise", ["std", "sequence", "none"])
def test_what_is_normalised(normalise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(tmp_path, iterations=1, update={"normalise": normalise}, episodes={"sequences": 3})
    seen = []

    def spy(
        policy: Policy, optimiser: Any, samples: Any, advantage: np.ndarray, *rest: Any, **options: Any
    ) -> Any:
        each = samples.first[:: config.episodes.per_sequence]
        seen.append([advantage, *np.split(advantage, each[1:-1])])
        return ppo(policy, optimiser, samples, advantage, *rest, **options)

    monkeypatch.setattr(learner, "ppo", spy)
    train(config, tmp_path / "run")
    [[whole, *parts]] = seen
    assert len(parts) == 3
    normal = [abs(part.mean()) < 1e-6 and abs(part.std() - 1) < 1e-6 for part in (whole, *parts)]
    assert normal == {"std": [True] + 3 * [False], "sequence": 4 * [True], "none": 4 * [False]}[normalise]


def test_the_number_of_processes_does_not_show(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=2)
    train(config, tmp_path / "one")
    train(config, tmp_path / "two", processes=2)
    assert_same_policy(tmp_path / "one", tmp_path / "two")


def test_other_seeds_give_other_policies(tmp_path: Path) -> None:
    for seed in (1, 2):
        train(small(tmp_path, iterations=1, seed=seed), tmp_path / str(seed))
    assert any(
        (weights(tmp_path / "1" / "policy.npz")[name] != array).any()
        for name, array in weights(tmp_path / "2" / "policy.npz").items()
    )


def test_seconds_of_training_beat_the_untrained_policy_by_far(tmp_path: Path) -> None:
    """On 50 sequences that it never met; no luck brings a paired t of 8. It is near the tuned heuristic by then."""
    config = small(
        tmp_path,
        iterations=20,
        workload={"jobs": 6},
        episodes={"sequences": 4, "per_sequence": 4},
        update={"minibatches": 4, "learning_rate": 3e-3},
        validation={"every": 5, "sequences": 8},
    )
    result = train(config, tmp_path / "out")
    settings = config.settings()
    untrained = judge(settings, Policy(config.policy.build(), seed=config.seed), range(50)).jct_ms
    trained = judge(settings, load_policy(result.policy_file), range(50)).jct_ms
    gained = untrained - trained
    assert gained.mean() / (gained.std(ddof=1) / np.sqrt(50)) > 8
    assert trained.mean() < 0.9 * untrained.mean()
    assert result.improvement > -0.05


def test_the_policy_file_is_the_best_validated_and_says_how_it_was_made(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=5, validation={"every": 1})
    result = Trainer(config, tmp_path / "out", command="decima train").run()
    about = read_about(result.policy_file)
    assert about["command"] == "decima train"
    assert TrainingConfig.model_validate(about["config"]) == config
    rows = about["curve"]["rows"]
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4, 5]
    best = max(rows, key=lambda row: row[2])
    assert about["iteration"] == result.best_iteration == best[0]
    assert about["validation"]["improvement_over_tuned_weighted_fair"] == result.improvement == best[2]
    seeds = range(5_000_000, 5_000_002)
    again = judge(config.settings(), load_policy(result.policy_file), seeds)
    np.testing.assert_allclose(result.results["decima"], again.jct_ms)
    assert about["validation"]["results"]["decima"] == pytest.approx(again.jct_ms.mean() / 1000)
    assert read_config(tmp_path / "out" / "config.yaml") == config


def test_the_weights_that_are_judged_are_an_average(tmp_path: Path) -> None:
    """By hand, from those of each iteration."""
    config = small(tmp_path, iterations=3, checkpoint_every=1, update={"averaging": 0.75})
    expected = Policy(config.policy.build(), seed=config.seed).state_dict()

    def follow(report: IterationReport) -> None:
        if report.iteration:
            learned = load_checkpoint(tmp_path / "out" / CHECKPOINT).policy
            for name, weight in learned.items():
                expected[name] = 0.75 * expected[name] + 0.25 * weight

    Trainer(config, tmp_path / "out").run(follow)
    found = load_checkpoint(tmp_path / "out" / CHECKPOINT).average
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight)


def test_where_makespan_is_rewarded_it_is_compared(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=1, cluster={"reward": "makespan"})
    result = train(config, tmp_path / "out")
    outcome = judge(config.settings(), load_policy(result.policy_file), range(5_000_000, 5_000_002))
    np.testing.assert_allclose(result.results["decima"], outcome.makespan_ms)
    expected = 1 - outcome.makespan_ms.mean() / result.results["tuned-weighted-fair"].mean()
    assert result.improvement == pytest.approx(expected)


def test_ctrl_c_ends_early_and_keeps_what_was_learned(tmp_path: Path) -> None:
    config = small(tmp_path)
    result = Trainer(config, tmp_path / "out").run(stop_after(1, KeyboardInterrupt))
    assert result.interrupted
    assert result.iteration == 1
    load_policy(result.policy_file)
    assert load_checkpoint(tmp_path / "out" / CHECKPOINT).iteration == 1


def test_ctrl_c_before_there_is_anything_to_keep_is_passed_on(tmp_path: Path) -> None:
    def interrupt(words: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(small(tmp_path), tmp_path / "out").run(on_phase=interrupt)
    assert not (tmp_path / "out" / CHECKPOINT).exists()
    assert train(small(tmp_path), tmp_path / "out", resume=True).iteration == 3


def test_imitation_of_longer_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imitation = {"scheduler": "fair", "sequences": 2, "epochs": 1}
    lengths: dict[int | None, list[int]] = {}
    for jobs in (None, 5):
        config = small(tmp_path, imitation={**imitation, "jobs": jobs})
        learner = Trainer(config, tmp_path / "run")._learner
        lengths[jobs] = []

        def noted(scheduler, policy, cluster, specs, seen=lengths[jobs]):  # type: ignore[no-untyped-def]
            seen += [len(spec.sequence) for spec in specs]
            return roll_out_scheduler(scheduler, policy, cluster, specs)

        monkeypatch.setattr("decima.learning.cluster.learner.roll_out_scheduler", noted)
        learner.imitate(config.imitation)
    assert lengths == {None: 2 * [config.workload.jobs], 5: [5, 5]}
    assert config.workload.jobs != 5


def test_a_training_begins_with_the_policy_of_another(tmp_path: Path) -> None:
    train(small(tmp_path, iterations=1), tmp_path / "first")
    start = tmp_path / "first" / "policy.npz"
    config = small(tmp_path, start=str(start), imitation=None, seed=5)
    trainer = Trainer(config, tmp_path / "second")
    learned = load_policy(start).state_dict()
    for policy in (trainer._learner.policy, trainer._learner.average):
        for name, values in policy.state_dict().items():
            assert torch.equal(values, learned[name])
    result = trainer.run()
    start.unlink()  # a checkpoint holds all that is needed
    again = train(config, tmp_path / "second", resume=True)
    np.testing.assert_array_equal(again.results["decima"], result.results["decima"])


def test_a_policy_of_other_sizes_is_no_beginning(tmp_path: Path) -> None:
    train(small(tmp_path, iterations=1), tmp_path / "first")
    start = str(tmp_path / "first" / "policy.npz")
    for changes, message in (
        (
            {"start": start, "policy": {"overrides": {"graph": False}}},
            r"policy\.npz: a policy of other settings: graph",
        ),
        ({"start": "tpch-batch"}, r"tpch-batch\.npz: a policy of other settings: stage_features"),
        ({"start": str(tmp_path / "none.npz")}, r"none\.npz: No such file"),
    ):
        with pytest.raises(PolicyFileError, match=message):
            Trainer(small(tmp_path, imitation=None, **changes), tmp_path / "run")


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=1)
    train(config, tmp_path / "out")
    before = (tmp_path / "out" / CHECKPOINT).read_bytes()
    with pytest.raises(TrainingError, match=r"out: holds a training run already; --resume goes on with it"):
        Trainer(config, tmp_path / "out")
    assert (tmp_path / "out" / CHECKPOINT).read_bytes() == before


def test_only_the_same_training_can_be_gone_on_with(tmp_path: Path) -> None:
    train(small(tmp_path, iterations=2), tmp_path / "out")
    for changes, place in (
        ({"seed": 1}, "seed"),
        ({"cluster": {"executors": 5}}, "cluster.executors"),
        ({"curriculum": {}}, "curriculum"),
    ):
        with pytest.raises(TrainingError, match=f"is of a run with another {place};"):
            Trainer(small(tmp_path, **{"iterations": 2, **changes}), tmp_path / "out", resume=True)
    with pytest.raises(TrainingError, match="2 iterations are over, more than the 1 asked for"):
        Trainer(small(tmp_path, iterations=1), tmp_path / "out", resume=True)
    longer = small(tmp_path, iterations=4, checkpoint_every=1)
    assert train(longer, tmp_path / "out", resume=True).iteration == 4
    assert load_checkpoint(tmp_path / "out" / CHECKPOINT).config == longer


def test_a_workload_that_has_changed_since_is_noticed(tmp_path: Path) -> None:
    train(small(tmp_path, iterations=1), tmp_path / "out")
    library = Workload((job(stage(3, 200.0), name="other"),), None, "other")
    write_workload(tmp_path / "tiny.json", library)
    with pytest.raises(TrainingError, match="is of a run on another workload"):
        Trainer(small(tmp_path, iterations=1), tmp_path / "out", resume=True)


def test_what_was_measured_after_the_checkpoint_is_measured_again(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=5, checkpoint_every=2, validation={"every": 5})
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        Trainer(config, tmp_path / "out").run(stop_after(2, Stopped))
    log = tmp_path / "out" / "metrics.jsonl"
    with log.open(
        "a"
    ) as file:  # what a killed run leaves: more than its checkpoint knows, the last line in part
        file.write(json.dumps({"iteration": 3, "jct_s": -1.0}) + "\n" + '{"iteration": 4, "jct')
    train(config, tmp_path / "out", resume=True)
    rows, expected = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("out", "whole"))
    for row in (*rows, *expected):
        for name in [name for name in row if "cpu" in name or name == "rollout_ms_per_decision"]:
            del row[name]
    assert rows == expected


def test_metrics_are_in_tensorboard_too(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = small(tmp_path)
    with pytest.raises(Stopped):
        Trainer(config, tmp_path / "out").run(stop_after(1, Stopped))
    time.sleep(1.1)  # TensorBoard orders its files by the second
    train(config, tmp_path / "out", resume=True)
    board = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    board.Reload()
    rows = read_metrics(tmp_path / "out" / "metrics.jsonl")
    for name in ("jct_s", "improvement"):
        events = [(event.step, event.value) for event in board.Scalars(name)]
        expected = [(row["iteration"], row[name]) for row in rows if name in row]
        assert [step for step, _ in events] == [step for step, _ in expected]
        np.testing.assert_allclose(
            [value for _, value in events], [value for _, value in expected], rtol=1e-6
        )


def test_a_gradient_that_is_no_number_stops_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path)
    real, calls = learner.ppo, []

    def fails_later(policy: Policy, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            for parameter in policy.parameters():
                parameter.data.fill_(float("nan"))  # in the middle of an update
            raise NotFiniteError("the loss is nan, the length of its gradient nan")
        return real(policy, *args, **options)

    monkeypatch.setattr(learner, "ppo", fails_later)
    with pytest.raises(TrainingError) as stopped:
        train(config, tmp_path / "out")
    path = tmp_path / "out" / CHECKPOINT
    assert str(stopped.value) == (
        f"iteration 3: the loss is nan, the length of its gradient nan; {path} keeps iteration 2"
    )
    assert load_checkpoint(path).iteration == 2  # which would refuse weights that are no numbers
    monkeypatch.undo()
    assert train(config, tmp_path / "out", resume=True).iteration == 3


def test_steps_that_are_far_too_long_are_noticed(tmp_path: Path) -> None:
    config = small(tmp_path, update={"learning_rate": 1e30, "final_learning_rate": 1e30})
    with pytest.raises(TrainingError, match=r"^iteration 1: .* keeps iteration 0$"):
        train(config, tmp_path / "out")


def test_one_job_of_one_stage_can_be_trained_on(tmp_path: Path) -> None:
    """With one executor there is nothing to choose, and so nothing to learn."""
    library = Workload((job(stage(3, 200.0), name="only"),), None, "one")
    for executors in (1, 3):
        config = small(
            tmp_path, library=library, iterations=2, workload={"jobs": 1}, cluster={"executors": executors}
        )
        result = train(config, tmp_path / str(executors))
        assert result.iteration == 2
        assert result.results["decima"].shape == (2,)
        rows = read_metrics(tmp_path / str(executors) / "metrics.jsonl")
        assert (rows[1]["samples"] == 0) == (executors == 1)


def test_an_episode_may_end_before_anything_was_decided(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=2, curriculum={"start": 0.001, "end": 0.001})
    train(config, tmp_path / "out")
    rows = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert "jct_s" not in rows[1]
    assert rows[1]["completed_jobs"] == 0


def test_exact_arrivals_are_replayed_with_other_noise(tmp_path: Path) -> None:
    from tests.decima.evaluation.examples import LIBRARY
    from workloads import trace_arrivals

    arrivals = trace_arrivals(LIBRARY.profiles[:3], [0.0, 500.0, 900.0])
    config = small(tmp_path, library=Workload(LIBRARY.profiles, arrivals, "trace"), iterations=1)
    result = train(config, tmp_path / "out")
    assert len(set(result.results["fair"].tolist())) == 2


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for device in ("tpu", *(() if torch.cuda.is_available() else ("cuda",))):
        with pytest.raises(TrainingError, match=f"there is no device {device} here"):
            Trainer(small(tmp_path), tmp_path / "out", device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_updates_can_be_computed_on_a_gpu(tmp_path: Path) -> None:
    config = small(tmp_path)
    train(config, tmp_path / "cpu")
    train(config, tmp_path / "gpu", device="cuda")
    one, other = weights(tmp_path / "cpu" / "policy.npz"), weights(tmp_path / "gpu" / "policy.npz")
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=0.01)


def test_the_number_of_threads_is_given_back(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    train(small(tmp_path, iterations=1), tmp_path / "out")
    assert torch.get_num_threads() == 2
