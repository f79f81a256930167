from .comparison import Comparison, run_comparisons
from .conditions import CompareError, Conditions
from .episodes import run_scheduler
from .fit import best_fit, misfits
from .grid import GridComparison, grid_comparison
from .metrics import METRICS, Interval, Metric, mean_interval, measure

__all__ = [
    "METRICS",
    "CompareError",
    "Comparison",
    "Conditions",
    "GridComparison",
    "Interval",
    "Metric",
    "best_fit",
    "grid_comparison",
    "mean_interval",
    "measure",
    "misfits",
    "run_comparisons",
    "run_scheduler",
]

DEFAULT_SCHEDULERS: str
SCHEDULERS_THAT_PACK: str
RULES_FOR: dict[str, str]
MOVING_DELAY: float
