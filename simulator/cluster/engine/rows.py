"""Compiled: rows of observations, by executor class. Only rows of changed jobs are written.

In ``state.seen_jobs`` and ``state.seen_stages``, the rows of a class begin with the live jobs, in order of arrival.
"""

from __future__ import annotations

from simulator.cluster.engine.tasks import LAST, is_schedulable, turn_of
from simulator.compiled import inner


@inner
def add(state, job_id):
    """Fill in the constant columns of a job that arrives, and of its stages."""
    job = state.jobs[job_id]
    for class_id in range(state.cluster[0].num_classes):
        row = class_id * len(state.stages) + job.first_row
        for stage_id in range(job.first_stage, job.end_stage):
            stage, seen = state.stages[stage_id], state.seen_stages[row]
            seen.job = job.place
            seen.num_tasks = stage.num_tasks
            seen.mean_task_ms = stage.mean_task_ms
            seen.cpu = stage.cpu
            seen.memory = stage.memory
            seen.log_sd = 0.0
            row += 1
        seen_job = state.seen_jobs[class_id * len(state.jobs) + job.place]
        seen_job.log_sd = 0.0
        seen_job.first_work_ms = job.first_work_ms
        seen_job.weight = job.weight
        seen_job.deadline_ms = job.deadline_ms
        seen_job.tenant = job.tenant


@inner
def remove(state, job_id):
    """Move up the rows after a job that has ended."""
    cluster, job = state.cluster[0], state.jobs[job_id]
    seen_jobs, seen_stages = state.seen_jobs, state.seen_stages
    num_stages = job.end_stage - job.first_stage
    for class_id in range(cluster.num_classes):
        first = class_id * len(state.jobs)
        for row in range(first + job.place, first + cluster.num_live):
            seen_jobs[row] = seen_jobs[row + 1]
            seen_jobs[row].first_stage -= num_stages
            if seen_jobs[row].next_stage >= 0:
                seen_jobs[row].next_stage -= num_stages
        first = class_id * len(state.stages)
        for row in range(first + job.first_row, first + cluster.num_rows):
            seen_stages[row] = seen_stages[row + num_stages]
            seen_stages[row].job -= 1


@inner
def update(state, class_id):
    """Update the rows of an executor class; return its number of schedulable stages."""
    num_schedulable = 0
    for index in range(state.cluster[0].num_live):
        number = state.live[index]
        job, pool = state.jobs[number], state.pools[number * state.cluster[0].num_classes + class_id]
        if pool.row_version != job.version:
            pool.row_version = job.version
            _update_job(state, number, class_id)
        num_schedulable += pool.num_schedulable
    return num_schedulable


@inner
def _update_job(state, job_id, class_id):
    job, all_stages, pair = state.jobs[job_id], state.stages, state.pairs
    num_classes = state.cluster[0].num_classes
    num_schedulable, next_stage, next_turn = 0, -1, LAST
    row = class_id * len(all_stages) + job.first_row
    for stage_id in range(job.first_stage, job.end_stage):
        stage, seen = all_stages[stage_id], state.seen_stages[row]
        left = stage.num_tasks - stage.started
        rank = stage.open_order if left > 0 else -1
        schedulable = is_schedulable(stage, pair[stage_id * num_classes + class_id])
        if schedulable and turn_of(stage) < next_turn:
            next_stage, next_turn = job.first_row + stage_id - job.first_stage, turn_of(stage)
        seen.remaining_tasks = left
        seen.unclaimed_tasks = max(left - stage.claimed, 0)
        seen.running_executors = stage.running
        seen.finished_tasks = stage.finished
        seen.finished_ms = stage.finished_ms
        seen.ready_rank = rank
        seen.schedulable = schedulable
        num_schedulable += schedulable
        row += 1
    seen_job = state.seen_jobs[class_id * len(state.jobs) + job.place]
    seen_job.id = job_id
    seen_job.first_stage = job.first_row
    seen_job.executors = job.executors
    seen_job.unsaturated_stages = job.unsaturated
    seen_job.incomplete_stages = job.incomplete
    seen_job.next_stage = next_stage
    seen_job.arrival_ms = job.arrival_ms
    state.pools[job_id * num_classes + class_id].num_schedulable = num_schedulable
    if len(state.beliefs) > 0:
        _update_estimates(state, job_id, class_id)


@inner
def _update_estimates(state, job_id, class_id):
    job = state.jobs[job_id]
    row = class_id * len(state.stages) + job.first_row
    for stage_id in range(job.first_stage, job.end_stage):
        stage, estimate, seen = state.stages[stage_id], state.estimates[stage_id], state.seen_stages[row]
        seen.mean_task_ms = estimate.mean_ms
        seen.log_sd = estimate.log_sd
        seen.num_tasks = stage.num_tasks
        if stage.open_order < 0 and stage.started == 0:  # a stage that has run tasks is known
            seen.num_tasks = seen.remaining_tasks = estimate.num_tasks
            if seen.unclaimed_tasks > 0:
                seen.unclaimed_tasks = max(estimate.num_tasks - stage.claimed, 1)
        row += 1
    state.seen_jobs[class_id * len(state.jobs) + job.place].log_sd = state.beliefs[job_id].log_sd
