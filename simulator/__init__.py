"""What happens when jobs run under a scheduler: a discrete-event simulator of Spark clusters, and DeepRM's grid."""

from simulator.cluster import Cluster, SchedulingError
from simulator.config import DECIMA_SIM, PAPER, ClusterConfig, ConfigError, ExecutorClass, Semantics
from simulator.env import ClusterEnv
from simulator.episode import run_episode
from simulator.grid import Grid, GridConfig, GridEnv, GridRecord
from simulator.observation import Decision, Observation
from simulator.record import EpisodeRecord

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
