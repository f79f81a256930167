"""Scheduling rules, one per module. A rule chooses the stage that runs next and its job's parallelism limit."""

from decima.schedulers.base import Scheduler, all_offered
from decima.schedulers.drf import Drf
from decima.schedulers.fair import Fair, NaiveWeightedFair, WeightedFair
from decima.schedulers.fifo import Fifo
from decima.schedulers.graphene_star import GrapheneStar
from decima.schedulers.job_order import JobOrder
from decima.schedulers.random_choice import RandomChoice
from decima.schedulers.sjf_cp import SjfCp
from decima.schedulers.srpt import CappedSrpt, ProfiledSrpt
from decima.schedulers.tetris import Tetris

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
