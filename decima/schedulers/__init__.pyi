from .base import Scheduler, all_offered
from .baselines import Fifo, JobOrder, RandomChoice, SjfCp, Tetris
from .fair import Drf, Fair, NaiveWeightedFair, WeightedFair
from .graphene.planner import GrapheneStar
from .priced_srpt import CappedSrpt, ProfiledSrpt

__all__ = [
    "CappedSrpt",
    "Drf",
    "Fair",
    "Fifo",
    "GrapheneStar",
    "JobOrder",
    "NaiveWeightedFair",
    "ProfiledSrpt",
    "RandomChoice",
    "Scheduler",
    "SjfCp",
    "Tetris",
    "WeightedFair",
    "all_offered",
]
