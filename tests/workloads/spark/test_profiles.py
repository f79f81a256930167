"""Profiles pooled from runs of a query, completed by the model, and with the driver's delays."""

from dataclasses import replace

import numpy as np
import pytest

from tests.workloads.spark.logs import LogBuilder, stage_info
from tests.workloads.spark.recordings import recording
from tests.workloads.spark.runs import Stage, make_run, measured_run
from workloads import JobProfile, SparkModel, Wave, WorkloadError, read_event_log
from workloads.spark import profiles
from workloads.spark.query import SparkQuery, alike, matched


@pytest.fixture
def run(tmp_path):
    """Return a query of three jobs with one stage each: two that may run at once, and one after both."""

    def run_query(
        starts: tuple[int, ...] = (2000, 2010, 2400),
        duration: int = 100,
        tasks: tuple[int, ...] = (1, 2, 1),
        rdds: tuple[int, ...] = (1, 5, 9),
        executors: int = 1,
    ) -> SparkQuery:
        log = LogBuilder().sql(0, 1900, "q")
        for executor in range(executors):
            log.executor(str(executor))
        for job, start in enumerate(starts):
            log.job(job, [stage_info(job, tasks[job], rdd=rdds[job])], at=start, sql=0)
            log.run(job, start, start + duration * tasks[job]).job_end(job, start + duration * tasks[job])
        [application] = read_event_log(log.sql_end(0, 9000).end().write(tmp_path / "log"))
        return application.queries[0]

    return run_query


def test_durations_by_wave_and_level(run):
    profile = profiles.to_profile(matched([run(), run(duration=80), run(duration=50, executors=2)]))
    assert profile.name == "q"
    assert [stage.num_tasks for stage in profile.stages] == [1, 2, 1]
    middle = profile.stages[1].durations
    assert middle.levels.tolist() == [1, 2]
    assert middle.table(Wave.FIRST)[1].tolist() == [100.0, 80.0]
    assert middle.table(Wave.REST)[2].tolist() == [50.0]
    assert profile.stages[0].durations.table(Wave.FRESH)[2].tolist() == [50.0]
    assert profile.edges.tolist() == [[0, 2], [1, 2]]


def test_matched_runs(run):
    # In one run the second job happened to start after the first had ended.
    by_chance = run(starts=(2000, 2150, 2400))
    assert by_chance.edges.tolist() == [[0, 1], [1, 2]]
    assert matched([by_chance, run()]).edges.tolist() == [[0, 2], [1, 2]]
    assert matched([run(), by_chance]).edges.tolist() == [[0, 2], [1, 2]]
    other = run(tasks=(2, 1, 1), duration=50)
    profile = profiles.to_profile(matched([run(), other]))
    assert [stage.num_tasks for stage in profile.stages] == [1, 2, 1]
    assert sorted(profile.stages[1].durations.values.tolist()) == [50.0, 50.0, 100.0, 100.0]
    with pytest.raises(WorkloadError, match="q of app-1 has a different DAG than q of app-1"):
        matched([run(), run(tasks=(1, 3, 1))])


