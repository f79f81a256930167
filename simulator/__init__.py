"""What happens when jobs run under a scheduler: a discrete-event simulator of Spark clusters, and DeepRM's grid."""

from simulator.cluster.cluster import Cluster, SchedulingError
from simulator.cluster.config import DECIMA_SIM, PAPER, ClusterConfig, ConfigError, ExecutorClass, Semantics
from simulator.cluster.env import ClusterEnv
from simulator.cluster.episode import run_episode
from simulator.cluster.observation import Decision, Observation
from simulator.cluster.record import EpisodeRecord
from simulator.grid import Grid, GridConfig, GridEnv, GridRecord

__all__ = [
    "DECIMA_SIM",
    "PAPER",
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
    "SchedulingError",
    "Semantics",
    "run_episode",
]
