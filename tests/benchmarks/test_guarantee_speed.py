"""CPU time of episodes with guarantees, relative to the same scheduler without, in the same run."""

import time

import pytest

from decima.registry import make_scheduler
from simulator import ClusterConfig, EpisodeRecord, run_episode
from workloads import JobSequence, open_workload, poisson_arrivals

pytestmark = pytest.mark.benchmark

CLUSTER = ClusterConfig(num_executors=50)


def took_s(scheduler: str, sequence: JobSequence) -> tuple[float, EpisodeRecord]:
    """Return the least CPU time of three episodes after a first one, s, and the episode."""
    record = run_episode(CLUSTER, sequence, make_scheduler(scheduler))
    times = []
    for _ in range(3):
        started = time.process_time()
        run_episode(CLUSTER, sequence, make_scheduler(scheduler))
        times.append(time.process_time() - started)
    return min(times), record


@pytest.mark.parametrize(("scheduler", "most"), [("fair", 4.0), ("srpt", 2.5), ("decima:tpch-batch", 2.0)])
def test_a_guarded_decision_takes_about_as_long_as_two(scheduler: str, most: float) -> None:
    """Executors of ``fair`` stay with their job, which the engine decides alone; a guard must be asked each time."""
    sequence = poisson_arrivals(open_workload().profiles, 150, 4000.0, 0)
    alone_s, alone = took_s(scheduler, sequence)
    guarded_s, guarded = took_s(f"{scheduler},no-later-than=1.5", sequence)
    per_decision = [
        1e6 * spent_s / record.num_decisions for spent_s, record in ((alone_s, alone), (guarded_s, guarded))
    ]
    print(
        f"\n{scheduler}: {per_decision[0]:.0f} us a decision with all that the simulator does, guarded "
        f"{per_decision[1]:.0f} us, {guarded_s / alone_s:.2f} times an episode"
    )
    assert guarded_s < most * alone_s
