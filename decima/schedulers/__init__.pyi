from .base import Scheduler
from .decisions import all_offered
from .fair import Fair, NaiveWeightedFair, WeightedFair
from .fifo import Fifo
from .graphene.planner import GrapheneStar
from .order_search import JobOrder
from .packing import Drf, Tetris
from .random_choice import RandomChoice
from .sjf_cp import SjfCp
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
