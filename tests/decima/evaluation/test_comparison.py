from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decima.evaluation import experiments
from decima.evaluation.comparison import Comparison, compare
from decima.evaluation.experiments import (
    ALPHAS,
    CompareError,
    Experiment,
    ExperimentSettings,
    Run,
    sweep_alphas,
)
from decima.registry import SchedulerError
from simulator import DECIMA_SIM, ClusterConfig, EpisodeRecord, Semantics
from workloads import JobProfile, JobSequence, StageProfile, TaskDurations, Workload

OWN = "tests.decima.schedulers.own_schedulers:"


def profile(name: str, tasks: int) -> JobProfile:
    """Two stages in a row, a few times as much work as the next smaller job."""
    durations = TaskDurations.sampled(np.geomspace(400.0, 1200.0, 50))
    stages = tuple(StageProfile(tasks, durations, name) for name in ("map", "reduce"))
    return JobProfile(name, stages, np.array([[0, 1]]))


LIBRARY = Workload(tuple(profile(f"job-{tasks}", tasks) for tasks in (2, 5, 11, 20)), None, "tiny")
CLUSTER = ClusterConfig(num_executors=4)


def settings(**changes: Any) -> ExperimentSettings:
    given: dict[str, Any] = {
        "workload": LIBRARY,
        "cluster": CLUSTER,
        "schedulers": ("fifo", "fair"),
        "num_jobs": 4,
        "num_experiments": 3,
        "num_training": 2,
        "seed": 5,
    }
    return ExperimentSettings(**{**given, **changes})


def finished(jct_s: dict[str, list[float]]) -> Comparison:
    """A comparison with made-up results: the JCT of the only job of each experiment."""
    comparison = Comparison(
        settings(schedulers=tuple(jct_s), num_experiments=len(next(iter(jct_s.values()))))
    )
    for place, seed in enumerate(comparison.settings.seeds):
        runs = {name: Run(np.array([values[place] * 1000]), 1.0, 0.5, -1.0) for name, values in jct_s.items()}
        comparison._add(Experiment(seed, runs))
    return comparison


@pytest.fixture
def count_runs(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, str]]:
    """How often each (seed, scheduler) is made, and so run."""
    counts: Counter[tuple[int, str]] = Counter()
    make = experiments.make_scheduler

    def counting(spec: str, seed: int = 0) -> Any:
        counts[seed, spec] += 1
        return make(spec, seed)

    monkeypatch.setattr(experiments, "make_scheduler", counting)
    return counts


def test_the_same_settings_give_the_same_json_with_one_process_and_with_two() -> None:
    schedulers = ("random", "fifo", "weighted-fair", "tuned-weighted-fair")
    everything = settings(schedulers=schedulers, num_experiments=2)
    first, again, parallel = (compare(everything, processes).to_json() for processes in (1, 1, 2))
    assert first == again
    assert first == parallel


def test_another_seed_gives_other_results() -> None:
    assert compare(settings(seed=5), 1).to_json() != compare(settings(seed=50), 1).to_json()


def test_all_schedulers_meet_the_same_sequences() -> None:
    comparison = compare(settings(arrivals="poisson", interval_ms=3000.0), 1)
    fifo, fair = comparison.episodes["fifo"], comparison.episodes["fair"]
    assert fifo.sequence is fair.sequence
    assert fifo.sequence.arrival_ms[1] > 0


def test_the_average_is_over_each_experiments_jobs() -> None:
    comparison = compare(settings(), 1)
    record: EpisodeRecord = comparison.episodes["fifo"]
    assert comparison.per_seed_avg_jct_s("fifo")[0] == record.jct_ms.mean() / 1000
    assert [experiment.seed for experiment in comparison.experiments] == [5, 6, 7]


