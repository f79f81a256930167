"""Dominant resource fairness: the example of its paper, and the case of one resource."""

from decima.schedulers import Drf
from simulator import Cluster, ClusterConfig, Decision, ExecutorClass
from tests.simulator.cluster.build import job, jobs, stage
from workloads.arrivals import JobSequence


def held_at_first(config: ClusterConfig, sequence: JobSequence) -> list[int]:
    """Return the number of executors of each job after the first round."""
    cluster, scheduler, held = Cluster(config, sequence), Drf(), [0] * len(sequence)
    while not cluster.done and cluster.clock.now == 0:
        observation = cluster.observe()
        decision = scheduler.decide(observation) if observation.num_schedulable else None
        if decision is not None:
            held[int(observation.stage_job[decision.stage])] = decision.limit
        cluster.decide(decision)
    return held


def test_dominant_shares_and_executors_that_jobs_hold() -> None:
    # DRF, section 4.1: of 9 cpu and 18 GB, three tasks of <1 cpu, 4 GB> and two of <3 cpu, 1 GB>.
    sequence = jobs(job(stage(500, 1e6, cpu=1, memory=4)), job(stage(500, 1e6, cpu=3, memory=1)))
    config = ClusterConfig(executor_classes=(ExecutorClass(5, 9, 18),), moving_delay_ms=0)
    assert held_at_first(config, sequence) == [3, 2]
    sequence = jobs(*(job(stage(count, 1e6)) for count in (2, 50, 50)))
    assert held_at_first(ClusterConfig(21, moving_delay_ms=0), sequence) == [2, 10, 9]
    # Job 0 has two of three executors, committed or running, when job 1 arrives.
    profile = job(stage(40, 1000.0), stage(40, 1000.0))
    cluster, scheduler = Cluster(ClusterConfig(3, moving_delay_ms=0), jobs(profile, profile)), Drf()
    cluster.decide(Decision(0, 2))
    assert scheduler.decide(cluster.observe()) == Decision(2, 1)
    late = jobs(profile, profile, at=[0.0, 500.0])
    cluster = Cluster(ClusterConfig(3, moving_delay_ms=0), late)
    cluster.decide(Decision(0, 2))
    cluster.decide(None)
    while len(cluster.observe().jobs) < 2:
        cluster.decide(None)
    assert scheduler.decide(cluster.observe()) == Decision(2, 1)
