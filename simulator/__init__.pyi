from .cluster.base import BaseCluster, SchedulingError
from .cluster.cluster import Cluster
from .cluster.config import (
    DECIMA_SIM,
    PAPER,
    SPARK,
    TRACE,
    ClusterConfig,
    ConfigError,
    ExecutorClass,
    Semantics,
)
from .cluster.env import ClusterEnv
from .cluster.episode import make_cluster, run_episode
from .cluster.faults import NO_FAULTS, Faults
from .cluster.metrics import EpisodeMetrics
from .cluster.observation import Decision, Observation, PerJob
from .cluster.outcome import Outcome
from .cluster.record import EpisodeRecord
from .cluster.reference import ReferenceCluster
from .grid import Grid, GridConfig, GridEnv, GridRecord

__all__ = [
    "DECIMA_SIM",
    "NO_FAULTS",
    "PAPER",
    "SPARK",
    "TRACE",
    "BaseCluster",
    "Cluster",
    "ClusterConfig",
    "ClusterEnv",
    "ConfigError",
    "Decision",
    "EpisodeMetrics",
    "EpisodeRecord",
    "ExecutorClass",
    "Faults",
    "Grid",
    "GridConfig",
    "GridEnv",
    "GridRecord",
    "Observation",
    "Outcome",
    "PerJob",
    "ReferenceCluster",
    "SchedulingError",
    "Semantics",
    "make_cluster",
    "run_episode",
]