def test_warm_executors_and_stages_without_tasks():
    # Fresh durations are dropped unless a level has no others; the mean stays.
    rows = [(Wave.FRESH, 1, 900.0), (Wave.FIRST, 1, 90.0), (Wave.REST, 1, 60.0), (Wave.FRESH, 2, 800.0)]
    rows += [(Wave.FRESH, 4, 700.0), (Wave.REST, 4, 50.0), (Wave.FRESH, 8, 600.0), (Wave.FIRST, 8, 80.0)]
    tasks = [(0, wave, level, duration, 0.0, 0.0) for wave, level, duration in rows]
    cold = profiles.to_profile(matched([measured_run([Stage(8, name="scan")], tasks)]))
    [stage] = profiles.on_warm_executors(cold).stages
    tables = [stage.durations.table(wave) for wave in Wave]
    found = [{level: each.tolist() for level, each in table.items() if each.size} for table in tables]
    assert found == [{}, {1: [90.0], 2: [800.0], 8: [80.0]}, {1: [60.0], 4: [50.0]}]
    assert stage.durations.mean_ms == cold.stages[0].durations.mean_ms
    assert (stage.name, stage.num_tasks) == ("scan", 8)
    # The error names the first run and the stage.
    stages = [Stage(1), Stage(1, parents=(0,))]
    some = [(0, Wave.REST, 1, 10.0, 0.0, 0.0)]
    runs = [measured_run(stages, some), replace(measured_run(stages, some), name="other")]
    with pytest.raises(WorkloadError, match=r"^q: no task of stage 1 ended$"):
        profiles.to_profile(matched(runs))
    both = [*some, (1, Wave.FIRST, 2, 5.0, 0.0, 0.0)]
    profile = profiles.to_profile(matched([runs[0], measured_run(stages, both)]), name="mine")
    assert profile.name == "mine"
    assert profile.stages[1].durations.table(Wave.FIRST)[2].tolist() == [5.0]
    with pytest.raises(WorkloadError, match="at least one run"):
        matched([])
    other = a_run(Stage(3, name="b"), Stage(2, name="a"), Stage(1, name="c", parents=(0, 1)))
    kinds = {"reused_edges": [[1, 2]], "barrier_edges": [[0, 1]]}
    changes = {name: np.array(edges) for name, edges in kinds.items()}
    swapped = replace(other, dag=replace(other.dag, **changes))
    first = replace(ONE, dag=replace(ONE.dag, reused_edges=np.array([[0, 2]])))
    dag = matched([first, swapped]).runs[1].dag
    assert (dag.reused_edges.tolist(), dag.barrier_edges.tolist()) == ([[0, 2]], [[1, 0]])


def a_run(*stages: Stage) -> SparkQuery:
    return measured_run(list(stages), [(place, Wave.REST, 1, 1.0, 0, 0) for place in range(len(stages))])


ONE = a_run(Stage(2, name="a"), Stage(3, name="b"), Stage(1, name="c", parents=(0, 1)))


def names(run: SparkQuery) -> list[tuple[str, int]]:
    return [(stage.name, stage.num_tasks) for stage in run.stages]


def test_stages_and_runs_are_ordered_and_grouped():
    # All indices change along; the first run stays the same.
    other = a_run(Stage(3, name="b"), Stage(1, name="d", parents=(0,)), Stage(2, name="a", parents=(1,)))
    first = a_run(Stage(2, name="a"), Stage(3, name="b"), Stage(1, name="d"))
    dag = replace(first.dag, **dict.fromkeys(("edges", "shuffle_edges"), np.array([[1, 2], [2, 0]])))
    runs = matched([replace(first, dag=dag), other]).runs
    assert runs[0].dag is dag
    assert names(runs[1]) == names(first)
    assert [stage.stage_id for stage in runs[1].stages] == list(runs[1].dag.stage_ids) == [2, 0, 1]
    assert runs[1].tasks["stage"].tolist() == [1, 2, 0]
    assert runs[1].dag.shuffle_edges.tolist() == runs[1].edges.tolist() == [[1, 2], [2, 0]]
    assert matched([ONE, ONE]).runs == (ONE, ONE)
    late = [replace(stage, submitted_ms=10.0 * stage.stage_id + 10) for stage in runs[1].stages]
    assert replace(runs[1], stages=tuple(late)).driver_lag_ms == 10 + (20 - 1) + (30 - 1)
    more_tasks = a_run(Stage(2, name="a"), Stage(4, name="b"), Stage(1, name="c", parents=(0, 1)))
    different = [
        a_run(Stage(2, name="a"), Stage(3, name="x"), Stage(1, name="c", parents=(0, 1))),
        a_run(Stage(2, name="a"), Stage(3, name="b"), Stage(1, name="c", parents=(0,))),
        a_run(Stage(2, name="a"), Stage(3, name="b")),
    ]
    groups = alike([ONE, more_tasks, *different, ONE])
    assert [len(group.runs) for group in groups] == [2, 1, 1, 1, 1]
    groups = alike([ONE, more_tasks, *different, ONE], same_tasks=False)
    assert [len(group.runs) for group in groups] == [3, 1, 1, 1]
    assert names(groups[0].runs[1]) == [("a", 2), ("b", 4), ("c", 1)]
    for other in different:
        with pytest.raises(WorkloadError, match="q of app-q has a different DAG than q of app-q"):
            matched([ONE, other], same_tasks=False)


