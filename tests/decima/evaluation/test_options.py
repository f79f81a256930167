"""Comparisons from Python, with the options of ``decima compare``."""

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decima
from decima.cli.compare import compare as compare_command
from decima.evaluation.comparison import Comparison
from decima.evaluation.conditions import CompareError, Conditions, Sampling
from decima.evaluation.guarantee_metrics import guarantee_metrics, most_executors
from decima.evaluation.options import choose_schedulers, compare, make_conditions
from decima.gym import as_scheduler
from decima.registry import make_scheduler
from decima.schedulers import Fair
from decima.schedulers.base import SchedulerError
from decima.schedulers.fifo import Fifo
from decima.schedulers.guarantees import Guarantees
from decima.service.history import History
from decima.show.report import comparison_report
from simulator import NO_FAULTS, ClusterConfig, Decision, Faults, Observation, run_episode
from simulator.cluster.config import EXACT, Knowledge
from tests.cases import cases
from tests.decima.evaluation.examples import LIBRARY, comparison, conditions
from tests.decima.schedulers.own_schedulers import Greedy
from tests.simulator.cluster.build import job, stage
from workloads import AttributeDistribution, DecimaError, JobAttributes, JobSequence, open_workload, poisson_arrivals
from workloads.imperfections import Imperfections
from workloads.patterns import ArrivalPattern
from workloads.quantities import build, quantities

SMALL: dict[str, Any] = {"workload": LIBRARY, "jobs": 4, "executors": 4, "seeds": 2, "seed": 5}


def test_jobs_delays_and_rows_of_comparisons() -> None:
    table = compare(["fifo", "weighted-fair"], training=1, **SMALL)
    assert list(table)[:3] == ["scheduler", "seed", "mean_jct_s"]
    assert not [name for name in table if name.endswith("_ms")]
    assert table[["scheduler", "seed"]].to_numpy().tolist() == [
        ["fifo", 5], ["fifo", 6], ["weighted-fair", 5], ["weighted-fair", 6],
    ]  # fmt: skip
    same = comparison("fifo", num_experiments=2)
    same.run(workers=1)
    assert table["mean_jct_s"][:2].tolist() == same.runs["mean_jct_s"].tolist()
    assert table["makespan_s"][:2].tolist() == same.runs["makespan_s"].tolist()
    measured = replace(LIBRARY, about={"executor_startup_ms": 700})
    for workload, given, delay_ms in (
        (LIBRARY, None, 2000),
        (measured, None, 700),
        (measured, 0, 0),
        (LIBRARY, 3, 3000),
    ):
        assert make_conditions(workload=workload, moving_delay=given).cluster.moving_delay_ms == delay_ms
    sequence = poisson_arrivals(LIBRARY.profiles, 6, 1000.0, seed=3)
    exact = make_conditions(workload=sequence)
    assert exact.sequence(0).arrival_ms.tolist() == sequence.arrival_ms.tolist()
    assert make_conditions(workload=LIBRARY.profiles[:2]).workload.profiles == LIBRARY.profiles[:2]


def test_a_drift_by_its_text() -> None:
    made = make_conditions(arrivals="poisson", interval=2, jobs=10, drift="5:0.5:synthetic")
    assert made.drift is not None
    assert (made.drift.at_ms, made.drift.rate, made.drift.name) == (5000.0, 0.5, "random DAGs")
    assert made.drift.profiles == decima.open_workload("synthetic").profiles
    same = make_conditions(arrivals="poisson", interval=2, jobs=10, drift=made.drift)
    assert same.sequence(1).arrival_ms.tolist() == made.sequence(1).arrival_ms.tolist()
    for text, message in (
        ("5", r"drift '5': expected AT:RATE\[:WORKLOAD\]"),
        ("5:x", r"drift '5:x': expected AT:RATE"),
        ("-5:2", "a drift begins between 0 and"),
        ("5:0", "a drift's factor on the arrival rate"),
        ("5:2:tpcx", "did you mean 'tpch'"),
        ("18:2", "the drift at 18 s comes too late: 10 jobs 2 s apart arrive within 18 s"),
    ):
        with pytest.raises(DecimaError, match=message):
            make_conditions(arrivals="poisson", interval=2, jobs=10, drift=text)


