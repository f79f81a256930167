"""Trainings in which each sequence has its own setting."""

import math
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from decima.evaluation.fit import evaluation_setting, misfits, out_of_distribution
from decima.learning import ClusterTraining, TrainingConfig, read_config, read_metrics
from decima.learning.cluster.advantages import Advantages
from decima.learning.cluster.demonstrations import record_scheduler
from decima.learning.cluster.randomised import SettingsConditions, draw_setting, validation_settings
from decima.learning.cluster.returns import relative_scale
from decima.learning.cluster.rollout import NUM_LOADS, Episode, Trajectories, load_of, plan_iteration, start_episodes
from decima.learning.cluster.settings import SettingsSection
from decima.learning.loop import CARD
from decima.policy import Policy, read_about, read_trained_on
from decima.registry import make_scheduler
from simulator import ClusterConfig, make_cluster
from tests.decima.evaluation.examples import LIBRARY
from tests.decima.learning.cluster.examples import merged
from tests.decima.learning.examples import assert_same_run
from workloads import JobSequence, Workload, poisson_arrivals, scaled, trace_arrivals, write_workload
from workloads.arrivals import WorkPrior
from workloads.patterns import STEADY

MANY = SettingsSection(
    sources=("tpch", "synthetic"),
    executors={"log_uniform": [5, 200]},
    moving_delay={"one_of": [0, 0.5, 2]},
    batches=0.5,
    batch_jobs={"uniform": [2, 10]},
    stream_jobs={"log_uniform": [200, 300]},
    load={"uniform": [0.25, 1.5]},
    durations={"one_of": [1, 10]},
    tasks={"uniform": [0.3, 3]},
    job_error={"uniform": [0, 2]},
    stage_error={"one_of": [0, 0.5]},
    task_count_error=0.1,
    unknown={"one_of": [0, 0.3]},
    losses_per_hour={"one_of": [0, 12]},
    executor_return=30,
    task_failures={"uniform": [0, 0.1]},
    straggler_share={"one_of": [0, 0.05]},
    lost_output=0.5,
)


def small(folder: Path, **changes: Any) -> TrainingConfig:
    """Return the settings of a training of a second or two on four profiles."""
    path = folder / "tiny.json"
    write_workload(path, LIBRARY)
    settings = {
        "sources": [str(path)], "executors": {"one_of": [3, 5]}, "moving_delay": {"uniform": [0, 2]}, "batches": 0.5,
        "batch_jobs": {"uniform": [3, 5]}, "stream_jobs": 5, "load": {"uniform": [0.5, 1]},
        "durations": {"one_of": [1, 10]},
    }  # fmt: skip
    document = {
        "iterations": 3,
        "settings": settings,
        "episodes": {"sequences": 2, "per_sequence": 3},
        "returns": {"kind": "discounted", "horizon": 8, "relative": True},
        "critic": {"gae_horizon": 1.5},
        "update": {"minibatches": 2, "normalise": "sequence"},
        "validation": {"every": 1, "sequences": 2, "cells": 3},
        "checkpoint_every": 1,
    }
    return TrainingConfig.model_validate(merged(document, changes))


def conditions(settings: SettingsSection = MANY) -> SettingsConditions:
    sources = settings.read()
    workload = next(iter(sources.values()))
    return SettingsConditions(workload, settings=settings, sources=sources, cells=3, per_cell=4)


def test_a_seed_names_a_setting_within_the_bounds() -> None:
    drawn = [draw_setting(MANY, seed) for seed in range(400)]
    assert drawn == [draw_setting(MANY, seed) for seed in range(400)]
    executors = np.array([each.cluster.num_executors for each in drawn])
    assert executors.min() >= 5
    assert executors.max() <= 200
    assert 20 < np.median(executors) < 50  # median of the logarithm, not of the range
    for each in drawn:
        low, high = (2, 10) if each.load is None else (200, 300)
        assert low <= each.jobs <= high
        assert each.load is None or 0.25 <= each.load <= 1.5
        assert 0.3 <= each.tasks <= 3
    for name, values in (
        ("source", {"tpch", "synthetic"}),
        ("cluster.moving_delay_ms", {0, 500, 2000}),
        ("durations", {1, 10}),
        ("cluster.knowledge.stage_error", {0, 0.5}),
        ("cluster.knowledge.unknown", {0, 0.3}),
        ("cluster.faults.stragglers", {0, 0.05, 4}),
    ):
        met, counts = np.unique([attrgetter(name)(each) for each in drawn], return_counts=True)
        assert set(met.tolist()) == values
        assert counts.min() > 400 / len(values) / 1.4
    assert 160 < sum(each.load is None for each in drawn) < 240
    errors = [each.cluster.knowledge.job_error for each in drawn]
    assert (min(errors), np.mean(errors), max(errors)) == pytest.approx((0, 1, 2), abs=0.1)
    failures = [each.cluster.faults.task_failures for each in drawn]
    assert (min(failures), np.mean(failures), max(failures)) == pytest.approx((0, 0.05, 0.1), abs=0.01)
    # Executors of clusters with long tasks last longer, and only with their losses may outputs be lost.
    losing = [each for each in drawn if math.isfinite(each.cluster.faults.executor_lifetime_ms)]
    assert 150 < len(losing) < 250
    assert {each.cluster.faults.executor_lifetime_ms / each.durations for each in losing} == {300_000}
    outputs = [each.cluster.faults.lost_output for each in drawn]
    assert sum(outputs) == sum(each.cluster.faults.lost_output for each in losing)
    assert len(losing) / 3 < sum(outputs) < len(losing) / 1.5
    assert {each.cluster.faults.executor_return_ms for each in drawn} == {30_000}
    assert "executors lost after 300 s, back after 30 s" in " ".join(map(str, drawn))


