"""Common parts of studies: sizes, loads, resumed trainings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decima.learning.cluster.config import read_config
from decima.policy import NeuralScheduler, load_policy
from decima.registry import make_scheduler
from decima.settings import TrainingError
from decima.studies.study import Study, Variant
from simulator import ClusterConfig, run_episode
from workloads import Workload, WorkloadError, embedded_workload, poisson_arrivals, trace_arrivals


def test_a_policy_is_compared_as_the_scheduler_that_it_is(study: Study) -> None:
    variant = study.batch_variant()
    spec = study.train({"decima": variant})["decima"]
    conditions = study.conditions(num_experiments=2, num_jobs=4)
    told: list[tuple[str, int, int]] = []
    watched = replace(study, tell=lambda *what: told.append(what))
    [comparison] = watched.compare({"here": (conditions, {"decima": spec})}, keep=True).values()
    scheduler = NeuralScheduler(load_policy(Path(spec.removeprefix("decima:"))))
    own = [run_episode(conditions.cluster, conditions.sequence(seed), scheduler) for seed in conditions.seeds]
    means = [record.mean_jct_ms / 1000 for record in own]
    assert comparison.runs["mean_jct_s"].tolist() == means
    np.testing.assert_array_equal(comparison.episodes["decima"].jct_ms, own[0].jct_ms)
    assert told == [("comparing schedulers", done, 2) for done in range(3)]


def test_arrivals_for_a_load(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.studies.study.LOAD_JOBS", 1000)
    interval_s = study.interval_for_load(0.6)
    sequence = poisson_arrivals(study.workload.profiles, 3000, 1000 * interval_s, seed=77)
    record = run_episode(ClusterConfig(num_executors=5), sequence, make_scheduler("fair"))
    assert record.busy_ms.sum() / (5 * sequence.arrival_ms[-1]) == pytest.approx(0.6, rel=0.1)
    assert study.interval_for_load(0.3, study.workload) == pytest.approx(2 * interval_s, rel=0.1)


def test_the_budget(make_study: Callable[..., Study], tmp_path: Path) -> None:
    recipe = read_config("batch")
    full = make_study(tmp_path, budget=1.0, num_experiments=None, num_jobs=None)
    assert full.config("batch").iterations == recipe.iterations
    assert full.config("batch").workload.jobs == recipe.workload.jobs
    assert full.conditions(num_experiments=100, num_jobs=20).num_experiments == 100
    tenth = make_study(tmp_path, budget=0.1, num_experiments=None, num_jobs=None)
    assert tenth.config("batch").iterations == round(recipe.iterations / 10)
    assert full.config("batch").behaviour_cloning == recipe.behaviour_cloning
    assert recipe.behaviour_cloning is not None
    assert tenth.config("batch").behaviour_cloning.sequences == round(0.4 * recipe.behaviour_cloning.sequences)
    stream = read_config("stream")
    assert stream.behaviour_cloning is not None
    assert full.config("stream").behaviour_cloning == stream.behaviour_cloning
    assert tenth.config("stream").behaviour_cloning.jobs == max(20, round(stream.behaviour_cloning.jobs / 10))
    assert tenth.conditions(num_experiments=100, num_jobs=20).num_experiments == 10
    assert tenth.conditions(num_experiments=100, num_jobs=20).num_jobs == 20
    assert tenth.conditions(num_experiments=100, num_jobs=1000, interval_s=2.0).num_jobs == 100


def test_time_scales_of_a_stream_are_those_of_its_arrivals(study: Study) -> None:
    recipe = read_config("stream")
    mean_s = sum(recipe.workload.intervals) / len(recipe.workload.intervals)
    config = study.config("stream", workload__interval=mean_s / 5)
    assert config.returns.horizon == pytest.approx(recipe.returns.horizon / 5, rel=1e-3)
    assert recipe.critic is not None
    assert config.critic is not None
    assert config.critic.gae_horizon == pytest.approx(recipe.critic.gae_horizon / 5, rel=1e-3)
    assert config.workload.interval == mean_s / 5
    assert study.config("stream").returns == recipe.returns


def test_a_curriculum_is_scaled_like_the_arrivals(study: Study) -> None:
    recipe, config = read_config("paper"), study.config("paper", workload__interval=5.0)
    assert recipe.curriculum is not None
    assert config.curriculum is not None
    assert config.curriculum.end == pytest.approx(recipe.curriculum.end / 5)


def test_a_given_policy_is_not_trained(make_study: Callable[..., Study], tmp_path: Path) -> None:
    study = make_study(tmp_path / "policies", checkpoint=tmp_path / "mine.npz")
    assert study.full_policy(study.batch_variant()) == f"decima:{tmp_path / 'mine.npz'}"
    assert not study.policies.exists()


def test_a_shipped_policy_that_fits_stands_for_one_that_would_be_trained(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "decima.studies.study.train_all", lambda configs, *_: {name: tmp_path / name for name in configs}
    )
    full = replace(study, workload=embedded_workload(), source={}, executors=50, num_jobs=None, budget=1.0)
    batch, trained = full.conditions(num_experiments=1, num_jobs=20), f"decima:{tmp_path / 'batch-20-jobs'}"
    small = full.conditions(num_experiments=1, num_jobs=5)
    assert full.full_policy(full.batch_variant(), shipped_for=batch) == "decima:embedded-batch"
    assert full.full_policy(full.batch_variant(), shipped_for=small) == "decima:general"
    own = replace(full, source={"file": tmp_path / "own.json"})
    assert own.full_policy(full.batch_variant(), shipped_for=batch) == trained
    assert full.full_policy(full.batch_variant()) == trained


def test_a_specialist_is_of_just_these_conditions_and_of_full_training(study: Study, tmp_path: Path) -> None:
    full = replace(study, workload=embedded_workload(), source={}, executors=50, num_jobs=None, budget=1.0)
    batch = full.conditions(num_experiments=1, num_jobs=20)
    assert full.specialist(batch) == "decima:embedded-batch"
    assert full.specialist(full.conditions(num_experiments=1, num_jobs=5)) is None
    assert replace(full, budget=0.5).specialist(batch) is None
    assert replace(full, source={"file": tmp_path / "own.json"}).specialist(batch) is None


def test_a_training_that_was_cut_off_goes_on(study: Study, make_study: Callable[..., Study], tmp_path: Path) -> None:
    variant = study.batch_variant()
    told: list[tuple[str, int, int]] = []

    def cut(what: str, done: int, total: int) -> None:
        told.append((what, done, total))
        if (what, done) == ("training batch-4-jobs", 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_study(tmp_path, tell=cut).train({"decima": variant})
    assert told[-1] == ("training batch-4-jobs", 1, variant.config.iterations)
    told.clear()
    again = make_study(tmp_path, tell=lambda *what: told.append(what))
    assert again.train({"it": variant}) == {"it": f"decima:{tmp_path}/batch-4-jobs/policy.npz"}
    assert [done for what, done, _ in told if what == "training batch-4-jobs"][:2] == [1, 2]
    whole = Path(study.train({"it": variant})["it"].removeprefix("decima:"))
    for one, other in zip(
        load_policy(whole).parameters(), load_policy(tmp_path / "batch-4-jobs" / "policy.npz").parameters(), strict=True
    ):
        assert (one == other).all()
    told.clear()
    again.train({"it": variant})
    assert not told


def test_trainings_are_given_or_found_in_their_folder(study: Study) -> None:
    study.train({"decima": study.batch_variant()})
    other = Variant("batch-4-jobs", study.config("batch", workload__jobs=3))
    with pytest.raises(TrainingError, match=r"another workload.jobs; .*--policies DIR$"):
        study.train({"decima": other})


def test_jobs_that_arrive_at_set_times(make_study: Callable[..., Study], study: Study, tmp_path: Path) -> None:
    profiles = study.workload.profiles
    exact = Workload(profiles, trace_arrivals(profiles[:3], [0.0, 500.0, 1000.0]), "exact")
    trace = make_study(tmp_path, workload=exact)
    for draw in (trace.batch_variant, lambda: trace.conditions(num_experiments=2, num_jobs=4)):
        with pytest.raises(WorkloadError, match=r"^exact: has arrival times"):
            draw()
    replayed = trace.replay(num_experiments=100, window_s=1.0)
    assert [len(replayed.sequence(seed)) for seed in replayed.seeds] == [2, 1]
    with pytest.raises(WorkloadError, match="has no arrival times"):
        study.replay(num_experiments=2, window_s=1.0)
