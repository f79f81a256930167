"""Compiled: how the live jobs of a model go on, if tasks take their mean time and no job arrives.

A rule decides, that of ``ProfiledSrpt``. Where a stage has many rounds of tasks left, a crew takes several at once.
"""

from __future__ import annotations

import math

from decima.schedulers.lookahead.model import (
    CHANGES,
    COMES,
    LEAVES,
    LEFT_OF_TASK,
    WORKS,
    add_crew,
    task_ms,
)
from simulator.compiled import compiled, inner
from workloads.job import Wave

__all__ = ["BY_RULE", "try_out"]

#: For the first decision: as the rule has it.
BY_RULE = -1
#: A crew takes as many rounds of its stage's tasks at once as would use up one in so many of them, or one round.
SLICES = 3

_FRESH, _FIRST, _REST = int(Wave.FRESH), int(Wave.FIRST), int(Wave.REST)


@compiled
def try_out(model, start, limits, source, offered, stage, count, price):
    """What comes of a decision, if the rule decides everything after it.

    Args:
        model: overwritten.
        start: the model to begin with, see ``model.begin``.
        limits: int64 [J], executors that the rule gives to a job, if others want some.
        source: the job whose executors are offered, or -1.
        offered: executors.
        stage: that ``count`` of them go to, or ``BY_RULE``.
        count: executors.
        price: of an executor that works or moves, where a job in the system costs 1.

    Returns:
        (cost from now on, ms; the stage that was chosen, -1 for none; its job's limit, if by rule)
    """
    model.run[:] = start.run
    model.jobs[:] = start.jobs
    model.stages[:] = start.stages
    crews = model.run[0].crews
    model.crews[:crews] = start.crews[:crews]
    for number in range(len(limits)):
        model.jobs[number].limit = limits[number]
    chosen, bound = _offer(model, source, offered, stage, count)
    _go_on(model, price)
    return model.run[0].cost_ms, chosen, bound


@inner
def _go_on(model, price):
    """Let the jobs run until all are complete; fills in the cost, which is infinite if the rule never ends."""
    run, crews = model.run[0], model.crews
    while run.live > 0:
        if run.changed == 1:
            _offer_idle(model)
        if run.crews == 0:
            run.cost_ms = math.inf
            return
        first, busy = 0, crews[0].executors
        for number in range(1, run.crews):
            busy += crews[number].executors
            if crews[number].until_ms < crews[first].until_ms:
                first = number
        crew, last = crews[first], crews[run.crews - 1]
        kind, stage, executors, tasks = crew.kind, crew.stage, crew.executors, crew.tasks
        run.cost_ms += (run.live + price * busy) * (crew.until_ms - run.now_ms)
        run.now_ms = crew.until_ms
        crew.until_ms, crew.executors, crew.stage, crew.tasks = (
            last.until_ms,
            last.executors,
            last.stage,
            last.tasks,
        )
        crew.kind, crew.rounds, crew.round_ms = last.kind, last.rounds, last.round_ms
        run.crews -= 1
        if kind == WORKS:
            _finish(model, stage, executors, tasks)
        elif kind == LEAVES:
            model.stages[stage].running -= executors
            _leave(model, model.stages[stage].job, executors)
        else:
            _arrive(model, stage, executors, kind)


@inner
def _finish(model, place, executors, tasks):
    """A crew is done with its tasks of a stage."""
    stage, run = model.stages[place], model.run[0]
    stage.unfinished -= tasks
    stay = min(executors, stage.left)
    if stay > 0:
        _go_round(model, place, stay)
    gone = executors - stay
    stage.running -= gone
    if stage.unfinished == 0:
        _complete(model, place)
    if gone > 0:
        _leave(model, stage.job, gone)
        if run.live > 0:
            _offer(model, stage.job if model.jobs[stage.job].incomplete > 0 else -1, gone, BY_RULE, 0)


@inner
def _go_round(model, place, executors):
    """Executors take the next tasks of the stage that they worked on, or several each, one after the other."""
    stage, run = model.stages[place], model.run[0]
    rounds = stage.left // (SLICES * stage.running + stage.claimed)
    round_ms = task_ms(model, place, _REST)
    _take(model, place, executors * max(rounds, 1))
    if rounds > 1:
        crew = model.crews[run.crews]
        crew.until_ms, crew.executors, crew.stage = run.now_ms + rounds * round_ms, executors, place
        crew.tasks, crew.kind, crew.rounds, crew.round_ms = executors * rounds, WORKS, rounds, round_ms
        run.crews += 1
    else:
        add_crew(model, run.now_ms + round_ms, executors, place, executors, WORKS)