MODEL = SparkModel(connection_ms=2, remote_ms_per_mb=10, first_ms=100, fresh_ms=1000)
SPLIT_MB = 10.0
STAGES = [
    Stage(8, input_mb=4.0, rate=3.0), Stage(1, input_mb=0.002), Stage(16, shuffle_mb=2.0, parents=(0, 1), rate=0.5),
    Stage(16, shuffle_mb=0.0001, parents=(2,)), Stage(1, shuffle_mb=0.0001, parents=(3,)),
]  # fmt: skip


def tasks(profile: JobProfile) -> list[int]:
    return [stage.num_tasks for stage in profile.stages]


def rest_ms(profile: JobProfile, stage: int, level: int) -> float:
    return float(profile.stages[stage].durations.table(Wave.REST)[level].mean())


def test_levels_are_kept_and_means_left_out():
    one, four = make_run(MODEL, STAGES, 1), make_run(MODEL, STAGES, 4)
    profile = profiles.modelled_profile(MODEL, matched([one, four]), levels=(2, 8))
    shuffle = profile.stages[2].durations
    assert shuffle.levels.tolist() == [1, 2, 4, 8]
    measured = one.tasks[(one.tasks["stage"] == 2) & (one.tasks["wave"] == Wave.REST)]["duration_ms"]
    assert shuffle.table(Wave.REST)[1].tolist() == measured.tolist()
    for level in (2, 8):
        expected = float(MODEL.task_ms(0.0, 2.0, True, level, rate=0.5))
        assert rest_ms(profile, 2, level) == pytest.approx(expected, rel=0.05)
        assert shuffle.table(Wave.FIRST)[level].mean() == pytest.approx(expected + 100, rel=0.05)
        assert shuffle.table(Wave.FRESH)[level].mean() == pytest.approx(expected + 1000, rel=0.05)
    profile = profiles.modelled_profile(MODEL, matched([make_run(MODEL, STAGES, 2)]))
    assert not any(stage.durations.mean_is_known for stage in profile.stages)
    model = SparkModel(contention={2: 1.5})
    slow = make_run(model, STAGES, 2, slower=1.5)
    durations = profiles.modelled_profile(model, matched([slow])).stages[0].durations.table(Wave.REST)[2]
    assert durations.mean() == pytest.approx(
        make_run(model, STAGES, 2).tasks.query("stage == 0 and wave == 2")["duration_ms"].mean()
    )


def test_larger_inputs_have_more_tasks_or_longer_ones():
    run = replace(make_run(MODEL, STAGES), split_mb=SPLIT_MB, shuffle_partitions=16)
    measured, profile = (
        profiles.scaled_profile(
            MODEL, matched([run]), size_gb=size, split_mb=SPLIT_MB, shuffle_partitions=16, levels=(1, 10), name="mine"
        )
        for size in (1.0, 10.0)
    )
    assert (profile.name, tasks(measured)) == ("mine", [8, 1, 16, 16, 1])
    assert profile.edges.tolist() == [[0, 2], [1, 2], [2, 3], [3, 4]]
    assert tasks(profile) == [75, 1, 16, 16, 1]  # 7.5 splits of 10 MB, ten times
    assert rest_ms(profile, 0, 1) == pytest.approx(rest_ms(measured, 0, 1), rel=0.1)
    assert rest_ms(profile, 2, 1) == pytest.approx(MODEL.task_ms(0.0, 20.0, True, 1, rate=0.5), rel=0.1)
    assert rest_ms(profile, 1, 1) == pytest.approx(rest_ms(measured, 1, 1), rel=0.01)


