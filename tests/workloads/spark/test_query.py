"""Edges between the stages of a query, and its times."""

import dataclasses
import math

import pytest

from tests.workloads.spark.runs import Stage, measured_run
from workloads.job import Wave, WorkloadError
from workloads.spark.query import SparkQuery, StageDag, stage_dag, stages_by_output, without_implied
from workloads.spark.reader import SparkJob, SparkStage


def stage(number: int, *parents: int, rdd: int | None = None, tasks: int = 1, writes: bool = False) -> SparkStage:
    rdd = number if rdd is None else rdd
    return SparkStage(number, "", tasks, rdd=rdd, parents=parents, writes_shuffle=writes)


def job(number: int, start: float, end: float, *stages: int) -> SparkJob:
    return SparkJob(number, 0, "", stages, start, end)


def dag_of(jobs: list[SparkJob], stages: list[SparkStage], ran: set[int] | None = None) -> StageDag:
    """Return the DAG of jobs; by default all stages ran."""
    ran = {each.stage_id for each in stages} if ran is None else ran
    outputs = stages_by_output(each for each in stages if each.stage_id in ran)
    mine = {each for one in jobs for each in one.stage_ids} & ran
    return stage_dag(jobs, {each.stage_id: each for each in stages}, frozenset(mine), outputs)


def named(dag: StageDag, kind: str) -> list[list[int]]:
    """Return the edges of a kind, by stage numbers."""
    return [[dag.stage_ids[place] for place in edge] for edge in getattr(dag, kind).tolist()]


def test_edges_and_outputs_of_stages():
    assert without_implied({(0, 1), (1, 2), (0, 2)}, set()) == {(0, 1), (1, 2), (0, 2)}
    assert without_implied({(0, 1), (1, 2)}, {(0, 2), (0, 3), (2, 3)}) == {(0, 1), (1, 2), (2, 3)}
    assert without_implied(set(), set()) == set()
    with pytest.raises(WorkloadError, match="the stages form a cycle"):
        without_implied({(0, 1)}, {(1, 0)})
    stages = [stage(0, rdd=9, writes=True), stage(1, rdd=4), stage(2, 0, rdd=9)]
    dag = dag_of([job(0, 0, 1, 0, 1, 2)], stages)
    assert dag.stage_ids == (1, 0, 2)
    assert dag.shuffle_edges.tolist() == dag.edges.tolist() == [[1, 2]]
    assert (dag.reused_edges.shape, dag.barrier_edges.shape, dag.num_outside) == ((0, 2), (0, 2), 0)
    assert stages_by_output([stage(3, rdd=7), stage(1, rdd=7), stage(2)]) == {7: [1, 3], 2: [2]}
    stages = [stage(0), stage(1, 0, tasks=0), stage(2, 1, tasks=0), stage(3, 2)]
    dag = dag_of([job(0, 0, 1, 0, 1, 2, 3)], stages, {0, 3})
    assert named(dag, "edges") == [[0, 3]]


def test_times_and_lags_of_a_query():
    # Stage 3 reads the skipped 2, which stage 0 had written; 5 reads the output of no stage in the log.
    stages = [stage(0, writes=True), stage(2, rdd=0), stage(3, 2), stage(4, rdd=99), stage(5, 4)]
    dag = dag_of([job(0, 0, 1, 0), job(1, 0, 2, 2, 3, 4, 5)], stages, {0, 3, 5})
    assert (named(dag, "reused_edges"), named(dag, "shuffle_edges"), dag.num_outside) == ([[0, 3]], [], 1)
    other_query = dag_of([job(1, 0, 2, 2, 3)], stages, {0, 3})
    assert (named(other_query, "reused_edges"), other_query.num_outside) == ([], 1)
    unknown = dag_of([job(0, 0, 1, 7)], [stage(7, 6)])  # the log begins after stage 6
    assert (unknown.num_outside, unknown.edges.tolist()) == (0, [])
    run = a_query()
    assert (run.wall_ms, run.span_ms, run.planning_ms, run.result_ms) == (4900.0, 4000.0, 600.0, 300.0)
    assert (run.ended_ms, run.edges.tolist()) == (5300.0, [[0, 1], [1, 3], [2, 3]])
    run = a_query(end_ms=math.nan, last_job_end_ms=math.nan)
    assert (run.ended_ms, run.result_ms) == (1980.0, 0.0)
    assert math.isnan(run.wall_ms)
    early = a_query(start_ms=1001.0, end_ms=4999.0)
    assert (early.planning_ms, early.result_ms) == (0.0, 0.0)
    run = a_query()
    assert (run.submission_lag_ms.tolist(), run.driver_lag_ms) == ([5.0, 30.0, 0.0, 60.0], 5 + 30 + 60)
    late = dataclasses.replace(run, submitted_ms=2000.0)
    assert (late.submission_lag_ms.tolist(), late.driver_lag_ms) == ([0.0] * 4, 0.0)
    first = dataclasses.replace(run.stages[0], submitted_ms=math.nan)
    assert dataclasses.replace(run, stages=(first, *run.stages[1:])).driver_lag_ms == 30 + 60
    unknown = tuple(dataclasses.replace(stage, submitted_ms=math.nan) for stage in run.stages)
    assert dataclasses.replace(run, stages=unknown).driver_lag_ms == 0.0


