"""The cluster's books, kept the slow way: counters recomputed from who is where and what is committed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator import Cluster, EpisodeRecord, Observation
from simulator.cluster.engine.durations import task_noise
from workloads.job import StageProfile, Wave

NONE = -1


def duration_ms(
    stage: StageProfile,
    wave: Wave,
    parallelism: int,
    level_luck: float,
    luck: float,
    *,
    nearest: bool,
    warmup_ms: float,
) -> float:
    """The duration of a task, from the tables of its stage."""
    levels = stage.durations.levels.tolist()
    below = [level for level in levels if level <= parallelism]
    above = [level for level in levels if level >= parallelism]
    if not below or not above:
        level = above[0] if above else below[-1]
    else:
        low, high = below[-1], above[0]
        distance = (high - parallelism if nearest else parallelism - low) / max(high - low, 1)
        level = low if low == high or level_luck < distance else high
    tables = [stage.durations.table(each)[level] for each in Wave]
    cold = 0.0
    if wave == Wave.FRESH and not tables[Wave.FRESH].size:
        cold = warmup_ms
    order = {
        Wave.FRESH: (Wave.FRESH, Wave.FIRST, Wave.REST),
        Wave.FIRST: (Wave.FIRST, Wave.FRESH, Wave.REST),
        Wave.REST: (Wave.REST, Wave.FIRST, Wave.FRESH),
    }[wave]
    values = next(tables[each] for each in order if tables[each].size)
    return float(values[int(luck * values.size)]) + cold


# The state at a decision.


def rows(array: NDArray[np.void]) -> list[Any]:
    """A record array as a list of objects."""
    names = array.dtype.names or ()
    return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in array.tolist()]


class Books:
    """What the cluster's compiled state says, and what follows from it.

    Args:
        cluster: with a round open.
        chosen: stages (numbered over the sequence) that were chosen in this round.
    """

    def __init__(self, cluster: Cluster, chosen: set[int]):
        state = cluster._state
        self.cluster, self.chosen, self.now = cluster, chosen, cluster.clock.now
        self.num_classes = len(cluster.config.executor_classes)
        self.num_jobs = len(cluster.sequence)
        self.whole = rows(state.cluster)[0]
        self.executors, self.jobs, self.stages = rows(state.executors), rows(state.jobs), rows(state.stages)
        self.staff, self.sources = rows(state.staff), rows(state.sources)
        self.task_start, self.task_finish = state.tasks["start"], state.tasks["finish"]
        self.live = [job.live for job in self.jobs[: self.whole.num_live]]
        self.stage_jobs = [job for job, p in enumerate(cluster.sequence.profiles) for _ in p.stages]
        self.profiles = [stage for profile in cluster.sequence.profiles for stage in profile.stages]
        first = np.cumsum([0, *(profile.num_stages for profile in cluster.sequence.profiles)]).tolist()
        self.stages_of = [range(first[job], first[job + 1]) for job in range(self.num_jobs)]
        self.parents = [
            [first[job] + parent for parent in parents]
            for job, profile in enumerate(cluster.sequence.profiles)
            for parents in profile.parents
        ]
        self.running = {
            place.executor: (place.time, place.order) for place in rows(state.heap)[: self.whole.heap_size]
        }
        self.moving = {
            executor: (time_ms, order)
            for time_ms, _, order, event in cluster.clock._queue
            if isinstance(event.value, np.ndarray)
            for executor in event.value.tolist()
        }
        self.pools = [self.pool(number) for number in range((self.num_jobs + 1) * self.num_classes)]
        self.commitments = {
            number: entries for number in range(len(self.sources)) if (entries := self.entries(number))
        }
        self.claimed: Counter[int] = Counter(
            executor.target for executor in self.executors if executor.target != NONE
        )
        self.coming: Counter[int] = Counter(
            self.stage_jobs[executor.target] for executor in self.executors if executor.target != NONE
        )
        for source, entries in self.commitments.items():
            for target, count in entries:
                if target != NONE:
                    self.claimed[target] += count
                    if self.stage_jobs[target] != self.job_of_source(source):
                        self.coming[self.stage_jobs[target]] += count

    def pool(self, number: int) -> list[int]:
        """The members of a pool, first to last; its links must be those of a list."""
        members, before, executor = [], NONE, self.sources[number].first_executor
        while executor != NONE:
            assert self.executors[executor].previous == before
            members.append(executor)
            assert len(members) <= len(self.executors), "a pool goes round in a circle"
            before, executor = executor, self.executors[executor].next
        assert self.sources[number].last_executor == before or not members
        return members

    def entries(self, source: int) -> list[tuple[int, int]]:
        """(target, count) of the commitments of a source, oldest first."""
        entries, number = [], self.sources[source].first_entry
        while number != NONE:
            entry = self.executors[number]
            entries.append((entry.entry_target, entry.entry_count))
            assert len(entries) <= len(self.executors), "commitments go round in a circle"
            if entry.entry_next == NONE:
                assert self.sources[source].last_entry == number
            number = entry.entry_next
        return entries

    def job_of_source(self, source: int) -> int:
        """The job that a source of commitments belongs to."""
        num_pools = (self.num_jobs + 1) * self.num_classes
        if source >= num_pools:
            return self.stage_jobs[(source - num_pools) // self.num_classes]
        job = source // self.num_classes
        return job if job < self.num_jobs else NONE

    def unclaimed(self, stage: int) -> int:
        """Tasks that have not started and that nobody is committed or moving to; negative if too many are."""
        return int(self.stages[stage].num_tasks - self.stages[stage].started - self.claimed[stage])

    def fits(self, stage: int, kind: int) -> bool:
        """Whether executors of a class can run a stage."""
        executor, need = self.cluster.config.executor_classes[kind], self.profiles[stage]
        return need.cpu <= executor.cpu and need.memory <= executor.memory

    def schedulable(self, stage: int) -> bool:
        """Whether a stage may be chosen now."""
        return (
            self.stage_jobs[stage] in self.live
            and stage not in self.chosen
            and self.unclaimed(stage) > 0
            and all(self.unclaimed(parent) <= 0 for parent in self.parents[stage])
            and self.fits(stage, self.cluster._kind)
        )

    def ready(self, stage: int) -> bool:
        """Whether tasks of a stage could start at once."""
        done = all(
            self.stages[parent].finished == self.stages[parent].num_tasks for parent in self.parents[stage]
        )
        return bool(done and self.stages[stage].started < self.stages[stage].num_tasks)

    # What must hold.

    def check(self) -> None:
        """All of it."""
        self.check_time()
        self.check_executors()
        self.check_pools()
        self.check_commitments()
        self.check_stages()
        self.check_jobs()
        self.check_round()

    def check_time(self) -> None:
        assert all(time_ms >= self.now for time_ms, *_ in self.cluster.clock._queue)
        heap = list(self.running.values())
        assert len(heap) == self.whole.heap_size
        assert all(heap[(place - 1) // 2] < heap[place] for place in range(1, len(heap)))
        assert all(time_ms >= self.now for time_ms, _ in heap)
        delay_ms = self.cluster.config.moving_delay_ms
        record = self.cluster.record()
        last_departure = dict(zip(record.move_executor.tolist(), record.move_depart_ms.tolist(), strict=True))
        assert all(last_departure[e] + delay_ms == time_ms for e, (time_ms, _) in self.moving.items())

    def check_executors(self) -> None:
        """Each is in exactly one place."""
        waiting = Counter(executor for pool in self.pools for executor in pool)
        turn = self.cluster.turn
        for number, executor in enumerate(self.executors):
            just_done = [number] == turn and number not in self.running and number not in waiting
            assert (number in self.running) + waiting[number] + (number in self.moving) + just_done == 1
            assert (executor.stage == NONE) == (
                number not in self.running and not (just_done and executor.job != NONE)
            )
            assert executor.stage == NONE or executor.job == self.stage_jobs[executor.stage]
            assert executor.job == NONE or executor.job in self.live
            assert executor.target == NONE or number in self.moving
            assert number not in self.moving or executor.job == NONE
            assert (executor.pool == NONE) == (number not in waiting)
            if number in self.running:
                assert executor.memory == executor.stage
            if executor.job == NONE:
                assert executor.memory == NONE

    def check_pools(self) -> None:
        for number, pool in enumerate(self.pools):
            job = self.job_of_source(number)
            for executor in pool:
                assert self.executors[executor].pool == number
                assert self.executors[executor].job == job
                assert self.executors[executor].kind == number % self.num_classes

    def check_commitments(self) -> None:
        used = sum(len(entries) for entries in self.commitments.values())
        free, number = 0, self.whole.free_entry
        while number != NONE:
            free, number = free + 1, self.executors[number].entry_next
        assert used + free == len(self.executors)
        num_pools = len(self.pools)
        for source, entries in self.commitments.items():
            assert all(count > 0 for _, count in entries)
            assert len({target for target, _ in entries}) == len(entries)
            assert all(target == NONE or self.stage_jobs[target] in self.live for target, _ in entries)
            committed = sum(count for _, count in entries)
            if source >= num_pools:
                assert committed <= self.staff[source - num_pools].running
            else:  # a pool's commitments last no longer than the round
                assert self.cluster.turn
                assert source == self.source_of(self.cluster.turn[0])

    def source_of(self, executor: int) -> int:
        """The source whose commitments an executor carries out."""
        its = self.executors[executor]
        if its.stage != NONE:
            return int(len(self.pools) + its.stage * self.num_classes + its.kind)
        return int((its.job if its.job != NONE else self.num_jobs) * self.num_classes + its.kind)

    def check_stages(self) -> None:
        on = Counter((executor.stage, executor.kind) for executor in self.executors if executor.stage != NONE)
        for number, stage in enumerate(self.stages):
            start = self.task_start[stage.first_task : stage.first_task + stage.num_tasks]
            assert stage.num_tasks == self.profiles[number].num_tasks
            assert (np.isfinite(start) == (np.arange(stage.num_tasks) < stage.started)).all()
            assert (np.diff(start[: stage.started]) >= 0).all()
            at_work = sum(self.executors[executor].stage == number for executor in self.running)
            assert stage.finished == stage.started - at_work
            if self.jobs[stage.job].incomplete == 0:
                continue  # nobody asks any more
            assert stage.claimed == self.claimed[number]
            assert stage.selected == (number in self.chosen)
            assert stage.open_parents == sum(self.unclaimed(parent) > 0 for parent in self.parents[number])
            complete = [
                self.stages[parent].finished == self.stages[parent].num_tasks
                for parent in self.parents[number]
            ]
            assert stage.incomplete_parents == complete.count(False)
            assert (stage.open_order == NONE) == (not all(complete))
            for kind in range(self.num_classes):
                staff = self.staff[number * self.num_classes + kind]
                assert staff.running == on[number, kind]
                assert staff.fits == self.fits(number, kind)
                assert staff.fits or not staff.running

    def check_jobs(self) -> None:
        arrival_ms = self.cluster.sequence.arrival_ms.tolist()
        assert self.live == sorted(set(self.live))
        for number, job in enumerate(self.jobs):
            stages = [self.stages[stage] for stage in self.stages_of[number]]
            incomplete = sum(stage.finished < stage.num_tasks for stage in stages)
            arrived = arrival_ms[number] < self.now or (arrival_ms[number] == 0)
            if arrival_ms[number] != self.now or not self.now:
                assert (number in self.live) == (arrived and incomplete > 0)
            attached = sum(executor.job == number for executor in self.executors)
            assert job.attached == attached
            assert job.incomplete == incomplete
            assert not incomplete or job.unsaturated == sum(
                self.unclaimed(stage) > 0 for stage in self.stages_of[number]
            )
            if number in self.live:
                assert job.executors == attached + self.coming[number]

    def check_round(self) -> None:
        cluster = self.cluster
        turn, job = cluster.turn, NONE if cluster._source_job is None else cluster._source_job
        assert cluster.offered > 0
        assert {self.executors[executor].kind for executor in turn} == {cluster._kind}
        source = self.source_of(turn[0])
        committed = sum(count for _, count in self.commitments.get(source, ()))
        if source >= len(self.pools):
            assert len(turn) == 1
            assert cluster.offered + committed == self.staff[source - len(self.pools)].running
        elif turn == self.pools[source]:
            assert cluster.offered + committed == len(turn)
        else:  # it did the last task of a job that is complete
            assert len(turn) == 1
            assert source >= self.num_jobs * self.num_classes
            assert cluster.offered == 1
            assert job not in self.live
            return
        assert self.job_of_source(source) == job


def check_books(cluster: Cluster, chosen: set[int]) -> Books:
    """The state arrays must agree with a recomputation; ``chosen``: stages chosen in this round."""
    books = Books(cluster, chosen)
    books.check()
    return books


def numbered(cluster: Cluster, place: int) -> int:
    """The number over the sequence of a stage that is seen at this place."""
    observation = cluster.observe()
    job = int(observation.stage_job[place])
    before = cluster.sequence.profiles[: observation.job_id[job]]
    return sum(profile.num_stages for profile in before) + place - observation.stages_of(job).start


def check_observation(books: Books, observation: Observation) -> None:
    """What the scheduler sees must agree with a recomputation."""
    cluster, live = books.cluster, books.live
    stages = [stage for job in live for stage in books.stages_of[job]]
    state = [books.stages[stage] for stage in stages]
    source = NONE if cluster._source_job not in live else live.index(cluster._source_job)
    assert observation.time_ms == books.now
    assert observation.offered == cluster.offered
    assert observation.source == source
    assert observation.executor_class == cluster._kind
    assert observation.num_executors == len(books.executors)
    classes = [(kind.count, kind.cpu, kind.memory) for kind in cluster.config.executor_classes]
    assert observation.classes.tolist() == classes
    assert observation.profiles == tuple(cluster.sequence.profiles[job] for job in live)
    assert observation.job_id.tolist() == live
    assert observation.job_arrival_ms.tolist() == cluster.sequence.arrival_ms[live].tolist()
    executors = [sum(executor.job == job for executor in books.executors) + books.coming[job] for job in live]
    assert observation.job_executors.tolist() == executors
    for place in range(len(live)):
        offered = observation.offered if place == source else 0
        assert observation.held(place) == executors[place] - offered
    assert observation.stage_job.tolist() == [live.index(books.stage_jobs[stage]) for stage in stages]
    assert observation.num_tasks.tolist() == [stage.num_tasks for stage in state]
    assert observation.remaining_tasks.tolist() == [stage.num_tasks - stage.started for stage in state]
    assert observation.unclaimed_tasks.tolist() == [max(books.unclaimed(stage), 0) for stage in stages]
    assert observation.finished_tasks.tolist() == [stage.finished for stage in state]
    on = Counter(executor.stage for executor in books.executors)
    assert observation.running_executors.tolist() == [on[stage] for stage in stages]
    profiles = [books.profiles[stage] for stage in stages]
    assert observation.mean_task_ms.tolist() == [stage.durations.mean_ms for stage in profiles]
    assert observation.stages[["cpu", "memory"]].tolist() == [(stage.cpu, stage.memory) for stage in profiles]
    schedulable = [books.schedulable(stage) for stage in stages]
    assert observation.schedulable.tolist() == schedulable
    assert observation.num_schedulable == sum(schedulable)
    ready = [books.ready(stage) for stage in stages]
    ranks = observation.ready_rank.tolist()
    assert [rank >= 0 for rank in ranks] == ready
    for place, job in enumerate(live):
        mine = range(len(stages))[observation.stages_of(place)]
        assert [stages[each] for each in mine] == list(books.stages_of[job])
        assert observation.job_first_stage[place] == mine.start
        unsaturated = [each for each in mine if books.unclaimed(stages[each]) > 0]
        assert observation.job_unsaturated_stages[place] == len(unsaturated)
        incomplete = [each for each in mine if state[each].finished < state[each].num_tasks]
        assert observation.job_incomplete_stages[place] == len(incomplete)
        choice = [each for each in mine if schedulable[each]]
        choice.sort(key=lambda each: (not ready[each], ranks[each] if ready[each] else each))
        assert observation.next_stage[place] == (choice[0] if choice else NONE)


# The record of an episode.


def check_record(record: EpisodeRecord) -> None:
    """What happened must be possible."""
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
        kinds = [
            (kind.cpu, kind.memory) for kind in record.config.executor_classes for _ in range(kind.count)
        ]
        for stage, executors in mine.groupby("stage")["executor"]:
            need = profile.stages[stage]
            for executor in executors[executors >= 0].tolist():
                assert need.cpu <= kinds[executor][0]
                assert need.memory <= kinds[executor][1]


def _check_executors(record: EpisodeRecord) -> None:
    """Tasks and moves of an executor do not overlap, and each task comes after a move to its job."""
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
    """A task is fresh after a move, of the rest after another one of its stage, else of the first wave."""
    waits_cold = not record.config.semantics.waiting_keeps_jvm
    tasks, moves = record.tasks(), record.moves()
    for executor in range(record.config.num_executors):
        mine = tasks[(tasks["executor"] == executor) & tasks["start_ms"].notna()].sort_values("start_ms")
        here = moves[moves["executor"] == executor]
        instant = (here["arrive_ms"] == here["depart_ms"]).any() and (
            mine["start_ms"] == mine["finish_ms"]
        ).any()
        if instant or mine["start_ms"].duplicated().any():
            continue  # the order of moves and tasks is not known
        previous = None
        for run in mine.itertuples():
            since = -1.0 if previous is None else previous.finish_ms
            moved = ((here["depart_ms"] >= since) & (here["arrive_ms"] <= run.start_ms)).any()
            if moved:
                expected = {Wave.FRESH}
            elif (previous.job, previous.stage) == (run.job, run.stage):
                expected = {Wave.REST}
            else:
                expected = {Wave.FIRST, Wave.FRESH} if waits_cold else {Wave.FIRST}
            assert run.wave in expected
            previous = run


def check_durations(record: EpisodeRecord) -> None:
    """Every task takes as long as the tables of its stage and its luck say."""
    config = record.config
    stages = [
        (job, stage)
        for job, p in enumerate(record.sequence.profiles)
        for stage in p.stages
        for _ in range(stage.num_tasks)
    ]
    noise = np.concatenate(
        [
            task_noise(record.sequence.seed, job, p.num_tasks)
            for job, p in enumerate(record.sequence.profiles)
        ],
        axis=1,
    )
    for number in np.flatnonzero(np.isfinite(record.task_finish_ms)).tolist():
        expected = duration_ms(
            stages[number][1],
            Wave(int(record.task_wave[number])),
            int(record.task_parallelism[number]),
            *noise[:, number].tolist(),
            nearest=config.semantics.nearest_level,
            warmup_ms=config.warmup_delay_ms,
        )
        start = record.task_start_ms[number]
        assert record.task_finish_ms[number] == start + expected
