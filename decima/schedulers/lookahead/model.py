"""Compiled: a model of the cluster, as far as an observation tells, and how it begins.

What an observation does not tell is guessed. Executors found at work have done a part of their task, on average half,
and those on their way a half of that. Classes of executors are not told apart. Executors that do the same at the same
time are one crew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled, inner
from workloads.job import Wave

__all__ = [
    "CREW",
    "JOB",
    "LEFT_OF_TASK",
    "RUN",
    "STAGE",
    "Model",
    "add_crew",
    "begin",
    "task_ms",
]

#: Parts of a task, from its end, that executors found at work have still to do.
LEFT_OF_TASK = (1 / 6, 1 / 2, 5 / 6)

#: What crews do: work on a stage, come to one from elsewhere or inside their job, leave for where they count already.
WORKS, COMES, CHANGES, LEAVES = range(4)
_REST = int(Wave.REST)


def _record(**fields: type[np.generic]) -> np.dtype[np.void]:
    return np.dtype((np.record, list(fields.items())))


#: The one record of the whole.
RUN = _record(
    now_ms=np.float64,  # since the decision
    cost_ms=np.float64,  # what the jobs' time in the system, and the executors' work, come to
    executors=np.int64,
    free=np.int64,  # executors in no job
    live=np.int64,  # jobs that are not complete
    crews=np.int64,
    opened=np.int64,  # stages that became ready: the next rank
    turn=np.int64,  # offers so far
    ending_ms=np.float64,  # what a task takes that executors offered first are finishing; 0 if they are free
    changed=np.int64,  # 1 if idle executors may be wanted
    ready_only=np.int64,  # a switch of `Semantics`
    moving_ms=np.float64,
    worth_leaving_ms=np.float64,  # work for an executor of another job, and for a free one, to move; 0 for any
    worth_moving_ms=np.float64,
    staying=np.float64,  # how much the work of an executor's own job counts
)

JOB = _record(
    first_stage=np.int64,
    end_stage=np.int64,
    limit=np.int64,  # executors that it uses well
    executors=np.int64,  # that it holds, those on their way included
    attached=np.int64,  # of these, those that are there
    idle=np.int64,  # of these, those that wait
    incomplete=np.int64,  # stages
    next_stage=np.int64,  # -1 if none
    stale=np.int64,  # 1 if `next_stage` must be looked for
    work_ms=np.float64,  # of tasks that have not started
    unclaimed_ms=np.float64,  # of these, of tasks without an executor on its way
)

STAGE = _record(
    job=np.int64,
    left=np.int64,  # tasks that have not started
    claimed=np.int64,  # executors on their way
    running=np.int64,  # executors
    unfinished=np.int64,  # tasks
    open_parents=np.int64,  # that are not complete
    unsaturated_parents=np.int64,  # parents that have unclaimed tasks
    turn=np.int64,  # in which it was chosen last; once in each
    rank=np.int64,  # in which order stages became ready; -1 if it is not
    first_child=np.int64,
    end_child=np.int64,
    mean_ms=np.float64,
)

#: Executors that work on a stage in step, or are on their way to it.
CREW = _record(
    until_ms=np.float64,
    executors=np.int64,
    stage=np.int64,
    tasks=np.int64,  # done by then
    rounds=np.int64,  # in which they do them
    round_ms=np.float64,  # how long a round takes, if they are several
    kind=np.int64,  # `WORKS` and so on
)


class Model(NamedTuple):
    """What compiled code is handed.

    Attributes:
        run: ``RUN`` [1].
        jobs: ``JOB`` [J].
        stages: ``STAGE`` [S].
        crews: ``CREW``, enough for all executors and three for each stage.
        children: int64 [edges], places of stages.
        durations: float32 [S, 3, N + 1]: mean duration of a task by wave and by executors of its job, ms.
    """

    run: NDArray[np.void]
    jobs: NDArray[np.void]
    stages: NDArray[np.void]
    crews: NDArray[np.void]
    children: NDArray[np.int64]
    durations: NDArray[np.float32]


@compiled
def begin(model, seen_jobs, seen_stages, source, offered):
    """Fill a model with what an observation tells, without the executors offered.

    Args:
        model: the model; what does not change while the same jobs are live is there already.
        seen_jobs, seen_stages: the observation's.
        source: the job whose executors are offered, or -1.
        offered: executors.
    """
    run, jobs, stages = model.run[0], model.jobs, model.stages
    num_executors = run.executors
    run.now_ms, run.cost_ms, run.crews, run.opened, run.changed = 0.0, 0.0, 0, 0, 0
    run.turn, run.ending_ms = 0, 0.0
    run.live = len(jobs)
    for place in range(len(stages)):
        _begin_stage(model, seen_stages, place)
    known = offered
    for number in range(len(jobs)):
        known += _begin_job(model, seen_jobs[number], number, source, offered)
    for place in range(len(stages)):
        stage = stages[place]
        if stage.left == 0 and known > num_executors:
            gone = min(stage.running, known - num_executors)
            known -= gone
            add_crew(model, task_ms(model, place, _REST) / 2, gone, place, 0, LEAVES)
        else:
            gone = 0
        _begin_crews(model, place, stage.running - gone)
    run.free = max(num_executors - known, 0)
    _count_parents(model)
    for number in range(len(jobs)):
        jobs[number].next_stage, jobs[number].stale = seen_jobs[number].next_stage, 0


@inner
def _begin_stage(model, seen_stages, place):
    stage, seen = model.stages[place], seen_stages[place]
    stage.left = seen.remaining_tasks
    stage.claimed = seen.remaining_tasks - seen.unclaimed_tasks
    stage.running = seen.running_executors
    stage.unfinished = seen.num_tasks - seen.finished_tasks
    stage.rank, stage.turn = seen.ready_rank, 0
    stage.mean_ms = seen.mean_task_ms
    model.run[0].opened = max(model.run[0].opened, seen.ready_rank + 1)


@inner
def _begin_job(model, seen, number, source, offered):
    """Place the executors that a job holds, without those offered; returns how many they are."""
    run, stages, job = model.run[0], model.stages, model.jobs[number]
    job.executors, job.incomplete = seen.executors, seen.incomplete_stages
    job.work_ms, job.unclaimed_ms = 0.0, 0.0
    running, dry = 0, -1
    for place in range(job.first_stage, job.end_stage):
        stage = stages[place]
        job.work_ms += stage.left * stage.mean_ms
        job.unclaimed_ms += max(stage.left - stage.claimed, 0) * stage.mean_ms
        running += stage.running
        if number == source and stage.left == 0 and stage.running >= offered and dry < 0:
            dry = place
    others = job.executors - running
    if number == source:
        job.executors -= offered
        if dry >= 0:
            stages[dry].running -= offered
            run.ending_ms = task_ms(model, dry, _REST) if offered > 1 else 0.0
            running -= offered
        else:
            others -= offered
    others = max(others, 0)
    job.attached, ending = running, 0
    placed = running + others
    for place in range(job.first_stage, job.end_stage):
        stage = stages[place]
        coming = min(stage.claimed, others)
        if coming > 0:
            add_crew(model, run.moving_ms / 2, coming, place, 0, COMES)
        others -= coming
        ending += stage.claimed - coming
    _send_on(model, number, ending)
    job.idle = others
    job.attached += others
    return placed


@inner
def _send_on(model, number, ending):
    """Who works on stages without tasks left goes to those of the same job that expect more than come from outside."""
    job = model.jobs[number]
    target = job.first_stage
    for place in range(job.first_stage, job.end_stage):
        stage = model.stages[place]
        while ending > 0 and stage.left == 0 and stage.running > 0 and target < job.end_stage:
            coming = 0
            for crew in range(model.run[0].crews):
                if model.crews[crew].stage == target and model.crews[crew].kind != WORKS:
                    coming += model.crews[crew].executors
            sent = min(min(ending, stage.running), model.stages[target].claimed - coming)
            if sent > 0:
                stage.running -= sent
                ending -= sent
                add_crew(model, task_ms(model, place, _REST) / 2, sent, target, 0, CHANGES)
            else:
                target += 1


@inner
def _count_parents(model):
    """Fill in how many parents stages wait for."""
    for place in range(len(model.stages)):
        model.stages[place].open_parents, model.stages[place].unsaturated_parents = 0, 0
    for place in range(len(model.stages)):
        stage = model.stages[place]
        for edge in range(stage.first_child, stage.end_child):
            child = model.stages[model.children[edge]]
            child.open_parents += stage.unfinished > 0
            child.unsaturated_parents += stage.left > stage.claimed


@inner
def _begin_crews(model, place, running):
    """Who works on the stage is spread over a task's time."""
    stage = model.stages[place]
    tasks = stage.unfinished - stage.left
    if tasks <= 0:
        return
    rest_ms = task_ms(model, place, _REST)
    parts = len(LEFT_OF_TASK)
    for part in range(parts):
        count = (running + part) // parts
        done = (tasks + part) // parts
        if done > 0 or count > 0:
            add_crew(model, LEFT_OF_TASK[part] * rest_ms, count, place, done, WORKS)


@inner
def task_ms(model, place, wave):
    """What a task of a stage takes, if it begins now, ms."""
    durations = model.durations
    executors = min(max(model.jobs[model.stages[place].job].attached, 1), durations.shape[2] - 1)
    return durations[place, wave, executors]


@inner
def add_crew(model, until_ms, executors, stage, tasks, kind):
    """Join a crew that does the same, or make a new one; returns it."""
    crews, size = model.crews, model.run[0].crews
    for number in range(size):
        crew = crews[number]
        if crew.until_ms == until_ms and crew.stage == stage and crew.kind == kind and crew.rounds == 1:
            crew.executors += executors
            crew.tasks += tasks
            return
    crew = crews[size]
    crew.until_ms, crew.executors, crew.stage, crew.tasks = until_ms, executors, stage, tasks
    crew.kind, crew.rounds = kind, 1
    model.run[0].crews = size + 1
