from .algorithms import Algorithm, Batch
from .baselines import Baseline, Curve
from .cluster.config import TrainingConfig, read_config
from .cluster.trainer import Trainer, train_policy
from .grid.config import DeepRMConfig
from .grid.trainer import DeepRMTrainer
from .loop import IterationReport, TrainingLoop, TrainingResult
from .metrics import read_metrics
from .returns import Returns
from .updates import UpdateReport, take_step

__all__ = [
    "Algorithm",
    "Baseline",
    "Batch",
    "Curve",
    "DeepRMConfig",
    "DeepRMTrainer",
    "IterationReport",
    "Returns",
    "Trainer",
    "TrainingConfig",
    "TrainingLoop",
    "TrainingResult",
    "UpdateReport",
    "read_config",
    "read_metrics",
    "take_step",
    "train_policy",
]
