"""Compiled: rounds of offers. Executors of one source are offered until the scheduler has committed all of them.

``cluster.offered`` executors are still to be committed. When none is left, the acting executors carry out
their commitments; the others of the source do so when their task ends. Arrivals and ends of jobs also open rounds.
"""

from __future__ import annotations

from simulator.cluster.engine import executors, rows, tasks
from simulator.compiled import inner


@inner
def _open(state, first, last, num_acting, offered, job):
    """Open a round of executors that belong to ``job`` (-1: to no job); ``first`` and ``last`` act at its end."""
    cluster = state.cluster[0]
    cluster.first_acting, cluster.last_acting, cluster.num_acting = first, last, num_acting
    cluster.offered, cluster.source_job = offered, job
    cluster.offered_class = state.executors[first].class_id


@inner
def _open_pool(state, job, class_id):
    """Open a round of all executors in the pool of ``job`` (-1: in the common pool), if there are any."""
    pool = state.pools[executors.pool_of(state, job, class_id)]
    if pool.members > 0:
        _open(state, pool.first, pool.last, pool.members, pool.members, job)


@inner
def offer_of_stage(state, executor, job, offered):
    """Open a round of the executors of a stage of ``job``; only ``executor``, which has no task, acts at its end."""
    _open(state, executor, executor, 1, offered, job)


@inner
def offer_pools(state, job, class_id, keeps, now):
    """Offer the pools of ``job`` (-1: the common pools) after the open round, then free executors if semantics do.

    Args:
        class_id: the executor class whose pool comes first; the other classes follow in their order.
        keeps: whether executors stay with their job, see ``BaseCluster.keeps_executors``.

    Returns:
        Number of decisions taken on the scheduler's behalf.
    """
    cluster = state.cluster[0]
    cluster.next_job, cluster.next_class, cluster.next_pool = job, class_id, 0
    cluster.next_place = 0 if cluster.offer_idle_executors else -1
    return open_next(state, keeps, now)


@inner
def offer_free(state, keeps, now):
    """Offer all free executors that some stage could use, after the open round; returns the same as ``offer_pools``."""
    cluster = state.cluster[0]
    cluster.next_pool, cluster.next_place = cluster.num_classes, 0
    return open_next(state, keeps, now)


@inner
def open_next(state, keeps, now):
    """Open a round of the executors that are next in turn, if no round is open; returns the same as ``offer_pools``."""
    cluster, decisions = state.cluster[0], 0
    while cluster.offered == 0 and cluster.next_pool < cluster.num_classes:
        pool, class_id = cluster.next_pool, cluster.next_class
        if pool > 0:
            class_id = pool - 1 if pool <= class_id else pool
        cluster.next_pool += 1
        _open_pool(state, cluster.next_job, class_id)
        if keeps:
            decisions += stay(state, now)
    if cluster.offered == 0 and cluster.next_place >= 0:
        decisions += _open_free(state, keeps, now)
    return decisions


