"""Schedule clusters that run DAGs of stages: simulate, compare rules and networks, train a network, look at schedules.

    >>> import decima
    >>> table = decima.compare("fair,srpt-tuned,decima", seeds=2, jobs=5)  # pandas: a row for each scheduler and seed
    >>> jobs = decima.batch_arrivals(decima.open_workload("tpch").profiles, num_jobs=5, seed=1)
    >>> record = decima.run_episode(decima.ClusterConfig(num_executors=20), jobs, "decima:tpch-batch")
    >>> figure = decima.plot_schedule(record)  # Gantt chart (matplotlib)
    >>> result = decima.train("quick", iterations=20)  # doctest: +SKIP
    >>> network = decima.load_policy("tpch-batch").network  # torch.nn.Module

A scheduler is a name (``decima schedulers`` lists them), a subclass of ``decima.Scheduler``, or a function from an
observation to a ``decima.Decision``. A job is a ``decima.Job``, also from a networkx graph: ``Job.from_networkx``.

    jobs       open_workload, batch_arrivals, poisson_arrivals, Job, plot_dag
    episodes   ClusterConfig, run_episode, plot_schedule, plot_schedules, plot_film
    compare    compare, summary_table, mean_interval, paired_change; Comparison, make_conditions
    decide     Scheduler, Decision, make_scheduler, load_policy
    learn      train, tune

Each has its own help, as in ``help(decima.compare)``. Arguments and columns of tables that end in ``_ms`` are
milliseconds; other times are seconds. Everything else is in the packages ``workloads``, ``simulator`` and ``decima``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from workloads.errors import did_you_mean

if TYPE_CHECKING:
    from decima.evaluation.comparison import Comparison
    from decima.evaluation.metrics import mean_interval, paired_change
    from decima.evaluation.options import compare, make_conditions
    from decima.evaluation.summary import summary_table
    from decima.evaluation.tuning import tune
    from decima.learning import train_policy as train
    from decima.registry import make_scheduler, run_episode
    from decima.registry.policies import load_policy
    from decima.schedulers import Scheduler
    from decima.show.plots import plot_dag, plot_film, plot_schedule, plot_schedules
    from simulator import ClusterConfig, Decision
    from workloads import JobProfile as Job
    from workloads import batch_arrivals, open_workload, poisson_arrivals

__all__ = [
    "ClusterConfig",
    "Comparison",
    "Decision",
    "Job",
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
    "plot_film",
    "plot_schedule",
    "plot_schedules",
    "poisson_arrivals",
    "run_episode",
    "summary_table",
    "train",
    "tune",
]

__version__ = "0.1.0"

#: Public name -> its module (``module:NAME`` if the name differs there), imported on first use, since PyTorch, Numba
#: and pandas take seconds to import.
_PLACES = {
    "ClusterConfig": "simulator",
    "Comparison": "decima.evaluation.comparison",
    "Decision": "simulator",
    "Job": "workloads:JobProfile",
    "Scheduler": "decima.schedulers",
    "batch_arrivals": "workloads",
    "compare": "decima.evaluation.options",
    "load_policy": "decima.registry.policies",
    "make_conditions": "decima.evaluation.options",
    "make_scheduler": "decima.registry",
    "mean_interval": "decima.evaluation.metrics",
    "open_workload": "workloads",
    "paired_change": "decima.evaluation.metrics",
    "plot_dag": "decima.show.plots",
    "plot_film": "decima.show.plots",
    "plot_schedule": "decima.show.plots",
    "plot_schedules": "decima.show.plots",
    "poisson_arrivals": "workloads",
    "run_episode": "decima.registry",
    "summary_table": "decima.evaluation.summary",
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
