"""Memory of long studies: episodes are freed at their end, without a garbage collection."""

import gc
from collections.abc import Iterator
from typing import Any
from weakref import ref

import pytest

from simulator import Cluster, ClusterConfig, Faults
from simulator.cluster.config import Knowledge
from simulator.cluster.faults import SPECULATION
from tests.simulator.cluster.build import finish
from workloads import poisson_arrivals, synthetic_profiles
from workloads.sources.carbon import synthetic_signal

JOBS = poisson_arrivals(synthetic_profiles(6), 8, 5_000, seed=2)


@pytest.fixture
def _without_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collection")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"knowledge": Knowledge(job_error=0.5, stage_error=0.5)},
        {"faults": Faults(60_000.0, task_failures=0.05, lost_output=True, capacity=((20_000.0, 2),))},
        {"faults": Faults(stragglers=(0.1, 4.0), speculation=SPECULATION)},
        {"signal": synthetic_signal("synthetic-solar", 600), "reward": "carbon"},
    ],
    ids=["plain", "wrong-estimates", "faults", "speculation", "signal"],
)
def test_an_episode_and_its_forks_are_freed_at_once(options: dict[str, Any]) -> None:
    cluster = Cluster(ClusterConfig(num_executors=4, **options), JOBS)
    fork = cluster.fork(futures=1)
    episodes = [(ref(each), ref(each._memory[0])) for each in (cluster, fork)]
    records = [finish(each)[0] for each in (cluster, fork)]
    del cluster, fork
    assert [(one(), memory()) for one, memory in episodes] == [(None, None)] * 2
    assert all(record.num_decisions for record in records)