@inner
def _open_free(state, keeps, now):
    """Open a round of the next free executors that some stage could use: common pools first, then live jobs."""
    cluster, decisions = state.cluster[0], 0
    num_classes, next_place = cluster.num_classes, cluster.next_place
    cluster.next_place = -1
    # Usually no executor is wanted, and there are many live jobs.
    if not executors.find_wanted(state):
        return decisions
    first_class = next_place % num_classes
    for index in range(next_place // num_classes, 1 + cluster.num_live):
        job = state.live[index - 1] if index > 0 else -1
        for class_id in range(first_class, num_classes):
            if state.classes[class_id].wanted == 0 or not executors.is_free(state, job, class_id):
                continue
            pool = state.pools[executors.pool_of(state, job, class_id)]
            if keeps and pool.stay_decisions > 0:
                decisions += pool.stay_decisions
                continue
            _open_pool(state, job, class_id)
            if keeps:
                decisions += stay(state, now)
                executors.find_wanted(state)
            if cluster.offered > 0:
                cluster.next_place = index * num_classes + class_id + 1
                return decisions
        first_class = 0
    return decisions


@inner
def commit(state, target, count, now):
    """Commit offered executors to a stage (at most its unclaimed tasks) or to ``IDLE``; the last close the round."""
    cluster, first = state.cluster[0], state.cluster[0].first_acting
    source = executors.source_of(state, first)
    if target != executors.IDLE:
        stage = state.stages[target]
        count = min(count, stage.num_tasks - stage.started - stage.claimed)
    executors.commit(state, source, state.executors[first].job, target, count)
    cluster.offered -= count
    if cluster.offered == 0:
        _close(state, source, now)


@inner
def _close(state, source, now):
    """Close the round: all executors are committed, and acting ones carry out the commitments of their source."""
    cluster, number = state.cluster[0], state.sources[source].first
    while number >= 0:
        commitment = state.commitments[number]
        if commitment.target != executors.IDLE:
            state.stages[commitment.target].selected = 0
            tasks.change(state, state.stages[commitment.target].job)
        number = commitment.next
    cluster.departure_order = -1
    executor, left = cluster.first_acting, cluster.num_acting
    while left > 0 and executors.is_committed(state, source):
        if executors.stay_in_pool(state, source, executor, cluster.last_acting):
            break
        following = state.executors[executor].next
        executors.carry_out_next(state, source, executor, now)
        executor, left = following, left - 1


@inner
def stay(state, now):
    """Commit offered executors to the next stages of their own job, as long as it has any that can use them.

    Returns the number of decisions taken; 0 if the executors have no live job.
    """
    cluster, first = state.cluster[0], state.executors[state.cluster[0].first_acting]
    job, decisions, starts = first.job, 0, False
    if cluster.offered == 0 or job < 0:
        return decisions
    if first.pool >= 0:
        tasks.refresh(state, job)
    source = executors.source_of(state, cluster.first_acting)
    while cluster.offered > 0:
        target = tasks.next_of_job(state, job, first.class_id)
        if target < 0:
            return decisions
        stage = state.stages[target]
        count = min(cluster.offered, stage.num_tasks - stage.started - stage.claimed)
        executors.commit(state, source, job, target, count)
        cluster.offered -= count
        decisions += 1
        starts |= stage.incomplete_parents == 0
    if starts or first.pool < 0:
        _close(state, source, now)
    else:
        _cache_stay(state, source, job, first.pool, decisions)
    return decisions


@inner
def _cache_stay(state, source, job, pool, decisions):
    """Cancel commitments after which all executors in a job's pool would keep waiting, and cache their number."""
    while state.sources[source].first >= 0:
        commitment = state.commitments[state.sources[source].first]
        state.stages[commitment.target].selected = 0
        tasks.adjust(state, commitment.target, 0, -commitment.count)
        executors.drop(state, source)
    # Nothing has changed, and nothing will change until the job does.
    state.jobs[job].dirty = 0
    state.pools[pool].stay_decisions = decisions


@inner
def after_task(state, happened, executor, job, offered, keeps, now):
    """Continue after the end of a task that concerns other executors: the job may end, and rounds may open.

    Args:
        happened, executor, job, offered: values that ``ends.run_tasks`` returned.
        keeps: whether executors stay with their job, see ``BaseCluster.keeps_executors``.

    Returns:
        Number of decisions taken on the scheduler's behalf.
    """
    cluster = state.cluster[0]
    cluster.now = now
    if happened & executors.NEEDS_DECISION:
        offer_of_stage(state, executor, job, offered)
    if happened & (executors.JOB_COMPLETE | executors.JOB_FAILED):
        _end_job(state, job, executor, now)
    decisions = stay(state, now) if keeps else 0
    if happened & (executors.OPENED | executors.FREED):
        decisions += offer_pools(state, job, state.executors[executor].class_id, keeps, now)
    elif cluster.offer_idle_executors:
        decisions += offer_free(state, keeps, now)
    return decisions


@inner
def _end_job(state, job, last_executor, now):
    """Remove a job that is complete or has failed from the live jobs."""
    executors.end_job(state, job, last_executor)
    cluster, ending = state.cluster[0], state.jobs[job]
    ending.completion_ms = now
    num_stages = ending.end_stage - ending.first_stage
    cluster.num_live -= 1
    cluster.num_rows -= num_stages
    for index in range(ending.place, cluster.num_live):
        later = state.live[index + 1]
        state.live[index] = later
        state.jobs[later].place = index
        state.jobs[later].first_row -= num_stages
    rows.remove(state, job)
    ending.place = -1


@inner
def add_job(state, job):
    """Add a job that arrives."""
    cluster, arriving = state.cluster[0], state.jobs[job]
    state.live[cluster.num_live] = job
    arriving.place, arriving.first_row = cluster.num_live, cluster.num_rows
    arriving.dirty = 1
    cluster.num_live += 1
    cluster.num_rows += arriving.end_stage - arriving.first_stage
    tasks.change(state, job)
    for stage_id in range(arriving.first_stage, arriving.end_stage):
        if state.stages[stage_id].incomplete_parents == 0:
            tasks.make_ready(state, stage_id)
    cluster.next_opened += arriving.end_stage - arriving.first_stage
    rows.add(state, job)
