"""Graphene as a scheduler: plans, and decisions that follow the plans."""

import pytest

from decima.schedulers import Tetris
from decima.schedulers.graphene.planner import MOST_TASKS, Graphene, graphene, project_of
from simulator import Cluster, ClusterConfig, ExecutorClass, run_episode
from tests.simulator.cluster.build import job, jobs, stage
from workloads import JobProfile

TWO = ClusterConfig(2, moving_delay_ms=0)


def long_behind_short() -> JobProfile:
    """Return a job whose second stage is short, but has a child that is by far the longest stage."""
    return job(stage(2, 100.0), stage(1, 100.0), stage(1, 1000.0), edges=[(1, 2)])


def test_plans_are_carried_out_and_shorter_jobs_go_first() -> None:
    # Tetris sees no difference, and runs the stage with the longest path first.
    sequence = jobs(long_behind_short())
    planned = graphene(project_of(long_behind_short(), TWO))
    assert planned.makespan == 1100.0
    assert run_episode(TWO, sequence, Graphene()).makespan_ms == 1100.0
    assert run_episode(TWO, sequence, Tetris()).makespan_ms == 1100.0
    # Half of a wide stage is planned before a chain, half behind it.
    profile = job(stage(4, 100.0), stage(1, 100.0), stage(1, 300.0), edges=[(1, 2)])
    record = run_episode(TWO, jobs(profile), Graphene())
    assert record.makespan_ms == graphene(project_of(profile, TWO)).makespan == 400.0
    sequence = jobs(job(stage(40, 100.0)), job(stage(1, 100.0)))
    for remaining, first in ((0.0, 0), (2.0, 1)):
        decision = Graphene(remaining).decide(Cluster(TWO, sequence).observe())
        assert decision is not None
        assert decision.stage == first
    config = ClusterConfig(
        executor_classes=(ExecutorClass(3, 1, 1.0), ExecutorClass(5, 1, 0.25), ExecutorClass(4, 1, 0.5))
    )
    profile = job(*(stage(2, 100.0, memory=memory) for memory in (0.1, 0.3, 0.9)))
    project = project_of(profile, config)
    assert project.capacity.tolist() == [12, 7, 3]
    assert project.demands.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize(("tasks", "executors"), [(MOST_TASKS, 50), (5 * MOST_TASKS, 50), (5 * MOST_TASKS, 2)])
def test_one_planned_task_may_stand_for_several_with_as_much_work(tasks: int, executors: int) -> None:
    project = project_of(job(stage(tasks, 100.0)), ClusterConfig(executors))
    assert project.num_tasks.tolist() == [MOST_TASKS]
    assert project.num_tasks @ (project.durations * project.demands[:, 0]) == pytest.approx(tasks * 100.0)
    assert project.demands[0, 0] <= executors
