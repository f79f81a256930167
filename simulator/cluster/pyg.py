"""Observations as graphs of PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch_geometric.data import HeteroData

if TYPE_CHECKING:
    from simulator.cluster.observation import Observation

__all__ = ["CLUSTER_FEATURES", "JOB_FEATURES", "STAGE_FEATURES", "observation_graph"]

#: Columns of ``x`` of stages; see the attributes of these names in ``Observation``.
STAGE_FEATURES = (
    "num_tasks", "remaining_tasks", "unclaimed_tasks", "running_executors", "finished_tasks", "finished_ms",
    "mean_task_ms", "log_sd", "cpu", "memory", "ready", "schedulable",
)  # fmt: skip
#: Columns of ``x`` of jobs.
JOB_FEATURES = (
    "executors", "unsaturated_stages", "incomplete_stages", "first_work_ms", "log_sd", "weight", "age_ms", "is_source",
)  # fmt: skip
#: Columns of ``cluster``.
CLUSTER_FEATURES = ("offered", "executors", "free", "cpu", "memory")


def observation_graph(observation: Observation) -> HeteroData:
    """Return an observation as a graph of PyTorch Geometric, with a node for each stage and each job.

    The graph has these tensors, for S stages of J live jobs and E edges of their DAGs. Numbers are not scaled:

    - ``data["stage"].x``: float32 [S, 12], features of stages. Columns (``STAGE_FEATURES``): ``num_tasks``,
      ``remaining_tasks``, ``unclaimed_tasks``, ``running_executors``, ``finished_tasks`` (numbers),
      ``finished_ms`` (ms of executor time), ``mean_task_ms`` (ms), ``log_sd`` (standard deviation of the logarithm
      of the mean), ``cpu``, ``memory`` (demands of a task), ``ready``, ``schedulable`` (0 or 1). A stage is ready
      if its parents are complete and some of its tasks have not started.
    - ``data["stage"].schedulable``: bool [S], whether a decision may choose the stage.
    - ``data["job"].x``: float32 [J, 8], features of jobs. Columns (``JOB_FEATURES``): ``executors``,
      ``unsaturated_stages``, ``incomplete_stages`` (numbers), ``first_work_ms`` (ms of executor time), ``log_sd``
      (standard deviation of a logarithm), ``weight``, ``age_ms`` (time since the arrival, ms), ``is_source`` (0 or
      1, whether the offered executors belong to the job).
    - ``data["job"].held``: int64 [J], executors that the job holds without the offered ones; limits must exceed it.
    - ``data["job"].deadline_left_ms``: float32 [J], time until the deadline, ms; infinite without a deadline.
    - ``data["stage", "before", "stage"].edge_index``: int64 [2, E], from parents to children.
    - ``data["stage", "of", "job"].edge_index``: int64 [2, S], from each stage to its job.
    - ``data.cluster``: float32 [1, 5], features of the cluster. Columns (``CLUSTER_FEATURES``): ``offered``
      executors, ``executors`` in the cluster, ``free`` executors of the offered class, and ``cpu`` and ``memory``
      of an executor of this class.

    Stages and jobs have the indices of this observation, as in a ``Decision``.

    Returns:
        The graph. Its tensors are copies on the CPU, which later events of the cluster do not change.

    Examples:
        >>> from simulator import Cluster, ClusterConfig
        >>> from workloads import batch_arrivals, embedded_tpch
        >>> cluster = Cluster(ClusterConfig(num_executors=10), batch_arrivals(embedded_tpch(), num_jobs=2, seed=1))
        >>> data = cluster.observe().to_pyg()
        >>> data["stage"].x.shape[1], data["job"].x.shape, data.cluster[0, 0].item()
        (12, torch.Size([2, 8]), 10.0)
    """
    is_source = np.arange(len(observation.jobs)) == observation.source
    derived = {
        "ready": observation.ready_rank >= 0,
        "age_ms": observation.time_ms - observation.job_arrival_ms,
        "is_source": is_source,
    }
    stage_columns = [
        derived[name] if name in derived else observation.stages[name] for name in STAGE_FEATURES
    ]
    job_columns = [derived[name] if name in derived else observation.jobs[name] for name in JOB_FEATURES]
    free, cpu, memory = observation.classes[["free", "cpu", "memory"]][observation.executor_class]
    job_edges = [
        profile.edges + first
        for profile, first in zip(observation.profiles, observation.job_first_stage, strict=True)
    ]
    edges = np.concatenate([np.zeros((0, 2), dtype=np.int64), *job_edges])
    owners = np.stack([np.arange(len(observation.stages)), observation.stage_job])
    cluster = np.array(
        [[observation.offered, observation.num_executors, free, cpu, memory]], dtype=np.float32
    )
    deadline_left_ms = observation.job_deadline_ms - observation.time_ms

    data = HeteroData()
    data["stage"].x = torch.from_numpy(np.stack(stage_columns, axis=1).astype(np.float32))
    data["stage"].schedulable = torch.from_numpy(observation.stages["schedulable"].astype(bool))
    data["job"].x = torch.from_numpy(np.stack(job_columns, axis=1).astype(np.float32))
    data["job"].held = torch.from_numpy(observation.job_executors - observation.offered * is_source)
    data["job"].deadline_left_ms = torch.from_numpy(deadline_left_ms.astype(np.float32))
    data["stage", "before", "stage"].edge_index = torch.from_numpy(edges.T.copy())
    data["stage", "of", "job"].edge_index = torch.from_numpy(owners)
    data.cluster = torch.from_numpy(cluster)
    return data
