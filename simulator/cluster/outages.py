"""Lost executors and changes of the capacity of a ``Cluster``: events on its clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from simulator.cluster.draws import executor_keys, outage_ms
from simulator.cluster.engine import commands, faults
from simulator.cluster.losses import change_executors

if TYPE_CHECKING:
    from simulator.cluster.cluster import Cluster

__all__ = ["redraw_outages", "schedule_faults"]


def schedule_faults(cluster: Cluster) -> None:
    """Schedule all changes of the capacity, and the first loss of each executor; the time is 0."""
    for time_ms, capacity in cluster.config.faults.capacity:
        if time_ms > 0:
            cluster.clock.at(time_ms, _change_capacity, capacity)
        else:
            _change_capacity(cluster, capacity)
    _schedule_outages(cluster)


def redraw_outages(cluster: Cluster) -> None:
    """Redraw the future losses and returns of executors from the cluster's present seed."""
    if cluster.clock.cancel(_change_executor):
        _schedule_outages(cluster)


def _schedule_outages(cluster: Cluster) -> None:
    """Schedule the next change of each executor: a loss, or the return of a lost executor."""
    if math.isinf(cluster.config.faults.executor_lifetime_ms):
        return
    cluster._keys = executor_keys(cluster._noise_seed, cluster.config.num_executors)
    for executor in range(cluster.config.num_executors):
        _schedule_change(cluster, executor, int(executor in cluster._outages))


def _schedule_change(cluster: Cluster, executor: int, number: int) -> None:
    """Schedule change ``number`` of an executor: even numbers are losses, odd ones are returns."""
    time_ms = cluster.now_ms + outage_ms(cluster.config.faults, cluster._keys[executor], number)
    if math.isfinite(time_ms):
        cluster.clock.at(time_ms, _change_executor, (executor, number))


def _change_executor(cluster: Cluster, value: tuple[int, int]) -> None:
    executor, change = value
    _schedule_change(cluster, executor, change + 1)
    cluster._outages ^= {executor}
    if executor < cluster._capacity:
        _lose_or_join(cluster, [executor], joins=change % 2 == 1)


def _change_capacity(cluster: Cluster, capacity: int) -> None:
    before, cluster._capacity = cluster._capacity, capacity
    cluster._num_capacities -= 1
    changed = range(min(before, capacity), max(before, capacity))
    present = [executor for executor in changed if executor not in cluster._outages]
    _lose_or_join(cluster, present, joins=capacity > before)


def _lose_or_join(cluster: Cluster, executors: list[int], *, joins: bool) -> None:
    if not executors:
        return
    if joins:
        cluster._last_call = False
        commands.join(cluster._memory, np.array(executors), cluster.now_ms)
    else:
        cluster._take_lost_runs()
        faults.lose(cluster._memory, np.array(executors), cluster.now_ms)
    cluster._state.cluster["num_executors"] += len(executors) if joins else -len(executors)
    classes = cluster._state.executors["class_id"][executors]
    change_executors(cluster, executors, classes.tolist(), joins=joins)
    cluster._offer_free()