def greedy(observation: Observation) -> Decision:
    return Greedy().decide(observation)


def test_objects_and_classes_in_several_processes() -> None:
    table = compare([Greedy, Fair(), greedy, "fair", "tests.decima.schedulers.own_schedulers:Greedy"], **SMALL)
    jct = table.groupby("scheduler").mean_jct_s.sum()
    assert jct["Greedy"] == jct["greedy"] == jct["tests.decima.schedulers.own_schedulers:Greedy"]
    assert jct["Fair"] == jct["fair"]
    named = compare({"weighted-fair": Greedy(), "plain": "fair"}, **SMALL)
    assert named["scheduler"].unique().tolist() == ["weighted-fair", "plain"]
    assert named.groupby("scheduler").mean_jct_s.sum()["weighted-fair"] == jct["Greedy"]
    assert compare([Greedy, greedy], workers=2, **SMALL).equals(compare([Greedy, greedy], **SMALL))


def test_an_object_is_a_heuristic_unless_it_was_learned() -> None:
    learned = as_scheduler(lambda observation, mask: (mask.argmax(), 0))
    from decima.evaluation.comparison import Comparison

    compared = Comparison(conditions(num_experiments=1), {"mine": Greedy(), "learned": learned})
    compared.run(1)
    assert compared.best_heuristic == "mine"
    assert type(compared.scheduler("learned", 5)) is type(learned)


def test_policies_by_name_file_and_checkpoint(policy: Path) -> None:
    by_file = compare(f"fair,decima:{policy}", **SMALL)
    by_option = compare("fair", checkpoint=policy, **SMALL)
    loaded = compare({"fair": "fair", "decima": decima.load_policy(policy)}, **SMALL)
    jct = [table["mean_jct_s"].tolist() for table in (by_file, by_option, loaded)]
    assert jct[0] == jct[1] == jct[2]
    assert by_option["scheduler"].unique().tolist() == ["fair", "decima"]


def test_the_default_is_that_of_the_command(shipped: dict[str, Path]) -> None:
    few = choose_schedulers(make_conditions(seeds=1, jobs=2))
    assert "srpt" in few.schedulers
    assert ("decima" in few.schedulers) != bool(few.left_out)
    packing = choose_schedulers(make_conditions(seeds=1, jobs=2, classes="5x0.5,5x1"))
    assert "tetris" in packing.schedulers
    assert choose_schedulers(conditions(), "fair,decima:tpch-batch,guard=off").schedulers == [
        "fair",
        "decima:tpch-batch,guard=off",
    ]


def test_the_schedulers_that_are_named_take_part_and_no_others(shipped: dict[str, Path]) -> None:
    for named in ("fair, decima", ["fair", "decima"]):
        assert choose_schedulers(conditions(), named) == (["fair", "decima"], None, False)
    assert choose_schedulers(conditions(), {"a": "fair"}) == ({"a": "fair"}, None, False)
    assert choose_schedulers(conditions(), "fair", Path("x.npz")) == (["fair", "decima"], "x.npz", False)
    assert choose_schedulers(conditions(), "decima,fair", "x.npz") == (["decima", "fair"], "x.npz", False)
    assert choose_schedulers(conditions(), {"a": "fair"}, "x") == ({"a": "fair", "decima": "decima"}, "x", False)


def test_decima_is_left_out_where_no_network_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decima.evaluation.best_fit", lambda _: None)
    chosen = choose_schedulers(conditions())
    assert "decima" not in chosen.schedulers
    assert (chosen.policy, chosen.left_out) == (None, True)
    monkeypatch.setattr("decima.evaluation.best_fit", lambda _: "tpch-batch")
    chosen = choose_schedulers(conditions())
    assert "decima" in chosen.schedulers
    assert (chosen.policy, chosen.left_out) == ("tpch-batch", False)
    for_misses = choose_schedulers(conditions(), metric="misses")
    assert {"edf", "atc-misses"} < {*for_misses.schedulers}
    assert "decima" not in for_misses.schedulers
    assert not for_misses.left_out


