from .comparison import Comparison, run_comparisons
from .conditions import CompareError, Conditions
from .fit import misfits
from .grid import GridConditions
from .grid_comparison import GridComparison, GridSettings
from .intervals import Interval, mean_interval
from .run import Run, run_scheduler

__all__ = [
    "CompareError",
    "Comparison",
    "Conditions",
    "GridComparison",
    "GridConditions",
    "GridSettings",
    "Interval",
    "Run",
    "mean_interval",
    "misfits",
    "run_comparisons",
    "run_scheduler",
]
