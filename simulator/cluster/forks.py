"""Forks of a ``Cluster``: independent copies for lookahead, with the same future or another one."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.cluster.engine import forks as engine
from simulator.cluster.engine.posterior import posterior, records
from simulator.cluster.engine.state import moves_table
from workloads.errors import SchedulingError

if TYPE_CHECKING:
    from simulator.cluster.cluster import Cluster

__all__ = ["draw_task_times", "fork"]


def fork(cluster: Cluster, futures: int | None, arrivals: bool, log: bool) -> Cluster:
    """Return an independent cluster in the same state, see ``BaseCluster.fork``."""
    if cluster._clock is not None and cluster._clock.has_other_events:
        raise SchedulingError("the cluster cannot be forked: processes of your own wait on its clock")
    meter = cluster._counted()
    block, values, moves = cluster._memory
    if log or cluster._faults:
        block = block.copy()
    else:
        block = np.empty_like(block)
        engine.copy_without_log(cluster._memory, block)
    numbers = cluster._state.cluster
    first, end = (0 if log else int(numbers["num_moved"][0])), int(numbers["num_moves"][0])
    forked = copy(cluster)
    forked._attach((block, values, moves_table(cluster.config, moves[first:end])))
    forked._state.cluster["num_moves"] -= first
    forked._state.cluster["num_moved"] -= first
    forked._clock = None
    if cluster._clock is not None:
        forked.clock.follow(cluster._clock)
    for log_of in ("_lost_runs", "_changes", "_settlements"):
        setattr(forked, log_of, getattr(cluster, log_of).copy())
    forked._meter = copy(meter)
    forked._observation = None
    forked._has_log = cluster._has_log and log
    if not arrivals:
        forked._state.cluster["num_arriving"] = forked._state.cluster["num_arrived"]
    if futures is not None:
        _redraw(forked, futures)
    return forked


def _redraw(cluster: Cluster, seed: int) -> None:
    """Redraw, with another seed, tasks that have not started and the rest of running tasks."""
    cluster._noise_seed = seed
    cluster._redraws_task_times = bool(cluster._estimates)
    if cluster._redraws_task_times:
        cluster.snapshot()  # updates the estimates
    state = cluster._state
    for job in cluster._live().tolist():
        cluster._draw_noise(job)
        if cluster._faults:
            engine.renew_noise(cluster._memory, job)
        if cluster._redraws_task_times:
            profile = cluster.sequence.profiles[job]
            estimates = state.estimates[cluster._first_stage[job] :][: profile.num_stages]
            _redraw_task_times(cluster, job, state.beliefs[job : job + 1], estimates)
    state.cluster["num_prepared"] = state.cluster["num_arrived"]
    engine.redraw_running(cluster._memory, cluster.now_ms)
    if cluster._faults:
        from simulator.cluster.outages import redraw_outages

        redraw_outages(cluster)


def draw_task_times(cluster: Cluster, job: int) -> None:
    """Draw the true mean task times of a job that has not arrived, given its first estimates."""
    belief, estimates = records(cluster._estimates[job])
    posterior(belief, estimates)
    _redraw_task_times(cluster, job, belief, estimates)


def _redraw_task_times(
    cluster: Cluster, job: int, belief: NDArray[np.void], estimates: NDArray[np.void]
) -> None:
    """Redraw the true mean task times of a job's stages from the posterior, given the job's estimates."""
    from simulator.cluster.estimates import redrawn_factors

    first = cluster._first_stage[job]
    stages = cluster._state.stages[first : first + len(estimates)]
    stages["factor"] = redrawn_factors(cluster._noise_seed, job, belief, estimates, stages["mean_task_ms"])
