"""Schedulers for clusters that run job DAGs: heuristics and learned policies, compared on the same experiments.

The entry points of notebooks and scripts; everything else is in the packages.

Examples:
    >>> import decima
    >>> jobs = decima.batch_arrivals(decima.open_workload("tpch").profiles, num_jobs=5, seed=1)
    >>> record = decima.run_episode(decima.ClusterConfig(num_executors=20), jobs, decima.load_policy("tpch-batch"))
    >>> int(record.metrics()["completed_jobs"])
    5
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from workloads.errors import did_you_mean

if TYPE_CHECKING:
    from decima.evaluation.comparison import Comparison
    from decima.evaluation.metrics import mean_interval, paired_change, summary_table
    from decima.evaluation.options import compare, make_conditions
    from decima.evaluation.tuning import tune
    from decima.learning import train_policy as train
    from decima.registry import load_policy, make_scheduler
    from decima.schedulers import Scheduler
    from decima.show.plots import plot_dag, plot_schedule, plot_schedules
    from simulator import ClusterConfig, Decision, run_episode
    from workloads import batch_arrivals, open_workload, poisson_arrivals

__all__ = [
    "ClusterConfig",
    "Comparison",
    "Decision",
    "Scheduler",
    "__version__",
    "batch_arrivals",
    "compare",
    "load_policy",
    "make_conditions",
    "make_scheduler",
    "mean_interval",
    "open_workload",
    "paired_change",
    "plot_dag",
    "plot_schedule",
    "plot_schedules",
    "poisson_arrivals",
    "run_episode",
    "summary_table",
    "train",
    "tune",
]

__version__ = version("decima")

#: Public name -> its module (``module:NAME`` if the name differs there), imported on first use, since PyTorch, Numba
#: and pandas take seconds to import.
_PLACES = {
    "ClusterConfig": "simulator",
    "Comparison": "decima.evaluation.comparison",
    "Decision": "simulator",
    "Scheduler": "decima.schedulers",
    "batch_arrivals": "workloads",
    "compare": "decima.evaluation.options",
    "load_policy": "decima.registry",
    "make_conditions": "decima.evaluation.options",
    "make_scheduler": "decima.registry",
    "mean_interval": "decima.evaluation.metrics",
    "open_workload": "workloads",
    "paired_change": "decima.evaluation.metrics",
    "plot_dag": "decima.show.plots",
    "plot_schedule": "decima.show.plots",
    "plot_schedules": "decima.show.plots",
    "poisson_arrivals": "workloads",
    "run_episode": "simulator",
    "summary_table": "decima.evaluation.metrics",
    "train": "decima.learning:train_policy",
    "tune": "decima.evaluation.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'decima' has no attribute {name!r}{did_you_mean(name, __all__)}")
    module, _, original = _PLACES[name].partition(":")
    return getattr(import_module(module), original or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