def test_intervals_are_students_over_experiments_and_differences_are_paired() -> None:
    comparison = finished({"fifo": [10.0, 20.0, 30.0], "fair": [9.0, 17.0, 25.0]})
    fifo, fair = comparison.summary("fifo"), comparison.summary("fair")
    assert comparison.best_classic == "fair"
    t = 4.302653  # two-sided 95 %, 2 degrees of freedom
    assert fifo["avg_jct_s"] == 20
    assert fifo["avg_jct_ci95_s"] == pytest.approx(t * 10 / math.sqrt(3))
    # The differences 1, 3, 5 vary much less than the averages themselves.
    assert fifo["difference_s"] == 3
    assert fifo["difference_ci95_s"] == pytest.approx(t * 2 / math.sqrt(3))
    assert fair["difference_s"] == fair["difference_ci95_s"] == 0


def test_the_best_classic_is_neither_the_users_own_nor_one_with_hindsight() -> None:
    jct = {"fifo": [9.0], "fair": [5.0], "weighted-fair:-1": [4.0], "tuned-weighted-fair": [3.0]}
    assert finished({**jct, OWN + "Greedy": [1.0]}).best_classic == "weighted-fair:-1"
    lonely = finished({OWN + "Greedy": [1.0]})
    assert lonely.best_classic is None
    assert math.isnan(lonely.summary(OWN + "Greedy")["difference_s"])


def test_one_experiment_has_no_interval_and_says_null() -> None:
    document = json.loads(finished({"fair": [5.0]}).to_json())
    assert document["schedulers"]["fair"]["avg_jct_s"] == 5
    assert document["schedulers"]["fair"]["avg_jct_ci95_s"] is None


def test_json_says_what_was_compared_and_the_results_per_seed() -> None:
    comparison = compare(settings(cluster=replace(CLUSTER, semantics=DECIMA_SIM)), 1)
    document = json.loads(comparison.to_json(command="decima compare"))
    assert document["workload"] == "tiny"
    assert document["executors"] == 4
    assert document["seeds"] == [5, 6, 7]
    assert document["semantics"] == "decima-sim"
    assert document["command"] == "decima compare"
    fair = document["schedulers"]["fair"]
    assert fair["avg_jct_s"] == pytest.approx(np.mean(fair["per_seed_avg_jct_s"]))
    assert len(fair["per_seed_avg_jct_s"]) == 3
    assert 0 < fair["utilisation"] <= 1
    assert fair["p95_jct_s"] <= fair["makespan_s"]
    mixed = Comparison(settings(cluster=replace(CLUSTER, semantics=Semantics(nearest_level=False))))
    assert json.loads(mixed.to_json())["semantics"]["nearest_level"] is False


def test_weighted_fair_is_tuned_on_sequences_that_it_is_not_judged_on() -> None:
    comparison = compare(settings(schedulers=("weighted-fair",)), 1)
    chosen = comparison.settings
    assert not set(chosen.training_seeds) & set(chosen.seeds)
    sweep = np.mean([sweep_alphas(chosen, seed) for seed in chosen.training_seeds], axis=0)
    assert comparison.alpha == ALPHAS[int(sweep.argmin())]
    fixed = compare(settings(schedulers=(f"weighted-fair:{comparison.alpha:g}",)), 1)
    np.testing.assert_array_equal(
        comparison.per_seed_avg_jct_s("weighted-fair"),
        fixed.per_seed_avg_jct_s(fixed.settings.schedulers[0]),
    )


def test_tuned_weighted_fair_is_the_best_alpha_of_each_experiment() -> None:
    comparison = compare(settings(schedulers=("tuned-weighted-fair",)), 1)
    for experiment in comparison.experiments:
        sweep = sweep_alphas(comparison.settings, experiment.seed)
        run = experiment.runs["tuned-weighted-fair"]
        assert run.jct_ms.mean() == sweep.min()
        assert run.alpha == ALPHAS[int(sweep.argmin())]


def test_no_alpha_runs_twice_on_a_sequence(count_runs: Counter[tuple[int, str]]) -> None:
    chosen = settings(schedulers=("weighted-fair", "weighted-fair:-1", "tuned-weighted-fair"))
    count_runs.clear()  # the settings try the names
    compare(chosen, 1)
    assert set(count_runs.values()) == {1}
    assert len(count_runs) == 41 * (3 + 2)


