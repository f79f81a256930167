"""Hypothesis strategies for clusters and decisions."""

import math
from dataclasses import fields, replace

import numba
from hypothesis import Phase, settings, strategies as st

from simulator import DECIMA_SIM, PAPER, ClusterConfig, ExecutorClass, Faults, Semantics
from simulator.cluster.config import EXACT, Knowledge

#: Settings for random episodes. A few of them as plain Python show that the code is the same and measure coverage.
MANY = settings(
    max_examples=10 if numba.config.DISABLE_JIT else 15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)

#: Random decisions: their seed, and the probability of leaving executors idle although some stage is schedulable.
seeds = st.integers(0, 2**32)
idleness = st.sampled_from((0.0, 0.1, 0.5))

#: A size larger than all demands that the strategies for workloads draw.
LARGE = {"cpu": 4.0, "memory": 4.0}


def semantics() -> st.SearchStrategy[Semantics]:
    """Draw the paper's semantics, the published simulator's, or any mixture of the switches."""
    switches = {switch.name: st.booleans() for switch in fields(Semantics)}
    return st.one_of(st.just(PAPER), st.just(DECIMA_SIM), st.builds(Semantics, **switches))


@st.composite
def executor_classes(draw: st.DrawFn) -> tuple[ExecutorClass, ...]:
    """Draw one class that can run everything, and up to three others, before or after it."""
    classes = [ExecutorClass(draw(st.integers(1, 12)), **LARGE)]
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2, 3)))):
        size = st.sampled_from((0.0, 0.5, 1.0, 2.5, 4.0))
        other = ExecutorClass(draw(st.integers(1, 6)), cpu=draw(size), memory=draw(size))
        classes.insert(draw(st.integers(0, len(classes))), other)
    return tuple(classes)


@st.composite
def clusters(draw: st.DrawFn, max_time: bool = False, errors: bool = False) -> ClusterConfig:
    """Draw small clusters, with and without delays; ``max_time``: truncate some episodes; ``errors``: of estimates."""
    error = st.sampled_from((0.0, 0.5, 2.0))
    knowledge = st.builds(Knowledge, error, error, error, st.sampled_from((0.0, 0.3, 1.0)))
    max_time_ms = st.one_of(st.just(math.inf), st.sampled_from((1.0, 1000.0)), st.floats(0.5, 20_000.0))
    return ClusterConfig(
        executor_classes=draw(executor_classes()),
        moving_delay_ms=draw(st.one_of(st.sampled_from((0.0, 1.0, 2.0, 1000.0)), st.floats(0.0, 3000.0))),
        warmup_delay_ms=draw(st.sampled_from((0.0, 1.0, 1000.0))),
        semantics=draw(semantics()),
        max_time_ms=draw(max_time_ms) if max_time else math.inf,
        reward=draw(st.sampled_from(("jct", "makespan"))),
        reward_scale_ms=draw(st.sampled_from((1.0, 100_000.0))),
        knowledge=draw(knowledge) if errors else EXACT,
    )


def faults(num_executors: int) -> st.SearchStrategy[Faults]:
    """Draw any mixture of faults, most of them frequent; capacity changes coincide with other events."""
    times = st.lists(st.sampled_from((0, 1, 2, 10, 50, 100, 1000, 3000, 20_000)), max_size=4, unique=True)
    capacity = st.builds(
        lambda times, numbers: tuple(
            (float(time), max(number, int(time == 0))) for time, number in zip(sorted(times), numbers, strict=False)
        ),
        times,
        st.lists(st.integers(0, num_executors), min_size=4, max_size=4),
    )
    return st.builds(
        Faults,
        executor_lifetime_ms=st.sampled_from((math.inf, 100.0, 1000.0, 10_000.0)),
        executor_return_ms=st.sampled_from((10.0, 1000.0, 5000.0, math.inf)),
        task_failures=st.sampled_from((0.0, 0.0, 0.02, 0.2)),
        stragglers=st.sampled_from(((0.0, 1.0), (0.2, 3.0))),
        lost_output=st.booleans(),
        capacity=st.one_of(st.just(()), capacity),
        speculation=st.sampled_from((None, (0.25, 1.0), (0.75, 1.5))),
    )


@st.composite
def faulty_clusters(draw: st.DrawFn, max_time: bool = False) -> ClusterConfig:
    """Draw small clusters with faults."""
    config = draw(clusters(max_time, errors=draw(st.booleans())))
    return replace(config, faults=draw(faults(config.num_executors)))