def test_draws_patterns_and_batches() -> None:
    other = MANY.model_copy(update={"moving_delay": 3.0})
    for seed in range(5):
        drawn = draw_setting(MANY, seed)
        assert replace(drawn, cluster=replace(drawn.cluster, moving_delay_ms=3000.0)) == draw_setting(other, seed)
    section = MANY.model_copy(update={"batches": 0.0, "stream_jobs": 20_000.0, "tasks": {"uniform": [0.3, 3]}})
    chosen = conditions(section)
    for seed in range(3):
        setting, sequence = chosen.setting(seed), chosen.sequence(seed)
        assert setting.load is not None
        work_ms = sum(profile.work_ms for profile in sequence.profiles)
        load = work_ms / sequence.arrival_ms[-1] / setting.cluster.num_executors
        assert load == pytest.approx(setting.load, rel=0.05)
    patterns = {"burst": {"one_of": [1, 4]}, "drift": {"uniform": [0.5, 2]}, "night": 0.5}
    plain = conditions()
    chosen = conditions(SettingsSection.model_validate(MANY.model_dump() | patterns))
    for seed in range(12):
        setting, sequence, before = chosen.setting(seed), chosen.sequence(seed), plain.sequence(seed)
        assert sequence.profiles == before.profiles
        assert replace(setting, pattern=STEADY) == plain.setting(seed)
        assert (setting.pattern == STEADY) == (setting.load is None)
        assert sequence.arrival_ms.tolist() == setting.pattern.applied(before).arrival_ms.tolist()
    drawn = [each.pattern for each in map(chosen.setting, range(100)) if each.load is not None]
    assert {each.burst for each in drawn} == {1, 4}
    assert {each.night for each in drawn} == {0.5}
    assert 0.5 <= min(each.drift for each in drawn) < 0.7 < 1.7 < max(each.drift for each in drawn) <= 2
    assert any("jobs at once" in str(chosen.setting(seed)) for seed in range(12))
    with pytest.raises(ValueError, match=r"night\n.*expected a number below 1, got 1\.0"):
        SettingsSection(night={"one_of": [0, 1]})


def test_the_jobs_and_the_cluster_of_a_seed_are_those_of_its_setting() -> None:
    chosen = conditions()
    for seed in range(12):
        setting, sequence, cluster = chosen.setting(seed), chosen.sequence(seed), chosen.cluster_of(seed)
        assert cluster == setting.cluster
        assert [kind.count for kind in cluster.executor_classes] == [cluster.num_executors]
        profiles, prior = chosen.sources[setting.source].profiles, sequence.prior
        scaled_work = [profile.work_ms * setting.durations * setting.tasks for profile in profiles]
        assert prior is not None
        assert prior.mean_log_ms == pytest.approx(np.log(scaled_work).mean(), abs=0.1)
        assert prior.task_log_ms == pytest.approx(WorkPrior.of(profiles).task_log_ms + math.log(setting.durations))
        assert len(sequence) == setting.jobs
        assert (sequence.arrival_ms[-1] == 0) == (setting.load is None)
        known = {scaled(profile, setting.durations, setting.tasks) for profile in profiles}
        assert known.issuperset(sequence.profiles)
        assert chosen.sequence(seed).profiles == sequence.profiles


