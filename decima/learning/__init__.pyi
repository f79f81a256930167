from .cluster.config import TrainingConfig, read_config
from .cluster.trainer import Trainer
from .grid.config import DeepRMConfig
from .grid.trainer import DeepRMTrainer
from .loop import IterationReport, TrainingLoop, TrainingResult
from .metrics import read_metrics

__all__ = [
    "DeepRMConfig",
    "DeepRMTrainer",
    "IterationReport",
    "Trainer",
    "TrainingConfig",
    "TrainingLoop",
    "TrainingResult",
    "read_config",
    "read_metrics",
]
