"""Comparisons of schedulers: experiments, results, and schedulers that fail."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decima.evaluation import (
    CompareError,
    Comparison,
    Conditions,
    comparison as comparison_module,
    run as run_module,
    run_comparisons,
    sweeps,
)
from decima.evaluation.decisions import DecisionRecord, decisions
from decima.evaluation.episodes import run_scheduler
from decima.evaluation.sweeps import best_for_all, sweep, sweep_ms
from decima.evaluation.tuning import best_settings
from decima.evaluation.variants import ALPHAS, GRIDS, HINDSIGHT, MAKESPAN_HINDSIGHT, TUNED
from decima.registry import make_scheduler
from decima.schedulers import Fifo, Scheduler
from decima.schedulers.base import SchedulerError
from decima.show.report import comparison_notes, comparison_report, comparison_table, shows_slowdown
from simulator import Decision, Observation
from simulator.cluster.config import DECIMA_SIM, ClusterConfig, Semantics
from simulator.cluster.metrics import EpisodeMetrics
from simulator.cluster.texts import parse_classes
from simulator.cluster.times_alone import TimeAlone, times_alone
from tests.cases import cases
from tests.decima.evaluation.examples import CLUSTER, LIBRARY, OWN, comparison, conditions, finished, run, runs_of
from tests.refusal import one_line
from tests.simulator.cluster.build import job
from workloads import AttributeDistribution, JobProfile, JobSequence, StageProfile, TaskDurations, Workload


@pytest.fixture
def count_runs(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, str]]:
    """Return the number of runs of each (seed, scheduler)."""
    counts: Counter[tuple[int, str]] = Counter()
    run_scheduler = run_module.run_scheduler

    def counting(cluster: ClusterConfig, sequence: JobSequence, scheduler: str, *instead: Any) -> Any:
        counts[sequence.seed, scheduler] += 1
        return run_scheduler(cluster, sequence, scheduler, *instead)

    for module in (run_module, sweeps):
        monkeypatch.setattr(module, "run_scheduler", counting)
    return counts


def test_the_same_settings_give_the_same_json_with_one_process_and_with_two(policy: Path) -> None:
    schedulers = ("random", "fifo", "weighted-fair", HINDSIGHT, f"decima:{policy}")
    first, again, parallel = (run(*schedulers, num_experiments=2, workers=workers) for workers in (1, 1, 2))
    assert first.to_json() == again.to_json() == parallel.to_json()
    assert {record.sequence.seed for record in parallel.episodes.values()} == {5}


def test_sequences_and_means_of_experiments() -> None:
    episodes = run(arrivals="poisson", interval_ms=3000.0).episodes
    sequences = [episodes[name].sequence for name in ("fifo", "fair")]
    assert {sequence.seed for sequence in sequences} == {5}
    assert sequences[0].arrival_ms.tolist() == sequences[1].arrival_ms.tolist()
    assert sequences[0].arrival_ms[1] > 0
    compared = run()
    record = compared.episodes["fifo"]
    runs = runs_of(compared, "fifo")
    assert runs.index.tolist() == compared.finished == [5, 6, 7]
    assert runs["mean_jct_s"][5] == record.jct_ms.mean() / 1000
    assert (runs["makespan_s"][5], runs["utilisation"][5]) == (
        record.makespan_ms / 1000,
        EpisodeMetrics(record).utilisation,
    )


def test_intervals_and_names_of_schedulers() -> None:
    compared = finished({"fifo": [10.0, 20.0, 30.0], "fair": [9.0, 17.0, 25.0]})
    fifo, fair = compared.summary["fifo"], compared.summary["fair"]
    assert compared.best_heuristic == "fair"
    t = 4.302653  # two-sided 95 %, 2 degrees of freedom
    assert (fifo["mean_jct_s"], fifo["mean_jct_ci95_s"]) == (20, pytest.approx(t * 10 / math.sqrt(3)))
    # The differences 1, 3, 5 vary much less than the averages themselves.
    assert (fifo["difference_s"], fifo["difference_ci95_s"]) == (3, pytest.approx(t * 2 / math.sqrt(3)))
    assert fair["difference_s"] == fair["difference_ci95_s"] == 0
    assert fifo["difference"] == pytest.approx(3 / 17)
    assert fifo["difference_ci95"] == pytest.approx(t * 2 / math.sqrt(3) / 17)
    compared = Comparison(conditions(), {"ours": OWN + "Greedy", "fair": "fair"})
    compared.run(1)
    fair = runs_of(compared, "fair")
    compared.add("elsewhere", {seed: float(seed) for seed in compared.finished})
    assert compared.complete
    assert compared.table().index.tolist() == ["ours", "fair", "elsewhere"]
    assert runs_of(compared, "elsewhere")["mean_jct_s"].tolist() == [5.0, 6.0, 7.0]
    assert runs_of(compared, "fair").equals(fair)


def test_times_alone_are_computed_once_and_only_for_slowdowns(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def recorded(profiles: Iterable[JobProfile], *arguments: Any) -> list[TimeAlone]:
        found = times_alone(profiles, *arguments)
        computed.append(len(found))
        return found

    monkeypatch.setattr(comparison_module, "times_alone", recorded)
    jobs = len(conditions().sequence(5))
    means = Comparison(conditions(), ["fifo", "fair"], show=("mean", "p95"))
    means.run(1)
    report = comparison_report(means, "decima compare", by="query", with_json=False)
    assert (len(report.tables), report.json) == (2, "")
    assert not shows_slowdown(means)
    assert {"slowdown", "worst_slowdown"}.isdisjoint(means.measured)
    assert {"slowdown", "alone_s"}.isdisjoint(means.measured_jobs)
    assert repr(means)
    assert computed == []
    assert means.summary["fifo"]["slowdown"] == means.runs["slowdown"][:3].mean()
    assert means.jobs["slowdown"].size == 6 * jobs
    assert "slowdown" in means.to_json()
    assert computed == [3 * jobs]
    for shown in ((), ("worst-slowdown",)):
        compared = Comparison(conditions(), ["fifo", "fair"], show=shown)
        compared.run(1)
        assert computed == [3 * jobs]
        assert shows_slowdown(compared)
        compared.find_times_alone()
        comparison_table(compared)
        assert computed.pop() == 3 * jobs
        assert list(compared.runs) == list(means.runs)


def test_estimated_times_alone_are_told() -> None:
    large = job(*[StageProfile(400, TaskDurations.sampled([900.0, 1100.0]))] * 2)
    small = replace(job(StageProfile(2, TaskDurations.constant(1000.0))), name="small")
    sequence = JobSequence((large, small, large), np.arange(3.0))
    compared = Comparison(Conditions(Workload((large, small), sequence, "two"), num_experiments=1), ["fair"])
    compared.run(1)
    assert compared.times_alone == {"jobs": 3, "estimated": 2, "error": 0.1}
    assert json.loads(compared.to_json())["times_alone"] == compared.times_alone
    note = "Slowdown: for 2 of 3 jobs the time alone is an estimate; 95 % of such estimates are within 10%."
    assert note in comparison_notes(compared)


def test_jobs_are_rows_with_their_attributes() -> None:
    compared = comparison("fifo", "fair", num_experiments=2)
    compared.run(workers=1)
    jobs = compared.jobs
    assert len(jobs) == 2 * 2 * len(compared.conditions.sequence(5))
    for name, record in compared.episodes.items():
        own = jobs[(jobs["scheduler"] == name) & (jobs["seed"] == 5)]
        assert own["jct_s"].tolist() == (record.jct_ms / 1000).tolist()
        assert own["slowdown"].tolist() == EpisodeMetrics(record).slowdown.tolist()
        assert own["query"].tolist() == [profile.name for profile in record.sequence.profiles]
        assert own["arrival_s"].tolist() == (record.sequence.arrival_ms / 1000).tolist()
        assert runs_of(compared, name)["slowdown"][5] == pytest.approx(EpisodeMetrics(record).slowdown.mean())
    np.testing.assert_allclose(jobs["slowdown"], jobs["jct_s"] / jobs["alone_s"])
    compared = run(attributes=AttributeDistribution((2, 4), 2, (1, 16)))
    jobs = compared.jobs
    assert set(jobs["weight"]) == {1, 16}
    assert set(jobs["tenant"]) == {"tenant-1", "tenant-2"}
    late_s = jobs["arrival_s"] + jobs["jct_s"] - jobs["deadline_s"]
    assert jobs["tardiness_s"].to_numpy() == pytest.approx(np.maximum(late_s, 0))
    misses = (late_s > 0).groupby([jobs["scheduler"], jobs["seed"]], observed=True).mean()
    for _, row in compared.runs.iterrows():
        assert row["deadline_misses"] == pytest.approx(misses[row["scheduler"], row["seed"]])
    assert not {"weight", "tenant", "deadline_s", "tardiness_s"} & set(run().jobs)


def test_the_best_heuristic_is_the_best_of_all_that_are_no_networks(shipped: dict[str, Path]) -> None:
    jct = {
        "fifo": [9.0],
        "srpt-tuned": [7.0],
        "fair": [5.0],
        "weighted-fair:-1": [4.0],
        HINDSIGHT: [3.0],
        OWN + "Greedy": [2.0],
    }
    networks = {"decima:embedded-batch": [1.0], "decima:packing-tpch": [1.0], OWN + "gym_policy": [1.0]}
    while jct:
        compared = finished({**jct, **networks})
        compared.add("elsewhere", dict.fromkeys(compared.finished, 0.0005))
        assert compared.best_heuristic == list(jct)[-1]
        assert json.loads(compared.to_json())["best_heuristic"] == list(jct)[-1]
        jct.popitem()
    for name in networks:
        alone = finished({name: [1.0]})
        assert alone.best_heuristic is None
        assert math.isnan(alone.summary[name]["difference_s"])


def test_what_a_comparison_tells() -> None:
    document = json.loads(finished({"fair": [5.0]}).to_json())
    assert document["schedulers"]["fair"]["mean_jct_s"] == 5
    assert document["schedulers"]["fair"]["mean_jct_ci95_s"] is None
    assert document["schedulers"]["fair"]["makespan_s"] is None  # it ran elsewhere
    compared = finished({"fifo": [10.0, 20.0], "fair": [9.0, 17.0]})
    assert repr(compared) == "Comparison(2 schedulers, 2 of 2 experiments finished, best heuristic fair)"
    assert repr(comparison("fifo", num_experiments=1)) == "Comparison(1 scheduler, 0 of 1 experiment finished)"


def test_json_says_what_was_compared_and_the_results_per_seed() -> None:
    compared = run(cluster=replace(CLUSTER, semantics=DECIMA_SIM))
    document = json.loads(compared.to_json(command="decima compare"))
    assert (document["workload"], document["executors"], document["seeds"]) == ("tiny", 4, [5, 6, 7])
    assert (document["semantics"], document["command"]) == ("decima-sim", "decima compare")
    fair = document["schedulers"]["fair"]
    assert fair["mean_jct_s"] == pytest.approx(np.mean(fair["per_seed_mean_jct_s"]))
    assert len(fair["per_seed_mean_jct_s"]) == 3
    assert 0 < fair["utilisation"] <= 1
    assert fair["p95_jct_s"] <= fair["makespan_s"]
    mixed = comparison(cluster=replace(CLUSTER, semantics=Semantics(nearest_level=False)))
    assert json.loads(mixed.to_json())["semantics"]["nearest_level"] is False


def test_json_tells_the_arrivals_that_mean_something() -> None:
    told = ("workload", "arrivals", "interval_s", "window_s", "jobs", "moving_delay_s", "training_seeds", "complete")

    def document(**changes: Any) -> list[Any]:
        content = json.loads(comparison("weighted-fair", "fifo", **changes).to_json())
        assert content["seeds"] == []
        assert content["best_heuristic"] is None
        assert content["schedulers"]["weighted-fair"]["setting"] is None
        return [content[name] for name in told]

    training = [1_000_005, 1_000_006]
    assert document() == ["tiny", "batch", None, None, 4, 2.0, training, False]
    assert document(arrivals="poisson", interval_ms=3000.0)[1:4] == ["poisson", 3.0, None]
    sequence = JobSequence(LIBRARY.profiles * 2, 1000.0 * np.arange(8))
    exact = Workload(LIBRARY.profiles, sequence, "exact")
    assert document(workload=exact)[:5] == ["exact", "exact", None, None, 8]
    windows = {"workload": exact, "window_ms": 1500.0, "seed": 0, "num_experiments": 1, "arrivals": "poisson"}
    assert document(**windows)[1:5] == ["exact", None, 1.5, 2]
    classes = ClusterConfig(executor_classes=parse_classes("2x0.5,3x1"), moving_delay_ms=500.0)
    content = json.loads(comparison(cluster=classes, memory_demand="uniform").to_json())
    assert (content["executors"], content["moving_delay_s"], content["memory_demand"]) == (5, 0.5, "uniform")
    assert content["classes"] == "2x0.5,3x1"
    assert content["training_seeds"] == []


def test_nothing_is_told_of_an_experiment_that_has_not_finished() -> None:
    compared = comparison(seed=1)
    with pytest.raises(KeyboardInterrupt):
        compared.run(1, _interrupt)
    assert (compared.finished, compared.episodes) == ([], {})
    assert compared.best_heuristic is None
    assert compared.runs.empty
    assert compared.jobs.empty
    assert math.isnan(compared.summary["fifo"]["mean_jct_s"])


def _interrupt(done: int, total: int) -> None:
    raise KeyboardInterrupt


def test_schedulers_are_made_again_and_hindsight_tries_other_alphas() -> None:
    compared = run("weighted-fair", HINDSIGHT, "fifo")
    seed = compared.finished[1]
    setting = runs_of(compared, HINDSIGHT)["setting"][seed]
    for name, spec in ((HINDSIGHT, setting), ("weighted-fair", compared.tuned["weighted-fair"])):
        assert compared.scheduler(name, seed).alpha == float(spec.partition(":")[2])
    assert type(compared.scheduler("fifo", seed)) is Fifo
    compared = Comparison(conditions(), {"one": HINDSIGHT, "same": "weighted-fair:-3"}, alphas=(-3.0,))
    compared.run(1)
    one, same = runs_of(compared, "one"), runs_of(compared, "same")
    assert one["setting"].tolist() == ["weighted-fair:-3"] * 3
    assert one["mean_jct_s"].tolist() == same["mean_jct_s"].tolist()


def test_tuning_is_on_other_sequences_and_hindsight_takes_the_best() -> None:
    compared = run("weighted-fair")
    assert len(compared.training_seeds) == 2
    assert len(comparison(HINDSIGHT, "fifo").training_seeds) == 0
    assert not set(compared.training_seeds) & set(compared.finished)
    sequences = [compared.conditions.sequence(number) for number in compared.training_seeds]
    alpha = best_for_all(np.array([sweep_ms(CLUSTER, each) for each in sequences]))
    fixed = compared.tuned["weighted-fair"]
    assert fixed == f"weighted-fair:{alpha:g}"
    assert runs_of(run(fixed), fixed).equals(runs_of(compared, "weighted-fair"))
    compared = run(HINDSIGHT, MAKESPAN_HINDSIGHT)
    for name, objective, column in ((HINDSIGHT, "jct", "mean_jct_s"), (MAKESPAN_HINDSIGHT, "makespan", "makespan_s")):
        for seed, row in runs_of(compared, name).iterrows():
            swept = sweep_ms(CLUSTER, compared.conditions.sequence(seed), objective)
            assert row[column] == swept.min() / 1000
            assert row["setting"] == GRIDS["weighted-fair"][int(swept.argmin())]


@pytest.mark.parametrize("name", ["graphene-star", "graphene", "tetris"])
def test_others_are_tuned_as_weighted_fair_is(name: str) -> None:
    compared = run(f"tuned-{name}", f"tuned-{name}:once", num_experiments=1)
    sequence, *training = (
        compared.conditions.sequence(seed) for seed in (*compared.finished, *compared.training_seeds)
    )
    [best] = runs_of(compared, f"tuned-{name}").to_dict("records")
    swept = sweep_ms(CLUSTER, sequence, settings=GRIDS[name])
    assert (best["mean_jct_s"], best["setting"]) == (swept.min() / 1000, GRIDS[name][int(swept.argmin())])
    sweeps = np.array([sweep_ms(CLUSTER, each, settings=GRIDS[name]) for each in training])
    setting = best_for_all(sweeps, GRIDS[name])
    [once] = runs_of(compared, f"tuned-{name}:once")["mean_jct_s"]
    assert once == swept[GRIDS[name].index(setting)] / 1000
    entries = json.loads(compared.to_json())["schedulers"]
    assert entries[f"tuned-{name}:once"]["setting"] == setting
    assert entries[f"tuned-{name}"]["per_seed_setting"] == [best["setting"]]


def test_no_setting_runs_twice_on_a_sequence(count_runs: Counter[tuple[int, str]]) -> None:
    run("weighted-fair", "weighted-fair:-1", "tetris:1:0", HINDSIGHT, MAKESPAN_HINDSIGHT, "tuned-tetris")
    assert set(count_runs.values()) == {1}
    assert len(count_runs) == 41 * (3 + 2) + 3 * len(GRIDS["tetris"])


def test_settings_and_comparisons_share_workers_and_episodes_go() -> None:
    two = [comparison("weighted-fair", "fifo"), comparison("weighted-fair", seed=50, num_experiments=1)]
    steps: list[tuple[int, int]] = []
    run_comparisons(two, 2, lambda done, total: steps.append((done, total)))
    assert steps == [(done, 11) for done in range(12)]
    assert two[0].to_json() == run("weighted-fair", "fifo").to_json()
    assert two[1].to_json() == run("weighted-fair", seed=50, num_experiments=1).to_json()
    without = Comparison(conditions(), ["fair"], keep=False)
    without.run(1)
    assert not without.episodes


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interruption_keeps_what_finished_and_the_rest_can_follow(
    workers: int, count_runs: Counter[tuple[int, str]]
) -> None:
    compared = comparison()

    def interrupt(done: int, total: int) -> None:
        if done == 3:  # of 6; at most two experiments are begun and not over
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compared.run(workers, interrupt)
    assert 1 <= len(compared.finished) <= 2
    assert not compared.complete
    finished, begun = compared.finished, Counter(count_runs)
    assert set(compared.episodes) == {"fifo", "fair"}
    assert {record.sequence.seed for record in compared.episodes.values()} == {compared.finished[0]}
    document = json.loads(compared.to_json())
    assert len(document["seeds"]) == len(document["schedulers"]["fifo"]["per_seed_mean_jct_s"])
    compared.run(1)
    assert compared.complete
    assert not {seed for seed, _ in count_runs - begun}.intersection(finished), "what has finished does not run again"
    assert compared.to_json() == run().to_json()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_scheduler_that_fails_ends_the_comparison(workers: int) -> None:
    with pytest.raises(CompareError, match=r"Faulty on seed \d: ZeroDivisionError: "):
        run("fair", OWN + "Faulty", workers=workers)


@cases(
    "changes, error, message",
    ({"num_training": 0}, CompareError, "at least one training sequence, got 0"),
    ({"schedulers": ()}, CompareError, "name at least one scheduler"),
    ({"schedulers": ("fair", "fifo", "fair")}, CompareError, "the scheduler fair is named twice"),
    ({"schedulers": ("fair", "fare")}, SchedulerError, "fare"),
    ({"schedulers": {"mine": OWN + "Missing"}}, SchedulerError, "Missing"),
    ({"schedulers": (OWN + "Undecided",)}, SchedulerError, "decide"),
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Comparison(conditions(), **changes)


def test_the_policy_fits_the_cluster_unless_it_is_named(shipped: dict[str, Path], policy: Path) -> None:
    def followed(**given: Any) -> str:
        return comparison("fair", "decima", **given).schedulers["decima"]

    assert followed() == "srpt-tuned"
    assert (
        comparison("fair", "decima,no-later-than=2").schedulers["decima,no-later-than=2"]
        == "srpt-tuned,no-later-than=2"
    )
    assert followed(policy="packing-tpch") == "decima:packing-tpch"
    assert followed(policy=str(policy)) == f"decima:{policy}"
    named = f"decima:{policy}"
    assert comparison("fair", named, policy="packing-tpch").schedulers == {"fair": "fair", named: named}


def test_the_first_metric_shown_decides_which_heuristic_is_the_best() -> None:
    setting = conditions(num_experiments=3, num_jobs=6, attributes=AttributeDistribution((2, 4), 2, (1, 16)))
    best = {}
    for name, column in (
        ("mean", "mean_jct_s"),
        ("p99", "p99_jct_s"),
        ("utilised", "utilisation"),
        ("misses", "deadline_misses"),
    ):
        compared = Comparison(setting, ["fifo", "fair", "sjf-cp"], show=[name, "weighted"])
        compared.run(1)
        assert (compared.shown, compared.compared_by) == ((column, "weighted_jct_s"), column)
        means = compared.runs.groupby("scheduler")[column].mean().reindex(["fifo", "fair", "sjf-cp"])
        best[name] = means.idxmax() if name == "utilised" else means.idxmin()
        assert compared.best_heuristic == best[name]
        entries = json.loads(compared.to_json())["schedulers"]
        for scheduler, entry in entries.items():
            shown = compared.compared[scheduler]
            assert list(entry["metrics"]) == list(shown) == [column, "weighted_jct_s"]
            assert entry["metrics"][column]["mean"] == pytest.approx(means[scheduler])
            assert entry["metrics"][column]["difference"] == pytest.approx(means[scheduler] - means[best[name]])
    plain = Comparison(setting, ["fifo", "fair", "sjf-cp"])
    plain.run(1)
    assert plain.compared_by == "mean_jct_s"
    assert "metrics" not in json.loads(plain.to_json())["schedulers"]["fifo"]
    with pytest.raises(CompareError, match=r"show must be 'mean', .* got 'p98'"):
        Comparison(setting, ["fifo"], show=["p98"])


@cases(
    "own, message",
    ("Faulty", r"Faulty on seed 5: ZeroDivisionError: .* \(own_schedulers\.py, line \d+\)$"),
    ("Idle", r"Idle on seed 5: "),
    ("Leaving", r"Leaving on seed 5: SystemExit: 3 \(own_schedulers\.py, line \d+\)$"),
)
def test_a_scheduler_that_fails_is_named_in_one_line(own: str, message: str) -> None:
    assert re.search(message, one_line(CompareError, run_scheduler, CLUSTER, conditions().sequence(5), OWN + own))


class Half(Scheduler):
    """Scheduler that gives two executors to the last schedulable stage, and leaves the other two idle."""

    def decide(self, observation: Observation) -> Decision | None:
        stage = int(observation.schedulable.nonzero()[0][-1])
        limit = observation.held(int(observation.stage_job[stage])) + 2
        return None if observation.time_ms == 0 and observation.offered == 2 else Decision(stage, limit)


def test_decisions_are_told_by_numbers_and_settings() -> None:
    compared = Comparison(conditions(num_experiments=2), {"half": Half(), "fifo": "fifo"})
    compared.run(1)
    taken = decisions(compared.conditions, 5, compared.scheduler("half", 5))
    jobs = len(compared.conditions.sequence(5))
    assert taken[:2] == [DecisionRecord(0.0, 4, jobs - 1, 0, 2), DecisionRecord(0.0, 2, -1, -1, 0)]
    told = [each for each in taken if each.job >= 0]
    assert {(each.job, each.stage) for each in told} == {(job, stage) for job in range(jobs) for stage in (0, 1)}
    record = compared.episodes["half"]
    assert [each.time_ms for each in taken] == sorted(each.time_ms for each in taken)
    assert taken[-1].time_ms <= record.end_ms
    compared = run("weighted-fair", num_experiments=1)
    fixed = compared.tuned["weighted-fair"]
    told = decisions(compared.conditions, 5, compared.scheduler("weighted-fair", 5))
    assert told == decisions(compared.conditions, 5, make_scheduler(fixed))


SEQUENCE = conditions(num_jobs=8).sequence(5)


def test_settings_of_tuned_schedulers() -> None:
    assert len(ALPHAS) == 41
    assert (ALPHAS[0], ALPHAS[10], ALPHAS[20], ALPHAS[40]) == (-2.0, -1.0, 0.0, 2.0)
    assert len({f"{alpha:g}" for alpha in ALPHAS}) == 41
    for name, grid in GRIDS.items():
        assert len(set(grid)) == len(grid)
        assert type(make_scheduler(grid[0])) is type(make_scheduler(name))
        assert all(make_scheduler(setting) for setting in grid)
        assert {f"tuned-{name}", f"tuned-{name}:once", f"tuned-{name}:makespan"} <= TUNED.keys()
    sweeps = np.full((2, 41), 9.0)
    sweeps[:, 3] = 1.0, 8.0
    sweeps[:, 7] = 4.0, 4.0
    sweeps[:, 8] = 4.0, 4.0
    assert best_for_all(sweeps) == ALPHAS[7]
    assert best_for_all(sweeps, [f"setting {place}" for place in range(41)]) == "setting 7"


def test_sweeps_and_hindsight() -> None:
    known = run_scheduler(CLUSTER, SEQUENCE, "fifo")
    settings = ("weighted-fair:-1", "weighted-fair:0.5")
    runs = dict(sweep(CLUSTER, SEQUENCE, settings, {"weighted-fair:0.5": known}))
    assert tuple(runs) == settings
    assert runs["weighted-fair:0.5"] is known
    expected = run_scheduler(CLUSTER, SEQUENCE, "weighted-fair:-1")
    assert runs["weighted-fair:-1"].completion_ms.tolist() == expected.completion_ms.tolist()
    runs = list(sweep(CLUSTER, SEQUENCE))
    best = best_settings(runs, ("jct", "makespan"))
    assert best.keys() == {"jct", "makespan"}
    for objective, (setting, record) in best.items():
        swept = sweep_ms(CLUSTER, SEQUENCE, objective)
        assert setting == GRIDS["weighted-fair"][int(swept.argmin())]
        assert swept.min() == (record.mean_jct_ms if objective == "jct" else record.makespan_ms)
    tie = [("one", runs[0][1]), ("other", runs[0][1])]
    assert best_settings(tie, ["jct"])["jct"][0] == "one"


def test_slowdowns_are_those_of_the_episodes() -> None:
    compared = run()
    seed = min(compared.finished)
    runs = compared.runs[compared.runs["seed"] == seed].set_index("scheduler")
    assert compared.episodes
    for name, record in compared.episodes.items():
        assert runs["slowdown"][name] == EpisodeMetrics(record).mean_slowdown
        assert (
            runs["worst_slowdown"][name] == EpisodeMetrics(record).worst_slowdown > EpisodeMetrics(record).mean_slowdown
        )
        jobs = compared.jobs[(compared.jobs["seed"] == seed) & (compared.jobs["scheduler"] == name)]
        assert jobs["slowdown"].tolist() == EpisodeMetrics(record).slowdown.tolist()
