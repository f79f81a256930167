"""Hypothesis strategies for small workloads with all corner cases.

The strategies draw chains, forks, triangles (a parent that is also a grandparent) and edges that skip levels, stages in
any order, waves and levels without measurements, zero durations and many ties.
"""

import math

import numpy as np
from hypothesis import strategies as st

from workloads import JobProfile, JobSequence, StageProfile, TaskDurations
from workloads.attributes import DEFAULT_TENANT, JobAttributes
from workloads.job import MOST_BYTES

#: Sets of parallelism levels: independent of parallelism, one level, the published simulator's levels, others.
LEVEL_SETS = ((1,), (5,), (5, 10), (2, 3, 7), (5, 10, 20, 40, 50, 60, 80, 100))


def durations_ms() -> st.SearchStrategy[float]:
    """Draw one duration: mostly small integers, so that zeros and ties are common."""
    return st.one_of(st.integers(0, 4).map(float), st.floats(0.0, 1000.0))


@st.composite
def task_durations(draw: st.DrawFn) -> TaskDurations:
    """Draw constants by wave, one list for everything, or tables by wave and level with holes."""
    kind = draw(st.sampled_from(("constant", "sampled", "tables")))
    if kind == "constant":
        return TaskDurations.constant(
            draw(durations_ms()), first_ms=draw(durations_ms()), fresh_ms=draw(durations_ms())
        )
    if kind == "sampled":
        return TaskDurations.sampled(draw(st.lists(durations_ms(), min_size=1, max_size=3)))
    tables: list[dict[int, list[float]]] = [{}, {}, {}]
    for level in draw(st.sampled_from(LEVEL_SETS)):
        measured = draw(st.sets(st.integers(0, 2), min_size=1))
        for wave in measured:
            tables[wave][level] = draw(st.lists(durations_ms(), min_size=1, max_size=3))
    mean_ms = draw(st.one_of(st.just(float("nan")), durations_ms()))
    return TaskDurations.from_tables(*tables, mean_ms=mean_ms)


def stage_profiles(max_tasks: int = 6) -> st.SearchStrategy[StageProfile]:
    """Draw one stage of 1 to ``max_tasks`` tasks, sometimes with unusual demands, or with bytes, rows and operators."""
    return st.builds(
        StageProfile,
        num_tasks=st.integers(1, max_tasks),
        durations=task_durations(),
        name=st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        cpu=st.one_of(st.just(1.0), st.floats(0.0, 4.0)),
        memory=st.one_of(st.just(0.0), st.floats(0.0, 4.0)),
        input_bytes=st.one_of(st.none(), st.integers(0, MOST_BYTES)),
        input_rows=st.one_of(st.none(), st.integers(0, MOST_BYTES)),
        shuffle_bytes=st.one_of(st.none(), st.integers(0, MOST_BYTES)),
        operators=st.lists(st.sampled_from(["Scan parquet", "Filter", "Schürfen"]), max_size=3).map(tuple),
    )


@st.composite
def job_profiles(draw: st.DrawFn, max_stages: int = 6, max_tasks: int = 6, name: str | None = None) -> JobProfile:
    """Draw one job of 1 to ``max_stages`` stages; any DAG, also one in several parts."""
    stages = draw(st.lists(stage_profiles(max_tasks), min_size=1, max_size=max_stages))
    forward = [(parent, child) for child in range(len(stages)) for parent in range(child)]
    chosen = draw(st.lists(st.sampled_from(forward), unique=True)) if forward else []
    number = draw(st.permutations(range(len(stages))))
    edges = [(number[parent], number[child]) for parent, child in chosen]
    return JobProfile(
        name=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=6)) if name is None else name,
        stages=tuple(stages),
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
    )


def job_attributes() -> st.SearchStrategy[JobAttributes]:
    """Draw attributes of a job, without an absolute deadline, which would depend on its arrival."""
    return st.builds(
        JobAttributes,
        weight=st.sampled_from((1.0, 0.25, 16.0)),
        slack=st.sampled_from((math.inf, 0.5, 2.0)),
        tenant=st.sampled_from((DEFAULT_TENANT, "bi", "etl")),
    )


@st.composite
def job_sequences(draw: st.DrawFn, max_jobs: int = 4, max_stages: int = 6, max_tasks: int = 6) -> JobSequence:
    """Draw one to ``max_jobs`` jobs, some of the same profile, some arriving together."""
    names = [f"job-{index}" for index in range(draw(st.integers(1, 3)))]
    library = [draw(job_profiles(max_stages, max_tasks, name=name)) for name in names]
    profiles = draw(st.lists(st.sampled_from(library), min_size=1, max_size=max_jobs))
    time_ms = st.one_of(st.integers(0, 3).map(lambda seconds: 1000.0 * seconds), st.floats(0.0, 5000.0))
    arrivals = sorted(draw(st.lists(time_ms, min_size=len(profiles), max_size=len(profiles))))
    attributes = [draw(job_attributes()) for _ in profiles] if draw(st.booleans()) else []
    return JobSequence(tuple(profiles), np.array(arrivals), draw(st.integers(0, 2**32)), attributes=tuple(attributes))
