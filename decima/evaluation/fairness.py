"""Fairness between tenants: finish-time fairness and Jain's index.

Finish-time fairness of a tenant is the mean JCT of its jobs in the shared cluster over their mean JCT in a dedicated
cluster. The dedicated cluster has the tenant's share of executors by weight, fair sharing and no faults. Below 1, the
tenant gains by sharing; the tenant with the largest value gains least.

Source: Themis (NSDI 2020), for one job; Jain, Chiu, Hawe (1984).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from decima.schedulers.fair import Fair
from simulator.cluster.config import ClusterConfig
from simulator.cluster.episode import run_episode
from simulator.cluster.faults import NO_FAULTS
from simulator.cluster.record import EpisodeRecord
from workloads.arrivals import JobSequence

__all__ = ["finish_time_fairness", "jains_index", "tenant_metrics"]


def tenant_metrics(record: EpisodeRecord) -> dict[str, float]:
    """Return the metrics ``unfairness`` (largest finish-time fairness) and ``jain`` (Jain's index) of an episode."""
    fairness = finish_time_fairness(record)
    fairness = fairness[~np.isnan(fairness)]
    return {"unfairness": float(fairness.max()) if fairness.size else math.nan, "jain": jains_index(fairness)}


def finish_time_fairness(record: EpisodeRecord) -> NDArray[np.float64]:
    """Return the finish-time fairness of each tenant, float64 [tenants].

    NaN for a tenant without a completed job; empty if the jobs have fewer than two tenants.
    """
    sequence = record.sequence
    present = np.unique(sequence.tenant)
    ratios = np.full(len(sequence.tenants), np.nan)
    if present.size < 2:
        return np.zeros(0)
    dedicated_ms = _dedicated_jct_ms(sequence, record.config)
    for tenant in present.tolist():
        mine = sequence.tenant == tenant
        completed = mine & ~np.isnan(record.jct_ms)
        if completed.any():
            ratios[tenant] = record.jct_ms[completed].mean() / dedicated_ms[completed].mean()
    return ratios


def jains_index(values: NDArray[np.float64]) -> float:
    """Return Jain's index of n values: 1/n if all but one are 0, 1 if all are equal; NaN without values."""
    squares = float(values.size * (values**2).sum())
    return float(values.sum()) ** 2 / squares if squares else math.nan


@lru_cache(maxsize=4)
def _dedicated_jct_ms(sequence: JobSequence, config: ClusterConfig) -> NDArray[np.float64]:
    """Return the JCT of each job in the dedicated cluster of its tenant, float64 [jobs], ms."""
    present = np.unique(sequence.tenant)
    weights = np.array([sequence.tenants[tenant].weight for tenant in present])
    jct_ms = np.zeros(len(sequence))
    for tenant, share in zip(present.tolist(), (weights / weights.sum()).tolist(), strict=True):
        jobs = np.flatnonzero(sequence.tenant == tenant)
        tenant_jobs = JobSequence(
            tuple(sequence.profiles[job] for job in jobs), sequence.arrival_ms[jobs], sequence.seed
        )
        classes = tuple(
            replace(executor_class, count=max(1, round(share * executor_class.count)))
            for executor_class in config.executor_classes
        )
        dedicated = replace(config, executor_classes=classes, faults=NO_FAULTS)
        jct_ms[jobs] = run_episode(dedicated, tenant_jobs, Fair()).jct_ms
    return jct_ms
