"""Generated jobs are valid, reproducible, and as varied as documented."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cases import cases
from workloads.job import JobProfile, Wave, WorkloadError
from workloads.sources.synthetic import LEVELS, random_dag, synthetic_profiles


@pytest.fixture(scope="module")
def jobs() -> tuple[JobProfile, ...]:
    return synthetic_profiles(400)


def test_seeds_name_jobs_of_many_shapes(jobs: tuple[JobProfile, ...]) -> None:
    assert LEVELS.tolist() == [5, 10, 20, 40, 50, 60, 80, 100]
    assert sum(job.num_stages for job in jobs) == 3853
    assert sum(len(job.edges) for job in jobs) == 3583
    assert sum(job.num_tasks for job in jobs) == 136612
    assert sum(job.work_ms for job in jobs) == pytest.approx(473251581.2777777, rel=1e-9)
    for wave, total_ms in zip(Wave, (1684788238.0, 1315593317.0, 828269029.0), strict=True):
        cells = [cell for job in jobs for stage in job.stages for cell in stage.durations.table(wave).values()]
        assert sum(float(cell.sum()) for cell in cells) == pytest.approx(total_ms, rel=1e-9)
    random = np.random.default_rng(0)
    graphs: list[nx.DiGraph] = [nx.DiGraph(random_dag(8, random).tolist()) for _ in range(300)]
    chains = [nx.is_path(graph, sorted(graph)) for graph in graphs]
    forks = [any(degree > 1 for _, degree in graph.out_degree()) for graph in graphs]
    joins = [any(degree > 1 for _, degree in graph.in_degree()) for graph in graphs]
    sources = [sum(degree == 0 for _, degree in graph.in_degree()) for graph in graphs]
    sinks = [sum(degree == 0 for _, degree in graph.out_degree()) for graph in graphs]
    diamonds = [
        any(len(list(nx.all_simple_paths(graph, 0, stage))) > 1 for stage in graph) if 0 in graph else False
        for graph in graphs
    ]
    for found in (chains, forks, joins, diamonds):
        assert 0.05 < np.mean(found) < 0.95
    assert min(sources) == 1
    assert max(sources) >= 4
    assert np.mean(np.array(sinks) == 1) > 0.9


def means_ms(job: JobProfile, stage: int) -> np.ndarray:
    """Return mean durations by wave and level, float [3, 8]."""
    durations = job.stages[stage].durations
    return np.array([[cell.mean() for cell in durations.table(wave).values()] for wave in Wave])


@given(num_stages=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_random_dags_are_numbered_in_topological_order(num_stages: int, seed: int) -> None:
    edges = random_dag(num_stages, np.random.default_rng(seed))
    assert (edges.shape, edges.dtype) == ((len(edges), 2), np.int64)
    assert ((edges >= 0) & (edges < num_stages)).all()
    assert (edges[:, 0] < edges[:, 1]).all()
    assert edges.tolist() == sorted(map(list, {tuple(edge) for edge in edges.tolist()}))


def test_seeds_give_the_same_jobs_and_durations_are_whole(jobs: tuple[JobProfile, ...]) -> None:
    for few, many in zip(synthetic_profiles(5), jobs, strict=False):
        assert (few.name, few.edges.tolist()) == (many.name, many.edges.tolist())
        for one, other in zip(few.stages, many.stages, strict=True):
            assert one.num_tasks == other.num_tasks
            assert one.durations.values.tolist() == other.durations.values.tolist()
    for job in jobs[:50]:
        for stage in job.stages:
            assert stage.durations.spread[0] >= 1
            assert (stage.durations.values % 1 == 0).all()


def test_size_and_work(jobs: tuple[JobProfile, ...]) -> None:
    num_stages = [job.num_stages for job in jobs]
    assert (min(num_stages), max(num_stages)) == (2, 18)
    assert np.mean(num_stages) == pytest.approx(9.2, abs=0.5)
    assert 300 < np.mean([job.num_tasks for job in jobs]) < 600
    num_tasks = [stage.num_tasks for job in jobs for stage in job.stages]
    assert min(num_tasks) == 1
    assert np.median(num_tasks) < 20 < 300 < max(num_tasks)
    work_s = np.sort([job.work_ms / 1000 for job in jobs])[::-1]
    assert 1000 < work_s.mean() < 1500
    assert work_s[: len(work_s) * 23 // 100].sum() > 0.6 * work_s.sum()
    # The default jobs are few: they must not differ from the rest by chance.
    assert np.mean([job.work_ms / 1000 for job in synthetic_profiles()]) == pytest.approx(1200, rel=0.1)


def test_waves_and_levels(jobs: tuple[JobProfile, ...]) -> None:
    inflation = []
    for job in jobs[:50]:
        for number, stage in enumerate(job.stages):
            means = means_ms(job, number)
            assert stage.durations.levels.tolist() == LEVELS.tolist()
            assert (means[Wave.FRESH] > means[Wave.FIRST]).all()
            assert (means[Wave.FIRST] >= means[Wave.REST]).all()
            assert (np.diff(means, axis=1) >= 0).all()
            assert stage.durations.mean_ms == pytest.approx(means[:, LEVELS == 10].mean())
            inflation.append(means[Wave.REST] / means[Wave.REST, 0])
    at_most = np.quantile(inflation, [0.1, 0.9], axis=0)[:, -1]
    assert 1.2 < at_most[0] < at_most[1] - 0.5
    # Twice the executors do less than twice the work, and the gain falls with their number.
    speed_up = LEVELS / np.mean(inflation, axis=0)
    gain = np.diff(speed_up) / np.diff(LEVELS)
    assert (gain > 0).all()
    assert (np.diff(gain) < 0).all()


@cases(
    "arguments, message",
    ({"num_profiles": 0}, "num_profiles must be a whole number of at least 1, got 0"),
    ({"num_profiles": -1}, "num_profiles must be a whole number of at least 1, got -1"),
    ({"num_profiles": 2.5}, "num_profiles must be a whole number of at least 1, got 2.5"),
    ({"seed": -1}, "the seed must be a whole number that is not negative, got -1"),
)
def test_what_cannot_be_generated(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        synthetic_profiles(**arguments)
    with pytest.raises(WorkloadError, match="num_stages must be a whole number of at least 1, got 0"):
        random_dag(0, np.random.default_rng(0))
    with pytest.raises(WorkloadError, match="random must be of the type Generator, got 0"):
        random_dag(1, 0)  # type: ignore[arg-type]
