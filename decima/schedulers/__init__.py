"""Scheduling rules. A rule chooses the stage that runs next and its job's parallelism limit."""

from decima.schedulers.base import Scheduler, all_offered
from decima.schedulers.baselines import Fifo, JobOrder, RandomChoice, SjfCp, Tetris
from decima.schedulers.fair import Drf, Fair, NaiveWeightedFair, WeightedFair
from decima.schedulers.graphene.planner import GrapheneStar
from decima.schedulers.priced_srpt import CappedSrpt, ProfiledSrpt

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
