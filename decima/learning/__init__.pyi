from .cluster.advantages import Baseline, Curve, Returns
from .cluster.config import TrainingConfig, read_config
from .cluster.ppo import PPO
from .cluster.reinforce import Reinforce
from .cluster.train import ClusterTraining, train_policy
from .grid.config import DeepRMConfig
from .grid.train import GridTraining, train_on_grid
from .loop import TrainingLoop, take_step
from .metrics import IterationReport, TrainingResult
from .metrics_file import read_metrics

__all__ = [
    "PPO",
    "Baseline",
    "ClusterTraining",
    "Curve",
    "DeepRMConfig",
    "GridTraining",
    "IterationReport",
    "Reinforce",
    "Returns",
    "TrainingConfig",
    "TrainingLoop",
    "TrainingResult",
    "read_config",
    "read_metrics",
    "take_step",
    "train_on_grid",
    "train_policy",
]