@inner
def _complete(model, place):
    """All tasks of a stage are finished."""
    run, stage = model.run[0], model.stages[place]
    job = model.jobs[stage.job]
    job.incomplete -= 1
    run.changed = 1
    for edge in range(stage.first_child, stage.end_child):
        child = model.stages[model.children[edge]]
        child.open_parents -= 1
        if child.open_parents == 0:
            child.rank = run.opened
            run.opened += 1
            job.stale = 1
    if job.incomplete == 0:
        run.live -= 1
        run.free += job.idle
        job.executors -= job.idle
        job.attached -= job.idle
        job.idle = 0


@inner
def _arrive(model, place, executors, kind):
    """A crew comes to a stage."""
    stage, run = model.stages[place], model.run[0]
    job = model.jobs[stage.job]
    _claim(model, place, -executors)
    if kind == COMES:
        job.attached += executors
    if job.incomplete == 0:
        _leave(model, stage.job, executors)
        run.free += executors
        run.changed = 1
        return
    starting = min(executors, stage.left) if stage.open_parents == 0 else 0
    if starting > 0:
        _start(model, place, starting, _FRESH if kind == COMES else _FIRST)
    if executors > starting:
        job.idle += executors - starting
        run.changed = 1


@inner
def _offer_idle(model):
    """Offer the free executors, and those that wait in jobs for nothing that will open by itself."""
    run = model.run[0]
    run.changed = 0
    if run.free > 0 and run.live > 0:
        count, run.free = run.free, 0
        _offer(model, -1, count, BY_RULE, 0)
    for number in range(len(model.jobs)):
        job = model.jobs[number]
        if job.idle == 0 or job.incomplete == 0:
            continue
        count = job.idle
        place = _next_stage(model, number)
        if place >= 0 and model.stages[place].open_parents > 0:
            awaited = 0
            for each in range(job.first_stage, job.end_stage):
                stage = model.stages[each]
                if stage.unsaturated_parents == 0 and stage.left > stage.claimed:
                    awaited += stage.left - stage.claimed
            count = max(count - awaited, 0)
        if count > 0:
            job.idle -= count
            _leave(model, number, count)
            _offer(model, number, count, BY_RULE, 0)
    run.changed = 0


@inner
def _offer(model, source, count, first, first_count):
    """Executors of a job, or free ones, are free.

    Args:
        model: the model.
        source: the job, or -1 for free ones.
        count: executors; they do not count as the job's any more.
        first: a stage that ``first_count`` of them go to, or ``BY_RULE``.
        first_count: executors.

    Returns:
        The stage and the limit that were chosen first.
    """
    run = model.run[0]
    run.turn += 1
    chosen, chosen_bound = -1, 0
    while count > 0:
        if first >= 0:
            stage, bound, sent = first, 0, min(first_count, count)
            first = BY_RULE
        else:
            stage, bound = _choose(model, source)
            if stage < 0:
                break
            row = model.stages[stage]
            sent = min(min(count, bound - model.jobs[row.job].executors), row.left - row.claimed)
        if chosen < 0:
            chosen, chosen_bound = stage, bound
        model.stages[stage].turn = run.turn
        model.jobs[model.stages[stage].job].stale = 1
        if run.turn == 1:
            _send_first(model, source, stage, sent)
        else:
            _send(model, source, stage, sent, 0.0)
        count -= sent
    if source >= 0:
        _unclaim(model, source)
    if count > 0:
        _rest(model, source, count)
    return chosen, chosen_bound


@inner
def _send_first(model, source, place, executors):
    """Executors that the observation offers: all but the first may still be finishing a task."""
    ending_ms = model.run[0].ending_ms
    if ending_ms == 0:
        _send(model, source, place, executors, 0.0)
        return
    parts = len(LEFT_OF_TASK)
    for part in range(parts):
        count = (executors + part) // parts
        if count > 0:
            _send(model, source, place, count, LEFT_OF_TASK[part] * ending_ms)


@inner
def _send(model, source, place, executors, after_ms):
    """Executors of the job ``source``, or free ones, go to a stage, after so many ms."""
    run, stage = model.run[0], model.stages[place]
    job = model.jobs[stage.job]
    job.executors += executors
    if stage.job != source:
        _claim(model, place, executors)
        add_crew(model, run.now_ms + after_ms + run.moving_ms, executors, place, 0, COMES)
        return
    job.attached += executors
    if after_ms > 0:
        _claim(model, place, executors)
        add_crew(model, run.now_ms + after_ms, executors, place, 0, CHANGES)
    elif stage.open_parents == 0:
        _start(model, place, executors, _FIRST)
    else:
        job.idle += executors
        _claim(model, place, executors)


@inner
def _start(model, place, executors, wave):
    """Executors that are in the job start a task each."""
    stage = model.stages[place]
    if stage.running > 0:
        _interrupt(model, place)
    stage.running += executors
    _take(model, place, executors)
    add_crew(model, model.run[0].now_ms + task_ms(model, place, wave), executors, place, executors, WORKS)


