"""Code of schedulers is compiled once, before episodes run."""

from dataclasses import replace

import numba
import pytest

from decima.evaluation import Comparison, Conditions, compiling
from decima.policy.compiled import network
from decima.schedulers import srpt_steps
from simulator import ClusterConfig, Faults
from simulator.cluster.engine import commands, solo
from workloads import Workload, embedded_tpch, synthetic_profiles

CONDITIONS = Conditions(Workload(synthetic_profiles(), None, "synthetic"), num_jobs=3, num_experiments=1)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-in for the cache: the set of cached parts, empty at first."""
    parts: list[str] = []
    monkeypatch.setattr(compiling, "is_compiled", lambda part, packages: part in parts)
    monkeypatch.setattr(compiling, "mark_compiled", lambda part, packages: parts.append(part))
    return parts


def test_parts_that_are_not_compiled_are_compiled_before_the_episodes(compiled: list[str]) -> None:
    steps: list[tuple[str, int, int]] = []
    for _ in range(2):
        Comparison(CONDITIONS, ["fifo", "srpt", "decima:tpch-batch,guard=off"]).run(
            1,
            lambda done, total: steps.append(("run", done, total)),
            lambda done, total: steps.append(("compile", done, total)),
        )
    assert compiled == [compiling.ENGINE, "decima", "srpt", compiling.ALONE]
    runs = [("run", done, 3) for done in range(4)]
    assert steps == [*(("compile", done, 4) for done in range(5)), *runs, *runs]


@pytest.mark.usefixtures("compiled")
def test_code_that_is_compiled(compiled: list[str]) -> None:
    cluster = ClusterConfig(faults=Faults(capacity=((0.0, 0),)))
    compiling.compile_parts(replace(CONDITIONS, cluster=cluster), ["fifo"], 1)
    assert compiled == [compiling.ENGINE, compiling.ALONE]
    del compiled[:]
    compiling.compile_parts(Conditions(Workload(embedded_tpch(), None, "tpch")), ["fifo"], 1)
    assert compiled == [compiling.ENGINE], "the times of these jobs alone are known"
    compiled.append(compiling.ALONE)
    compiling.compile_parts(CONDITIONS, ["fifo"], "ray:2", lambda done, total: pytest.fail("compiled here"))


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.usefixtures("compiled")
def test_the_episode_that_compiles_calls_what_all_others_call() -> None:
    """It compiles for the right types: an experiment afterwards compiles nothing."""
    entries = (*(commands.observe, commands.advance, network.decide, srpt_steps.choose, solo.run_alone),)
    schedulers = ["fifo", "srpt", "srpt-tuned", "decima:tpch-batch"]
    compiling.compile_parts(CONDITIONS, schedulers, 1)
    before = [list(entry.overloads) for entry in entries]
    assert all(before)
    compared = Comparison(CONDITIONS, schedulers)
    compared.run(1)
    assert len(compared.jobs["slowdown"])
    assert [list(entry.overloads) for entry in entries] == before
