"""Guarantees in comparisons: variants of schedulers with guarantees, and metrics of violations."""

import json
from dataclasses import replace

import numpy as np
import pytest

import decima
from decima.evaluation.comparison import Comparison
from decima.evaluation.options import make_conditions
from decima.evaluation.variants import guarantee_metrics, most_executors
from decima.registry import make_scheduler
from decima.schedulers.base import SchedulerError
from decima.schedulers.baselines import Fifo
from decima.schedulers.guarantees import Guarantees
from decima.show.report import comparison_report
from simulator import ClusterConfig, run_episode
from tests.simulator.cluster.build import job, stage
from workloads import JobAttributes, JobSequence

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
    notes = "\n".join(comparison_report(comparison, "decima compare", {}).notes)
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
