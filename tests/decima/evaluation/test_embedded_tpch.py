"""The embedded TPC-H jobs on a simulated cluster."""

import numpy as np
import pytest

from decima.registry import make_scheduler
from simulator import ClusterConfig, run_episode
from workloads import JobProfile, batch_arrivals, embedded_tpch, open_workload


def alone_s(profile: JobProfile, executors: int) -> float:
    """Return the time of a job alone on the cluster; the mean of three draws."""
    config, fair = ClusterConfig(num_executors=executors), make_scheduler("fair")
    runs = [run_episode(config, batch_arrivals([profile], 1, seed), fair) for seed in range(3)]
    return float(np.mean([run.makespan_ms for run in runs])) / 1000


@pytest.mark.parametrize("query", [2, 9, 21])
def test_speed_up_saturates_and_later_on_larger_inputs(query: int) -> None:
    """Figure 2 of the Decima paper."""
    small, large = embedded_tpch(sizes=["2g", "100g"], queries=[query])
    gain = {}
    for profile in (small, large):
        times = {executors: alone_s(profile, executors) for executors in (1, 10, 40, 100)}
        assert times[1] > 2.5 * times[10]
        gain[profile.name] = times[40] / times[100]
    assert gain[small.name] < 1.15
    assert gain[large.name] > gain[small.name]


def test_schedulers_are_compared_on_it_by_default() -> None:
    workload = open_workload()
    assert workload.name == "tpch (extrapolated from Spark at 1 and 2 GB)"
    assert workload.profiles == embedded_tpch()
