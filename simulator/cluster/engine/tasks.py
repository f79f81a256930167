"""Compiled: stages and their tasks, which stages are schedulable, and the heap of running tasks.

The rules are those of the published simulator. A stage is saturated if ``started + claimed >= num_tasks``. It is
schedulable for a class if it is not saturated, is not chosen in this round, all its parents are saturated, and the
class covers its demand. It is ready if all its parents are complete and not all its tasks have started.
"""

from __future__ import annotations

from simulator.cluster.engine.draws import delay_factor, draw_duration
from simulator.compiled import inner
from workloads.job import Wave

_FRESH, _FIRST, _REST = int(Wave.FRESH), int(Wave.FIRST), int(Wave.REST)

#: Sort keys of ``turn_of``: first stage that is not ready, and the end.
NOT_READY, LAST = 2**61, 2**62


@inner
def change(state, job):
    """Mark the rows of a job as out of date: a value that observations show has changed."""
    state.jobs[job].version += 1


@inner
def adjust(state, stage_id, started, claimed):
    """Add to the counts of a stage; update its job and its children if it becomes saturated or unsaturated."""
    stages = state.stages
    stage = stages[stage_id]
    before = stage.num_tasks - stage.started - stage.claimed
    stage.started += started
    stage.claimed += claimed
    after = before - started - claimed
    change(state, stage.job)
    if stage.incomplete_parents > 0:
        state.jobs[stage.job].dirty = 1
    if (before > 0) == (after > 0):
        return
    more = 1 if after > 0 else -1
    state.jobs[stage.job].unsaturated += more
    state.jobs[stage.job].dirty = 1
    if state.cluster[0].ready_stages_only == 0:
        for edge in range(stage.first_child, stage.end_child):
            stages[state.children[edge]].open_parents += more


@inner
def next_task_number(state, stage):
    """Take the next task of a stage (a record): the one whose run was lost last, else the first that never started."""
    task = stage.returned
    if task < 0:
        return stage.first_task + stage.started
    stage.returned = state.tasks[task].next
    state.tasks[task].next = -1
    return task


@inner
def wave_of(executor, stage_id):
    """Return the wave of the next task of a stage on an executor (a record)."""
    return _FRESH if executor.warm_stage < 0 else _REST if executor.warm_stage == stage_id else _FIRST


@inner
def _run(state, executor, stage_id, now):
    """Start the next task of a stage on an executor; return the time at which it finishes, ms."""
    cluster, stage, runner = state.cluster[0], state.stages[stage_id], state.executors[executor]
    runner.task = next_task_number(state, stage)
    task, noise = state.tasks[runner.task], state.noise[runner.task]
    wave = wave_of(runner, stage_id)
    task.parallelism, task.executor = state.jobs[stage.job].attached, executor
    task.wave, task.start = wave, now
    task_ms = draw_duration(state, stage, wave, task.parallelism, noise.level, noise.duration)
    if cluster.straggler_share > 0:
        task_ms *= delay_factor(state, stage.job, runner.task, 0)
    task.finish = now + task_ms
    runner.warm_stage, runner.start = stage_id, now
    return task.finish


@inner
def next_order(state):
    """Draw the insertion number of an event; simultaneous events are processed in this order."""
    order = state.cluster[0].next_order
    state.cluster[0].next_order += 1
    return order


@inner
def pair_of(state, stage, class_id):
    """Return the index in ``state.pairs`` of a stage and an executor class."""
    return stage * state.cluster[0].num_classes + class_id


@inner
def leave_stage(state, executor):
    """Take an executor off its stage, if it is on one."""
    stage = state.executors[executor].stage
    if stage >= 0:
        state.pairs[pair_of(state, stage, state.executors[executor].class_id)].running -= 1
        state.stages[stage].running -= 1
        change(state, state.stages[stage].job)
        state.executors[executor].stage = -1


@inner
def start(state, executor, stage, claimed, now):
    """Put an executor of the job on a stage, and start a task. ``claimed`` is 1 if this uses up a claim, else 0."""
    finish = _run(state, executor, stage, now)
    leave_stage(state, executor)
    state.executors[executor].stage = stage
    state.pairs[pair_of(state, stage, state.executors[executor].class_id)].running += 1
    state.stages[stage].running += 1
    adjust(state, stage, 1, -claimed)
    state.cluster[0].departure_order = -1
    push(state, finish, next_order(state), executor)


@inner
def next_task(state, stage, now):
    """Start the next task of a stage on the executor at the top of the heap, whose task has ended."""
    executor = state.heap[0].executor
    finish = _run(state, executor, stage, now)
    adjust(state, stage, 1, 0)
    _sift_down(state, finish, next_order(state), executor)


@inner
def complete_stage(state, stage):
    """Complete a stage; return whether a child becomes ready."""
    job, opened = state.jobs[state.stages[stage].job], False
    job.incomplete -= 1
    for edge in range(state.stages[stage].first_child, state.stages[stage].end_child):
        child = state.children[edge]
        state.stages[child].incomplete_parents -= 1
        if state.stages[child].incomplete_parents == 0 and state.stages[child].open_order < 0:
            make_ready(state, child)
            opened = True
    if opened:
        state.cluster[0].next_opened += job.end_stage - job.first_stage
    return opened


