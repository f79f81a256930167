from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from decima.policy import shipped as policies
from decima.policy.files import load_actor
from decima.policy.shipped import SHIPPED, default_policy
from tests.decima.evaluation.examples import LIBRARY
from tests.simulator.cluster.build import chain, stage
from workloads.arrivals import trace_arrivals
from workloads.sources.tpch_measured import embedded_workload
from workloads.sources.tpch_published import load_tpch
from workloads.sources.workload_file import Workload


def test_policies_are_files_beside_their_module() -> None:
    assert len(SHIPPED) == 5
    folder = Path(policies.__file__).parent
    assert all(path == folder / f"{name}.npz" for name, path in SHIPPED.items())


def test_policies_that_are_there_can_be_read() -> None:
    for path in SHIPPED.values():
        if path.exists():
            assert load_actor(path).arrays["stage_head.0.weight"].size > 1000


def timed(workload: Workload, *arrival_ms: float) -> Workload:
    jobs = trace_arrivals(workload.profiles[: len(arrival_ms)], arrival_ms)
    return Workload(workload.profiles, jobs, workload.name)


def test_the_published_profiles_have_their_own_policies(shared: Callable[[str], Path]) -> None:
    published = Workload(load_tpch(shared("tpch"), ["2g"]), None, "tpch")
    assert default_policy(published, "batch") == "tpch-batch"
    assert default_policy(published, "poisson") == "tpch-stream"
    assert default_policy(timed(published, 0, 0), "poisson") == "tpch-batch"
    assert default_policy(timed(published, 0, 7), "batch") == "tpch-stream"


def test_classes_of_executors_have_policies_of_their_own() -> None:
    query, other = chain(stage(1, 10), name="tpch-q3-50g"), chain(stage(1, 10), name="j_17")
    assert default_policy(Workload((query,)), "poisson", 4) == "packing-tpch"
    assert default_policy(embedded_workload(), "batch", 2) == "packing-tpch"
    assert default_policy(Workload((query, other)), "poisson", 4) == "packing-tpch"


@pytest.mark.parametrize("workload", [embedded_workload(), LIBRARY], ids=["embedded", "own"])
def test_everything_else_has_those_of_the_embedded_set(workload: Workload) -> None:
    assert default_policy(workload, "batch") == "embedded-batch"
    assert default_policy(workload, "poisson") == "embedded-stream"
    assert default_policy(timed(workload, 5, 5, 5), "poisson") == "embedded-batch"
    assert default_policy(timed(workload, 0, 0, 1), "batch") == "embedded-stream"


def test_published_profiles_are_told_by_their_names() -> None:
    """They name no stages; one job of another kind is enough to make it another workload."""
    one = chain(stage(1, 10), name="tpch-q3-50g")
    assert default_policy(Workload((one,)), "batch") == "tpch-batch"
    assert default_policy(Workload((one, chain(stage(1, 10), name="etl"))), "batch") == "embedded-batch"
