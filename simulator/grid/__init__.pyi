from .config import DEEPRM, PAPER, GridConfig, GridSemantics, Objective, Picture
from .env import GridEnv
from .grid import Grid
from .record import GridRecord

__all__ = [
    "DEEPRM",
    "PAPER",
    "Grid",
    "GridConfig",
    "GridEnv",
    "GridRecord",
    "GridSemantics",
    "Objective",
    "Picture",
]