@pytest.mark.parametrize(("writers", "source"), [((), 4), ((0,), 0), ((0, 2), 2), ((0, 2, 4), 4), ((8,), 4)])
def test_a_skipped_stage_was_written_by_the_latest_earlier_one(writers, source):
    """Stages 0, 2, 4 and 8 have the RDD of 6, which 7 reads."""
    stages = [stage(each, rdd=50, writes=each in writers) for each in (0, 2, 4, 8)]
    stages += [stage(6, rdd=50), stage(7, 6, rdd=60)]
    dag = dag_of([job(0, 0, 9, 0, 2, 4, 6, 7, 8)], stages, {0, 2, 4, 7, 8})
    assert named(dag, "reused_edges") == [[source, 7]]


def barriers(*spans: tuple[float, float], writes: tuple[int, ...] = ()) -> list[list[int]]:
    """Return the barriers between jobs of one stage each, from their times."""
    jobs = [job(number, *span, number) for number, span in enumerate(spans)]
    return named(dag_of(jobs, [stage(each, writes=each in writes) for each in range(len(jobs))]), "barrier_edges")


def test_jobs_wait_for_those_that_ended_before():
    assert barriers((1, 2), (2, 3)) == [[0, 1]]
    assert barriers((1, 2), (1.9, 3)) == []
    assert barriers((1, 2), (3, 4), (5, 6)) == [[0, 1], [1, 2]]
    assert barriers((1, 4), (2, 3), (5, 6)) == [[0, 2], [1, 2]]
    assert barriers((1, 2), (2, 3), (3, 4)) == [[0, 1], [1, 2]]
    assert barriers((1, 2), (3, 4), writes=(0,)) == []
    stages = [stage(0), stage(1, 0), stage(2), stage(3, 2), stage(4)]
    dag = dag_of([job(0, 1, 2, 0, 1), job(1, 3, 4, 2, 3, 4)], stages)
    assert named(dag, "barrier_edges") == [[1, 2], [1, 4]]
    skipped = dag_of([job(0, 1, 2, 0, 1), job(1, 3, 4, 2)], stages, {0, 2})
    assert named(skipped, "barrier_edges") == []  # the stage that returns the first job's result did not run
    assert named(dag_of([job(0, 1, 2), job(1, 3, 4, 2)], stages), "barrier_edges") == []
    # The second job waits for the first with its own stage only.
    stages = [stage(0, writes=True), stage(1, 0), stage(2, 0)]
    dag = dag_of([job(1, 3, 4, 0, 2), job(0, 1, 2, 0, 1)], stages)
    assert named(dag, "barrier_edges") == [[1, 2]]
    assert named(dag, "shuffle_edges") == [[0, 1], [0, 2]]


def a_query(**changes: float) -> SparkQuery:
    """Return stages 0 -> 1 and 2 -> 3; the first job is submitted at 1000, the last ends at 5000."""
    stages = [Stage(1), Stage(1, parents=(0,)), Stage(1), Stage(1, parents=(1, 2))]
    run = measured_run(stages, [(place, Wave.REST, 1, 10.0, 0.0, 0.0) for place in range(4)])
    times = [(1005.0, 1100.0), (1130.0, 1200.0), (1000.0, 1900.0), (1960.0, 2000.0)]
    return dataclasses.replace(
        run,
        stages=tuple(SparkStage(n, "", 1, *each) for n, each in enumerate(times)),
        tasks=run.tasks.assign(launch_ms=[1010.0, 1140.0, 1001.0, 1970.0]),
        **({"start_ms": 400.0, "submitted_ms": 1000.0, "last_job_end_ms": 5000.0, "end_ms": 5300.0} | changes),
    )