def test_the_options_are_those_of_the_command() -> None:
    of_command = {parameter.name: parameter.default for parameter in compare_command.params}
    not_settings = {
        *("scheduler_names", "by", "objective", "profiles", "out"),
        *("csv_file", "report_file", "trace_file", "json_file"),
    }
    given = {
        name: each.default
        for name, each in inspect.signature(compare).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    assert given.keys() == of_command.keys() - not_settings | {"knowledge", "faults", "progress"}
    options = compare_command.params
    expected = {
        each.name: each.default for each in options if each.name in given and each.to_info_dict()["default"] is not None
    }
    assert {name: value for name, value in given.items() if value is not None} == expected | {
        "workers": 1,
        "workload": "tpch",
        "progress": True,
    }
    assert "\n        moving_delay: Delay of an executor" in (compare.__doc__ or "")


@cases(
    "options, error, message",
    ({"workload": 3}, CompareError, "workload must be several of the type JobProfile, got 3"),
    ({"workload": [1]}, CompareError, r"workload\[0\] must be of the type JobProfile, got 1"),
    ({"interval": "2"}, CompareError, "interval: expected a number, got '2'"),
    ({"moving_delay": "2"}, CompareError, "moving_delay: expected a number, got '2'"),
    ({"window": True}, CompareError, "window: expected a number, got True"),
    ({"executors": "5"}, CompareError, "executors: expected a whole number, got '5'"),
    ({"semantics": "papr"}, CompareError, r"semantics: expected 'paper', .* got 'papr' \(did you mean 'paper'\?\)"),
    ({"arrivals": "bach"}, CompareError, r"arrivals: expected 'batch' or 'poisson', got 'bach' \(did you"),
    ({"schedulers": "fiar"}, SchedulerError, r"unknown scheduler 'fiar' \(did you mean 'fair'\?\): expected"),
    ({"schedulers": ["fair", 3]}, SchedulerError, "a scheduler is a name, an object or class .* got 3"),
    ({"schedulers": 3}, CompareError, "schedulers must be names, schedulers or a dictionary of such, got 3"),
    ({"schedulers": []}, CompareError, "name at least one scheduler"),
    ({"schedulers": [greedy, greedy]}, CompareError, "the scheduler greedy is named twice"),
    ({"knowledge": {"error": 1}}, CompareError, "error: unknown key .*expected job_error, "),
    ({"knowledge": {"job_error": -1}}, CompareError, "job_error: expected a number of at least 0, got -1"),
    ({"training": "6"}, CompareError, "num_training must be a whole number, got '6'"),
)
def test_a_wrong_type_is_told_with_its_field(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}"):
        compare(**{"schedulers": "fair", **SMALL, **options})


def test_tuned_weighted_fair_from_python() -> None:
    sequence = conditions().sequence(5)
    name = decima.tune(ClusterConfig(num_executors=4), sequence)
    hindsight = compare("tuned-weighted-fair", **{**SMALL, "seeds": 1})
    assert hindsight["setting"].tolist() == [name]
    record = decima.run_episode(ClusterConfig(num_executors=4), sequence, decima.make_scheduler(name))
    assert record.mean_jct_ms / 1000 == hindsight["mean_jct_s"][0]
    once = decima.tune(ClusterConfig(num_executors=4), [conditions().sequence(seed) for seed in (7, 8)])
    assert once.startswith("weighted-fair:")
    with pytest.raises(SchedulerError, match=r"unknown scheduler 'tuned-weighted-fair'.*decima\.tune"):
        decima.make_scheduler("tuned-weighted-fair")
    with pytest.raises(CompareError, match=r"scheduler must be .* got 'fair'"):
        decima.tune(ClusterConfig(), sequence, "fair")


@cases("cls", ClusterConfig, Knowledge, Faults, Conditions, Sampling, AttributeDistribution, ArrivalPattern)
def test_defaults_are_those_declared(cls: Any) -> None:
    for default in (cls(), build(cls, {})):
        for name, quantity in quantities(cls).items():
            if name not in ("classes", "workload"):  # one class of the number of executors; an opened workload
                assert quantity.of(default) == quantity.field.default
    assert not Faults().active


def test_faults_and_errors_of_estimates_are_those_measured() -> None:
    measured = replace(LIBRARY, imperfections=Imperfections(task_failures=0.01, executor_lifetime_s=500.0))
    assert make_conditions(workload=LIBRARY).cluster.faults == NO_FAULTS
    both = Faults(executor_lifetime_ms=500_000.0, task_failures=0.01)
    assert make_conditions(workload=measured).cluster.faults == both
    some = make_conditions(workload=measured, faults={"task_failures": 0.0, "stragglers": (0.1, 2.0)})
    assert some.cluster.faults == replace(both, task_failures=0.0, stragglers=(0.1, 2.0))
    assert make_conditions(workload=measured, faults=NO_FAULTS).cluster.faults == NO_FAULTS
    with pytest.raises(CompareError, match=r"lifetime: unknown key .*expected executor_lifetime, "):
        make_conditions(faults={"lifetime": 3})
    measured = replace(open_workload("synthetic"), imperfections=Imperfections(0.4, 0.2, task_error=0.9))
    assert make_conditions(workload=measured).cluster.knowledge == Knowledge(0.4, 0.2)
    some = make_conditions(workload=measured, knowledge={"stage_error": 0.0, "unknown": 0.1})
    assert some.cluster.knowledge == Knowledge(0.4, 0.0, 0.0, 0.1)
    assert make_conditions(workload=measured, knowledge=EXACT).cluster.knowledge == EXACT
    assert make_conditions(workload="synthetic").cluster.knowledge == EXACT
    assert some.to_dict()["job_error"] == 0.4
    assert History.of(measured).knowledge == Knowledge(0.4, 0.2)


@pytest.mark.parametrize(("given", "slack"), [(3, (3, 3)), ((2, 4), (2, 4)), ([2.5], (2.5, 2.5))])
def test_attributes_are_drawn_as_the_options_say(given: Any, slack: tuple[float, float]) -> None:
    chosen = make_conditions(deadlines=given, tenants=2, weights=[1, 4])
    assert chosen.attributes == AttributeDistribution(slack, 2, (1, 4))


def test_attributes_that_cannot_be_drawn() -> None:
    for options, message in (
        ({"deadlines": (1, 2, 3)}, "deadlines: expected at most 2 values, got (1, 2, 3)"),
        ({"deadlines": 0}, "deadlines[0]: expected a number above 0, got 0"),
        ({"weights": [4, -1]}, "weights[1]: expected a number of at least 1e-09, got -1"),
        ({"tenants": -1}, "tenants: expected a number of at least 0, got -1"),
    ):
        with pytest.raises(DecimaError) as caught:
            make_conditions(**options)  # type: ignore[arg-type]
        assert str(caught.value) == message


#: Two jobs; under FIFO, the second job waits for the first.
SEQUENCE = JobSequence(
    (job(stage(8, 100.0)), job(stage(2, 100.0))),
    np.array([0.0, 50.0]),
    attributes=(JobAttributes(tenant="a"), JobAttributes(tenant="b")),
)
CLUSTER = ClusterConfig(2, moving_delay_ms=0.0, warmup_delay_ms=0.0)


def test_lateness_and_executors_of_tenants() -> None:
    record = run_episode(CLUSTER, SEQUENCE, make_scheduler("fifo"))
    assert record.jct_ms.tolist() == [400.0, 450.0]
    fair = replace(record, completion_ms=np.array([400.0, 250.0]))
    found = guarantee_metrics(record, Guarantees(no_later_than=1.5), lambda: fair)
    assert found == {"late_jobs": 1, "latest_ratio": 450 / 200, "lateness_s": pytest.approx(0.15)}
    found = guarantee_metrics(record, Guarantees(no_later_than=3.0), lambda: fair)
    assert (found["late_jobs"], found["lateness_s"]) == (0, 0.0)
    assert [most_executors(record, each) for each in ("a", "b", "c")] == [2, 2, 0]
    found = guarantee_metrics(record, Guarantees(ceiling={"a": 0.5, "b": 1.0}), lambda: record)
    assert found == {"above_ceiling": 1}
    kept = run_episode(CLUSTER, SEQUENCE, make_scheduler("fifo,ceiling=a:0.5"))
    assert most_executors(kept, "a") == 1


def compared(**guarantees: float | dict[str, float]) -> Comparison:
    conditions = make_conditions(
        workload="synthetic", arrivals="poisson", interval=4.0, jobs=15, executors=8, seeds=2, tenants=2
    )
    wanted = Guarantees(**guarantees)  # type: ignore[arg-type]
    comparison = Comparison(conditions, ["fifo", "fair", "tuned-weighted-fair", Fifo], guarantees=wanted)
    comparison.run(workers=1)
    return comparison


def test_schedulers_are_compared_with_and_without() -> None:
    comparison = compared(no_later_than=1.2, floor={"tenant-1": 0.5})
    suffix = ",floor=tenant-1:0.5,no-later-than=1.2"
    names = ["fifo", f"fifo{suffix}", "fair", f"fair{suffix}", "tuned-weighted-fair", "Fifo", f"Fifo{suffix}"]
    assert list(comparison.schedulers) == names
    runs = comparison.runs.set_index(["scheduler", "seed"])
    assert runs.loc["fifo", "late_jobs"].isna().all()
    assert (runs.loc[f"fifo{suffix}", "overruled"] > 0).all()
    # The same scheduler as an object.
    numbers = [name for name in runs.columns if name != "setting"]
    assert runs.loc[f"fifo{suffix}", numbers].equals(runs.loc[f"Fifo{suffix}", numbers])
    entry = json.loads(comparison.to_json())["schedulers"][f"fifo{suffix}"]["guarantees"]
    assert set(entry) == {"decisions", "overruled", "late_jobs", "latest_ratio", "lateness_s", "below_floor_s"}
    assert "guarantees" not in json.loads(comparison.to_json())["schedulers"]["fifo"]


def test_the_report_says_what_guarantees_changed() -> None:
    comparison = compared(no_later_than=1.0, ceiling={"tenant-1": 0.5})
    notes = "\n".join(comparison_report(comparison, "decima compare").notes)
    name = "fifo,ceiling=tenant-1:0.5,no-later-than=1"
    row = comparison.runs[comparison.runs["scheduler"] == name]
    overruled = comparison.episodes[name].kept.overruled
    first = f"{overruled[0].decision} at {overruled[0].time_ms / 1000:.1f} s"
    assert f"{name}: guarantees changed {int(row['overruled'].sum()):,} of " in notes
    assert f"decisions (in the first experiment {first} ({overruled[0].guarantee})" in notes
    late, jobs = int(row["late_jobs"].sum()), 30
    assert late > 0
    assert f"{name}: the guarantee is not kept for {late} of {jobs} jobs" in notes
    assert f"{name}: the ceiling " in notes
    assert len(overruled) == row["overruled"].iloc[0]


def test_unknown_tenants_are_refused_and_the_function_takes_guarantees() -> None:
    with pytest.raises(SchedulerError, match=r"floor: unknown tenant 'tenant-3' \(did you mean"):
        compared(floor={"tenant-3": 0.5})
    with pytest.raises(SchedulerError, match="ceiling: unknown tenant 'x': the jobs have no tenants"):
        decima.compare("fair,ceiling=x:0.5", workload="synthetic", seeds=1, jobs=2)
    table = decima.compare("fifo", workload="synthetic", seeds=1, jobs=6, executors=4, no_later_than=1.0)
    assert table["scheduler"].tolist() == ["fifo", "fifo,no-later-than=1"]


def test_a_comparison_in_python_shows_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("decima.evaluation.options.PATIENCE_S", 0.0)
    few: dict[str, Any] = {"workload": "synthetic", "seeds": 2, "jobs": 2, "executors": 4}
    decima.compare("fifo", **few)
    assert "Comparing: 0 of 2\n" in capsys.readouterr().err
    decima.compare("fifo", **few, progress=False)
    assert capsys.readouterr().err == ""
