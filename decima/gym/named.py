"""Registered Gymnasium environments for benchmarks, with fixed settings.

The settings of an environment id never change; a change that alters trajectories gets a new version. Seeds are those
of ``decima compare``: ``reset(seed=7)`` of a cluster environment has the same jobs and task noise as its seed 7.
"""

from __future__ import annotations

from typing import Any

from simulator.cluster.config import ClusterConfig
from simulator.cluster.env import ClusterEnv, ClusterVectorEnv
from simulator.cluster.views import FlatView
from simulator.grid.config import GridConfig
from simulator.grid.env import GridEnv, GridVectorEnv
from workloads.arrivals import JobSequence, batch_arrivals, poisson_arrivals
from workloads.grid_jobs import DISTRIBUTIONS, JobSets, draw_jobs
from workloads.sources.tpch import embedded_tpch

__all__ = ["deeprm", "deeprm_vector", "tpch_batch", "tpch_batch_vector", "tpch_stream", "tpch_stream_vector"]

CLUSTER = ClusterConfig(num_executors=50, moving_delay_ms=2_000.0)
BATCH_JOBS, STREAM_JOBS, INTERVAL_MS = 20, 200, 25_000.0
LOAD, STEPS = 0.7, 50


def _batch(seed: int) -> JobSequence:
    return batch_arrivals(embedded_tpch(), BATCH_JOBS, seed)


def _stream(seed: int) -> JobSequence:
    return poisson_arrivals(embedded_tpch(), STREAM_JOBS, INTERVAL_MS, seed)


def _grid_jobs(seed: int) -> JobSets:
    return draw_jobs(DISTRIBUTIONS["code"], load=LOAD, steps=STEPS, sets=1, seed=seed)


def tpch_batch(**options: Any) -> ClusterEnv:
    """``decima/TPCHBatch-v0``: 20 measured TPC-H jobs at time 0 on 50 executors, moving delay 2 s; ``FlatView``.

    Args:
        options: ``view`` and ``render_mode`` of ``ClusterEnv``.
    """
    return ClusterEnv(_batch, CLUSTER, **{"view": FlatView, **options})


def tpch_batch_vector(num_envs: int, **options: Any) -> ClusterVectorEnv:
    """Vector environment of ``decima/TPCHBatch-v0``."""
    return ClusterVectorEnv(num_envs, make_sequence=_batch, config=CLUSTER, **{"view": FlatView, **options})


def tpch_stream(**options: Any) -> ClusterEnv:
    """``decima/TPCHStream-v0``: as ``TPCHBatch-v0``, but 200 jobs in a Poisson process, on average 25 s apart."""
    return ClusterEnv(_stream, CLUSTER, **{"view": FlatView, **options})


def tpch_stream_vector(num_envs: int, **options: Any) -> ClusterVectorEnv:
    """Vector environment of ``decima/TPCHStream-v0``."""
    return ClusterVectorEnv(num_envs, make_sequence=_stream, config=CLUSTER, **{"view": FlatView, **options})


def deeprm(**options: Any) -> GridEnv:
    """``decima/DeepRM-v0``: DeepRM's grid of 2 x 10 units; jobs of its published code arrive in 50 steps at 70 % load.

    Args:
        options: ``render_mode`` of ``GridEnv``.
    """
    return GridEnv(_grid_jobs, GridConfig(), **options)


def deeprm_vector(num_envs: int, **options: Any) -> GridVectorEnv:
    """Vector environment of ``decima/DeepRM-v0``."""
    return GridVectorEnv(num_envs, _grid_jobs, GridConfig(), **options)