def test_batches_and_cells_of_validation() -> None:
    chosen = conditions(MANY.model_copy(update={"stream_jobs": 20.0}))
    both = evaluation_setting(chosen, range(60))
    assert both.arrivals == "both"
    large, dense = (
        evaluation_setting(conditions(MANY.model_copy(update=changes)), range(60))
        for changes in ({"batches": 1.0, "batch_jobs": 300.0}, {"batches": 0.0, "stream_jobs": 20.0, "load": 100.0})
    )
    assert [words.split()[0] for words in out_of_distribution(both, large)] == ["batches"]
    assert [words[:6] for words in out_of_distribution(both, dense)] == ["a load"]
    assert out_of_distribution(both, evaluation_setting(chosen, range(60, 120))) == []
    config = read_config("general", ["validation.cells=3", "validation.sequences=4", "seed=7"])
    chosen, seeds = config.conditions(), config.validation_seeds
    assert isinstance(chosen, SettingsConditions)
    assert config.settings is not None
    assert len(seeds) == 12
    drawn = [chosen.setting(seed) for seed in seeds]
    assert drawn == [each for each in validation_settings(config.settings, 3) for _ in range(4)]
    assert len({str(each) for each in drawn}) == 3
    more = read_config("general", ["validation.sequences=9", "seed=8"])
    assert more.settings is not None
    assert validation_settings(more.settings, 3) == validation_settings(config.settings, 3)
    assert len({str(chosen.setting(seed)) for seed in config.training_seeds[:20]}) == 20
    assert len({tuple(chosen.sequence(seed).profiles) for seed in seeds}) > 3


def test_groups_share_sequence_and_setting() -> None:
    config = read_config("general")
    chosen = config.conditions()
    for group in plan_iteration(config, 0):
        episodes = start_episodes(config.policy.build(), chosen, group)
        assert len({each.sequence for each in episodes}) == len({each.config for each in episodes}) == 1
        assert episodes[0].config == chosen.cluster_of(group[0].sequence_seed)
    sequence, cluster = poisson_arrivals(LIBRARY.profiles, 5, 1.0, 0), ClusterConfig(4)
    simulated = make_cluster(cluster, sequence)
    load = load_of(simulated.observe())
    scaled_load = (load * relative_scale(np.array([0.25]), np.array([4])))[0]
    work = np.sort([sequence.profiles[0].work_ms / 100_000 * 0.25 / 4])  # one job had arrived
    root = np.sqrt(work).sum()
    expected = [1, 1, work.sum(), work.sum(), root, root**2, root]
    assert len(expected) == NUM_LOADS
    np.testing.assert_allclose(scaled_load, expected)


def test_a_workload_file_is_read_without_its_arrivals(tmp_path: Path) -> None:
    arrivals = trace_arrivals(LIBRARY.profiles[:3], [0.0, 500.0, 900.0])
    write_workload(tmp_path / "exact.json", Workload(LIBRARY.profiles, arrivals, "exact"))
    section = SettingsSection(sources=(str(tmp_path / "exact.json"),), batch_jobs=7.0)
    assert len(conditions(section).sequence(0)) == 7


def slowed(sequence: JobSequence, factor: float) -> JobSequence:
    return replace(
        sequence,
        profiles=tuple(scaled(profile, factor) for profile in sequence.profiles),
        arrival_ms=sequence.arrival_ms * factor,
    )


def runs(policy: Policy, factor: float, names: tuple[str, ...], *, whole: bool) -> Trajectories:
    """Run schedulers on two streams each, with all times scaled by some factor."""
    cluster = ClusterConfig(4, moving_delay_ms=500.0 * factor, warmup_delay_ms=300.0 * factor)
    end_ms = np.inf if whole else 9000.0 * factor
    parts = [
        record_scheduler(make_scheduler(name), [Episode(policy.config, cluster, sequence, end_ms)])
        for seed in range(2)
        for sequence in [slowed(poisson_arrivals(LIBRARY.profiles, 8, 1500.0, seed), factor)]
        for name in names
    ]
    return Trajectories.concatenate(parts)


@pytest.mark.parametrize("whole", [True, False])
def test_relative_advantages_do_not_hang_on_the_unit_of_time(tmp_path: Path, whole: bool) -> None:
    changes = {"update": {"normalise": "none"}, "episodes": {"sequences": 2, "per_sequence": 2}}
    config = small(tmp_path, **changes)
    policy, groups = Policy(config.policy.build()), plan_iteration(config, 0)
    for relative in (True, False):
        chosen = config.model_copy(update={"returns": config.returns.model_copy(update={"relative": relative})})
        found = []
        for factor in (1.0, 10.0):
            advantages = Advantages(chosen, chosen.conditions())
            samples = runs(policy, factor, ("fair", "fifo"), whole=whole)
            # Two iterations, so that the critic has learned.
            found.append([advantages(policy, samples, groups) for _ in range(2)])
        assert np.std(found[0]) > 1e-4
        if relative:
            np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-8)
        else:
            assert not np.allclose(found[1], found[0], rtol=0.1)


