"""Invariants that the record of any episode must satisfy."""

from itertools import pairwise

import numpy as np

from simulator import EpisodeRecord
from simulator.cluster.draws import duration_ms
from workloads.arrivals import task_noise
from workloads.job import Wave


def check_record(record: EpisodeRecord) -> None:
    """Check that a record is consistent with the rules of the simulator."""
    tasks, profiles = record.tasks(), record.sequence.profiles
    started = tasks[tasks["executor"] >= 0]
    assert (started["start_ms"].notna()).all()
    assert tasks.loc[tasks["executor"] < 0, ["start_ms", "finish_ms"]].isna().all(axis=None)
    _check_parents(record)
    _check_executors(record)
    for number, profile in enumerate(profiles):
        mine = tasks[tasks["job"] == number]
        assert len(mine) == profile.num_tasks
        assert not (mine["start_ms"] < record.sequence.arrival_ms[number]).any()
        last_ms = mine["finish_ms"].max(skipna=False)
        complete = np.isfinite(record.completion_ms[number])
        assert not complete or record.completion_ms[number] == last_ms
        assert complete or not last_ms < record.end_ms
    both = np.isfinite(record.completion_ms)
    expected = record.completion_ms[both] - record.sequence.arrival_ms[both]
    assert record.jct_ms[both].tolist() == expected.tolist()


def _check_parents(record: EpisodeRecord) -> None:
    tasks = record.tasks()
    for number, profile in enumerate(record.sequence.profiles):
        mine = tasks[tasks["job"] == number]
        start = mine.groupby("stage")["start_ms"].min()
        finish = mine.groupby("stage")["finish_ms"].agg(lambda column: column.max(skipna=False))
        for parent, child in profile.edges.tolist():
            assert np.isnan(start[child]) or start[child] >= finish[parent]
        kinds = [(kind.cpu, kind.memory) for kind in record.config.executor_classes for _ in range(kind.count)]
        for stage, executors in mine.groupby("stage")["executor"]:
            need = profile.stages[stage]
            for executor in executors[executors >= 0].tolist():
                assert need.cpu <= kinds[executor][0]
                assert need.memory <= kinds[executor][1]


def _check_executors(record: EpisodeRecord) -> None:
    """Check that tasks and moves of an executor do not overlap, and that each task follows a move to its job."""
    delay_ms = record.config.moving_delay_ms
    tasks, moves = record.tasks(), record.moves()
    assert (moves["arrive_ms"] == moves["depart_ms"] + delay_ms).all()
    assert (np.diff(moves["depart_ms"]) >= 0).all()
    for executor in range(record.config.num_executors):
        mine = tasks[(tasks["executor"] == executor) & tasks["start_ms"].notna()]
        here = moves[moves["executor"] == executor]
        runs = list(mine[["start_ms", "finish_ms"]].itertuples(index=False, name=None))
        ways = list(here[["depart_ms", "arrive_ms"]].itertuples(index=False, name=None))
        busy = sorted([*runs, *ways])
        assert all(one[1] <= other[0] for one, other in pairwise(busy))
        in_order = mine.sort_values(["start_ms", "finish_ms"], kind="stable")
        previous = None
        for run in in_order.itertuples():
            arrivals = here.loc[here["job"] == run.job, "arrive_ms"]
            assert (arrivals <= run.start_ms).any()
            if previous is not None and previous.job != run.job:
                assert run.start_ms >= previous.finish_ms + delay_ms
            previous = run


def check_waves(record: EpisodeRecord) -> None:
    """Check waves: fresh after a move (or after a wait, if waiting loses the JVM), rest after a task of the stage."""
    waits_cold = not record.config.semantics.waiting_keeps_jvm
    tasks, moves = record.tasks(), record.moves()
    for executor in range(record.config.num_executors):
        mine = tasks[(tasks["executor"] == executor) & tasks["start_ms"].notna()].sort_values("start_ms")
        here = moves[moves["executor"] == executor]
        instant = (here["arrive_ms"] == here["depart_ms"]).any() and (mine["start_ms"] == mine["finish_ms"]).any()
        if instant or mine["start_ms"].duplicated().any():
            continue  # the order of moves and tasks is unknown
        previous = None
        for run in mine.itertuples():
            since = -1.0 if previous is None else previous.finish_ms
            moved = ((here["depart_ms"] >= since) & (here["arrive_ms"] <= run.start_ms)).any()
            if moved:
                expected = {Wave.FRESH}
            else:
                same = (previous.job, previous.stage) == (run.job, run.stage)
                expected = {Wave.REST if same else Wave.FIRST} | ({Wave.FRESH} if waits_cold else set())
            assert run.wave in expected
            previous = run


def check_durations(record: EpisodeRecord) -> None:
    """Check that every task has the duration given by the tables of its stage and its noise."""
    config, sequence = record.config, record.sequence
    stages = [stage for profile in sequence.profiles for stage in profile.stages for _ in range(stage.num_tasks)]
    noise = np.concatenate(
        [task_noise(sequence.seed, job, profile.num_tasks) for job, profile in enumerate(sequence.profiles)], axis=1
    )
    for number in np.flatnonzero(np.isfinite(record.task_finish_ms)).tolist():
        wave, parallelism = Wave(int(record.task_wave[number])), int(record.task_parallelism[number])
        luck = noise[:, number].tolist()
        expected = duration_ms(config, stages[number].durations, wave, parallelism, *luck)
        assert record.task_finish_ms[number] == record.task_start_ms[number] + expected
