from .cluster.base import BaseCluster, SchedulingError
from .cluster.cluster import Cluster
from .cluster.config import DECIMA_SIM, PAPER, SPARK, TRACE, ClusterConfig, ExecutorClass, Semantics
from .cluster.env import ClusterEnv
from .cluster.episode import make_cluster, run_episode
from .cluster.observation import Decision, Observation, PerJob
from .cluster.record import EpisodeRecord
from .cluster.reference import ReferenceCluster
from .errors import ConfigError
from .grid import Grid, GridConfig, GridEnv, GridRecord

__all__ = [
    "DECIMA_SIM",
    "PAPER",
    "SPARK",
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