@inner
def make_ready(state, stage):
    """Make a stage ready, as all its parents are complete; stages that become ready together are ordered by rank."""
    state.stages[stage].open_order = state.cluster[0].next_opened + state.stages[stage].path_rank
    state.stages[stage].open_parents = 0
    state.jobs[state.stages[stage].job].dirty = 1


@inner
def is_schedulable(stage, pair):
    """Return whether a live job's stage (a record) is schedulable for a class; ``pair`` is the record of both."""
    return (
        stage.num_tasks > stage.started + stage.claimed
        and stage.open_parents == 0
        and stage.selected == 0
        and pair.fits == 1
    )


@inner
def turn_of(stage):
    """Return the sort key of a schedulable stage (a record) in its job: ready stages in their order, then others."""
    return stage.open_order if stage.open_order >= 0 else NOT_READY + stage.path_rank


@inner
def first_ready(state, job, class_id):
    """Return the unsaturated stage of a job that fits the class and became ready first; -1 if there is none."""
    best, best_order = -1, 0
    for stage_id in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        stage = state.stages[stage_id]
        if (
            stage.open_order >= 0
            and stage.num_tasks > stage.started + stage.claimed
            and state.pairs[pair_of(state, stage_id, class_id)].fits == 1
            and (best < 0 or stage.open_order < best_order)
        ):
            best, best_order = stage_id, stage.open_order
    return best


@inner
def next_of_job(state, job, class_id):
    """Return the next stage of a job, see ``Observation.next_stage``; -1 if there is none."""
    best, best_turn = -1, LAST
    for stage_id in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        stage = state.stages[stage_id]
        if turn_of(stage) < best_turn and is_schedulable(
            stage, state.pairs[pair_of(state, stage_id, class_id)]
        ):
            best, best_turn = stage_id, turn_of(stage)
    return best


@inner
def refresh(state, job):
    """Update the cached values of a job's pools, if they are out of date. No round is open."""
    if state.jobs[job].dirty == 0:
        return
    state.jobs[job].dirty = 0
    stages, pools, num_classes = state.stages, state.pools, state.cluster[0].num_classes
    first = job * num_classes
    for class_id in range(num_classes):
        pools[first + class_id].first_open = -1
        pools[first + class_id].awaited = 0
        pools[first + class_id].stay_decisions = 0
    for stage_id in range(state.jobs[job].first_stage, state.jobs[job].end_stage):
        stage = stages[stage_id]
        if stage.open_parents > 0:
            continue
        for class_id in range(num_classes):
            if is_schedulable(stage, state.pairs[pair_of(state, stage_id, class_id)]):
                pool = pools[first + class_id]
                if pool.first_open < 0 or stage.path_rank < stages[pool.first_open].path_rank:
                    pool.first_open = stage_id
                if stage.incomplete_parents > 0:
                    pool.awaited += stage.num_tasks - stage.started - stage.claimed


@inner
def first_schedulable(state, class_id):
    """Return the first schedulable stage of the live jobs, in order of arrival; -1 if none is. No round is open."""
    for index in range(state.cluster[0].num_live):
        job = state.live[index]
        refresh(state, job)
        stage = state.pools[job * state.cluster[0].num_classes + class_id].first_open
        if stage >= 0:
            return stage
    return -1


# Binary heap of running tasks, by finish time and insertion number.


@inner
def is_before(time, order, other):
    """Return whether an event comes before the end of a running task (a record)."""
    return time < other.time or (time == other.time and order < other.order)


@inner
def put(running, time, order, executor):
    """Write a running task into a record of the heap."""
    running.time, running.order, running.executor = time, order, executor


@inner
def push(state, time, order, executor):
    """Add a running task to the heap."""
    heap = state.heap
    index = state.cluster[0].num_running
    state.cluster[0].num_running += 1
    while index > 0:
        parent = heap[(index - 1) >> 1]
        if not is_before(time, order, parent):
            break
        put(heap[index], parent.time, parent.order, parent.executor)
        index = (index - 1) >> 1
    put(heap[index], time, order, executor)


@inner
def pop(state):
    """Remove the first task of the heap."""
    state.cluster[0].num_running -= 1
    last = state.heap[state.cluster[0].num_running]
    if state.cluster[0].num_running > 0:
        _sift_down(state, last.time, last.order, last.executor)


@inner
def _sift_down(state, time, order, executor):
    """Replace the first task of the heap."""
    heap, size = state.heap, state.cluster[0].num_running
    index = 0
    while True:
        child = 2 * index + 1
        if child >= size:
            break
        if child + 1 < size and is_before(heap[child + 1].time, heap[child + 1].order, heap[child]):
            child += 1
        if is_before(time, order, heap[child]):
            break
        put(heap[index], heap[child].time, heap[child].order, heap[child].executor)
        index = child
    put(heap[index], time, order, executor)
