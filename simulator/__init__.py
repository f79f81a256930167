"""What happens when jobs run under a scheduler: a discrete-event simulator of Spark clusters, and DeepRM's grid."""

from simulator.cluster.base import BaseCluster, SchedulingError
from simulator.cluster.cluster import Cluster
from simulator.cluster.config import DECIMA_SIM, PAPER, TRACE, ClusterConfig, ExecutorClass, Semantics
from simulator.cluster.env import ClusterEnv
from simulator.cluster.episode import make_cluster, run_episode
from simulator.cluster.observation import Decision, Observation, PerJob
from simulator.cluster.record import EpisodeRecord
from simulator.cluster.reference import ReferenceCluster
from simulator.errors import ConfigError
from simulator.grid import Grid, GridConfig, GridEnv, GridRecord

__all__ = [
    "DECIMA_SIM",
    "PAPER",
    "TRACE",
    "BaseCluster",
    "Cluster",
    "ClusterConfig",
    "ClusterEnv",
    "ConfigError",
    "Decision",
    "EpisodeRecord",
    "ExecutorClass",
    "Grid",
    "GridConfig",
    "GridEnv",
    "GridRecord",
    "Observation",
    "PerJob",
    "ReferenceCluster",
    "SchedulingError",
    "Semantics",
    "make_cluster",
    "run_episode",
]
