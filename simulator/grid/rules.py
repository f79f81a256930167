"""Compiled: the rules of DeepRM's environment, in the order of sections 3.1 and 3.2 of its paper (HotNets 2016).

Time, actions, rewards, and the picture of the state, in which only changed cells are drawn; ``GridConfig`` describes
its layout, ``grid.GridState`` the arrays, whose first dimension is the episode.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled, inner

#: Outcomes of an action: a job is booked; it does not fit into the horizon; its slot is empty; void; the episode was
#: already over. Time passes in all but the first and the last.
BOOKED, NO_ROOM, EMPTY, VOID, OVER = range(5)

#: Largest counted number of steps since the last arrival.
_LONG_AGO = 10


# ---- Time (section 3.1): jobs enter, run and leave ---------------------------------------------------------


@compiled
def begin(state, settings):
    """Let the jobs of step 0 enter."""
    for episode in range(len(state.clock)):
        if settings.first_step:
            _enter_jobs(state, settings, episode)
        else:
            job = 0
            while job < state.num_jobs[episode] and state.enter[episode, job] == 0:
                job += 1
            state.next_job[episode] = job


@inner(arrays=True)
def _pass_time(state, settings, episode):
    """Pass one step: jobs finish, the episode may end, jobs enter. Returns the reward."""
    reward = _reward(state, settings, episode) if settings.reward_passed_step else 0.0
    state.clock[episode] += 1
    _shift(state, settings, episode)
    _leave(state, settings, episode)
    if state.since_arrival[episode] < _LONG_AGO:
        _set_since_arrival(state, settings, episode, state.since_arrival[episode] + 1)
    state.done[episode] = _is_over(state, settings, episode)
    if not state.done[episode]:
        _enter_jobs(state, settings, episode)
    return reward if settings.reward_passed_step else _reward(state, settings, episode)


@inner(arrays=True)
def _enter_jobs(state, settings, episode):
    """Let the jobs of this step enter: into the first empty slot, else into the backlog; else drop them."""
    slots = state.slots[episode]
    job = state.next_job[episode]
    while job < state.num_jobs[episode] and state.enter[episode, job] == state.clock[episode]:
        slot = 0
        while slot < len(slots) and slots[slot] >= 0:
            slot += 1
        waiting = state.num_backlog[episode]
        if slot < len(slots):
            slots[slot] = job
            _draw_slot(state, settings, episode, slot, job, 1)
        elif waiting < state.backlog.shape[1]:
            state.backlog[episode, waiting] = job
            state.num_backlog[episode] = waiting + 1
            _draw_backlog(state, settings, episode, waiting, 1)
        else:
            state.dropped[episode, job] = True
        _set_since_arrival(state, settings, episode, 0)
        job += 1
    state.next_job[episode] = job


@inner(arrays=True)
def _leave(state, settings, episode):
    """Remove finished jobs from the list of running jobs."""
    running, clock = state.running[episode], state.clock[episode]
    kept = 0
    skip = False
    for index in range(state.num_running[episode]):
        job = running[index]
        finished = state.start[episode, job] + state.duration[episode, job] <= clock
        if finished and not skip:
            # The public code removes jobs from the list that it iterates over, which skips the next job.
            skip = not settings.prompt_leaving
        else:
            skip = False
            running[kept] = job
            kept += 1
    state.num_running[episode] = kept


@inner(arrays=True)
def _is_over(state, settings, episode):
    """Return whether the episode ends, see ``GridConfig.drain`` and ``max_steps``."""
    late = state.clock[episode] >= settings.steps
    if not settings.drain:
        return late
    if state.clock[episode] > settings.max_steps:
        return True
    if not (late if not settings.ends_early else state.next_job[episode] == state.num_jobs[episode]):
        return False
    return not _any_job(state, episode)


@inner(arrays=True)
def _any_job(state, episode):
    """Return whether a job runs, is booked or waits; no job waits in the backlog while a slot is empty."""
    return state.num_running[episode] > 0 or state.slots[episode].max() >= 0


# ---- Actions (section 3.2): a job is booked at the first time at which it fits -----------------------------


@compiled
def act(state, settings, actions, rewards, outcomes):
    """Carry out one action in each episode, int64 [N]; fill in rewards, float64 [N], and outcomes, int8 [N]."""
    for episode in range(len(actions)):
        if state.done[episode]:
            rewards[episode], outcomes[episode] = 0.0, OVER
            continue
        outcome = _choose(state, settings, episode, actions[episode])
        outcomes[episode] = outcome
        rewards[episode] = 0.0 if outcome == BOOKED else _pass_time(state, settings, episode)


@compiled
def bookable(state, settings, now, mask):
    """Mark the visible jobs that can be booked on each machine, bool [N, m, M]; with ``now``, that can start now."""
    episodes, machines, visible = mask.shape
    for episode in range(episodes):
        for machine in range(machines):
            for slot in range(visible):
                job = state.slots[episode, slot]
                fits = False
                if job >= 0 and not state.done[episode]:
                    offset = _find(state, settings, episode, machine, job)
                    fits = offset == 0 if now else offset >= 0
                mask[episode, machine, slot] = fits


@inner(arrays=True)
def _choose(state, settings, episode, action):
    """Book the chosen job, if possible; return the outcome."""
    visible = state.slots.shape[1]
    machine, slot = action // visible, action % visible
    if machine >= state.free.shape[1]:
        return VOID
    job = state.slots[episode, slot]
    if job < 0:
        return EMPTY
    offset = _find(state, settings, episode, machine, job)
    if offset < 0:
        return NO_ROOM
    _book(state, settings, episode, machine, job, offset)
    _draw_slot(state, settings, episode, slot, job, 0)
    state.slots[episode, slot] = -1
    waiting = state.num_backlog[episode]
    if waiting > 0:
        backlog = state.backlog[episode]
        oldest = backlog[0]
        for rank in range(1, waiting):
            backlog[rank - 1] = backlog[rank]
        state.num_backlog[episode] = waiting - 1
        _draw_backlog(state, settings, episode, waiting - 1, 0)
        state.slots[episode, slot] = oldest
        _draw_slot(state, settings, episode, slot, oldest, 1)
    return BOOKED


@inner(arrays=True)
def _find(state, settings, episode, machine, job):
    """Return the first step, from now on, at which a job fits until its end; -1 if it does not fit."""
    free, demand = state.free[episode, machine], state.demand[episode, job]
    horizon, resources = free.shape
    duration = state.duration[episode, job]
    last = horizon - duration if settings.last_row else horizon - duration - 1
    offset = row = 0
    while offset <= last:
        # Rows offset .. row - 1 have enough free units.
        if row == offset + duration:
            return offset
        for resource in range(resources):
            if free[row, resource] < demand[resource]:
                offset = row + 1
                break
        row += 1
    return -1


@inner(arrays=True)
def _book(state, settings, episode, machine, job, offset):
    """Take the units of a job from a step on, and draw them."""
    booked = state.free[episode, machine, offset : offset + state.duration[episode, job]]
    booked -= state.demand[episode, job]
    _draw_booking(state, settings, episode, machine, job, offset)
    state.start[episode, job] = state.clock[episode] + offset
    state.machine[episode, job] = machine
    state.running[episode, state.num_running[episode]] = job
    state.num_running[episode] += 1


# ---- Rewards (sections 3.2 and 3.4) ------------------------------------------------------------------------


@inner(arrays=True)
def _reward(state, settings, episode):
    """Return the reward of a step, see ``Grid``."""
    by_duration, duration = settings.by_duration, state.duration[episode]
    running, queue, backlog = 0.0, 0.0, 0.0
    for index in range(state.num_running[episode]):
        job = state.running[episode, index]
        weight = state.machine_weights[state.machine[episode, job]]
        running += weight / duration[job] if by_duration else weight
    for slot in range(state.slots.shape[1]):
        job = state.slots[episode, slot]
        if job >= 0:
            queue += 1 / duration[job] if by_duration else 1.0
    for rank in range(state.num_backlog[episode]):
        backlog += 1 / duration[state.backlog[episode, rank]] if by_duration else 1.0
    return -(running + settings.queue_weight * queue + settings.backlog_weight * backlog)


# ---- State (section 3.2): the picture ----------------------------------------------------------------------


@inner(arrays=True)
def _colour(state, episode, finish):
    """Return the number, 1 to 39, of the first unused shade; the last one if all are used."""
    until = state.colour_until[episode]
    colour = 0
    while colour < len(until) - 1 and until[colour] > state.clock[episode]:
        colour += 1
    until[colour] = finish
    return colour + 1


@inner(arrays=True)
def _draw_booking(state, settings, episode, machine, job, offset):
    """Draw the units of a booked job: in each row the leftmost free ones."""
    picture, duration = state.picture[episode], state.duration[episode, job]
    shade = picture.dtype.type(1)
    if settings.coloured:
        finish = state.clock[episode] + offset + duration
        shade = picture.dtype.type(_colour(state, episode, finish) / 40)
    for resource in range(state.demand.shape[2]):
        first = resource * settings.resource_width + machine * settings.units
        for row in range(offset, offset + duration):
            column = first
            for _ in range(state.demand[episode, job, resource]):
                while picture[row, column] != 0:
                    column += 1
                picture[row, column] = shade


@inner(arrays=True)
def _draw_slot(state, settings, episode, slot, job, value):
    """Fill or clear the rectangles of a visible job, as high as its duration and as wide as its demand."""
    picture = state.picture[episode]
    inside = state.free.shape[1] * settings.units + slot * settings.slot_width
    for resource in range(state.demand.shape[2]):
        first = resource * settings.resource_width + inside
        width = state.demand[episode, job, resource]
        picture[: state.duration[episode, job], first : first + width] = value


@inner(arrays=True)
def _draw_backlog(state, settings, episode, rank, value):
    """Fill or clear the cell of a job in the backlog, the oldest job first, row by row."""
    columns = settings.backlog_columns
    first = state.demand.shape[2] * settings.resource_width
    state.picture[episode, rank // columns, first + rank % columns] = value


@inner(arrays=True)
def _set_since_arrival(state, settings, episode, steps):
    """Set the number of steps since the last arrival, and draw its column."""
    state.since_arrival[episode] = steps
    if not settings.arrival_column:
        return
    column = state.picture[episode, :, -1]
    if settings.coloured:
        column[:] = np.float32(steps / _LONG_AGO)
    else:
        column[:steps] = 1
        column[steps:] = 0


@inner(arrays=True)
def _shift(state, settings, episode):
    """Remove the first row of each machine and of its picture, and append a free one."""
    machines, horizon, resources = state.free[episode].shape
    free, picture = state.free[episode], state.picture[episode]
    for machine in range(machines):
        for row in range(horizon - 1):
            for resource in range(resources):
                free[machine, row, resource] = free[machine, row + 1, resource]
    free[:, horizon - 1] = settings.units
    width = machines * settings.units
    for resource in range(resources):
        first = resource * settings.resource_width
        for row in range(horizon - 1):
            for column in range(first, first + width):
                picture[row, column] = picture[row + 1, column]
        picture[horizon - 1, first : first + width] = 0
