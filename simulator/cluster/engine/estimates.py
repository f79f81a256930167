"""Compiled: estimates of live jobs, updated from the tasks of a cluster."""

from __future__ import annotations

from simulator.cluster.engine import posterior, tasks
from simulator.cluster.engine.state import view
from simulator.compiled import compiled


@compiled
def learn(memory, now):
    """Update the estimates of live jobs from tasks observed until ``now``, ms; return whether a scale has changed."""
    state = view(memory)
    beliefs, estimates = state.beliefs, state.estimates
    for index in range(state.cluster[0].num_live):
        job = state.jobs[state.live[index]]
        if job.learned != job.version:
            job.learned = job.version
            for stage in range(job.first_stage, job.end_stage):
                done, estimate = state.stages[stage], estimates[stage]
                if estimate.finished != done.finished or estimate.finished_ms != done.finished_ms:
                    estimate.finished, estimate.finished_ms = done.finished, done.finished_ms
                    beliefs[state.live[index]].is_old = 1
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0:
            estimates[runner.stage].running += 1
            estimates[runner.stage].running_ms += now - runner.start
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0 and posterior.is_late(estimates[runner.stage]):
            beliefs[runner.job].is_old = 1
    is_rescaled = False
    for index in range(state.cluster[0].num_live):
        job = state.live[index]
        belief, scale = beliefs[job], beliefs[job].scale
        if belief.is_old or belief.is_late:
            posterior.update(belief, estimates, state.jobs[job].first_stage, state.jobs[job].end_stage)
            is_rescaled |= belief.scale != scale
            tasks.change(state, job)
    for runner in state.executors:
        if runner.start >= 0 and runner.stage >= 0:
            estimates[runner.stage].running = 0
            estimates[runner.stage].running_ms = 0.0
    return is_rescaled
