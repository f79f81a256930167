"""Environments with fixed settings, so that papers can cite them: what is behind the names in ``ids``.

A change that another trajectory follows from has a new name. Seeds are those of ``decima compare``: ``reset(seed=7)``
of an environment of clusters has the jobs and the task noise of the experiment with seed 7.
"""

from __future__ import annotations

from typing import Any

from simulator.cluster.config import ClusterConfig
from simulator.cluster.env import ClusterEnv
from simulator.cluster.vector import ClusterVectorEnv
from simulator.cluster.views import FlatView
from simulator.grid.config import GridConfig
from simulator.grid.env import GridEnv
from simulator.grid.vector import GridVectorEnv
from workloads.arrivals import JobSequence, batch_arrivals, poisson_arrivals
from workloads.grid_jobs import DISTRIBUTIONS, JobSets, draw_jobs
from workloads.sources.tpch_measured import embedded_tpch

__all__ = ["deeprm", "deeprm_vector", "tpch_batch", "tpch_batch_vector", "tpch_stream", "tpch_stream_vector"]

EXECUTORS, MOVING_DELAY_MS = 50, 2_000.0
BATCH_JOBS, STREAM_JOBS, INTERVAL_MS = 20, 200, 25_000.0
LOAD, STEPS = 0.7, 50


def _cluster() -> ClusterConfig:
    return ClusterConfig(num_executors=EXECUTORS, moving_delay_ms=MOVING_DELAY_MS)


def _batch(seed: int) -> JobSequence:
    return batch_arrivals(embedded_tpch(), BATCH_JOBS, seed)


def _stream(seed: int) -> JobSequence:
    return poisson_arrivals(embedded_tpch(), STREAM_JOBS, INTERVAL_MS, seed)


def _grid_jobs(seed: int) -> JobSets:
    return draw_jobs(DISTRIBUTIONS["code"], load=LOAD, steps=STEPS, sets=1, seed=seed)


def tpch_batch(**options: Any) -> ClusterEnv:
    """``decima/TPCHBatch-v0``: 20 jobs of measured TPC-H at time 0 on 50 executors that move in 2 s, in a ``FlatView``.

    Args:
        options: of ``ClusterEnv`` that say what is seen: ``view``, ``render_mode``.
    """
    return ClusterEnv(_batch, _cluster(), **{"view": FlatView, **options})


def tpch_batch_vector(num_envs: int, **options: Any) -> ClusterVectorEnv:
    """The same, many at once."""
    return ClusterVectorEnv(
        num_envs, make_sequence=_batch, config=_cluster(), **{"view": FlatView, **options}
    )


def tpch_stream(**options: Any) -> ClusterEnv:
    """``decima/TPCHStream-v0``: 200 such jobs that arrive 25 s apart on average (Poisson), else the same."""
    return ClusterEnv(_stream, _cluster(), **{"view": FlatView, **options})


def tpch_stream_vector(num_envs: int, **options: Any) -> ClusterVectorEnv:
    """The same, many at once."""
    return ClusterVectorEnv(
        num_envs, make_sequence=_stream, config=_cluster(), **{"view": FlatView, **options}
    )


def deeprm(**options: Any) -> GridEnv:
    """``decima/DeepRM-v0``: DeepRM's grid of 2 x 10 units; jobs enter in 50 steps at 70 % load, as its code draws them.

    Args:
        options: ``render_mode`` of ``GridEnv``.
    """
    return GridEnv(_grid_jobs, GridConfig(), **options)


def deeprm_vector(num_envs: int, **options: Any) -> GridVectorEnv:
    """The same, many at once."""
    return GridVectorEnv(num_envs, _grid_jobs, GridConfig(), **options)