@pytest.fixture
def recorded(tmp_path):
    """Return one run of the query, with other delays and durations if given."""

    def read(name: str = "q01_r1", **changes: int) -> SparkQuery:
        [application] = read_event_log(recording(name, **changes).write(tmp_path / name))
        return application.queries[0]

    return read


def demands(profile):
    return [(stage.num_tasks, stage.cpu, stage.memory) for stage in profile.stages]


def test_replays_and_delays(recorded):
    profile = profiles.replay_profile(recorded())
    durations = [100.0, *[0.0, 300.0, 300.0, 100.0, 100.0], *[20.0, 60.0, 60.0]]
    assert [stage.durations.spread for stage in profile.stages] == [(each, each) for each in durations]
    first, wait, task = (profiles.DRIVER_THREADS, 0.0, 1.0), (1, 0.0, 1.0), (1, 1.0, 0.0)
    assert demands(profile) == [first, wait, task, task, task, task, wait, task, task]
    assert profile.parents == ((), (0,), *(((1,),) * 4), (2, 3, 4, 5), (6,), (6,))
    planned, asked = profiles.replay_profile(recorded()), profiles.replay_profile(recorded(), planning_ms=7.0)
    assert [each.stages[0].durations.spread for each in (planned, asked)] == [(100.0,) * 2, (7.0,) * 2]
    assert [stage.durations.spread for stage in planned.stages[1:]] == [
        stage.durations.spread for stage in asked.stages[1:]
    ]
    runs = [recorded(), recorded("q01_r2", lag=30)]
    profile = profiles.with_driver(profiles.to_profile(matched(runs)), runs)
    planning, scan, lag, last = profile.stages
    assert planning.durations.values.tolist() == [100.0, 100.0]
    assert sorted(lag.durations.values.tolist()) == [20.0, 30.0]
    assert scan.durations.table(Wave.FRESH)[2].tolist() == [300.0] * 4
    assert profile.parents == ((), (0,), (1,), (2,))
    assert (last.num_tasks, last.cpu, last.memory) == (2, 1.0, 0.0)


def test_stages_without_delay_and_tasks_alone(recorded):
    first = recorded(lag=0)
    profile = profiles.with_driver(profiles.to_profile(matched([first])), [first], planning_ms=[7.0])
    assert demands(profile) == [(profiles.DRIVER_THREADS, 0.0, 1.0), (4, 1.0, 0.0), (2, 1.0, 0.0)]
    assert profile.stages[0].durations.values.tolist() == [7.0]
    profile = profiles.with_driver(profiles.to_profile(matched([recorded()])), [recorded()], driver=False)
    assert demands(profile) == [(4, 1.0, 0.0), (2, 1.0, 0.0)]
    assert profile.edges.tolist() == [[0, 1]]


def test_stages_come_in_the_order_of_their_submission(shared):
    """Spark serves the ready stage with the lowest number, which is not the order of the profile."""
    [application] = read_event_log(shared("spark/eventlogs") / "q02_sf1_n2_r2.json.gz")
    run = application.queries[0]
    numbers = [stage.stage_id for stage in run.stages]
    assert numbers != sorted(numbers)
    profile = profiles.with_driver(profiles.to_profile(matched([run])), [run], driver=False)
    by_number = [run.stages[place] for place in np.argsort(numbers)]
    assert [stage.name for stage in profile.stages] == [stage.name for stage in by_number]
    assert [stage.num_tasks for stage in profile.stages] == [stage.num_tasks for stage in by_number]