def test_a_heuristic_earns_what_is_expected_of_itself_in_relative_units(tmp_path: Path) -> None:
    config = small(tmp_path, baseline={"kind": "heuristic", "scheduler": "fair"})
    policy, chosen, groups = Policy(config.policy.build()), config.conditions(), plan_iteration(config, 0)
    episodes = start_episodes(policy.config, chosen, [plan for group in groups for plan in group])
    its_own = record_scheduler(make_scheduler("fair"), episodes)
    np.testing.assert_allclose(Advantages(config, chosen)(policy, its_own, groups), 0.0, atol=1e-9)


def test_a_training_over_settings_can_be_gone_on_with_and_says_how_it_did(tmp_path: Path) -> None:
    cloning = {"scheduler": "fair", "sequences": 3, "epochs": 1}
    config = small(tmp_path, behaviour_cloning=cloning)
    result = ClusterTraining(config, tmp_path / "whole").run()
    ClusterTraining(small(tmp_path, behaviour_cloning=cloning, iterations=1), tmp_path / "parts").run()
    ClusterTraining(config, tmp_path / "parts", resume=True).run()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert {name: len(values) for name, values in result.results.items()} == {"fair": 6, "srpt": 6, "decima": 6}
    reference, own = (np.reshape(result.results[name], (3, 2)).mean(axis=1) for name in ("srpt", "decima"))
    change = own / reference - 1
    paired = np.reshape(result.results["decima"], (3, 2)) - np.reshape(result.results["srpt"], (3, 2))
    half_width = stats.t.ppf(0.975, 1) * paired.std(axis=1, ddof=1) / np.sqrt(2) / reference
    worst = max(0.0, (change - half_width).max())
    rows = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    best = max(rows, key=lambda row: row["improvement"])
    assert result.improvement == best["improvement"] == pytest.approx(-change.mean() - worst)
    assert best["validation_change_worst"] == pytest.approx(worst)
    assert best["validation_change_mean"] == pytest.approx(change.mean())
    about = read_about(result.policy_file)
    assert [cell["change"] for cell in about["validation"]["cells"]] == pytest.approx(change.tolist())
    card = (tmp_path / "whole" / CARD).read_text()
    assert config.settings is not None
    for setting, value in zip(validation_settings(config.settings, 3), change, strict=True):
        [line] = [line for line in card.splitlines() if line.startswith(f"| {setting} | ")]
        assert line.endswith(f" | {value:+.1%} |")
    assert "| setting | fair | srpt | decima | change |" in card
    assert "| iteration | mean change | worst setting, beyond its interval |" in card
    assert "than srpt on average over these settings" in card


def test_a_policy_that_loses_a_setting_for_certain_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second policy has the better mean."""
    config = small(tmp_path, iterations=1)
    factors = iter([[1.01, 1.01, 1.01], [0.95, 0.95, 1.07]])
    trainer = ClusterTraining(config, tmp_path / "out")

    def evaluate_policy(weights: Any, shared: Any, seeds: list[int]) -> np.ndarray:
        assert len(seeds) == 6
        reference = np.reshape(trainer._reference["srpt"], (3, 2))
        change = np.reshape(next(factors), (3, 1)) - 1  # the same at each of a cell's sequences, so that it is certain
        jct_ms = (reference + change * reference.mean(axis=1, keepdims=True)).reshape(-1)
        return np.column_stack([jct_ms, jct_ms, jct_ms])

    monkeypatch.setattr("decima.learning.cluster.train.FEW", 6)
    monkeypatch.setattr("decima.learning.cluster.train.evaluate_weights", evaluate_policy)
    result = trainer.run()
    assert (result.best_iteration, result.improvement) == (0, pytest.approx(-0.02))
    rows = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert rows[1]["validation_change_worst"] == pytest.approx(0.07)
    assert rows[1]["validation_change_mean"] == pytest.approx(-0.01)


@pytest.mark.usefixtures("other_process")
def test_the_number_of_processes_does_not_show(tmp_path: Path) -> None:
    config = small(tmp_path, iterations=1)
    for workers in (1, 2):
        ClusterTraining(config, tmp_path / str(workers), workers=workers).run()
    assert_same_run(tmp_path / "1", tmp_path / "2")


def test_what_it_was_trained_on_is_of_many_settings(tmp_path: Path) -> None:
    many = small(tmp_path, iterations=1, episodes={"sequences": 12, "per_sequence": 1})
    result = ClusterTraining(many, tmp_path / "out").run()
    trained = read_trained_on(result.policy_file)
    assert trained is not None
    assert trained.arrivals == "both"
    assert (trained.executors.low, trained.executors.high) == (3, 5)
    assert trained.jobs is not None
    assert trained.load is not None
    assert trained.jobs.high <= 5
    assert "Batches and streams of jobs." in (tmp_path / "out" / CARD).read_text()
    config = small(tmp_path, settings={"executors": 500, "batches": 1, "batch_jobs": 5})
    assert misfits(result.policy_file, config.conditions()) == ["500 executors, trained on 3 to 5"]
