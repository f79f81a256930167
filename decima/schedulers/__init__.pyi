from .base import Scheduler, all_offered
from .baselines import Fifo, JobOrder, RandomChoice, SjfCp, Tetris
from .fair import Drf, Fair, NaiveWeightedFair, WeightedFair
from .graphene.planner import GrapheneStar
from .srpt import Srpt, TunedSrpt

__all__ = [
    "Drf",
    "Fair",
    "Fifo",
    "GrapheneStar",
    "JobOrder",
    "NaiveWeightedFair",
    "RandomChoice",
    "Scheduler",
    "SjfCp",
    "Srpt",
    "Tetris",
    "TunedSrpt",
    "WeightedFair",
    "all_offered",
]
