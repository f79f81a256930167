from .base import Scheduler
from .baselines import Fifo, RandomChoice, SjfCp
from .decisions import all_offered
from .fair import Fair, NaiveWeightedFair, WeightedFair
from .graphene.planner import GrapheneStar
from .order_search import JobOrder
from .packing import Drf, Tetris
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