@inner
def _rest(model, source, count):
    """Executors have nothing to do: they wait in their job, as long as it has tasks to start."""
    if source >= 0 and _has_tasks(model, source):
        job = model.jobs[source]
        job.executors += count
        job.attached += count
        job.idle += count
    else:
        model.run[0].free += count


@inner
def _has_tasks(model, number):
    """Whether a job has tasks that have not started."""
    for place in range(model.jobs[number].first_stage, model.jobs[number].end_stage):
        if model.stages[place].left > 0:
            return True
    return False


@inner
def _leave(model, number, count):
    job = model.jobs[number]
    job.executors -= count
    job.attached -= count


@inner
def _choose(model, source):
    """The rule: a stage and the limit of its job; -1 to leave executors of the job ``source``, or free ones, idle."""
    run = model.run[0]
    share = max(1, run.executors // run.live)
    worth_ms = run.worth_leaving_ms if source >= 0 else run.worth_moving_ms
    for everything in range(2):
        best, best_bound, least_ms = -1, 0, math.inf
        for number in range(len(model.jobs)):
            job = model.jobs[number]
            if job.incomplete == 0:
                continue
            work_ms = job.work_ms * run.staying if number == source else job.work_ms
            if work_ms >= least_ms:
                continue
            bound = run.executors if everything else min(max(job.limit, share), run.executors)
            if number != source and worth_ms > 0:
                bound = min(bound, max(int(job.unclaimed_ms / worth_ms), 1))
            if job.executors < bound and _next_stage(model, number) >= 0:
                best, best_bound, least_ms = number, bound, work_ms
        if best >= 0:
            return _next_stage(model, best), best_bound
    return -1, 0


@inner
def _next_stage(model, number):
    """Of the stages that a job may run next the first that became ready, else the first; -1 if none."""
    job = model.jobs[number]
    if job.stale == 0:
        return job.next_stage
    job.stale, best, best_rank = 0, -1, -1
    for place in range(job.first_stage, job.end_stage):
        stage = model.stages[place]
        blocked = stage.open_parents if model.run[0].ready_only else stage.unsaturated_parents
        if stage.left > stage.claimed and blocked == 0:
            if stage.turn == model.run[0].turn:
                job.stale = 1
            elif best < 0 or (stage.rank >= 0 and (best_rank < 0 or stage.rank < best_rank)):
                best, best_rank = place, stage.rank
    job.next_stage = best
    return best


@inner
def _interrupt(model, place):
    """Others come: crews with several rounds of a stage's tasks give back those that they have not begun."""
    now_ms = model.run[0].now_ms
    for number in range(model.run[0].crews):
        crew = model.crews[number]
        if crew.stage == place and crew.rounds > 1:
            back = min(int((crew.until_ms - now_ms) / crew.round_ms), crew.rounds - 1)
            crew.until_ms -= back * crew.round_ms
            crew.rounds -= back
            crew.tasks -= back * crew.executors
            _take(model, place, -back * crew.executors)


@inner
def _unclaim(model, number):
    """Remove the claims of executors that wait in a job, which hold only during a round of decisions."""
    job = model.jobs[number]
    for place in range(job.first_stage, job.end_stage):
        stage = model.stages[place]
        if stage.open_parents > 0 and stage.claimed > 0:
            coming = 0
            for crew in range(model.run[0].crews):
                if model.crews[crew].stage == place and model.crews[crew].kind != WORKS:
                    coming += model.crews[crew].executors
            if coming != stage.claimed:
                _claim(model, place, coming - stage.claimed)


@inner
def _claim(model, place, executors):
    """More executors, or fewer, are on their way to a stage."""
    stage = model.stages[place]
    before = max(stage.left - stage.claimed, 0)
    stage.claimed += executors
    _tell(model, place, before)


@inner
def _take(model, place, tasks):
    """Tasks of a stage start."""
    stage = model.stages[place]
    before = max(stage.left - stage.claimed, 0)
    stage.left -= tasks
    model.jobs[stage.job].work_ms -= tasks * stage.mean_ms
    _tell(model, place, before)


@inner
def _tell(model, place, before):
    """The unclaimed tasks of a stage were ``before``: tell its job and its children."""
    stage = model.stages[place]
    after = max(stage.left - stage.claimed, 0)
    job = model.jobs[stage.job]
    job.unclaimed_ms += (after - before) * stage.mean_ms
    if (before > 0) == (after > 0):
        return
    more = 1 if after > 0 else -1
    for edge in range(stage.first_child, stage.end_child):
        model.stages[model.children[edge]].unsaturated_parents += more
    job.stale = 1
    model.run[0].changed = 1