def test_the_alphas_are_the_papers_sweep() -> None:
    assert len(ALPHAS) == 41
    assert (ALPHAS[0], ALPHAS[10], ALPHAS[20], ALPHAS[40]) == (-2.0, -1.0, 0.0, 2.0)
    assert len({f"{alpha:g}" for alpha in ALPHAS}) == 41


def test_an_exact_sequence_is_replayed_with_the_noise_of_each_seed() -> None:
    sequence = JobSequence(LIBRARY.profiles, np.array([0.0, 10.0, 20.0, 9000.0]), seed=99)
    chosen = settings(workload=Workload(LIBRARY.profiles, sequence, "exact"))
    for seed in chosen.seeds:
        assert chosen.sequence(seed).profiles == LIBRARY.profiles
        assert chosen.sequence(seed).arrival_ms.tolist() == [0.0, 10.0, 20.0, 9000.0]
        assert chosen.sequence(seed).seed == seed
    averages = compare(chosen, 1).per_seed_avg_jct_s("fair")
    assert len(set(averages)) == 3


def interrupt_after(steps: int) -> Callable[[], None]:
    remaining = iter(range(steps - 1))

    def on_step() -> None:
        if next(remaining, None) is None:
            raise KeyboardInterrupt

    return on_step


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interruption_keeps_what_finished_and_the_rest_can_follow(processes: int) -> None:
    comparison = Comparison(settings())
    with pytest.raises(KeyboardInterrupt):
        comparison.run(processes, on_step=interrupt_after(2))
    assert len(comparison.experiments) == 2
    assert not comparison.complete
    assert set(comparison.episodes) == {"fifo", "fair"}
    document = json.loads(comparison.to_json())
    assert len(document["seeds"]) == len(document["schedulers"]["fifo"]["per_seed_avg_jct_s"]) == 2
    comparison.run(processes)
    assert comparison.to_json() == compare(settings(), 1).to_json()


def test_progress_is_told_of_every_step() -> None:
    steps = []
    comparison = Comparison(settings(schedulers=("weighted-fair",)))
    comparison.run(1, on_step=lambda: steps.append(1))
    assert len(steps) == comparison.num_steps == 3 + 2


def test_a_scheduler_of_the_users_own_takes_part() -> None:
    comparison = compare(settings(schedulers=("fair", OWN + "Greedy")), 1)
    assert comparison.table().index.tolist() == ["fair", OWN + "Greedy"]


@pytest.mark.parametrize(
    ("own", "processes", "message"),
    [
        ("Faulty", 1, r"Faulty on seed 5: ZeroDivisionError: .* \(own_schedulers\.py, line \d+\)$"),
        ("Faulty", 2, r"Faulty on seed \d: ZeroDivisionError: "),
        ("Idle", 1, r"Idle on seed 5: "),
    ],
)
def test_a_scheduler_that_fails_is_named_in_one_line(own: str, processes: int, message: str) -> None:
    with pytest.raises(CompareError, match=message) as raised:
        compare(settings(schedulers=("fair", OWN + own)), processes)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"num_experiments": 0}, CompareError, "between 1 and 1000000 experiments, got 0"),
        ({"num_training": 0}, CompareError, "at least one training sequence, got 0"),
        ({"arrivals": "trickle"}, CompareError, "arrivals must be 'batch' or 'poisson', got 'trickle'"),
        ({"schedulers": ()}, CompareError, "name at least one scheduler"),
        ({"schedulers": ("fair", "fifo", "fair")}, CompareError, "the scheduler fair is named twice"),
        ({"schedulers": ("fair", "fare")}, SchedulerError, "fare"),
        ({"schedulers": (OWN + "Missing",)}, SchedulerError, "Missing"),
        ({"schedulers": (OWN + "Undecided",)}, SchedulerError, "decide"),
        ({"num_jobs": 0}, ValueError, "at least one job, got 0"),
        ({"seed": -1}, ValueError, "seed"),
        (
            {"arrivals": "poisson", "interval_ms": -1.0},
            ValueError,
            "interval between arrivals must be positive",
        ),
        ({"cluster": replace(CLUSTER, max_time_ms=10.0)}, CompareError, "leave max_time_ms infinite"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        settings(**changes)
